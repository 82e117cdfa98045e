//! What the judge of readers says.

use std::collections::BTreeMap;

use expect_test::expect;
use hindcast_order::rows::{Prefix, Prefixes, Reader, Torn, WentBack};
use proptest::prelude::*;
use proptest::sample::Index;

/// Section 4: T and U each write x and y, and the rows end up in different orders.
#[test]
fn torn_states_are_recognized() {
    let mut history = Prefixes::new();
    history.put("x", "T");
    history.put("y", "T");
    history.commit();
    history.put("x", "u");
    history.put("x", "U");
    history.put("y", "U");
    history.commit();
    history.put("z", "V");
    history.delete("y");
    history.commit();
    history.put("z", "W");
    history.roll_back();

    let verdict = |rows: &[(&'static str, Option<&'static str>)]| {
        let rows = rows.iter().map(|(row, value)| (row, value.as_ref()));
        match history.find(rows) {
            Ok(prefixes) => format!("prefix {prefixes}"),
            Err(torn) => torn.to_string(),
        }
    };
    assert_eq!(verdict(&[("x", Some("T")), ("y", Some("T"))]), "prefix 1");
    assert_eq!(verdict(&[("x", Some("U")), ("z", None)]), "prefix 2");
    assert_eq!(verdict(&[("x", Some("U"))]), "prefix 2 to 3");
    assert_eq!(verdict(&[("y", None)]), "prefix 0, 3");
    assert_eq!(verdict(&[("nobody", None)]), "prefix 0 to 3");
    expect![[
        r#"row "y" was like that in prefixes 1, but what else was seen is of prefixes 2 to 3"#
    ]]
    .assert_eq(&verdict(&[("x", Some("U")), ("y", Some("T"))]));
    expect![[r#"row "x" was never committed like that"#]].assert_eq(&verdict(&[("x", Some("u"))]));
    expect![[r#"row "z" was never committed like that"#]].assert_eq(&verdict(&[("z", Some("W"))]));

    let whole = |rows: &[(&'static str, &'static str)]| {
        history
            .find_whole(&rows.iter().copied().collect())
            .map(|prefixes| prefixes.first())
    };
    assert_eq!(whole(&[]), Ok(Some(Prefix(0))));
    assert_eq!(whole(&[("x", "U"), ("y", "U")]), Ok(Some(Prefix(2))));
    assert_eq!(whole(&[("x", "U"), ("z", "V")]), Ok(Some(Prefix(3))));
    assert!(matches!(whole(&[("x", "U")]), Err(Torn::Apart { .. })));
}

#[test]
fn a_reader_who_sees_less_than_before_is_told() {
    let mut history = Prefixes::new();
    for value in [1, 2, 1, 3] {
        history.put("x", value);
        history.commit();
    }
    let seen = |value: i32| history.find([(&"x", Some(&value))]).unwrap();
    let mut reader = Reader::new();
    assert_eq!(reader.saw(&seen(1)), Ok(Prefix(1)));
    assert_eq!(reader.saw(&seen(2)), Ok(Prefix(2)));
    assert_eq!(reader.saw(&seen(1)), Ok(Prefix(3)), "it may have come back");
    let back = WentBack {
        reached: Prefix(3),
        seen: seen(2),
    };
    assert_eq!(
        back.to_string(),
        "the reader had seen prefix 3, and then prefixes 2"
    );
    assert_eq!(reader.saw(&seen(2)), Err(back));
    assert_eq!(reader.saw(&seen(3)), Ok(Prefix(4)));
}

#[test]
fn truncated_rows_are_gone() {
    let mut history = Prefixes::new();
    history.put(("a", 1), 1);
    history.put(("b", 1), 1);
    history.commit();
    history.put(("a", 2), 2);
    history.delete_where(|row| row.0 == "a");
    history.put(("a", 3), 3);
    let prefix = history.commit();
    let state: Vec<_> = history.state(prefix).into_iter().collect();
    assert_eq!(state, [(&("a", 3), &3), (&("b", 1), &1)]);
}

/// A history with few values, so that rows often look as they did before.
fn any_history() -> impl Strategy<Value = Prefixes<u8, u8>> {
    let write = (0..4u8, prop::option::weighted(0.7, 0..3u8));
    let transactions = prop::collection::vec(prop::collection::vec(write, 0..4), 0..12);
    transactions.prop_map(|transactions| {
        let mut history = Prefixes::new();
        for writes in transactions {
            for (row, value) in writes {
                match value {
                    Some(value) => history.put(row, value),
                    None => history.delete(row),
                }
            }
            history.commit();
        }
        history
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    /// The judge finds exactly those prefixes whose state is as seen.
    #[test]
    fn prefixes_are_found_exactly(
        history in any_history(),
        seen in prop::collection::btree_map(0..5u8, prop::option::of(0..3u8), 0..5),
    ) {
        let all = || (0..=history.latest().0).map(Prefix);
        let rows = || seen.iter().map(|(row, value)| (row, value.as_ref()));
        let expected: Vec<_> = all().filter(|&prefix| {
            let state = history.state(prefix);
            rows().all(|(row, value)| state.get(row).copied() == value)
        }).collect();
        match history.find(rows()) {
            Ok(found) => prop_assert_eq!(all().filter(|&prefix| found.contains(prefix)).collect::<Vec<_>>(), expected),
            Err(torn) => {
                prop_assert_eq!(expected, vec![]);
                if let Torn::Never { row } = torn {
                    prop_assert!(all().all(|prefix| history.state(prefix).get(&row).copied() != seen[&row].as_ref()));
                }
            }
        }

        let whole: BTreeMap<u8, u8> = seen.iter().filter_map(|(&row, &value)| Some((row, value?))).collect();
        let same = |prefix| history.state(prefix).into_iter().eq(&whole);
        let found = history.find_whole(&whole);
        for prefix in all() {
            prop_assert_eq!(found.as_ref().is_ok_and(|found| found.contains(prefix)), same(prefix));
        }
    }

    /// Every state of the history is recognized, and a reader is accused only if no order of its
    /// prefixes explains what it saw.
    #[test]
    fn readers_are_judged_fairly(history in any_history(), looks in prop::collection::vec((0..4u8, any::<Index>()), 0..6)) {
        let mut reader = Reader::new();
        // All prefixes that the reader can be at by now.
        let mut possible: Vec<u64> = (0..=history.latest().0).collect();
        for (row, at) in looks {
            let truth = Prefix(at.index(history.latest().0 as usize + 1) as u64);
            let state = history.state(truth);
            let seen = history.find([(&row, state.get(&row).copied())]);
            let seen = seen.map_err(|torn| TestCaseError::fail(torn.to_string()))?;
            prop_assert!(seen.contains(truth));
            let least = possible.first().copied().unwrap();
            possible = (least..=history.latest().0).filter(|&prefix| seen.contains(Prefix(prefix))).collect();
            let verdict = reader.saw(&seen);
            prop_assert_eq!(verdict.clone().ok().map(|prefix| prefix.0), possible.first().copied());
            if verdict.is_err() {
                break;
            }
        }
    }
}
