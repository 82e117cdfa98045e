//! Asks the database which session waits for whose lock.
//!
//! A session can wait in the database for one that is complete and held at its commit. If it runs
//! recorded code, what it does not see commits only when it has looked; and one that waits for a
//! row has its snapshot, so it has. In a run of changed code the commit may have to come after the
//! waiting one: that is cancelled then, and its client is told that it failed to serialize (R³,
//! section 4.3). And where some wait for each other, the one is cancelled that the database
//! cancelled originally.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use hindcast_pg::Rows;
use hindcast_pg::tokio::Client;

use crate::hold::Code;
use crate::shared::Shared;
use crate::transaction::{Ask, Looking};

/// How often to look, and how often to ask the database even though the run moves.
const INTERVAL: Duration = Duration::from_millis(2);
const INTERVAL_MOVING: u32 = 10;

const BLOCKED: &str = "SELECT pid, pg_catalog.pg_blocking_pids(pid), wait_event \
     FROM pg_catalog.pg_stat_activity \
     WHERE datname = pg_catalog.current_database() AND wait_event_type = 'Lock'";

/// What a statement waits for once it runs, and so has its snapshot. For tables it waits earlier.
const RUNNING: [&str; 4] = ["transactionid", "tuple", "spectoken", "advisory"];

/// Goes on for ever; or until the connection is lost, as it is when the database goes away.
pub async fn watch(shared: Arc<Shared>, control: Client) {
    let recorded = shared.code() == Code::Recorded;
    let may_deadlock = !recorded && shared.recording.has_deadlocks();
    let (mut steps, mut moving) = (0, 0);
    loop {
        tokio::time::sleep(INTERVAL).await;
        // As long as it moves there is no hurry, and each time asked costs a little.
        let before = std::mem::replace(&mut steps, shared.monitor.with(|c| c.steps()));
        moving = if before == steps { 0 } else { moving + 1 };
        if moving % INTERVAL_MOVING != 0 {
            continue;
        }
        let commits = |ask: &Ask| matches!(ask, Ask::Commit(_));
        let complete = may_deadlock || shared.monitor.waiting().iter().any(commits);
        if !complete || recorded && shared.lookers.is_empty() {
            shared.note_blocked(Vec::new());
            continue;
        }
        let looking = shared.lookers.all();
        let Ok(blocked) = control.query(BLOCKED, &[]).await else {
            return;
        };
        // Whose commit has become free goes first.
        let freed = note_looked(&shared, &looking, &blocked);
        if !freed && !recorded && make_yield(&shared, &control, &blocked).await.is_err() {
            return;
        }
    }
}

/// Tells who waits in the middle of its statements, and looks no more. Whether that was news.
/// `before`: what the server worked on when it was asked.
fn note_looked(shared: &Shared, before: &HashMap<i32, Looking>, blocked: &Rows) -> bool {
    let now = shared.lookers.all();
    let steps = || shared.monitor.with(|coordinator| coordinator.steps());
    let steps_before = steps();
    for row in blocked.iter() {
        let pid: i32 = row.get(0);
        // What has been sent meanwhile is not what was seen to wait.
        let looking = now.get(&pid).filter(|one| before.get(&pid) == Some(one));
        if let Some(&looking) = looking
            && RUNNING.contains(&row.get::<&str>(2))
        {
            shared
                .monitor
                .with(|coordinator| coordinator.waits(looking));
        }
    }
    steps() != steps_before
}

/// Cancels those that wait for what has to come after them.
async fn make_yield(
    shared: &Shared,
    control: &Client,
    blocked: &Rows,
) -> Result<(), hindcast_pg::Error> {
    let waits = blocked.iter().map(|row| (row.get(0), row.get(1)));
    for pid in shared.note_blocked(waits.collect()) {
        // One that is through meanwhile is not hurt: the server ignores it when nothing runs.
        control
            .execute("SELECT pg_catalog.pg_cancel_backend($1)", &[&pid])
            .await?;
    }
    Ok(())
}
