//! What it costs to find a request in what a tap tells:
//! `cargo run --release -p hindcast-gateway --example inside`.
//!
//! Records of requests as a browser makes them are given to the converter, and what it records is
//! dropped. Bodies are of 200 and 1,000 bytes. Some connections are used at a time, and the records
//! of 200 requests come at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hindcast_gateway::http::{Arrival, Durable, Limits, Witness};
use hindcast_gateway::inside::{Converter, InsideOptions};
use hindcast_gateway::redact::Redactor;
use hindcast_model::Traceparent;
use hindcast_spool::{Clock, Entry, Program, Records};
use hindcast_taplog::{Direction, How, Told};
use hindcast_trace::{Id, Micros, Request};

const REQUESTS: u64 = 200_000;
const AT_ONCE: u64 = 200;
const STREAMS: u64 = 16;
const RUNS: usize = 9;

/// Counts, and drops.
#[derive(Default)]
struct Dropping(AtomicU64);

impl Witness for Dropping {
    fn arrived(&self) -> Option<Arrival> {
        None
    }

    fn arrived_before(&self, number: u64, at: Micros) -> Option<Arrival> {
        let id = Id::new(1, number);
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
        self.0.fetch_add(1, Ordering::Relaxed);
        drop(request);
    }

    fn missed(&self, _: Micros, _: Micros, reason: &str) {
        panic!("{reason}");
    }

    fn durable(&self) -> Option<Durable> {
        None
    }

    fn now(&self) -> Micros {
        0
    }
}

fn main() {
    let (request, answer) = messages();
    let fastcgi = fastcgi(&answer);
    for (name, request, answer) in [
        ("HTTP", &request, &answer),
        ("FastCGI", &fastcgi.0, &fastcgi.1),
    ] {
        let mut all: Vec<u64> = (0..RUNS).map(|_| run(request, answer)).collect();
        all.sort_unstable();
        let (least, median, most) = (all[0], all[RUNS / 2], all[RUNS - 1]);
        let bytes = request.len() + answer.len();
        println!("{name:<8} {bytes} bytes: {median} ns of CPU a request ({least} to {most})");
    }
}

/// Nanoseconds of processor time for each request.
fn run(request: &[u8], answer: &[u8]) -> u64 {
    let witness = Arc::new(Dropping::default());
    let options = InsideOptions {
        limits: Limits::default(),
        redactor: Arc::new(Redactor::default()),
        numbers: Box::new(|| unreachable!("all have turns")),
        sessions: None,
    };
    let mut converter = Converter::new(Arc::clone(&witness) as Arc<dyn Witness>, options);
    let program = Program {
        pid: 1,
        parent: 0,
        began: 0,
        command: Vec::new(),
    };
    converter.take(Entry::Ring { ring: 0, program });
    let (mut records, mut at) = (Vec::new(), 1_000_000);
    for stream in 1..=STREAMS {
        let how = How::Accepted;
        let (local, peer) = (&b"127.0.0.1:80"[..], &b"127.0.0.1:5000"[..]);
        let told = Told::Opened {
            stream,
            how,
            local,
            peer,
        };
        told.encode(at, &mut records);
    }
    let mut took = 0;
    for first in (1..=REQUESTS).step_by(AT_ONCE as usize) {
        for number in first..first + AT_ONCE {
            let stream = number % STREAMS + 1;
            let mut tell = |told: Told<'_>| {
                at += 1000;
                told.encode(at, &mut records);
            };
            tell(Told::Turn {
                stream,
                request: number,
            });
            for (direction, bytes) in [(Direction::In, request), (Direction::Out, answer)] {
                tell(Told::Bytes {
                    stream,
                    direction,
                    bytes,
                });
            }
        }
        let begun = processor_time();
        let told = Records::of(&records);
        converter.take(Entry::Told { ring: 0, told });
        converter.take(Entry::Looked {
            moment: at + 1,
            clock: Clock::default(),
        });
        took += processor_time() - begun;
        records.clear();
    }
    converter.finish();
    assert_eq!(
        witness.0.load(Ordering::Relaxed),
        REQUESTS,
        "{:?}",
        converter.seen()
    );
    took / REQUESTS
}

fn messages() -> (Vec<u8>, Vec<u8>) {
    let request = format!(
        "POST /api/orders?page=3&sort=created HTTP/1.1\r\nHost: shop.example\r\n\
         User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:140.0)\r\nAccept: application/json\r\n\
         Accept-Language: en-US,en;q=0.5\r\nContent-Type: application/json\r\n\
         Content-Length: 200\r\nCookie: session=0123456789abcdef0123456789abcdef\r\n\
         Connection: keep-alive\r\n\r\n{}",
        "x".repeat(200)
    );
    let answer = format!(
        "HTTP/1.1 200 OK\r\nServer: uvicorn\r\nDate: Mon, 23 Nov 2026 00:00:00 GMT\r\n\
         Content-Type: application/json\r\nContent-Length: 1000\r\nCache-Control: no-store\r\n\
         Vary: Cookie\r\nX-Request-Id: 0123456789abcdef0123456789abcdef\r\n\
         Strict-Transport-Security: max-age=31536000; includeSubDomains\r\n\
         X-Content-Type-Options: nosniff\r\n\r\n{}",
        "y".repeat(1000)
    );
    (request.into_bytes(), answer.into_bytes())
}

/// As nginx asks PHP, and what it answers.
fn fastcgi(answer: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let record = |kind: u8, contents: &[u8]| {
        let length = (contents.len() as u16).to_be_bytes();
        [&[1, kind, 0, 1, length[0], length[1], 0, 0], contents].concat()
    };
    let variables = [
        ("REQUEST_METHOD", "POST"),
        ("REQUEST_URI", "/api/orders?page=3&sort=created"),
        ("QUERY_STRING", "page=3&sort=created"),
        ("CONTENT_TYPE", "application/json"),
        ("CONTENT_LENGTH", "200"),
        ("SCRIPT_FILENAME", "/srv/www/index.php"),
        ("SCRIPT_NAME", "/index.php"),
        ("DOCUMENT_ROOT", "/srv/www"),
        ("SERVER_PROTOCOL", "HTTP/1.1"),
        ("GATEWAY_INTERFACE", "CGI/1.1"),
        ("SERVER_SOFTWARE", "nginx/1.22.1"),
        ("REMOTE_ADDR", "127.0.0.1"),
        ("REMOTE_PORT", "50000"),
        ("SERVER_ADDR", "127.0.0.1"),
        ("SERVER_PORT", "80"),
        ("SERVER_NAME", "shop.example"),
        ("HTTP_HOST", "shop.example"),
        (
            "HTTP_USER_AGENT",
            "Mozilla/5.0 (X11; Linux x86_64; rv:140.0)",
        ),
        ("HTTP_ACCEPT", "application/json"),
        ("HTTP_COOKIE", "session=0123456789abcdef0123456789abcdef"),
    ];
    let mut params = Vec::new();
    for (name, value) in variables {
        params.extend_from_slice(&[name.len() as u8, value.len() as u8]);
        params.extend_from_slice(name.as_bytes());
        params.extend_from_slice(value.as_bytes());
    }
    let begin = record(1, &[0, 1, 1, 0, 0, 0, 0, 0]);
    let body = [record(5, &[b'x'; 200]), record(5, b"")].concat();
    let asked = [begin, record(4, &params), record(4, b""), body].concat();
    let head = answer.iter().position(|&byte| byte == b'\n').unwrap_or(0);
    let answered = [record(6, &answer[head + 1..]), record(3, &[0; 8])].concat();
    (asked, answered)
}

/// Of this thread, in nanoseconds.
fn processor_time() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the memory is ours.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
