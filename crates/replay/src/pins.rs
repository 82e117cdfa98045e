//! The randomness and the clock of a service that was recorded from inside.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hindcast_taplog::board::Line;
use hindcast_taplog::pins::{self, KEY, Recorded};
use hindcast_trace::{Micros, Recorder, Request, RequestId};
use tokio::net::TcpStream;

use crate::guests::{Guests, Made};
use crate::recording::Recording;
use crate::turns::Turns;

/// How often to look whether the service has begun to read its first request, and for how often.
const LOOK: Duration = Duration::from_millis(1);
const LOOKS_MAX: u32 = 60_000;

/// Tells the service's processes, by their board, what requests are to draw and to read.
#[derive(Clone)]
pub struct Pins {
    turns: Arc<Turns>,
    /// By recorder.
    keys: Arc<HashMap<u16, [u8; KEY]>>,
    recording: Arc<Recording>,
    start: Arc<Start>,
    guests: Arc<Guests>,
}

/// Of a service that is being started.
#[derive(Default)]
struct Start {
    /// A request was sent: who reads it has started.
    awaited: AtomicBool,
    is_over: AtomicBool,
    /// When the last request of those that were sent arrived.
    arrived: AtomicI64,
}

impl Pins {
    pub fn new(turns: &Arc<Turns>, recorders: &[Recorder], recording: &Arc<Recording>) -> Self {
        let keys = recorders.iter().filter_map(|recorder| {
            let key = recorder.pins_key?;
            Some((recorder.number, key.0))
        });
        Self {
            turns: Arc::clone(turns),
            keys: Arc::new(keys.collect()),
            recording: Arc::clone(recording),
            start: Arc::default(),
            guests: Arc::default(),
        }
    }

    /// From now on the service's wall clock shows this time, and goes on until the first request
    /// arrives. What its processes draw at their start is what those drew that worked on this
    /// request: each recorder has started the service once.
    pub fn begin(&self, then: Micros, first: RequestId) {
        let until = self.recording.requests.first();
        let until = until.map_or(0, |first| first.arrived.saturating_mul(1000));
        self.turns.board.pins().set_ahead(ahead(then), until);
        for number in self.recording.numbers() {
            // Beyond so many it is not known.
            if !self.turns.board.pins().was_given(number) {
                break;
            }
        }
        if let Some(key) = self.keys.get(&first.recorder()) {
            self.turns.board.starts().set_key(key);
        }
    }

    /// Waits until the service has begun to read a request: it has started, which may have taken
    /// longer than it did originally, and its wall clock shows when requests arrived. That it
    /// listens says less: workers may be loaded after that.
    async fn start(self, number: u64) {
        for _ in 0..LOOKS_MAX {
            if self.is_taken(number) {
                break;
            }
            tokio::time::sleep(LOOK).await;
        }
        self.start.is_over.store(true, Ordering::SeqCst);
        let arrived = self.start.arrived.load(Ordering::SeqCst);
        self.turns.board.pins().set_ahead(ahead(arrived), 0);
    }

    /// Whether some process of the service has begun to read it.
    pub fn is_taken(&self, number: u64) -> bool {
        self.turns.board.is_taken(number)
    }

    /// The request of this number is about to be sent by the connection, and does not say it
    /// itself.
    pub fn sends_by(&self, line: Line, number: u64) {
        self.turns.board.sends(line, number);
    }

    /// The connection is about to be closed.
    pub fn sent_by(&self, line: Line) {
        self.turns.board.has_sent(line);
    }

    /// At the other end of this connection the service is to see this client.
    pub fn shows(&self, line: Line, client: SocketAddr) {
        self.turns.board.show(line, client);
    }

    /// Connects by the line, to the process of the service that stands for the one with this
    /// number.
    pub async fn connects_to(
        &self,
        process: u64,
        line: Line,
        connected: impl Future<Output = io::Result<TcpStream>>,
    ) -> io::Result<Made> {
        let board = &self.turns.board;
        self.guests.connect(board, line, process, connected).await
    }

    /// The request is over.
    pub fn answered(&self, request: &Request) {
        self.turns.answered(request.id);
    }

    /// The request is about to be sent, with the number that is returned. The wall clock shows at
    /// least when it arrived.
    pub fn sending(&self, request: &Request) -> u64 {
        let number = self.turns.sending(request.id);
        let arrived = request.arrived.saturating_mul(1000);
        // What no recorder writes is as good as nothing.
        let mut readings = pins::decode_readings(arrived, &request.clock).unwrap_or_default();
        readings.extend(self.recording.read_late(request.id));
        let recorded = Recorded {
            request: number,
            recorded_as: request.id.0,
            key: self.keys.get(&request.id.recorder()),
            arrived,
            readings: &readings,
        };
        let board = self.turns.board.pins();
        board.begin(&recorded, hindcast_spool::now() as i64);
        let start = &self.start;
        start.arrived.fetch_max(request.arrived, Ordering::SeqCst);
        if start.is_over.load(Ordering::SeqCst) {
            board.advance(ahead(request.arrived));
        }
        if !start.awaited.swap(true, Ordering::SeqCst) {
            tokio::spawn(self.clone().start(number));
        }
        number
    }
}

/// How far this time is from now.
fn ahead(then: Micros) -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.map_or(0, |since| since.as_nanos() as i64);
    then.saturating_mul(1000).saturating_sub(now)
}
