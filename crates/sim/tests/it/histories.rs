//! Every history replays to the same reads, the same responses and the same final state, and never
//! gets stuck.

use hindcast_sim::check;
use hindcast_sim::record::{History, Traits};
use hindcast_sim::replay::{Options, Outcome, RowLocks};
use hindcast_sim::service::Strategy;

fn replays(history: &History, seed: u64, row_locks: RowLocks) -> Result<(), String> {
    for strategy in Strategy::ALL {
        let options = Options {
            row_locks,
            ..Options::unlimited(strategy)
        };
        match history.replay(seed, options) {
            Outcome::Faithful => {}
            outcome => return Err(format!("{strategy:?}: {outcome:?}")),
        }
    }
    Ok(())
}

#[test]
fn histories_replay_whatever_the_scheduler_picks() {
    check("histories_replay_whatever_the_scheduler_picks", |seed| {
        let traits = Traits {
            row_locks: seed.is_multiple_of(2),
            advisory_locks: seed.is_multiple_of(3),
            ..Traits::default()
        };
        replays(&History::record(seed, traits), seed, RowLocks::NotTaken)
    });
}

/// With row locks taken and writes undone, if everything that touches a row's locks is ordered.
#[test]
fn histories_replay_with_row_locks_if_all_that_touches_them_is_ordered() {
    check(
        "histories_replay_with_row_locks_if_all_that_touches_them_is_ordered",
        |seed| {
            let traits = Traits {
                row_locks: true,
                advisory_locks: seed.is_multiple_of(3),
                savepoints: seed.is_multiple_of(2),
                ..Traits::default()
            };
            replays(
                &History::record(seed, traits),
                seed,
                RowLocks::OrderedWithAll,
            )
        },
    );
}

/// Under READ COMMITTED, of some transactions or all: each statement sees what it saw, and one that
/// waited for a writer runs after it.
#[test]
fn histories_under_read_committed_replay_whatever_the_scheduler_picks() {
    let (mut rechecked, mut lost) = (0, 0);
    check(
        "histories_under_read_committed_replay_whatever_the_scheduler_picks",
        |seed| {
            let traits = Traits {
                read_committed: true,
                row_locks: seed.is_multiple_of(2),
                advisory_locks: seed.is_multiple_of(3),
                inserts: seed.is_multiple_of(5),
                ..Traits::default()
            };
            let history = History::record(seed, traits);
            let looks = || history.transactions.iter().flat_map(|t| &t.looks);
            rechecked += looks().filter(|look| look.rechecked).count();
            let beaten = looks().filter(|look| look.rechecked && look.behind.is_some());
            lost += beaten.count();
            replays(&history, seed, RowLocks::NotTaken)
        },
    );
    assert!(rechecked > 0 && lost > 0);
}
