//! Compares responses and keeps account of the differences.

use std::borrow::Cow;
use std::sync::Arc;

use hindcast_replay::compare::{Compare, Seen};
use hindcast_replay::redacted::Redacted;
use hindcast_replay::verdict::Divergence;
use hindcast_trace::{self as trace, Micros};

use crate::causes::Kinds;
use crate::noise::{NoNumbers, Window};
use crate::responses::Collector;

pub(crate) struct Comparison {
    pub collector: Arc<Collector>,
    pub kinds: Arc<dyn Kinds>,
    pub original: (Micros, Micros),
    pub began: Micros,
    pub redacted: Redacted,
}

impl Compare for Comparison {
    fn response(
        &self,
        recorded: &trace::Request,
        outcome: Result<Seen, String>,
    ) -> Option<Divergence> {
        let window = Window {
            original: self.original,
            run: (self.began, now()),
            replayed: None,
        };
        let (expected, came) = match outcome {
            Ok(seen) => {
                let (expected, seen) = self.redacted.comparable(recorded, seen);
                (expected, Ok(seen))
            }
            Err(error) => (Cow::Borrowed(&recorded.response), Err(error)),
        };
        let came = came.as_ref().map_err(String::as_str);
        let of = self.kinds.of(recorded.id);
        self.collector
            .compare(recorded.id, of, &expected, came, &window, &NoNumbers);
        None
    }

    fn sending(&self, _recorded: &trace::Request) {}
}

/// By the wall clock.
pub(crate) fn now() -> Micros {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.unwrap_or_default().as_micros() as Micros
}
