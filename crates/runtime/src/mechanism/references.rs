//! Reads of large files, in a recording that a follower writes: the event says which bytes of which
//! file they were, and the follower reads them as well.
//!
//! A read says nothing of where its descriptor stands, and asking the kernel each time would cost
//! as much as the log. So a position is kept here, for open files of which it can be known: those
//! that one thread alone has used since it opened them, through whichever descriptors. All that
//! makes it uncertain (another thread, a child, a call that moves it unseen) takes the number from
//! the open file *before* it happens, and a read looks for the number *after* it: what it finds
//! then is true.

use std::sync::atomic::{AtomicI64, AtomicU16, AtomicU32, Ordering};

use hindcast_execlog::Kind;
use hindcast_execlog::config::descriptors;
use hindcast_execlog::reference::{
    FILE_FROM, FileState, Given, QUIET_NS, REFERRED_FROM, Reference, Stat, ends,
};

use super::flows::COUNTED;
use super::messages;
use crate::state::mode::{Mode, mode, refers};
use crate::state::recording;
use crate::state::thread::{self, Current, Thread};
use crate::{raw, syscall};

/// An open file to which reads refer.
struct OpenFile {
    /// How many descriptors lead to it; zero: there is none.
    descriptors: AtomicU32,
    /// The file's number; zero: what is read is logged.
    number: AtomicU32,
    /// The only thread whose reads of it are known.
    thread: AtomicU32,
    position: AtomicI64,
}

/// So many at a time. What is read from others is logged.
const OPEN_MOST: usize = 256;

static OPEN: [OpenFile; OPEN_MOST] = [const {
    OpenFile {
        descriptors: AtomicU32::new(0),
        number: AtomicU32::new(0),
        thread: AtomicU32::new(0),
        position: AtomicI64::new(0),
    }
}; OPEN_MOST];

/// By descriptor, one more than the index of its open file; zero: none.
static INDICES: [AtomicU16; COUNTED] = [const { AtomicU16::new(0) }; COUNTED];

fn index(descriptor: i32) -> Option<&'static AtomicU16> {
    INDICES.get(usize::try_from(descriptor).ok()?)
}

/// That of a descriptor, if reads of it refer to a file.
#[inline(always)]
fn known(descriptor: i32) -> Option<&'static OpenFile> {
    let one_more = index(descriptor)?.load(Ordering::Acquire);
    let open = OPEN.get(usize::from(one_more).checked_sub(1)?)?;
    (open.number.load(Ordering::Acquire) != 0).then_some(open)
}

/// The descriptor stands for nothing any more, or for something else.
#[inline]
pub fn released(descriptor: i32) {
    if refers()
        && let Some(index) = index(descriptor)
        && let Some(open) = usize::from(index.swap(0, Ordering::AcqRel))
            .checked_sub(1)
            .and_then(|index| OPEN.get(index))
    {
        open.descriptors.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The descriptor `to` stands for what `from` does.
pub fn duplicated(from: i32, to: i32) {
    if !refers() {
        return;
    }
    let (Some(open), Some(source), Some(target)) = (known(from), index(from), index(to)) else {
        return;
    };
    if thread::current_number() == Some(open.thread.load(Ordering::Relaxed)) {
        open.descriptors.fetch_add(1, Ordering::AcqRel);
        target.store(source.load(Ordering::Acquire), Ordering::Release);
    } else {
        forget(from);
    }
}

/// What is read from this open file is logged from here on: where it stands is not known.
#[inline]
pub fn forget(descriptor: i32) {
    if refers()
        && let Some(open) = known(descriptor)
    {
        open.number.store(0, Ordering::SeqCst);
    }
}

/// As [`forget`] for all: another process is about to have them, too.
pub fn forget_all() {
    if refers() {
        for open in &OPEN {
            open.number.store(0, Ordering::SeqCst);
        }
    }
}

/// The thread is about to read from where the descriptor stands, or to move it.
#[inline(always)]
pub fn about_to_move(thread: &Thread, descriptor: i32) {
    if refers()
        && let Some(open) = known(descriptor)
        && open.thread.load(Ordering::Relaxed) != thread.number
    {
        forget(descriptor);
    }
}

/// Where a call has put the descriptor.
pub fn moved(descriptor: i32, position: i64) {
    if refers()
        && let Some(open) = known(descriptor)
    {
        open.position.store(position, Ordering::Relaxed);
    }
}

/// Whether reads of a descriptor may refer to a file.
pub fn refer(descriptor: i32) -> bool {
    known(descriptor).is_some()
}

/// What is logged in place of bytes that were read, from `offset` or from where the descriptor
/// stood. `None`: they are.
///
/// # Safety
/// `length` bytes must be readable.
#[inline]
pub unsafe fn of_read(
    thread: &mut Thread,
    descriptor: i32,
    offset: Option<i64>,
    memory: *const u8,
    length: usize,
) -> Option<Reference> {
    let open = known(descriptor)?;
    let offset = offset.unwrap_or_else(|| {
        let offset = open.position.load(Ordering::Relaxed);
        open.position
            .store(offset + length as i64, Ordering::Relaxed);
        offset
    });
    // The follower forgets a file when this thread opens another one in its place.
    if length < REFERRED_FROM
        || open.thread.load(Ordering::Relaxed) != thread.number
        || recording::board()?.takes.load(Ordering::Relaxed) == 0
        || !thread.writer.refers(length)
    {
        return None;
    }
    // SAFETY: the caller's promise.
    let ends = ends(unsafe { std::slice::from_raw_parts(memory, length) });
    Some(Reference {
        file: open.number.load(Ordering::Relaxed),
        ends: ends as u32,
        offset: offset as u64,
    })
}

/// After the event of an `open` that succeeded: reads refer to the file if it is a large one that
/// nobody has written to of late, and that the follower can be given.
#[cold]
pub fn opened(thread: &mut Current, descriptor: i32) {
    if mode() != Mode::Record {
        return;
    }
    let (Some(board), Some(index), Some(mut given)) = (
        recording::board().filter(|board| board.takes.load(Ordering::Relaxed) != 0),
        index(descriptor),
        look(descriptor),
    ) else {
        return;
    };
    let mut path = [0; 1024];
    let (Some(path), Some(place)) = (path_of(descriptor, &mut path), take_place()) else {
        return;
    };
    let open = &OPEN[place];
    given.place = place as u32;
    given.number = board.given.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
    if given.zeros == 0 && !give(given.number, descriptor) {
        open.descriptors.store(0, Ordering::Release);
        return;
    }
    // A log that names a file is to be completed, even if no read of it follows.
    thread.writer.refers(Given::BYTES);
    thread
        .writer
        .append(Kind::Given, &[&given.to_bytes(), path]);
    open.position.store(0, Ordering::Relaxed);
    open.thread.store(thread.number, Ordering::Relaxed);
    open.number.store(given.number, Ordering::Release);
    index.store(place as u16 + 1, Ordering::Release);
}

/// Room for one more open file, which has one descriptor.
fn take_place() -> Option<usize> {
    let is_free = |open: &OpenFile| {
        let (free, taken) = (Ordering::AcqRel, Ordering::Relaxed);
        open.descriptors.compare_exchange(0, 1, free, taken).is_ok()
    };
    OPEN.iter().position(is_free)
}

/// What reads of this descriptor may refer to, without its number.
fn look(descriptor: i32) -> Option<Given> {
    // SAFETY: numbers only.
    let flags = unsafe { syscall!(libc::SYS_fcntl, descriptor, libc::F_GETFL) };
    let is_for_reading =
        flags >= 0 && flags as i32 & (libc::O_ACCMODE | libc::O_PATH) == libc::O_RDONLY;
    let mut found = std::mem::MaybeUninit::<libc::stat>::uninit();
    // SAFETY: room for one `stat`.
    let result = unsafe { syscall!(libc::SYS_fstat, descriptor, found.as_mut_ptr()) };
    if !is_for_reading || raw::error_of(result).is_some() {
        return None;
    }
    // SAFETY: the kernel filled it in.
    let found = unsafe { found.assume_init() };
    let state = FileState::of(&Stat {
        device: found.st_dev,
        inode: found.st_ino,
        size: found.st_size as u64,
        modified: (found.st_mtime, found.st_mtime_nsec),
        changed: (found.st_ctime, found.st_ctime_nsec),
    });
    let zeros = match found.st_mode & libc::S_IFMT {
        libc::S_IFREG if state.size >= FILE_FROM && is_quiet(&state) => 0,
        libc::S_IFCHR if found.st_rdev == libc::makedev(1, 5) => 1,
        _ => return None,
    };
    Some(Given {
        number: 0,
        place: 0,
        zeros,
        reserved: 0,
        state,
    })
}

/// Whether a change would be seen in the times of the file.
fn is_quiet(state: &FileState) -> bool {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: room for one time.
    unsafe {
        syscall!(
            libc::SYS_clock_gettime,
            libc::CLOCK_REALTIME_COARSE,
            &raw mut now
        )
    };
    let now = now.tv_sec * 1_000_000_000 + now.tv_nsec;
    state.modified.max(state.changed) < now - QUIET_NS
}

/// Sends the follower a copy of the descriptor, if it has room for one.
fn give(number: u32, descriptor: i32) -> bool {
    let flags = libc::MSG_DONTWAIT;
    messages::send(
        descriptors::FILES,
        &mut number.to_ne_bytes(),
        descriptor,
        flags,
    )
}

/// The path of an open file.
pub fn path_of(descriptor: i32, path: &mut [u8; 1024]) -> Option<&[u8]> {
    let mut link = [0u8; 32];
    let _ = std::io::Write::write_fmt(
        &mut &mut link[..31],
        format_args!("/proc/self/fd/{descriptor}"),
    );
    // SAFETY: a C string and a buffer with its length.
    let length = unsafe {
        syscall!(
            libc::SYS_readlinkat,
            libc::AT_FDCWD,
            link.as_ptr(),
            path.as_mut_ptr(),
            path.len()
        )
    };
    raw::error_of(length)
        .is_none()
        .then(|| &path[..length as usize])
}
