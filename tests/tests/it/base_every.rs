//! Bases that are taken while a service is recorded.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hindcast_tests::http::Client;
use hindcast_tests::{Stage, wait_for};

use super::inside::{record_with, replay};
use super::sides::{SCHEMA, service};

#[test]
fn bases_are_taken_while_clients_write_and_a_replay_starts_from_the_nearest() {
    let stage = Stage::new("base-every", SCHEMA);
    let recorder = record_with(
        &stage,
        &["--base-every", "2s", "--roll-interval", "1"],
        &service(&stage),
    );
    let bases = || std::fs::read_dir(stage.trace().join("dumps")).map_or(0, Iterator::count);
    let (enough, address) = (
        AtomicBool::new(false),
        format!("127.0.0.1:{}", stage.service_port),
    );
    let requests: u64 = std::thread::scope(|scope| {
        let client = |number: usize| {
            let (address, enough) = (address.clone(), &enough);
            scope.spawn(move || {
                let mut client = Client::new(address);
                let mut sent = 0;
                while !enough.load(Ordering::Relaxed) {
                    // Of its own, so that nobody waits.
                    let path = format!("/{}", number as u64 * 3 + sent % 3 + 1);
                    let answer = client.send("POST", &path, None);
                    assert_eq!(answer.unwrap().status, 200);
                    sent += 1;
                    std::thread::sleep(Duration::from_millis(150 + 20 * number as u64));
                }
                sent
            })
        };
        let clients: Vec<_> = (0..3).map(client).collect();
        wait_for("four bases", || (bases() >= 4).then_some(()));
        enough.store(true, Ordering::Relaxed);
        clients.into_iter().map(|one| one.join().unwrap()).sum()
    });
    let recorded = recorder.interrupt().assert_code(0);
    assert!(
        recorded.stderr.contains("Base taken as of"),
        "{}",
        recorded.stderr
    );

    let whole = replay(&stage, &[]).assert_code(0).stdout;
    assert!(whole.contains("Verdict: faithful"), "{whole}");
    assert!(!whole.contains("lead-in"), "{whole}");
    // The last base but one is before it, and so is most of what was recorded.
    let from = (requests * 3 / 4).to_string();
    let part = replay(&stage, &["--from", &from]).assert_code(0).stdout;
    assert!(part.contains("Verdict: faithful"), "{part}");
    let lead_in = part.split_once("lead-in of ").map_or(0, |(_, rest)| {
        let digits = rest.split(|c: char| !c.is_ascii_digit()).next();
        digits.unwrap().parse::<u64>().unwrap()
    });
    assert!(lead_in < requests / 2, "{part}");
    assert!(part.contains("as recorded"), "{part}");

    // What is gone takes its bases along; what remains begins at one.
    let before = bases();
    let trace = stage.trace().display().to_string();
    let pruned = stage.run("prune", &["prune", "--older", "0s", "--trace", &trace]);
    let said = pruned.assert_code(0).stdout;
    assert!(
        (1..before).contains(&bases()),
        "{before}, {}: {said}",
        bases()
    );
    let last = replay(&stage, &["--from", &requests.to_string()]);
    let last = last.assert_code(0).stdout;
    assert!(last.contains("Verdict: faithful"), "{last}");
}
