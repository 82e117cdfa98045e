//! Files that are only written behind their ends, on storage that both machines have.
//!
//! A leader that is lost may have written more than the follower's log tells of: nobody had an
//! answer that depends on it, but the bytes are there, and the program that goes on writes its own
//! behind them. So the log tells where such a file ended when it was opened, and what the program
//! has written since is counted. What lies behind both is cut off when the program goes on:
//!
//! ```text
//!   ├─ was there ─┼─ the log tells of it ─┼─ it does not ─┤
//!               base               base + written          end
//! ```
//!
//! **What is left as it is**: a file whose last bytes are not those that this process wrote last,
//! for then others write to it; one that was not written since it was opened; and all of them once
//! a child has written to a file that its parent opened so.

use std::sync::atomic::{AtomicU64, Ordering};

use super::flows::COUNTED;
use crate::state::recording;
use crate::{raw, syscall};

/// Where the file ended when it was opened; [`UNKNOWN`]: nothing is cut off.
static BASES: [AtomicU64; COUNTED] = [const { AtomicU64::new(UNKNOWN) }; COUNTED];

pub const UNKNOWN: u64 = u64::MAX;
/// This process has it from its parent.
const INHERITED: u64 = u64::MAX - 1;
/// How much of what was written last must be there.
const COMPARED: u64 = 64 << 10;

fn base_of(number: i32) -> Option<&'static AtomicU64> {
    BASES.get(usize::try_from(number).ok()?)
}

/// In the leader, of what was opened to be written behind its end: where that is.
pub fn end_of(number: i32) -> u64 {
    let mut found = std::mem::MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: a number, and room for one `stat`.
    let looked = unsafe { syscall!(libc::SYS_fstat, number, found.as_mut_ptr()) };
    // SAFETY: zeroed or filled in.
    let found = unsafe { found.assume_init() };
    match looked == 0 && found.st_mode & libc::S_IFMT == libc::S_IFREG {
        true => found.st_size as u64,
        false => UNKNOWN,
    }
}

/// The log says where a file ended that was opened.
pub fn opened(number: i32, end: u64) {
    if let Some(base) = base_of(number) {
        base.store(end, Ordering::Relaxed);
    }
}

/// The number stands for something else now, or the file is not what was counted.
pub fn forget(number: i32) {
    opened(number, UNKNOWN);
}

/// What its parent has open is counted there.
pub fn after_fork_in_child() {
    for base in &BASES {
        if base.load(Ordering::Relaxed) < INHERITED {
            base.store(INHERITED, Ordering::Relaxed);
        }
    }
}

/// The log says that the program has written to it. Whether the bytes are to be kept.
pub fn wrote(number: i32) -> bool {
    match base_of(number).map_or(UNKNOWN, |base| base.load(Ordering::Relaxed)) {
        UNKNOWN => false,
        INHERITED => {
            if let Some(board) = recording::board() {
                board.shares_appended.store(1, Ordering::Relaxed);
            }
            false
        }
        _ => true,
    }
}

/// Cuts off what no log tells of. `written`: bytes since the file was opened; `last` gives one of
/// those that are kept, by its number among them.
pub fn cut(number: i32, (written, kept): (u64, u64), last: impl Fn(u64) -> u8) {
    let base = base_of(number).map_or(UNKNOWN, |base| base.load(Ordering::Relaxed));
    let Some(board) = recording::board() else {
        return;
    };
    if base >= INHERITED || written == 0 || board.shares_appended.load(Ordering::Relaxed) != 0 {
        return;
    }
    let (expected, found) = (base + written, end_of(number));
    if found == UNKNOWN || found <= expected {
        return;
    }
    let compared = written.min(kept).min(COMPARED);
    let Some(same) = reads(number, expected - compared, compared, |at, byte| {
        byte == last(written - compared + at)
    }) else {
        return;
    };
    if same {
        // SAFETY: numbers only.
        let cut = unsafe { syscall!(libc::SYS_ftruncate, number, expected) };
        if cut == 0 {
            board.cut_files.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Whether each of the `length` bytes of a file from `from` on is as `is_it` says. `None`: they
/// cannot be read.
fn reads(number: i32, from: u64, length: u64, is_it: impl Fn(u64, u8) -> bool) -> Option<bool> {
    use std::fmt::Write as _;
    let mut path = hindcast_execlog::Text::<64>::new();
    let _ = write!(path, "/proc/self/fd/{number}\0");
    let path = std::ffi::CStr::from_bytes_until_nul(path.as_str().as_bytes()).ok()?;
    // It may be open for writing alone.
    let file = raw::open_at(libc::AT_FDCWD, path, libc::O_RDONLY, 0).ok()?;
    let mut piece = [0u8; 4096];
    let mut at = 0;
    let mut same = Some(true);
    while at < length && same == Some(true) {
        let wanted = (length - at).min(piece.len() as u64);
        // SAFETY: room for as much as is asked for.
        let read = unsafe {
            syscall!(
                libc::SYS_pread64,
                file,
                piece.as_mut_ptr(),
                wanted,
                from + at
            )
        };
        if read <= 0 {
            same = None;
            break;
        }
        let bytes = &piece[..read as usize];
        same = Some((at..).zip(bytes).all(|(at, byte)| is_it(at, *byte)));
        at += read as u64;
    }
    raw::close(file);
    same
}
