//! The simulator can fail: leave out a rule or count wrongly, and some history no longer replays.
//!
//! These use a fixed range of seeds: that a mistake is found, and soon, must not depend on the day.

use hindcast_sim::record::{History, Traits};
use hindcast_sim::replay::{Options, Outcome, RowLocks, Rules, Slip};
use hindcast_sim::service::Strategy;

const LOCKS: Traits = Traits {
    row_locks: true,
    advisory_locks: true,
    savepoints: false,
    read_committed: false,
    inserts: false,
    changes: false,
    small_pool: None,
};

/// The first seed whose history does not replay, and what happened.
fn first_failure(traits: Traits, options: Options, within: u64) -> (u64, Outcome) {
    (0..within)
        .map(|seed| (seed, History::record(seed, traits).replay(seed, options)))
        .find(|(_, outcome)| *outcome != Outcome::Faithful)
        .unwrap_or_else(|| panic!("nobody noticed within {within} seeds: {options:?}"))
}

fn without(change: impl FnOnce(&mut Rules)) -> Options {
    let mut options = Options::unlimited(Strategy::Random);
    // What the service reads must be enough to tell.
    options.rules.compare_sets = false;
    change(&mut options.rules);
    options
}

#[test]
fn somebody_notices_when_snapshots_do_not_wait_for_commits() {
    first_failure(LOCKS, without(|rules| rules.a = false), 100);
}

#[test]
fn somebody_notices_when_commits_do_not_wait_for_snapshots() {
    first_failure(LOCKS, without(|rules| rules.b = false), 100);
}

#[test]
fn somebody_notices_when_locks_are_taken_in_any_order() {
    first_failure(LOCKS, without(|rules| rules.c = false), 1_000);
}

#[test]
fn somebody_notices_when_levels_are_off_by_one() {
    for slip in [Slip::LevelTooLow, Slip::LevelTooHigh, Slip::VisibleTooLate] {
        first_failure(LOCKS, without(|rules| rules.slip = Some(slip)), 100);
    }
}

#[test]
fn somebody_notices_when_under_read_committed_only_first_statements_are_held() {
    let traits = Traits {
        read_committed: true,
        ..LOCKS
    };
    first_failure(traits, without(|rules| rules.later_looks = false), 100);
}

#[test]
fn somebody_notices_when_a_statement_does_not_wait_for_the_writer_that_it_waited_for() {
    let traits = Traits {
        read_committed: true,
        ..LOCKS
    };
    first_failure(traits, without(|rules| rules.rechecks = false), 100);
}

/// Who could not insert a row was in a savepoint, as Django's `get_or_create`.
#[test]
fn somebody_notices_when_who_lost_an_insert_does_not_wait_for_who_won() {
    let traits = Traits {
        read_committed: true,
        inserts: true,
        ..LOCKS
    };
    first_failure(traits, without(|rules| rules.losers = false), 100);
}

/// The check of a key waits for who has written the row. Which rows statements are about is not
/// known, so a few replays stand still all the same.
#[test]
fn replays_stand_still_when_a_row_is_written_before_others_could_not_insert_it() {
    let traits = Traits {
        read_committed: true,
        inserts: true,
        changes: true,
        ..Traits::default()
    };
    let stuck = |changes| {
        let mut options = Options::unlimited(Strategy::Random);
        options.rules.changes = changes;
        let replays = (0..1_000).map(|seed| History::record(seed, traits).replay(seed, options));
        let not_faithful = replays.filter(|outcome| *outcome != Outcome::Faithful);
        let stuck = |outcome: &Outcome| matches!(outcome, Outcome::Stuck(_));
        let not_faithful: Vec<Outcome> = not_faithful.collect();
        assert!(not_faithful.iter().all(stuck), "{not_faithful:?}");
        not_faithful.len()
    };
    let (without, with) = (stuck(false), stuck(true));
    assert!(without > 40 && with < 4, "{without} and {with}");
}

/// Row locks that are taken in replay need more than an order among themselves: a plain write in
/// the way of a lock that came before it either fails the one or holds up the other.
#[test]
fn ordering_row_locks_only_among_themselves_is_not_enough() {
    let options = Options {
        row_locks: RowLocks::OrderedAmongThemselves,
        ..Options::unlimited(Strategy::Random)
    };
    first_failure(LOCKS, options, 1_000);
}

/// Nor can that order be had from the wire: a commit is sent before it takes effect and answered
/// after, and in between others run ahead.
#[test]
fn the_order_of_all_that_touches_row_locks_cannot_be_seen_on_the_wire() {
    let options = Options {
        row_locks: RowLocks::OrderedWithAllAsSeen,
        ..Options::unlimited(Strategy::Random)
    };
    first_failure(LOCKS, options, 1_000);
}

/// A write that was undone by rolling back to a savepoint leaves no trace in any snapshot, yet was
/// in somebody's way or had somebody in its own. Only an order of all that touches the row's locks
/// brings it back.
#[test]
fn undone_writes_are_beyond_the_levels() {
    let traits = Traits {
        savepoints: true,
        ..LOCKS
    };
    first_failure(traits, Options::unlimited(Strategy::Random), 1_000);
}

/// The histories have in them what the tests are about.
#[test]
fn histories_are_eventful() {
    let (mut transactions, mut committed, mut aborted, mut levels, mut retried) = (0, 0, 0, 0, 0);
    for seed in 0..1_000 {
        let history = History::record(seed, LOCKS);
        transactions += history.transactions.len();
        committed += history.executed().len();
        let failed =
            |t: &&hindcast_sim::record::Transaction| t.statements.iter().any(|(_, a)| a.failed());
        aborted += history.transactions.iter().filter(failed).count();
        levels += history.levels().level_count() as usize;
        retried += history
            .requests
            .iter()
            .filter(|r| r.transactions.len() > 4)
            .count();
    }
    assert!(
        transactions > 10_000
            && aborted > 1_000
            && committed > 5_000
            && levels > 4_000
            && retried > 100
    );
}
