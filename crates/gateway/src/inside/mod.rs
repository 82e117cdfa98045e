//! Requests as the service's own process tells them: the ingress' place is taken by a tap.
//!
//! ```text
//!   taps ──rings──▶ Drain ──▶ spool ──▶ Merge ──▶ Streams ──▶ Call ──▶ http::Exchange ──▶ Witness
//!                                       by        http1, fastcgi,      as in the ingress
//!                                       moments   uwsgi, answers
//! ```
//!
//! Where connections to the database are told as well, who follows them is given what they carried
//! ([`Sessions`]): in the same order, so that what a request did comes between it and its answer.
//!
//! Nothing is in the way of a request. One thread empties the rings into a spool on disk and does
//! nothing else. Another one, in the time that nobody else wants, finds the requests and answers in
//! what connections carried that the service accepted: some milliseconds after it was carried, or
//! minutes if the machine is busy. What cannot be followed is counted and left alone.
//!
//! Start reading at [`Inside`]; [`streams`] is the core, which has neither thread nor clock.

mod again;
mod answers;
mod call;
mod calls;
mod cgi;
mod conversion;
mod fastcgi;
mod gates;
mod host;
mod http1;
mod merge;
mod outbound;
mod readings;
mod rights;
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

use hindcast_spool::{Clock, Drain, Entry, Meter, Reader, SpoolError, Writer};

use crate::http::{Limits, Witness, with_causes};
use crate::messages::Malformed;
use crate::redact::Redactor;
pub use again::{AnswerReader, Answered, CgiProtocol};
use calls::Calls;
use conversion::Conversion;
pub use gates::{Gates, address_of, redirect, socket_folder, system_address};
use host::{Claims, Counters, Host};
pub use host::{Numbers, Seen};
use readings::Readings;
pub use rights::give_way;
pub use sessions::{Session, Sessions};

/// What the environment of a recorded service has.
pub use hindcast_taplog::SOCKET_VARIABLE;
use streams::Streams;

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

/// How requests are recorded.
pub struct InsideOptions {
    pub limits: Limits,
    pub redactor: Arc<Redactor>,
    /// For requests to which the tap gave no number.
    pub numbers: Numbers,
    /// Who follows the service's connections to its database, if they are told.
    pub sessions: Option<Box<dyn Sessions>>,
}

/// Threads that take what taps tell, and turn it into requests.
pub struct Inside {
    stop: Arc<AtomicBool>,
    counters: Arc<Counters>,
    meter: Meter,
    drain: JoinHandle<Result<u64, String>>,
    conversion: JoinHandle<Result<(), String>>,
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
    /// its environment; `spool` has what was told and not looked at.
    pub fn start(
        mut drain: Drain,
        (spool, reader): (Writer, Reader),
        witness: Arc<dyn Witness>,
        options: InsideOptions,
    ) -> io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let meter = reader.meter();
        let converter = Converter::new(Arc::clone(&witness), options);
        let counters = Arc::clone(&converter.streams.host.counters);
        let stopped = Arc::clone(&stop);
        let drain = thread("hindcast-drain", &witness, move || {
            rights::go_first();
            // However it ends.
            let mut spool = Closes(spool);
            drain.run(&mut spool.0, &stopped)?;
            Ok(drain.refused())
        })?;
        let conversion = Conversion {
            reader,
            meter: meter.clone(),
            converter,
        };
        let conversion = thread("hindcast-convert", &witness, move || conversion.run())?;
        Ok(Self {
            stop,
            counters,
            meter,
            drain,
            conversion,
        })
    }

    pub fn watch(&self) -> SeenReader {
        SeenReader {
            counters: Arc::clone(&self.counters),
        }
    }

    /// Tells how much it has not looked at yet.
    pub fn meter(&self) -> Meter {
        self.meter.clone()
    }

    /// Takes what has been told by now, looks at all of it, and ends. What is in flight then has no
    /// answer, so the service should have ended.
    pub fn stop(self) -> InsideEnd {
        self.stop.store(true, Ordering::Relaxed);
        let panicked = || "its thread panicked".to_owned();
        let ended = self.drain.join().unwrap_or_else(|_| Err(panicked()));
        let converted = self.conversion.join();
        let converted = converted.unwrap_or_else(|_| Err(panicked()));
        let rings_refused = *ended.as_ref().unwrap_or(&0);
        InsideEnd {
            seen: self.counters.read(),
            rings_refused,
            failed: ended.err().or(converted.err()),
        }
    }
}

/// A spool that is closed when nobody writes to it any more.
struct Closes(Writer);

impl Drop for Closes {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// If it fails, the witness is told why.
fn thread<T: Send + 'static>(
    name: &str,
    witness: &Arc<dyn Witness>,
    run: impl FnOnce() -> Result<T, SpoolError> + Send + 'static,
) -> io::Result<JoinHandle<Result<T, String>>> {
    let witness = Arc::clone(witness);
    let thread = std::thread::Builder::new().name(name.to_owned());
    thread.spawn(move || {
        let failed = match catch_unwind(AssertUnwindSafe(run)) {
            Ok(Ok(result)) => return Ok(result),
            Ok(Err(error)) => with_causes(&error),
            Err(_) => "the thread that finds them panicked".to_owned(),
        };
        let reason = format!("requests are not recorded any more: {failed}");
        tracing::error!(reason);
        witness.missed(witness.now(), witness.now(), &reason);
        Err(reason)
    })
}

/// Turns what taps tell into requests.
pub struct Converter {
    streams: Streams,
    /// When rings were looked at last.
    looked: (u64, Clock),
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
            calls: Calls::default(),
            came: host::Came::default(),
        };
        Self {
            streams: Streams::new(host),
            looked: Default::default(),
        }
    }

    pub fn seen(&self) -> Seen {
        self.streams.host.counters.read()
    }

    /// One entry of a spool.
    pub fn take(&mut self, entry: Entry<'_>) {
        match entry {
            Entry::Ring { ring, program } => {
                let (pid, began) = (program.pid, program.began);
                self.streams.ring(ring, streams::Program { pid, began });
            }
            Entry::Told { ring, told } => self.streams.told(ring, told),
            Entry::Garbled { ring } => self.streams.garbled(ring),
            Entry::Ended { ring } => self.streams.ended(ring),
            Entry::Looked { moment, clock } => {
                self.looked = (moment, clock);
                self.streams.until(moment, clock);
            }
            Entry::Noted(note) => {
                if let Some(sessions) = &mut self.streams.host.sessions {
                    sessions.noted(note);
                }
            }
            // Who made the converter knows it.
            Entry::About(_) => {}
        }
    }

    fn has_room(&self) -> bool {
        self.streams.host.witness.has_room()
    }

    /// Nothing more will be told: what has not ended by now has no end.
    pub fn finish(&mut self) {
        let (moment, clock) = self.looked;
        self.streams.finish(moment, clock);
    }
}

#[cfg(test)]
mod tests;
