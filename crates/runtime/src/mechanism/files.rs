//! What the runtime knows about the program's file descriptors. In replay they are numbers and
//! nothing else.

use std::ffi::CString;
use std::sync::atomic::{AtomicI32, AtomicU8, AtomicU32, Ordering};

use hindcast_execlog::config::{FileId, descriptors, optimizations};

use crate::mechanism::references::path_of;
use crate::mechanism::{elsewhere, flows, follow, references};
use crate::state::mode::{Mode, elsewhere, follows, leads, mode, refers};
use crate::state::recording;
use crate::state::thread::Current;
use crate::{raw, syscall};

/// What a descriptor refers to, as far as it matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    File = 0,
    /// Another thread of this process may hold the other end: pipes, socket pairs, event
    /// descriptors.
    Internal = 1,
    Socket = 2,
    Poll = 3,
    Other = 4,
}

/// What numbers stand for that a call has given to the program.
#[derive(Clone, Copy)]
pub enum Meaning {
    Is(Kind),
    /// Two ends, or one, of something inside the process.
    Inside,
    /// What another number stands for.
    CopyOf(i32),
}

impl Meaning {
    /// The numbers stand for it from now on.
    pub fn is_of(self, [one, other]: [i32; 2]) {
        match self {
            Meaning::Is(kind) => opened(one, kind),
            Meaning::Inside => opened_internal(one, other),
            Meaning::CopyOf(from) => duplicated(from, one),
        }
    }
}

const ECHO_STDOUT: u8 = 0x10;
const ECHO_STDERR: u8 = 0x20;
const KIND: u8 = 0x0f;

/// Descriptors with numbers below this are known.
pub const TRACKED: usize = flows::COUNTED;

/// What is known of one descriptor. Written by the thread that opens or closes it; the kernel gives
/// a number to one owner at a time.
struct Known {
    flags: AtomicU8,
    /// Of an internal one, the first end of its pair.
    object: AtomicU32,
    /// 0, in a recording [`RECORDED`], or the real one that is read in replay.
    reproduced: AtomicI32,
}

static KNOWN: [Known; TRACKED] = [const {
    Known {
        flags: AtomicU8::new(0),
        object: AtomicU32::new(0),
        reproduced: AtomicI32::new(0),
    }
}; TRACKED];

fn known(descriptor: i32) -> Option<&'static Known> {
    KNOWN.get(usize::try_from(descriptor).ok()?)
}

impl Known {
    /// The number stands for another file now, or for none. The file that it stood for is closed.
    fn reproduce(&self, real: i32) {
        let before = self.reproduced.swap(real, Ordering::Relaxed);
        if before > 0 && recording::replaying() {
            raw::close(before);
        }
    }
}

pub fn opened(descriptor: i32, kind: Kind) {
    references::released(descriptor);
    if let Some(known) = known(descriptor) {
        known.flags.store(kind as u8, Ordering::Relaxed);
    }
}

pub fn closed(descriptor: i32) {
    references::released(descriptor);
    flows::closes(descriptor);
    if elsewhere() {
        elsewhere::close(descriptor);
    }
    if let Some(known) = known(descriptor) {
        known.flags.store(Kind::File as u8, Ordering::Relaxed);
        known.reproduce(0);
    }
}

fn duplicated(from: i32, to: i32) {
    flows::duplicated(from, to);
    references::duplicated(from, to);
    let (Some(source), Some(target)) = (known(from), known(to)) else {
        return;
    };
    target
        .flags
        .store(source.flags.load(Ordering::Relaxed), Ordering::Relaxed);
    target
        .object
        .store(source.object.load(Ordering::Relaxed), Ordering::Relaxed);
    // What replay reads again it finds by offsets from the log, so two descriptors need not share a
    // position there.
    target.reproduce(match source.reproduced.load(Ordering::Relaxed) {
        real if real <= 0 => real,
        // SAFETY: a number.
        real if recording::replaying() => match unsafe { syscall!(libc::SYS_dup, real) } {
            failed if failed < 0 => MISSING,
            copy => copy as i32,
        },
        _ => RECORDED,
    });
}

pub fn kind(descriptor: i32) -> Kind {
    match known(descriptor).map_or(0, |known| known.flags.load(Ordering::Relaxed) & KIND) {
        1 => Kind::Internal,
        2 => Kind::Socket,
        3 => Kind::Poll,
        4 => Kind::Other,
        _ => Kind::File,
    }
}

/// Whether a descriptor is of a stream of bytes from outside, in a process that is followed or
/// follows.
#[inline]
pub fn is_followed_connection(descriptor: i32) -> bool {
    (leads() || follows()) && kind(descriptor) == Kind::Socket
}

/// Where replay writes again what is written to this descriptor; `None` for all but the original
/// standard output and error.
pub fn echo_target(descriptor: i32) -> Option<i32> {
    // The leader has written it.
    if follows() {
        return None;
    }
    match known(descriptor).map_or(0, |known| known.flags.load(Ordering::Relaxed) & !KIND) {
        ECHO_STDOUT => Some(descriptors::STDOUT),
        ECHO_STDERR => Some(descriptors::STDERR),
        _ => None,
    }
}

/// What orders reads and writes of a descriptor whose other end may be in this process: the same
/// for both ends.
#[inline]
pub fn sync_key(descriptor: i32) -> Option<u64> {
    if kind(descriptor) != Kind::Internal {
        return None;
    }
    known(descriptor).map(|known| INTERNAL_KEYS | u64::from(known.object.load(Ordering::Relaxed)))
}

/// Keys of descriptors lie where no address of the program can.
const INTERNAL_KEYS: u64 = 1 << 62;

/// What orders the lives of descriptors that have the same number one after the other.
pub fn number_key(descriptor: i32) -> u64 {
    INTERNAL_KEYS | 1 << 61 | u64::from(descriptor as u32)
}

/// The two ends of a pipe or socket pair, or twice the same descriptor where both ends are one.
pub fn opened_internal(one: i32, other: i32) {
    for descriptor in [one, other] {
        opened(descriptor, Kind::Internal);
        if let Some(known) = known(descriptor) {
            known.object.store(one as u32, Ordering::Relaxed);
        }
    }
}

/// R2's `reproduce` (section 6): files below a folder that the user names are read again in replay
/// instead of being logged. After an `open` that succeeded, in both runs.
pub fn opened_path(thread: &mut Current, descriptor: i32) {
    if refers() {
        return references::opened(thread, descriptor);
    }
    let Some(Known { reproduced, .. }) = known(descriptor) else {
        return;
    };
    match mode() {
        Mode::Record if recording::config().optimizations & optimizations::REPRODUCE != 0 => {
            let mut path = [0; 1024];
            if let Some(path) = path_of(descriptor, &mut path)
                .filter(|path| is_below(path, recording::config().reproduce.as_str()))
            {
                thread.writer.append(
                    hindcast_execlog::Kind::File,
                    &[&descriptor.to_ne_bytes(), path],
                );
                reproduced.store(RECORDED, Ordering::Relaxed);
            }
        }
        Mode::Replay if recording::config().optimizations & optimizations::REPRODUCE != 0 => {
            if let Some(event) = follow::peek(thread)
                && event.kind == hindcast_execlog::Kind::File as u16
                && let Some((_, path)) = event.payload.split_first_chunk::<4>()
            {
                thread.reader.advance(&event);
                let opened = CString::new(path).map_err(|_| libc::EINVAL);
                let opened =
                    opened.and_then(|path| raw::open_at(libc::AT_FDCWD, &path, libc::O_RDONLY, 0));
                reproduced.store(opened.unwrap_or(MISSING), Ordering::Relaxed);
            }
        }
        _ => {}
    }
}

/// Which real descriptor reads from this one are to be taken from in replay.
pub fn reproduced(descriptor: i32) -> Option<i32> {
    let real = known(descriptor)?.reproduced.load(Ordering::Relaxed);
    (real != 0).then_some(real)
}

/// The file was not there in replay.
const MISSING: i32 = -1;
const RECORDED: i32 = 1;

fn is_below(path: &[u8], folder: &str) -> bool {
    let folder = folder.trim_end_matches('/').as_bytes();
    path.strip_prefix(folder)
        .is_some_and(|rest| rest.first() == Some(&b'/'))
}

/// Whether a descriptor is ours: for the program it does not exist.
#[inline]
pub fn is_protected(descriptor: i32) -> bool {
    (descriptors::LIBRARY..descriptors::END).contains(&descriptor)
}

/// Whether a folder is one in which the kernel lists the descriptors of a process.
pub fn lists_descriptors(folder: i32) -> bool {
    let mut path = [0u8; 1024];
    path_of(folder, &mut path).is_some_and(|path| {
        path.starts_with(b"/proc/") && (path.ends_with(b"/fd") || path.ends_with(b"/fdinfo"))
    })
}

/// Makes `number`, one of ours, another number of `file`.
pub fn put_at(file: i32, number: i32, flags: i32) {
    // SAFETY: descriptors of ours.
    unsafe { syscall!(libc::SYS_dup3, file, number, flags) };
}

/// Runs `inner` while numbers of ours may be made.
pub fn allowing_ours(inner: impl FnOnce()) {
    allowing(descriptors::END as u64, inner);
}

/// Runs `inner` while descriptors below this number may be made, as far as the hard limit permits;
/// the launcher has seen to it that it leaves room for ours. A descriptor must be below the soft
/// limit when it is made, though it may be above later.
pub fn allowing<R>(numbers: u64, inner: impl FnOnce() -> R) -> R {
    let limit = limit_of_files(None);
    let wanted = numbers.min(limit.rlim_max);
    if limit.rlim_cur >= wanted {
        return inner();
    }
    limit_of_files(Some(&libc::rlimit {
        rlim_cur: wanted,
        ..limit
    }));
    let result = inner();
    limit_of_files(Some(&limit));
    result
}

/// The limit on open files before this, which may change it.
fn limit_of_files(wanted: Option<&libc::rlimit>) -> libc::rlimit {
    let mut limit = libc::rlimit {
        rlim_cur: libc::RLIM_INFINITY,
        rlim_max: libc::RLIM_INFINITY,
    };
    // SAFETY: reads one limit, or none, and writes one.
    unsafe {
        syscall!(
            libc::SYS_prlimit64,
            0,
            libc::RLIMIT_NOFILE,
            wanted.map_or(std::ptr::null(), std::ptr::from_ref),
            &raw mut limit
        )
    };
    limit
}

/// At start: which of the standard descriptors lead to where the launcher's own output goes.
pub fn start() {
    let config = recording::config();
    for descriptor in 0..3 {
        if recording::replaying() {
            continue;
        }
        let Some(id) = identity(descriptor) else {
            continue;
        };
        let flag = match id {
            id if id == config.stdout && id == config.stderr => {
                if descriptor == 2 {
                    ECHO_STDERR
                } else {
                    ECHO_STDOUT
                }
            }
            id if id == config.stdout => ECHO_STDOUT,
            id if id == config.stderr => ECHO_STDERR,
            _ => continue,
        };
        KNOWN[descriptor as usize]
            .flags
            .store(flag | Kind::Other as u8, Ordering::Relaxed);
    }
}

/// The flags of the first three descriptors, for the log: replay has no descriptors to look at.
pub fn standard_flags() -> [u8; 3] {
    [0, 1, 2].map(|descriptor: usize| KNOWN[descriptor].flags.load(Ordering::Relaxed))
}

pub fn set_standard_flags(flags: [u8; 3]) {
    for (descriptor, flags) in flags.into_iter().enumerate() {
        KNOWN[descriptor].flags.store(flags, Ordering::Relaxed);
    }
}

/// Device and inode of an open descriptor.
pub fn identity(descriptor: i32) -> Option<FileId> {
    let mut found = std::mem::MaybeUninit::<libc::stat>::uninit();
    // SAFETY: room for one `stat`.
    let result = unsafe { syscall!(libc::SYS_fstat, descriptor, found.as_mut_ptr()) };
    if raw::error_of(result).is_some() {
        return None;
    }
    // SAFETY: the kernel filled it in.
    let found = unsafe { found.assume_init() };
    Some(FileId {
        device: found.st_dev,
        inode: found.st_ino,
    })
}
