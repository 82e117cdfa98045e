//! The holding gateway: gives every session of the service a [`Holder`].

use std::sync::{Arc, PoisonError};

use bytes::BytesMut;
use hindcast_gateway::pg::{Driver, Flow, Host, Refusal, SessionStart};
use hindcast_order::Tx;
use hindcast_rewind::pins::DATABASE;
use hindcast_taplog::board::Line;
use hindcast_trace::{Isolation, RequestId};
use hindcast_wire::Wires;
use hindcast_wire::frame::Frame;
use hindcast_wire::row_order::RowOrder;
use hindcast_wire::sql::ScriptCache;

use crate::hold::{
    Answered, Code, Context, HoldOptions, Holder, Inserted, Next, Pins, SentAll, Unreadable,
};
use crate::shared::Shared;
use crate::transaction::{Ask, Claim, Ended, Looking, MovedReads, Opening, Stopped, Yielded};
use crate::turns::Turns;

/// A session of the service.
pub struct ServiceContext {
    shared: Arc<Shared>,
    scripts: Arc<ScriptCache>,
    pid: Option<i32>,
    /// Where the session stands on the service's board.
    turns: Option<(Arc<Turns>, Line)>,
}

impl Drop for ServiceContext {
    fn drop(&mut self) {
        if let Some(pid) = self.pid {
            self.shared.leave(pid);
            self.shared.lookers.note(pid, None);
        }
    }
}

impl Context for ServiceContext {
    fn claim(&mut self, request: Option<RequestId>, opening: Opening<'_>) -> Claim {
        self.shared.monitor.with(|c| c.claim(request, opening))
    }
    fn pins(&self, tx: Tx) -> Result<Pins, Unreadable> {
        self.shared.pins(tx)
    }
    fn recorded_answers(&self, tx: Tx) -> Result<Option<Answered>, Unreadable> {
        self.shared.recorded_answers(tx)
    }
    fn fetched(&self, tx: Tx) -> Result<Vec<RowOrder>, Unreadable> {
        self.shared.fetched(tx)
    }
    fn turn(&self) -> Option<RequestId> {
        let (turns, line) = self.turns.as_ref()?;
        turns.whose(*line)
    }
    fn alone(&self) -> Option<RequestId> {
        let knows_turns = self.turns.is_some();
        self.shared.monitor.with(|c| c.alone(knows_turns))
    }
    fn commits_freely(&self, tx: Tx) -> bool {
        self.shared.monitor.commits_freely(tx)
    }
    fn asks_to_see(&mut self, ask: Ask) {
        self.shared.monitor.with(|c| c.asks_to_see(ask));
    }
    fn sees_present(&mut self, ask: Ask) -> bool {
        self.shared.monitor.with(|c| c.sees_present(ask))
    }
    fn asks_to_change(&mut self, tx: Tx, statement: u32) {
        self.shared
            .monitor
            .with(|c| c.asks_to_change(tx, statement));
    }
    fn took_snapshot(&mut self, tx: Tx) {
        self.shared.monitor.with(|c| c.took_snapshot(tx));
    }
    fn looked(&mut self, tx: Tx, nth: u32) {
        self.shared.monitor.with(|c| c.looked(tx, nth));
    }
    fn locked(&mut self, tx: Tx, statement: u32) {
        self.shared.monitor.with(|c| c.locked(tx, statement));
    }
    fn ran(&mut self, tx: Tx) {
        self.shared.monitor.with(|c| c.ran(tx));
    }
    fn ended(&mut self, claim: Claim, ended: Ended) {
        self.shared.monitor.with(|c| c.ended(claim, &ended));
        self.shared.settle_results(false);
    }
    fn came(&mut self, claim: Option<Claim>, statements: &[u64]) {
        self.shared.monitor.with(|c| c.came(claim, statements));
    }
    fn served(&mut self, tx: Tx, complete: bool, moved: MovedReads) {
        self.shared.monitor.with(|c| c.served(tx, complete, moved));
    }
    fn lost(&mut self, claim: Claim, ended: Ended) {
        self.shared.monitor.with(|c| c.lost(claim, ended));
    }
    fn stopped(&mut self, stopped: Stopped) {
        self.shared.monitor.with(|c| c.stopped(stopped));
    }
    fn outside_write_refused(&mut self, statement: &str) {
        let refused = &self.shared.refused;
        let mut refused = refused.lock().unwrap_or_else(PoisonError::into_inner);
        *refused.entry(statement.to_owned()).or_default() += 1;
    }
    fn outside_write_undone(&mut self, statement: &str) {
        let undone = &self.shared.undone;
        let mut undone = undone.lock().unwrap_or_else(PoisonError::into_inner);
        *undone.entry(statement.to_owned()).or_default() += 1;
    }
    fn sent_by(&self, tx: Tx) -> Result<Option<SentAll>, Unreadable> {
        let is_ghost = self.shared.recording.transaction(tx).request.is_none();
        let sent = is_ghost.then(|| self.shared.sent_by(tx, &self.scripts));
        sent.transpose()
    }
    fn done_like(&self, claim: Claim, opening: Opening<'_>) -> Option<Tx> {
        if claim != Claim::Outside || self.shared.code() != Code::Recorded {
            return None;
        }
        self.shared.monitor.with(|c| c.done_like(opening))
    }
    fn is_laid(&self, row: &Inserted) -> bool {
        self.shared.monitor.with(|c| c.is_laid(row))
    }
    fn gave_back(&mut self, tx: Tx) {
        self.shared.monitor.with(|c| c.give_back(tx));
    }
    fn gives_back(&mut self, tx: Tx) -> bool {
        let monitor = &self.shared.monitor;
        let held = !monitor.permits(Ask::Commit(tx));
        let gives_back = held && monitor.with(|c| c.is_by_service(tx));
        if gives_back {
            monitor.with(|c| c.give_back(tx));
        }
        gives_back
    }
    fn waits_no_more(&mut self, tx: Tx) {
        self.shared.monitor.with(|c| c.waits_no_more(tx));
    }
    fn withholds(&mut self, tx: Tx) -> bool {
        let in_order = self.shared.answered_in_order.get(tx.index()) == Some(&true);
        self.shared.monitor.with(|c| {
            let withholds = in_order || c.may_be_kept_back(tx);
            if withholds {
                c.withhold(tx);
            }
            withholds
        })
    }
    fn gave_answer(&mut self, tx: Tx) {
        self.shared.monitor.with(|c| c.gave_answer(tx));
    }
    fn backend(&mut self, pid: i32) {
        self.pid = Some(pid);
    }
    fn looking(&mut self, looking: Option<Looking>) {
        if let Some(pid) = self.pid {
            self.shared.lookers.note(pid, looking);
        }
    }
    fn given(&mut self, message: &Frame) {
        self.shared
            .learned
            .note_given(message.tag(), message.body());
    }
    fn entered(&mut self, claim: Option<Claim>) {
        self.looking(None);
        self.shared.enter(self.pid, claim);
    }
    fn wrote(&mut self, claim: Claim, ids: Vec<u64>, statements: &[String]) {
        self.shared.wrote(claim, &ids, statements);
    }
    fn yielded(&mut self) -> Option<Yielded> {
        self.shared.yielded(self.pid)
    }
}

impl ServiceContext {
    fn permission(&self, ask: Ask) -> Flow {
        let monitor = &self.shared.monitor;
        if monitor.permits(ask) {
            // The host calls back at once.
            return Flow::Wait(Box::pin(std::future::ready(())));
        }
        Flow::Wait(Box::pin(monitor.permission(ask)))
    }
}

pub struct HoldingHost {
    pub shared: Arc<Shared>,
    pub options: HoldOptions,
    /// The rewound database, whatever the service asks for.
    pub database: String,
    pub allow_outside_writes: bool,
    /// What transactions get that do not ask for an isolation, if that is not up to the database.
    pub isolation: Option<Isolation>,
    /// What the service's taps say, if it has any.
    pub turns: Option<Arc<Turns>>,
}

pub struct HoldingDriver {
    holder: Holder,
    context: ServiceContext,
}

impl Host for HoldingHost {
    type Driver = HoldingDriver;

    fn open(&self, start: &mut SessionStart) -> Result<HoldingDriver, Refusal> {
        let parameters = &mut start.parameters;
        // It asks for the recorded one, and finds that name wherever the server tells it.
        let recorded = parameters.database().to_owned();
        parameters.set(DATABASE, &recorded);
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
            context: ServiceContext {
                shared: Arc::clone(&self.shared),
                scripts: Arc::clone(&self.options.scripts),
                pid: None,
                turns: self.turns.clone().zip(start.line),
            },
        })
    }
}

impl HoldingDriver {
    fn flow(&self, next: Next) -> Flow {
        match next {
            Next::Continue => Flow::Continue,
            Next::Wait(ask) => self.context.permission(ask),
            Next::Close => Flow::Close,
        }
    }
}

impl Driver for HoldingDriver {
    fn on_client(&mut self, input: &mut BytesMut, wires: &mut Wires) -> Flow {
        let next = self.holder.on_client(input, wires, &mut self.context);
        self.flow(next)
    }
    fn on_server(&mut self, input: &mut BytesMut, wires: &mut Wires) -> Flow {
        let next = self.holder.on_server(input, wires, &mut self.context);
        self.flow(next)
    }
    fn on_permission(&mut self, wires: &mut Wires) -> Flow {
        let next = self.holder.on_permission(wires, &mut self.context);
        self.flow(next)
    }
    fn keeps(&self) -> bool {
        self.holder.keeps()
    }
    fn send_kept(&mut self, wires: &mut Wires) {
        self.holder.send_kept(wires);
    }
    fn on_client_gone(&mut self, _wires: &mut Wires) {
        self.holder.on_gone(&mut self.context);
    }
    fn on_server_gone(&mut self, _wires: &mut Wires) {
        self.holder.on_gone(&mut self.context);
    }
    fn idle(&self) -> bool {
        self.holder.is_idle()
    }
}
