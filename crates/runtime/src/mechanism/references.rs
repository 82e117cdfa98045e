//! Reads of large files, in a recording that a follower writes: the event says which bytes of which
//! file they were, and the follower reads them as well.
//!
//! A read says nothing of where its descriptor stands, and asking the kernel each time would cost as
//! much as the log. So a position is kept here, for descriptors of which it can be known: those that
//! one thread alone has used since it opened them. All that makes it uncertain (another thread, a
//! copy, a child, a call that moves it unseen) takes the file's number from the descriptor *before*
//! it happens, and a read looks for the number *after* it: what it finds then is true.

use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};

use hindcast_execlog::Kind;
use hindcast_execlog::config::descriptors;
use hindcast_execlog::reference::{
    FILE_FROM, FileState, Given, QUIET_NS, REFERRED_FROM, Reference, Stat, ends,
};

use super::flows::COUNTED;
use super::messages;
use crate::state::mode::{Mode, mode, refers};
use crate::state::recording;
use crate::state::thread::{Current, Thread};
use crate::{raw, syscall};

/// A descriptor whose reads refer to its file.
struct Mark {
    /// The file's number; zero: what is read is logged.
    file: AtomicU32,
    /// The only thread whose reads of it are known.
    thread: AtomicU32,
    position: AtomicI64,
}

static MARKS: [Mark; COUNTED] = [const {
    Mark {
        file: AtomicU32::new(0),
        thread: AtomicU32::new(0),
        position: AtomicI64::new(0),
    }
}; COUNTED];

/// That of a descriptor which has a file.
#[inline(always)]
fn marked(descriptor: i32) -> Option<(&'static Mark, u32)> {
    let mark = MARKS.get(usize::try_from(descriptor).ok()?)?;
    match mark.file.load(Ordering::Acquire) {
        0 => None,
        file => Some((mark, file)),
    }
}

/// What is read from this descriptor is logged from here on: where it stands is not known, or it
/// stands for something else.
#[inline]
pub fn forget(descriptor: i32) {
    if refers()
        && let Some((mark, _)) = marked(descriptor)
    {
        mark.file.store(0, Ordering::SeqCst);
    }
}

/// As [`forget`] for all: another process is about to have them, too.
pub fn forget_all() {
    if refers() {
        (0..COUNTED as i32).for_each(forget);
    }
}

/// The thread is about to read from where the descriptor stands, or to move it.
#[inline(always)]
pub fn about_to_move(thread: &Thread, descriptor: i32) {
    if refers()
        && let Some((mark, _)) = marked(descriptor)
        && mark.thread.load(Ordering::Relaxed) != thread.number
    {
        forget(descriptor);
    }
}

/// Where a call has put the descriptor.
pub fn moved(descriptor: i32, position: i64) {
    if refers()
        && let Some((mark, _)) = marked(descriptor)
    {
        mark.position.store(position, Ordering::Relaxed);
    }
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
    let (mark, file) = marked(descriptor)?;
    let offset = offset.unwrap_or_else(|| {
        let offset = mark.position.load(Ordering::Relaxed);
        mark.position
            .store(offset + length as i64, Ordering::Relaxed);
        offset
    });
    // The follower forgets a file when this thread opens another one as the same descriptor.
    if length < REFERRED_FROM
        || mark.thread.load(Ordering::Relaxed) != thread.number
        || recording::board()?.takes.load(Ordering::Relaxed) == 0
        || !thread.writer.refers(length)
    {
        return None;
    }
    // SAFETY: the caller's promise.
    let ends = ends(unsafe { std::slice::from_raw_parts(memory, length) });
    Some(Reference {
        file,
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
    let (Some(board), Some(mark), Some(mut given)) = (
        recording::board().filter(|board| board.takes.load(Ordering::Relaxed) != 0),
        usize::try_from(descriptor)
            .ok()
            .and_then(|index| MARKS.get(index)),
        look(descriptor),
    ) else {
        return;
    };
    let mut path = [0; 1024];
    let Some(path) = path_of(descriptor, &mut path) else {
        return;
    };
    given.number = board.given.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
    if given.zeros == 0 && !give(given.number, descriptor) {
        return;
    }
    thread
        .writer
        .append(Kind::Given, &[&given.to_bytes(), path]);
    mark.position.store(0, Ordering::Relaxed);
    mark.thread.store(thread.number, Ordering::Relaxed);
    mark.file.store(given.number, Ordering::Release);
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
        descriptor,
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
