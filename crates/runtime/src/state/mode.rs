//! Whether this process is being recorded, replayed, or left alone.

use std::sync::atomic::{AtomicU8, Ordering};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Mode {
    /// Every stub passes through: before [`crate::doors::init`], after
    /// [`crate::mechanism::detach`], and where there is nothing to do.
    Off = 0,
    Record = 1,
    Replay = 2,
}

static MODE: AtomicU8 = AtomicU8::new(Mode::Off as u8);

/// Written at init, and once more by a detach; never otherwise.
#[inline(always)]
pub fn mode() -> Mode {
    match MODE.load(Ordering::Relaxed) {
        1 => Mode::Record,
        2 => Mode::Replay,
        _ => Mode::Off,
    }
}

pub fn set_mode(mode: Mode) {
    MODE.store(mode as u8, Ordering::SeqCst);
}
