//! Makes up a recording of a forum, and measures how quickly its timeline answers:
//!
//! ```text
//! cargo run --release -p hindcast-view --example made -- REQUESTS FOLDER [measure]
//! ```
//!
//! 64 clients list and subscribe for as long as the requests take at 4000 a second; some of them
//! subscribe twice at the same time, which is the race that a page should show. Whoever of a
//! million users comes stays for some fifty requests, among twenty thousand others. The same
//! numbers give the same recording. A folder with a trace in it is only read.

use std::error::Error;
use std::path::Path;
use std::time::{Duration, Instant};

use hindcast_trace::*;
use hindcast_view::{Filter, Lanes, Levels, Progress, Question, StatusClass, load, timeline};

const CLIENTS: u64 = 64;
const RATE: u64 = 4000;
const USERS: u64 = 1_000_000;
/// Users who are there at the same time.
const VISITORS: usize = 20_000;
/// Requests of a visit, on average.
const VISIT: u64 = 50;
const BEGUN: Micros = 1_795_233_600_000_000;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let usage = "made REQUESTS FOLDER [measure]";
    let requests: u64 = arguments.next().ok_or(usage)?.parse()?;
    let folder = arguments.next().ok_or(usage)?;
    let location = Location::folder(Path::new(&folder));
    if !Path::new(&folder).join("trace.json").exists() {
        make(&location, requests)?;
    }
    if arguments.next().as_deref() == Some("measure") {
        measure(&location)?;
    }
    Ok(())
}

/// splitmix64
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % limit
    }
}

const LIST: [&str; 3] = [
    "BEGIN ISOLATION LEVEL REPEATABLE READ",
    "SELECT u.id, u.name FROM users u JOIN subscriptions s ON s.userid = u.id WHERE s.forum = $1",
    "COMMIT",
];
const CHECK: [&str; 3] = [
    "BEGIN ISOLATION LEVEL REPEATABLE READ",
    "SELECT id FROM subscriptions WHERE userid = $1 AND forum = $2",
    "COMMIT",
];
const INSERT: [&str; 3] = [
    "BEGIN ISOLATION LEVEL REPEATABLE READ",
    "INSERT INTO subscriptions (userid, forum) VALUES ($1, $2) RETURNING id",
    "COMMIT",
];

fn make(location: &Location, requests: u64) -> Result<(), Box<dyn Error>> {
    let options = WriterOptions {
        buffer_records_max: 400_000,
        buffer_bytes_max: 1 << 29,
        ..WriterOptions::default()
    };
    let (writer, recorder) = Writer::create(location, options)?;
    for (id, statements) in (1..).zip([LIST, CHECK, INSERT]) {
        writer.record(Record::Shape(Shape {
            id: ShapeId(id),
            statements: statements.map(str::to_owned).to_vec(),
        }));
    }
    let mut service = Service {
        random: Random(requests),
        recorder,
        transactions: 0,
        xid: 700,
        pending: Vec::new(),
        visitors: Vec::new(),
    };
    for number in 1..=requests {
        service.request(&writer, number);
        while behind(&writer) {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    writer.close()?;
    Ok(())
}

/// Whether what is made up takes memory, or the disk, until it is in Parquet.
fn behind(writer: &Writer) -> bool {
    let status = writer.status();
    status.buffered_records > 300_000 || status.segments_waiting > 2
}

struct Service {
    random: Random,
    recorder: u16,
    transactions: u64,
    xid: u64,
    /// Writers that may still run, with their ends.
    pending: Vec<(u64, Micros)>,
    visitors: Vec<u64>,
}

impl Service {
    fn request(&mut self, writer: &Writer, number: u64) {
        let every = 1_000_000 / RATE;
        let arrived = BEGUN + (number * every) as Micros + self.random.below(every) as Micros;
        let id = Id::new(self.recorder, number);
        let subscribes = self.random.below(10) == 0;
        let (user, forum) = (self.visitor(), self.random.below(1000));
        let mut at = arrived + 150 + self.random.below(400) as Micros;
        let shapes: &[u32] = if subscribes { &[2, 3] } else { &[1] };
        for shape in shapes {
            at = self.transaction(writer, id, at, *shape) + 60;
        }
        let ended = at + 100 + self.random.below(8000) as Micros;
        let failed = self.random.below(200) == 0;
        let (method, target) = match subscribes {
            true => ("POST", format!("/subscribe?user={user}&forum={forum}")),
            false => ("GET", format!("/forums/{forum}/subscribers")),
        };
        let status = match (failed, subscribes) {
            (true, _) => 500,
            (false, true) => 201,
            (false, false) => 200,
        };
        let mut made = request(id, (arrived, ended), (method, target), status, user);
        // A tracer samples one in a hundred.
        if self.random.below(100) == 0 {
            let [high, low, span] = std::array::from_fn(|_| self.random.below(u64::MAX));
            made.caller_traceparent = Some(format!("00-{high:016x}{low:016x}-{span:016x}-01"));
        }
        writer.record(Record::Request(made));
    }

    fn visitor(&mut self) -> u64 {
        if self.visitors.len() < VISITORS {
            self.visitors.push(self.random.below(USERS));
        }
        let place = self.random.below(self.visitors.len() as u64) as usize;
        let user = self.visitors[place];
        if self.random.below(VISIT) == 0 {
            self.visitors[place] = self.random.below(USERS);
        }
        user
    }

    /// Returns its end.
    fn transaction(&mut self, writer: &Writer, request: Id, began: Micros, shape: u32) -> Micros {
        self.transactions += 1;
        let ended = began + 200 + self.random.below(1500) as Micros;
        self.pending.retain(|(_, end)| *end > began);
        let in_progress: Vec<Xid> = self.pending.iter().map(|(xid, _)| Xid(*xid)).collect();
        let xmax = Xid(self.xid + 1);
        let wrote = shape == 3;
        if wrote {
            self.xid += 1;
            self.pending.push((self.xid, ended));
        }
        let number = self.transactions;
        writer.record(Record::Transaction(Transaction {
            id: Id::new(self.recorder, number),
            session: Id::new(self.recorder, request.sequence() % CLIENTS + 1),
            request: Some((request, Attribution::Comment)),
            began,
            ended,
            isolation: Isolation::RepeatableRead,
            snapshot: Some(Snapshot {
                xmin: in_progress.first().copied().unwrap_or(xmax),
                xmax,
                in_progress,
            }),
            xid: wrote.then_some(Xid(self.xid)),
            subxids: Vec::new(),
            outcome: Outcome::Committed,
            now: Some(began + 20),
            shape: ShapeId(shape),
            result_digest: Digest(number as u32),
            result_rows: 3,
            locks: Vec::new(),
            sequence_values: Vec::new(),
            drawn_uuids: Vec::new(),
            drawn: Vec::new(),
            clock: Vec::new(),
            server_bytes: None,
            secrets: Default::default(),
            client_bytes: None,
            statement_snapshots: Vec::new(),
            rechecked: Vec::new(),
            commit_lsn: None,
            values: None,
            row_order: Vec::new(),
        }));
        ended
    }
}

fn request(
    id: Id,
    (arrived, ended): (Micros, Micros),
    (method, target): (&str, String),
    status: u16,
    user: u64,
) -> Request {
    let body = format!("{{\"target\":\"{target}\",\"ok\":{}}}", status < 400);
    Request {
        id,
        arrived,
        ended,
        method: method.to_owned(),
        target,
        headers: vec![
            ("host".into(), b"forum.example".to_vec()),
            ("accept".into(), b"*/*".to_vec()),
        ],
        body: Vec::new(),
        caller_traceparent: None,
        user_id: Some(format!("{user}")),
        came_to: None,
        came_from: None,
        came_by: None,
        clock: Vec::new(),
        secrets: Secrets::None,
        calls: Vec::new(),
        response: Response::Answered {
            status,
            headers: vec![("content-type".into(), b"application/json".to_vec())],
            body_digest: Digest::of(body.as_bytes()),
            body_bytes: body.len() as u64,
            body: Some(body.into_bytes()),
        },
    }
}

fn measure(location: &Location) -> Result<(), Box<dyn Error>> {
    let begun = Instant::now();
    let trace = Trace::open(location)?;
    let index = load(&trace, &Progress::default())?;
    let loaded = begun.elapsed();
    let begun = Instant::now();
    let levels = Levels::of(&index, Lanes::Client, None);
    let counted = begun.elapsed();
    let (from, until) = index.span().ok_or("nothing was recorded")?;
    let requests = index.requests();
    println!(
        "{requests} requests, {} transactions, {:.0} s",
        index.transactions(),
        (until - from) as f64 / 1e6
    );
    println!("read           {:>8.2} s", loaded.as_secs_f64());
    println!("first counts   {:>8.1} ms", millis(counted));
    let bytes = index.bytes() + levels.bytes();
    println!(
        "in memory      {:>8.1} bytes a request",
        bytes as f64 / requests as f64
    );

    let begun = Instant::now();
    let failed = Filter {
        status: vec![StatusClass::Failed],
        ..Filter::default()
    };
    let only = failed.select(&index, None);
    let filtered = Levels::of(&index, Lanes::Client, only);
    println!("a new filter   {:>8.1} ms", millis(begun.elapsed()));
    for (name, levels) in [("all", &levels), ("failed", &filtered)] {
        let mut times = Vec::new();
        let mut longest = 0;
        let mut span = until - from;
        while span > 100 {
            for place in 0..8 {
                let from = from + (until - from - span) / 8 * place;
                let question = Question {
                    from,
                    until: from + span,
                    columns: 1500,
                    lane: 0,
                    rows: 128,
                };
                let begun = Instant::now();
                let answer = timeline(&index, levels, &question);
                let text = serde_json::to_vec(&answer)?;
                times.push(begun.elapsed());
                longest = longest.max(text.len());
            }
            span /= 2;
        }
        times.sort();
        println!(
            "a view, {name:<7}{:>8.1} ms median, {:.1} ms at most, of {} views; {} kB at most",
            millis(times[times.len() / 2]),
            times.last().map_or(0.0, |longest| millis(*longest)),
            times.len(),
            longest / 1000
        );
    }
    let status = std::fs::read_to_string("/proc/self/status")?;
    let peak = status.lines().find(|line| line.starts_with("VmHWM"));
    println!("{}", peak.unwrap_or_default());
    Ok(())
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
