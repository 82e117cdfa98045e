//! Replay: the log, event by event.

use hindcast_execlog::Event;
use hindcast_execlog::event::Kind;

use super::{divergence, follow, going_on, signals};
use crate::state::log::hindcast_breakpoint;
use crate::state::mode::{Mode, follows, mode};
use crate::state::thread::Current;

/// The next event of the thread's log. `None`: there is none, and from here on this process runs in
/// the place of the one that was recorded. Does not return where the recording ends.
#[inline]
pub fn expect_event(thread: &mut Current, doing: u16) -> Option<Event<'static>> {
    loop {
        let Some(event) = thread.reader.peek() else {
            if !follows() || !await_event(thread, doing) {
                return nothing_more(thread, doing);
            }
            continue;
        };
        match Kind::from_number(event.kind) {
            Some(Kind::Cached) => thread.reader.advance(&event),
            Some(Kind::Ended) => divergence::recording_ends(thread, doing),
            Some(Kind::Fatal) => {
                signals::replay_fatal(thread, &event);
                if follows() {
                    // A fault of the leader's that has not happened here.
                    follow::until_leader_is_gone();
                    return nothing_more(thread, doing);
                }
                return found(thread, event);
            }
            _ => return found(thread, event),
        }
    }
}

fn found(thread: &Current, event: Event<'static>) -> Option<Event<'static>> {
    if thread.reader.stops_here() {
        hindcast_breakpoint();
    }
    Some(event)
}

/// As [`expect_event`] where the process cannot go on by itself.
pub fn expect_first(thread: &mut Current, doing: u16) -> Event<'static> {
    expect_event(thread, doing).unwrap_or_else(|| {
        divergence::unusable(
            format_args!("the leader was lost where no other process can go on"),
            "Start the program again.",
        )
    })
}

/// Whether there is an event now.
#[cold]
fn await_event(thread: &mut Current, doing: u16) -> bool {
    thread.show(hindcast_execlog::board::State::Blocked, doing);
    let found = follow::next(thread).is_some();
    thread.show(hindcast_execlog::board::State::Running, doing);
    found
}

#[cold]
fn nothing_more(thread: &mut Current, doing: u16) -> Option<Event<'static>> {
    if mode() != Mode::Replay {
        // It has gone on before, in an earlier step of what the thread does.
        return None;
    }
    if !follow::is_leader_lost() {
        divergence::recording_ends(thread, doing);
    }
    going_on::go_on(thread, doing);
    None
}
