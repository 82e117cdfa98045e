//! How a transaction begins: which recorded one it stands for, and what has to come before its
//! first statement.

use hindcast_order::Tx;
use hindcast_trace::{Isolation, RequestId};
use hindcast_wire::Status;
use hindcast_wire::message::frontend as client;
use hindcast_wire::sql::{self, Company, Statement};

use super::names::Values;
use super::own::Own;
use super::pins::Pins;
use super::plan::{Plan, Step};
use super::transaction::{Kind, Open};
use super::{Code, Context, Holder, Unplanned};
use crate::reading::only_reads;
use crate::setup::{asks_aside, asks_catalog, sets_up};
use crate::transaction::{Ask, Claim, Opening};

impl Holder {
    /// Statements are about to run. If they are what makes their transaction take its snapshot,
    /// finds out which recorded transaction that is and plans its beginning. Returns the one that
    /// is to be served from the recording instead. `values`: with which the first of them runs that
    /// takes a snapshot.
    pub(super) fn enter(
        &mut self,
        statements: &[&Statement],
        values: Values,
        named: Option<RequestId>,
        cx: &mut impl Context,
        plan: &mut Plan,
    ) -> Result<Option<Tx>, Unplanned> {
        // A `Query` has no frames of its own to note. One that was split is noted when it is
        // through.
        let sent = (!self.is_within_split()).then_some(client::QUERY);
        if let [statement] = statements
            && self.transaction.is_none()
            && matches!(statement.kind, sql::Kind::Begin { .. })
        {
            let mut open = Open::unclaimed(named);
            open.note_sent(sent, None);
            self.transaction = Some(open);
            return Ok(None);
        }
        let Some(opening) = statements.iter().find(|one| one.takes_snapshot) else {
            if let Some(open) = &mut self.transaction {
                // What a driver asks for itself is no part of what is served.
                let is_part = !matches!(statements, [only] if asks_aside(only));
                open.note_sent(sent.filter(|_| is_part), named);
            }
            return Ok(None);
        };
        if let Some(open) = &self.transaction
            && (open.claim().is_some() || self.status == Status::Failed)
        {
            if matches!(open.claim(), Some(Claim::Outside | Claim::InVain)) {
                self.outside = Some(opening.fingerprint.text.clone());
            }
            return Ok(None);
        }
        let earlier = self.transaction.as_ref().and_then(Open::request);
        let request = earlier
            .or(named)
            .or(self.application)
            .or_else(|| cx.turn())
            .or_else(|| cx.alone());
        // What is planned already is not planned again.
        let waited = self.awaited.take().is_some();
        let may_wait = plan.is_empty() && self.split.is_none() && !self.unsynced;
        let claimed = Opening {
            values: values.all,
            each_value: &values.each,
            may_wait: may_wait && !waited,
            waited,
            ..self.opening(statements, opening)
        };
        let claim = cx.claim(request, claimed);
        let like = changes_quietly(opening).then(|| cx.done_like(claim, claimed));
        let changed = self.options.code != Code::Recorded;
        if changed && !matches!(claim, Claim::Later(_) | Claim::Wait(_)) {
            cx.entered(Some(claim));
        }
        let served = self.enter_as(claim, opening, statements, cx, plan)?;
        if let Claim::Run(tx) = claim
            && declares(opening)
        {
            let orders = cx.fetched(tx)?;
            self.fetched.declared(orders);
        }
        if let Some(tx) = like.flatten() {
            self.follow_ghost(tx, opening, cx)?;
        }
        Ok(served)
    }

    /// Returns the transaction that is to be served from the recording.
    fn enter_as(
        &mut self,
        claim: Claim,
        opening: &Statement,
        statements: &[&Statement],
        cx: &mut impl Context,
        plan: &mut Plan,
    ) -> Result<Option<Tx>, Unplanned> {
        let changed = self.options.code != Code::Recorded;
        match claim {
            Claim::CutOff => Err(Unplanned::Close),
            Claim::Wait(tx) => {
                self.awaited = Some(tx);
                Err(Unplanned::Wait(Ask::Ghost(tx)))
            }
            Claim::Later(perhaps) => {
                plan.steps
                    .extend(perhaps.map(|tx| Step::Hold(Ask::Snapshot(tx))));
                Ok(self.enter_later(plan))
            }
            Claim::Serve(tx) => {
                if self.transaction.is_some() {
                    plan.own(Own::Rollback);
                    plan.settle();
                }
                Ok(Some(tx))
            }
            // One too many of a request is named as that, and what is behind the range does not
            // matter.
            Claim::Extra | Claim::Outside | Claim::InVain => {
                self.enter_unheld(claim, opening, statements, plan);
                Ok(None)
            }
            Claim::Run(tx) if changed => self.enter_changed(claim, Some(tx), statements, cx, plan),
            Claim::Run(tx) => {
                let served = self.enter_recorded(tx, statements, cx, plan)?;
                self.follow_ghost(tx, opening, cx)?;
                Ok(served)
            }
            Claim::Added(_) => self.enter_changed(claim, None, statements, cx, plan),
        }
    }

    /// What a driver asks for itself comes first, or what several transactions read, and which one
    /// this is turns out behind that. Then it is too late to say that it may write.
    fn enter_later(&mut self, plan: &mut Plan) -> Option<Tx> {
        let recorded = self.options.code == Code::Recorded;
        let open = self.transaction.as_mut();
        let open = open.expect("the client has begun it");
        if recorded && !open.nested {
            open.nested = true;
            plan.own(Own::Writable);
        }
        None
    }

    /// What tells which transaction statements are of, of which `first` is the first that takes a
    /// snapshot: the first that is not what a driver asks for itself.
    fn opening<'a>(&'a self, statements: &[&'a Statement], first: &'a Statement) -> Opening<'a> {
        let is_own = |one: &&&Statement| one.takes_snapshot && !asks_catalog(one);
        let opening = statements.iter().find(is_own).map_or(first, |one| one);
        let is_alone = self.transaction.is_none() && statements.len() == 1;
        Opening {
            text: &opening.fingerprint.text,
            hash: opening.fingerprint.hash,
            sets_up: sets_up(opening),
            reads_alone: is_alone && only_reads(opening),
            begun: self.transaction.is_some(),
            earlier: self.transaction.as_ref().map_or(&[], Open::hashes),
            values: None,
            each_value: &[],
            may_wait: false,
            waited: false,
        }
    }

    /// The recorded service: sessions are read-only but for what the recording lets write.
    fn enter_recorded(
        &mut self,
        tx: Tx,
        statements: &[&Statement],
        cx: &mut impl Context,
        plan: &mut Plan,
    ) -> Result<Option<Tx>, Unplanned> {
        let claim = Claim::Run(tx);
        let pins = cx.pins(tx)?;
        let isolation = pins.isolation.unwrap_or(Isolation::RepeatableRead);
        plan.hold(Ask::Snapshot(tx));
        if let Some(open) = &mut self.transaction {
            open.set_claim(claim);
            open.pinned(&pins);
            if pins.reads_only || pins.looks.is_some() {
                // Its own first statement takes the snapshot.
                takes_snapshot(open, statements);
            }
            open.looks(pins.looks.unwrap_or_default(), pins.statements);
            if !pins.reads_only {
                // Behind a savepoint it is too late for either.
                if !open.nested {
                    plan.own(Own::ReadWrite(isolation));
                }
                plan.own(Own::Snapshot(tx));
            }
            return Ok(None);
        }
        let alone = any_alone(statements);
        if alone {
            plan.own(Own::SessionReadOnly(false));
        }
        if alone || pins.reads_only {
            let open = self.transaction.insert(Open::claimed(Kind::Direct, claim));
            open.pinned(&pins);
            // Several statements may come before one `Sync`, and see different things.
            if let Some(looks) = pins.looks.filter(|looks| !looks.is_empty()) {
                takes_snapshot(open, statements);
                open.looks(looks, pins.statements);
            }
            return Ok(None);
        }
        let open = self.transaction.insert(Open::claimed(Kind::Wrapped, claim));
        open.pinned(&pins);
        if let Some(looks) = pins.looks {
            takes_snapshot(open, statements);
            open.looks(looks, pins.statements);
        }
        plan.own(Own::Begin(isolation));
        plan.own(Own::Snapshot(tx));
        Ok(None)
    }

    /// Changed code: isolation and access are what it asks for. `tx`: the recorded transaction, if
    /// it is not an added one.
    fn enter_changed(
        &mut self,
        claim: Claim,
        tx: Option<Tx>,
        statements: &[&Statement],
        cx: &mut impl Context,
        plan: &mut Plan,
    ) -> Result<Option<Tx>, Unplanned> {
        // Nothing of ours is needed where nothing is pinned: its own first statement takes the
        // snapshot.
        let (mut pins, mut snapshot) = (Pins::default(), None);
        if let Some(tx) = tx {
            pins = cx.pins(tx)?;
            snapshot = (!pins.reads_only).then_some(Own::Snapshot(tx));
            plan.hold(Ask::Snapshot(tx));
        }
        let reads = !pins.wrote && statements.iter().all(|one| only_reads(one));
        let direct = any_alone(statements) || reads;
        let open = match &mut self.transaction {
            Some(open) => {
                open.set_claim(claim);
                open
            }
            none if direct => {
                snapshot = None;
                none.insert(Open::claimed(Kind::Direct, claim))
            }
            none => {
                plan.own(Own::BeginAsChosen);
                none.insert(Open::claimed(Kind::Wrapped, claim))
            }
        };
        open.acts_late = pins.acts_late;
        open.pin_changed(&pins, snapshot.is_some());
        if snapshot.is_none() || pins.looks.is_some() {
            takes_snapshot(open, statements);
        }
        open.looks(pins.looks.unwrap_or_default(), pins.statements);
        if let Some(snapshot) = snapshot {
            plan.own(snapshot);
        }
        Ok(None)
    }
}

/// Whether it declares a cursor.
fn declares(statement: &Statement) -> bool {
    const DECLARE: &str = "declare ";
    let begins = statement.fingerprint.text.get(..DECLARE.len());
    begins.is_some_and(|begins| begins.eq_ignore_ascii_case(DECLARE))
}

/// One of these statements takes the transaction's snapshot.
fn takes_snapshot(open: &mut Open, statements: &[&Statement]) {
    let mut all = statements.iter();
    let before = all.position(|statement| statement.takes_snapshot);
    let before = before.unwrap_or(statements.len());
    let is_lookup = statements.get(before).is_some_and(|one| asks_catalog(one));
    open.takes_snapshot_after(before as u32, is_lookup);
}

/// Whether one of the statements runs only where it is alone.
pub(super) fn any_alone(statements: &[&Statement]) -> bool {
    statements
        .iter()
        .any(|statement| statement.company == Company::Refused)
}

/// Whether all that is heard of a statement is how many rows it changed.
fn changes_quietly(statement: &Statement) -> bool {
    matches!(statement.kind, sql::Kind::Update | sql::Kind::Delete) && !statement.returning
}
