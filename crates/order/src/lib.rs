//! Who must wait for whom when a recording is executed again.
//!
//! Under snapshot isolation a transaction's snapshot decides everything it reads. In Postgres the
//! sets of committed transactions that successive snapshots can see are ordered by inclusion, so
//! they can be numbered. The numbers are *levels*, and they are all that replay needs to know about
//! time:
//!
//! ```text
//!   original run                                   levels
//!
//!   w1 ├──────────┤ commits                        level 0 = {}           r1, w1, w2 saw this
//!   r1   ├──────────────┤                          level 1 = {w1}         r2 saw this
//!   w2     ├────────────┼────┤ commits             level 2 = {w1, w2}     r3 saw this
//!   r2               ├────────────┤
//!   r3                          ├────┤             v(w1) = 1, v(w2) = 2
//! ```
//!
//! `level(T)` is the level of the set that transaction T saw; `v(w)` is the least level whose set
//! holds the writer w. A replay in which everybody sees what it saw is any run that obeys two
//! rules, and a third where statements lock other than by writing rows:
//!
//! - **A**: T takes its snapshot only after every w with `v(w) ≤ level(T)` has committed.
//! - **B**: w commits only after every T with `level(T) < v(w)` has taken its snapshot.
//! - **C**: steps that touch the locks of a common target run in the order in which they completed.
//!
//! The original run obeys all three, so each of them only ever makes somebody wait for something
//! that came earlier in the original. That is why they cannot form a cycle: of all that has not
//! happened yet, whatever came first originally has nothing left to wait for. This is R³'s
//! Algorithm 1 (section 3.3) with all the parallelism that its section 3.5 allows;
//! [`Levels::sequential_order`] is Algorithm 1 itself.
//!
//! Levels do not care where in time a level's set was seen, so nobody has to record when a
//! transaction started.
//!
//! A standby executes again, too: the writes of the primary's log. They carry their results with
//! them and nobody's snapshot matters, so far less order is left to keep: that of the writes to
//! each row. Readers are kept from what is half done by a prefix cut, which moves from commit to
//! commit ([`rows`]).
//!
//! ```text
//!   log, three transactions      x₁ y₂ │ x₃ z₄ │ z₅ w₆ │
//!
//!   x   x₁ ─▶ x₃                 a queue per row; what is first in its queue may be written,
//!   y   y₂                       by anybody, whatever became of the rest of its transaction
//!   z         z₄ ─▶ z₅
//!   w               w₆
//!       done: x₁ y₂ z₄ w₆        x₃ is not: readers see the prefix that ends with y₂
//! ```
//!
//! A process executes again, too: its threads between the calls that were recorded. What is left to
//! keep is who gets which lock after whom, in an order that says no more than that
//! ([`acquisitions`]).
//!
//! **Where to start reading**: [`levels`] computes levels from what a recorder observed, in one
//! pass and without ever comparing two snapshots; [`schedule`] answers "may it?" from two counters
//! per level; [`retroaction`] has the rules for code that was changed after it was recorded;
//! [`admission`] says when a request may be sent again so that no pool of workers or connections
//! can lock up, [`openings`] when it may go on where a pool is too small for that; [`losers`] has
//! who found a unique key taken before the row was changed; [`rows`] is the standby's order,
//! [`acquisitions`] that of threads, and each stands by itself.
//!
//! **What this crate does not do**: it knows no request handlers, sessions, bytes or clocks.
//! Transactions and requests are numbers that the caller chose, dense and from zero. Of the
//! project's crates it knows only `model`.
//!
//! **The invariant to keep**: every rule makes a step wait only for steps that came before it in
//! the original run. A rule for which that does not hold can be combined with the others into a
//! deadlock, however sensible it looks by itself; `crates/sim` will find it.

pub mod acquisitions;
pub mod admission;
pub mod levels;
pub mod locks;
pub mod losers;
pub mod openings;
pub mod retroaction;
pub mod rows;
pub mod schedule;

pub use admission::{Admission, Span};
pub use levels::{Levels, LevelsError, Observed, Snapshots, Step, Writers};
pub use locks::{LockStep, StepAt};
pub use losers::{Change, Losers, Lost};
pub use openings::Openings;
pub use schedule::{Explanation, Progress, Schedule, Wait};

use std::fmt;

/// A transaction, by the dense index that the caller gave it: from 0, in the order in which they
/// began.
///
/// Where several orders would do, the lower index goes first, so numbering them by their begin
/// keeps replay close to the original.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tx(pub u32);

impl Tx {
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for Tx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.0)
    }
}

/// The number of a distinct set of visible writers, counted from the smallest set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Level(pub u32);

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// A request, by the dense index that the caller gave it: from 0, in order of arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Request(pub u32);

impl Request {
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "@{}", self.0)
    }
}
