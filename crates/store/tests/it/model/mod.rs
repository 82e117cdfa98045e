//! What the store should hold: a plain map per commit.

use std::collections::BTreeMap;
use std::ops::Bound;

use hindcast_store::{Appender, Cell, Mark, Snapshot, TableId};
use proptest::prelude::*;

pub const TABLES: u8 = 2;

pub type Row = (u32, Vec<Option<Vec<u8>>>);
pub type State = Vec<BTreeMap<Vec<u8>, Row>>;

#[derive(Clone, Debug)]
pub enum Value {
    Null,
    Number(u32),
    Long(u32),
    Unchanged,
}

#[derive(Clone, Debug)]
pub enum Op {
    Put {
        table: u8,
        key: u8,
        values: Vec<Value>,
        moved_from: Option<u8>,
    },
    Delete {
        table: u8,
        key: u8,
    },
    Truncate {
        table: u8,
    },
}

impl Op {
    pub fn put(table: u8, key: u8, number: u32) -> Op {
        Op::Put {
            table,
            key,
            values: vec![Value::Number(number)],
            moved_from: None,
        }
    }
}

pub fn table(table: u8) -> TableId {
    TableId(u32::from(table) * 1000)
}

/// Keys of all lengths: in the slot and on the heap, alike in their first eight bytes or not, and
/// the empty one.
pub fn key(key: u8) -> Vec<u8> {
    match key {
        0 => Vec::new(),
        n if n % 3 == 0 => format!("a common beginning {n:03}").into_bytes(),
        n if n % 3 == 1 => vec![n, 0, n],
        n => vec![n],
    }
}

fn bytes(value: &Value) -> Option<Vec<u8>> {
    match value {
        Value::Null | Value::Unchanged => None,
        Value::Number(n) => Some(n.to_string().into_bytes()),
        Value::Long(n) => Some(n.to_string().repeat(30).into_bytes()),
    }
}

pub fn value() -> impl Strategy<Value = Value> {
    prop_oneof![
        4 => any::<u32>().prop_map(Value::Number),
        1 => any::<u32>().prop_map(Value::Long),
        1 => Just(Value::Null),
        2 => Just(Value::Unchanged),
    ]
}

pub fn op() -> impl Strategy<Value = Op> {
    let (table, key) = (|| 0..TABLES, || 0..12u8);
    prop_oneof![
        10 => (table(), key(), prop::collection::vec(value(), 0..4))
            .prop_map(|(table, key, values)| Op::Put { table, key, values, moved_from: None }),
        3 => (table(), key(), prop::collection::vec(value(), 1..4), key())
            .prop_map(|(table, key, values, from)| Op::Put { table, key, values, moved_from: Some(from) }),
        5 => (table(), key()).prop_map(|(table, key)| Op::Delete { table, key }),
        1 => table().prop_map(|table| Op::Truncate { table }),
    ]
}

fn apply(state: &mut State, op: &Op) {
    match op {
        Op::Put {
            table,
            key: new,
            values,
            moved_from,
        } => {
            let rows = &mut state[*table as usize];
            let base = match moved_from {
                Some(old) if old != new => rows.remove(&key(*old)),
                _ => rows.get(&key(*new)).cloned(),
            };
            let cells = values
                .iter()
                .enumerate()
                .map(|(i, value)| match value {
                    Value::Unchanged => base
                        .as_ref()
                        .and_then(|base| base.1.get(i).cloned().flatten()),
                    value => bytes(value),
                })
                .collect();
            rows.insert(key(*new), (values.len() as u32 + 100, cells));
        }
        Op::Delete { table, key: gone } => {
            state[*table as usize].remove(&key(*gone));
        }
        Op::Truncate { table } => state[*table as usize].clear(),
    }
}

pub struct Log {
    pub transactions: Vec<Vec<Op>>,
    /// The state after each commit, by its position. The nth commit has position 3n.
    pub states: BTreeMap<u64, State>,
    empty: State,
}

impl Log {
    pub fn new(transactions: Vec<Vec<Op>>) -> Log {
        let empty: State = (0..TABLES).map(|_| BTreeMap::new()).collect();
        let mut state = empty.clone();
        let mut states = BTreeMap::new();
        for (i, transaction) in transactions.iter().enumerate() {
            transaction.iter().for_each(|op| apply(&mut state, op));
            states.insert((i as u64 + 1) * 3, state.clone());
        }
        Log {
            transactions,
            states,
            empty,
        }
    }

    /// Many transactions, every one of which writes one of two hot rows.
    pub fn random(transactions: usize, seed: u64) -> Log {
        let mut random = seed;
        let mut next = move |below: u64| {
            random = random
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            (random >> 33) % below
        };
        let one = |next: &mut dyn FnMut(u64) -> u64| {
            let (table, key) = (next(u64::from(TABLES)) as u8, next(20) as u8);
            match next(40) {
                0..8 => Op::Delete { table, key },
                8..12 => Op::Put {
                    table,
                    key,
                    values: vec![Value::Unchanged, Value::Number(next(1000) as u32)],
                    moved_from: Some(next(20) as u8),
                },
                12 if next(20) == 0 => Op::Truncate { table },
                n => Op::put(table, key, n as u32 + next(100_000) as u32),
            }
        };
        let log = (0..transactions)
            .map(|_| {
                let mut ops: Vec<Op> = (0..next(4)).map(|_| one(&mut next)).collect();
                ops.push(Op::put(0, next(2) as u8, next(1 << 30) as u32));
                ops
            })
            .collect();
        Log::new(log)
    }

    pub fn last_lsn(&self) -> u64 {
        self.transactions.len() as u64 * 3
    }

    pub fn at_or_before(&self, lsn: u64) -> u64 {
        self.states
            .range(..=lsn)
            .next_back()
            .map_or(0, |(lsn, _)| *lsn)
    }

    pub fn state(&self, lsn: u64) -> &State {
        if lsn == 0 {
            &self.empty
        } else {
            &self.states[&lsn]
        }
    }
}

pub fn feed_ops(appender: &mut Appender, ops: &[Op]) {
    for op in ops {
        match op {
            Op::Put {
                table: number,
                key: new,
                values,
                moved_from,
            } => {
                let values: Vec<_> = values.iter().map(|value| (value, bytes(value))).collect();
                let cells = values.iter().map(|(value, bytes)| match (value, bytes) {
                    (Value::Unchanged, _) => Cell::Unchanged,
                    (_, None) => Cell::Null,
                    (_, Some(bytes)) => Cell::Value(bytes),
                });
                let old = moved_from.map(key);
                appender.put(
                    table(*number),
                    &key(*new),
                    values.len() as u32 + 100,
                    cells,
                    old.as_deref(),
                );
            }
            Op::Delete {
                table: number,
                key: gone,
            } => appender.delete(table(*number), &key(*gone)),
            Op::Truncate { table: number } => appender.truncate(table(*number)),
        }
    }
}

pub fn feed(appender: &mut Appender, log: &Log, flush_every: usize) {
    for (i, transaction) in log.transactions.iter().enumerate() {
        feed_ops(appender, transaction);
        let lsn = (i as u64 + 1) * 3;
        appender.commit(Mark {
            lsn,
            time: lsn as i64 * 10,
        });
        if i % flush_every == 0 {
            appender.flush();
        }
    }
}

/// The snapshot holds exactly the state after its commit.
pub fn check_snapshot(snapshot: &Snapshot, log: &Log) {
    let lsn = snapshot.mark().lsn;
    let state = log.state(lsn);
    for number in 0..TABLES {
        let expected = &state[number as usize];
        let found: BTreeMap<Vec<u8>, Row> = snapshot
            .scan(table(number), Bound::Unbounded, Bound::Unbounded)
            .map(|(key, row)| {
                let cells = (0..row.len())
                    .map(|i| row.cell(i).map(<[u8]>::to_vec))
                    .collect();
                (key.to_vec(), (row.layout(), cells))
            })
            .collect();
        assert_eq!(&found, expected, "table {number} at {lsn}");
        for n in 0..20 {
            let row = snapshot.get(table(number), &key(n));
            let expected = expected.get(&key(n));
            assert_eq!(
                row.is_some(),
                expected.is_some(),
                "key {n} of table {number} at {lsn}"
            );
            if let (Some(row), Some((layout, cells))) = (row, expected) {
                assert_eq!(row.layout(), *layout);
                assert!((0..row.len()).all(|i| row.cell(i) == cells[i].as_deref()));
            }
        }
    }
}
