//! What the statements of transactions under READ COMMITTED saw, each of its own.
//!
//! ```text
//!   statement        BEGIN  SELECT  SELECT  UPDATE  SELECT  COMMIT
//!   saw                     S       S       S, waited  S'
//!   schedule                the transaction         a look
//!                           └ S, up to the second ┘ └ S' ─┘
//! ```
//!
//! Statements that saw the same are one look in the schedule: it may begin when that can be seen,
//! and what it does not see waits until its last statement is answered, or waits for a row. One
//! that waited for a writer saw more than its snapshot: as much as the next one, or if there is
//! none, as its transaction's end. A transaction that wrote nothing has no end that others could
//! see. The server notes one more snapshot of it, behind the statement that waited.
//!
//! Only of the rows it waited for it saw more. One that writes is two looks: where it began, it is
//! taken down what it sees; where it had waited, it runs with that.

use std::collections::HashMap;

use hindcast_order::Tx;
use hindcast_trace::{Isolation, Outcome, Snapshot, Transaction};

/// Statements of a transaction, by their indices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch {
    pub first: u32,
    pub last: u32,
    /// What its one statement saw before it waited. The next look is of that statement, too.
    pub early: bool,
}

impl Stretch {
    fn of(statement: u32) -> Self {
        Self {
            first: statement,
            last: statement,
            early: false,
        }
    }
}

/// What statements saw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// The snapshot that was noted with this number.
    Snapshot(usize),
    /// All that committed before their transaction did.
    End,
}

/// What a transaction's first statements saw, and its later ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sights {
    pub first: Seen,
    pub later: Vec<(Stretch, Seen)>,
}

/// What the statements of a transaction under READ COMMITTED saw.
pub struct StatementSights {
    /// The statements at which these were noted.
    noted: Vec<u32>,
    pub snapshots: Vec<Snapshot>,
    rechecked: Vec<u32>,
    is_writer: bool,
}

impl StatementSights {
    /// If the server has told.
    pub fn of(recorded: &Transaction) -> Option<Self> {
        let by_server = recorded.commit_lsn.is_some() || !recorded.statement_snapshots.is_empty();
        if !by_server || recorded.isolation != Isolation::ReadCommitted {
            return None;
        }
        let (mut noted, mut snapshots) = (Vec::new(), Vec::new());
        for one in &recorded.statement_snapshots {
            noted.push(one.statement);
            snapshots.push(one.snapshot.clone());
        }
        if noted.is_empty() {
            noted.push(0);
            snapshots.push(recorded.snapshot.clone()?);
        }
        Some(Self {
            noted,
            snapshots,
            rechecked: recorded.rechecked.clone(),
            is_writer: recorded.xid.is_some() && recorded.outcome == Outcome::Committed,
        })
    }

    /// By the statements that take snapshots. `going_on`: those that go on with them, see
    /// [`going_on`](crate::shapes::Writes::going_on). `upserting`: those that take a row as it has
    /// become, also if they did not wait for that, which is not told.
    pub fn sights(
        &self,
        looking: &[u32],
        going_on: &[u32],
        upserting: &[u32],
        locks_first: bool,
    ) -> Option<Sights> {
        let mut rechecked = [&self.rechecked[..], upserting].concat();
        rechecked.sort_unstable();
        let noted = Noted {
            at: &self.noted,
            rechecked: &rechecked,
            going_on,
            is_writer: self.is_writer,
        };
        noted.sights(looking, locks_first)
    }
}

/// What is known of a transaction's statements, all of which ascend.
struct Noted<'a> {
    /// Those at which snapshots were noted, each of which lasts to the next.
    at: &'a [u32],
    /// Those that waited for a writer, or went on with what one wrote.
    rechecked: &'a [u32],
    /// Those that go on with their snapshot then.
    going_on: &'a [u32],
    /// It wrote, and committed.
    is_writer: bool,
}

impl Noted<'_> {
    /// Its snapshot is the last one that was noted up to it.
    fn snapshot(&self, statement: u32) -> Seen {
        Seen::Snapshot(self.at.partition_point(|&at| at <= statement).max(1) - 1)
    }

    /// What a statement saw, of those from it on that look.
    fn seen(&self, looking: &[u32]) -> Seen {
        match self.rechecked.binary_search(&looking[0]) {
            Err(_) => self.snapshot(looking[0]),
            Ok(_) => match looking.get(1) {
                Some(&next) => self.snapshot(next),
                None if self.is_writer => Seen::End,
                None => Seen::Snapshot(self.at.len().saturating_sub(1)),
            },
        }
    }

    /// `looking`: the statements that look. `locks_first`: its snapshot is that of a statement
    /// which takes a lock and looks at nothing. `None` if no statement looks.
    fn sights(&self, looking: &[u32], locks_first: bool) -> Option<Sights> {
        let mut stretches: Vec<(Stretch, Seen)> = Vec::new();
        for (at, &statement) in looking.iter().enumerate() {
            let (snapshot, seen) = (self.snapshot(statement), self.seen(&looking[at..]));
            if seen != snapshot && self.going_on.binary_search(&statement).is_ok() {
                let early = Stretch {
                    early: true,
                    ..Stretch::of(statement)
                };
                stretches.push((early, snapshot));
            }
            match stretches.last_mut() {
                Some((stretch, same)) if *same == seen => stretch.last = statement,
                _ => stretches.push((Stretch::of(statement), seen)),
            }
        }
        let &(first, seen) = stretches.first()?;
        if locks_first || first.early {
            return Some(Sights {
                first: if locks_first { Seen::Snapshot(0) } else { seen },
                later: stretches,
            });
        }
        match first.first == first.last {
            true => _ = stretches.remove(0),
            // The transaction's own snapshot is that of its first statement alone.
            false => stretches[0].0.first = looking[1],
        }
        Some(Sights {
            first: seen,
            later: stretches,
        })
    }
}

/// The looks of all transactions, in the schedule.
#[derive(Debug, Default)]
pub struct Looks {
    /// The first one's number there.
    begin: u32,
    /// By transaction: which of `stretches` are its, as a range.
    of: HashMap<Tx, (usize, usize)>,
    stretches: Vec<Stretch>,
    owners: Vec<Tx>,
}

impl Looks {
    /// Behind all that is in the schedule besides.
    pub fn starting_at(begin: u32) -> Self {
        Self {
            begin,
            ..Self::default()
        }
    }

    /// Adds a transaction's. Returns their numbers in the schedule.
    pub fn add(
        &mut self,
        tx: Tx,
        later: impl Iterator<Item = Stretch>,
    ) -> impl Iterator<Item = Tx> {
        let from = self.stretches.len();
        self.stretches.extend(later);
        let to = self.stretches.len();
        self.of.insert(tx, (from, to));
        self.owners.resize(to, tx);
        let begin = self.begin;
        (from..to).map(move |at| Tx(begin + at as u32))
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.stretches.len()
    }

    /// How many statements waited, and go on with what they saw before.
    pub fn early(&self) -> usize {
        self.stretches.iter().filter(|look| look.early).count()
    }

    /// Those of a transaction, in their order.
    pub fn stretches(&self, tx: Tx) -> &[Stretch] {
        let (from, to) = self.of.get(&tx).copied().unwrap_or_default();
        &self.stretches[from..to]
    }

    /// A transaction's look in the schedule.
    pub fn scheduled(&self, tx: Tx, nth: usize) -> Tx {
        let (from, to) = self.of.get(&tx).copied().unwrap_or_default();
        assert!(nth < to - from, "transaction {tx} has so many looks");
        Tx(self.begin + (from + nth) as u32)
    }

    /// The number of the look that a statement of a transaction is part of. `None`: it is part of
    /// what the transaction saw first.
    pub fn nth(&self, tx: Tx, statement: u32) -> Option<u32> {
        let stretches = self.stretches(tx);
        let begun = stretches.partition_point(|look| look.first <= statement);
        begun.checked_sub(1).map(|nth| nth as u32)
    }

    /// What is in the schedule for a statement of a transaction: the look that it is part of, or
    /// the transaction itself.
    pub fn at(&self, tx: Tx, statement: u32) -> Tx {
        match self.nth(tx, statement) {
            Some(nth) => self.scheduled(tx, nth as usize),
            None => tx,
        }
    }

    /// The look of a transaction that comes behind a statement, or is of it and others behind it.
    pub fn after(&self, tx: Tx, statement: u32) -> Option<Tx> {
        let through = self
            .stretches(tx)
            .partition_point(|look| look.last <= statement);
        (through < self.stretches(tx).len()).then(|| self.scheduled(tx, through))
    }

    /// All of a transaction's in the schedule.
    pub fn all(&self, tx: Tx) -> impl Iterator<Item = Tx> + use<> {
        let (from, to) = self.of.get(&tx).copied().unwrap_or_default();
        let begin = self.begin;
        (from..to).map(move |at| Tx(begin + at as u32))
    }

    /// Those of all transactions.
    pub fn scheduled_all(&self) -> impl Iterator<Item = Tx> + use<> {
        (self.begin..).take(self.count()).map(Tx)
    }

    /// The transaction that is in the schedule under this number, itself or with a look.
    pub fn owner(&self, scheduled: Tx) -> Tx {
        let look = scheduled.0.checked_sub(self.begin);
        let owner = look.and_then(|at| self.owners.get(at as usize));
        owner.copied().unwrap_or(scheduled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn later(first: u32, last: u32, seen: Seen) -> (Stretch, Seen) {
        let early = false;
        (Stretch { first, last, early }, seen)
    }

    fn sights(
        at: &[u32],
        looking: &[u32],
        rechecked: &[u32],
        locks_first: bool,
        is_writer: bool,
    ) -> Option<Sights> {
        let noted = Noted {
            at,
            rechecked,
            going_on: &[],
            is_writer,
        };
        noted.sights(looking, locks_first)
    }

    /// As `UPDATE t SET n = (SELECT count(*) FROM u)` does, which counts as of when it began.
    #[test]
    fn who_waited_goes_on_with_what_it_saw_before() {
        use Seen::{End, Snapshot};
        let check = |at: &[u32], looking: &[u32], waited: &[u32], first, expected: &[_]| {
            let noted = Noted {
                at,
                rechecked: waited,
                going_on: waited,
                is_writer: true,
            };
            let later = expected.to_vec();
            assert_eq!(noted.sights(looking, false), Some(Sights { first, later }));
        };
        let early = |statement, seen| {
            let early = true;
            (
                Stretch {
                    early,
                    ..Stretch::of(statement)
                },
                seen,
            )
        };
        check(
            &[1, 4],
            &[1, 2, 3, 4],
            &[3],
            Snapshot(0),
            &[
                later(2, 2, Snapshot(0)),
                early(3, Snapshot(0)),
                later(3, 4, Snapshot(1)),
            ],
        );
        check(
            &[0],
            &[0],
            &[0],
            Snapshot(0),
            &[early(0, Snapshot(0)), later(0, 0, End)],
        );
        check(
            &[1, 2],
            &[1, 2],
            &[1, 2],
            Snapshot(0),
            &[
                early(1, Snapshot(0)),
                later(1, 1, Snapshot(1)),
                early(2, Snapshot(1)),
                later(2, 2, End),
            ],
        );
        // Nothing had been committed in between.
        check(
            &[1],
            &[1, 2],
            &[1],
            Snapshot(0),
            &[later(2, 2, Snapshot(0))],
        );
    }

    #[track_caller]
    fn check(
        (noted, looking, rechecked): (&[u32], &[u32], &[u32]),
        first: Seen,
        later: &[(Stretch, Seen)],
    ) {
        let later = later.to_vec();
        let expected = Some(Sights { first, later });
        assert_eq!(sights(noted, looking, rechecked, false, true), expected);
    }

    #[test]
    fn statements_that_saw_the_same_are_one_look() {
        use Seen::{End, Snapshot};
        check((&[1], &[1], &[]), Snapshot(0), &[]);
        check(
            (&[1], &[1, 2, 4], &[]),
            Snapshot(0),
            &[later(2, 4, Snapshot(0))],
        );
        check(
            (&[1, 3], &[1, 2, 3, 4], &[]),
            Snapshot(0),
            &[later(2, 2, Snapshot(0)), later(3, 4, Snapshot(1))],
        );
        // As in the picture above.
        check(
            (&[1, 4], &[1, 2, 3, 4], &[3]),
            Snapshot(0),
            &[later(2, 2, Snapshot(0)), later(3, 4, Snapshot(1))],
        );
        check((&[0], &[0], &[0]), End, &[]);
        check((&[1], &[1, 2], &[2]), Snapshot(0), &[later(2, 2, End)]);
        check(
            (&[1, 2], &[1, 2], &[1]),
            Snapshot(1),
            &[later(2, 2, Snapshot(1))],
        );
        assert_eq!(sights(&[1], &[], &[], false, true), None);
    }

    /// What it saw behind the lock is later than its snapshot.
    #[test]
    fn what_locks_first_looks_with_later_statements_only() {
        use Seen::Snapshot;
        let Sights { first, later: all } = sights(&[1, 2], &[2, 3], &[], true, false).unwrap();
        assert_eq!((first, all), (Snapshot(0), vec![later(2, 3, Snapshot(1))]));
        assert_eq!(sights(&[1], &[], &[], true, false), None);
    }

    /// `INSERT … ON CONFLICT DO NOTHING` of a row that another transaction has just inserted.
    #[test]
    fn who_waited_and_wrote_nothing_saw_what_came_next() {
        use Seen::Snapshot;
        let seen =
            |noted, looking, rechecked| sights(noted, looking, rechecked, false, false).unwrap();
        let followed = seen(&[1, 2], &[1, 2], &[1]);
        assert_eq!(followed.first, Snapshot(1));
        // The server noted one behind the last statement.
        let last = seen(&[0, 1], &[0], &[0]);
        assert_eq!((last.first, last.later.len()), (Snapshot(1), 0));
        assert_eq!(seen(&[0], &[0], &[0]).first, Snapshot(0));
    }

    /// `INSERT … ON CONFLICT DO UPDATE` of a row that was committed after its snapshot: it waited
    /// for nobody, and the server does not tell.
    #[test]
    fn an_upsert_comes_behind_who_committed_before_it() {
        use Seen::{End, Snapshot};
        let seen = |noted: &[u32], looking: &[u32], upserting: &[u32]| {
            let statements = StatementSights {
                noted: noted.to_vec(),
                snapshots: Vec::new(),
                rechecked: Vec::new(),
                is_writer: true,
            };
            statements
                .sights(looking, &[], upserting, false)
                .unwrap()
                .first
        };
        assert_eq!(seen(&[0], &[0], &[]), Snapshot(0));
        assert_eq!(seen(&[0], &[0], &[0]), End);
        assert_eq!(seen(&[1, 2], &[1, 2], &[1]), Snapshot(1));
    }

    #[test]
    fn looks_are_found_by_their_transactions_and_the_other_way_round() {
        let stretch = Stretch::of;
        let mut looks = Looks::starting_at(10);
        let of_two: Vec<Tx> = looks
            .add(Tx(2), [stretch(1), stretch(3)].into_iter())
            .collect();
        let of_five: Vec<Tx> = looks.add(Tx(5), [stretch(2)].into_iter()).collect();
        assert_eq!((of_two, of_five), (vec![Tx(10), Tx(11)], vec![Tx(12)]));
        assert_eq!(looks.scheduled(Tx(2), 1), Tx(11));
        assert_eq!(looks.all(Tx(5)).collect::<Vec<_>>(), [Tx(12)]);
        assert_eq!(looks.stretches(Tx(5)), [stretch(2)]);
        assert!(looks.stretches(Tx(3)).is_empty());
        let at = [0, 1, 2, 3, 4].map(|statement| looks.at(Tx(2), statement));
        assert_eq!(at, [2, 10, 10, 11, 11].map(Tx));
        assert_eq!(looks.at(Tx(3), 7), Tx(3));
        let owners = [2, 9, 10, 11, 12].map(|tx| looks.owner(Tx(tx)));
        assert_eq!(owners, [Tx(2), Tx(9), Tx(2), Tx(2), Tx(5)]);
    }
}
