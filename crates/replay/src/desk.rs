//! Sessions at the gate: the holding gateway's driver, and what it knows.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::BytesMut;
use hindcast_gateway::pg::{Driver, Flow, Host, Refusal, SessionStart, Wires};
use hindcast_order::{Request, Tx};
use hindcast_trace::{Id, Isolation, RequestId, SequenceValue, ShapeId};

use crate::coordinator::{Ask, Claim, Ended};
use crate::gate::Gate;
use crate::hold::{Code, Desk, HoldOptions, Holder, Next, Pins};
use crate::recording::Recording;

/// What all sessions of a replay share.
pub struct Floor {
    pub gate: Gate,
    pub recording: Arc<Recording>,
    /// Shapes that only read; see [`Pins::reads_only`].
    pub reading: HashSet<ShapeId>,
    /// The request in flight if there is exactly one, else 0.
    pub alone: AtomicU64,
    /// Writes outside any request that were refused, by statement.
    pub refused: Mutex<BTreeMap<String, u64>>,
    code: Code,
    /// Of changed code.
    sessions: Mutex<Sessions>,
}

/// The sessions of changed code, and who of them waits for whom in the database.
#[derive(Debug, Default)]
struct Sessions {
    /// By server process.
    by_pid: HashMap<i32, Session>,
    /// Who waited when the database was last asked, and for whom.
    blocked: Vec<(i32, Vec<i32>)>,
    /// Whoever waits for somebody at a commit is to give way, whether or not the order says so.
    all_yield: bool,
    /// Requests for which values were drawn that were recorded of another of their transactions.
    redrawn: HashSet<Request>,
}

#[derive(Debug, Default)]
struct Session {
    claim: Option<Claim>,
    /// It was told to give way.
    yields: bool,
}

impl Floor {
    pub fn new(
        gate: Gate,
        recording: Arc<Recording>,
        reading: HashSet<ShapeId>,
        code: Code,
    ) -> Self {
        Self {
            gate,
            recording,
            reading,
            alone: AtomicU64::new(0),
            refused: Mutex::default(),
            code,
            sessions: Mutex::default(),
        }
    }

    pub fn pins(&self, tx: Tx) -> Pins {
        if self.code != Code::Recorded {
            return self.pins_of_changed(tx);
        }
        let recorded = self.recording.transaction(tx);
        if self.only_reads(tx) {
            return Pins {
                isolation: Some(recorded.isolation),
                reads_only: true,
                ..Pins::default()
            };
        }
        Pins {
            isolation: Some(recorded.isolation),
            now: recorded.now,
            sequence_values: self.sequence_values(tx),
            ..Pins::default()
        }
    }

    /// Changed code may write where the recorded one only read. What writing moved here from a later transaction of the request is to
    /// draw the values that were drawn there.
    fn pins_of_changed(&self, tx: Tx) -> Pins {
        let recorded = self.recording.transaction(tx);
        let acts_late = self.recording.lost_a_conflict(tx);
        let own = recorded
            .request
            .map(|(request, _)| (request, self.recording.own(request)));
        let alone = [tx];
        let of_request = own.map_or(&alone[..], |(_, own)| own);
        if of_request.iter().all(|&one| self.only_reads(one)) {
            return Pins {
                reads_only: true,
                acts_late,
                ..Pins::default()
            };
        }
        let redrawn = own.is_some_and(|(request, _)| self.sessions().redrawn.contains(&request));
        let mut sequence_values = Vec::new();
        if !recorded.wrote {
            let later = of_request.iter().skip_while(|&&one| one != tx);
            sequence_values.extend(later.flat_map(|&one| self.sequence_values(one)));
        } else if !redrawn {
            sequence_values = self.sequence_values(tx);
        }
        Pins {
            now: recorded.now,
            sequence_values,
            acts_late,
            ..Pins::default()
        }
    }

    fn only_reads(&self, tx: Tx) -> bool {
        let recorded = self.recording.transaction(tx);
        !recorded.wrote && self.reading.contains(&recorded.shape)
    }

    /// A temporary file that cannot be read back would show as a difference in the sequence values.
    fn sequence_values(&self, tx: Tx) -> Vec<SequenceValue> {
        let extras = self.recording.extras(tx);
        extras.unwrap_or_default().sequence_values
    }

    fn wrote(&self, claim: Claim, ids: &[u64], statements: &[String]) {
        if let Claim::Run(tx) = claim
            && !self.recording.transaction(tx).wrote
            && let Some((request, _)) = self.recording.transaction(tx).request
        {
            self.sessions().redrawn.insert(request);
        }
        self.gate
            .with(|coordinator| coordinator.wrote(claim, ids, statements));
    }

    fn enter(&self, pid: Option<i32>, claim: Option<Claim>) {
        if let Some(pid) = pid {
            let session = Session {
                claim,
                yields: false,
            };
            self.sessions().by_pid.insert(pid, session);
        }
    }

    /// Whether the session was told to give way. It is asked once, when its statement was cancelled.
    fn yielded(&self, pid: Option<i32>) -> bool {
        let mut sessions = self.sessions();
        let session = pid.and_then(|pid| sessions.by_pid.get_mut(&pid));
        let yields = session.is_some_and(|session| std::mem::take(&mut session.yields));
        drop(sessions);
        if yields {
            self.gate.with(|coordinator| coordinator.note_yielded());
        }
        yields
    }

    /// Who waits for whom in the database. Returns those who have to give way.
    pub fn note_blocked(&self, blocked: Vec<(i32, Vec<i32>)>) -> Vec<i32> {
        let complete: HashSet<Tx> = self
            .gate
            .waiting()
            .into_iter()
            .filter_map(|ask| match ask {
                Ask::Commit(tx) => Some(tx),
                _ => None,
            })
            .collect();
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
            claim_of(pid).is_some_and(|claim| {
                holders.any(|holder| {
                    all || self
                        .gate
                        .with(|coordinator| coordinator.must_yield(claim, holder))
                })
            })
        };
        let waits_in_vain = |behind: bool| {
            let in_the_way = |pid, direct: &[i32]| match behind {
                true => in_the_way(pid, &waits),
                false => direct.to_vec(),
            };
            let waiting = blocked.iter();
            waiting
                .filter(|(pid, direct)| must_yield(*pid, &in_the_way(*pid, direct)))
                .map(|(pid, _)| *pid)
                .collect::<Vec<i32>>()
        };
        // When somebody gives way, those behind them may go on. If nobody does, it is up to those behind.
        let mut in_vain = waits_in_vain(false);
        if in_vain.is_empty() {
            in_vain = waits_in_vain(true);
        }
        let mut yielding = Vec::new();
        for pid in in_vain {
            if let Some(session) = sessions.by_pid.get_mut(&pid)
                && !std::mem::replace(&mut session.yields, true)
            {
                yielding.push(pid);
            }
        }
        sessions.blocked = blocked;
        yielding
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

    /// Whoever waits for somebody who is held at a commit gives way. False if there is nobody.
    pub fn make_all_yield(&self) -> bool {
        let mut sessions = self.sessions();
        let there_are = !sessions.blocked.is_empty() && !sessions.all_yield;
        sessions.all_yield = there_are;
        there_are
    }

    fn sessions(&self) -> MutexGuard<'_, Sessions> {
        // It is changed in single steps.
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn permission(&self, ask: Ask) -> Flow {
        if self.gate.permits(ask) {
            // The host calls back at once.
            return Flow::Wait(Box::pin(std::future::ready(())));
        }
        Flow::Wait(Box::pin(self.gate.permission(ask)))
    }
}

/// Everybody whom a session waits for, also those who only stand before it in the queue for a lock and wait themselves.
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

/// A session of the service.
pub struct ServiceDesk {
    floor: Arc<Floor>,
    pid: Option<i32>,
}

impl Drop for ServiceDesk {
    fn drop(&mut self) {
        if let Some(pid) = self.pid {
            self.floor.sessions().by_pid.remove(&pid);
        }
    }
}

impl Desk for ServiceDesk {
    fn claim(&mut self, request: Option<RequestId>, opening: u64) -> Claim {
        self.floor
            .gate
            .with(|coordinator| coordinator.claim(request, opening))
    }
    fn pins(&self, tx: Tx) -> Pins {
        self.floor.pins(tx)
    }
    fn recorded_answers(&self, tx: Tx) -> Option<Vec<u8>> {
        self.floor.recording.extras(tx).ok()?.server_bytes
    }
    fn alone(&self) -> Option<RequestId> {
        Some(self.floor.alone.load(Ordering::Acquire))
            .filter(|&id| id != 0)
            .map(Id)
    }
    fn took_snapshot(&mut self, tx: Tx) {
        self.floor
            .gate
            .with(|coordinator| coordinator.took_snapshot(tx));
    }
    fn locked(&mut self, tx: Tx, statement: u32) {
        self.floor
            .gate
            .with(|coordinator| coordinator.locked(tx, statement));
    }
    fn ran(&mut self, tx: Tx) {
        self.floor.gate.with(|coordinator| coordinator.ran(tx));
    }
    fn ended(&mut self, claim: Claim, ended: Ended) {
        self.floor
            .gate
            .with(|coordinator| coordinator.ended(claim, &ended));
    }
    fn served(&mut self, tx: Tx, complete: bool) {
        self.floor
            .gate
            .with(|coordinator| coordinator.served(tx, complete));
    }
    fn lost(&mut self, claim: Claim) {
        self.floor.gate.with(|coordinator| coordinator.lost(claim));
    }
    fn outside_write_refused(&mut self, statement: &str) {
        let mut refused = self
            .floor
            .refused
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *refused.entry(statement.to_owned()).or_default() += 1;
    }
    fn backend(&mut self, pid: i32) {
        self.pid = Some(pid);
    }
    fn entered(&mut self, claim: Option<Claim>) {
        self.floor.enter(self.pid, claim);
    }
    fn wrote(&mut self, claim: Claim, ids: Vec<u64>, statements: &[String]) {
        self.floor.wrote(claim, &ids, statements);
    }
    fn yielded(&mut self) -> bool {
        self.floor.yielded(self.pid)
    }
}

/// Gives every session of the service a [`Holder`].
pub struct HoldingHost {
    pub floor: Arc<Floor>,
    pub options: HoldOptions,
    /// The rewound database, whatever the service asks for.
    pub database: String,
    pub allow_outside_writes: bool,
    /// What transactions get that do not ask for an isolation, if that is not up to the database.
    pub isolation: Option<Isolation>,
}

pub struct HoldingDriver {
    holder: Holder,
    desk: ServiceDesk,
}

impl Host for HoldingHost {
    type Driver = HoldingDriver;

    fn open(&self, start: &mut SessionStart) -> Result<HoldingDriver, Refusal> {
        let parameters = &mut start.parameters;
        parameters.set("database", &self.database);
        // Nothing of a replay needs to survive a crash (R³ §3.5).
        parameters.set("synchronous_commit", "off");
        // Changed code may write in any request; it is made read-only where it is outside of one.
        if !self.allow_outside_writes && self.options.code == Code::Recorded {
            parameters.set("default_transaction_read_only", "on");
        }
        if let Some(isolation) = self.isolation
            && !parameters.chooses("default_transaction_isolation")
        {
            let level = match isolation {
                Isolation::ReadCommitted => "read committed",
                Isolation::RepeatableRead => "repeatable read",
                Isolation::Serializable => "serializable",
            };
            parameters.set("default_transaction_isolation", level);
        }
        Ok(HoldingDriver {
            holder: Holder::new(self.options.clone()),
            desk: ServiceDesk {
                floor: Arc::clone(&self.floor),
                pid: None,
            },
        })
    }
}

impl HoldingDriver {
    fn flow(&self, next: Next) -> Flow {
        match next {
            Next::Continue => Flow::Continue,
            Next::Wait(ask) => self.desk.floor.permission(ask),
            Next::Close => Flow::Close,
        }
    }
}

impl Driver for HoldingDriver {
    fn on_client(&mut self, input: &mut BytesMut, wires: &mut Wires) -> Flow {
        let next = self.holder.on_client(input, wires, &mut self.desk);
        self.flow(next)
    }
    fn on_server(&mut self, input: &mut BytesMut, wires: &mut Wires) -> Flow {
        let next = self.holder.on_server(input, wires, &mut self.desk);
        self.flow(next)
    }
    fn on_permission(&mut self, wires: &mut Wires) -> Flow {
        let next = self.holder.on_permission(wires, &mut self.desk);
        self.flow(next)
    }
    fn on_client_gone(&mut self, _wires: &mut Wires) {
        self.holder.on_client_gone(&mut self.desk);
    }
    fn on_server_gone(&mut self, _wires: &mut Wires) {
        self.holder.on_server_gone(&mut self.desk);
    }
    fn idle(&self) -> bool {
        self.holder.is_idle()
    }
}
