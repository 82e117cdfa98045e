//! The driver against servers that misbehave on purpose.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use hindcast_workloads::drive::{
    Arrivals, DriveError, DriveOptions, Limit, Report, Requests, Target, drive,
};
use hindcast_workloads::{Scale, Workload};

/// Answers each request with what `answer` makes of its number, connection by connection. Never
/// ends.
fn server(answer: impl Fn(u32, &mut TcpStream) + Send + Sync + 'static) -> Target {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = format!("http://{}", listener.local_addr().unwrap())
        .parse()
        .unwrap();
    let (answer, count) = (Arc::new(answer), Arc::new(AtomicU32::new(0)));
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, answer, count) = (stream.unwrap(), answer.clone(), count.clone());
            thread::spawn(move || {
                let mut input = BufReader::new(stream.try_clone().unwrap());
                while read_request(&mut input).is_some() {
                    answer(count.fetch_add(1, Ordering::Relaxed), &mut stream);
                }
            });
        }
    });
    target
}

fn read_request(input: &mut BufReader<TcpStream>) -> Option<()> {
    let mut length = 0;
    loop {
        let mut line = String::new();
        if input.read_line(&mut line).ok()? == 0 {
            return None;
        }
        if let Some(value) = line.strip_prefix("content-length: ") {
            length = value.trim().parse().ok()?;
        }
        if line == "\r\n" {
            let mut body = vec![0; length];
            return input.read_exact(&mut body).ok();
        }
    }
}

fn ok(stream: &mut TcpStream) {
    let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}");
}

fn run(options: &DriveOptions) -> Report {
    drive(
        Requests::new(Workload::Moodle, Scale::PAPER, 1, None).unwrap(),
        options,
    )
    .unwrap()
}

/// A driver that counted from when it sent would report a single slow request here.
#[test]
fn a_stall_of_the_service_shows_in_every_request_that_was_due_during_it() {
    let target = server(|number, stream| {
        if number == 0 {
            thread::sleep(Duration::from_millis(500));
        }
        ok(stream);
    });
    let options = DriveOptions {
        clients: 1,
        arrivals: Arrivals::Fixed { rate: 100.0 },
        ..DriveOptions::new(target, Limit::requests(60))
    };
    let report = run(&options);
    assert_eq!((report.requests, report.outcome("ok")), (60, 60));
    // The requests due 0, 10, 20 … 490 ms after the start all waited; half of them for more than
    // 200 ms.
    assert!(report.latency_us.p50 > 150_000.0, "{:?}", report.latency_us);
    assert!(report.latency_us.max > 490_000.0, "{:?}", report.latency_us);
    assert!(
        report.lateness_us.max > 480_000.0,
        "{:?}",
        report.lateness_us
    );
}

#[test]
fn a_closed_loop_sends_one_request_per_client_at_a_time() {
    let (now, most) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let target = server({
        let (now, most) = (now.clone(), most.clone());
        move |_, stream| {
            most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            thread::sleep(Duration::from_millis(1));
            now.fetch_sub(1, Ordering::SeqCst);
            ok(stream);
        }
    });
    let options = DriveOptions {
        clients: 3,
        ..DriveOptions::new(target, Limit::requests(100))
    };
    assert_eq!(run(&options).requests, 100);
    assert!(most.load(Ordering::SeqCst) <= 3);
}

#[test]
fn failures_are_counted_by_kind_and_do_not_end_the_run() {
    let target = server(|number, stream| match number % 5 {
        0 => {
            let _ = stream.write_all(
                b"HTTP/1.1 409 Conflict\r\ncontent-length: 33\r\n\r\n{\"error\":\"serialization_failure\"}",
            );
        }
        1 => _ = stream.write_all(b"HTTP/1.1 502 Bad Gateway\r\ncontent-length: 0\r\n\r\n"),
        2 => _ = stream.shutdown(std::net::Shutdown::Both),
        // Silence.
        3 => {}
        _ => ok(stream),
    });
    let options = DriveOptions {
        clients: 1,
        timeout: Duration::from_millis(200),
        ..DriveOptions::new(target, Limit::requests(20))
    };
    let report = run(&options);
    assert_eq!(report.requests, 20);
    for kind in [
        "serialization_failure",
        "bad_gateway",
        "broken_connection",
        "timeout",
        "ok",
    ] {
        assert!(report.outcome(kind) > 0, "{kind}: {:?}", report.outcomes);
    }
}

#[test]
fn a_warm_up_is_driven_but_not_measured() {
    let served = Arc::new(AtomicU32::new(0));
    let target = server({
        let served = served.clone();
        move |_, stream| {
            served.fetch_add(1, Ordering::Relaxed);
            ok(stream);
        }
    });
    let options = DriveOptions {
        clients: 2,
        arrivals: Arrivals::Fixed { rate: 200.0 },
        warmup: Duration::from_millis(250),
        ..DriveOptions::new(target, Limit::duration(Duration::from_millis(500)))
    };
    let report = run(&options);
    assert_eq!((served.load(Ordering::Relaxed), report.requests), (100, 50));
}

#[test]
fn a_service_that_is_not_there_is_said_to_be_unreachable() {
    let nobody = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let target: Target = format!("http://{nobody}").parse().unwrap();
    let requests = Requests::new(Workload::Moodle, Scale::PAPER, 1, None).unwrap();
    let error = drive(requests, &DriveOptions::new(target, Limit::requests(1))).unwrap_err();
    assert!(matches!(error, DriveError::Unreachable { .. }), "{error}");
}
