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
    /// Where the log says no more, the step is recorded: this process may be, from there on, in the
    /// place of the one that it has replayed.
    pub is_recorded_after: bool,
}

impl Step {
    #[inline(always)]
    pub fn new<T>(function: &'static str, object: *const T) -> Self {
        Step {
            function,
            object: object as usize,
            is_recorded_after: false,
        }
    }

    #[inline(always)]
    pub fn recorded_after(self) -> Self {
        Step {
            is_recorded_after: true,
            ..self
        }
    }

    /// What a thread is said to do that takes it.
    pub fn doing(self) -> Kind {
        match self.is_recorded_after {
            true => Kind::Relaxed,
            false => Kind::Edge,
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
pub fn next_event(thread: &mut Current, doing: Kind) -> Option<Event<'static>> {
    loop {
        let event = match thread.reader.peek() {
            Some(event) if event.kind != Kind::Ended as u16 => event,
            _ => {
                thread.show(State::Running, Kind::Edge as u16);
                log::expect_event(thread, doing as u16)?
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
