//! Changed code on random histories: it never hangs, what was concurrent stays concurrent, no
//! transaction sees what it must not, and if nothing was changed nothing is different. And the
//! other way round, so that these tests are known to be able to fail.

use hindcast_sim::changed::Change;
use hindcast_sim::check;
use hindcast_sim::record::{History, Traits};
use hindcast_sim::retroact::{Findings, Options, Outcome, Rules};
use hindcast_sim::service::Strategy;

fn options(strategy: Strategy) -> Options {
    Options {
        rules: Rules::ALL,
        strategy,
        admission: true,
        leave_out_retried: false,
    }
}

fn finished(outcome: Outcome) -> Result<Findings, String> {
    match outcome {
        Outcome::Finished(findings) => Ok(findings),
        outcome => Err(format!("{outcome:?}")),
    }
}

/// What changed code on this history comes to, in whatever order its parts move.
fn outcomes(seed: u64, rules: Rules) -> impl Iterator<Item = (Change, Strategy, Outcome)> {
    let traits = Traits {
        row_locks: seed.is_multiple_of(3),
        savepoints: seed.is_multiple_of(5),
        ..Traits::default()
    };
    let history = History::record(seed, traits);
    let change = history.change(seed);
    Strategy::ALL.into_iter().map(move |strategy| {
        let options = Options {
            rules,
            leave_out_retried: seed.is_multiple_of(2),
            ..options(strategy)
        };
        let skip = |request: usize| seed.is_multiple_of(7) && request.is_multiple_of(3);
        (
            change,
            strategy,
            history.retroact(seed, change, skip, options),
        )
    })
}

#[test]
fn whatever_was_changed_the_guarantees_hold_and_nothing_hangs() {
    let (mut runs, mut let_go) = (0, 0);
    check(
        "whatever_was_changed_the_guarantees_hold_and_nothing_hangs",
        |seed| {
            for (change, strategy, outcome) in outcomes(seed, Rules::ALL) {
                let findings = finished(outcome)
                    .map_err(|what| format!("{change:?}, {strategy:?}: {what}"))?;
                runs += 1;
                let_go += u64::from(findings.let_go > 0);
            }
            Ok(())
        },
    );
    // Locks that were not waited for originally can be in the way in ways that no rule foresees.
    assert!(
        let_go * 2000 <= runs,
        "order was given up in {let_go} of {runs} runs"
    );
}

/// Fixed seeds: that a mistake is found, and soon, must not depend on the day.
#[track_caller]
fn is_noticed(rules: Rules, how: impl Fn(&Outcome) -> bool) {
    let noticed = (0..300).any(|seed| outcomes(seed, rules).any(|(_, _, outcome)| how(&outcome)));
    assert!(noticed, "nobody noticed: {rules:?}");
}

#[test]
fn a_rule_that_is_left_out_is_noticed() {
    let broken = |outcome: &Outcome| matches!(outcome, Outcome::Broken(_));
    is_noticed(
        Rules {
            snapshot: false,
            ..Rules::ALL
        },
        broken,
    );
    is_noticed(
        Rules {
            undone: false,
            ..Rules::ALL
        },
        broken,
    );
    is_noticed(
        Rules {
            commit: false,
            ..Rules::ALL
        },
        broken,
    );
    is_noticed(
        Rules {
            new_writers: false,
            ..Rules::ALL
        },
        broken,
    );
    is_noticed(
        Rules {
            yields: false,
            ..Rules::ALL
        },
        |outcome| matches!(outcome, Outcome::Finished(Findings { let_go: 1.., .. })),
    );
}

#[test]
fn without_the_order_of_losers_failures_do_not_come_again() {
    let rules = Rules {
        losers_last: false,
        ..Rules::ALL
    };
    let differs = (0..500).any(|seed| {
        let history = History::record(seed, Traits::default());
        let options = Options {
            rules,
            ..options(Strategy::Random)
        };
        history.fails_again()
            && match history.retroact(seed, Change::Analysis, |_| false, options) {
                Outcome::Finished(findings) => !findings.same,
                _ => false,
            }
    });
    assert!(differs, "nobody noticed");
}

#[test]
fn if_only_analysis_was_added_nothing_is_different() {
    check("if_only_analysis_was_added_nothing_is_different", |seed| {
        let history = History::record(seed, Traits::default());
        if !history.fails_again() {
            return Ok(());
        }
        for strategy in Strategy::ALL {
            let outcome = history.retroact(seed, Change::Analysis, |_| false, options(strategy));
            match finished(outcome)? {
                // A transaction that behaves as it did meets no lock that it did not meet.
                findings if findings.same && findings.let_go == 0 => {}
                findings => return Err(format!("{strategy:?}: {findings:?}")),
            }
        }
        Ok(())
    });
}
