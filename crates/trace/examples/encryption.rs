//! What encryption costs: `cargo run --release -p hindcast-trace --example encryption [requests]`.
//!
//! Records made-up requests with one transaction each, without a key and with one, in turn, three
//! times; then reads them back. Prints processor time per request of the whole process: encoding,
//! write-ahead file, segment.

use std::time::Instant;

use hindcast_trace::*;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let count: u64 = std::env::args()
        .nth(1)
        .map_or(Ok(200_000), |text| text.parse())?;
    let key = Key::Secret(SecretKey::generate()?);
    for round in 1..=3 {
        for key in [None, Some(&key)] {
            let folder = tempfile::tempdir()?;
            let location = Location::folder(folder.path());
            let (begun, before) = (Instant::now(), cpu_us()?);
            record(&location, key, count)?;
            let (wall, recording) = (begun.elapsed(), cpu_us()? - before);
            let before = cpu_us()?;
            let trace = Trace::open_with(&location, key)?;
            assert_eq!(
                trace.requests(RequestFilter::default()).count() as u64,
                count
            );
            let reading = cpu_us()? - before;
            let bytes: u64 = trace.stored_bytes().values().sum();
            println!(
                "round {round}, {}: recording {:.2} µs per request ({:.1} s), reading {:.2} µs, {:.2} bytes",
                if key.is_some() {
                    "encrypted"
                } else {
                    "plain    "
                },
                recording / count as f64,
                wall.as_secs_f64(),
                reading / count as f64,
                bytes as f64 / count as f64,
            );
        }
    }
    Ok(())
}

fn record(
    location: &Location,
    key: Option<&Key>,
    count: u64,
) -> Result<(), Box<dyn std::error::Error>> {
    let options = WriterOptions {
        key: key.cloned(),
        buffer_records_max: usize::MAX,
        buffer_bytes_max: usize::MAX,
        ..WriterOptions::default()
    };
    let (writer, number) = Writer::create(location, options)?;
    for sequence in 1..=count {
        writer.record(Record::Request(request(number, sequence)));
        writer.record(Record::Transaction(transaction(number, sequence)));
    }
    writer.close()?;
    Ok(())
}

/// Of all threads of this process, ended ones included.
fn cpu_us() -> Result<f64, Box<dyn std::error::Error>> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let fields = stat.rsplit(") ").next().ok_or("no fields")?;
    let fields: Vec<&str> = fields.split(' ').collect();
    // utime and stime, in hundredths of a second.
    let ticks = fields[11].parse::<f64>()? + fields[12].parse::<f64>()?;
    Ok(ticks * 10_000.0)
}

fn request(recorder: u16, sequence: u64) -> Request {
    let arrived = 1_700_000_000_000_000 + sequence as Micros * 250;
    let body = format!(
        "{{\"forum\":{},\"users\":[{sequence},1,2,3]}}",
        sequence % 1000
    );
    Request {
        id: Id::new(recorder, sequence),
        arrived,
        ended: arrived + 800,
        method: "GET".into(),
        target: format!(
            "/forum/list?user={}&forum={}",
            sequence * 7919 % 5000,
            sequence % 1000
        ),
        headers: vec![
            ("host".into(), b"forum.example".to_vec()),
            (
                "authorization".into(),
                b"Bearer eyJhbGciOiJIUzI1NiJ9.e30.x".to_vec(),
            ),
            ("accept".into(), b"*/*".to_vec()),
        ],
        body: Vec::new(),
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
            headers: vec![("content-type".into(), b"application/json".to_vec())],
            body_digest: Digest::of(body.as_bytes()),
            body_bytes: body.len() as u64,
            body: Some(body.into_bytes()),
        },
    }
}

fn transaction(recorder: u16, sequence: u64) -> Transaction {
    let began = 1_700_000_000_000_000 + sequence as Micros * 250 + 100;
    Transaction {
        id: Id::new(recorder, sequence),
        session: Id::new(recorder, sequence % 8 + 1),
        request: Some((Id::new(recorder, sequence), Attribution::Comment)),
        began,
        ended: began + 500,
        isolation: Isolation::RepeatableRead,
        snapshot: Some(Snapshot {
            xmin: Xid(700 + sequence),
            xmax: Xid(700 + sequence),
            in_progress: Vec::new(),
        }),
        xid: sequence.is_multiple_of(5).then_some(Xid(700 + sequence)),
        subxids: Vec::new(),
        outcome: Outcome::Committed,
        now: Some(began + 20),
        shape: ShapeId(1),
        result_digest: Digest(sequence as u32),
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
    }
}
