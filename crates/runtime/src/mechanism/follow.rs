//! Replay of a recording that is still being written: waiting for what comes next.
//!
//! A follower is a replay that is never further than its leader. Where the log of a thread has
//! nothing more to say, the thread waits until it has, or until the launcher says on the board
//! what has become of the leader. What a log cannot say at once it says a little later: a signal
//! that was delivered at the end of a call is the next event, so a follower does not go on from
//! there before the leader has ([`at_boundary`]).
//!
//! Waiting costs the leader nothing: nobody wakes a follower, it looks. The longer there was
//! nothing the less often.

use std::time::Duration;

use hindcast_execlog::board::{Board, Leader};
use hindcast_execlog::{Event, config};

use crate::raw;
use crate::state::mode::{Mode, elsewhere, follows, mode};
use crate::state::recording;
use crate::state::thread::Current;

/// The next event of the thread's log, as soon as it is there. `None`: the log says no more, and
/// the leader is gone.
pub fn next(thread: &mut Current) -> Option<Event<'static>> {
    // Somebody may wait until this process is as far as its leader.
    thread.show_event();
    let mut pause = Pause::new();
    loop {
        // Before the log: what was written until then is there when it says that nobody writes.
        let leader = leader();
        if thread.reader.refresh()
            && let Some(event) = thread.reader.peek()
        {
            return Some(event);
        }
        match leader {
            Leader::Runs => pause.take(),
            Leader::Ended | Leader::Lost | Leader::Replaced | Leader::Succeeded => return None,
        }
    }
}

/// As the thread's `peek`: what comes next in its log, once that is known.
pub fn peek(thread: &mut Current) -> Option<Event<'static>> {
    match thread.reader.peek() {
        None if follows() => next(thread),
        found => found,
    }
}

/// Waits until the leader's thread has come past the end of a call: what was delivered there is in
/// the log then.
#[inline(always)]
pub fn at_boundary(thread: &mut Current) {
    if follows() && mode() == Mode::Replay && thread.reader.peek().is_none() {
        wait_until_passed(thread);
    }
}

#[cold]
fn wait_until_passed(thread: &mut Current) {
    thread.show_event();
    let mut pause = Pause::new();
    loop {
        let leader = leader();
        let is_passed = thread.reader.is_passed();
        if thread.reader.refresh() || is_passed || leader != Leader::Runs {
            return;
        }
        pause.take();
    }
}

/// The leader ended by itself, or will in a moment.
pub fn until_leader_is_gone() {
    let mut pause = Pause::new();
    while leader() == Leader::Runs {
        pause.take();
    }
}

pub fn leader_runs() -> bool {
    leader() == Leader::Runs
}

/// Whether this process is to go on in the place of its leader, or does already.
pub fn is_leader_lost() -> bool {
    recording::config().follow & config::follow::FOLLOWS != 0
        && matches!(leader(), Leader::Lost | Leader::Replaced)
}

/// What has become of the process that this one follows. A forked child follows one that the
/// launcher does not know, and goes on with all others where the leader is elsewhere.
fn leader() -> Leader {
    let said = recording::board().map_or(Leader::Ended, Board::leader);
    if recording::is_first_process() || said == Leader::Runs || elsewhere() {
        return said;
    }
    match recording::is_recorded_process_alive() {
        true => Leader::Runs,
        false => Leader::Ended,
    }
}

/// Waits that become longer.
pub struct Pause {
    rounds: u32,
}

impl Pause {
    /// Looks without a pause before the first.
    const SPINS: u32 = 64;
    const SHORTEST_US: u64 = 20;
    const LONGEST_US: u64 = 2_000;

    pub fn new() -> Pause {
        Pause { rounds: 0 }
    }

    pub fn take(&mut self) {
        self.rounds = self.rounds.saturating_add(1);
        if self.rounds <= Self::SPINS {
            return std::hint::spin_loop();
        }
        // Doubles every eight rounds.
        let doubled = ((self.rounds - Self::SPINS) / 8).min(16);
        let pause = (Self::SHORTEST_US << doubled).min(Self::LONGEST_US);
        raw::pause(Duration::from_micros(pause));
    }
}
