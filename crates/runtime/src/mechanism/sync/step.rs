//! One step of a thread among those of others, and what the log says about it.

use std::fmt::Write;

use hindcast_execlog::board::State;
use hindcast_execlog::event::Kind;
use hindcast_execlog::{Event, Text};

use crate::mechanism::divergence::{self, Actual};
use crate::mechanism::{log, signals};
use crate::state::thread::Current;

/// What is acquired, for reports and for the launcher's view.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    pub function: &'static str,
    pub object: usize,
}

impl Step {
    #[inline(always)]
    pub fn new<T>(function: &'static str, object: *const T) -> Self {
        Step {
            function,
            object: object as usize,
        }
    }
}

/// What the log says about an acquisition that the program is about to try.
pub enum Outcome {
    /// It succeeds, and its turn has come: take the real step, then call [`publish`].
    Acquires,
    /// It failed with this code.
    Fails(i32),
    /// The log says no more, and the process goes on by itself: take the real step.
    GoesOn,
}

/// The next event of the log that is not a signal. Signals that were delivered inside the step are
/// delivered again. `None`: see [`log::expect_event`].
pub fn next_event(thread: &mut Current) -> Option<Event<'static>> {
    loop {
        let event = match thread.reader.peek() {
            Some(event) if event.kind != Kind::Ended as u16 => event,
            _ => {
                thread.show(State::Running, Kind::Edge as u16);
                log::expect_event(thread, Kind::Relaxed as u16)?
            }
        };
        if event.kind != Kind::Signal as u16 {
            return Some(event);
        }
        signals::replay_inside(thread, event);
    }
}

/// The log has something else here than this step.
#[cold]
pub fn unexpected(thread: &mut Current, step: Step) -> ! {
    let mut text = Text::<128>::new();
    let _ = write!(text, "{}({:#x})", step.function, step.object);
    let event = thread.reader.peek();
    divergence::diverged(thread, event, Actual::Step(text.as_str()))
}
