//! A trace in an S3-compatible store: a real server (moto), which goes away, refuses, and comes
//! back.

#[path = "it/common/mod.rs"]
mod common;

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::Child;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

use common::*;
use hindcast_trace::*;
use tempfile::TempDir;

/// Serves S3 with real permissions: `revoke` and `grant` on its standard input take them away and
/// give them back.
const SERVER: &str = r#"
import json, logging, sys, urllib.request
import boto3
from moto.server import ThreadedMotoServer

logging.getLogger("werkzeug").setLevel(logging.ERROR)
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
_, port = server.get_host_and_port()
endpoint = f"http://127.0.0.1:{port}"
root = dict(endpoint_url=endpoint, region_name="eu-central-1", aws_access_key_id="root", aws_secret_access_key="root")
boto3.client("s3", **root).create_bucket(
    Bucket="traces", CreateBucketConfiguration={"LocationConstraint": "eu-central-1"})
iam = boto3.client("iam", **root)
policy = json.dumps({"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]})
users = {}
for user in ("recorder", "operator"):
    iam.create_user(UserName=user)
    iam.put_user_policy(UserName=user, PolicyName="all", PolicyDocument=policy)
    users[user] = iam.create_access_key(UserName=user)["AccessKey"]
operator = boto3.client("iam", **dict(root, aws_access_key_id=users["operator"]["AccessKeyId"],
                                      aws_secret_access_key=users["operator"]["SecretAccessKey"]))
# From now on permissions are checked.
urllib.request.urlopen(urllib.request.Request(
    f"{endpoint}/moto-api/reset-auth", data=b"0", method="POST", headers={"Content-Type": "text/plain"}))
print("serving", port, users["recorder"]["AccessKeyId"], users["recorder"]["SecretAccessKey"], flush=True)
for line in sys.stdin:
    if line.strip() == "revoke":
        operator.delete_user_policy(UserName="recorder", PolicyName="all")
    else:
        operator.put_user_policy(UserName="recorder", PolicyName="all", PolicyDocument=policy)
    print("done", flush=True)
server.stop()
"#;

struct Server {
    process: Child,
    answers: Mutex<Box<dyn BufRead + Send>>,
    /// While this is false the endpoint is gone.
    reachable: Arc<AtomicBool>,
}

impl Server {
    fn start() -> Self {
        let mut process = python::start(SERVER);
        let mut answers = BufReader::new(process.stdout.take().unwrap());
        let mut line = String::new();
        while !line.starts_with("serving") {
            line.clear();
            assert!(
                answers.read_line(&mut line).unwrap() > 0,
                "the S3 server did not start"
            );
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        let reachable = Arc::new(AtomicBool::new(true));
        let port = forward_to(words[1].parse().unwrap(), Arc::clone(&reachable));
        let settings = [
            ("AWS_ENDPOINT_URL", format!("http://127.0.0.1:{port}")),
            ("AWS_ALLOW_HTTP", "true".into()),
            ("AWS_REGION", "eu-central-1".into()),
            ("AWS_ACCESS_KEY_ID", words[2].into()),
            ("AWS_SECRET_ACCESS_KEY", words[3].into()),
        ];
        for (name, value) in settings {
            // SAFETY: this happens once, before any test of this process does anything, see
            // `store`.
            unsafe { std::env::set_var(name, value) };
        }
        Self {
            process,
            answers: Mutex::new(Box::new(answers)),
            reachable,
        }
    }

    fn tell(&self, command: &str) {
        let mut input = self.process.stdin.as_ref().unwrap();
        writeln!(input, "{command}").unwrap();
        let mut line = String::new();
        self.answers.lock().unwrap().read_line(&mut line).unwrap();
        assert_eq!(line, "done\n");
    }
}

/// The server, for one test at a time.
fn store() -> MutexGuard<'static, Server> {
    static SERVER: OnceLock<Mutex<Server>> = OnceLock::new();
    let server = SERVER
        .get_or_init(|| Mutex::new(Server::start()))
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    server.reachable.store(true, Ordering::SeqCst);
    server
}

/// Forwards connections to a port as long as it is told to, and cuts them when it no longer is.
fn forward_to(port: u16, reachable: Arc<AtomicBool>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let local = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            if !reachable.load(Ordering::SeqCst) {
                continue;
            }
            let Ok(server) = TcpStream::connect(("127.0.0.1", port)) else {
                continue;
            };
            let (client_too, server_too) =
                (client.try_clone().unwrap(), server.try_clone().unwrap());
            let (upwards, downwards) = (Arc::clone(&reachable), Arc::clone(&reachable));
            thread::spawn(move || forward(client, server, &upwards));
            thread::spawn(move || forward(server_too, client_too, &downwards));
        }
    });
    local
}

fn forward(mut from: TcpStream, mut to: TcpStream, reachable: &AtomicBool) {
    let mut buffer = [0; 16 << 10];
    let outcome: io::Result<()> = (|| loop {
        let read = from.read(&mut buffer)?;
        if read == 0 || !reachable.load(Ordering::SeqCst) {
            return Ok(());
        }
        to.write_all(&buffer[..read])?;
    })();
    drop(outcome);
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}

fn fresh() -> (Location, TempDir) {
    static TRACES: AtomicU32 = AtomicU32::new(0);
    let number = TRACES.fetch_add(1, Ordering::SeqCst);
    (
        format!("s3://traces/tests/{number}").parse().unwrap(),
        TempDir::new().unwrap(),
    )
}

fn options(wal: &TempDir) -> WriterOptions {
    WriterOptions {
        wal_folder: Some(wal.path().to_owned()),
        ..hasty()
    }
}

#[test]
fn an_encrypted_trace_in_a_store_is_written_and_read() {
    let _store = store();
    let (location, wal) = fresh();
    let secret = Key::Secret(SecretKey::generate().unwrap());
    let public = Key::Public(secret.public());
    let encrypting = WriterOptions {
        key: Some(public),
        ..options(&wal)
    };
    record_with(&location, encrypting, 200);
    let error = Trace::open(&location).err().unwrap();
    assert!(matches!(error, OpenError::Encrypted { .. }), "{error}");
    let trace = Trace::open_with(&location, Some(&secret)).unwrap();
    assert_eq!(
        read_requests(&trace),
        (1..=200)
            .map(|sequence| request(0, sequence))
            .collect::<Vec<_>>()
    );
    assert_eq!(trace.request(Id::new(0, 77)).unwrap(), Some(request(0, 77)));
    let copy = TempDir::new().unwrap();
    let copy = copy.path().join("copy");
    decrypt(&location, &secret, &copy).unwrap();
    let copied = Trace::open(&Location::folder(&copy)).unwrap();
    assert_eq!(read_requests(&copied), read_requests(&trace));
}

#[test]
fn a_trace_in_a_store_is_pruned() {
    let _store = store();
    let (location, wal) = fresh();
    record_with(&location, options(&wal), 10);
    let base = take_base(&location, options(&wal));
    record_with(&location, options(&wal), 7);
    let before = Trace::open(&location).unwrap();
    let plan = plan_prune(&location, None, &all_of_it()).unwrap();
    assert_eq!(plan.recorders[0].requests, 10);
    assert_eq!(plan.held_by, Some(base.clone()));
    let mut removed = 0;
    prune(&location, None, &plan, |files| removed = files).unwrap();
    // Requests, transactions, shapes, recorders, and the manifest.
    assert_eq!(removed, 5);
    let error = before.requests(RequestFilter::default()).next();
    let error = error.unwrap().unwrap_err();
    assert!(matches!(error, ReadError::Pruned { .. }), "{error}");
    let trace = Trace::open(&location).unwrap();
    assert_eq!(read_requests(&trace).len(), 7);
    assert_eq!(trace.bases(), [base]);
    assert_eq!(trace.pruned()[0].requests, 10);
    // Nothing is left to do.
    let plan = plan_prune(&location, None, &all_of_it()).unwrap();
    assert_eq!(plan.recorders, []);
    prune(&location, None, &plan, |_| {
        panic!("nothing is there to remove")
    })
    .unwrap();
}

#[test]
fn a_trace_in_a_store_is_written_and_read() {
    let _store = store();
    let (location, wal) = fresh();
    let (writer, number) = Writer::create(
        &location,
        WriterOptions {
            roll_bytes_max: 30_000,
            ..options(&wal)
        },
    )
    .unwrap();
    assert_eq!(number, 0);
    writer.record(Record::Recorder(recorder(0)));
    for sequence in 1..=500 {
        writer.record(Record::Request(request(0, sequence)));
        writer.record(Record::Transaction(transaction(0, sequence)));
        if sequence % 100 == 0 {
            flush(&writer);
        }
    }
    assert_eq!(
        request_ids(&Trace::open(&location).unwrap()),
        (1..=500).collect::<Vec<_>>(),
        "while recording"
    );
    let status = writer.close().unwrap();
    assert!(status.segments_written > 1, "{status:?}");

    let trace = Trace::open(&location).unwrap();
    assert_eq!(trace.recorders(), [recorder(0)]);
    assert_eq!(
        read_requests(&trace),
        (1..=500)
            .map(|sequence| request(0, sequence))
            .collect::<Vec<_>>()
    );
    assert_eq!(read_transactions(&trace).len(), 500);
    assert_eq!(trace.request(Id::new(0, 77)).unwrap(), Some(request(0, 77)));
    assert_eq!(trace.gaps(), []);
    assert_eq!(trace.warnings(), Vec::<String>::new());
}

#[test]
fn recorders_claim_different_numbers_in_a_store() {
    let _store = store();
    let (location, wal) = fresh();
    let mut numbers: Vec<u16> = thread::scope(|scope| {
        let recorders: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    let (writer, number) = Writer::create(&location, options(&wal)).unwrap();
                    writer.record(Record::Request(request(number, 1)));
                    writer.close().unwrap();
                    number
                })
            })
            .collect();
        recorders
            .into_iter()
            .map(|recorder| recorder.join().unwrap())
            .collect()
    });
    numbers.sort_unstable();
    assert_eq!(numbers, [0, 1, 2, 3]);
    assert_eq!(Trace::open(&location).unwrap().request_count(), 4);
}

#[test]
fn large_segments_are_uploaded_in_parts_and_read_in_blocks() {
    let _store = store();
    let (location, wal) = fresh();
    let (writer, _) = Writer::create(&location, options(&wal)).unwrap();
    // Forty megabytes that do not compress: several parts, several row groups, many blocks.
    let body = |sequence: u64| {
        let mut random = sequence;
        let mut next = || {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (random >> 56) as u8
        };
        (0..200_000).map(|_| next()).collect::<Vec<u8>>()
    };
    for sequence in 1..=200 {
        writer.record(Record::Request(Request {
            body: body(sequence),
            ..request(0, sequence)
        }));
        if sequence % 50 == 0 {
            flush(&writer);
        }
    }
    writer.close().unwrap();
    let trace = Trace::open(&location).unwrap();
    assert!(trace.stored_bytes()["requests"] > 30 << 20);
    let mut read = 0;
    for request in trace.requests(RequestFilter::default()) {
        let request = request.unwrap();
        read += 1;
        assert!(request.body == body(read), "request {}", request.id);
    }
    assert_eq!(read, 200);
}

#[test]
fn an_endpoint_that_goes_away_costs_nothing() {
    let store = store();
    let (location, wal) = fresh();
    let (writer, _) = Writer::create(
        &location,
        WriterOptions {
            roll_bytes_max: 5000,
            ..options(&wal)
        },
    )
    .unwrap();
    store.reachable.store(false, Ordering::SeqCst);
    let sequence = record_until_refused(&writer);
    store.reachable.store(true, Ordering::SeqCst);
    wait_for("the segments reach the store by themselves", || {
        writer.status().segments_waiting == 0
    });
    assert_eq!(writer.status().segment_failure, None);
    writer.close().unwrap();
    let trace = Trace::open(&location).unwrap();
    assert_eq!(request_ids(&trace), (1..=sequence).collect::<Vec<_>>());
    assert_eq!(trace.gaps(), []);
}

#[test]
fn a_store_that_refuses_costs_nothing() {
    let store = store();
    let (location, wal) = fresh();
    let (writer, _) = Writer::create(
        &location,
        WriterOptions {
            roll_bytes_max: 5000,
            ..options(&wal)
        },
    )
    .unwrap();
    store.tell("revoke");
    let sequence = record_until_refused(&writer);
    let failure = writer.status().segment_failure.unwrap();
    assert!(failure.contains("s3://traces/"), "{failure}");
    let refused = Trace::open(&location).err().unwrap();
    assert!(matches!(refused, OpenError::Store { .. }), "{refused:?}");
    assert!(refused.hint().contains("AWS_ACCESS_KEY_ID"));

    // Closing while it still refuses leaves everything where a recovery finds it.
    let closed = writer.close();
    store.tell("grant");
    match closed {
        Err(CloseError::NotPublished { wal_folder, .. }) => {
            assert!(wal_folder.starts_with(wal.path()))
        }
        other => panic!("{other:?}"),
    }
    assert!(Trace::recover(&location).unwrap() > 0);
    let trace = Trace::open(&location).unwrap();
    assert_eq!(request_ids(&trace), (1..=sequence).collect::<Vec<_>>());
    assert_eq!(trace.gaps(), [], "it was closed, only not published");
}

#[test]
fn a_recorder_is_not_started_where_it_may_not_write() {
    let store = store();
    let (location, wal) = fresh();
    store.tell("revoke");
    let refused = Writer::create(&location, options(&wal)).err().unwrap();
    store.tell("grant");
    assert!(
        refused
            .to_string()
            .contains(&format!("{location}/trace.json cannot be created")),
        "{refused}"
    );
    let nowhere: Location = "s3://no-such-bucket/x".parse().unwrap();
    let refused = Writer::create(&nowhere, options(&wal)).err().unwrap();
    assert!(
        refused.hint().contains("that the bucket exists"),
        "{refused:?}"
    );
}

#[test]
fn a_trace_in_a_store_needs_a_local_folder_for_what_is_not_there_yet() {
    let _store = store();
    let (location, _) = fresh();
    let refused = Writer::create(&location, WriterOptions::default())
        .err()
        .unwrap();
    assert!(
        matches!(refused, OpenError::NoWalFolder { .. }),
        "{refused:?}"
    );
}

#[test]
fn a_crashed_recorder_is_missed_elsewhere_and_recovered_where_it_was() {
    let _store = store();
    let (location, wal) = fresh();
    let (writer, _) = Writer::create(&location, options(&wal)).unwrap();
    writer.record(Record::Request(request(0, 1)));
    drop(writer);
    // On another machine its folder is not there.
    let away = wal.path().with_extension("away");
    std::fs::rename(wal.path(), &away).unwrap();
    let trace = Trace::open(&location).unwrap();
    assert_eq!(trace.request_count(), 0);
    assert!(
        trace.warnings()[0].contains("recorder 0 on host"),
        "{:?}",
        trace.warnings()
    );
    assert!(
        matches!(
            trace.gaps(),
            [Gap {
                cause: GapCause::Crashed { recorder: 0 },
                ..
            }]
        ),
        "{:?}",
        trace.gaps()
    );
    assert_eq!(Trace::recover(&location).unwrap(), 0);

    std::fs::rename(&away, wal.path()).unwrap();
    assert_eq!(Trace::recover(&location).unwrap(), 1);
    let trace = Trace::open(&location).unwrap();
    assert_eq!(request_ids(&trace), [1]);
    assert!(
        matches!(
            trace.gaps(),
            [Gap {
                cause: GapCause::Crashed { recorder: 0 },
                ..
            }]
        ),
        "{:?}",
        trace.gaps()
    );
}

/// Records until the store has refused a segment and several wait; returns how many requests.
fn record_until_refused(writer: &Writer) -> u64 {
    let mut sequence = 0;
    wait_for("several segments wait", || {
        for _ in 0..10 {
            sequence += 1;
            writer.record(Record::Request(request(0, sequence)));
        }
        let status = writer.status();
        assert_eq!((status.wal_failure, status.dropped_requests), (None, 0));
        thread::sleep(Duration::from_millis(20));
        status.segments_waiting >= 3 && status.segment_failure.is_some()
    });
    sequence
}
