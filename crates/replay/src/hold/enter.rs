//! How a transaction begins: which recorded one it stands for, and what has to come before its
//! first statement.

use hindcast_order::Tx;
use hindcast_trace::{Isolation, RequestId};
use hindcast_wire::Status;
use hindcast_wire::message::frontend as client;
use hindcast_wire::sql::{self, Company, Statement};

use super::own::Own;
use super::plan::Plan;
use super::transaction::{Kind, Open, Tried};
use super::{Close, Code, Context, Holder};
use crate::setup::{asks_catalog, sets_up};
use crate::shapes::only_reads;
use crate::transaction::{Ask, Claim, Opening};

impl Holder {
    /// Statements are about to run. If they are what makes their transaction take its snapshot,
    /// finds out which recorded transaction that is and plans its beginning. Returns the one that
    /// is to be served from the recording instead. `values`: with which the first of them runs that
    /// takes a snapshot.
    pub(super) fn enter(
        &mut self,
        statements: &[&Statement],
        values: Option<u64>,
        named: Option<RequestId>,
        cx: &mut impl Context,
        plan: &mut Plan,
    ) -> Result<Option<Tx>, Close> {
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
                open.note_sent(sent, named);
            }
            return Ok(None);
        };
        if let Some(open) = &self.transaction
            && (open.claim().is_some() || self.status == Status::Failed)
        {
            if open.claim() == Some(Claim::Outside) {
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
        let claimed = Opening {
            values,
            ..self.opening(statements, opening)
        };
        let claim = cx.claim(request, claimed);
        let changed = self.options.code != Code::Recorded;
        if changed && claim != Claim::Later {
            cx.entered(Some(claim));
        }
        match claim {
            Claim::CutOff => Err(Close),
            Claim::Later => Ok(self.enter_later(plan)),
            Claim::Serve(tx) => {
                if self.transaction.is_some() {
                    plan.own(Own::Rollback);
                    plan.settle();
                }
                Ok(Some(tx))
            }
            // One too many of a request is named as that, and what is behind the range does not
            // matter.
            Claim::Extra | Claim::Outside => {
                self.enter_unheld(claim, opening, statements, cx, plan);
                Ok(None)
            }
            Claim::Run(tx) if changed => self.enter_changed(claim, Some(tx), statements, cx, plan),
            Claim::Run(tx) => self.enter_recorded(tx, statements, cx, plan),
            Claim::Added(_) => self.enter_changed(claim, None, statements, cx, plan),
        }
    }

    /// What a driver asks for itself comes first, and which transaction this is turns out behind
    /// that. Then it is too late to say that it may write.
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
    fn opening<'a>(&self, statements: &[&'a Statement], first: &'a Statement) -> Opening<'a> {
        let is_own = |one: &&&Statement| one.takes_snapshot && !asks_catalog(one);
        let opening = statements.iter().find(is_own).map_or(first, |one| one);
        let is_alone = self.transaction.is_none() && statements.len() == 1;
        Opening {
            text: &opening.fingerprint.text,
            hash: opening.fingerprint.hash,
            sets_up: sets_up(opening),
            reads_alone: is_alone && only_reads(opening),
            begun: self.transaction.is_some(),
            values: None,
        }
    }

    /// What is not part of the replay is neither held nor followed.
    fn enter_unheld(
        &mut self,
        claim: Claim,
        opening: &Statement,
        statements: &[&Statement],
        cx: &impl Context,
        plan: &mut Plan,
    ) {
        let is_outside = claim == Claim::Outside;
        if is_outside && self.try_outside(opening, statements, cx, plan) {
            return;
        }
        self.outside = is_outside.then(|| opening.fingerprint.text.clone());
        let only_reads = Code::Changed {
            outside_writes: false,
        };
        let seclude = is_outside && self.options.code == only_reads;
        let reads_only = self.reads_only;
        match &mut self.transaction {
            Some(open) => {
                open.set_claim(claim);
                if seclude || open.nested && reads_only {
                    plan.own(Own::ReadOnly);
                }
            }
            None if seclude => {
                plan.secluded = true;
                plan.own(Own::SessionReadOnly(true));
                plan.settle();
            }
            None => {}
        }
    }

    /// A service that starts looks after its tables: it makes those that are not there, takes and
    /// gives back the lock of its migrations. That has been done, by ghosts or in the base. What
    /// changes nothing is done again; what does is undone at the end of its transaction.
    ///
    /// Where the service works on requests, this is for what says itself that it may have been
    /// done: its background work would find that a job which it has taken is still there, and take
    /// it again.
    fn try_outside(
        &mut self,
        opening: &Statement,
        statements: &[&Statement],
        cx: &impl Context,
        plan: &mut Plan,
    ) -> bool {
        let recorded = self.options.code == Code::Recorded;
        let reads_only = match self.options.code {
            Code::Recorded => self.reads_only,
            Code::Changed { outside_writes } => !outside_writes,
        };
        if !reads_only || !(cx.is_starting() || may_have_been_done(opening)) {
            return false;
        }
        let tried = Some(Tried::default());
        match &mut self.transaction {
            Some(open) => {
                open.set_claim(Claim::Outside);
                open.tried = tried;
                // Behind a savepoint it was said before that.
                if recorded && !open.nested {
                    plan.own(Own::Writable);
                }
            }
            none if !any_alone(statements) && !statements.iter().all(|one| only_reads(one)) => {
                let open = Open::claimed(Kind::Wrapped, Claim::Outside);
                none.insert(open).tried = tried;
                plan.own(Own::BeginAsChosen);
            }
            None => return false,
        }
        plan.own(Own::Patience);
        true
    }

    /// The recorded service: sessions are read-only but for what the recording lets write.
    fn enter_recorded(
        &mut self,
        tx: Tx,
        statements: &[&Statement],
        cx: &mut impl Context,
        plan: &mut Plan,
    ) -> Result<Option<Tx>, Close> {
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
    ) -> Result<Option<Tx>, Close> {
        // Nothing of ours is needed where nothing is pinned: its own first statement takes the
        // snapshot.
        let (mut acts_late, mut snapshot, mut wrote) = (false, None, false);
        let mut looks = None;
        if let Some(tx) = tx {
            let pins = cx.pins(tx)?;
            looks = pins.looks.map(|looks| (looks, pins.statements));
            acts_late = pins.acts_late;
            wrote = pins.wrote;
            snapshot = (!pins.reads_only).then_some(Own::Snapshot(tx));
            plan.hold(Ask::Snapshot(tx));
        }
        let reads = !wrote && statements.iter().all(|one| only_reads(one));
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
        open.acts_late = acts_late;
        if snapshot.is_none() || looks.is_some() {
            takes_snapshot(open, statements);
        }
        if let Some((looks, recorded)) = looks {
            open.looks(looks, recorded);
        }
        if let Some(snapshot) = snapshot {
            plan.own(snapshot);
        }
        Ok(None)
    }
}

/// Whether a statement says that what it makes may be there.
fn may_have_been_done(statement: &Statement) -> bool {
    let text = statement.fingerprint.text.to_ascii_lowercase();
    let defines = ["create ", "alter ", "drop "]
        .iter()
        .any(|verb| text.starts_with(verb));
    let says = ["if not exists", "or replace", "if exists"];
    defines && says.iter().any(|words| text.contains(words))
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
