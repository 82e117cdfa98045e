//! Which of our statements stay prepared in the client's session.
//!
//! To bind a statement that is not there aborts the client's transaction, and a statement that the
//! client does not know must not show among its own. So one is bound only once the server has run
//! it, all are closed before a text that may deallocate or list them, and none is kept where that
//! may happen out of our sight: in a database with functions that run texts which they are given,
//! or behind a pooler.
//!
//! ```text
//!   Empty ──it is sent with its Parse──▶ Sent ──its row has come──▶ Kept
//!     ▲                                    │                         │
//!     └──────── it was lost, or a text that may reach it is sent ────┘
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Whether statements of ours may stay prepared in sessions of a database; shared by all of them.
///
/// It begins as no. The host says yes when it has looked at the database's functions and views, and
/// looks again when these may have changed.
#[derive(Debug, Default)]
pub struct Keeping {
    /// [`PERMITTED`], [`FORBIDDEN`], and above these how often it was doubted.
    state: AtomicU64,
}

const PERMITTED: u64 = 1;
/// For good.
const FORBIDDEN: u64 = 2;
const DOUBT: u64 = 4;

/// The moment before a look at the database.
#[derive(Clone, Copy, Debug)]
pub struct Look(u64);

impl Keeping {
    pub fn is_permitted(&self) -> bool {
        self.state.load(Ordering::Acquire) & (PERMITTED | FORBIDDEN) == PERMITTED
    }

    /// Functions or views may have changed: nothing is kept until the next look.
    pub fn doubt(&self) {
        let doubted = |state: u64| Some((state & !PERMITTED).wrapping_add(DOUBT));
        let _ = self
            .state
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, doubted);
    }

    /// Something is, or is about to be, in the database that may reach our statements.
    pub fn forbid(&self) {
        self.state.fetch_or(FORBIDDEN, Ordering::AcqRel);
    }

    /// To be called before the database is looked at.
    pub fn look(&self) -> Look {
        Look(self.state.load(Ordering::Acquire))
    }

    /// What was found. It counts unless there was doubt since the look began.
    pub fn found(&self, look: Look, permitted: bool) {
        let next = match permitted {
            true => look.0 | PERMITTED,
            false => look.0 & !PERMITTED,
        };
        let _ = self
            .state
            .compare_exchange(look.0, next, Ordering::AcqRel, Ordering::Acquire);
    }
}

/// How a statement of ours is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Run {
    /// Prepared, run and closed.
    Once,
    /// Likewise; it asks besides which backend runs it.
    Probe,
    /// Prepared under this number, run, and left prepared.
    First(u32),
    /// Run as it was prepared under this number.
    Again(u32),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Slot {
    #[default]
    Empty,
    /// Prepared in a flight whose answer has not come.
    Sent(u32),
    /// The server has it.
    Kept(u32),
}

/// Who runs what the session sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Backend {
    Unknown,
    Asked,
    /// The process that the server named when the session began.
    Named,
    /// A pooler may give each transaction to another.
    Pooled,
}

/// What one session keeps, per kind of statement. No I/O: it decides, and is told what became of
/// it.
#[derive(Debug)]
pub(super) struct Statements<const KINDS: usize> {
    keeping: Arc<Keeping>,
    slots: [Slot; KINDS],
    /// Each statement has a number of its own, so that none is taken for an earlier one.
    last: u32,
    backend: Backend,
    /// This session keeps nothing any more.
    over: bool,
    closing: Vec<Closing>,
}

/// A statement that is not used any more, until the server has closed it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Closing {
    number: u32,
    /// A `Close` is on its way. It is discarded if the batch that it shares has failed before it.
    sent: bool,
}

/// A client that sends so many texts before which we have to close ours, without waiting for
/// answers, is better off without them.
const CLOSING_MAX: usize = 64;

impl<const KINDS: usize> Statements<KINDS> {
    pub fn new(keeping: Arc<Keeping>) -> Self {
        Self {
            keeping,
            slots: [Slot::Empty; KINDS],
            last: 0,
            backend: Backend::Unknown,
            over: false,
            closing: Vec::new(),
        }
    }

    /// How a statement of this kind is to be sent now.
    pub fn choose(&mut self, kind: usize) -> Run {
        if self.over || !self.keeping.is_permitted() {
            self.close();
            return Run::Once;
        }
        match (self.backend, self.slots[kind]) {
            (Backend::Unknown, _) => {
                self.backend = Backend::Asked;
                Run::Probe
            }
            (Backend::Named, Slot::Kept(number)) => Run::Again(number),
            (Backend::Named, Slot::Empty) => {
                self.last += 1;
                self.slots[kind] = Slot::Sent(self.last);
                Run::First(self.last)
            }
            _ => Run::Once,
        }
    }

    /// The row of a statement of this kind has come.
    pub fn answered(&mut self, kind: usize, run: Run) {
        if let Run::First(number) = run
            && self.slots[kind] == Slot::Sent(number)
        {
            self.slots[kind] = Slot::Kept(number);
        }
    }

    /// The answer to a probe: whether it was run by the process that the server named.
    pub fn probed(&mut self, named: bool) {
        self.backend = match named {
            true => Backend::Named,
            false => Backend::Pooled,
        };
    }

    /// A statement of this kind was not run.
    pub fn lost(&mut self, kind: usize, run: Run) {
        match run {
            Run::Probe if self.backend == Backend::Asked => self.backend = Backend::Unknown,
            // It may have been prepared all the same.
            Run::First(number) if self.slots[kind] == Slot::Sent(number) => {
                self.slots[kind] = Slot::Empty;
                self.leave(number);
            }
            _ => {}
        }
    }

    /// The server has closed a statement.
    pub fn closed(&mut self, number: u32) {
        self.closing.retain(|closing| closing.number != number);
    }

    /// What was to close a statement was not run.
    pub fn not_closed(&mut self, number: u32) {
        let same = |closing: &&mut Closing| closing.number == number;
        if let Some(closing) = self.closing.iter_mut().find(same) {
            closing.sent = false;
        }
    }

    /// Nothing that is prepared is used any more: it is closed with the next flight.
    pub fn close(&mut self) {
        for slot in std::mem::replace(&mut self.slots, [Slot::Empty; KINDS]) {
            if let Slot::Sent(number) | Slot::Kept(number) = slot {
                self.leave(number);
            }
        }
    }

    fn leave(&mut self, number: u32) {
        let sent = false;
        self.closing.push(Closing { number, sent });
        self.over |= self.closing.len() > CLOSING_MAX;
    }

    /// The session is to keep nothing from here on.
    pub fn end(&mut self) {
        self.over = true;
        self.close();
    }

    /// And none of the database's sessions is.
    pub fn forbid(&mut self) {
        self.keeping.forbid();
        self.end();
    }

    /// What has to be closed in the flight that is being sent. `surely`: before what follows may
    /// see it, so also what a `Close` on its way may not have reached.
    pub fn take_closing(&mut self, surely: bool) -> Vec<u32> {
        let due = self.closing.iter_mut().filter(|one| surely || !one.sent);
        due.map(|one| {
            one.sent = true;
            one.number
        })
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn permitted() -> Arc<Keeping> {
        let keeping = Arc::new(Keeping::default());
        keeping.found(keeping.look(), true);
        keeping
    }

    fn named() -> Statements<2> {
        let mut statements = Statements::new(permitted());
        assert_eq!(statements.choose(0), Run::Probe);
        assert_eq!(statements.choose(0), Run::Once, "it has not been answered");
        statements.probed(true);
        statements
    }

    #[test]
    fn a_statement_is_used_again_once_its_row_has_come() {
        let mut statements = named();
        assert_eq!(statements.choose(0), Run::First(1));
        assert_eq!(statements.choose(0), Run::Once);
        assert_eq!(statements.choose(1), Run::First(2));
        statements.answered(0, Run::First(1));
        assert_eq!(statements.choose(0), Run::Again(1));
        assert_eq!(statements.choose(1), Run::Once);
        assert!(statements.take_closing(true).is_empty());
    }

    #[test]
    fn what_was_lost_or_closed_is_not_used() {
        let mut statements = named();
        assert_eq!(statements.choose(0), Run::First(1));
        statements.lost(0, Run::First(1));
        assert_eq!(statements.take_closing(false), [1]);
        assert_eq!(statements.choose(0), Run::First(2));
        statements.close();
        assert_eq!(statements.take_closing(false), [2]);
        statements.answered(0, Run::First(2));
        assert_eq!(statements.choose(0), Run::First(3), "2 was closed behind");
        statements.lost(0, Run::First(2));
        assert!(statements.take_closing(false).is_empty());
        assert_eq!(statements.take_closing(true), [1, 2]);
        statements.closed(1);
        statements.answered(0, Run::First(3));
        statements.not_closed(1);
        statements.not_closed(2);
        assert_eq!(statements.choose(0), Run::Again(3));
        assert_eq!(statements.take_closing(false), [2]);
        statements.closed(2);
        assert!(statements.take_closing(true).is_empty());
    }

    #[test]
    fn a_session_that_closes_faster_than_the_server_answers_keeps_nothing() {
        let mut statements = named();
        let kept = (0..1000).filter(|_| {
            let run = statements.choose(0);
            statements.close();
            run != Run::Once
        });
        assert!(kept.count() <= CLOSING_MAX + 1);
        assert!(statements.take_closing(true).len() <= CLOSING_MAX + 1);
    }

    #[test]
    fn nothing_is_kept_behind_a_pooler_or_without_permission() {
        let mut statements = Statements::<2>::new(permitted());
        assert_eq!(statements.choose(0), Run::Probe);
        statements.lost(0, Run::Probe);
        assert_eq!(statements.choose(0), Run::Probe);
        statements.probed(false);
        assert_eq!(statements.choose(0), Run::Once);

        let mut statements = named();
        assert_eq!(statements.choose(0), Run::First(1));
        statements.answered(0, Run::First(1));
        statements.keeping.doubt();
        assert_eq!(statements.choose(0), Run::Once);
        assert_eq!(statements.take_closing(false), [1]);
        let look = statements.keeping.look();
        statements.keeping.found(look, true);
        assert_eq!(statements.choose(0), Run::First(2));
        statements.end();
        assert_eq!(statements.choose(0), Run::Once);
    }

    #[test]
    fn a_look_that_began_before_there_was_doubt_permits_nothing() {
        let keeping = permitted();
        let look = keeping.look();
        keeping.doubt();
        keeping.found(look, true);
        assert!(!keeping.is_permitted());
        keeping.found(keeping.look(), true);
        assert!(keeping.is_permitted());
        keeping.found(keeping.look(), false);
        assert!(!keeping.is_permitted());
        keeping.forbid();
        keeping.found(keeping.look(), true);
        assert!(!keeping.is_permitted());
    }
}
