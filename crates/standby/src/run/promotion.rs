//! What a follower does that was asked to make way for a promotion.

use std::time::{Duration, Instant};

use super::Ended;
use crate::backup::BackupError;
use crate::initial::state::{Promotion, promotion, withdraw};
use crate::status::{Control, State};
use hindcast_pg::{Connection, Error};

/// How often the backup is asked what became of it.
const ASK_EVERY: Duration = Duration::from_millis(200);
/// The one who asked for it takes the lock within a moment.
const PATIENCE: Duration = Duration::from_secs(5);

/// Waits for the end of a promotion. `None` if there is none: it failed, or the one who asked for
/// it is gone, and the backup is a standby as before.
pub(super) fn await_end(
    backup: &mut Connection,
    slot: &str,
    control: &Control,
) -> Result<Option<Ended>, BackupError> {
    let lost = |error: Error| BackupError::Lost(error);
    control.update(|status| status.state = State::Promoting);
    let mut abandoned_since = None;
    loop {
        match promotion(backup, slot).map_err(lost)? {
            Promotion::Done => return Ok(Some(Ended::Promoted)),
            Promotion::Withdrawn => {
                control.note(&["the backup was not promoted: it is followed as before".to_owned()]);
                return Ok(None);
            }
            Promotion::UnderWay => abandoned_since = None,
            Promotion::Abandoned => {
                let since = *abandoned_since.get_or_insert_with(Instant::now);
                if since.elapsed() > PATIENCE {
                    withdraw(backup, slot).map_err(lost)?;
                }
            }
        }
        if control.pause(ASK_EVERY) {
            return Ok(Some(Ended::Stopped));
        }
    }
}
