//! What is known of the catalog, what has to be looked up, and who waits for that.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use hindcast_wire::SequenceColumns;
use hindcast_wire::sql::{Relations, SchemaChange};
use tokio::sync::{Notify, watch};

/// How long a session that may have made a sequence waits until it is known.
const PATIENCE: Duration = Duration::from_secs(5);

/// Shared by all sessions; one task looks up what they want (see `refresh`).
#[derive(Debug)]
pub(in crate::record) struct Known {
    patience: Duration,
    sequences: RwLock<Arc<SequenceColumns>>,
    /// Moves after `sequences` has changed, so that sessions need not look at it.
    version: AtomicU64,
    wanted: Mutex<Wanted>,
    more_wanted: Notify,
    /// Up to which ticket everything that was wanted has been looked up, or could not be.
    served: watch::Sender<u64>,
}

/// What is to be looked up.
#[derive(Clone, Debug, Default)]
pub(super) struct Wanted {
    pub change: SchemaChange,
    /// Tables that turned up in results and are not known.
    pub tables: HashSet<u32>,
    /// How often something was waited for: the last that this answers.
    pub ticket: u64,
}

impl Wanted {
    pub fn is_everything(&self) -> bool {
        self.change.relations == Relations::All
    }
}

impl Default for Known {
    fn default() -> Self {
        Self::with_patience(PATIENCE)
    }
}

impl Known {
    fn with_patience(patience: Duration) -> Self {
        Self {
            patience,
            sequences: RwLock::default(),
            version: AtomicU64::new(0),
            wanted: Mutex::default(),
            more_wanted: Notify::new(),
            served: watch::Sender::new(0),
        }
    }

    /// A transaction that changed the schema has committed. Resolves when what it may have made is
    /// known, or when that takes too long; `None` if there is nothing to wait for.
    pub fn schema_changed(
        &self,
        change: SchemaChange,
    ) -> Option<impl Future<Output = ()> + Send + use<>> {
        let urgent = change.urgent;
        let ticket = {
            let mut wanted = self.wanted();
            wanted.change.add(change);
            wanted.ticket += u64::from(urgent);
            wanted.ticket
        };
        let (mut served, patience) = (self.served.subscribe(), self.patience);
        self.more_wanted.notify_one();
        urgent.then_some(async move {
            let all = served.wait_for(|served| *served >= ticket);
            let _ = tokio::time::timeout(patience, all).await;
        })
    }

    /// A result has columns of a table that is not known.
    pub fn unknown_table(&self, table: u32) {
        if self.wanted().tables.insert(table) {
            self.more_wanted.notify_one();
        }
    }

    /// Waits until something is to be looked up, and takes it.
    pub(super) async fn next_wanted(&self) -> Wanted {
        loop {
            self.more_wanted.notified().await;
            let mut wanted = self.wanted();
            if wanted.change.is_none() && wanted.tables.is_empty() {
                continue;
            }
            let ticket = wanted.ticket;
            let next = Wanted {
                ticket,
                ..Wanted::default()
            };
            return std::mem::replace(&mut wanted, next);
        }
    }

    /// It could not be looked up. Those who wait do so no longer; as it is not known any more what
    /// has changed, everything is to be read when that is possible again.
    pub(super) fn not_served(&self, ticket: u64) {
        self.wanted().change.add(SchemaChange::everything());
        self.more_wanted.notify_one();
        self.serve(ticket);
    }

    /// It has been put into [`Known::change`].
    pub(super) fn serve(&self, ticket: u64) {
        self.served
            .send_modify(|served| *served = ticket.max(*served));
    }

    /// Replaces what is known.
    pub fn set(&self, sequences: SequenceColumns) {
        self.change(|known| *known = sequences);
    }

    /// Only the task that looks things up does this. Sessions read on meanwhile.
    pub(super) fn change(&self, change: impl FnOnce(&mut SequenceColumns)) {
        let mut sequences = SequenceColumns::clone(&self.sequences().0);
        change(&mut sequences);
        *self
            .sequences
            .write()
            .unwrap_or_else(PoisonError::into_inner) = Arc::new(sequences);
        self.version.fetch_add(1, Ordering::Release);
    }

    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// With the version they have at least.
    pub fn sequences(&self) -> (Arc<SequenceColumns>, u64) {
        let version = self.version();
        let sequences = self
            .sequences
            .read()
            .unwrap_or_else(PoisonError::into_inner);
        (Arc::clone(&sequences), version)
    }

    fn wanted(&self) -> MutexGuard<'_, Wanted> {
        self.wanted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(text: &str) -> SchemaChange {
        SchemaChange::of(text)
    }

    #[tokio::test]
    async fn one_look_serves_all_who_wait() {
        let known = Known::default();
        let first = known.schema_changed(change("CREATE TABLE a (id serial)"));
        let second = known.schema_changed(change("CREATE SEQUENCE b"));
        assert!(known.schema_changed(change("DROP SEQUENCE c")).is_none());
        known.unknown_table(7);
        let wanted = known.next_wanted().await;
        let Relations::Named { names, .. } = &wanted.change.relations else {
            panic!("{wanted:?}");
        };
        assert!(["a", "b", "c"].iter().all(|name| names.contains(*name)));
        assert_eq!(wanted.tables, HashSet::from([7]));
        // What comes while it is looked up is looked up afterwards.
        let late = known.schema_changed(change("CREATE SEQUENCE d")).unwrap();
        known.serve(wanted.ticket);
        first.unwrap().await;
        second.unwrap().await;
        tokio::pin!(late);
        assert!(futures::poll!(&mut late).is_pending());
        let wanted = known.next_wanted().await;
        known.serve(wanted.ticket);
        assert!(futures::poll!(&mut late).is_ready());
    }

    #[tokio::test]
    async fn what_could_not_be_looked_up_holds_nobody_and_is_not_forgotten() {
        let known = Known::default();
        let waits = known.schema_changed(change("CREATE SEQUENCE s")).unwrap();
        let wanted = known.next_wanted().await;
        known.not_served(wanted.ticket);
        waits.await;
        assert!(known.next_wanted().await.is_everything());
    }

    #[tokio::test]
    async fn patience_ends() {
        let known = Known::with_patience(Duration::from_millis(1));
        let waits = known.schema_changed(change("CREATE SEQUENCE s")).unwrap();
        waits.await;
        assert!(!known.next_wanted().await.is_everything());
    }
}
