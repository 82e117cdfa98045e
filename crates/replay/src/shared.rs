//! What all sessions of a run share: the monitor, the recording, and who waits for whom in the
//! database.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hindcast_order::{Request, Tx};
use hindcast_trace::{Drawn, ShapeId};
use hindcast_wire::row_order::RowOrder;
use hindcast_wire::sql::ScriptCache;

use crate::coordinator::Coordinator;
use crate::hold::{Answered, Code, Pins, SentAll, Unreadable};
use crate::learned::{Explained, Learned};
use crate::looks::Stretch;
use crate::monitor::Monitor;
use crate::recording::{Extras, Recording};
use crate::transaction::{Ask, Claim, Looking, Yielded};
use crate::verdict::Remark;

pub struct Shared {
    pub monitor: Monitor,
    pub recording: Arc<Recording>,
    /// See [`Coordinator::answered_in_order`].
    pub answered_in_order: Arc<Vec<bool>>,
    /// Shapes that only read; see [`Pins::reads_only`].
    reading: HashSet<ShapeId>,
    /// Writes outside any request that were refused, by statement.
    pub refused: Mutex<BTreeMap<String, u64>>,
    /// Those that were made and undone, likewise.
    pub undone: Mutex<BTreeMap<String, u64>>,
    code: Code,
    pub lookers: Lookers,
    /// Of a service that draws values by itself.
    pub learned: Learned,
    /// Of changed code.
    sessions: Mutex<Sessions>,
}

/// What the server works on for each of its processes.
#[derive(Debug, Default)]
pub struct Lookers(Mutex<HashMap<i32, Looking>>);

impl Lookers {
    pub fn note(&self, pid: i32, looking: Option<Looking>) {
        match looking {
            Some(looking) => self.lock().insert(pid, looking),
            None => self.lock().remove(&pid),
        };
    }

    pub fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    /// By server process.
    pub fn all(&self) -> HashMap<i32, Looking> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<i32, Looking>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The sessions of changed code, and which of them waits for which in the database.
#[derive(Debug, Default)]
struct Sessions {
    /// By server process.
    by_pid: HashMap<i32, Session>,
    /// Which waited when the database was last asked, and for which.
    blocked: Vec<(i32, Vec<i32>)>,
    /// A session that waits for one which is held at its commit is to give way, whether or not the
    /// order says so.
    all_yield: bool,
    /// Requests for which values were drawn that were recorded of another of their transactions.
    redrawn: HashSet<Request>,
}

#[derive(Debug, Default)]
struct Session {
    claim: Option<Claim>,
    /// It was told to give way.
    yields: Option<Yielded>,
}

impl Shared {
    pub fn new(
        monitor: Monitor,
        recording: Arc<Recording>,
        reading: HashSet<ShapeId>,
        code: Code,
        learned: Learned,
    ) -> Self {
        Self {
            answered_in_order: monitor.with(|c| c.answered_in_order()),
            monitor,
            recording,
            reading,
            refused: Mutex::default(),
            undone: Mutex::default(),
            code,
            lookers: Lookers::default(),
            learned,
            sessions: Mutex::default(),
        }
    }

    /// Reads what only some transactions have. If that fails the run is over.
    pub fn extras(&self, tx: Tx) -> Result<Extras, Unreadable> {
        self.readable(self.recording.extras(tx))
    }

    /// In which orders rows came that were read behind this transaction, from its cursors.
    pub fn fetched(&self, tx: Tx) -> Result<Vec<RowOrder>, Unreadable> {
        let behind = self.monitor.with(|coordinator| coordinator.reads_on(tx));
        let mut orders = Vec::new();
        for tx in behind {
            orders.extend(RowOrder::all(&self.extras(tx)?.row_order));
        }
        Ok(orders)
    }

    /// What the client of a ghost sent.
    pub fn sent_by(&self, ghost: Tx, scripts: &ScriptCache) -> Result<SentAll, Unreadable> {
        let bytes = self.extras(ghost)?.client_bytes.unwrap_or_default();
        Ok(SentAll::read(&bytes, scripts))
    }

    fn readable(&self, extras: io::Result<Extras>) -> Result<Extras, Unreadable> {
        extras.map_err(|error| {
            self.monitor.with(|coordinator| coordinator.fail(error));
            Unreadable
        })
    }

    /// Tells the coordinator of results that it left open what they are, if that is known now, or
    /// if nothing more will be (`all`).
    pub fn settle_results(&self, all: bool) {
        for pending in self.monitor.with(|c| c.take_unexplained(all)) {
            let explained = self.learned.explain(&pending.ended.results, pending.digest);
            let postponed = explained == Explained::Other && !all && self.learned.lacks_values();
            self.monitor.with(|c| match postponed {
                true => c.postpone(pending, explained),
                false => c.explain(&pending, explained),
            });
        }
    }

    /// What a run leaves to be said.
    pub fn remarks(&self) -> Vec<Remark> {
        let mut remarks = self.on_learned();
        let undone = self.undone.lock().unwrap_or_else(PoisonError::into_inner);
        remarks.extend(undone.iter().map(|(statement, &times)| {
            let statement = statement.clone();
            Remark::OutsideWriteUndone { statement, times }
        }));
        let transactions = self.monitor.with(|c| c.reads_let_go());
        remarks.extend((transactions > 0).then_some(Remark::ReadsLetGo { transactions }));
        remarks
    }

    /// How many writes outside of requests were undone.
    pub fn undone(&self) -> u64 {
        let undone = self.undone.lock().unwrap_or_else(PoisonError::into_inner);
        undone.values().sum()
    }

    /// What the service drew otherwise.
    fn on_learned(&self) -> Vec<Remark> {
        let learned = self
            .learned
            .counts()
            .map(|learning| Remark::Learned { learning });
        let drawn = self.monitor.with(|coordinator| coordinator.drawn_results());
        let drawn = drawn.map(|(transactions, statements)| Remark::DrawnResults {
            transactions,
            statements,
        });
        learned.into_iter().chain(drawn).collect()
    }

    pub fn pins(&self, tx: Tx) -> Result<Pins, Unreadable> {
        if self.code != Code::Recorded {
            return self.pins_of_changed(tx);
        }
        let recorded = self.recording.transaction(tx);
        let isolation = Some(recorded.isolation);
        let looks = self.looks(tx);
        // There may be a read among them that another request did originally, or one less.
        let inserts = self.recording.inserting(tx);
        let statements = self.statements(tx, &looks, &inserts, &[]);
        let refused = self.recording.refused(tx).to_vec();
        if self.only_reads(tx) {
            return Ok(Pins {
                isolation,
                reads_only: true,
                looks,
                statements,
                refused,
                row_order: self.extras(tx)?.row_order,
                ..Pins::default()
            });
        }
        let drawn = self.readable(self.recording.drawn(tx))?;
        Ok(Pins {
            row_order: drawn.row_order,
            isolation,
            looks,
            statements,
            refused,
            inserts,
            losing: self.recording.losing(tx),
            changes: self.changes(tx),
            now: recorded.now,
            drawn: drawn.drawn,
            drawn_uuids: drawn.drawn_uuids,
            ..Pins::default()
        })
    }

    /// What an aborted transaction was answered; `None` if that was not kept.
    pub fn recorded_answers(&self, tx: Tx) -> Result<Option<Answered>, Unreadable> {
        let Some(bytes) = self.extras(tx)?.server_bytes else {
            return Ok(None);
        };
        let shape = self.recording.transaction(tx).shape;
        let lookups = |c: &mut Coordinator| {
            let shapes = c.shapes();
            (
                shapes.lookups(shape).to_vec(),
                shapes.moving(shape).to_vec(),
            )
        };
        let (lookups, reads) = self.monitor.with(lookups);
        Ok(Some(Answered {
            bytes,
            lookups,
            reads,
        }))
    }

    /// Changed code may write where the recorded one only read. What writing moved here from a
    /// later transaction of the request is to draw the values that were drawn there.
    fn pins_of_changed(&self, tx: Tx) -> Result<Pins, Unreadable> {
        let recorded = self.recording.transaction(tx);
        let looks = self.looks(tx);
        let inserts = self.recording.inserting(tx);
        let refused = self.recording.refused(tx).to_vec();
        let tries = self.monitor.with(|c| c.shapes().tries(recorded.shape));
        // Where it is known what it lost to, its statement waits for just that.
        let acts_late = self.recording.lost_a_conflict(tx) && !recorded.knows_statements;
        let row_order = self.extras(tx)?.row_order;
        let own = recorded
            .request
            .map(|(request, _)| (request, self.recording.own(request)));
        let alone = [tx];
        let of_request = own.map_or(&alone[..], |(_, own)| own);
        if of_request.iter().all(|&one| self.only_reads(one)) {
            let statements = self.statements(tx, &looks, &inserts, &[]);
            return Ok(Pins {
                reads_only: true,
                acts_late,
                looks,
                row_order,
                statements,
                ..Pins::default()
            });
        }
        let redrawn = own.is_some_and(|(request, _)| self.sessions().redrawn.contains(&request));
        let mut drawn = Extras::default();
        if !recorded.wrote {
            for &one in of_request.iter().skip_while(|&&one| one != tx) {
                let mut extras = self.extras(one)?;
                if one != tx {
                    let numbered = extras.drawn.iter_mut();
                    numbered.for_each(|drawn| drawn.statement = None);
                }
                drawn.drawn.extend(extras.drawn);
                drawn.drawn_uuids.extend(extras.drawn_uuids);
            }
        } else if !redrawn {
            drawn = self.readable(self.recording.drawn(tx))?;
        }
        let statements = self.statements(tx, &looks, &inserts, &drawn.drawn);
        Ok(Pins {
            refused,
            tries,
            losing: self.recording.losing(tx),
            changes: self.changes(tx),
            now: recorded.now,
            drawn: drawn.drawn,
            drawn_uuids: drawn.drawn_uuids,
            wrote: recorded.wrote || recorded.draws_told,
            acts_late,
            looks,
            inserts,
            row_order,
            statements,
            ..Pins::default()
        })
    }

    /// The hashes of a recorded transaction's statements, if some of them look by themselves,
    /// insert in an order or, of changed code, are known to have `drawn` something.
    fn statements(
        &self,
        tx: Tx,
        looks: &Option<Vec<Stretch>>,
        inserts: &[u32],
        drawn: &[Drawn],
    ) -> Vec<u64> {
        let looks = looks.as_deref().unwrap_or_default();
        let draws = drawn.iter().any(|one| one.statement.is_some());
        let loses = !self.recording.losing(tx).is_empty();
        let changes = !self.recording.changes(tx).is_empty();
        let in_order = !inserts.is_empty() || loses || changes;
        if looks.is_empty() && !in_order && !draws {
            return Vec::new();
        }
        let shape = self.recording.transaction(tx).shape;
        self.monitor.with(|coordinator| {
            let statements = coordinator.shapes().statements(shape);
            statements.unwrap_or_default().to_vec()
        })
    }

    fn changes(&self, tx: Tx) -> Vec<u32> {
        let changes = self.recording.changes(tx).iter();
        changes.map(|one| one.statement).collect()
    }

    fn looks(&self, tx: Tx) -> Option<Vec<Stretch>> {
        let is_known = self.recording.transaction(tx).knows_statements;
        is_known.then(|| self.recording.looks().stretches(tx).to_vec())
    }

    pub fn code(&self) -> Code {
        self.code
    }

    fn only_reads(&self, tx: Tx) -> bool {
        let recorded = self.recording.transaction(tx);
        !recorded.wrote && !recorded.draws_told && self.reading.contains(&recorded.shape)
    }

    pub fn wrote(&self, claim: Claim, ids: &[u64], statements: &[String]) {
        if let Claim::Run(tx) = claim
            && !self.recording.transaction(tx).wrote
            && let Some((request, _)) = self.recording.transaction(tx).request
        {
            self.sessions().redrawn.insert(request);
        }
        self.monitor
            .with(|coordinator| coordinator.wrote(claim, ids, statements));
    }

    pub fn enter(&self, pid: Option<i32>, claim: Option<Claim>) {
        if let Some(pid) = pid {
            let session = Session {
                claim,
                yields: None,
            };
            self.sessions().by_pid.insert(pid, session);
        }
    }

    /// Why the session was told to give way. It is asked once, when its statement was cancelled.
    pub fn yielded(&self, pid: Option<i32>) -> Option<Yielded> {
        let mut sessions = self.sessions();
        let session = pid.and_then(|pid| sessions.by_pid.get_mut(&pid));
        let yields = session.and_then(|session| session.yields.take());
        drop(sessions);
        if yields == Some(Yielded::Order) {
            self.monitor.with(|coordinator| coordinator.note_yielded());
        }
        yields
    }

    /// Which session waits for which in the database. Returns those that have to give way.
    pub fn note_blocked(&self, blocked: Vec<(i32, Vec<i32>)>) -> Vec<i32> {
        let asks = self.monitor.waiting();
        let complete = asks.iter().filter_map(|ask| match ask {
            Ask::Commit(tx) => Some(*tx),
            _ => None,
        });
        let complete: HashSet<Tx> = complete.collect();
        let mut sessions = self.sessions();
        let all = std::mem::take(&mut sessions.all_yield);
        let waits: HashMap<i32, &[i32]> = blocked
            .iter()
            .map(|(pid, holders)| (*pid, &holders[..]))
            .collect();
        let claim_of = |pid: i32| sessions.by_pid.get(&pid).and_then(|session| session.claim);
        let held = |holder: &i32| match claim_of(*holder) {
            Some(Claim::Run(tx)) if complete.contains(&tx) => Some(tx),
            _ => None,
        };
        let must_yield = |pid: i32, holders: &[i32]| {
            let mut holders = holders.iter().filter_map(held);
            let claim = claim_of(pid)?;
            let holder = holders.find(|&holder| {
                all || self
                    .monitor
                    .with(|coordinator| coordinator.must_yield(claim, holder))
            })?;
            Some((pid, claim, holder))
        };
        let waits_in_vain = |behind: bool| {
            let in_the_way = |pid, direct: &[i32]| match behind {
                true => in_the_way(pid, &waits),
                false => direct.to_vec(),
            };
            let waiting = blocked.iter();
            waiting
                .filter_map(|(pid, direct)| must_yield(*pid, &in_the_way(*pid, direct)))
                .collect::<Vec<(i32, Claim, Tx)>>()
        };
        let again = self.end_again(&waits, &asks, claim_of);
        // When one gives way, those behind it may go on. If none does, it is up to those behind.
        let mut in_vain = waits_in_vain(false);
        if in_vain.is_empty() {
            in_vain = waits_in_vain(true);
        }
        in_vain.retain(|&(_, claim, holder)| {
            let let_go = |coordinator: &mut Coordinator| coordinator.let_before(holder, claim);
            !self.monitor.with(let_go)
        });
        let again = again.into_iter().map(|pid| (pid, Yielded::Deadlock));
        let in_vain = in_vain.into_iter().map(|(pid, ..)| (pid, Yielded::Order));
        let mut yielding = Vec::new();
        for (pid, why) in again.chain(in_vain) {
            if let Some(session) = sessions.by_pid.get_mut(&pid)
                && session.yields.is_none()
            {
                session.yields = Some(why);
                yielding.push(pid);
            }
        }
        sessions.blocked = blocked;
        yielding
    }

    /// Who ended a deadlock originally ends it again. The database would choose another one, or
    /// does not know of it, as one that is in the way is held until this one is over.
    fn end_again(
        &self,
        waits: &HashMap<i32, &[i32]>,
        asks: &[Ask],
        claim_of: impl Fn(i32) -> Option<Claim>,
    ) -> Vec<i32> {
        let held_for = |holder: i32, tx: Tx| {
            let of_holder = |ask: &&Ask| claim_of(holder) == Some(Claim::Run(ask.tx()));
            let mut own = asks.iter().filter(of_holder);
            own.any(|ask| self.monitor.with(|c| c.is_held_for(*ask, tx)))
        };
        let ends_again = |&pid: &i32| match claim_of(pid) {
            Some(Claim::Run(tx)) if self.recording.was_deadlocked(tx) => {
                let mut holders = in_the_way(pid, waits).into_iter();
                waits_for_itself(pid, waits) || holders.any(|holder| held_for(holder, tx))
            }
            _ => false,
        };
        waits.keys().copied().filter(ends_again).collect()
    }

    /// The transactions that wait in the database.
    pub fn blocked(&self) -> Vec<Claim> {
        let sessions = self.sessions();
        let of = |pid: &i32| sessions.by_pid.get(pid).and_then(|session| session.claim);
        sessions
            .blocked
            .iter()
            .filter_map(|(pid, _)| of(pid))
            .collect()
    }

    /// Sessions that wait for one which is held at its commit give way. False if there are none.
    pub fn make_all_yield(&self) -> bool {
        let mut sessions = self.sessions();
        let there_are = !sessions.blocked.is_empty() && !sessions.all_yield;
        sessions.all_yield = there_are;
        there_are
    }

    /// How many sessions the service has that ran transactions of the recording.
    pub fn connections(&self) -> usize {
        self.sessions().by_pid.len()
    }

    /// The session with this server process has ended.
    pub fn leave(&self, pid: i32) {
        self.sessions().by_pid.remove(&pid);
    }

    fn sessions(&self) -> MutexGuard<'_, Sessions> {
        // It is changed in single steps.
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a session waits for one that waits for it.
fn waits_for_itself(pid: i32, waits: &HashMap<i32, &[i32]>) -> bool {
    let waits_for_it = |one: &i32| waits.get(one).is_some_and(|holders| holders.contains(&pid));
    in_the_way(pid, waits).iter().any(waits_for_it)
}

/// All sessions that one waits for, also those that only stand before it in the queue for a lock
/// and wait themselves.
fn in_the_way(pid: i32, waits: &HashMap<i32, &[i32]>) -> Vec<i32> {
    let mut found = Vec::new();
    let mut ahead = vec![pid];
    while let Some(one) = ahead.pop() {
        for &holder in waits.get(&one).copied().unwrap_or_default() {
            if holder != pid && !found.contains(&holder) {
                found.push(holder);
                ahead.push(holder);
            }
        }
    }
    found
}
