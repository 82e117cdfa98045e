//! Services with few workers and few connections: which ways of sending requests again can lock
//! them up, and which cannot.

use hindcast_sim::check;
use hindcast_sim::record::{History, Traits};
use hindcast_sim::replay::{Options, Outcome, Resend};
use hindcast_sim::service::{Grant, Hold, Resources, Strategy};

fn traits(seed: u64, hold: Hold) -> Traits {
    Traits {
        row_locks: seed.is_multiple_of(2),
        advisory_locks: seed.is_multiple_of(3),
        small_pool: Some(hold),
        ..Traits::default()
    }
}

fn outcomes(
    history: &History,
    seed: u64,
    resend: Resend,
    resources: Resources,
) -> impl Iterator<Item = (Strategy, Outcome)> {
    let options = move |strategy| Options {
        resend,
        resources,
        ..Options::unlimited(strategy)
    };
    Strategy::ALL
        .into_iter()
        .map(move |strategy| (strategy, history.replay(seed, options(strategy))))
}

fn all_faithful(
    history: &History,
    seed: u64,
    resend: Resend,
    resources: Resources,
) -> Result<(), String> {
    let grant = [Grant::Anyone, Grant::InLine][(seed / 2 % 2) as usize];
    let resources = Resources { grant, ..resources };
    for (strategy, outcome) in outcomes(history, seed, resend, resources) {
        if outcome != Outcome::Faithful {
            return Err(format!("{strategy:?} {resources:?}: {outcome:?}"));
        }
    }
    Ok(())
}

/// The first seed that gets stuck with the service's own workers and connections, and how it got
/// there.
fn first_stuck(
    hold: Hold,
    resend: Resend,
    change: impl Fn(&History, &mut Resources),
) -> Option<(u64, Outcome)> {
    (0..2_000).find_map(|seed| {
        let history = History::record(seed, traits(seed, hold));
        let mut resources = history.resources;
        change(&history, &mut resources);
        let mut outcomes = outcomes(&history, seed, resend, resources);
        let stuck = outcomes.find(|(_, outcome)| matches!(outcome, Outcome::Stuck(_)));
        stuck.map(|(_, outcome)| (seed, outcome))
    })
}

#[test]
fn admission_never_locks_up_a_service_with_a_connection_per_request() {
    check(
        "admission_never_locks_up_a_service_with_a_connection_per_request",
        |seed| {
            let history = History::record(seed, traits(seed, Hold::PerRequest));
            all_faithful(&history, seed, Resend::Admission, history.resources)
        },
    );
}

#[test]
fn admission_never_locks_up_a_service_with_as_many_connections_as_spans_overlap() {
    check(
        "admission_never_locks_up_a_service_with_as_many_connections_as_spans_overlap",
        |seed| {
            let history = History::record(seed, traits(seed, Hold::PerTransaction));
            let connections = history.resources.connections.max(history.spans_overlap());
            all_faithful(
                &history,
                seed,
                Resend::Admission,
                Resources {
                    connections,
                    ..history.resources
                },
            )
        },
    );
}

#[test]
fn sending_everything_at_once_locks_up_workers() {
    let stuck = first_stuck(Hold::PerRequest, Resend::AtOnce, |_, r| {
        r.connections = usize::MAX
    });
    assert!(stuck.is_some());
}

/// "As many in flight as when it arrived, and only if its first transaction may begin": a request
/// that was overtaken because it could not begin yet is then kept out by those that overtook it,
/// who wait for it.
#[test]
fn counting_as_originally_locks_up_even_without_a_pool() {
    let stuck = first_stuck(Hold::PerRequest, Resend::AsManyAsWhenItArrived, |_, r| {
        (r.workers, r.connections) = (usize::MAX, usize::MAX);
    });
    assert!(stuck.is_some());
}

#[test]
fn counting_as_originally_locks_up_a_pool() {
    for hold in [Hold::PerRequest, Hold::PerTransaction] {
        let stuck = first_stuck(hold, Resend::AsManyAsWhenItArrived, |_, _| {});
        assert!(stuck.is_some(), "{hold:?}");
    }
}

/// With any number of connections, if requests that sit on one idly can be taken back.
#[test]
fn taking_back_idle_requests_never_locks_up() {
    check("taking_back_idle_requests_never_locks_up", |seed| {
        let hold = [Hold::PerTransaction, Hold::PerRequest][(seed % 2) as usize];
        let history = History::record(seed, traits(seed, hold));
        all_faithful(
            &history,
            seed,
            Resend::AdmissionTakingBack,
            history.resources,
        )
    });
}

/// If who waits longest for a connection gets the next one, and no worker is needed to wait.
#[test]
fn requests_that_go_on_as_transactions_began_hardly_ever_lock_up_a_pool() {
    let stuck = |resend| {
        let seeds = (0..1_000).filter(|&seed| {
            let history = History::record(seed, traits(seed, Hold::PerTransaction));
            let resources = Resources {
                workers: usize::MAX,
                grant: Grant::InLine,
                ..history.resources
            };
            let mut outcomes = outcomes(&history, seed, resend, resources);
            outcomes.any(|(_, outcome)| match outcome {
                Outcome::Diverged(what) => panic!("seed {seed}: {what}"),
                outcome => outcome != Outcome::Faithful,
            })
        });
        seeds.count()
    };
    let (before, after) = (stuck(Resend::Admission), stuck(Resend::OpeningsInOrder));
    assert!(
        before > 100 && after * 50 < before,
        "{before}, then {after}"
    );
}

/// Not admission's fault: with fewer connections than spans overlap no way of sending helps,
/// because the second transaction of a request takes a connection without asking.
#[test]
fn fewer_connections_than_spans_overlap_lock_up() {
    let stuck = first_stuck(Hold::PerTransaction, Resend::Admission, |_, _| {});
    assert!(stuck.is_some());
}

#[test]
fn somebody_gets_stuck_when_admission_is_in_order_of_arrival_or_lets_in_one_too_many() {
    for resend in [Resend::ByArrival, Resend::OneTooMany] {
        let stuck = first_stuck(Hold::PerRequest, resend, |history, resources| {
            resources.connections = history.spans_overlap();
            resources.grant = Grant::Anyone;
        });
        assert!(stuck.is_some(), "{resend:?}");
    }
}
