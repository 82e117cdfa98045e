//! A simulated snapshot-isolation database with random histories, replayed under the schedule of
//! `hindcast-order`.
//!
//! ```text
//!   seed ─▶ habits of a service, requests ─▶ original run, freely interleaved
//!                                                       │ snapshots, ids, order of locks, times
//!                                                       ▼
//!                                      what a recorder sees of it ─▶ order::{Schedule, Admission}
//!                                                                                      │
//!   same reads, same responses, same final state? ◀─ replay, as far off as permitted ◀─┘
//! ```
//!
//! A history consists of requests whose every step depends on everything they read, so a wrong
//! snapshot anywhere soon shows everywhere. The replay is made by a scheduler that picks among the
//! permitted moves, at random or as unlike the original as it can. What is to hold: no matter what
//! it picks, the replay gets to its end and no request notices a difference. And the other way
//! round, so that these tests are known to be able to fail: leave out a rule or count a level
//! wrongly, and one does notice.
//!
//! **Where to start reading**: [`database`] is the model of Postgres, [`handler`] of a service's
//! code, [`service`] of its workers and connections; [`record`], [`replay`] and [`retroact`] are
//! the directors that such a service can have, the last one for a service whose code was
//! [`changed`]. What was learnt is in `docs/design/0001-snapshot-levels.md`,
//! `0002-resending-requests.md` and `0010-retroaction.md`.
//!
//! **What it does not do**: bytes, sockets, time. READ COMMITTED, unique keys and deletes are not
//! modelled.
//!
//! **The invariant to keep**: a seed decides everything. A failing one is printed with the command
//! that runs it again.
//!
//! ```sh
//! HINDCAST_SIM_SEED=4711 cargo test -p hindcast-sim       # one seed again
//! HINDCAST_SIM_SEEDS=1000000 cargo test --release -p hindcast-sim
//! ```

pub mod changed;
pub mod database;
pub mod handler;
pub mod record;
pub mod replay;
pub mod retroact;
pub mod rng;
pub mod service;

use std::env;
use std::ops::Range;

/// How many seeds `cargo test` runs unless `HINDCAST_SIM_SEEDS` says otherwise.
pub const SEEDS: u64 = 10_000;

/// The seeds to run: `HINDCAST_SIM_SEED` alone if it is set, else as many as `HINDCAST_SIM_SEEDS`
/// says.
pub fn seeds() -> Range<u64> {
    let number = |name: &str| {
        let text = env::var(name).ok()?;
        Some(
            text.parse::<u64>()
                .unwrap_or_else(|_| panic!("{name} is a number, not {text:?}")),
        )
    };
    match number("HINDCAST_SIM_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("HINDCAST_SIM_SEEDS").unwrap_or(SEEDS),
    }
}

/// Runs every seed, and stops at the first that something is said about.
///
/// # Panics
/// With that, and with the command that runs this seed again.
pub fn check(test: &str, mut run: impl FnMut(u64) -> Result<(), String>) {
    for seed in seeds() {
        if let Err(what) = run(seed) {
            panic!(
                "seed {seed}: {what}\nrun it again: HINDCAST_SIM_SEED={seed} cargo test -p hindcast-sim {test}"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    #[should_panic(expected = "run it again: HINDCAST_SIM_SEED=")]
    fn a_failing_seed_comes_with_the_command_that_runs_it_again() {
        super::check("some_test", |_| Err("something is wrong".to_owned()));
    }
}
