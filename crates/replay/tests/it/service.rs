//! What is left of a service when a replay has ended it: nothing.

use std::time::Duration;

use hindcast_gateway::http::ServiceUrl;
use hindcast_replay::place::Place;
use hindcast_replay::service::Service;

/// A master in a session of its own, as php-fpm's, that starts its worker anew whenever that ends,
/// also when it was asked to end itself. Both are known by `$MARK` in their arguments.
const MASTER: &str = r#"exec setsid sh -c 'trap : TERM
while :; do env sh -c "sleep 600; :" "$1"; done' sh "$MARK""#;

/// The processes that have this among their arguments.
fn with(mark: &str) -> Vec<String> {
    let entries = std::fs::read_dir("/proc").unwrap();
    let lines = entries.filter_map(|entry| std::fs::read(entry.ok()?.path().join("cmdline")).ok());
    let lines = lines.map(|line| String::from_utf8_lossy(&line).replace('\0', " "));
    lines.filter(|line| line.contains(mark)).collect()
}

#[tokio::test]
async fn a_worker_that_is_started_anew_while_the_service_ends_ends_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let mark = format!("hindcast-service-{}", std::process::id());
    let log = folder.path().join("service.log");
    // It listens nowhere, so the replay gives it up, and ends it as it ends all services.
    let url: ServiceUrl = "http://127.0.0.1:1".parse().unwrap();
    let (command, place) = (MASTER.replace("$MARK", &mark), Place::Tcp(url));
    let mut starting = Box::pin(Service::start(&command, &place, &log));
    let started = tokio::time::timeout(Duration::from_secs(2), &mut starting).await;
    assert!(started.is_err(), "it does not listen");
    assert!(with(&mark).len() >= 2, "a master and a worker");
    drop(starting);
    for _ in 0..600 {
        if with(&mark).is_empty() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("still there: {:?}", with(&mark));
}
