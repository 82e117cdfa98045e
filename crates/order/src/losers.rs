//! Statements that found a key taken, and those that changed rows of the table behind them.
//!
//! The check of a unique key waits for a transaction that has changed or deleted the row which is
//! in the way, whatever the statement's snapshot. One that failed, or left its row out, and did not
//! wait, was there before the change. No snapshot of the two tells that, since the change commits
//! later: in a replay it may be made first, and then the check waits for a transaction that waits
//! for the loser's next look.
//!
//! ```text
//!   table thing    looks ─▶
//!   lost           #4 stmt 2      #7 stmt 1          #9 stmt 2
//!   changes            #5 stmt 1 waits for #4        #8 stmt 0 waits for #4 and #7
//! ```
//!
//! A change waits for what lost in its table and looked no later than the change's transaction did
//! next: what looked later has come behind the change, or would have waited for it. Which rows they
//! are about is not known, so some wait that would not have to. Two changes that would wait for
//! each other, as each transaction loses behind its own, do not.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use crate::{Level, Levels, Tx};

/// A statement that found a key taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lost {
    /// The table's number.
    pub table: u32,
    pub tx: Tx,
    /// Its index in the transaction.
    pub statement: u32,
    /// It is in the schedule with this.
    pub look: Tx,
}

/// A statement that changes rows of such tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    pub statement: u32,
    pub tables: Vec<u32>,
}

impl Change {
    /// Of these tables; `None` if it changes nothing in them.
    pub fn within(&self, tables: &HashSet<u32>) -> Option<Self> {
        let mut own = self.clone();
        own.tables.retain(|table| tables.contains(table));
        (!own.tables.is_empty()).then_some(own)
    }
}

/// The most that could be seen when a statement of a transaction changed rows: what the transaction
/// looked at next, or all before its commit. `None`: it changed nothing.
pub fn latest(levels: &Levels, tx: Tx, next: Option<Tx>) -> Option<Level> {
    let before_commit = || levels.visible_from(tx)?.0.checked_sub(1).map(Level);
    match next {
        Some(look) => levels.level_of(look),
        None => before_commit(),
    }
}

/// How far a replay has come with them.
#[derive(Debug, Default)]
pub struct Losers {
    /// By table.
    queues: BTreeMap<u32, Queue>,
    /// Where a statement stands: its table, and its place there.
    places: BTreeMap<(Tx, u32), (u32, usize)>,
    /// Changes that are about to be made.
    asked: BTreeMap<(Tx, u32), Asked>,
    count: u64,
}

#[derive(Debug, Default)]
struct Queue {
    /// In the order in which they looked.
    all: Vec<Entry>,
    /// All before this place are over.
    head: usize,
}

#[derive(Debug)]
struct Entry {
    tx: Tx,
    level: Level,
    /// It has lost again, or never will.
    over: bool,
}

#[derive(Debug)]
struct Asked {
    tables: Vec<u32>,
    /// See [`latest`].
    until: Level,
    /// One of those before it waits for it.
    goes_ahead: bool,
}

impl Losers {
    pub fn new(lost: impl IntoIterator<Item = Lost>, levels: &Levels) -> Self {
        let mut new = Self::default();
        let mut by_table: BTreeMap<u32, Vec<(Level, Lost)>> = BTreeMap::new();
        for one in lost {
            if let Some(level) = levels.level_of(one.look) {
                by_table.entry(one.table).or_default().push((level, one));
            }
        }
        for (table, mut lost) in by_table {
            lost.sort_by_key(|(level, one)| (*level, one.tx, one.statement));
            let mut queue = Queue::default();
            for (level, one) in lost {
                let place = (table, queue.all.len());
                new.places.insert((one.tx, one.statement), place);
                queue.all.push(Entry {
                    tx: one.tx,
                    level,
                    over: false,
                });
            }
            new.queues.insert(table, queue);
        }
        new
    }

    /// As long as this has not grown, no answer has changed.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// A statement is about to change rows of these tables. `level`: what it looks at; `until`: see
    /// [`latest`]. Returns whether one of those before it looks at more: that one waits for commits
    /// which the change does not see, so they must not wait for the change.
    pub fn asks(
        &mut self,
        (tx, statement): (Tx, u32),
        tables: &[u32],
        level: Level,
        until: Level,
    ) -> bool {
        let asked = Asked {
            tables: tables.to_vec(),
            until,
            goes_ahead: false,
        };
        let sees_more = self.before(tx, &asked).any(|one| one.level > level);
        self.count += u64::from(self.asked.insert((tx, statement), asked).is_none());
        // Of those that wait for each other, the one that began first is likely to have been the
        // first to change something.
        let waits = |one: &Tx| self.waits_for(*one).contains(&tx);
        let circle = self.waits_for(tx).into_iter().filter(waits);
        if let Some(first) = circle.min() {
            let own = self.asked.range_mut((first, 0)..=(first, u32::MAX));
            own.for_each(|(_, asked)| asked.goes_ahead = true);
        }
        sees_more
    }

    /// Whether all are over that lost before this statement, which has asked, changes rows.
    pub fn may_change(&self, tx: Tx, statement: u32) -> bool {
        let asked = self.asked.get(&(tx, statement));
        asked.is_none_or(|asked| asked.goes_ahead || self.before(tx, asked).next().is_none())
    }

    /// Those that are to lose before a change.
    fn before(&self, tx: Tx, asked: &Asked) -> impl Iterator<Item = &Entry> {
        let until = asked.until;
        let queues = asked
            .tables
            .iter()
            .filter_map(|table| self.queues.get(table));
        let rest = queues.flat_map(move |queue| {
            let rest = queue.all[queue.head..].iter();
            rest.take_while(move |one| one.level <= until)
        });
        rest.filter(move |one| !one.over && one.tx != tx)
    }

    /// The transactions that are to lose before a transaction makes the changes that it has asked
    /// for, and before those of them that have asked for some make theirs.
    fn waits_for(&self, tx: Tx) -> BTreeSet<Tx> {
        let mut reached = BTreeSet::new();
        let mut ahead = vec![tx];
        while let Some(one) = ahead.pop() {
            let asked = self.asked.range((one, 0)..=(one, u32::MAX));
            let waiting = asked.filter(|(_, asked)| !asked.goes_ahead);
            for before in waiting.flat_map(|(_, asked)| self.before(one, asked)) {
                if reached.insert(before.tx) {
                    ahead.push(before.tx);
                }
            }
        }
        reached
    }

    /// The statement has lost, or changed rows.
    pub fn done(&mut self, tx: Tx, statement: u32) {
        self.count += u64::from(self.asked.remove(&(tx, statement)).is_some());
        if let Some(&place) = self.places.get(&(tx, statement)) {
            self.pass(place);
        }
    }

    /// The transaction is over, or will not come: it loses and changes no more.
    pub fn over(&mut self, tx: Tx) {
        let own = (tx, 0)..=(tx, u32::MAX);
        let lost: Vec<_> = self.places.range(own.clone()).map(|(_, &at)| at).collect();
        lost.into_iter().for_each(|place| self.pass(place));
        let asked: Vec<_> = self.asked.range(own).map(|(&at, _)| at).collect();
        asked.into_iter().for_each(|(tx, at)| self.done(tx, at));
    }

    fn pass(&mut self, (table, place): (u32, usize)) {
        let queue = self.queues.get_mut(&table).expect("it was put there");
        self.count += u64::from(!std::mem::replace(&mut queue.all[place].over, true));
        let rest = &queue.all[queue.head..];
        queue.head += rest.iter().take_while(|one| one.over).count();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: u32 = 3;

    /// Each transaction looks at the level of its place. These are the ones that lose, each with
    /// its statement.
    fn losers(levels: &[u32], lost: &[(u32, u32)]) -> Losers {
        let levels: Vec<Option<Level>> = levels.iter().map(|&level| Some(Level(level))).collect();
        let levels = Levels::from_parts(&levels, &vec![None; levels.len()]);
        let lost = lost.iter().map(|&(tx, statement)| Lost {
            table: TABLE,
            tx: Tx(tx),
            statement,
            look: Tx(tx),
        });
        Losers::new(lost, &levels)
    }

    #[test]
    fn a_change_waits_for_who_lost_and_looked_no_later() {
        let mut losers = losers(&[0, 1, 2], &[(0, 2), (1, 1), (2, 0)]);
        let mut at = 0;
        let mut may = |losers: &mut Losers, tx: u32, until: u32| {
            at += 1;
            losers.asks((Tx(tx), at), &[7, TABLE], Level(0), Level(until));
            losers.may_change(Tx(tx), at)
        };
        assert!(!may(&mut losers, 9, 0) && !may(&mut losers, 9, 1));
        // Another statement of it, and another transaction.
        losers.done(Tx(0), 1);
        losers.done(Tx(8), 2);
        assert!(!may(&mut losers, 9, 0));
        losers.done(Tx(0), 2);
        assert!(may(&mut losers, 9, 0) && !may(&mut losers, 9, 1));
        losers.over(Tx(1));
        assert!(may(&mut losers, 9, 1) && !may(&mut losers, 9, 2));
        // What it lost itself.
        assert!(may(&mut losers, 2, 2));
    }

    #[test]
    fn who_is_waited_for_may_see_more_than_the_change() {
        let mut losers = losers(&[0, 2], &[(0, 0), (1, 0)]);
        let mut asks = |level, until| losers.asks((Tx(9), 0), &[TABLE], Level(level), Level(until));
        assert!(!asks(0, 1) && asks(0, 2) && asks(1, 3) && !asks(2, 3));
    }

    /// Each of two changes something, and then finds a key taken.
    #[test]
    fn two_do_not_wait_for_each_other() {
        let mut losers = losers(&[1, 1], &[(0, 2), (1, 2)]);
        let asks = |losers: &mut Losers, tx: u32| {
            losers.asks((Tx(tx), 1), &[TABLE], Level(1), Level(1));
        };
        asks(&mut losers, 1);
        assert!(!losers.may_change(Tx(1), 1));
        asks(&mut losers, 0);
        assert!(losers.may_change(Tx(0), 1) && !losers.may_change(Tx(1), 1));
        let before = losers.count();
        losers.done(Tx(0), 1);
        losers.done(Tx(0), 2);
        assert!(losers.may_change(Tx(1), 1));
        assert_eq!(losers.count(), before + 2);
    }
}
