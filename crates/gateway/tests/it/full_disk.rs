//! A disk that is full: traffic goes on, and the recording says what it misses.
//!
//! The limit on file sizes stands for the full disk: writes fail with a real error. It holds for a
//! whole process, so the recording runs in a process of its own.

use std::convert::Infallible;
use std::path::Path;
use std::time::Duration;

use crate::common::*;
use hindcast_gateway::record::{self, Front, RecordOptions};
use hindcast_trace::{GapCause, Location, RequestFilter, Trace};
use http_body_util::Full;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;

const POSTGRES: &str = "HINDCAST_TEST_POSTGRES";
const FOLDER: &str = "HINDCAST_TEST_FOLDER";

#[tokio::test]
async fn a_trace_that_cannot_be_written_stops_no_traffic_and_is_a_gap() {
    let cluster = cluster().await;
    let folder = tempfile::tempdir().unwrap();
    let program = std::env::current_exe().unwrap();
    // 64 KiB, in units of 512 bytes. An ignored signal stays ignored across exec, and the write
    // fails instead.
    let script = "trap '' XFSZ; ulimit -S -f 128; exec \"$0\" --exact --ignored --nocapture full_disk::inside";
    let output = tokio::process::Command::new("sh")
        .args(["-c", script, program.to_str().unwrap()])
        .env(POSTGRES, cluster.url("postgres"))
        .env(FOLDER, folder.path())
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(PATIENCE * 2, output)
        .await
        .expect("it ends")
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{text}"
    );
}

#[tokio::test]
#[ignore = "runs only in a process with a limit on file sizes, started by the other test"]
async fn inside() {
    let (Ok(postgres), Ok(folder)) = (std::env::var(POSTGRES), std::env::var(FOLDER)) else {
        panic!("not to be run by itself")
    };
    let location = Location::folder(Path::new(&folder).join("trace"));
    let mut options = RecordOptions::new(
        Front::proxies_of(
            any_port(),
            format!("http://127.0.0.1:{}", service().await)
                .parse()
                .unwrap(),
            any_port(),
        ),
        postgres.parse().unwrap(),
        location.clone(),
    );
    options.writer.flush_interval = Duration::from_millis(20);
    options.writer.buffer_records_max = 16;
    let recording = record::start(options).await.unwrap();
    let target = format!(
        "http://127.0.0.1:{}/",
        port_of(recording.started().listen.as_ref().unwrap())
    );
    let body = "x".repeat(4000);
    let sent = std::cell::Cell::new(0u64);
    until("records are dropped", async || {
        let output = run("curl", &["-sS", "--max-time", "20", "-d", &body, &target]).await;
        assert_eq!(
            String::from_utf8_lossy(&output.stdout),
            "fine",
            "the service goes on"
        );
        sent.set(sent.get() + 1);
        recording.status().writer.dropped_requests > 0
    })
    .await;
    let status = recording.status();
    assert!(status.is_incomplete());
    assert!(
        status
            .writer
            .wal_failure
            .is_some_and(|reason| reason.contains("File too large"))
    );

    // Room is made.
    let this = std::process::id().to_string();
    assert!(
        run("prlimit", &["--pid", &this, "--fsize=unlimited"])
            .await
            .status
            .success()
    );
    until("writing goes on", async || {
        recording.status().writer.wal_failure.is_none()
    })
    .await;
    let summary = recording.stop().await;
    summary.closed.unwrap();
    let trace = tokio::task::spawn_blocking(move || Trace::open(&location).unwrap())
        .await
        .unwrap();
    let dropped: u64 = trace
        .gaps()
        .iter()
        .map(|gap| match &gap.cause {
            GapCause::Dropped { requests, .. } => *requests,
            other => panic!("{other:?}"),
        })
        .sum();
    assert_eq!(
        trace.requests(RequestFilter::default()).count() as u64 + dropped,
        sent.get()
    );
}

async fn service() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let service = hyper::service::service_fn(
                |request: hyper::Request<hyper::body::Incoming>| async {
                    let _ = http_body_util::BodyExt::collect(request.into_body()).await;
                    Ok::<_, Infallible>(hyper::Response::new(Full::new(bytes::Bytes::from_static(
                        b"fine",
                    ))))
                },
            );
            tokio::spawn(
                hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), service),
            );
        }
    });
    port
}
