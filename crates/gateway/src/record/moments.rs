//! Tells of a moment of the near past whether a request was in flight then.
//!
//! What is in the database at such a moment is a state from which a replay can start: no request
//! has done a part of its work before it and another part behind it. Where requests are told by the
//! service's process they become known a while after they were there, so the question is answered
//! when what is told has got past the moment.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use hindcast_spool::Meter;
use hindcast_trace::{Base, Micros, Record};

use super::sink::Sink;
use crate::http::Witness;

/// How long it takes at most, in µs, until what a process has told can be counted as not read.
const UNDERWAY: Micros = 500_000;
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// For who takes bases while a recording goes on.
#[derive(Clone)]
pub struct Moments {
    pub(super) sink: Arc<Sink>,
    pub(super) spool: Option<Meter>,
}

impl Moments {
    /// Moments from here on can be judged, until [`Moments::end`].
    pub fn begin(&self) {
        self.sink.flights().watch(self.sink.now());
    }

    pub fn end(&self) {
        self.sink.flights().watch_no_more();
    }

    pub fn now(&self) -> Micros {
        self.sink.now()
    }

    /// Whether no request was in flight in any part of this moment.
    pub async fn was_quiet(&self, moment: &RangeInclusive<Micros>) -> bool {
        while !self.is_told(*moment.end()) {
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
        self.sink.flights().was_quiet(moment)
    }

    /// Whether all that was in flight at a moment is known. At the ingress it is at once.
    fn is_told(&self, to: Micros) -> bool {
        let Some(spool) = &self.spool else {
            return true;
        };
        let all_is_read = || self.sink.now() > to + UNDERWAY && spool.read().unread == 0;
        self.sink.flights().has_passed(to + UNDERWAY) || all_is_read()
    }

    /// A base that was taken at such a moment.
    pub fn note(&self, base: Base) {
        self.sink.record(Record::Base(base));
    }
}
