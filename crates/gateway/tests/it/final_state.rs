//! The end of a recording, when the tables cannot be read at once.

use std::time::{Duration, Instant};

use hindcast_gateway::record::FinalStateMode;

use crate::common::connect;
use crate::common::stage::Stage;

#[tokio::test]
async fn a_locked_table_does_not_hold_the_end_of_a_recording() {
    let stage = Stage::with(
        |_, _| Box::pin(async { String::new() }),
        |options| options.final_state = FinalStateMode::Always,
    )
    .await;
    let direct = format!("127.0.0.1:{}", stage.cluster.port());
    let other = connect(&direct.parse().unwrap(), "postgres").await;
    other
        .batch_execute("SET application_name = 'migration'; BEGIN; LOCK TABLE note")
        .await
        .unwrap();
    let start = Instant::now();
    let (summary, recorded) = stage.end().await;
    // What it waits for is the lock: 2 s, once.
    assert!(start.elapsed() < Duration::from_secs(20));
    let reason = summary.final_state.unwrap_err();
    for part in [
        "the table public.note is locked by process ",
        "(migration, idle in transaction)",
        "within 2 s",
        "no table was read",
        "Let that session end",
    ] {
        assert!(reason.contains(part), "no {part:?} in {reason}");
    }
    assert!(recorded.trace.final_states().is_empty());
    drop(other);
}
