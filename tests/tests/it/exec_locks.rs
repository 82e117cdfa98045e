//! Locks and threads: run as they are, recorded in each order, and replayed with the same order of
//! every lock.
//!
//! The programs are in tests/programs; see.h there says what their output means. Each lock in them
//! keeps a digest of who held it when, so that a replay with the same output had the same order.

use std::collections::BTreeSet;

use hindcast_tests::exec::{Program, Scene, programs};

const ORDERS: [&str; 4] = ["edge", "relaxed", "total", "vector"];

fn check(program: &str) {
    for order in ORDERS {
        let scene = Scene::new(&format!("{program}-{order}"));
        let command = Program::new(programs::compiled(program)).options(["--order", order]);
        let recorded = scene.assert_records_and_replays(&command);
        recorded.assert_code(0);
    }
}

macro_rules! programs {
    ($($name:ident)*) => {
        $(
            #[test]
            fn $name() {
                check(stringify!($name));
            }
        )*
        const TESTED: &[&str] = &[$(stringify!($name)),*];
    };
}

programs! {
    sync_condition
    sync_cpp
    sync_everything
    sync_handlers
    sync_history
    sync_mutex
    sync_rounds
    sync_rwlock
    sync_stdio
    sync_threads
}

/// Threads that end by `pthread_exit`, for which libc loads a library, while others are joined.
#[test]
fn threads() {
    check("threads");
}

#[test]
fn every_program_of_locks_has_a_test() {
    let there: BTreeSet<String> = programs::names()
        .into_iter()
        .filter(|name| name.starts_with("sync_"))
        .collect();
    let tested: BTreeSet<String> = TESTED.iter().map(|name| (*name).to_owned()).collect();
    assert_eq!(tested, there);
}
