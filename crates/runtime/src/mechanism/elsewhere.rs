//! The descriptors of a follower whose leader is on another machine.
//!
//! Nothing can be handed over from there. So the follower makes each descriptor itself, under the
//! leader's number, when the log tells of it, and what only sets one up it does as well
//! ([`runs_along`]): the epoll sets watch what the leader's watch. What goes through a descriptor
//! is not moved again but counted, and put in place when the process goes on:
//!
//! ```text
//!   accepted connection      a socket that is not connected: the launcher makes it the client's
//!   listening socket         bound, and listens from then on
//!   pipe, event descriptor   gets what was written and not read
//!   file                     opened without emptying it, and moved to the leader's offset; where
//!                            that lies behind its end, writes fail from then on; one that is
//!                            appended to is [cut](appended) to what the log tells
//! ```
//!
//! A child has its parent's descriptors, and counts what it moves itself. Where both have a
//! connection the launcher goes by the one that has moved more.
//!
//! **What this does not do**: connections that the program has opened itself are lost, and so is
//! what lies in sockets that are not TCP. Files are not written: they are on storage that both
//! machines have, or are none of the service's state.

use std::ffi::{CStr, c_char};
use std::sync::atomic::{AtomicI32, AtomicI64, AtomicU8, AtomicU32, AtomicU64, Ordering};

use hindcast_execlog::config::descriptors;
use hindcast_execlog::handover::{Connection, GO};

use super::flows::{self, COUNTED};
use super::{appended, tree};
use crate::functions::{self, Function};
use crate::state::log::take_room;
use crate::state::numbers::alone;
use crate::state::recording;
use crate::{raw, syscall};

/// What a number stands for here.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum What {
    Other = 0,
    File = 1,
    Event = 2,
    /// An end of a pipe or of a socket pair.
    End = 3,
    Socket = 4,
    Connection = 5,
}

struct Made {
    what: AtomicU8,
    /// The other end; the port of what accepted it; the room for those that wait to be accepted.
    other: AtomicI32,
    /// An event descriptor's sum; of an end, what was read of what this one has written.
    taken: AtomicI64,
    /// A socket's: how many it has accepted; a connection's: that it was the so many-th.
    turn: AtomicU32,
    shut: AtomicU32,
    peer: [AtomicU32; 7],
    peer_length: AtomicU32,
    /// The last bytes that were written: where they are, and how many there were in all.
    ring: AtomicU64,
    written: AtomicU64,
    /// Written by the launcher: see [`Connection::beyond`].
    beyond: AtomicU64,
}

static MADE: [Made; COUNTED] = [const {
    Made {
        what: AtomicU8::new(0),
        other: AtomicI32::new(-1),
        taken: AtomicI64::new(0),
        turn: AtomicU32::new(0),
        shut: AtomicU32::new(0),
        peer: [const { AtomicU32::new(0) }; 7],
        peer_length: AtomicU32::new(0),
        ring: AtomicU64::new(0),
        written: AtomicU64::new(0),
        beyond: AtomicU64::new(0),
    }
}; COUNTED];

/// How much of what was written is kept. A connection has no more under way unless the client
/// stopped reading.
const RING_BYTES: usize = 256 << 10;

fn made(number: i32) -> Option<&'static Made> {
    MADE.get(usize::try_from(number).ok()?)
}

impl Made {
    fn what(&self) -> What {
        match self.what.load(Ordering::Relaxed) {
            1 => What::File,
            2 => What::Event,
            3 => What::End,
            4 => What::Socket,
            5 => What::Connection,
            _ => What::Other,
        }
    }

    fn begin(&self, what: What, other: i32) {
        self.what.store(what as u8, Ordering::Relaxed);
        self.other.store(other, Ordering::Relaxed);
        self.taken.store(0, Ordering::Relaxed);
        for number in [&self.turn, &self.shut, &self.peer_length] {
            number.store(0, Ordering::Relaxed);
        }
        self.written.store(0, Ordering::Relaxed);
        self.beyond.store(0, Ordering::Relaxed);
    }

    /// Keeps the last bytes of what is written. Writes to one descriptor are ordered as the
    /// leader's were, or it would not matter in which order they were.
    fn keep(&self, mut bytes: &[u8]) {
        let mut ring = self.ring.load(Ordering::Relaxed) as usize;
        if ring == 0 {
            // SAFETY: room taken just now, kept for as long as the process lives.
            let mapped = take_room(RING_BYTES).and_then(|room| {
                unsafe { raw::map_memory(room, RING_BYTES, libc::MAP_PRIVATE) }.ok()
            });
            let Some(mapped) = mapped else {
                return;
            };
            ring = mapped as usize;
            self.ring.store(ring as u64, Ordering::Relaxed);
        }
        let mut written = self.written.load(Ordering::Relaxed);
        while !bytes.is_empty() {
            let at = written as usize % RING_BYTES;
            let piece = bytes.len().min(RING_BYTES - at);
            // SAFETY: the ring has that much room behind `at`.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), (ring + at) as *mut u8, piece) };
            written += piece as u64;
            bytes = &bytes[piece..];
        }
        self.written.store(written, Ordering::Relaxed);
    }
}

// ---- Made as the log tells ----

/// The log says that a call has opened `number`, and its last owner has closed it.
/// `path` is that of a file.
pub fn make(function: Function, inputs: &[u64], path: *const c_char, number: i32) {
    let Some(entry) = made(number) else {
        return;
    };
    let input = |at: usize| inputs.get(at).copied().unwrap_or(0) as usize;
    alone(|| {
        let (what, other, file) = match function {
            functions::SOCKET => (What::Socket, -1, socket(input(0), input(1), input(2))),
            functions::ACCEPT => connection(input(0) as i32, 0),
            functions::ACCEPT4 => connection(input(0) as i32, input(1)),
            functions::EPOLL_CREATE => (What::Other, -1, call(libc::SYS_epoll_create1, 0, 0)),
            functions::EPOLL_CREATE1 => {
                let file = call(libc::SYS_epoll_create1, input(0), 0);
                (What::Other, -1, file)
            }
            functions::EVENTFD => (What::Event, -1, call(libc::SYS_eventfd2, 0, input(1))),
            functions::KERNEL_EVENTFD => (What::Event, -1, call(libc::SYS_eventfd2, 0, 0)),
            functions::TIMERFD_CREATE => {
                let file = call(libc::SYS_timerfd_create, input(0), input(1));
                (What::Other, -1, file)
            }
            functions::INOTIFY_INIT | functions::INOTIFY_INIT1 => {
                let file = call(libc::SYS_inotify_init1, input(0), 0);
                (What::Other, -1, file)
            }
            functions::DUP | functions::DUP2 | functions::DUP3 | functions::FCNTL64 => {
                (What::Other, -1, copy(input(0) as i32))
            }
            functions::OPEN => (What::File, -1, open(libc::AT_FDCWD, path, input(0) as i32)),
            functions::OPENAT => (What::File, -1, open(input(0) as i32, path, input(1) as i32)),
            _ => (What::Other, -1, nothing()),
        };
        entry.begin(what, other);
        if what == What::Event {
            entry.taken.store(input(0) as i64, Ordering::Relaxed);
        }
        if what == What::Connection
            && let Some(listener) = made(input(0) as i32)
        {
            let turn = listener.turn.fetch_add(1, Ordering::Relaxed);
            entry.turn.store(turn, Ordering::Relaxed);
        }
        let closes = function == functions::DUP3 && input(2) as i32 & libc::O_CLOEXEC != 0
            || function == functions::FCNTL64 && input(1) as i32 == libc::F_DUPFD_CLOEXEC;
        place(file, number, closes);
    });
}

/// A call that takes two numbers and gives a descriptor.
fn call(number: i64, first: usize, second: usize) -> isize {
    // SAFETY: numbers only.
    unsafe { syscall!(number, first, second) }
}

/// As [`make`] for both ends of a pipe or of a socket pair.
pub fn make_pair(function: Function, inputs: &[u64], numbers: [i32; 2]) {
    let input = |at: usize| inputs.get(at).copied().unwrap_or(0) as usize;
    let mut ends = [-1i32; 2];
    alone(|| {
        // SAFETY: room for two numbers.
        let result = unsafe {
            match function {
                functions::PIPE => syscall!(libc::SYS_pipe2, ends.as_mut_ptr(), 0),
                functions::PIPE2 => syscall!(libc::SYS_pipe2, ends.as_mut_ptr(), input(0)),
                _ => syscall!(
                    libc::SYS_socketpair,
                    input(0),
                    input(1),
                    input(2),
                    ends.as_mut_ptr()
                ),
            }
        };
        if raw::error_of(result).is_some() {
            return;
        }
        // Neither is put over the other.
        if ends[1] == numbers[0] {
            // SAFETY: a number.
            let moved = unsafe { syscall!(libc::SYS_dup, ends[1]) } as i32;
            keep_flags(ends[1], moved);
            raw::close(ends[1]);
            ends[1] = moved;
        }
        for ((end, number), other) in ends.into_iter().zip(numbers).zip([numbers[1], numbers[0]]) {
            place(end as isize, number, false);
            if let Some(entry) = made(number) {
                entry.begin(What::End, other);
            }
        }
    });
}

fn keep_flags(from: i32, to: i32) {
    // SAFETY: numbers only.
    unsafe {
        let flags = syscall!(libc::SYS_fcntl, from, libc::F_GETFD);
        syscall!(libc::SYS_fcntl, to, libc::F_SETFD, flags);
    }
}

/// Gives a new file the number that the leader's has.
fn place(file: isize, number: i32, closes_on_exec: bool) {
    let file = match raw::error_of(file) {
        Some(_) => nothing() as i32,
        None => file as i32,
    };
    if file == number || file < 0 {
        return;
    }
    // SAFETY: numbers only; in this process the number stood for nothing, or for what was closed.
    unsafe {
        syscall!(libc::SYS_dup3, file, number, 0);
    }
    keep_flags(file, number);
    if closes_on_exec {
        // SAFETY: numbers only.
        unsafe { syscall!(libc::SYS_fcntl, number, libc::F_SETFD, libc::FD_CLOEXEC) };
    }
    raw::close(file);
}

/// In place of what cannot be made here.
fn nothing() -> isize {
    raw::open_at(libc::AT_FDCWD, c"/dev/null", libc::O_RDWR, 0).map_or(-1, |file| file as isize)
}

fn socket(domain: usize, kind: usize, protocol: usize) -> isize {
    const IPV6_FREEBIND: i32 = 78;
    // SAFETY: numbers, and one option.
    unsafe {
        let file = syscall!(libc::SYS_socket, domain, kind, protocol);
        // The address that it is bound to is the other machine's until this process goes on.
        let (level, option) = match domain as i32 {
            libc::AF_INET6 => (libc::IPPROTO_IPV6, IPV6_FREEBIND),
            _ => (libc::IPPROTO_IP, libc::IP_FREEBIND),
        };
        let on = 1i32;
        syscall!(libc::SYS_setsockopt, file, level, option, &raw const on, 4);
        file
    }
}

/// Domain and port of a socket that is bound to an address of the internet.
fn name_of(socket: i32) -> Option<(i32, u16)> {
    let mut name = [0u16; 14];
    let mut length = size_of_val(&name) as u32;
    // SAFETY: room for a name, and its length.
    let result = unsafe {
        syscall!(
            libc::SYS_getsockname,
            socket,
            name.as_mut_ptr(),
            &raw mut length
        )
    };
    let domain = i32::from(name[0]);
    let is_known = raw::error_of(result).is_none();
    (is_known && matches!(domain, libc::AF_INET | libc::AF_INET6))
        .then(|| (domain, u16::from_be(name[1])))
}

/// A socket for a connection that `listener` has accepted.
fn connection(listener: i32, flags: usize) -> (What, i32, isize) {
    let Some((domain, port)) = name_of(listener) else {
        return (What::Other, -1, nothing());
    };
    let file = socket(domain as usize, libc::SOCK_STREAM as usize | flags, 0);
    (What::Connection, i32::from(port), file)
}

/// Another number for the same file, once that is where the leader's is.
fn copy(from: i32) -> isize {
    if made(from).is_some_and(|entry| entry.what() == What::File) {
        move_by(from, flows::counted(from));
    }
    // SAFETY: a number.
    unsafe { syscall!(libc::SYS_dup, from) }
}

fn move_by(file: i32, (received, sent): (u64, u64)) {
    // SAFETY: numbers only.
    unsafe { syscall!(libc::SYS_lseek, file, received + sent, libc::SEEK_CUR) };
}

/// Opens a file as it was opened there, and leaves what is in it. A pipe that nobody else has open
/// is not waited for.
fn open(directory: i32, path: *const c_char, flags: i32) -> isize {
    if path.is_null() {
        return nothing();
    }
    // SAFETY: the program's own path, which the leader has opened.
    let path = unsafe { CStr::from_ptr(path) };
    let kept = flags & !(libc::O_TRUNC | libc::O_EXCL | libc::O_CREAT) | libc::O_NONBLOCK;
    let mut opened = raw::open_at(directory, path, kept, 0);
    if opened == Err(libc::ENOENT) && flags & libc::O_CREAT != 0 {
        opened = raw::open_at(directory, path, kept | libc::O_CREAT, 0o666);
    }
    let Ok(file) = opened else {
        return nothing();
    };
    if flags & libc::O_NONBLOCK == 0 {
        // SAFETY: numbers only.
        unsafe { syscall!(libc::SYS_fcntl, file, libc::F_SETFL, flags) };
    }
    file as isize
}

/// A child is about to be made, which has the same files open. Their offsets are shared, so they
/// are where the leader's are: both count from here.
pub fn before_fork() {
    for (number, entry) in (0..).zip(&MADE) {
        if entry.what() == What::File {
            move_by(number, flows::counted(number));
            flows::count_anew(number);
        }
    }
}

/// What this process inherited the parent puts in place: it counts its own.
pub fn after_fork_in_child() {
    appended::after_fork_in_child();
    flows::set_talks(false);
    for entry in &MADE {
        match entry.what() {
            What::Event => entry.begin(What::Other, -1),
            What::End => {
                let written = entry.written.load(Ordering::Relaxed);
                entry.taken.store(written as i64, Ordering::Relaxed);
            }
            _ => {}
        }
    }
}

/// The program is about to give a number back.
pub fn close(number: i32) {
    if let Some(entry) = made(number) {
        entry.begin(What::Other, -1);
        appended::forget(number);
        raw::close(number);
    }
}

/// Whether a call is made here as well: it sets up a descriptor, and moves nothing through it.
pub fn runs_along(function: Function, inputs: &[u64]) -> bool {
    let command = inputs.get(1).copied().unwrap_or(0);
    match function {
        functions::BIND
        | functions::SETSOCKOPT
        | functions::EPOLL_CTL
        | functions::TIMERFD_SETTIME => true,
        functions::FCNTL => matches!(command as i32, libc::F_SETFD | libc::F_SETFL),
        functions::IOCTL => command == libc::FIONBIO,
        _ => false,
    }
}

/// The log says that this call has had this result.
pub fn told(function: Function, inputs: &[u64], result: i64) {
    let Some(entry) = inputs.first().and_then(|number| made(*number as i32)) else {
        return;
    };
    let second = inputs.get(1).copied().unwrap_or(0);
    if entry.what() == What::Connection && flows::moves(function, inputs) {
        flows::set_talks(true);
    }
    match function {
        functions::LISTEN => entry.other.store(second.max(1) as i32, Ordering::Relaxed),
        functions::SHUTDOWN => {
            entry.shut.fetch_or(second as u32 + 1, Ordering::Relaxed);
        }
        functions::FTRUNCATE => appended::forget(inputs[0] as i32),
        functions::LSEEK if entry.what() == What::File => {
            // SAFETY: numbers only.
            unsafe { syscall!(libc::SYS_lseek, inputs[0], result, libc::SEEK_SET) };
            flows::count_anew(inputs[0] as i32);
        }
        functions::READ | functions::READV | functions::RECVFROM | functions::RECVMSG
            if entry.what() == What::End =>
        {
            if let Some(writes) = made(entry.other.load(Ordering::Relaxed)) {
                writes.taken.fetch_add(result, Ordering::Relaxed);
            }
        }
        _ => {}
    }
}

/// The program has written this.
///
/// # Safety
/// `length` bytes must be readable.
pub unsafe fn wrote(number: i32, bytes: *const u8, length: usize) {
    let Some(entry) = made(number) else {
        return;
    };
    match entry.what() {
        What::Event if length == 8 => {
            // SAFETY: the caller's promise.
            let value = unsafe { bytes.cast::<i64>().read_unaligned() };
            entry.taken.fetch_add(value, Ordering::Relaxed);
        }
        // SAFETY: the caller's promise.
        What::File if appended::wrote(number) => {
            entry.keep(unsafe { std::slice::from_raw_parts(bytes, length) })
        }
        // SAFETY: as above.
        What::End | What::Connection => {
            entry.keep(unsafe { std::slice::from_raw_parts(bytes, length) })
        }
        _ => {}
    }
}

/// The program has written what is in a file from here on.
pub fn wrote_from(number: i32, file: i32, mut from: i64, mut length: usize) {
    let Some(entry) = made(number).filter(|entry| entry.what() == What::Connection) else {
        return;
    };
    let mut piece = [0u8; 16 << 10];
    while length > 0 {
        let wanted = length.min(piece.len());
        // SAFETY: room for as much as is asked for.
        let read = unsafe { syscall!(libc::SYS_pread64, file, piece.as_mut_ptr(), wanted, from) };
        if read <= 0 {
            // The file is another one here: what was written is not known any more.
            return;
        }
        entry.keep(&piece[..read as usize]);
        length -= read as usize;
        from += read as i64;
    }
}

/// The program has read this.
///
/// # Safety
/// `length` bytes must be readable.
pub unsafe fn has_read(number: i32, bytes: *const u8, length: usize) {
    if let Some(entry) = made(number)
        && entry.what() == What::Event
        && length == 8
    {
        // SAFETY: the caller's promise.
        let value = unsafe { bytes.cast::<i64>().read_unaligned() };
        entry.taken.fetch_sub(value, Ordering::Relaxed);
    }
}

/// Who is at the other end of an accepted connection.
///
/// # Safety
/// `length` bytes must be readable.
pub unsafe fn accepted_from(number: i32, address: *const u8, length: usize) {
    let Some(entry) = made(number) else {
        return;
    };
    let length = length.min(28);
    let mut words = [0u32; 7];
    // SAFETY: the caller's promise, and no more than there is room for.
    unsafe { std::ptr::copy_nonoverlapping(address, words.as_mut_ptr().cast::<u8>(), length) };
    for (word, value) in entry.peer.iter().zip(words) {
        word.store(value, Ordering::Relaxed);
    }
    entry.peer_length.store(length as u32, Ordering::Relaxed);
}

// ---- Going on ----

/// Makes what was counted real, and has the launcher connect what was connected.
pub fn take_over() -> Result<(), &'static str> {
    for (number, entry) in (0..).zip(&MADE) {
        match entry.what() {
            What::Connection => say(&of(number, entry))?,
            What::Socket if entry.other.load(Ordering::Relaxed) >= 0 => {
                say(&Connection {
                    number,
                    shut: Connection::LISTENS,
                    port: name_of(number).map_or(0, |(_, port)| port),
                    turn: entry.turn.load(Ordering::Relaxed),
                    ..Connection::NONE
                })?;
            }
            _ => {}
        }
    }
    tree::together(tree::NAMED);
    if recording::is_first_process() {
        say(&Connection::NONE)?;
        hear()?;
    }
    tree::together(tree::CONNECTED);
    for (number, entry) in (0..).zip(&MADE) {
        fill(number, entry);
    }
    flows::are_here();
    for (number, entry) in (0..).zip(&MADE) {
        let beyond = entry.beyond.load(Ordering::Acquire);
        if beyond != 0 {
            flows::sent_beyond(number, beyond);
        }
    }
    Ok(())
}

/// Waits until everything is connected.
fn hear() -> Result<(), &'static str> {
    let mut heard = 0u8;
    // SAFETY: room for one byte.
    let read = unsafe { syscall!(libc::SYS_read, descriptors::TABLE, &raw mut heard, 1) };
    match (read, heard) {
        (1, GO) => Ok(()),
        _ => Err("the process that connects them is gone"),
    }
}

fn of(number: i32, entry: &Made) -> Connection {
    let mut peer = [0u8; 28];
    for (bytes, word) in peer.chunks_exact_mut(4).zip(&entry.peer) {
        bytes.copy_from_slice(&word.load(Ordering::Relaxed).to_ne_bytes());
    }
    let (received, sent) = flows::counted(number);
    let ring = entry.ring.load(Ordering::Relaxed);
    Connection {
        number,
        shut: entry.shut.load(Ordering::Relaxed),
        received,
        sent,
        peer,
        peer_length: entry.peer_length.load(Ordering::Relaxed),
        port: entry.other.load(Ordering::Relaxed) as u16,
        turn: entry.turn.load(Ordering::Relaxed),
        ring,
        ring_bytes: RING_BYTES as u64,
        written: entry.written.load(Ordering::Relaxed),
        beyond: entry.beyond.as_ptr() as u64,
    }
}

fn say(connection: &Connection) -> Result<(), &'static str> {
    let bytes = connection.as_bytes();
    // SAFETY: bytes of this function.
    let written = unsafe {
        syscall!(
            libc::SYS_write,
            descriptors::TABLE,
            bytes.as_ptr(),
            bytes.len()
        )
    };
    match written as usize == bytes.len() {
        true => Ok(()),
        false => Err("the process that connects them is gone"),
    }
}

fn fill(number: i32, entry: &Made) {
    let other = entry.other.load(Ordering::Relaxed);
    match entry.what() {
        What::Socket if other >= 0 => {
            // SAFETY: numbers only.
            unsafe { syscall!(libc::SYS_listen, number, other) };
        }
        What::Socket if flows::has_moved(number) => lost(),
        What::File => {
            move_by(number, flows::counted(number));
            if has_hole(number) {
                fail_writes(number);
            }
            cut_off(number, entry);
        }
        What::Event => {
            let value = entry.taken.load(Ordering::Relaxed);
            if value > 0 {
                raw::write_all(number, &value.to_ne_bytes());
            }
        }
        What::End => {
            let written = entry.written.load(Ordering::Relaxed);
            let taken = entry.taken.load(Ordering::Relaxed) as u64;
            let from = taken.max(written.saturating_sub(RING_BYTES as u64));
            let ring = entry.ring.load(Ordering::Relaxed) as usize;
            for at in from..written {
                // SAFETY: a byte of the ring.
                let byte = unsafe { *((ring + at as usize % RING_BYTES) as *const u8) };
                raw::write_all(number, &[byte]);
            }
        }
        _ => {}
    }
}

/// What the leader has appended to a file beyond the log is not there for the one that goes on.
fn cut_off(number: i32, entry: &Made) {
    let written = entry.written.load(Ordering::Relaxed);
    let ring = entry.ring.load(Ordering::Relaxed) as usize;
    let kept = if ring == 0 { 0 } else { RING_BYTES as u64 };
    appended::cut(number, (written, kept), |at| {
        // SAFETY: a byte of the ring.
        unsafe { *((ring + at as usize % RING_BYTES) as *const u8) }
    });
}

/// Whether a file is written from a place on that lies behind its end: what the leader had written
/// is not here.
fn has_hole(number: i32) -> bool {
    let mut found = std::mem::MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: numbers, and room for one `stat`.
    let (flags, at, looked) = unsafe {
        (
            syscall!(libc::SYS_fcntl, number, libc::F_GETFL) as i32,
            syscall!(libc::SYS_lseek, number, 0, libc::SEEK_CUR) as i64,
            syscall!(libc::SYS_fstat, number, found.as_mut_ptr()),
        )
    };
    // SAFETY: zeroed or filled in.
    let found = unsafe { found.assume_init() };
    looked == 0
        && found.st_mode & libc::S_IFMT == libc::S_IFREG
        && flags & libc::O_ACCMODE != libc::O_RDONLY
        && flags & libc::O_APPEND == 0
        && at > found.st_size
}

/// The program is told so as by a full disk: a file with a hole would look like a whole one.
fn fail_writes(number: i32) {
    if let Ok(full) = raw::open_at(libc::AT_FDCWD, c"/dev/full", libc::O_WRONLY, 0) {
        keep_flags(number, full);
        place(full as isize, number, false);
        if let Some(board) = recording::board() {
            board.lost_files.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// A connection of the program's own making: the other side is told nothing, and this one sees that
/// it is not connected.
fn lost() {
    if let Some(board) = recording::board() {
        board.lost_connections.fetch_add(1, Ordering::Relaxed);
    }
}
