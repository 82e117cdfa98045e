//! In which order rows were inserted whose keys a sequence numbers.
//!
//! Where a result has no complete order, rows come as they lie in the table: in the order in
//! which they were inserted. No snapshot tells it. A sequence does: who drew the smaller value
//! inserted first.
//!
//! ```text
//!   sequence   value ─▶
//!   note_id    │ 7: #4 stmt 2 │ 8: #9 stmt 1 │ 9: #7 stmt 3 │
//!                   inserted        ▲ waits for those before it, for a while
//! ```
//!
//! The order is wished for and not required: what waits for a row of another transaction may insert
//! later than it drew. So one that can go on only behind another is not waited for by that, nobody
//! waits for long, and a replay cannot stand still by this.

use std::collections::BTreeMap;

use hindcast_order::Tx;
use hindcast_trace::{Drawn, DrawnValue, SequenceValue};

/// A statement that inserted a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Insert {
    pub tx: Tx,
    /// Its index in the transaction.
    pub statement: u32,
    /// What it drew. The first, if there are several.
    pub drawn: SequenceValue,
}

/// The inserts of a transaction, of which it is known what was drawn, and which of its statements
/// insert.
pub fn of(tx: Tx, inserting: &[u32], drawn: &[Drawn]) -> Vec<Insert> {
    let of_sequence = |one: &Drawn| match one.value {
        DrawnValue::Sequence { first, .. } => Some((one.statement, first)),
        _ => None,
    };
    let drawn: Vec<_> = drawn.iter().filter_map(of_sequence).collect();
    let insert = |statement: u32, drawn: SequenceValue| Insert {
        tx,
        statement,
        drawn,
    };
    let by_statement = drawn.iter().all(|(statement, _)| statement.is_some());
    match inserting {
        // A trigger may draw more, and for other tables: the row comes first.
        all if by_statement => {
            let first = |&at: &u32| drawn.iter().find(|(statement, _)| *statement == Some(at));
            let first = |at: &u32| first(at).map(|(_, drawn)| insert(*at, *drawn));
            all.iter().filter_map(first).collect()
        }
        [only] => {
            let first = drawn.iter().min_by_key(|(_, one)| one.value);
            first
                .map(|(_, drawn)| insert(*only, *drawn))
                .into_iter()
                .collect()
        }
        all if all.len() == drawn.len() => {
            let both = all.iter().zip(&drawn);
            both.map(|(at, (_, drawn))| insert(*at, *drawn)).collect()
        }
        // Which of them drew what is not known.
        _ => Vec::new(),
    }
}

/// How far a replay has come with them.
#[derive(Debug, Default)]
pub struct Inserts {
    /// By sequence, in the order of values.
    queues: Vec<Queue>,
    /// Where an insert stands: its queue, and its place there.
    places: BTreeMap<(Tx, u32), (usize, usize)>,
    count: u64,
}

#[derive(Debug, Default)]
struct Queue {
    /// Each, and whether it has inserted or never will.
    inserts: Vec<(Insert, bool)>,
    /// All before this place have, or never will.
    head: usize,
}

impl Inserts {
    pub fn new(inserts: impl IntoIterator<Item = Insert>) -> Self {
        let mut by_sequence: BTreeMap<u32, Vec<Insert>> = BTreeMap::new();
        for insert in inserts {
            let queue = by_sequence.entry(insert.drawn.sequence).or_default();
            queue.push(insert);
        }
        let mut new = Self::default();
        for mut queue in by_sequence.into_values() {
            queue.sort_by_key(|insert| insert.drawn.value);
            let number = new.queues.len();
            let places = queue.iter().enumerate();
            let places = places.map(|(at, one)| ((one.tx, one.statement), (number, at)));
            new.places.extend(places);
            new.queues.push(Queue {
                inserts: queue.into_iter().map(|insert| (insert, false)).collect(),
                head: 0,
            });
        }
        new
    }

    /// How many have inserted, or never will. Only grows.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Whether all that inserted earlier have, or never will, or would be waited for in vain.
    pub fn may(&self, tx: Tx, statement: u32, in_vain: impl Fn(Insert) -> bool) -> bool {
        let Some(&(queue, place)) = self.places.get(&(tx, statement)) else {
            return true;
        };
        let queue = &self.queues[queue];
        let before = &queue.inserts[queue.head.min(place)..place];
        let mut before = before.iter().filter(|(_, done)| !done);
        before.all(|&(other, _)| other.tx == tx || in_vain(other))
    }

    /// The statement has inserted.
    pub fn done(&mut self, tx: Tx, statement: u32) {
        if let Some(&place) = self.places.get(&(tx, statement)) {
            self.pass(place);
        }
    }

    /// The transaction is over, or will not come: it inserts nothing more.
    pub fn over(&mut self, tx: Tx) {
        let own = self.places.range((tx, 0)..=(tx, u32::MAX));
        let own: Vec<_> = own.map(|(_, &place)| place).collect();
        own.into_iter().for_each(|place| self.pass(place));
    }

    fn pass(&mut self, (queue, place): (usize, usize)) {
        let queue = &mut self.queues[queue];
        self.count += u64::from(!std::mem::replace(&mut queue.inserts[place].1, true));
        let rest = &queue.inserts[queue.head..];
        queue.head += rest.iter().take_while(|(_, done)| *done).count();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: fn(Insert) -> bool = |_| false;

    fn value(sequence: u32, value: i64) -> SequenceValue {
        SequenceValue { sequence, value }
    }

    fn insert(tx: u32, statement: u32, drawn: SequenceValue) -> Insert {
        Insert {
            tx: Tx(tx),
            statement,
            drawn,
        }
    }

    #[test]
    fn who_drew_what_is_known_of_one_insert_or_of_as_many_as_there_are_values() {
        let [a, b] = [value(5, 7), value(5, 8)];
        let [shown_a, shown_b] = [a, b].map(Drawn::shown);
        assert_eq!(of(Tx(1), &[2], &[shown_b, shown_a]), [insert(1, 2, a)]);
        assert_eq!(
            of(Tx(1), &[2, 4], &[shown_a, shown_b]),
            [insert(1, 2, a), insert(1, 4, b)]
        );
        assert_eq!(of(Tx(1), &[2, 4], &[shown_a]), []);
        assert_eq!(of(Tx(1), &[2], &[]), []);
        assert_eq!(of(Tx(1), &[], &[shown_a]), []);
    }

    #[test]
    fn where_the_server_told_each_insert_has_what_its_statement_drew_first() {
        let by = |statement, first| Drawn {
            statement: Some(statement),
            value: DrawnValue::Sequence { first, count: 3 },
        };
        let [row, logged, other] = [value(5, 7), value(6, 1), value(5, 20)];
        let drawn = [by(2, row), by(2, logged), by(4, other)];
        assert_eq!(
            of(Tx(1), &[2, 3, 4], &drawn),
            [insert(1, 2, row), insert(1, 4, other)]
        );
    }

    #[test]
    fn the_smaller_value_is_inserted_first() {
        let mut inserts = Inserts::new([
            insert(1, 0, value(5, 9)),
            insert(2, 3, value(5, 7)),
            insert(3, 1, value(6, 1)),
            insert(2, 4, value(5, 8)),
        ]);
        assert!(!inserts.may(Tx(1), 0, NONE));
        // Its own come in its order anyway, other sequences are others' business, and so is what
        // inserts nothing.
        assert!(inserts.may(Tx(2), 4, NONE) && inserts.may(Tx(3), 1, NONE));
        assert!(inserts.may(Tx(4), 0, NONE));
        assert!(inserts.may(Tx(1), 0, |one| one.tx == Tx(2)));
        assert!(!inserts.may(Tx(1), 0, |one| one.statement == 3));
        inserts.done(Tx(2), 4);
        assert!(!inserts.may(Tx(1), 0, NONE));
        inserts.done(Tx(2), 3);
        assert!(inserts.may(Tx(1), 0, NONE));
        inserts.done(Tx(9), 9);
        assert_eq!(inserts.count(), 2);
    }

    #[test]
    fn nobody_waits_for_what_will_not_insert() {
        let mut inserts = Inserts::new([
            insert(1, 0, value(5, 7)),
            insert(2, 0, value(5, 8)),
            insert(2, 1, value(6, 3)),
            insert(3, 0, value(5, 9)),
        ]);
        inserts.over(Tx(2));
        // What others wait for has changed, so they are asked again.
        assert_eq!(inserts.count(), 2);
        assert!(!inserts.may(Tx(3), 0, NONE));
        inserts.done(Tx(1), 0);
        assert!(inserts.may(Tx(3), 0, NONE));
        inserts.over(Tx(2));
        assert_eq!(inserts.count(), 3);
        assert_eq!(inserts.queues[0].head, 2);
    }
}
