//! What a recording has seen so far.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hindcast_trace::{
    Attribution, GapCause, Isolation, Outcome, Request, Response, Transaction, WriterStatus,
};

/// Clients that are told apart; more go under one name.
const CLIENTS_MAX: usize = 200;

/// A reading of all counters. They only grow, except those of what is in flight.
#[derive(Clone, Debug, Default)]
pub struct Status {
    pub requests: u64,
    pub requests_in_flight: u64,
    /// Of the requests: client or service went away, or the service could not be reached.
    pub requests_broken: u64,
    /// Of the requests: passed through without being recorded (upgrades, bodies over the limit).
    pub requests_unrecorded: u64,
    pub sessions: u64,
    pub transactions: u64,
    pub transactions_aborted: u64,
    /// Of the transactions: how they were attributed.
    pub by_comment: u64,
    pub by_application_name: u64,
    pub by_being_alone: u64,
    pub by_turn: u64,
    /// Of the transactions: those that belong to no request.
    pub ghosts: u64,
    /// Since a transaction last belonged to a request: those that do more than set up their
    /// session.
    pub ghosts_in_a_row: u64,
    /// Requests that ended since then.
    pub requests_meanwhile: u64,
    /// Of the ghosts: began while several requests were in flight, so they may well belong to one
    /// of them.
    pub unattributed: u64,
    /// Who sent the unattributed ones, most first.
    pub unattributed_by: Vec<(String, u64)>,
    /// Of the transactions: ran at READ COMMITTED.
    pub read_committed: u64,
    /// Of the transactions: the answer to `COMMIT` was lost.
    pub uncertain: u64,
    pub gaps: u64,
    /// Ids of transactions that passed no recorder.
    pub unaccounted: u64,
    /// Ids of which it cannot be told whether their transactions wrote here.
    pub unexplained: u64,
    /// Why not, and what would help.
    pub unexplained_because: Option<String>,
    /// Ids that are taken for subtransactions of functions, for want of a way to tell.
    pub presumed_subtransactions: u64,
    /// Sessions that could not be followed.
    pub unobserved_sessions: u64,
    /// Sessions with a database that is not recorded. They passed through.
    pub other_database_sessions: u64,
    /// Bytes of what the service's processes told that were not looked at yet: of what is in them
    /// nothing is counted.
    pub spooled: u64,
    pub writer: WriterStatus,
}

impl Status {
    /// Whether something that should be in the recording is not.
    pub fn is_incomplete(&self) -> bool {
        let writer = &self.writer;
        self.gaps > 0
            || writer.dropped_requests + writer.dropped_transactions + writer.dropped_others > 0
    }
}

/// The counters behind [`Status`].
#[derive(Debug, Default)]
pub(super) struct Counters {
    requests: AtomicU64,
    requests_broken: AtomicU64,
    requests_unrecorded: AtomicU64,
    sessions: AtomicU64,
    transactions: AtomicU64,
    transactions_aborted: AtomicU64,
    by_comment: AtomicU64,
    by_application_name: AtomicU64,
    by_being_alone: AtomicU64,
    by_turn: AtomicU64,
    ghosts: AtomicU64,
    ghosts_in_a_row: AtomicU64,
    /// How many requests there were when the row of ghosts began.
    requests_before: AtomicU64,
    unattributed: AtomicU64,
    read_committed: AtomicU64,
    uncertain: AtomicU64,
    gaps: AtomicU64,
    unaccounted: AtomicU64,
    unexplained: AtomicU64,
    unexplained_because: Mutex<Option<String>>,
    presumed_subtransactions: AtomicU64,
    unobserved_sessions: AtomicU64,
    other_database_sessions: AtomicU64,
    clients: Mutex<HashMap<String, Arc<AtomicU64>>>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn add(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

impl Counters {
    pub fn request(&self, request: &Request) {
        add(&self.requests);
        match request.response {
            Response::Answered { .. } => {}
            Response::Broken { .. } => add(&self.requests_broken),
            Response::Unrecorded { .. } => add(&self.requests_unrecorded),
        }
    }

    /// `crowded`: several requests were in flight when it began.
    pub fn transaction(&self, transaction: &Transaction, crowded: bool, client: &AtomicU64) {
        add(&self.transactions);
        if transaction.outcome == Outcome::Aborted {
            add(&self.transactions_aborted);
        }
        // Without a snapshot nothing was read, and the isolation may be a guess.
        if transaction.isolation == Isolation::ReadCommitted && transaction.snapshot.is_some() {
            add(&self.read_committed);
        }
        self.row_of_ghosts(transaction);
        match transaction.request {
            Some((_, Attribution::Comment)) => add(&self.by_comment),
            Some((_, Attribution::ApplicationName)) => add(&self.by_application_name),
            Some((_, Attribution::Alone)) => add(&self.by_being_alone),
            Some((_, Attribution::Turn)) => add(&self.by_turn),
            None => {
                add(&self.ghosts);
                if crowded {
                    add(&self.unattributed);
                    add(client);
                }
            }
        }
    }

    fn row_of_ghosts(&self, transaction: &Transaction) {
        let row = &self.ghosts_in_a_row;
        if transaction.request.is_some() {
            // All sessions come here: no write where nothing changes.
            if row.load(Ordering::Relaxed) != 0 {
                row.store(0, Ordering::Relaxed);
            }
        } else if transaction.snapshot.is_some() || transaction.xid.is_some() {
            if row.load(Ordering::Relaxed) == 0 {
                let requests = self.requests.load(Ordering::Relaxed);
                self.requests_before.store(requests, Ordering::Relaxed);
            }
            add(row);
        }
    }

    pub fn uncertain(&self) {
        add(&self.uncertain);
    }

    pub fn subtransactions(&self, count: u64) {
        self.presumed_subtransactions
            .fetch_add(count, Ordering::Relaxed);
    }

    /// It becomes a gap like one that cannot be followed, and is counted by itself.
    pub fn with_other_database(&self) {
        add(&self.other_database_sessions);
    }

    pub fn session(&self) {
        add(&self.sessions);
    }

    pub fn gap(&self, cause: &GapCause) {
        add(&self.gaps);
        match cause {
            GapCause::Unaccounted { xids, .. } => {
                self.unaccounted
                    .fetch_add(xids.len() as u64, Ordering::Relaxed);
            }
            GapCause::Unexplained { xids, reason } => {
                self.unexplained
                    .fetch_add(xids.len() as u64, Ordering::Relaxed);
                let mut because = locked(&self.unexplained_because);
                *because = Some(reason.clone());
            }
            GapCause::Unobserved { .. } => add(&self.unobserved_sessions),
            GapCause::Dropped { .. } | GapCause::Crashed { .. } | GapCause::Pruned { .. } => {}
        }
    }

    /// A gap in a session that is followed all the same.
    pub fn commits_inside(&self) {
        add(&self.gaps);
    }

    /// The counter of unattributed transactions of one client, for as long as a session lives.
    pub fn client(&self, name: String) -> Arc<AtomicU64> {
        let mut clients = locked(&self.clients);
        let name = match clients.len() < CLIENTS_MAX || clients.contains_key(&name) {
            true => name,
            false => "others".to_owned(),
        };
        Arc::clone(clients.entry(name).or_default())
    }

    pub fn read(&self, requests_in_flight: u64, writer: WriterStatus) -> Status {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let clients = locked(&self.clients);
        let mut unattributed_by: Vec<_> = clients
            .iter()
            .map(|(name, count)| (name.clone(), get(count)))
            .filter(|(_, count)| *count > 0)
            .collect();
        unattributed_by.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        let others = get(&self.other_database_sessions);
        Status {
            requests: get(&self.requests),
            requests_in_flight,
            requests_broken: get(&self.requests_broken),
            requests_unrecorded: get(&self.requests_unrecorded),
            sessions: get(&self.sessions),
            transactions: get(&self.transactions),
            transactions_aborted: get(&self.transactions_aborted),
            by_comment: get(&self.by_comment),
            by_application_name: get(&self.by_application_name),
            by_being_alone: get(&self.by_being_alone),
            by_turn: get(&self.by_turn),
            ghosts: get(&self.ghosts),
            ghosts_in_a_row: get(&self.ghosts_in_a_row),
            requests_meanwhile: get(&self.requests).saturating_sub(get(&self.requests_before)),
            unattributed: get(&self.unattributed),
            unattributed_by,
            read_committed: get(&self.read_committed),
            uncertain: get(&self.uncertain),
            gaps: get(&self.gaps),
            unaccounted: get(&self.unaccounted),
            unexplained: get(&self.unexplained),
            unexplained_because: locked(&self.unexplained_because).clone(),
            presumed_subtransactions: get(&self.presumed_subtransactions),
            unobserved_sessions: get(&self.unobserved_sessions).saturating_sub(others),
            other_database_sessions: others,
            spooled: 0,
            writer,
        }
    }
}
