//! Asks the database who waits for whose lock, while changed code runs.
//!
//! A session can wait in the database for one that is complete and held at its commit. Where that commit has to come after the waiting one, the
//! waiting one is cancelled, and its client is told that it failed to serialize (R³, section 4.3).

use std::sync::Arc;
use std::time::Duration;

use tokio_postgres::Client;

use crate::coordinator::Ask;
use crate::desk::Floor;

/// How often to look, and how often to ask the database even though the run moves.
const INTERVAL: Duration = Duration::from_millis(2);
const INTERVAL_MOVING: u32 = 10;

const BLOCKED: &str = "SELECT pid, pg_catalog.pg_blocking_pids(pid) FROM pg_catalog.pg_stat_activity \
     WHERE datname = pg_catalog.current_database() AND wait_event_type = 'Lock'";

/// Goes on for ever; or until the connection is lost, as it is when the database goes away.
pub async fn watch(floor: Arc<Floor>, control: Client) {
    let Ok(blocked) = control.prepare(BLOCKED).await else {
        return;
    };
    let (mut steps, mut moving) = (0, 0);
    loop {
        tokio::time::sleep(INTERVAL).await;
        // As long as it moves there is no hurry, and each time asked costs a little.
        let before = std::mem::replace(&mut steps, floor.gate.with(|c| c.steps()));
        moving = if before == steps { 0 } else { moving + 1 };
        if moving % INTERVAL_MOVING != 0 {
            continue;
        }
        let commits = |ask: &Ask| matches!(ask, Ask::Commit(_));
        if !floor.gate.waiting().iter().any(commits) {
            floor.note_blocked(Vec::new());
            continue;
        }
        let Ok(rows) = control.query(&blocked, &[]).await else {
            return;
        };
        let waits = rows
            .iter()
            .map(|row| (row.get::<_, i32>(0), row.get::<_, Vec<i32>>(1)));
        for pid in floor.note_blocked(waits.collect()) {
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
