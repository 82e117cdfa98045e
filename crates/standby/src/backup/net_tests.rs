use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

/// A tuple as the log writes it.
fn tuple(values: &[Option<Option<String>>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for value in values {
        match value {
            None => bytes.push(b'u'),
            Some(None) => bytes.push(b'n'),
            Some(Some(text)) => {
                bytes.push(b't');
                bytes.extend_from_slice(&u32::try_from(text.len()).unwrap().to_be_bytes());
                bytes.extend_from_slice(text.as_bytes());
            }
        }
    }
    bytes
}

fn read(bytes: &[u8]) -> Tuple<'_> {
    Tuple::from_raw(3, bytes).unwrap()
}

type Values = [Option<String>; 2];
type Model = BTreeMap<u8, Values>;

#[derive(Clone, Debug)]
enum Step {
    Put(u8, Values),
    /// Which of the two columns the log leaves out.
    Update(u8, Values, [bool; 2]),
    Move(u8, u8, Values, [bool; 2], bool),
    Delete(u8),
}

fn values() -> impl Strategy<Value = Values> {
    let value = || proptest::option::of("[a-c]{0,3}");
    [value(), value()]
}

fn step() -> impl Strategy<Value = Step> {
    let key = 0..6u8;
    prop_oneof![
        (key.clone(), values()).prop_map(|(key, values)| Step::Put(key, values)),
        (key.clone(), values(), any::<[bool; 2]>()).prop_map(|(k, v, u)| Step::Update(k, v, u)),
        (
            key.clone(),
            key.clone(),
            values(),
            any::<[bool; 2]>(),
            any::<bool>()
        )
            .prop_map(|(from, to, v, u, full)| Step::Move(from, to, v, u, full)),
        key.prop_map(Step::Delete),
    ]
}

/// The new values, and the tuple with what was left out.
fn merged(
    before: &Values,
    new: &Values,
    left_out: [bool; 2],
) -> (Values, Vec<Option<Option<String>>>) {
    let mut after = new.clone();
    let mut sent = vec![];
    for column in 0..2 {
        // The log leaves out large values only, never nulls.
        if left_out[column] && before[column].is_some() {
            after[column].clone_from(&before[column]);
            sent.push(None);
        } else {
            sent.push(Some(new[column].clone()));
        }
    }
    (after, sent)
}

fn row(key: u8, values: &[Option<Option<String>>]) -> Vec<u8> {
    let mut all = vec![Some(Some(key.to_string()))];
    all.extend(values.iter().cloned());
    tuple(&all)
}

fn known(values: &Values) -> Vec<Option<Option<String>>> {
    values.iter().cloned().map(Some).collect()
}

/// Writes what is left, as the backup does.
fn write(net: &Net, model: &mut Model) {
    let key = |row| -> u8 {
        let text = read_key(net.key(row)).next().unwrap();
        std::str::from_utf8(text).unwrap().parse().unwrap()
    };
    let value = |row, column| match net.value(row, column) {
        Datum::Null => None,
        Datum::Text(text) => Some(String::from_utf8(text.to_vec()).unwrap()),
        Datum::Unchanged => panic!("the value is not known"),
    };
    let plan = net.plan(|rows| rows.sort());
    for row in plan.deletes {
        assert!(
            model.remove(&key(row)).is_some(),
            "deletes what is not there"
        );
    }
    for (mask, rows) in plan.updates {
        for row in rows {
            let before = model.get_mut(&key(row)).expect("updates what is not there");
            for &column in &mask {
                before[column - 1] = value(row, column);
            }
        }
    }
    for row in plan.replaces {
        let new = [value(row, 1), value(row, 2)];
        assert!(model.insert(key(row), new).is_some(), "replaces nothing");
    }
    for row in plan.inserts {
        let new = [value(row, 1), value(row, 2)];
        assert!(model.insert(key(row), new).is_none(), "inserts twice");
    }
}

proptest! {
    #[test]
    fn the_net_change_does_what_the_changes_do(
        start in proptest::collection::btree_map(0..6u8, values(), 0..6),
        steps in proptest::collection::vec(step(), 0..60),
    ) {
        let mut one_by_one: Model = start.clone();
        let mut written: Model = start;
        let mut net = Net::new(3, vec![0]);
        for step in steps {
            let (old, new, change): (Vec<u8>, Vec<u8>, u8);
            match step {
                Step::Put(key, values) => {
                    if one_by_one.contains_key(&key) {
                        continue;
                    }
                    (old, new, change) = (vec![], row(key, &known(&values)), b'I');
                    one_by_one.insert(key, values);
                }
                Step::Delete(key) => {
                    if one_by_one.remove(&key).is_none() {
                        continue;
                    }
                    (old, new, change) = (row(key, &[Some(None), Some(None)]), vec![], b'D');
                }
                Step::Update(key, values, left_out) => {
                    let Some(before) = one_by_one.get_mut(&key) else { continue };
                    let (after, sent) = merged(before, &values, left_out);
                    *before = after;
                    (old, new, change) = (vec![], row(key, &sent), b'U');
                }
                Step::Move(from, to, values, left_out, full) => {
                    if one_by_one.contains_key(&to) {
                        continue;
                    }
                    let Some(before) = one_by_one.remove(&from) else { continue };
                    let (after, sent) = merged(&before, &values, left_out);
                    one_by_one.insert(to, after);
                    new = row(to, &sent);
                    (old, change) = match full {
                        true => (row(from, &known(&before)), b'F'),
                        false => (row(from, &[Some(None), Some(None)]), b'K'),
                    };
                }
            }
            let change = match change {
                b'I' => Change::Insert { new: read(&new) },
                b'D' => Change::Delete { old: Old::Key(read(&old)) },
                b'U' => Change::Update { old: Old::None, new: read(&new) },
                b'K' => Change::Update { old: Old::Key(read(&old)), new: read(&new) },
                _ => Change::Update { old: Old::Full(read(&old)), new: read(&new) },
            };
            match net.apply(Lsn(1), &change).unwrap() {
                Applied::Done => {}
                Applied::MustMove => {
                    // What is pending goes first, then the row itself is moved: the model already
                    // knows its values.
                    write(&net, &mut written);
                    net = Net::new(3, vec![0]);
                    let Change::Update { old: Old::Key(old), new } = change else { panic!("{change:?}") };
                    let key = |tuple: Tuple<'_>| match tuple.iter().next() {
                        Some(Datum::Text(text)) => std::str::from_utf8(text).unwrap().parse::<u8>().unwrap(),
                        other => panic!("{other:?}"),
                    };
                    assert!(written.remove(&key(old)).is_some());
                    written.insert(key(new), one_by_one[&key(new)].clone());
                }
            }
        }
        write(&net, &mut written);
        prop_assert_eq!(one_by_one, written);
    }
}

fn change(net: &mut Net, kind: u8, key: u8) -> Result<Applied, Contradiction> {
    let bytes = row(key, &[Some(None), Some(Some("x".to_owned()))]);
    let tuple = read(&bytes);
    let change = match kind {
        b'I' => Change::Insert { new: tuple },
        b'U' => Change::Update {
            old: Old::None,
            new: tuple,
        },
        _ => Change::Delete {
            old: Old::Key(tuple),
        },
    };
    net.apply(Lsn(7), &change)
}

#[test]
fn contradictions_are_noticed() {
    let check = |kinds: &[u8], expected: Result<Applied, Contradiction>| {
        let mut net = Net::new(3, vec![0]);
        let (last, before) = kinds.split_last().unwrap();
        for &kind in before {
            assert_eq!(change(&mut net, kind, 1), Ok(Applied::Done));
        }
        assert_eq!(change(&mut net, *last, 1), expected, "{kinds:?}");
    };
    check(b"II", Err(Contradiction::AlreadyThere));
    check(b"UI", Err(Contradiction::AlreadyThere));
    check(b"DII", Err(Contradiction::AlreadyThere));
    check(b"DU", Err(Contradiction::NotThere));
    check(b"DD", Err(Contradiction::NotThere));
    check(b"IDD", Err(Contradiction::NotThere));
    check(b"IDU", Err(Contradiction::NotThere));
    check(b"IDI", Ok(Applied::Done));
    check(b"DIUD", Ok(Applied::Done));
}

#[test]
fn a_row_is_written_once_however_often_it_changed() {
    let mut net = Net::new(3, vec![0]);
    for _ in 0..1000 {
        assert_eq!(change(&mut net, b'U', 1), Ok(Applied::Done));
    }
    let plan = net.plan(|rows| rows.sort());
    assert_eq!(plan.updates, BTreeMap::from([(vec![1, 2], vec![0])]));
    assert!(net.bytes() < 500, "{}", net.bytes());
}

#[test]
fn a_key_that_is_null_or_left_out_is_no_key() {
    let mut net = Net::new(3, vec![0]);
    for first in [None, Some(None)] {
        let bytes = tuple(&[first, Some(None), Some(None)]);
        let change = Change::Insert { new: read(&bytes) };
        assert_eq!(net.apply(Lsn(1), &change), Err(Contradiction::NoKey));
    }
}

#[test]
fn rows_that_share_a_key_for_a_moment_are_not_mixed_up() {
    let mut net = Net::new(3, vec![0]);
    let whole = |key, value: &str| row(key, &[Some(None), Some(Some(value.to_owned()))]);
    // id = id + 1 where nothing forbids that 2 is there twice in between.
    let (one, two, two_moved) = (whole(1, "one"), whole(2, "one"), whole(3, "two"));
    let change = Change::Update {
        old: Old::Full(read(&one)),
        new: read(&two),
    };
    assert_eq!(net.apply(Lsn(1), &change), Ok(Applied::Done));
    let other = whole(2, "two");
    let change = Change::Update {
        old: Old::Full(read(&other)),
        new: read(&two_moved),
    };
    assert_eq!(net.apply(Lsn(1), &change), Err(Contradiction::AnotherRow));
}
