//! Reads what the extension `hindcast` in the database tells of transactions.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hindcast_pg::tokio::{Client, Connector};
use hindcast_pg::{ConnectError, ConnectOptions, Error, Row, Rows};
use hindcast_trace::{Gap, GapCause, Isolation, Micros, Xid};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::front::{Front, Transactions};
use super::join::{Ended, Record};
use super::server_side::ServerSide;
use super::sink::Sink;
use crate::http::Witness;

const NAME: &str = "hindcast: snapshots";

/// Records that are taken at once.
const RECORDS_MAX: usize = 5000;
/// How long to wait between two looks.
const PAUSE: Duration = Duration::from_millis(50);
/// How long to leave a server alone that could not be asked.
const FAILED_PAUSE: Duration = Duration::from_secs(1);
/// How long to wait for what is being written when a recording ends.
const LAST_PATIENCE: Duration = Duration::from_secs(5);
/// Clocks are compared so often, and so many times.
const COMPARE_EVERY: Duration = Duration::from_secs(10);
const COMPARISONS: usize = 5;
/// The moments that taps tell agree with the clock as well as this, in microseconds.
const SLACK: Micros = 1000;

/// Of records of other databases, and of those that no client caused, only the number counts.
const TAKE: &str = "
SELECT epoch, lost, database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = pg_catalog.current_database())
           AND backend_type = 'client backend' AS ours,
       pid, (extract(epoch FROM backend_start) * 1000000)::int8, ordinal,
       xid, pg_catalog.array_to_string(subxids, ' '), pg_catalog.array_to_string(aborted_subxids, ' '),
       isolation, (extract(epoch FROM started) * 1000000)::int8, statements, snapshots[1],
       ended, (extract(epoch FROM ended_at) * 1000000)::int8, left_out
  FROM hindcast.take(5000)";

/// The column of when it ended.
const ENDED_AT: usize = 14;

const LEFT: &str = "SELECT used FROM hindcast.status()";
const CLOCK: &str = "SELECT (extract(epoch FROM pg_catalog.clock_timestamp()) * 1000000)::int8";

const FULL: &str = "the extension's ring was full: raise hindcast.ring_size in postgresql.conf, and restart the server";
const RESTARTED: &str =
    "the server was restarted, and what its extension had noted and was not read yet is gone";

#[derive(Debug, thiserror::Error)]
pub enum ExtensionError {
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error("cannot read from the extension `hindcast` in the database: {}", crate::http::with_causes(.0))]
    Query(#[from] Error),
}

/// Takes records for as long as a recording goes on.
struct Reader {
    connector: Arc<Connector>,
    sink: Arc<Sink>,
    server: Arc<ServerSide>,
    client: Option<Client>,
    clock: Clock,
    compared: Instant,
    /// The last record was of this ring, and so many had been lost then.
    epoch: Option<i64>,
    lost: i64,
    /// When it was asked last.
    asked: Micros,
}

/// The server's clock against that of the recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Clock {
    /// What to add to the server's.
    offset: Micros,
    /// How far from the truth that may be.
    doubt: Micros,
}

impl Clock {
    /// The server showed `there` at some time between two readings here.
    fn of(before: Micros, there: Micros, after: Micros) -> Self {
        let doubt = (after - before) / 2 + 1;
        let offset = before + (after - before) / 2 - there;
        // As close as can be told, it is the same clock.
        match offset.abs() <= doubt {
            true => Self { offset: 0, doubt },
            false => Self { offset, doubt },
        }
    }
}

/// A session that may read. Nobody else may until it ends.
pub(super) struct Claim(Client);

impl Claim {
    /// If the server is to tell of transactions. What the extension has noted so far is thrown
    /// away.
    pub async fn stake(
        connector: &Connector,
        front: &Front,
    ) -> Result<Option<Self>, ExtensionError> {
        if !matches!(front, Front::Inside(Transactions::Extension)) {
            return Ok(None);
        }
        let client = connector.client(&ConnectOptions::named(NAME)).await?;
        while client.query(TAKE, &[]).await?.len() >= RECORDS_MAX {}
        Ok(Some(Self(client)))
    }
}

/// A reader that reads.
pub(super) struct Reading {
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Reading {
    pub fn start(
        claim: Claim,
        connector: &Arc<Connector>,
        sink: &Arc<Sink>,
        server: &Arc<ServerSide>,
    ) -> Self {
        let reader = Reader {
            asked: sink.now(),
            connector: Arc::clone(connector),
            sink: Arc::clone(sink),
            server: Arc::clone(server),
            client: Some(claim.0),
            clock: Clock {
                offset: 0,
                doubt: 0,
            },
            compared: Instant::now() - COMPARE_EVERY,
            epoch: None,
            lost: 0,
        };
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(reader.run(stopped));
        Self { stop, task }
    }

    /// After sessions have been told to their ends.
    pub async fn stop(self) {
        let _ = self.stop.send(());
        let _ = self.task.await;
    }
}

impl Reader {
    /// Until `stop` fires; then once more, for what was told meanwhile.
    async fn run(mut self, mut stop: oneshot::Receiver<()>) {
        let mut pause = PAUSE;
        loop {
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                _ = &mut stop => break,
            }
            pause = match self.take().await {
                Ok(_) => PAUSE,
                Err(error) => {
                    tracing::warn!(%error, "what transactions saw is not known meanwhile");
                    self.client = None;
                    FAILED_PAUSE
                }
            };
        }
        let patience = Instant::now() + LAST_PATIENCE;
        loop {
            match self.take().await {
                Ok(false) if Instant::now() < patience => tokio::time::sleep(PAUSE).await,
                Ok(_) => break,
                Err(error) => {
                    tracing::warn!(%error, "what the last transactions saw is not known");
                    break;
                }
            }
        }
        self.server.told(Vec::new(), Micros::MAX, self.slack());
    }

    fn slack(&self) -> Micros {
        self.clock.doubt + SLACK
    }

    /// Returns whether nothing was left.
    async fn take(&mut self) -> Result<bool, ExtensionError> {
        loop {
            let asked = self.sink.now();
            let rows = self.rows().await?;
            let mut records = Vec::with_capacity(rows.len());
            let mut until = Micros::MIN;
            for row in rows.iter() {
                self.count(row);
                // Records come in the order in which room was reserved for them, after the end.
                until = until.max(self.moment(row, ENDED_AT) - self.slack());
                if row.is_true(2) {
                    records.extend(self.record(row));
                }
            }
            let is_all = rows.len() < RECORDS_MAX && self.is_empty().await?;
            if is_all {
                until = asked;
            }
            self.server.told(records, until, self.slack());
            self.asked = asked;
            if rows.len() < RECORDS_MAX {
                return Ok(is_all);
            }
        }
    }

    /// Whether all was taken: what a process is still writing keeps back what follows it.
    async fn is_empty(&mut self) -> Result<bool, ExtensionError> {
        let Some(client) = &self.client else {
            return Ok(false);
        };
        let row = client.query_one(LEFT, &[]).await?;
        Ok(row.get::<i64>(0) == 0)
    }

    async fn rows(&mut self) -> Result<Rows, ExtensionError> {
        let client = match self.client.take().filter(|client| !client.is_closed()) {
            Some(client) => client,
            None => {
                self.compared = Instant::now() - COMPARE_EVERY;
                let named = ConnectOptions::named(NAME);
                self.connector.client(&named).await?
            }
        };
        if self.compared.elapsed() >= COMPARE_EVERY {
            self.clock = self.compare(&client).await?;
            self.compared = Instant::now();
        }
        let rows = client.query(TAKE, &[]).await?;
        self.client = Some(client);
        Ok(rows)
    }

    async fn compare(&self, client: &Client) -> Result<Clock, Error> {
        let mut best: Option<Clock> = None;
        for _ in 0..COMPARISONS {
            let before = self.sink.now();
            let there = client.query_one(CLOCK, &[]).await?.get(0);
            let clock = Clock::of(before, there, self.sink.now());
            best = best
                .filter(|best| best.doubt <= clock.doubt)
                .or(Some(clock));
        }
        Ok(best.unwrap_or(self.clock))
    }

    /// Says what was lost before a record.
    fn count(&mut self, row: &Row) {
        let (epoch, lost): (i64, i64) = (row.get(0), row.get(1));
        let another = self.epoch.is_some_and(|before| before != epoch);
        let before = match another {
            true => 0,
            false => self.lost,
        };
        if another {
            self.missing(0, RESTARTED);
        }
        // Before this reader was there, the ring was full as it should be.
        if lost > before && self.epoch.is_some() {
            self.missing((lost - before) as u64, FULL);
        }
        (self.epoch, self.lost) = (Some(epoch), lost);
    }

    fn missing(&self, transactions: u64, reason: &str) {
        let reason = reason.to_owned();
        self.sink.gap(Gap {
            from: self.asked,
            to: self.sink.now(),
            cause: GapCause::Dropped {
                requests: 0,
                transactions,
                reason,
            },
        });
    }

    /// By the clock of the recording.
    fn moment(&self, row: &Row, column: usize) -> Micros {
        row.get::<i64>(column) + self.clock.offset
    }

    fn record(&self, row: &Row) -> Option<Record> {
        let moment = |column: usize| self.moment(row, column);
        let ids = |column: usize| -> Vec<Xid> {
            let ids = row.get::<Option<&str>>(column).unwrap_or_default();
            ids.split(' ')
                .filter_map(|id| id.parse().ok())
                .map(Xid)
                .collect()
        };
        let ended = match row.get::<&str>(13) {
            "commit" | "commit prepared" | "rollback prepared" => Ended::Committed,
            "prepare" => Ended::Prepared,
            "abort" | "terminated" => Ended::Aborted,
            _ => return None,
        };
        let snapshot = row.get::<Option<&str>>(12);
        Some(Record {
            process: row.get(3),
            backend_start: moment(4),
            ordinal: row.get::<i64>(5) as u64,
            xid: row.get::<Option<u64>>(6).map(Xid),
            subxids: ids(7),
            aborted_subxids: ids(8),
            isolation: Isolation::named(row.get(9)),
            started: moment(10),
            statements: row.get(11),
            snapshot: snapshot.and_then(|snapshot| snapshot.parse().ok()),
            ended,
            ended_at: moment(ENDED_AT),
            left_out: row.get(15),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_clock_is_taken_for_one_and_two_for_two() {
        assert_eq!(
            Clock::of(1000, 1150, 1400),
            Clock {
                offset: 0,
                doubt: 201
            }
        );
        assert_eq!(
            Clock::of(1000, 5000, 1400),
            Clock {
                offset: -3800,
                doubt: 201
            }
        );
    }

    #[test]
    fn as_many_are_taken_as_are_counted() {
        assert!(TAKE.ends_with(&format!("hindcast.take({RECORDS_MAX})")));
    }
}
