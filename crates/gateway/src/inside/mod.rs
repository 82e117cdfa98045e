//! Requests as the service's own process tells them: the ingress' place is taken by a tap.
//!
//! ```text
//!   taps ──rings──▶ spool::Drain ──▶ Merge ──▶ Streams ──▶ Call ──▶ http::Exchange ──▶ Witness
//!                                    by        http1, fastcgi,      as in the ingress
//!                                    moments   uwsgi, answers
//! ```
//!
//! Where connections to the database are told as well, who follows them is given what they carried
//! ([`Sessions`]): in the same order, so that what a request did comes between it and its answer.
//!
//! Nothing is in the way of a request. A thread of low priority empties the rings and finds the
//! requests and answers in what connections carried that the service accepted, some milliseconds
//! after it was carried. What cannot be followed is counted and left alone.
//!
//! Start reading at [`Inside`]; [`streams`] is the core, which has neither thread nor clock.

mod answers;
mod body;
mod call;
mod cgi;
mod fastcgi;
mod gates;
mod head;
mod host;
mod http1;
mod merge;
mod readings;
mod sessions;
mod stream;
mod streams;
mod upload;
mod uwsgi;

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use hindcast_spool::{Drain, Program, Records, SpoolError, Taker};

use crate::http::{Limits, Witness, with_causes};
use crate::redact::Redactor;
pub use gates::{Gates, redirect};
use host::{Claims, Clock, Counters, Host};
pub use host::{Numbers, Seen};
use readings::Readings;
pub use sessions::{Session, Sessions};
use streams::Streams;

/// What came is not what was expected to come.
#[derive(Debug, PartialEq, Eq)]
struct Malformed;

/// Why a connection is not followed any further.
#[derive(Debug, PartialEq, Eq)]
enum Off {
    Malformed,
    /// It goes on in another protocol, and that is as it should be.
    Upgraded,
}

impl From<Malformed> for Off {
    fn from(_: Malformed) -> Self {
        Self::Malformed
    }
}

/// Less than that of the service, of which it takes processors.
const NICE: i32 = 5;

/// How requests are recorded.
pub struct InsideOptions {
    pub limits: Limits,
    pub redactor: Arc<Redactor>,
    /// For requests to which the tap gave no number.
    pub numbers: Numbers,
    /// Who follows the service's connections to its database, if they are told.
    pub sessions: Option<Box<dyn Sessions>>,
}

/// A thread that turns what taps tell into requests.
pub struct Inside {
    stop: Arc<AtomicBool>,
    counters: Arc<Counters>,
    thread: JoinHandle<Result<u64, String>>,
}

/// How it ended.
#[derive(Debug)]
pub struct InsideEnd {
    pub seen: Seen,
    /// Rings that could not be taken, or held nonsense.
    pub rings_refused: u64,
    /// Why it ended before it was to.
    pub failed: Option<String>,
}

/// Reads the counters of an [`Inside`].
#[derive(Clone)]
pub struct SeenReader {
    counters: Arc<Counters>,
}

impl SeenReader {
    pub fn read(&self) -> Seen {
        self.counters.read()
    }
}

impl Inside {
    /// Begins to take what taps tell. The drain gives the variable that the service has to have in
    /// its environment.
    pub fn start(
        mut drain: Drain,
        witness: Arc<dyn Witness>,
        options: InsideOptions,
    ) -> io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let mut converter = Converter::new(witness, options);
        let counters = Arc::clone(&converter.streams.host.counters);
        let stopped = Arc::clone(&stop);
        let thread = std::thread::Builder::new().name("hindcast-inside".to_owned());
        let thread = thread.spawn(move || {
            lower_priority();
            let told = Arc::clone(&converter.streams.host.witness);
            let run = || {
                let ran = drain.run(&mut converter, &stopped);
                converter.finish();
                ran.map(|()| drain.refused())
            };
            let ran = catch_unwind(AssertUnwindSafe(run));
            let failed = match ran {
                Ok(Ok(refused)) => return Ok(refused),
                Ok(Err(error)) => with_causes(&error),
                Err(_) => "the thread that finds them panicked".to_owned(),
            };
            let reason = format!("requests are not recorded any more: {failed}");
            tracing::error!(reason);
            told.missed(told.now(), told.now(), &reason);
            Err(reason)
        })?;
        Ok(Self {
            stop,
            counters,
            thread,
        })
    }

    pub fn watch(&self) -> SeenReader {
        SeenReader {
            counters: Arc::clone(&self.counters),
        }
    }

    /// Takes what has been told by now, and ends. What is in flight then has no answer, so the
    /// service should have ended.
    pub fn stop(self) -> InsideEnd {
        self.stop.store(true, Ordering::Relaxed);
        let (rings_refused, failed) = match self.thread.join() {
            Ok(Ok(refused)) => (refused, None),
            Ok(Err(reason)) => (0, Some(reason)),
            Err(_) => (0, Some("its thread panicked".to_owned())),
        };
        InsideEnd {
            seen: self.counters.read(),
            rings_refused,
            failed,
        }
    }
}

/// Of the calling thread.
fn lower_priority() {
    // SAFETY: a plain system call. Zero is the calling thread.
    if unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICE) } != 0 {
        tracing::debug!("the priority of the recorder's thread stays as it is");
    }
}

/// Turns what taps tell into requests, as it is told.
pub struct Converter {
    streams: Streams,
}

impl Converter {
    pub fn new(witness: Arc<dyn Witness>, options: InsideOptions) -> Self {
        let host = Host {
            witness,
            limits: options.limits,
            redactor: options.redactor,
            numbers: options.numbers,
            sessions: options.sessions,
            clock: Clock::default(),
            counters: Arc::default(),
            claims: Claims::default(),
            readings: Readings::default(),
        };
        Self {
            streams: Streams::new(host),
        }
    }

    pub fn seen(&self) -> Seen {
        self.streams.host.counters.read()
    }

    /// Nothing more will be told: what has not ended by now has no end.
    pub fn finish(&mut self) {
        let clock = self.clock();
        self.streams.finish(hindcast_spool::now(), clock);
    }

    /// The two clocks, read at about the same time: a reading in between which the thread lost its
    /// processor is made again.
    fn clock(&self) -> Clock {
        const CLOSE: u64 = 20_000;
        let read = || {
            let before = hindcast_spool::now();
            let now = self.streams.host.witness.now();
            let after = hindcast_spool::now();
            (after - before, Clock::new(before, now))
        };
        let mut best = read();
        for _ in 0..3 {
            if best.0 < CLOSE {
                break;
            }
            let again = read();
            if again.0 < best.0 {
                best = again;
            }
        }
        best.1
    }
}

impl Taker for Converter {
    fn ring(&mut self, ring: u32, program: &Program) -> Result<(), SpoolError> {
        let (pid, began) = (program.pid, program.began);
        self.streams.ring(ring, streams::Program { pid, began });
        Ok(())
    }

    fn told(&mut self, ring: u32, records: Records<'_>) -> Result<(), SpoolError> {
        self.streams.told(ring, records);
        Ok(())
    }

    fn garbled(&mut self, ring: u32) -> Result<(), SpoolError> {
        self.streams.garbled(ring);
        Ok(())
    }

    fn ended(&mut self, ring: u32) -> Result<(), SpoolError> {
        self.streams.ended(ring);
        Ok(())
    }

    /// The writer of the trace drops records if it has no room, and says so.
    fn has_room(&self) -> bool {
        true
    }

    fn flush(&mut self, moment: u64) -> Result<(), SpoolError> {
        let clock = self.clock();
        self.streams.until(moment, clock);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
