//! In which order rows were inserted.
//!
//! Where a result has no complete order, rows come as they lie in the table: in the order in
//! which they were inserted. No snapshot tells it. A sequence does: who drew the smaller value
//! inserted first. Of others, the transactions' ids tell it, where none waited: the server gives
//! one just before a transaction writes its first row. An `UPDATE` counts as an insert there: it
//! leaves a new version of each row, where the next row would lie. So does a query that skips what
//! is locked: who took first has the first row.
//!
//! ```text
//!   order          value ─▶
//!   note_id_seq    │ 7: #4 stmt 2 │ 8: #9 stmt 1 │ 9: #7 stmt 3 │
//!                       inserted        ▲ waits for those before it, for a while
//!   table session  │ 771: #3 stmt 1 │ 774: #5 stmt 0 │
//! ```
//!
//! The order is wished for and not required: what waits for a row of another transaction may insert
//! later than it drew. So one that can go on only behind another is not waited for by that, nobody
//! waits for long, and a replay cannot stand still by this.

use std::collections::BTreeMap;

use hindcast_model::Xid;
use hindcast_order::{Level, Levels, Tx};
use hindcast_trace::{Drawn, DrawnValue, SequenceValue, Snapshot, StatementSnapshot, Transaction};

/// What tells the order of some inserts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Order {
    /// The values of this sequence.
    Sequence(u32),
    /// The ids of transactions whose first write is a row of this table, which has this number
    /// among the tables that are written.
    Table(u32),
}

/// A statement that inserted a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Insert {
    pub tx: Tx,
    /// Its index in the transaction.
    pub statement: u32,
    pub order: Order,
    /// Its place in that order. The first, if it drew several values of a sequence.
    pub value: i64,
    pub role: Role,
}

/// What a statement with a place does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Lays rows.
    Lays,
    /// Lays rows behind those that it waited for, so its place does not say where they lie. But who
    /// takes rows passed over the one that it had by then.
    LaysLate,
    /// Takes rows that nobody has locked.
    Takes,
}

/// When a transaction was given its id.
#[derive(Clone, Copy, Debug)]
pub struct Id {
    /// Among those of others.
    pub place: i64,
    /// One of its statements waited.
    pub waited: bool,
}

impl Id {
    pub fn of(xid: Xid, recorded: &Transaction) -> Self {
        Self {
            place: place_of(xid),
            waited: !recorded.rechecked.is_empty(),
        }
    }

    /// Of one that was given none, as there was nothing that it could have taken: it came behind
    /// all that had one by then.
    pub fn of_none(first: FirstWrite, recorded: &Transaction) -> Option<Self> {
        let own = recorded.snapshot.as_ref();
        let place = place_of_none(first, &recorded.statement_snapshots, own)?;
        Some(Self {
            place,
            waited: false,
        })
    }
}

fn place_of_none(
    first: FirstWrite,
    noted: &[StatementSnapshot],
    own: Option<&Snapshot>,
) -> Option<i64> {
    let noted = noted.iter();
    let noted = noted.take_while(|one| one.statement <= first.statement);
    let seen = noted.last().map(|one| &one.snapshot);
    Some(place_of(seen.or(own)?.xmax) - 1)
}

/// There is a place between two ids.
fn place_of(xid: Xid) -> i64 {
    i64::try_from(xid.0).unwrap_or(i64::MAX / 2) * 2
}

/// The statement by which transactions of some shape write first, if it inserts or updates, or
/// takes rows that others have not locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FirstWrite {
    pub statement: u32,
    /// See [`Order::Table`].
    pub table: u32,
    /// It takes rows: its transaction is given its id when it has one, and not before.
    pub takes: bool,
}

/// The inserts of a transaction of which it is known when they were: by what was drawn, or else by
/// the transaction's id, if the first thing that it wrote is such a row. `inserting`: which of its
/// statements insert.
pub fn of(
    tx: Tx,
    inserting: &[u32],
    drawn: &[Drawn],
    first: Option<(FirstWrite, Id)>,
) -> Vec<Insert> {
    let mut inserts = by_sequence(tx, inserting, drawn);
    let is_known = |first: FirstWrite| inserts.iter().any(|one| one.statement == first.statement);
    if let Some((first, id)) = first.filter(|(first, _)| !is_known(*first)) {
        inserts.insert(0, by_id(tx, first, id));
    }
    inserts
}

fn by_sequence(tx: Tx, inserting: &[u32], drawn: &[Drawn]) -> Vec<Insert> {
    let of_sequence = |one: &Drawn| match one.value {
        DrawnValue::Sequence { first, .. } => Some((one.statement, first)),
        _ => None,
    };
    let drawn: Vec<_> = drawn.iter().filter_map(of_sequence).collect();
    let insert = |statement: u32, drawn: SequenceValue| Insert {
        tx,
        statement,
        order: Order::Sequence(drawn.sequence),
        value: drawn.value,
        role: Role::Lays,
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

fn by_id(tx: Tx, first: FirstWrite, id: Id) -> Insert {
    Insert {
        tx,
        statement: first.statement,
        order: Order::Table(first.table),
        value: id.place,
        role: match first.takes {
            true => Role::Takes,
            false if id.waited => Role::LaysLate,
            false => Role::Lays,
        },
    }
}

/// How far a replay has come with them.
#[derive(Debug, Default)]
pub struct Inserts {
    /// By what orders them, in the order of values.
    queues: Vec<Queue>,
    /// Where an insert stands: its queue, and its place there.
    places: BTreeMap<(Tx, u32), (usize, usize)>,
    /// The levels at which commits become visible, where somebody takes rows.
    commits: Vec<Level>,
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
        let mut by_order: BTreeMap<Order, Vec<Insert>> = BTreeMap::new();
        for insert in inserts {
            let queue = by_order.entry(insert.order).or_default();
            queue.push(insert);
        }
        let mut new = Self::default();
        for mut queue in by_order.into_values() {
            queue.sort_by_key(|insert| insert.value);
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

    /// Those levels are known.
    pub fn with_commits(mut self, levels: &Levels) -> Self {
        let mut inserts = self.queues.iter().flat_map(|queue| &queue.inserts);
        if inserts.any(|(one, _)| one.role == Role::Takes) {
            let all = (0..levels.len() as u32).map(Tx);
            self.commits = all.filter_map(|tx| levels.visible_from(tx)).collect();
            self.commits.sort_unstable();
            self.commits.dedup();
        }
        self
    }

    /// Whether the second of two levels shows a commit that the first one does not.
    pub fn any_between(&self, first: Level, second: Level) -> bool {
        let shown = |level| self.commits.partition_point(|&commit| commit <= level);
        shown(first) < shown(second)
    }

    /// How many have inserted, or never will. Only grows.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// `None` if the statement has no place.
    pub fn role(&self, tx: Tx, statement: u32) -> Option<Role> {
        let &(queue, place) = self.places.get(&(tx, statement))?;
        Some(self.queues[queue].inserts[place].0.role)
    }

    /// Whether all that inserted earlier have, or never will, or would be waited for in vain.
    pub fn may(&self, tx: Tx, statement: u32, in_vain: impl Fn(Insert) -> bool) -> bool {
        let Some(&(queue, place)) = self.places.get(&(tx, statement)) else {
            return true;
        };
        let queue = &self.queues[queue];
        let own = queue.inserts[place].0.role;
        if own == Role::LaysLate {
            return true;
        }
        let is_waited_for = |other: Insert| own == Role::Takes || other.role != Role::LaysLate;
        let before = &queue.inserts[queue.head.min(place)..place];
        let mut before = before.iter().filter(|(_, done)| !done);
        before.all(|&(other, _)| other.tx == tx || !is_waited_for(other) || in_vain(other))
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
            order: Order::Sequence(drawn.sequence),
            value: drawn.value,
            role: Role::Lays,
        }
    }

    const fn id(place: i64) -> Id {
        Id {
            place,
            waited: false,
        }
    }

    #[test]
    fn keys_of_no_sequence_are_inserted_in_the_order_of_ids() {
        let first = |statement, table| FirstWrite {
            statement,
            table,
            takes: false,
        };
        let mut inserts = Inserts::new([
            by_id(Tx(1), first(1, 0), id(774)),
            by_id(Tx(2), first(0, 0), id(771)),
            by_id(Tx(3), first(0, 1), id(772)),
            insert(4, 0, value(0, 7)),
        ]);
        assert!(!inserts.may(Tx(1), 1, NONE) && inserts.may(Tx(2), 0, NONE));
        // Another table, and a sequence of the same number.
        assert!(inserts.may(Tx(3), 0, NONE) && inserts.may(Tx(4), 0, NONE));
        inserts.done(Tx(2), 0);
        assert!(inserts.may(Tx(1), 1, NONE));
    }

    /// Who waited has its row late, and who takes rows meets it there.
    #[test]
    fn who_takes_rows_comes_behind_who_waited_for_one() {
        let first = |takes| FirstWrite {
            statement: 0,
            table: 0,
            takes,
        };
        let waited = |place| Id {
            place,
            waited: true,
        };
        let mut inserts = Inserts::new([
            by_id(Tx(1), first(false), id(771)),
            by_id(Tx(2), first(false), waited(772)),
            by_id(Tx(3), first(false), id(773)),
            by_id(Tx(4), first(true), id(774)),
        ]);
        assert!(inserts.may(Tx(2), 0, NONE));
        inserts.done(Tx(1), 0);
        assert!(inserts.may(Tx(3), 0, NONE));
        inserts.done(Tx(3), 0);
        assert!(!inserts.may(Tx(4), 0, NONE));
        inserts.done(Tx(2), 0);
        assert!(inserts.may(Tx(4), 0, NONE));
    }

    /// As of two that take, and one that finds nothing more, while a fourth one begins.
    #[test]
    fn who_found_nothing_to_take_comes_behind_all_that_had_an_id() {
        let first = FirstWrite {
            statement: 1,
            table: 0,
            takes: true,
        };
        let seen = |statement, snapshot: &str| StatementSnapshot {
            statement,
            snapshot: snapshot.parse().expect("it is one"),
        };
        let noted = [
            seen(0, "770:771:770"),
            seen(1, "770:773:770"),
            seen(2, "773:773:"),
        ];
        let place = place_of_none(first, &noted, None).expect("it is known");
        assert!(place_of(Xid(772)) < place && place < place_of(Xid(773)));
        assert_eq!(place_of_none(first, &[], None), None);
    }

    #[test]
    fn what_a_sequence_tells_counts_before_the_transactions_id() {
        let first = FirstWrite {
            statement: 2,
            table: 0,
            takes: false,
        };
        let by_its_id = Some((first, id(771)));
        let drawn = [Drawn::shown(value(5, 7))];
        let by_sequence = insert(1, 2, value(5, 7));
        assert_eq!(of(Tx(1), &[2], &drawn, by_its_id), [by_sequence]);
        let by_id = by_id(Tx(1), first, id(771));
        assert_eq!(of(Tx(1), &[2, 4], &drawn, by_its_id), [by_id]);
        assert_eq!(of(Tx(1), &[2], &[], by_its_id), [by_id]);
    }

    #[test]
    fn who_drew_what_is_known_of_one_insert_or_of_as_many_as_there_are_values() {
        let [a, b] = [value(5, 7), value(5, 8)];
        let [shown_a, shown_b] = [a, b].map(Drawn::shown);
        assert_eq!(
            of(Tx(1), &[2], &[shown_b, shown_a], None),
            [insert(1, 2, a)]
        );
        assert_eq!(
            of(Tx(1), &[2, 4], &[shown_a, shown_b], None),
            [insert(1, 2, a), insert(1, 4, b)]
        );
        assert_eq!(of(Tx(1), &[2, 4], &[shown_a], None), []);
        assert_eq!(of(Tx(1), &[2], &[], None), []);
        assert_eq!(of(Tx(1), &[], &[shown_a], None), []);
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
            of(Tx(1), &[2, 3, 4], &drawn, None),
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
