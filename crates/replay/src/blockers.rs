//! Asks the database which session waits for whose lock, while changed code runs.
//!
//! A session can wait in the database for one that is complete and held at its commit. Where that
//! commit has to come after the waiting one, the waiting one is cancelled, and its client is told
//! that it failed to serialize (R³, section 4.3).

use std::sync::Arc;
use std::time::Duration;

use hindcast_pg::tokio::Client;

use crate::shared::Shared;
use crate::transaction::Ask;

/// How often to look, and how often to ask the database even though the run moves.
const INTERVAL: Duration = Duration::from_millis(2);
const INTERVAL_MOVING: u32 = 10;

const BLOCKED: &str = "SELECT pid, pg_catalog.pg_blocking_pids(pid) FROM pg_catalog.pg_stat_activity \
     WHERE datname = pg_catalog.current_database() AND wait_event_type = 'Lock'";

/// Goes on for ever; or until the connection is lost, as it is when the database goes away.
pub async fn watch(shared: Arc<Shared>, control: Client) {
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
        if !shared.monitor.waiting().iter().any(commits) {
            shared.note_blocked(Vec::new());
            continue;
        }
        let Ok(rows) = control.query(BLOCKED, &[]).await else {
            return;
        };
        let waits = rows
            .iter()
            .map(|row| (row.get::<i32>(0), row.get::<Vec<i32>>(1)));
        for pid in shared.note_blocked(waits.collect()) {
            // One that is through meanwhile is not hurt: the server ignores it when nothing runs.
            if control
                .execute("SELECT pg_catalog.pg_cancel_backend($1)", &[&pid])
                .await
                .is_err()
            {
                return;
            }
        }
    }
}
