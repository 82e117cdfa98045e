//! What sessions tell the settler.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hindcast_trace::{Micros, SessionId, Transaction};
use hindcast_wire::Keeping;

/// What commits do for temporary tables of that kind; not a statement, but it takes an id like one.
pub(super) const ON_COMMIT: &str = "ON COMMIT DELETE ROWS";
/// Of these, those of one session that are closer together than this count as one, in microseconds.
const TOGETHER: Micros = 50_000;
/// How far back that is looked for.
const NEAR: usize = 64;

/// It looks here once per tick: waking it for every transaction would cost more than all the rest
/// of recording one.
#[derive(Debug)]
pub(super) struct Ledger {
    /// Ids of what is in the trace.
    accounted: Mutex<Vec<u64>>,
    /// Ids that snapshots showed as running; kept only where functions open subtransactions.
    running: Mutex<Vec<u64>>,
    /// The answers to their `COMMIT` were lost: to be recorded once the server has told how they
    /// ended.
    uncertain: Mutex<Vec<Transaction>>,
    unasked: Mutex<Vec<Unasked>>,
    /// Functions of this database catch exceptions, so transactions use more ids than the wire can
    /// see.
    functions_catch: AtomicBool,
    keeping: Arc<Keeping>,
    /// Snapshots saw ids below this.
    seen: AtomicU64,
    /// Transactions that ended before this moment have been told.
    told_until: AtomicI64,
}

impl Default for Ledger {
    /// Of sessions that tell at once.
    fn default() -> Self {
        Self {
            accounted: Mutex::default(),
            running: Mutex::default(),
            uncertain: Mutex::default(),
            unasked: Mutex::default(),
            functions_catch: AtomicBool::default(),
            keeping: Arc::default(),
            seen: AtomicU64::new(0),
            told_until: AtomicI64::new(Micros::MAX),
        }
    }
}

/// What sessions told.
pub(super) struct Told {
    pub accounted: Vec<u64>,
    pub running: Vec<u64>,
    pub uncertain: Vec<Transaction>,
    pub unasked: Vec<Unasked>,
    /// Ids below this were seen by snapshots.
    pub seen: u64,
}

/// A statement of a recorded session that may have committed under ids that could not be asked for:
/// it refuses to share its transaction with a question, or it commits inside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Unasked {
    pub session: SessionId,
    /// The process id of the session's backend, as the server told it to the client.
    pub backend: u32,
    /// Its kind: `VACUUM`, `CREATE INDEX CONCURRENTLY`, `CALL`, `end of session`.
    pub what: &'static str,
    /// When the gateway forwarded it, and when it was answered, by the gateway's clock.
    pub began: Micros,
    pub ended: Micros,
    /// Its ids are among these: from the `xmax` of a snapshot that was taken before it up to the
    /// `xmax` of one that was taken after it. An empty range says that it used none. `None`: only
    /// the time is known.
    pub ids: Option<Range<u64>>,
}

impl Ledger {
    /// Whether statements of the gateway's own may stay prepared in clients' sessions.
    pub fn keeping(&self) -> &Arc<Keeping> {
        &self.keeping
    }

    pub fn set_functions_catch(&self, catch: bool) {
        self.functions_catch.store(catch, Ordering::Relaxed);
    }

    pub fn account(&self, transaction: &Transaction) {
        if transaction.xid.is_some() || !transaction.subxids.is_empty() {
            let ids = transaction.xid.iter().chain(&transaction.subxids);
            locked(&self.accounted).extend(ids.map(|xid| xid.0));
        }
        let Some(snapshot) = &transaction.snapshot else {
            return;
        };
        self.seen.fetch_max(snapshot.xmax.0, Ordering::Relaxed);
        if self.functions_catch() {
            locked(&self.running).extend(snapshot.in_progress.iter().map(|xid| xid.0));
        }
    }

    pub fn uncertain(&self, transaction: Transaction) {
        self.account(&transaction);
        locked(&self.uncertain).push(transaction);
    }

    /// A transaction of ours, in a client's session, committed under this id.
    pub fn own(&self, xid: u64) {
        locked(&self.accounted).push(xid);
    }

    /// Its ids will turn up without a record.
    pub fn unasked(&self, unasked: Unasked) {
        let mut told = locked(&self.unasked);
        // A session may have one per transaction.
        let same = |last: &&mut Unasked| {
            last.what == ON_COMMIT && unasked.what == ON_COMMIT && last.session == unasked.session
        };
        match told.iter_mut().rev().take(NEAR).find(same) {
            Some(last) if unasked.began - last.ended < TOGETHER => last.ended = unasked.ended,
            _ => told.push(unasked),
        }
    }

    /// Sessions tell afterwards, and have told all that was before this moment.
    pub fn tell_until(&self, moment: Micros) {
        self.told_until.store(moment, Ordering::Relaxed);
    }

    pub fn told_until(&self) -> Micros {
        self.told_until.load(Ordering::Relaxed)
    }

    pub fn functions_catch(&self) -> bool {
        self.functions_catch.load(Ordering::Relaxed)
    }

    /// Takes what has been told since the last time.
    pub fn take(&self) -> Told {
        Told {
            accounted: std::mem::take(&mut locked(&self.accounted)),
            running: std::mem::take(&mut locked(&self.running)),
            uncertain: std::mem::take(&mut locked(&self.uncertain)),
            unasked: std::mem::take(&mut locked(&self.unasked)),
            seen: self.seen.load(Ordering::Relaxed),
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
