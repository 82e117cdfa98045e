//! Whether this process is being recorded, replayed, or left alone.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use hindcast_execlog::config::follow;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Mode {
    /// Every stub passes through: before [`crate::doors::init`], after
    /// [`crate::mechanism::detach`], and where there is nothing to do.
    Off = 0,
    Record = 1,
    Replay = 2,
}

/// Bits of [`hindcast_execlog::config::follow`], as long as they hold.
static FOLLOW: AtomicU8 = AtomicU8::new(0);

static MODE: AtomicU8 = AtomicU8::new(Mode::Off as u8);

/// Written at init, once more by a detach, and where a follower goes on in its leader's place.
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

/// Written at init, and again when a follower goes on by itself.
pub fn set_follow(bits: u32) {
    FOLLOW.store(bits as u8, Ordering::SeqCst);
}

/// This process is recorded, and another one follows.
#[inline(always)]
pub fn leads() -> bool {
    u32::from(FOLLOW.load(Ordering::Relaxed)) & follow::LEADS != 0
}

/// This process replays what another one is still recording.
#[inline(always)]
pub fn follows() -> bool {
    u32::from(FOLLOW.load(Ordering::Relaxed)) & follow::FOLLOWS != 0
}

static ONE_AT_A_TIME: AtomicBool = AtomicBool::new(false);

/// Written at init.
pub fn set_one_at_a_time(is: bool) {
    ONE_AT_A_TIME.store(is, Ordering::SeqCst);
}

/// One thread runs the program at a time.
#[inline(always)]
pub fn one_at_a_time() -> bool {
    ONE_AT_A_TIME.load(Ordering::Relaxed)
}

/// What was replayed is given back to the file system, from the beginning on.
pub fn discards() -> bool {
    u32::from(FOLLOW.load(Ordering::Relaxed)) & follow::DISCARDS != 0
}

/// Should this process go on in its leader's place, it is recorded there.
pub fn succeeds() -> bool {
    u32::from(FOLLOW.load(Ordering::Relaxed)) & follow::SUCCEEDS != 0
}

/// This process is recorded, and what it reads from large files a follower puts into the log.
#[inline(always)]
pub fn refers() -> bool {
    u32::from(FOLLOW.load(Ordering::Relaxed)) & follow::REFERS != 0
}

/// The process that this one follows is on another machine.
#[inline(always)]
pub fn elsewhere() -> bool {
    u32::from(FOLLOW.load(Ordering::Relaxed)) & follow::ELSEWHERE != 0
}
