//! The tables in `docs/design/0001-snapshot-levels.md` and `0002-resending-requests.md`:
//! `cargo run --release -p hindcast-sim --example tables`

use hindcast_sim::record::{History, Traits};
use hindcast_sim::replay::{Options, Outcome, Resend, RowLocks};
use hindcast_sim::service::{Hold, Strategy};

const HISTORIES: u64 = 3_000;

fn main() {
    println!("row locks in replay: of {HISTORIES} histories, stuck and diverged");
    for row_locks in [
        RowLocks::NotTaken,
        RowLocks::OrderedAmongThemselves,
        RowLocks::OrderedWithAllAsSeen,
        RowLocks::OrderedWithAll,
    ] {
        let options = Options {
            row_locks,
            ..Options::unlimited(Strategy::Random)
        };
        let traits = Traits {
            row_locks: true,
            ..Traits::default()
        };
        let outcomes: Vec<Outcome> = (0..HISTORIES)
            .map(|seed| History::record(seed, traits).replay(seed, options))
            .collect();
        let stuck = outcomes.iter().filter(|o| matches!(o, Outcome::Stuck(_)));
        let diverged = outcomes
            .iter()
            .filter(|o| matches!(o, Outcome::Diverged(_)));
        println!("  {row_locks:?}: {} {}", stuck.count(), diverged.count());
    }

    println!("sending again: of {HISTORIES} histories, stuck");
    for resend in [
        Resend::AtOnce,
        Resend::AsManyAsWhenItArrived,
        Resend::ByArrival,
        Resend::Admission,
        Resend::AdmissionTakingBack,
        Resend::OpeningsInOrder,
    ] {
        println!(
            "  {resend:?}: without any pool {}",
            stuck(resend, Hold::PerRequest, false).0
        );
        for hold in [Hold::PerRequest, Hold::PerTransaction] {
            let (all, with_enough, enough) = stuck(resend, hold, true);
            println!(
                "    {hold:?}: {all}, {with_enough} of the {enough} with as many connections as overlap"
            );
        }
    }
}

/// How many got stuck, how many of these had connections enough, and how many had at all.
fn stuck(resend: Resend, hold: Hold, limited: bool) -> (usize, usize, usize) {
    let (mut all, mut with_enough, mut enough) = (0, 0, 0);
    for seed in 0..HISTORIES {
        let traits = Traits {
            small_pool: Some(hold),
            ..Traits::default()
        };
        let history = History::record(seed, traits);
        let mut options = Options {
            resend,
            ..Options::unlimited(Strategy::Random)
        };
        if limited {
            options.resources = history.resources;
        }
        let stuck = matches!(history.replay(seed, options), Outcome::Stuck(_));
        let has_enough = history.spans_overlap() <= history.resources.connections;
        all += usize::from(stuck);
        with_enough += usize::from(stuck && has_enough);
        enough += usize::from(has_enough);
    }
    (all, with_enough, enough)
}
