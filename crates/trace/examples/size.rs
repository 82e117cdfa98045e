//! How many bytes a request costs on disk: `cargo run --release -p hindcast-trace --example size
//! [requests] [folder]`.
//!
//! Makes up a Moodle-like recording (5000 users, 1000 forums, all equally likely; one request in
//! ten subscribes with two transactions, the others list the subscriptions of a forum with one)
//! under 64 concurrent requests with the timing and the snapshots that such a load has, writes it,
//! and prints what each table and column takes. A folder with a trace in it is only read.

use std::collections::{BTreeMap, HashSet};
use std::path::PathBuf;
use std::time::Instant;

use hindcast_trace::*;
use parquet::file::reader::{FileReader, SerializedFileReader};

const USERS: u64 = 5000;
const FORUMS: u64 = 1000;
const CONCURRENCY: u64 = 64;
const POOL: usize = 32;
/// Requests per second.
const RATE: u64 = 4000;

/// splitmix64: the same recording every time.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    /// Exponentially distributed.
    fn around(&mut self, mean: f64) -> i64 {
        let unit = ((self.next() >> 11) as f64 + 1.0) / (1u64 << 53) as f64;
        (-unit.ln() * mean) as i64
    }
}

#[derive(Clone, Copy)]
enum Step {
    /// A transaction takes its snapshot, and its xid if it writes.
    Begin(usize),
    Commit(usize),
}

struct Planned {
    request: usize,
    began: i64,
    ended: i64,
    writes: bool,
    last: bool,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let count: u64 = std::env::args()
        .nth(1)
        .map_or(Ok(1_000_000), |text| text.parse())?;
    let temporary = tempfile::tempdir()?;
    let folder = std::env::args()
        .nth(2)
        .map_or(temporary.path().to_owned(), PathBuf::from);
    let location = Location::folder(&folder);
    if !folder.join("trace.json").exists() {
        make(&location, count)?;
    }
    let trace = Trace::open(&location)?;
    let mut by_part: BTreeMap<&str, u64> = BTreeMap::new();
    for table in ["requests", "transactions"] {
        println!("\n{table}, bytes per request");
        let mut by_column: Vec<(String, u64)> = Vec::new();
        let mut rest = 0;
        for entry in std::fs::read_dir(folder.join(table))? {
            let path = entry?.path();
            rest += path.metadata()?.len();
            let file = SerializedFileReader::try_from(path.as_path())?;
            for group in file.metadata().row_groups() {
                for column in group.columns() {
                    let (name, bytes) = (
                        column.column_path().string(),
                        column.compressed_size() as u64,
                    );
                    rest -= bytes;
                    match by_column.iter_mut().find(|(known, _)| *known == name) {
                        Some((_, sum)) => *sum += bytes,
                        None => by_column.push((name, bytes)),
                    }
                }
            }
        }
        by_column.push(("(footers)".into(), rest));
        for (name, bytes) in by_column {
            let part = if name == "response_body" {
                "response bodies"
            } else {
                table
            };
            *by_part.entry(part).or_default() += bytes;
            println!("  {:<45}{:8.3}", name, bytes as f64 / count as f64);
        }
    }
    println!();
    for (part, bytes) in &by_part {
        println!(
            "{part:<20}{:8.2} bytes per request",
            *bytes as f64 / count as f64
        );
    }
    let without_bodies = by_part["requests"] + by_part["transactions"];
    println!(
        "{:<20}{:8.2} bytes per request",
        "without bodies",
        without_bodies as f64 / count as f64
    );

    let started = Instant::now();
    let read = trace
        .index(TransactionFilter::default())
        .map(|entry| entry.map(|_| ()))
        .collect::<Result<Vec<_>, _>>()?
        .len();
    println!(
        "\nindex of {read} transactions read in {:.2?}",
        started.elapsed()
    );
    let started = Instant::now();
    let lean = trace
        .requests(RequestFilter {
            lean: true,
            ..RequestFilter::default()
        })
        .filter(Result::is_ok)
        .count();
    println!(
        "{lean} requests without headers and bodies read in {:.2?}",
        started.elapsed()
    );
    let started = Instant::now();
    let whole = trace
        .requests(RequestFilter::default())
        .filter(Result::is_ok)
        .count();
    println!("{whole} whole requests read in {:.2?}", started.elapsed());
    let started = Instant::now();
    let id = Id::new(0, count / 2);
    let (request, of_request) = (
        trace.request(id)?.is_some(),
        trace.transactions_of(id)?.len(),
    );
    println!(
        "request {id} found: {request}, with {of_request} transactions, in {:.2?}",
        started.elapsed()
    );
    if let Ok(status) = std::fs::read_to_string("/proc/self/status") {
        println!(
            "{}",
            status
                .lines()
                .find(|line| line.starts_with("VmHWM"))
                .unwrap_or_default()
        );
    }
    Ok(())
}

fn make(location: &Location, count: u64) -> Result<(), Box<dyn std::error::Error>> {
    let options = WriterOptions {
        buffer_records_max: 4_000_000,
        buffer_bytes_max: 1 << 30,
        ..WriterOptions::default()
    };
    let (writer, recorder) = Writer::create(location, options)?;
    let started = Instant::now();
    let transactions = record(&writer, recorder, count);
    println!(
        "recorded {count} requests, {transactions} transactions in {:.1?}",
        started.elapsed()
    );
    let status = writer.close()?;
    println!(
        "in Parquet after {:.1?}, {} segments; nothing dropped: {}",
        started.elapsed(),
        status.segments_written,
        !status.lost_something()
    );
    Ok(())
}

fn drawn(xid: Option<Xid>) -> SequenceValue {
    SequenceValue {
        sequence: 16_402,
        value: xid.map_or(0, |xid| xid.0 as i64),
    }
}

fn record(writer: &Writer, recorder: u16, count: u64) -> u64 {
    let mut random = Random(42);
    let mut subscribed: Vec<Vec<u32>> = vec![Vec::new(); FORUMS as usize];
    let mut known: HashSet<(u32, u32)> = HashSet::new();
    for _ in 0..FORUMS * 20 {
        let (user, forum) = (random.below(USERS) as u32, random.below(FORUMS) as usize);
        if known.insert((user, forum as u32)) {
            subscribed[forum].push(user);
        }
    }
    writer.record(Record::Shape(Shape {
        id: ShapeId(1),
        statements: vec!["SELECT user_id FROM subscription WHERE forum = $1 ORDER BY 1".into()],
    }));
    writer.record(Record::Shape(Shape {
        id: ShapeId(2),
        statements: vec!["SELECT 1 FROM subscription WHERE user_id = $1 AND forum = $2".into()],
    }));
    writer.record(Record::Shape(Shape {
        id: ShapeId(3),
        statements: vec!["INSERT INTO forum_subscription (user_id, forum) VALUES ($1, $2)".into()],
    }));

    let mut began_transactions = 0;
    let (mut next_xid, mut clock) = (90_000u64, 1_760_000_000_000_000i64);
    let mut done = 0;
    // In portions, so that making the load up needs little memory itself.
    while done < count {
        let portion = (count - done).min(CONCURRENCY * 1000);
        let mut requests = Vec::with_capacity(portion as usize);
        let mut planned: Vec<Planned> = Vec::new();
        for index in 0..portion as usize {
            clock += random.around(1e6 / RATE as f64) + 1;
            let subscribes = random.below(10) == 0;
            let (user, forum) = (random.below(USERS) as u32, random.below(FORUMS) as u32);
            let mut at = clock + 150 + random.around(60.0);
            for nth in 0..=u8::from(subscribes) {
                let ended = at + 350 + random.around(150.0);
                planned.push(Planned {
                    request: index,
                    began: at,
                    ended,
                    writes: nth == 1,
                    last: !subscribes || nth == 1,
                });
                at = ended + 120 + random.around(40.0);
            }
            requests.push((clock, at, subscribes, user, forum));
        }
        // What the database would have done, moment by moment.
        let mut steps: Vec<(i64, Step)> = Vec::with_capacity(planned.len() * 2);
        planned.sort_by_key(|planned| planned.began);
        for (index, transaction) in planned.iter().enumerate() {
            steps.push((transaction.began, Step::Begin(index)));
            steps.push((transaction.ended, Step::Commit(index)));
        }
        steps.sort_by_key(|(at, _)| *at);
        let mut running: Vec<(usize, u64)> = Vec::new();
        let mut sessions: Vec<u64> = (1..=POOL as u64).rev().collect();
        let mut open: BTreeMap<usize, (u64, u64, Snapshot)> = BTreeMap::new();
        for (at, step) in steps {
            match step {
                Step::Begin(index) => {
                    let mut in_progress: Vec<Xid> =
                        running.iter().map(|&(_, xid)| Xid(xid)).collect();
                    in_progress.sort_unstable();
                    let xmin = *in_progress.first().unwrap_or(&Xid(next_xid));
                    began_transactions += 1;
                    let session = sessions.pop().unwrap_or(POOL as u64 + 1);
                    open.insert(
                        index,
                        (
                            began_transactions,
                            session,
                            Snapshot {
                                xmin,
                                xmax: Xid(next_xid),
                                in_progress,
                            },
                        ),
                    );
                    if planned[index].writes {
                        running.push((index, next_xid));
                        next_xid += 1;
                    }
                }
                Step::Commit(index) => {
                    let plan = &planned[index];
                    let (number, session, snapshot) = open.remove(&index).expect("it began");
                    sessions.push(session);
                    let place = running.iter().position(|&(of, _)| of == index);
                    let xid = place.map(|place| Xid(running.remove(place).1));
                    let (arrived, ended, subscribes, user, forum) = &mut requests[plan.request];
                    let users = &mut subscribed[*forum as usize];
                    let (shape, digest, rows) = match (*subscribes, plan.writes) {
                        (true, false) => {
                            let found = known.contains(&(*user, *forum));
                            (2, u32::from(found), u64::from(found))
                        }
                        (true, true) => {
                            known.insert((*user, *forum));
                            users.push(*user);
                            (3, 1, 1)
                        }
                        (false, _) => (
                            1,
                            Digest::of(format!("{users:?}").as_bytes()).0,
                            users.len() as u64,
                        ),
                    };
                    let request = Id::new(recorder, done + plan.request as u64 + 1);
                    writer.record(Record::Transaction(Transaction {
                        id: Id::new(recorder, number),
                        session: Id::new(recorder, session),
                        request: Some((request, Attribution::Comment)),
                        began: plan.began,
                        ended: at,
                        isolation: Isolation::RepeatableRead,
                        snapshot: Some(snapshot),
                        xid,
                        subxids: Vec::new(),
                        outcome: Outcome::Committed,
                        now: Some(plan.began + 25 + random.around(10.0)),
                        shape: ShapeId(shape),
                        result_digest: Digest(digest),
                        result_rows: rows,
                        locks: Vec::new(),
                        sequence_values: plan.writes.then(|| drawn(xid)).into_iter().collect(),
                        drawn_uuids: Vec::new(),
                        drawn: Vec::new(),
                        clock: Vec::new(),
                        server_bytes: None,
                        secrets: Default::default(),
                        client_bytes: None,
                        statement_snapshots: Vec::new(),
                        rechecked: Vec::new(),
                        commit_lsn: None,
                        row_order: if *subscribes { vec![] } else { order_of(users) },
                        values: Some(Digest::of(format!("{request} {user} {forum}").as_bytes()).0),
                    }));
                    if plan.last {
                        let body = match *subscribes {
                            true => b"{\"ok\":true}".to_vec(),
                            false => format!("{users:?}").into_bytes(),
                        };
                        let seconds = *ended / 1_000_000 % 60;
                        writer.record(Record::Request(Request {
                            id: Id::new(recorder, done + plan.request as u64 + 1),
                            arrived: *arrived,
                            ended: *ended,
                            method: if *subscribes { "POST" } else { "GET" }.into(),
                            target: match subscribes {
                                true => "/forum/subscribe".into(),
                                false => format!("/forum/subscriptions?forum={forum}"),
                            },
                            headers: browser_headers(),
                            body: asked(*subscribes, user, forum),
                            caller_traceparent: None,
                            user_id: None,
                            came_to: None,
                            came_from: None,
                            came_by: None,
                            clock: Vec::new(),
                            secrets: Default::default(),
                            calls: Vec::new(),
                            response: Response::Answered {
                                status: 200,
                                headers: vec![
                                    ("content-type".into(), b"application/json".to_vec()),
                                    ("content-length".into(), body.len().to_string().into_bytes()),
                                    (
                                        "date".into(),
                                        format!("Thu, 09 Oct 2025 08:53:{seconds:02} GMT")
                                            .into_bytes(),
                                    ),
                                ],
                                body_digest: Digest::of(&body),
                                body_bytes: body.len() as u64,
                                body: Some(body),
                            },
                        }));
                    }
                }
            }
        }
        done += portion;
    }
    began_transactions
}

/// As many bytes as a recorder keeps of the order of rows, and as much information.
fn order_of(users: &[u32]) -> Vec<u8> {
    let hash = |&user: &u32| Digest::of(&user.to_le_bytes()).0;
    let mut places: Vec<usize> = (0..users.len()).collect();
    places.sort_by_key(|&at| hash(&users[at]));
    let mut ranks = vec![0; users.len()];
    for (rank, at) in places.into_iter().enumerate() {
        ranks[at] = rank as u8;
    }
    match ranks.len() {
        ..2 => Vec::new(),
        _ => [&[0; 10], &ranks[..]].concat(),
    }
}

/// The headers that a browser sends with each request.
fn browser_headers() -> Vec<(String, Vec<u8>)> {
    vec![
        ("host".into(), b"forum.example:8080".to_vec()),
        (
            "user-agent".into(),
            b"Mozilla/5.0 (X11; Linux x86_64; rv:140.0)".to_vec(),
        ),
        ("accept".into(), b"application/json".to_vec()),
        ("accept-encoding".into(), b"gzip, deflate".to_vec()),
    ]
}

fn asked(subscribes: bool, user: impl std::fmt::Display, forum: impl std::fmt::Display) -> Vec<u8> {
    match subscribes {
        true => subscription(user, forum),
        false => Vec::new(),
    }
}

fn subscription(user: impl std::fmt::Display, forum: impl std::fmt::Display) -> Vec<u8> {
    format!("{{\"user\":{user},\"forum\":{forum}}}").into_bytes()
}
