//! How a transaction begins: which recorded one it stands for, and what has to come before its first statement.

use hindcast_order::Tx;
use hindcast_trace::{Isolation, RequestId};
use hindcast_wire::Status;
use hindcast_wire::message::frontend as client;
use hindcast_wire::sql::{self, Company, Statement};

use super::own::Own;
use super::{Code, Desk, Holder, Kind, Open, Step};
use crate::coordinator::{Ask, Claim};
use crate::shapes::only_reads;

/// How the transaction of a batch begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entered {
    /// With nothing around it.
    Plain,
    /// In a transaction of ours, to be committed behind it.
    Wrapped,
    Serve(Tx),
}

impl Holder {
    /// Statements are about to run. If they are what makes their transaction take its snapshot, finds out which recorded transaction that is
    /// and plans its beginning.
    pub(super) fn enter(
        &mut self,
        statements: &[&Statement],
        named: Option<RequestId>,
        desk: &mut impl Desk,
        steps: &mut Vec<Step>,
    ) -> Entered {
        let last_of_split = self
            .split
            .as_ref()
            .is_none_or(|split| split.rest.is_empty());
        if let [statement] = statements
            && self.transaction.is_none()
            && matches!(statement.kind, sql::Kind::Begin { .. })
        {
            let mut open = Open::new(Kind::Explicit, None);
            // A `Query` has no frames of its own to note. One that was split is noted when it is through.
            if last_of_split {
                open.before_claim.push(client::QUERY);
            }
            open.request = named;
            self.transaction = Some(open);
            return Entered::Plain;
        }
        let Some(opening) = statements.iter().find(|statement| statement.takes_snapshot) else {
            if let Some(open) = self
                .transaction
                .as_mut()
                .filter(|open| open.claim.is_none() && open.kind == Kind::Explicit)
            {
                if last_of_split {
                    open.before_claim.push(client::QUERY);
                }
                open.request = open.request.or(named);
            }
            return Entered::Plain;
        };
        if let Some(open) = &self.transaction
            && (open.claim.is_some() || self.status == Status::Failed)
        {
            if open.claim == Some(Claim::Outside) {
                self.outside = Some(opening.fingerprint.text.clone());
            }
            return Entered::Plain;
        }
        let earlier = self.transaction.as_ref().and_then(|open| open.request);
        let request = earlier
            .or(named)
            .or(self.application)
            .or_else(|| desk.alone());
        let claim = desk.claim(request, opening.fingerprint.hash);
        let changed = self.options.code != Code::Recorded;
        if changed {
            desk.entered(Some(claim));
        }
        match claim {
            Claim::Serve(tx) => {
                if self.transaction.is_some() {
                    steps.extend([Step::Own(Own::Rollback), Step::Settle]);
                }
                Entered::Serve(tx)
            }
            // One too many of a request is named as that, and what is behind the range is nobody's business.
            Claim::Extra | Claim::Outside => self.enter_unheld(claim, opening, steps),
            Claim::Run(_) | Claim::Added(_) if changed => {
                self.enter_changed(claim, statements, desk, steps)
            }
            Claim::Run(_) | Claim::Added(_) => self.enter_recorded(claim, statements, desk, steps),
        }
    }

    /// What is not part of the replay is neither held nor followed.
    fn enter_unheld(
        &mut self,
        claim: Claim,
        opening: &Statement,
        steps: &mut Vec<Step>,
    ) -> Entered {
        self.outside = (claim == Claim::Outside).then(|| opening.fingerprint.text.clone());
        let seclude = claim == Claim::Outside
            && self.options.code
                == Code::Changed {
                    outside_writes: false,
                };
        match &mut self.transaction {
            Some(open) => {
                open.claim = Some(claim);
                if seclude {
                    steps.push(Step::Own(Own::ReadOnly));
                }
            }
            None if seclude => {
                self.secluded = true;
                steps.extend([Step::Own(Own::SessionReadOnly(true)), Step::Settle]);
            }
            None => {}
        }
        Entered::Plain
    }

    /// The recorded service: sessions are read-only but for what the recording lets write.
    fn enter_recorded(
        &mut self,
        claim: Claim,
        statements: &[&Statement],
        desk: &mut impl Desk,
        steps: &mut Vec<Step>,
    ) -> Entered {
        let Claim::Run(tx) = claim else {
            return Entered::Plain;
        };
        let pins = desk.pins(tx);
        let isolation = pins.isolation.unwrap_or(Isolation::RepeatableRead);
        steps.push(Step::Hold(Ask::Snapshot(tx)));
        if let Some(open) = &mut self.transaction {
            open.claim = Some(claim);
            open.before_claim = Vec::new();
            if pins.reads_only {
                // Nothing of ours is needed: its own first statement takes the snapshot.
                open.snapshot_at = Some(open.statements + before_snapshot(statements));
            } else {
                steps.extend([
                    Step::Own(Own::ReadWrite(isolation)),
                    Step::Own(Own::Snapshot(tx)),
                ]);
            }
            return Entered::Plain;
        }
        let alone = statements
            .iter()
            .any(|statement| statement.company == Company::Refused);
        if alone {
            steps.push(Step::Own(Own::SessionReadOnly(false)));
        }
        if alone || pins.reads_only {
            self.transaction = Some(Open::new(Kind::Direct, Some(claim)));
            return Entered::Plain;
        }
        self.transaction = Some(Open::new(Kind::Wrapped, Some(claim)));
        steps.extend([
            Step::Own(Own::Begin(isolation)),
            Step::Own(Own::Snapshot(tx)),
        ]);
        Entered::Wrapped
    }

    /// Changed code: isolation and access are what it asks for.
    fn enter_changed(
        &mut self,
        claim: Claim,
        statements: &[&Statement],
        desk: &mut impl Desk,
        steps: &mut Vec<Step>,
    ) -> Entered {
        let recorded = match claim {
            Claim::Run(tx) => Some((tx, desk.pins(tx))),
            _ => None,
        };
        let acts_late = recorded.as_ref().is_some_and(|(_, pins)| pins.acts_late);
        let hold = recorded
            .iter()
            .map(|(tx, _)| Step::Hold(Ask::Snapshot(*tx)));
        steps.extend(hold);
        // Nothing of ours is needed where nothing is pinned: its own first statement takes the snapshot.
        let pinned = recorded
            .filter(|(_, pins)| !pins.reads_only)
            .map(|(tx, _)| tx);
        let snapshot = pinned.map(|tx| Step::Own(Own::Snapshot(tx)));
        let before_snapshot = before_snapshot(statements);
        if let Some(open) = &mut self.transaction {
            open.claim = Some(claim);
            open.before_claim = Vec::new();
            open.acts_late = acts_late;
            if snapshot.is_none() {
                open.snapshot_at = Some(open.statements + before_snapshot);
            }
            steps.extend(snapshot);
            return Entered::Plain;
        }
        let direct = statements.iter().all(|statement| only_reads(statement))
            || statements
                .iter()
                .any(|statement| statement.company == Company::Refused);
        let mut open = Open::new(
            if direct { Kind::Direct } else { Kind::Wrapped },
            Some(claim),
        );
        open.acts_late = acts_late;
        if snapshot.is_none() || direct {
            open.snapshot_at = Some(before_snapshot);
        }
        self.transaction = Some(open);
        if direct {
            return Entered::Plain;
        }
        steps.push(Step::Own(Own::BeginAsChosen));
        steps.extend(snapshot);
        Entered::Wrapped
    }
}

/// How many statements come before the one that takes the snapshot.
fn before_snapshot(statements: &[&Statement]) -> u32 {
    let before = statements
        .iter()
        .take_while(|statement| !statement.takes_snapshot);
    before.count() as u32
}
