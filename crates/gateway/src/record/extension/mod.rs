//! Reads what the extension `hindcast` in the database tells of transactions.
//!
//! [`Reading`] takes it from the server and writes it into the spool, as it is; [`told`] makes
//! records of it when the spool is read.

mod told;

use std::sync::Arc;
use std::time::{Duration, Instant};

use hindcast_pg::tokio::{Client, Connector};
use hindcast_pg::{ConnectError, ConnectOptions, Error};
use hindcast_spool::Writer;
use hindcast_trace::Micros;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::sink::Sink;
use crate::http::Witness;
pub(super) use told::Telling;
use told::{Clock, Look, is_of_this_layout};

const NAME: &str = "hindcast: snapshots";

/// How long to wait between two looks.
const PAUSE: Duration = Duration::from_millis(50);
/// How long to leave a server alone that could not be asked.
const FAILED_PAUSE: Duration = Duration::from_secs(1);
/// How long to wait for what is being written when a recording ends.
const LAST_PATIENCE: Duration = Duration::from_secs(5);
/// Clocks are compared so often, and so many times.
const COMPARE_EVERY: Duration = Duration::from_secs(10);
const COMPARISONS: usize = 5;

const TAKE: &str = "SELECT epoch, bytes_left, records FROM hindcast.take_binary()";
const CLOCK: &str = "SELECT (extract(epoch FROM pg_catalog.clock_timestamp()) * 1000000)::int8";

#[derive(Debug, thiserror::Error)]
pub enum ExtensionError {
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error("cannot read from the extension `hindcast` in the database: {}", crate::http::with_causes(.0))]
    Query(#[from] Error),
    #[error(
        "the extension `hindcast` in the server is of another version than this program, or the server is of another \
         kind of machine: run `hindcast extension install` on the server and restart it, or record with \
         `--transactions gateway`"
    )]
    Layout,
}

/// A note that nothing more will be told.
pub(super) const OVER: [u8; 0] = Look::OVER;

/// Takes records for as long as a recording goes on.
struct Reader {
    connector: Arc<Connector>,
    sink: Arc<Sink>,
    spool: Writer,
    client: Option<Client>,
    clock: Clock,
    compared: Instant,
}

/// A session that may read. Nobody else may until it ends.
pub(super) struct Claim(Client);

impl Claim {
    /// What the extension has noted so far is thrown away.
    pub async fn stake(connector: &Connector) -> Result<Self, ExtensionError> {
        let client = connector.client(&ConnectOptions::named(NAME)).await?;
        loop {
            let row = client.query_one(TAKE, &[]).await?;
            if !is_of_this_layout(row.get(2)) {
                return Err(ExtensionError::Layout);
            }
            // What is written meanwhile may be left.
            if row.get::<i64>(1) < i64::from(u16::MAX) {
                return Ok(Self(client));
            }
        }
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
        spool: Writer,
    ) -> Self {
        let reader = Reader {
            connector: Arc::clone(connector),
            sink: Arc::clone(sink),
            spool,
            client: Some(claim.0),
            clock: Clock::default(),
            compared: Instant::now() - COMPARE_EVERY,
        };
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(reader.run(stopped));
        Self { stop, task }
    }

    /// After the service's sessions have ended.
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
        self.spool.note(&Look::OVER);
    }

    /// Returns whether nothing was left. Where the spool has no room, all is: then the server's
    /// ring fills up, and counts what it loses.
    async fn take(&mut self) -> Result<bool, ExtensionError> {
        while self.spool.has_room() {
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
            let asked = self.sink.now();
            let row = client.query_one(TAKE, &[]).await?;
            self.client = Some(client);
            let left: i64 = row.get(1);
            let look = Look {
                asked,
                answered: self.sink.now(),
                clock: self.clock,
                epoch: row.get(0),
                is_all: left == 0,
            };
            self.spool.note(&look.with(row.get(2)));
            // What a process is still writing keeps back what follows it.
            if left < i64::from(u16::MAX) {
                return Ok(look.is_all);
            }
        }
        Ok(false)
    }

    async fn compare(&self, client: &Client) -> Result<Clock, Error> {
        let mut best: Option<Clock> = None;
        for _ in 0..COMPARISONS {
            let before = self.sink.now();
            let there: Micros = client.query_one(CLOCK, &[]).await?.get(0);
            let clock = Clock::of(before, there, self.sink.now());
            best = best
                .filter(|best| best.doubt <= clock.doubt)
                .or(Some(clock));
        }
        Ok(best.unwrap_or(self.clock))
    }
}
