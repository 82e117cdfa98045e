//! What was recorded comes out the same, races included.

use std::time::Duration;

use hindcast_gateway::ListenAddress;
use hindcast_replay::sender::{Pace, Sent};
use hindcast_replay::verdict::{FinalState, NotCompared, Remark};
use hindcast_replay::{Hooks, LoadError, ReplayError};
use hindcast_trace::RequestId;

use crate::common::*;

/// Looks whether something is claimed, and claims it if not: without a constraint, two can.
fn claim(call: Call) -> futures::future::BoxFuture<'static, Result<String, tokio_postgres::Error>> {
    Box::pin(async move {
        let session = call.session().await?;
        let taken = session
            .run("SELECT count(*) FROM claim WHERE k = 1")
            .await?;
        call.world.meet(2).await;
        if taken == "0" {
            session
                .run(&format!("INSERT INTO claim VALUES (1, '{}')", call.path))
                .await?;
        }
        Ok(format!("found {taken}"))
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_requests_that_both_found_nothing_both_insert_again() {
    let stage = Stage::new(claim).await;
    let answers = stage.at_once(&["/a", "/b"]).await;
    assert_eq!(answers, ["200 found 0", "200 found 0"]);
    assert_eq!(stage.request("/c").await, "200 found 2");
    let recorded = stage.stop().await;
    for sequential in [false, true] {
        let verdict = recorded
            .replay_with(|options| options.sequential = sequential)
            .await;
        assert_faithful(&verdict);
        assert_eq!(
            (verdict.counts.requests, verdict.counts.transactions),
            (3, 5)
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_are_sent_when_they_came_if_that_is_asked_for() {
    let stage = Stage::new(notes).await;
    stage.request("/a").await;
    let pause = Duration::from_millis(600);
    tokio::time::sleep(pause).await;
    stage.request("/b").await;
    let recorded = stage.stop().await;
    for (pace, is_as_long) in [(Pace::Max, false), (Pace::Recorded, true)] {
        let verdict = recorded
            .replay_with(|options| {
                options.setting.pace = pace;
                // The pause is longer than what a replay may stand still.
                options.setting.stall_timeout = Duration::from_millis(300);
            })
            .await;
        assert_faithful(&verdict);
        let took = Duration::from_micros(verdict.timing.replay_us as u64);
        assert_eq!(took >= pause, is_as_long, "{pace:?}: {took:?}");
    }
}

/// The same with a constraint, in a transaction: one of two fails, and is served in the replay.
fn take(call: Call) -> futures::future::BoxFuture<'static, Result<String, tokio_postgres::Error>> {
    Box::pin(async move {
        let session = call.session().await?;
        session.run("BEGIN").await?;
        let taken = session
            .prepared("SELECT count(*)::text FROM taken WHERE k = 1")
            .await?;
        call.world.meet(2).await;
        let inserted = session
            .run(&format!("INSERT INTO taken VALUES (1, '{}')", call.path))
            .await;
        let end = if inserted.is_ok() {
            "COMMIT"
        } else {
            "ROLLBACK"
        };
        session.run(end).await?;
        // On the same connection, with what the driver has prepared.
        let who = session
            .prepared("SELECT coalesce(max(who), '') FROM taken")
            .await?;
        inserted?;
        Ok(format!("found {taken}, is {who}"))
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_lost_a_race_for_a_key_loses_it_again() {
    let stage = Stage::new(take).await;
    let mut answers = stage.at_once(&["/a", "/b"]).await;
    answers.sort();
    assert!(answers[0].starts_with("200 found 0, is /"), "{answers:?}");
    assert_eq!(answers[1], "409 23505");
    let recorded = stage.stop().await;
    for sequential in [false, true] {
        let verdict = recorded
            .replay_with(|options| options.sequential = sequential)
            .await;
        assert_faithful(&verdict);
        assert_eq!(verdict.counts.served_from_recording, 1);
    }
}

/// A query with its own BEGIN and COMMIT, of which one of two fails in the middle.
fn take_in_one(
    call: Call,
) -> futures::future::BoxFuture<'static, Result<String, tokio_postgres::Error>> {
    Box::pin(async move {
        let session = call.session().await?;
        let text = call.sql(&format!(
            "BEGIN; INSERT INTO counter VALUES (70 + length('{path}'), 0); INSERT INTO taken VALUES (1, '{path}'); COMMIT",
            path = call.path
        ));
        let outcome = session.client.batch_execute(&text).await;
        if outcome.is_err() {
            session.client.batch_execute("ROLLBACK").await?;
        }
        session.run("SELECT count(*) FROM counter").await?;
        outcome.map(|()| "done".to_owned())
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_in_one_message_is_held_and_served_like_others() {
    let stage = Stage::new(take_in_one).await;
    assert_eq!(stage.request("/a").await, "200 done");
    assert_eq!(stage.request("/ab").await, "409 23505");
    let verdict = stage.stop().await.replay().await;
    assert_faithful(&verdict);
    assert_eq!(verdict.counts.served_from_recording, 1);
}

/// Several transactions per request, with values of sequences and of the clock.
fn several(
    call: Call,
) -> futures::future::BoxFuture<'static, Result<String, tokio_postgres::Error>> {
    Box::pin(async move {
        let session = call.session().await?;
        let insert = format!(
            "INSERT INTO serial (who) VALUES ('{}') RETURNING id",
            call.path
        );
        let first = session.run(&insert).await?;
        session.run("BEGIN").await?;
        let second = session
            .run("INSERT INTO serial (who) VALUES ('x') RETURNING id")
            .await?;
        let now = session.prepared("SELECT now()::text").await?;
        session.run("COMMIT").await?;
        session
            .run(&format!("INSERT INTO note VALUES ('{}')", call.path))
            .await?;
        let seen = session.run("SELECT count(*) FROM serial").await?;
        let stamp = session
            .run(&format!(
                "SELECT max(at) FROM note WHERE text = '{}'",
                call.path
            ))
            .await?;
        Ok(format!("{first} {second} {now} {seen} {stamp}"))
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sequences_and_clocks_say_under_concurrency_what_they_said() {
    let stage = Stage::new(several).await;
    let answers = stage
        .at_once(&["/a", "/bb", "/ccc", "/dddd", "/eeeee", "/ffffff"])
        .await;
    assert!(
        answers.iter().all(|answer| answer.starts_with("200")),
        "{answers:?}"
    );
    let recorded = stage.stop().await;
    for _ in 0..2 {
        let verdict = recorded.replay().await;
        assert_faithful(&verdict);
        assert_eq!(verdict.counts.transactions, 30);
    }
}

/// Locks: a counter with `FOR UPDATE` that tries again, and inserts under an advisory lock.
fn locking(
    call: Call,
) -> futures::future::BoxFuture<'static, Result<String, tokio_postgres::Error>> {
    Box::pin(async move {
        let session = call.session().await?;
        let mut tries = 0;
        let counted = loop {
            tries += 1;
            session.run("BEGIN").await?;
            let counted = async {
                let n = session
                    .run("SELECT n FROM counter WHERE k = 1 FOR UPDATE")
                    .await?;
                session
                    .run("UPDATE counter SET n = n + 1 WHERE k = 1")
                    .await?;
                session.run("COMMIT").await?;
                Ok::<_, tokio_postgres::Error>(n)
            };
            match counted.await {
                Ok(n) => break n,
                Err(error) if error.code().is_some_and(|c| c.code() == "40001") => {
                    session.run("ROLLBACK").await?;
                }
                Err(error) => return Err(error),
            }
        };
        session.run("BEGIN").await?;
        session.run("SELECT pg_advisory_xact_lock(7)::text").await?;
        let row = session
            .run(&format!(
                "INSERT INTO claim VALUES (2, '{}') RETURNING k",
                call.path
            ))
            .await?;
        session.run("COMMIT").await?;
        Ok(format!("{counted} after {tries}, {row}"))
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn row_locks_and_advisory_locks_do_not_get_in_the_way() {
    let stage = Stage::new(locking).await;
    let answers = stage.at_once(&["/a", "/b", "/c", "/d", "/e"]).await;
    assert!(
        answers.iter().all(|answer| answer.starts_with("200")),
        "{answers:?}"
    );
    let recorded = stage.stop().await;
    assert_faithful(&recorded.replay().await);
    assert_faithful(
        &recorded
            .replay_with(|options| options.sequential = true)
            .await,
    );
}

fn notes(call: Call) -> futures::future::BoxFuture<'static, Result<String, tokio_postgres::Error>> {
    Box::pin(async move {
        call.session()
            .await?
            .run("SELECT string_agg(text, ' ' ORDER BY text) FROM (SELECT text FROM note UNION SELECT text FROM other.note) n")
            .await
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ghosts_write_in_their_sessions_what_they_wrote() {
    let stage = Stage::new(notes).await;
    let settled = stage.stranger().await;
    settled
        .batch_execute("SET search_path TO other, public")
        .await
        .unwrap();
    settled
        .batch_execute("INSERT INTO note VALUES ('in other')")
        .await
        .unwrap();
    let first = stage.request("/").await;
    let plain = stage.stranger().await;
    plain.batch_execute("BEGIN").await.unwrap();
    plain
        .execute("INSERT INTO note VALUES ($1)", &[&"in public"])
        .await
        .unwrap();
    plain.batch_execute("COMMIT").await.unwrap();
    settled
        .batch_execute("INSERT INTO note VALUES ('again')")
        .await
        .unwrap();
    let second = stage.request("/").await;
    assert_eq!(
        (first.as_str(), second.as_str()),
        ("200 in other", "200 again in other in public")
    );
    let verdict = stage.stop().await.replay().await;
    assert_faithful(&verdict);
    assert!(verdict.counts.ghosts >= 3, "{:?}", verdict.counts);
}

/// `/1` is in flight when `/2` arrives, and `/3` arrives while `/2` is.
fn overlapping(
    call: Call,
) -> futures::future::BoxFuture<'static, Result<String, tokio_postgres::Error>> {
    Box::pin(async move {
        let session = call.session().await?;
        let seen = session.run("SELECT count(*) FROM claim").await?;
        let (arrived, leaves) = match call.path.as_str() {
            "/1" => (1, 2),
            "/2" => (2, 3),
            _ => (3, 3),
        };
        call.world.next();
        assert!(arrived <= leaves);
        call.turn(leaves).await;
        session
            .run(&format!("INSERT INTO claim VALUES (1, '{}')", call.path))
            .await?;
        Ok(seen)
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_range_is_replayed_with_what_was_in_flight_around_it() {
    let stage = Stage::new(overlapping).await;
    let one = stage.begin("/1", 1).await;
    let two = stage.begin("/2", 2).await;
    let three = stage.begin("/3", 3).await;
    for request in [one, two, three] {
        assert!(request.await.unwrap().starts_with("200"));
    }
    let recorded = stage.stop().await;
    let verdict = recorded.replay_range(2, 2).await;
    assert_faithful(&verdict);
    let counts = verdict.counts;
    assert_eq!((counts.lead_in, counts.requests, counts.trail), (1, 1, 1));
    assert_eq!(
        verdict.final_state,
        FinalState::NotCompared {
            reason: NotCompared::RangeEndsBefore
        }
    );
}

/// Half of its transactions are READ COMMITTED.
fn committed(
    call: Call,
) -> futures::future::BoxFuture<'static, Result<String, tokio_postgres::Error>> {
    Box::pin(async move {
        let session = call.session().await?;
        session.run("BEGIN ISOLATION LEVEL READ COMMITTED").await?;
        session
            .run("UPDATE counter SET n = n + 1 WHERE k = 2")
            .await?;
        session.run("COMMIT").await?;
        session.run("SELECT n FROM counter WHERE k = 2").await
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn read_committed_is_counted_and_named() {
    let stage = Stage::new(committed).await;
    assert_eq!(stage.request("/").await, "200 1");
    assert_eq!(stage.request("/").await, "200 2");
    let verdict = stage.stop().await.replay().await;
    assert_faithful(&verdict);
    assert_eq!(verdict.counts.read_committed, 2);
    assert!(remark(&verdict, |remark| *remark
        == Remark::ReadCommitted { transactions: 2 }));
}

/// Names its transactions nowhere: they are known as its own because it is the only request in
/// flight.
fn anonymous(
    call: Call,
) -> futures::future::BoxFuture<'static, Result<String, tokio_postgres::Error>> {
    Box::pin(async move {
        let client = call.world.connect().await?;
        client
            .batch_execute("INSERT INTO serial (who) VALUES ('x')")
            .await?;
        let row = client
            .query_one("SELECT count(*)::text FROM serial", &[])
            .await?;
        Ok(row.get(0))
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_that_were_known_by_being_alone_are_alone_again() {
    let stage = Stage::new(anonymous).await;
    for count in 1..=4 {
        assert_eq!(stage.request("/").await, format!("200 {count}"));
    }
    let verdict = stage.stop().await.replay().await;
    assert_faithful(&verdict);
    assert_eq!(verdict.counts.transactions, 8);
}

/// COPY in both directions, in both protocols.
fn copying(
    call: Call,
) -> futures::future::BoxFuture<'static, Result<String, tokio_postgres::Error>> {
    use futures::{SinkExt, StreamExt};
    Box::pin(async move {
        let session = call.session().await?;
        let rows = |n: usize| bytes::Bytes::from("1\tcopied\n".repeat(n));
        let sink = session
            .client
            .copy_in(&call.sql("COPY claim FROM STDIN"))
            .await?;
        futures::pin_mut!(sink);
        for _ in 0..3 {
            sink.send(rows(4000)).await?;
        }
        let copied = sink.finish().await?;
        // One that fails: its transaction aborts, and the session goes on.
        let sink = session
            .client
            .copy_in(&call.sql("COPY counter FROM STDIN"))
            .await?;
        futures::pin_mut!(sink);
        let sent = sink.send(bytes::Bytes::from("no number\n")).await;
        let failed = match sent {
            Ok(()) => sink.finish().await.err(),
            Err(error) => Some(error),
        };
        let code = failed
            .and_then(|error| error.code().map(|code| code.code().to_owned()))
            .unwrap_or_default();
        let out = session
            .client
            .copy_out(&call.sql("COPY (SELECT * FROM claim ORDER BY k) TO STDOUT"))
            .await?;
        futures::pin_mut!(out);
        let mut bytes = 0;
        while let Some(chunk) = out.next().await {
            bytes += chunk?.len();
        }
        let count = session.run("SELECT count(*) FROM claim").await?;
        Ok(format!("{copied} {code} {bytes} {count}"))
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copies_are_held_and_served_like_other_statements() {
    let stage = Stage::new(copying).await;
    assert_eq!(stage.request("/").await, "200 12000 22P02 108000 12000");
    let verdict = stage.stop().await.replay().await;
    assert_faithful(&verdict);
    assert_eq!(verdict.counts.served_from_recording, 1);
}

/// Something happens to the recording when it has been loaded and the service is about to start.
struct Damaging<F> {
    watcher: Watcher,
    damage: F,
}

impl<F: FnMut()> Hooks for Damaging<F> {
    async fn ready(&mut self, database: &ListenAddress) {
        (self.damage)();
        self.watcher.ready(database).await;
    }
    fn progress(&mut self, _sent: Sent) {}
    async fn debug_wait(&mut self, _request: RequestId, _process_group: Option<u32>) {}
}

/// What a replay ends with if the recording is damaged in the middle of it.
async fn replay_damaged(recorded: &Recorded, damage: impl FnMut()) -> ReplayError {
    let prepared = recorded.prepare(None, None).await;
    let mut hooks = Damaging {
        watcher: prepared.hooks,
        damage,
    };
    let replay = hindcast_replay::run(prepared.trace, prepared.plan, prepared.options, &mut hooks);
    let outcome = tokio::time::timeout(PATIENCE, replay).await;
    drop(hooks);
    prepared.rewound.discard().await.unwrap();
    outcome.expect("it ends").expect_err("it has no verdict")
}

/// Fails with an error that says `WORD`.
fn fail(call: Call) -> futures::future::BoxFuture<'static, Result<String, tokio_postgres::Error>> {
    Box::pin(async move {
        let session = call.session().await?;
        session.run(&format!("SELECT '{WORD}'::int")).await
    })
}

const WORD: &str = "a-word-that-is-nowhere-else";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_recording_that_cannot_be_read_any_more_is_an_error_and_no_divergence() {
    let stage = Stage::new(fail).await;
    assert_eq!(stage.request("/").await, "409 22P02");
    let recorded = stage.stop().await;
    // What an aborted transaction was answered is read back from a temporary file.
    let error = replay_damaged(&recorded, || {
        let open = std::fs::read_dir("/proc/self/fd").unwrap();
        let files = open.map(|file| file.unwrap().path());
        let is_deleted = |link: &std::path::PathBuf| {
            let target = std::fs::read_link(link).unwrap_or_default();
            target.to_string_lossy().ends_with("(deleted)")
        };
        for link in files.filter(is_deleted) {
            let held = std::fs::read(&link).unwrap_or_default();
            if held.windows(WORD.len()).any(|part| part == WORD.as_bytes()) {
                let file = std::fs::OpenOptions::new().write(true).open(&link);
                file.unwrap().set_len(0).unwrap();
            }
        }
    });
    let error = error.await;
    assert!(
        matches!(error, ReplayError::Load(LoadError::Temporary(_))),
        "{error:?}"
    );
    // Requests are read from the trace again when they are sent.
    let mut segments = std::fs::read_dir(recorded.folder.path().join("trace/requests")).unwrap();
    let segment = segments.next().expect("there is one").unwrap().path();
    let error = replay_damaged(&recorded, || {
        let bytes = std::fs::read(&segment).unwrap();
        std::fs::write(&segment, &bytes[..bytes.len() / 2]).unwrap();
    });
    let error = error.await;
    assert!(matches!(error, ReplayError::Read(_)), "{error:?}");
}
