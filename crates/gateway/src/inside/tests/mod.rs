//! The core of it, told by hand.

mod again;
mod fastcgi;
mod garbage;
mod http1;
mod interleavings;
mod losses;
mod uwsgi;

use std::collections::BTreeSet;
use std::fmt::Write;
use std::sync::{Arc, Mutex};

use hindcast_model::Traceparent;
use hindcast_spool::Clock;
use hindcast_taplog::{Direction, How, Told};
use hindcast_trace::{Digest, Id, Micros, Request, Response};

use super::Seen;
use super::calls::Calls;
use super::host::{Claims, Counters, Host};
use super::readings::Readings;
use super::streams::{Program, Streams};
use crate::http::{Arrival, Durable, Limits, Witness};
use crate::redact::Redactor;

/// What comes first, at this moment. A microsecond passes between two things.
const BEGAN: u64 = 1_000_000_000;
const MICRO: u64 = 1000;
/// Numbers of the callback begin here.
const OTHERS: u64 = 1000;

#[derive(Default)]
pub(super) struct Collected {
    in_flight: Mutex<BTreeSet<Id>>,
    requests: Mutex<Vec<Request>>,
    missed: Mutex<Vec<String>>,
}

impl Witness for Collected {
    fn arrived(&self) -> Option<Arrival> {
        unreachable!("it is not in the path")
    }

    fn arrived_before(&self, number: u64, at: Micros) -> Option<Arrival> {
        // As it is in a recorder.
        if number >= 1 << 44 {
            return None;
        }
        let id = Id(number);
        self.in_flight.lock().unwrap().insert(id);
        let traceparent = Traceparent {
            prefix: 1,
            request: id,
            span: 1,
        };
        Some(Arrival {
            id,
            at,
            traceparent,
        })
    }

    fn ended(&self, request: Request) {
        self.in_flight.lock().unwrap().remove(&request.id);
        self.requests.lock().unwrap().push(request);
    }

    fn missed(&self, _: Micros, _: Micros, reason: &str) {
        self.missed.lock().unwrap().push(reason.to_owned());
    }

    fn durable(&self) -> Option<Durable> {
        None
    }

    fn now(&self) -> Micros {
        0
    }
}

/// Streams, of which some things are told.
struct Stage {
    streams: Streams,
    collected: Arc<Collected>,
    counters: Arc<Counters>,
    now: u64,
}

/// Tells requests to this one.
pub(super) fn host(collected: &Arc<Collected>) -> Host {
    let mut next = OTHERS;
    Host {
        witness: Arc::clone(collected) as Arc<dyn Witness>,
        limits: Limits::default(),
        redactor: Arc::new(Redactor::default()),
        numbers: Box::new(move || {
            next += 1;
            next - 1
        }),
        sessions: None,
        clock: Clock::default(),
        counters: Arc::default(),
        claims: Claims::default(),
        readings: Readings::default(),
        calls: Calls::default(),
        came: super::host::Came::default(),
    }
}

impl Stage {
    fn new() -> Self {
        let collected = Arc::<Collected>::default();
        let host = host(&collected);
        let counters = Arc::clone(&host.counters);
        let mut streams = Streams::new(host);
        for ring in 0..8 {
            let program = Program {
                pid: ring / 4,
                began: 0,
            };
            streams.ring(ring, program);
        }
        Self {
            streams,
            collected,
            counters,
            now: BEGAN,
        }
    }

    /// By the first ring, a microsecond after what was told before.
    fn told(&mut self, told: Told<'_>) {
        self.now += MICRO;
        self.streams.told(0, std::iter::once((self.now, told)));
        self.streams.until(self.now + 1, Clock::default());
    }

    fn accepted(&mut self, stream: u64) {
        self.told(Told::Opened {
            stream,
            how: How::Accepted,
            local: b"",
            peer: b"",
        });
    }

    fn read(&mut self, stream: u64, bytes: &[u8]) {
        let direction = Direction::In;
        self.told(Told::Bytes {
            stream,
            direction,
            bytes,
        });
    }

    fn wrote(&mut self, stream: u64, bytes: &[u8]) {
        let direction = Direction::Out;
        self.told(Told::Bytes {
            stream,
            direction,
            bytes,
        });
    }

    fn passes(&mut self, nanoseconds: u64) {
        self.now += nanoseconds;
        self.streams.until(self.now, Clock::default());
    }

    /// What was recorded so far, as text.
    fn recorded(&self) -> String {
        let mut text = String::new();
        for request in self.collected.requests.lock().unwrap().iter() {
            writeln!(text, "{}", as_text(request)).unwrap();
        }
        for missed in self.collected.missed.lock().unwrap().iter() {
            writeln!(text, "missed: {missed}").unwrap();
        }
        text
    }

    fn requests(&self) -> Vec<Request> {
        self.collected.requests.lock().unwrap().clone()
    }

    fn finish(&mut self) {
        self.streams.finish(self.now, Clock::default());
        let in_flight = self.collected.in_flight.lock().unwrap();
        assert!(in_flight.is_empty(), "{in_flight:?} never ended");
    }

    fn seen(&self) -> Seen {
        self.counters.read()
    }
}

fn as_text(request: &Request) -> String {
    let fields = |headers: &[(String, Vec<u8>)]| {
        let all = headers.iter();
        let all = all.map(|(name, value)| format!("{name}={}", String::from_utf8_lossy(value)));
        all.collect::<Vec<_>>().join(" ")
    };
    let micros = |at: Micros| at - (BEGAN / MICRO) as Micros;
    let mut text = format!(
        "{} @{}-{} {} {} ({})",
        request.id,
        micros(request.arrived),
        micros(request.ended),
        request.method,
        request.target,
        fields(&request.headers),
    );
    if !request.body.is_empty() {
        write!(text, " {:?}", String::from_utf8_lossy(&request.body)).unwrap();
    }
    if let Some(caller) = &request.caller_traceparent {
        write!(text, " caller {caller}").unwrap();
    }
    match &request.response {
        Response::Answered {
            status,
            headers,
            body_digest,
            body_bytes,
            body,
        } => {
            write!(text, "\n    {status} ({})", fields(headers)).unwrap();
            match body {
                Some(body) => {
                    let whole = (*body_digest, *body_bytes);
                    assert_eq!(whole, (Digest::of(body), body.len() as u64));
                    write!(text, " {:?}", String::from_utf8_lossy(body)).unwrap();
                }
                None => write!(text, " {body_bytes} bytes {body_digest}").unwrap(),
            }
        }
        Response::Broken { reason } => write!(text, "\n    broken: {reason}").unwrap(),
        Response::Unrecorded { reason } => write!(text, "\n    unrecorded: {reason}").unwrap(),
    }
    text
}

/// What a connection carries: a turn, if a request begins with it, direction and bytes.
type Said<'a> = (Option<u64>, Direction, &'a [u8]);

impl Stage {
    /// A connection that carries this and is closed.
    fn carries(&mut self, said: &[Said<'_>]) {
        self.accepted(1);
        for &(turn, direction, bytes) in said {
            if let Some(request) = turn {
                self.told(Told::Turn { stream: 1, request });
            }
            self.told(Told::Bytes {
                stream: 1,
                direction,
                bytes,
            });
        }
        self.told(Told::Closed { stream: 1 });
        self.passes(10_000_000_000);
    }
}

/// Whether the same is recorded when what is said comes in other pieces: cut in two at each point,
/// and byte by byte.
fn comes_to_the_same_in_any_pieces(said: &[Said<'_>]) {
    let run = |pieces: &[Said<'_>]| {
        let mut stage = Stage::new();
        stage.carries(pieces);
        stage.finish();
        let mut requests = stage.requests();
        for request in &mut requests {
            (request.arrived, request.ended) = (0, 0);
        }
        (requests, stage.recorded(), stage.seen().malformed)
    };
    let (whole, text, malformed) = run(said);
    assert!(!whole.is_empty() && malformed == 0, "{text}");
    let mut single = Vec::new();
    for (at, &(turn, direction, bytes)) in said.iter().enumerate() {
        for cut in 1..bytes.len() {
            let (one, other) = bytes.split_at(cut);
            let mut pieces = said.to_vec();
            let two = [(turn, direction, one), (None, direction, other)];
            pieces.splice(at..=at, two);
            let (cut_in_two, text, _) = run(&pieces);
            assert_eq!(cut_in_two, whole, "cut at {cut} of {bytes:?}:\n{text}");
        }
        let bytes = bytes.chunks(1).enumerate();
        single.extend(bytes.map(|(at, one)| (turn.filter(|_| at == 0), direction, one)));
    }
    assert_eq!(run(&single).0, whole, "byte by byte");
}
