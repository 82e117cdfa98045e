//! What the backup shows at marks in the primary's log, for who has written them
//! ([`crate::mark`]).

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use hindcast_pg::{Connection, DatabaseUrl, Error, Lsn, quote_literal};

use super::snapshots::export;
use super::{Options, session};

/// How long a snapshot can be imported.
const KEPT: Duration = Duration::from_secs(30);
/// Each takes a connection: the oldest of more goes.
const KEPT_MAX: usize = 8;

const DOUBTED: &str = "rows of the backup differ from the primary's, and are repaired first";

pub struct Marks {
    url: DatabaseUrl,
    options: Options,
    /// Oldest first.
    open: VecDeque<(Instant, Connection)>,
}

impl Marks {
    pub fn new(url: &DatabaseUrl, options: &Options) -> Self {
        Self {
            url: url.clone(),
            options: options.clone(),
            open: VecDeque::new(),
        }
    }

    /// Exports what the backup shows now, and notes it; or notes why not. Nothing may be in flight.
    ///
    /// # Errors
    /// If it cannot be noted. That nothing can be exported keeps nobody from following.
    pub fn take(
        &mut self,
        control: &mut Connection,
        now: Instant,
        mark: &str,
        at: Lsn,
        is_doubted: bool,
    ) -> Result<(), Error> {
        let exported = match is_doubted {
            true => Err(DOUBTED.to_owned()),
            false => self.export(now),
        };
        let (snapshot, refused) = match &exported {
            Ok(snapshot) => (quote_literal(snapshot), "NULL".to_owned()),
            Err(why) => ("NULL".to_owned(), quote_literal(why)),
        };
        let (slot, mark) = (quote_literal(&self.options.slot), quote_literal(mark));
        control
            .execute(&format!(
                "DELETE FROM hindcast.standby_marks WHERE slot = {slot} AND taken_at < clock_timestamp() - interval '1 min'; \
                 INSERT INTO hindcast.standby_marks (slot, mark, at, snapshot, refused) VALUES ({slot}, {mark}, '{at}', {snapshot}, {refused})"
            ))
            .map(drop)
    }

    fn export(&mut self, now: Instant) -> Result<String, String> {
        let mut connection = match self.open.len() < KEPT_MAX {
            true => session::open(&self.url, &self.options).map_err(|error| error.to_string())?,
            false => self.open.pop_front().expect("it is full").1,
        };
        let snapshot = export(&mut connection).map_err(|error| error.to_string())?;
        self.open.push_back((now, connection));
        Ok(snapshot)
    }

    /// Lets go of what nobody has come for: it keeps dead rows.
    pub fn expire(&mut self, now: Instant) {
        while let Some((taken, _)) = self.open.front()
            && now.saturating_duration_since(*taken) >= KEPT
        {
            self.open.pop_front();
        }
    }
}
