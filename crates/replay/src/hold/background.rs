//! What belongs to no request: ghosts that the service does itself, and what is undone.

use bytes::{Bytes, BytesMut};
use hindcast_order::Tx;
use hindcast_wire::each_value;
use hindcast_wire::frame::Frame;
use hindcast_wire::sql::{self, Statement};

use super::enter::any_alone;
use super::names::Message;
use super::own::Own;
use super::plan::Plan;
use super::sent::{Sent, lays_one_row};
use super::transaction::{Ghost, Kind, Open, Tried};
use super::{Code, Context, Holder, Unplanned};
use crate::reading::only_reads;
use crate::setup::sets_up;
use crate::transaction::Claim;

impl Open {
    /// The statement that comes next, as the ghost ran it.
    fn next_of_ghost(&self, statement: &Statement) -> Option<&Sent> {
        let next = self.ghost.as_ref()?.sent.get(self.statements() as usize)?;
        (self.is_like_ghost(statement) && next.hash == statement.fingerprint.hash).then_some(next)
    }

    /// What the ghost inserted is there, where the recording has done it.
    fn is_like_ghost(&self, statement: &Statement) -> bool {
        self.run().is_some() || statement.kind != sql::Kind::Insert
    }

    /// Whether all of its statements, with these that are still to be sent, are those of the ghost.
    fn is_as_ghost(&self, ghost: &Ghost, next: Option<&Statement>) -> bool {
        let next = next.map(|statement| statement.fingerprint.hash);
        let now = self.hashes().iter().copied().chain(next);
        ghost.sent.iter().map(|one| one.hash).eq(now)
    }
}

impl Holder {
    /// The transaction stands for a recorded one, or is like one that the recording has done. If
    /// that is a ghost, its statements run with the values that were recorded: clocks and random
    /// values of background work are not pinned.
    pub(super) fn follow_ghost(
        &mut self,
        tx: Tx,
        opening: &Statement,
        cx: &impl Context,
    ) -> Result<(), Unplanned> {
        if let Some(all) = cx.sent_by(tx)?
            && let Some(open) = &mut self.transaction
        {
            open.ghost = Some(Ghost {
                sent: all.statements,
                opening: opening.fingerprint.text.clone(),
            });
        }
        Ok(())
    }

    /// A text, with the values that the ghost had.
    pub(super) fn text_of_ghost(&self, statements: &[&Statement]) -> Option<Bytes> {
        let open = self.transaction.as_ref()?;
        let from = open.statements() as usize;
        let sent = open
            .ghost
            .as_ref()?
            .sent
            .get(from..from + statements.len())?;
        let mut whole = BytesMut::new();
        for (one, statement) in sent.iter().zip(statements) {
            if one.hash != statement.fingerprint.hash || !open.is_like_ghost(statement) {
                return None;
            }
            if !whole.is_empty() {
                whole.extend_from_slice(b"; ");
            }
            whole.extend_from_slice(one.text()?);
        }
        Some(whole.freeze())
    }

    /// A `Bind`, with the values that the ghost had.
    pub(super) fn bind_of_ghost(&self, bind: &Message) -> Option<Frame> {
        let open = self.transaction.as_ref()?;
        open.next_of_ghost(bind.statement()?)?.rebound(&bind.frame)
    }

    /// The transaction is about to commit, with this statement or by itself. If it is not what the
    /// ghost was, it is undone, and the ghost is done as it was recorded.
    pub(super) fn depart(&mut self, commit: Option<&Statement>, cx: &mut impl Context) {
        let Some(open) = &mut self.transaction else {
            return;
        };
        let (Some(tx), Some(ghost)) = (open.run(), open.ghost.take()) else {
            return;
        };
        if open.is_as_ghost(&ghost, commit) {
            open.departs = Some(ghost.opening);
            return;
        }
        open.set_claim(Claim::Outside);
        open.tried = Some(Tried {
            statement: ghost.opening,
            wrote: true,
        });
        cx.gave_back(tx);
    }

    /// A ghost may commit, or nothing has moved since it asked for that: then what it waits for may
    /// wait for this session, as in a service that has one connection and a lock around it. It is
    /// undone, its client hears that it has committed, and the recording does it.
    pub(super) fn may_depart(&mut self, tx: Tx, cx: &mut impl Context) {
        let Some(open) = &mut self.transaction else {
            return;
        };
        let Some(statement) = open.departs.take() else {
            return;
        };
        let Some(plan) = self.session.plan().filter(|_| cx.gives_back(tx)) else {
            return;
        };
        let is_wrapped = open.kind == Kind::Wrapped;
        open.set_claim(Claim::Outside);
        open.tried = Some(Tried {
            statement,
            wrote: true,
        });
        plan.own_first(match is_wrapped {
            true => Own::Rollback,
            false => Own::Undo,
        });
    }

    /// A statement is bound that lays a row outside of requests: if a ghost has laid it, it is not
    /// run, since it would find it there.
    pub(super) fn note_laid(&mut self, bind: &Message, cx: &impl Context) {
        let Some(open) = self.transaction.as_mut().filter(|one| one.tried.is_some()) else {
            return;
        };
        if let Some(statement) = bind.statement().filter(|one| lays_one_row(one)) {
            let values = each_value(statement, Some(bind.frame.body()));
            let is_laid = cx.is_laid(&(statement.fingerprint.hash, values));
            open.laid = is_laid.then(|| open.statements());
        }
    }

    /// A statement that was just counted looks for something to do, in vain: it is not run, since
    /// it would keep what there is from others until it is undone. Or it lays a row that is there.
    /// Returns how it completes.
    pub(super) fn completes_at_once(&self, statement: Option<&Statement>) -> Option<&'static [u8]> {
        let open = self.transaction.as_ref()?;
        if statement.is_some() && open.laid.map(|at| at + 1) == Some(open.statements()) {
            return Some(b"INSERT 0 1");
        }
        let is_it = open.in_vain.map(|at| at + 1) == Some(open.statements());
        Some(match statement.filter(|_| is_it)?.kind {
            sql::Kind::Insert => b"INSERT 0 0",
            sql::Kind::Update => b"UPDATE 0",
            sql::Kind::Delete => b"DELETE 0",
            sql::Kind::Merge => b"MERGE 0",
            _ => b"SELECT 0",
        })
    }

    /// The client is answered the statement by which it looked for something to do.
    pub(super) fn is_in_vain(&self) -> bool {
        let open = self.transaction.as_ref();
        open.is_some_and(|open| open.in_vain == Some(open.answered()))
    }

    /// What is not part of the replay is neither held nor followed.
    pub(super) fn enter_unheld(
        &mut self,
        claim: Claim,
        opening: &Statement,
        statements: &[&Statement],
        plan: &mut Plan,
    ) {
        let is_outside = matches!(claim, Claim::Outside | Claim::InVain);
        if is_outside && self.try_outside(claim, opening, statements, plan) {
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

    /// What the service does outside of requests, and no ghost is left that it is, has been done,
    /// by a ghost or before: it looks after its tables when it starts, says that it is alive, looks
    /// for something to do. What changes nothing is done again; what does is undone at the end of
    /// its transaction.
    fn try_outside(
        &mut self,
        claim: Claim,
        opening: &Statement,
        statements: &[&Statement],
        plan: &mut Plan,
    ) -> bool {
        let recorded = self.options.code == Code::Recorded;
        let reads_only = match self.options.code {
            Code::Recorded => self.reads_only,
            Code::Changed { outside_writes } => !outside_writes,
        };
        if !reads_only {
            return false;
        }
        let open = match &mut self.transaction {
            Some(open) => {
                open.set_claim(claim);
                // Behind a savepoint it was said before that.
                if recorded && !open.nested {
                    plan.own(Own::Writable);
                }
                open
            }
            none if !any_alone(statements) && !statements.iter().all(|one| reads(one)) => {
                plan.own(Own::BeginAsChosen);
                none.insert(Open::claimed(Kind::Wrapped, claim))
            }
            None => return false,
        };
        open.tried = Some(Tried {
            statement: opening.fingerprint.text.clone(),
            wrote: false,
        });
        if claim == Claim::InVain {
            let before = statements
                .iter()
                .position(|one| std::ptr::eq(*one, opening));
            open.in_vain = Some(open.statements() + before.unwrap_or(0) as u32);
        }
        plan.own(Own::Patience);
        true
    }
}

/// Whether a statement does nothing but read, as far as its text tells: it may call a function.
fn reads(statement: &Statement) -> bool {
    let calls = statement.fingerprint.text.contains('(');
    only_reads(statement) && (sets_up(statement) || !calls)
}
