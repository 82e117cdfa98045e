use expect_test::expect;
use proptest::prelude::*;

use super::*;

fn tables(text: &str) -> BTreeSet<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

fn facts(name: &str, reads: &str, writes: &str) -> TypeFacts {
    TypeFacts {
        name: name.to_owned(),
        requests: 1,
        reads: tables(reads),
        writes: tables(writes),
        undetermined: Vec::new(),
    }
}

fn undetermined(name: &str) -> TypeFacts {
    TypeFacts {
        undetermined: vec![("DO $1".to_owned(), "it runs code".to_owned())],
        ..facts(name, "", "")
    }
}

fn shown(types: &[TypeFacts], closure: &Closure) -> String {
    let executed = closure.executed.iter().map(|it| ('+', it.index, &it.why));
    let left_out = closure.left_out.iter().map(|it| ('-', it.index, &it.why));
    executed
        .chain(left_out)
        .map(|(sign, index, why)| format!("{sign} {} {why}\n", types[index].name))
        .collect()
}

fn select(types: &[TypeFacts], modified: &str, touched: Touches) -> String {
    shown(types, &Closure::of(types, &tables(modified), &touched))
}

#[test]
fn what_shares_written_tables_is_executed_transitively() {
    let types = [
        facts("subscribe", "forums subs", "subs"),
        facts("list", "subs", ""),
        facts("digest", "subs mails", "mails"),
        facts("mail", "", "mails"),
        facts("new-forum", "", "forums"),
        facts("login", "users", "sessions"),
        facts("profile", "forums users", "profiles"),
    ];
    expect![[r#"
        + subscribe is modified
        + digest reads subs, which subscribe writes, and writes other tables
        + mail writes mails, which digest reads
        + new-forum writes forums, which subscribe reads
        + profile reads forums, which new-forum writes, and writes other tables
        - list writes nothing
        - login writes sessions, which nothing that is executed touches
    "#]]
    .assert_eq(&select(&types, "subscribe", Touches::default()));
}

#[test]
fn readers_of_the_same_tables_do_not_matter_to_each_other() {
    let types = [facts("a", "shared", "a"), facts("b", "shared", "b")];
    expect![[r#"
        + a is modified
        - b writes b, which nothing that is executed touches
    "#]]
    .assert_eq(&select(&types, "a", Touches::default()));
}

#[test]
fn what_cannot_be_determined_touches_everything() {
    let types = [
        undetermined("do"),
        facts("write", "", "a"),
        facts("read", "b", ""),
        facts("ping", "", ""),
    ];
    expect![[r#"
        + do is modified
        + write shares tables with do, which may touch anything
        - read writes nothing
        - ping writes nothing
    "#]]
    .assert_eq(&select(&types, "do", Touches::default()));
    expect![[r#"
        + do may touch anything: it runs code, in DO $1
        + write shares tables with do, which may touch anything
        + read is modified
        - ping writes nothing
    "#]]
    .assert_eq(&select(&types, "read", Touches::default()));
    expect![[r#"
        + ping is modified
        - do nothing that is executed touches any table
        - write writes a, which nothing that is executed touches
        - read writes nothing
    "#]]
    .assert_eq(&select(&types, "ping", Touches::default()));
}

#[test]
fn a_migration_counts_as_a_toucher_of_its_own() {
    let types = [facts("a", "", "a"), facts("b", "", "b")];
    let touched = Touches {
        reads: tables(""),
        writes: tables("b"),
    };
    expect![[r#"
        + b writes b, which the change itself writes too
        - a writes a, which nothing that is executed touches
    "#]]
    .assert_eq(&select(&types, "", touched));
}

#[test]
fn reads_of_what_only_readers_touch_are_not_outside() {
    let types = [
        facts("a", "", "a"),
        facts("reader", "a c", ""),
        facts("b", "d", "b"),
    ];
    let closure = Closure::of(&types, &tables("a"), &Touches::default());
    let touched = |reads, writes| Touches {
        reads: tables(reads),
        writes: tables(writes),
    };
    assert_eq!(closure.outside(&touched("a c d", "a c new")), None);
    assert_eq!(
        closure.outside(&touched("a b", "c d")),
        Some(touched("b", "d"))
    );
}

fn some_tables() -> impl Strategy<Value = BTreeSet<String>> {
    proptest::collection::btree_set((0..8u8).prop_map(|n| format!("t{n}")), 0..3)
}

fn some_touches() -> impl Strategy<Value = Touches> {
    (some_tables(), some_tables()).prop_map(|(reads, writes)| Touches { reads, writes })
}

fn some_types() -> impl Strategy<Value = Vec<TypeFacts>> {
    let one = (some_tables(), some_tables(), 0..20u8);
    proptest::collection::vec(one, 0..10).prop_map(|all| {
        let numbered = all.into_iter().enumerate();
        let facts = numbered.map(|(index, (reads, writes, dice))| TypeFacts {
            name: format!("r{index}"),
            requests: 1,
            reads,
            writes,
            undetermined: match dice {
                0 => vec![("?".to_owned(), "?".to_owned())],
                _ => Vec::new(),
            },
        });
        facts.collect()
    })
}

fn some_modified() -> impl Strategy<Value = BTreeSet<String>> {
    proptest::collection::btree_set((0..10u8).prop_map(|n| format!("r{n}")), 0..3)
}

fn conflict(a: &TypeFacts, b: &TypeFacts) -> bool {
    if a.may_touch_anything() || b.may_touch_anything() {
        return a.may_touch() && b.may_touch();
    }
    !a.writes.is_disjoint(&b.writes)
        || !a.writes.is_disjoint(&b.reads)
        || !a.reads.is_disjoint(&b.writes)
}

proptest! {
    #[test]
    fn every_type_is_either_executed_or_left_out(types in some_types(), modified in some_modified(), touched in some_touches()) {
        let closure = Closure::of(&types, &modified, &touched);
        let mut all: Vec<usize> = closure.executed.iter().map(|it| it.index)
            .chain(closure.left_out.iter().map(|it| it.index)).collect();
        all.sort_unstable();
        prop_assert_eq!(all, (0..types.len()).collect::<Vec<_>>());
        for executed in &closure.executed {
            prop_assert!(closure.executes(executed.index));
        }
        for left_out in &closure.left_out {
            prop_assert!(!closure.executes(left_out.index));
        }
    }

    #[test]
    fn what_is_modified_is_executed(types in some_types(), modified in some_modified(), touched in some_touches()) {
        let closure = Closure::of(&types, &modified, &touched);
        for (index, each) in types.iter().enumerate() {
            prop_assert!(!modified.contains(&each.name) || closure.executes(index));
        }
    }

    #[test]
    fn nothing_left_out_that_writes_conflicts_with_anything_executed(types in some_types(), modified in some_modified(), touched in some_touches()) {
        let closure = Closure::of(&types, &modified, &touched);
        let beyond = TypeFacts { reads: touched.reads.clone(), writes: touched.writes.clone(), ..TypeFacts::default() };
        for left_out in &closure.left_out {
            let left_out = &types[left_out.index];
            if left_out.may_write() {
                prop_assert!(!conflict(left_out, &beyond));
                for executed in &closure.executed {
                    prop_assert!(!conflict(left_out, &types[executed.index]));
                }
            }
        }
    }

    #[test]
    fn only_what_is_connected_to_the_change_is_executed(types in some_types(), modified in some_modified(), touched in some_touches()) {
        let closure = Closure::of(&types, &modified, &touched);
        let beyond = TypeFacts { reads: touched.reads.clone(), writes: touched.writes.clone(), ..TypeFacts::default() };
        for executed in &closure.executed {
            let own = &types[executed.index];
            let others = closure.executed.iter().filter(|it| it.index != executed.index).map(|it| &types[it.index]);
            prop_assert!(modified.contains(&own.name) || own.may_write() && others.chain([&beyond]).any(|it| conflict(own, it)));
        }
    }

    #[test]
    fn more_to_begin_with_executes_no_less(types in some_types(), modified in some_modified(), more in some_modified(), touched in some_touches(), beyond in some_touches()) {
        let less = Closure::of(&types, &modified, &touched);
        let mut grown = touched;
        grown.extend(beyond);
        let more = Closure::of(&types, &(&modified | &more), &grown);
        for executed in &less.executed {
            prop_assert!(more.executes(executed.index));
        }
        prop_assert!(less.reads.is_subset(&more.reads) && less.writes.is_subset(&more.writes));
    }

    #[test]
    fn a_closure_allows_what_it_knows(types in some_types(), modified in some_modified(), touched in some_touches()) {
        let closure = Closure::of(&types, &modified, &touched);
        let own = Touches { reads: closure.reads.clone(), writes: closure.writes.clone() };
        prop_assert_eq!(closure.outside(&own), None);
        if let Some(left_behind) = closure.left_behind() {
            prop_assert!(left_behind.is_disjoint(&closure.writes) && left_behind.is_disjoint(&closure.reads));
        } else {
            prop_assert!(own.is_empty());
        }
        prop_assert_eq!(closure.outside(&touched), None);
    }

    #[test]
    fn growing_ends_and_each_step_executes_more(types in some_types(), modified in some_modified(), runs in proptest::collection::vec(some_touches(), 1..30)) {
        let mut touched = Touches::default();
        let mut closure = Closure::of(&types, &modified, &touched);
        for run in &runs {
            if let Some(outside) = closure.outside(run) {
                let before = closure.executed.len();
                touched.extend(outside);
                closure = Closure::of(&types, &modified, &touched);
                prop_assert!(closure.executed.len() > before);
                prop_assert_eq!(closure.outside(run), None);
            }
        }
    }
}
