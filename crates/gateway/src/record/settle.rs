//! Finds out what the wire did not tell: transactions that passed no recorder, and those whose answer was lost.
//!
//! Every transaction id that a recorded snapshot can see must be accounted for. So each tick asks the server, over a connection
//! of our own, which ids are finished by now, and takes away
//!
//! 1. the ids of recorded transactions (sessions leave them in a [`Ledger`]),
//! 2. those that aborted,
//! 3. the database's own: ids that wrote only statistics or the catalogs' entries for other databases, and as many as there were
//!    runs of vacuum and analyze,
//! 4. those of other databases in the cluster, as far as can be told,
//! 5. where functions catch exceptions, ids that no snapshot showed as running: a subtransaction of a function has an id of its own, which
//!    no snapshot ever shows and nobody can be asked for. These are counted.
//!
//! What is left becomes a [`GapCause::Unaccounted`]. Ids are looked at one tick after the server was done with them,
//! so that their records have had time to arrive here.

use std::collections::{BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use hindcast_trace::{Gap, GapCause, Micros, Outcome, Transaction, Xid};
use tokio::sync::oneshot;
use tokio_postgres::Client;

use super::sink::Sink;
use crate::http::Witness;
use crate::pg::{Connector, ControlError};

/// Ids per question.
const BATCH: usize = 5_000;
/// Tables whose size together is below this are searched for rows of an unexplained id.
const SEARCH_BYTES_MAX: i64 = 256 << 20;
/// How long a transaction whose answer was lost may stay in progress before it is recorded as unknown.
const UNCERTAIN_PATIENCE: Duration = Duration::from_secs(60);

/// What sessions tell the settler. It looks here once per tick: waking it for every transaction would cost more than all
/// the rest of recording one.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    /// Ids of what is in the trace.
    accounted: Mutex<Vec<u64>>,
    /// Ids that snapshots showed as running; kept only where functions open subtransactions.
    running: Mutex<Vec<u64>>,
    /// The answers to their `COMMIT` were lost: to be recorded once the server has told how they ended.
    uncertain: Mutex<Vec<Transaction>>,
    /// Functions of this database catch exceptions, so transactions use more ids than the wire can see.
    functions_catch: AtomicBool,
}

impl Ledger {
    pub fn set_functions_catch(&self, catch: bool) {
        self.functions_catch.store(catch, Ordering::Relaxed);
    }

    pub fn account(&self, transaction: &Transaction) {
        if transaction.xid.is_some() || !transaction.subxids.is_empty() {
            let ids = transaction.xid.iter().chain(&transaction.subxids);
            let mut accounted = self
                .accounted
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            accounted.extend(ids.map(|xid| xid.0));
        }
        if self.functions_catch.load(Ordering::Relaxed)
            && let Some(snapshot) = &transaction.snapshot
        {
            let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
            running.extend(snapshot.in_progress.iter().map(|xid| xid.0));
        }
    }

    pub fn uncertain(&self, transaction: Transaction) {
        self.account(&transaction);
        self.uncertain
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(transaction);
    }
}

/// A set of ids at or above a bound that only grows.
#[derive(Debug, Default)]
struct Accounted {
    /// A multiple of 64.
    start: u64,
    bits: VecDeque<u64>,
}

impl Accounted {
    fn starting_at(bound: u64) -> Self {
        Self {
            start: bound & !63,
            bits: VecDeque::new(),
        }
    }

    fn insert(&mut self, xid: u64) {
        let Some(offset) = xid.checked_sub(self.start) else {
            return;
        };
        let word = (offset / 64) as usize;
        // An id from the far future is nonsense; memory is not reserved for it.
        if word > self.bits.len() + (1 << 24) {
            return;
        }
        if word >= self.bits.len() {
            self.bits.resize(word + 1, 0);
        }
        self.bits[word] |= 1 << (offset % 64);
    }

    fn contains(&self, xid: u64) -> bool {
        let Some(offset) = xid.checked_sub(self.start) else {
            return false;
        };
        self.bits
            .get((offset / 64) as usize)
            .is_some_and(|word| word >> (offset % 64) & 1 == 1)
    }

    fn forget_below(&mut self, bound: u64) {
        while self.start + 64 <= bound {
            self.start += 64;
            self.bits.pop_front();
        }
    }
}

/// Where accounting starts.
#[derive(Debug, Clone)]
pub(super) struct Start {
    /// Everything below was finished before, except `in_progress`.
    pub bound: Xid,
    pub in_progress: Vec<Xid>,
}

pub(super) struct Settler {
    connector: Arc<Connector>,
    sink: Arc<Sink>,
    control: Option<Client>,
    accounted: Accounted,
    /// Ids at or above `next` that some snapshot showed as running.
    running: BTreeSet<u64>,
    /// In progress when accounting started: to be looked at when they end.
    leftovers: BTreeSet<u64>,
    /// Ids below were looked at.
    next: u64,
    /// Ids below were finished at the last tick.
    finished: u64,
    last_tick: Micros,
    uncertain: Vec<(Transaction, Instant)>,
    maintenance: Maintenance,
    elsewhere: Elsewhere,
}

/// Runs of vacuum and analyze: each may use an id and leave no row that tells.
#[derive(Debug, Default)]
struct Maintenance {
    at_start: Option<i64>,
    spent: i64,
}

/// Writes in other databases of the cluster.
#[derive(Debug, Default)]
struct Elsewhere {
    writes: Option<i64>,
}

#[derive(Debug, thiserror::Error)]
enum SettleError {
    #[error(transparent)]
    Connect(#[from] ControlError),
    #[error("{}", crate::http::with_causes(.0))]
    Query(#[from] tokio_postgres::Error),
}

impl Settler {
    pub fn new(connector: Arc<Connector>, control: Client, sink: Arc<Sink>, start: Start) -> Self {
        Self {
            connector,
            last_tick: sink.now(),
            sink,
            control: Some(control),
            accounted: Accounted::starting_at(
                start.in_progress.first().map_or(start.bound.0, |xid| xid.0),
            ),
            running: BTreeSet::new(),
            leftovers: start.in_progress.iter().map(|xid| xid.0).collect(),
            next: start.bound.0,
            finished: start.bound.0,
            uncertain: Vec::new(),
            maintenance: Maintenance::default(),
            elsewhere: Elsewhere::default(),
        }
    }

    /// Until `stop` fires; then once more, for everything.
    pub async fn run(mut self, interval: Duration, mut stop: oneshot::Receiver<()>) {
        let mut ticks = tokio::time::interval(interval);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = ticks.tick() => self.tick(false).await,
                _ = &mut stop => break,
            }
        }
        // Twice: the first makes what is finished now count as finished.
        self.tick(false).await;
        self.tick(true).await;
        for (transaction, _) in std::mem::take(&mut self.uncertain) {
            self.sink.transaction(transaction);
        }
    }

    fn read_ledger(&mut self) {
        let ledger = self.sink.ledger();
        for xid in std::mem::take(
            &mut *ledger
                .accounted
                .lock()
                .unwrap_or_else(PoisonError::into_inner),
        ) {
            self.accounted.insert(xid);
            self.leftovers.remove(&xid);
        }
        let running = std::mem::take(
            &mut *ledger
                .running
                .lock()
                .unwrap_or_else(PoisonError::into_inner),
        );
        self.running.extend(running);
        let uncertain = std::mem::take(
            &mut *ledger
                .uncertain
                .lock()
                .unwrap_or_else(PoisonError::into_inner),
        );
        self.uncertain.extend(
            uncertain
                .into_iter()
                .map(|transaction| (transaction, Instant::now())),
        );
    }

    async fn tick(&mut self, last: bool) {
        self.read_ledger();
        if let Err(error) = self.try_tick(last).await {
            // Nothing is lost: what was not looked at will be when the server is back.
            tracing::warn!(%error, "cannot ask the server which transactions are missing");
            self.control = None;
        }
    }

    async fn try_tick(&mut self, last: bool) -> Result<(), SettleError> {
        let control = match self.control.take().filter(|control| !control.is_closed()) {
            Some(control) => control,
            None => self.connector.control("hindcast: accounting").await?,
        };
        let control = self.control.insert(control);
        let now = self.sink.now();
        settle_uncertain(control, &self.sink, &mut self.uncertain, last).await?;

        let row = control
            .query_one(
                "SELECT pg_catalog.pg_snapshot_xmin(s)::text, \
                        ARRAY(SELECT x::text FROM pg_catalog.pg_snapshot_xip(s) x) \
                 FROM pg_catalog.pg_current_snapshot() s",
                &[],
            )
            .await?;
        let horizon: u64 = row.get::<_, String>(0).parse().unwrap_or(self.finished);
        let running: BTreeSet<u64> = row
            .get::<_, Vec<String>>(1)
            .iter()
            .filter_map(|xid| xid.parse().ok())
            .collect();

        let looked_at = self.finished.max(self.next);
        let mut missing: Vec<u64> = (self.next..looked_at)
            .filter(|xid| !self.accounted.contains(*xid))
            .collect();
        let (ended, rest) = self
            .leftovers
            .iter()
            .partition(|xid| **xid < horizon && !running.contains(xid));
        self.leftovers = rest;
        missing.extend::<BTreeSet<u64>>(ended);

        let unaccounted = if missing.is_empty() && self.maintenance.at_start.is_some() {
            Vec::new()
        } else {
            explain(control, missing, &mut self.maintenance, &mut self.elsewhere).await?
        };
        let unaccounted = self.without_subtransactions(unaccounted);
        if !unaccounted.is_empty() {
            let xids = unaccounted.into_iter().map(Xid).collect();
            self.sink.gap(Gap {
                from: self.last_tick,
                to: now,
                cause: GapCause::Unaccounted { xids },
            });
        }
        self.next = looked_at;
        self.running = self.running.split_off(&looked_at);
        self.finished = horizon.max(self.finished);
        self.accounted.forget_below(
            self.leftovers
                .first()
                .copied()
                .unwrap_or(self.next)
                .min(self.next),
        );
        self.last_tick = now;
        Ok(())
    }

    fn without_subtransactions(&self, mut unaccounted: Vec<u64>) -> Vec<u64> {
        if self.sink.ledger().functions_catch.load(Ordering::Relaxed) {
            let before = unaccounted.len();
            unaccounted.retain(|xid| self.running.contains(xid));
            let explained = before - unaccounted.len();
            self.sink.counters().subtransactions(explained as u64);
        }
        unaccounted
    }
}

/// Records the transactions whose fate is known by now.
async fn settle_uncertain(
    control: &Client,
    sink: &Sink,
    uncertain: &mut Vec<(Transaction, Instant)>,
    last: bool,
) -> Result<(), SettleError> {
    if uncertain.is_empty() {
        return Ok(());
    }
    let xids: Vec<i64> = uncertain
        .iter()
        .filter_map(|(transaction, _)| Some(transaction.xid?.0 as i64))
        .collect();
    let states = states(control, &xids).await?;
    let state = |xid: Xid| {
        states
            .iter()
            .find(|(known, _)| *known == xid.0 as i64)
            .and_then(|(_, state)| state.as_deref())
    };
    uncertain.retain_mut(|(transaction, since)| {
        let outcome = match transaction.xid.map(state) {
            Some(Some("committed")) => Outcome::Committed,
            Some(Some("aborted")) => Outcome::Aborted,
            Some(Some("in progress")) if !last && since.elapsed() < UNCERTAIN_PATIENCE => {
                return true;
            }
            // A transaction that wrote nothing leaves no trace, and it makes no difference which way it ended.
            None => Outcome::Aborted,
            _ => Outcome::Unknown,
        };
        sink.transaction(Transaction {
            outcome,
            ..transaction.clone()
        });
        false
    });
    Ok(())
}

async fn states(control: &Client, xids: &[i64]) -> Result<Vec<(i64, Option<String>)>, SettleError> {
    let mut states = Vec::with_capacity(xids.len());
    for batch in xids.chunks(BATCH) {
        let rows = control
            .query(
                "SELECT x, pg_catalog.pg_xact_status(x::text::xid8) FROM pg_catalog.unnest($1::int8[]) x",
                &[&batch],
            )
            .await?;
        states.extend(
            rows.iter()
                .map(|row| (row.get::<_, i64>(0), row.get::<_, Option<String>>(1))),
        );
    }
    Ok(states)
}

/// Of ids that no record accounts for, those that nothing else accounts for either.
async fn explain(
    control: &Client,
    missing: Vec<u64>,
    maintenance: &mut Maintenance,
    elsewhere: &mut Elsewhere,
) -> Result<Vec<u64>, SettleError> {
    let missing: Vec<i64> = missing.into_iter().map(|xid| xid as i64).collect();
    let mut left: Vec<i64> = states(control, &missing)
        .await?
        .into_iter()
        .filter(|(_, state)| state.as_deref() == Some("committed"))
        .map(|(xid, _)| xid)
        .collect();

    if !left.is_empty() {
        let own = wrote_only_about_the_cluster(control, &left).await?;
        left.retain(|xid| !own.contains(xid));
    }

    let runs: i64 = control
        .query_one(
            "SELECT coalesce(sum(vacuum_count + autovacuum_count + analyze_count + autoanalyze_count), 0)::int8 \
             FROM pg_catalog.pg_stat_all_tables",
            &[],
        )
        .await?
        .get(0);
    let unspent = runs - *maintenance.at_start.get_or_insert(runs) - maintenance.spent;
    let writes: i64 = control
        .query_one(
            "SELECT coalesce(sum(tup_inserted + tup_updated + tup_deleted), 0)::int8 \
             FROM pg_catalog.pg_stat_database WHERE datname <> pg_catalog.current_database()",
            &[],
        )
        .await?
        .get(0);
    let written_elsewhere = elsewhere
        .writes
        .replace(writes)
        .is_some_and(|before| writes > before);
    if left.is_empty() || !(unspent > 0 || written_elsewhere) {
        return Ok(left.into_iter().map(|xid| xid as u64).collect());
    }

    // Something else may explain them. Those that left rows in a table of this database are missing all the same.
    let Some(here) = wrote_here(control, &left).await? else {
        // Too much to search: better a gap too many than one too few.
        return Ok(left.into_iter().map(|xid| xid as u64).collect());
    };
    let (found, rest): (Vec<i64>, Vec<i64>) = left.into_iter().partition(|xid| here.contains(xid));
    let mut unaccounted = found;
    if !written_elsewhere {
        let explained = (rest.len() as i64).min(unspent);
        maintenance.spent += explained;
        unaccounted.extend(&rest[explained as usize..]);
    }
    unaccounted.sort_unstable();
    Ok(unaccounted.into_iter().map(|xid| xid as u64).collect())
}

/// Ids whose rows are in statistics or in catalogs that all databases share.
async fn wrote_only_about_the_cluster(
    control: &Client,
    xids: &[i64],
) -> Result<Vec<i64>, SettleError> {
    let mut found = Vec::new();
    for catalog in [
        "pg_statistic",
        "pg_statistic_ext_data",
        "pg_database",
        "pg_authid",
        "pg_auth_members",
        "pg_db_role_setting",
        "pg_replication_origin",
        "pg_shdescription",
    ] {
        found.extend(rows_of(control, &format!("pg_catalog.{catalog}"), xids).await?);
    }
    Ok(found)
}

/// Ids that are the `xmin` of some row; none if we may not read the table.
async fn rows_of(control: &Client, table: &str, xids: &[i64]) -> Result<Vec<i64>, SettleError> {
    // Rows know only the low half of an id; ids that are told apart by the high half cannot both be recent.
    let sql = format!(
        "SELECT x FROM pg_catalog.unnest($1::int8[]) x WHERE (x & 4294967295) IN \
         (SELECT t.xmin::text::int8 FROM {table} t)"
    );
    match control.query(&sql, &[&xids]).await {
        Ok(rows) => Ok(rows.iter().map(|row| row.get(0)).collect()),
        Err(error) if error.code().is_some() => Ok(Vec::new()),
        Err(error) => Err(error.into()),
    }
}

/// Ids that left a row in a table of this database; `None` if there is too much to search.
async fn wrote_here(control: &Client, xids: &[i64]) -> Result<Option<Vec<i64>>, SettleError> {
    let tables = control
        .query(
            "SELECT c.oid::regclass::text, pg_catalog.pg_relation_size(c.oid) FROM pg_catalog.pg_class c \
             WHERE c.relkind IN ('r', 'm') AND c.relpersistence = 'p' AND c.relisshared = false \
             AND c.relname NOT IN ('pg_statistic', 'pg_statistic_ext_data')",
            &[],
        )
        .await?;
    // A table may be dropped between the question and its size.
    let size: i64 = tables
        .iter()
        .filter_map(|row| row.get::<_, Option<i64>>(1))
        .sum();
    if size > SEARCH_BYTES_MAX {
        return Ok(None);
    }
    let mut found = Vec::new();
    for table in &tables {
        found.extend(rows_of(control, table.get(0), xids).await?);
    }
    found.sort_unstable();
    found.dedup();
    Ok(Some(found))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn accounting_is_a_set(start in 0u64..1000, ids in prop::collection::vec(0u64..3000, 0..100), bound in 0u64..3000) {
            let mut accounted = Accounted::starting_at(start);
            ids.iter().for_each(|id| accounted.insert(*id));
            accounted.forget_below(bound);
            for id in start.max(bound)..3000 {
                prop_assert_eq!(accounted.contains(id), ids.contains(&id), "{}", id);
            }
        }
    }

    #[test]
    fn an_id_from_the_far_future_takes_no_memory() {
        let mut accounted = Accounted::starting_at(1000);
        accounted.insert(u64::MAX);
        accounted.insert(1001);
        assert!(accounted.contains(1001) && accounted.bits.len() == 1);
    }
}
