//! The end of recording before the end of the program.
//!
//! Whatever cannot be recorded ends recording, never the program: the log says where and why, every
//! stub passes through from then on, and replay goes up to here.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};

use hindcast_execlog::event::Kind;
use hindcast_execlog::files::End;

use crate::mechanism::instructions::replace;
use crate::mechanism::signals;
use crate::state::mode::{Mode, mode, set_mode};
use crate::state::{recording, thread};

#[derive(Clone, Copy, Debug)]
pub enum Reason {
    LogCannotGrow {
        code: i32,
    },
    Seccomp,
    IoUring,
    TooManyThreads,
    /// Something else, in words that complete "recording ended because …".
    Other(&'static str),
}

impl fmt::Display for Reason {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::LogCannotGrow {
                code: libc::ECANCELED,
            } => write!(formatter, "nobody follows the program any more"),
            Reason::LogCannotGrow { code: libc::ENOSPC } => {
                write!(formatter, "the disk with the recording is full")
            }
            Reason::LogCannotGrow { code: libc::EFBIG } => write!(
                formatter,
                "a log reached the largest size that a file may have"
            ),
            Reason::LogCannotGrow { code } => write!(formatter, "a log cannot grow (error {code})"),
            Reason::Seccomp => write!(
                formatter,
                "the program raised a seccomp filter, which may forbid what recording needs"
            ),
            Reason::IoUring => write!(
                formatter,
                "the program uses io_uring, which moves data without calls that could be recorded"
            ),
            Reason::TooManyThreads => {
                write!(formatter, "the process has had more than 65,536 threads")
            }
            Reason::Other(words) => write!(formatter, "{words}"),
        }
    }
}

/// A log cannot grow.
pub fn log_is_full(code: i32) {
    detach(Reason::LogCannotGrow { code });
}

/// Ends recording of this process. Does nothing in replay and when it has ended already.
pub fn detach(reason: Reason) {
    static DETACHED: AtomicBool = AtomicBool::new(false);
    if mode() != Mode::Record || DETACHED.swap(true, Ordering::AcqRel) {
        return;
    }
    let mut words = hindcast_execlog::Text::<512>::new();
    let _ = fmt::Write::write_fmt(&mut words, format_args!("{reason}"));
    // SAFETY: what is under way in the thread rests in the call that led here.
    if let Some(mut thread) = unsafe { thread::current() }
        && !matches!(reason, Reason::LogCannotGrow { .. })
    {
        thread
            .writer
            .append(Kind::Ended, &[words.as_str().as_bytes()]);
    }
    recording::with_header(|header| header.reason.set(words.as_str()));
    recording::ended(End::Detached, 0);
    pass_through();
}

/// From here on every stub passes through, and the kernel has the program's own settings.
pub fn pass_through() {
    set_mode(Mode::Off);
    // Other threads may be in replay space and trap once more each; the trap lets them through.
    for thread in thread::all() {
        thread.enter_system();
    }
    replace::restore();
    signals::detached();
}
