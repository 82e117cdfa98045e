//! The processes of a copy whose leader is elsewhere go on together.
//!
//! The copy makes the children that its leader made, and each replays its own log. When the leader
//! is lost all of them are to go on, and none before the others have come to the ends of their
//! logs: what one says to another must not arrive in the middle of what that replays.
//!
//! Who there is stands on the board. A process is put there before it is made, and leaves when
//! its log has it end, or its parent's log does; so none is missed, and none is waited for that
//! is gone. Those that are there take each step together.

use std::sync::atomic::Ordering;
use std::time::Duration;

use hindcast_execlog::board::Member;

use super::flows;
use crate::state::mode::elsewhere;
use crate::state::recording;
use crate::{raw, syscall};

/// All logs are at their ends.
pub const AT_END: u32 = 1;
/// All connections have been named.
pub const NAMED: u32 = 2;
/// They are what the leader's were.
pub const CONNECTED: u32 = 3;
/// Every process is what it will be from here on.
pub const READY: u32 = 4;

const STEP: Duration = Duration::from_micros(200);

fn members() -> &'static [Member] {
    recording::board().map_or(&[], |board| &board.members)
}

fn own_number() -> u32 {
    // SAFETY: no arguments.
    unsafe { syscall!(libc::SYS_getpid) as u32 }
}

/// A child is about to be made: its place. `None`: there are too many.
pub fn prepare() -> Option<&'static Member> {
    let take = |member: &&Member| {
        let (free, coming) = (0, Member::COMING);
        member
            .pid
            .compare_exchange(free, coming, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    };
    let member = members().iter().find(take)?;
    member.step.store(0, Ordering::Release);
    Some(member)
}

/// The child is this process, or was not made (zero). Its parent says so, and it says so itself:
/// whichever comes first.
pub fn comes(member: &Member, pid: u32) {
    let coming = Member::COMING;
    let _ = member
        .pid
        .compare_exchange(coming, pid, Ordering::AcqRel, Ordering::Relaxed);
}

/// In the child itself.
pub fn begins(member: &Member) {
    comes(member, own_number());
}

/// A process is over, or is about to be.
pub fn leaves(pid: u32) {
    if let Some(member) = member(pid) {
        member.pid.store(0, Ordering::Release);
    }
}

/// Whether the others can go on without this process, which is no copy any more: it is not the
/// first, and no client talks to it. For the program it was killed, then.
pub fn is_dispensable() -> bool {
    elsewhere()
        && crate::state::mode::mode() == crate::state::mode::Mode::Replay
        && !recording::is_first_process()
        && !flows::talks()
}

/// Ends this process, as [`is_dispensable`] says.
#[cold]
pub fn drop_out() -> ! {
    if let Some(board) = recording::board() {
        board.dropped_children.fetch_add(1, Ordering::AcqRel);
    }
    ends();
    // SAFETY: to ourselves.
    unsafe { syscall!(libc::SYS_kill, syscall!(libc::SYS_getpid), libc::SIGKILL) };
    raw::exit_process(128 + libc::SIGKILL)
}

/// This process is about to end.
pub fn ends() {
    if elsewhere() {
        leaves(own_number());
    }
}

fn member(pid: u32) -> Option<&'static Member> {
    let is_it = |member: &&Member| member.pid.load(Ordering::Acquire) == pid;
    members().iter().find(is_it)
}

/// Returns when all have come so far.
pub fn together(step: u32) {
    let Some(board) = recording::board() else {
        return;
    };
    let own = match recording::is_first_process() {
        true => Some(&board.first),
        false => member(own_number()),
    };
    let Some(own) = own else { return };
    own.step.store(step, Ordering::Release);
    let is_here = |member: &Member| member.step.load(Ordering::Acquire) >= step;
    let is_over = |member: &Member| member.pid.load(Ordering::Acquire) == 0;
    while !is_here(&board.first)
        || !board
            .members
            .iter()
            .all(|member| is_over(member) || is_here(member))
    {
        raw::pause(STEP);
    }
}

/// As [`together`]; and whether each of them has said that it can be recorded.
pub fn can_all_be_recorded(step: u32, can: bool) -> bool {
    let Some(board) = recording::board() else {
        return can;
    };
    if !can {
        board.unrecorded.store(1, Ordering::Release);
    }
    together(step);
    board.unrecorded.load(Ordering::Acquire) == 0
}
