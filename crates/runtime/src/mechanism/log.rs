//! Replay: the log, event by event.

use hindcast_execlog::Event;
use hindcast_execlog::event::Kind;

use super::{divergence, signals};
use crate::state::log::hindcast_breakpoint;
use crate::state::thread::Current;

/// The next event of the thread's log; does not return when there is none.
#[inline]
pub fn expect_event(thread: &mut Current, doing: u16) -> Event<'static> {
    loop {
        match thread.reader.peek() {
            Some(event) if event.kind == Kind::Cached as u16 => thread.reader.advance(&event),
            Some(event) if event.kind != Kind::Ended as u16 => {
                if event.kind == Kind::Fatal as u16 {
                    signals::replay_fatal(thread, &event);
                }
                if thread.reader.stops_here() {
                    hindcast_breakpoint();
                }
                return event;
            }
            _ => divergence::recording_ends(thread, doing),
        }
    }
}
