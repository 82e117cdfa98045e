//! A primary, a backup, and `hindcast standby` between them; and the checker, which knows what a
//! reader of the backup may see.
//!
//! ```no_run
//! use hindcast_tests::standby::Pair;
//!
//! let pair = Pair::shared("orders", "CREATE TABLE t (k int PRIMARY KEY)");
//! let mut follower = pair.follow(&["--workers", "1"]);
//! pair.primary("INSERT INTO t VALUES (1)");
//! pair.wait_until_equal(&mut follower);
//! follower.interrupt().assert_code(0);
//! ```
//!
//! The invariant: whether the backup has everything is asked of the backup itself, by a marker
//! written to the primary last, and never of the follower that is being tested.

pub mod checker;
pub mod compare;
pub mod pair;
pub mod proxy;
pub mod readers;
pub mod workload;

pub use pair::{Follower, Pair};
pub use proxy::Proxy;

/// How often a test with a random fault strikes: HINDCAST_STANDBY_KILLS.
pub fn kills(default: usize) -> usize {
    number("HINDCAST_STANDBY_KILLS").unwrap_or(default)
}

/// A number in the environment.
pub fn number(variable: &str) -> Option<usize> {
    let text = std::env::var(variable).ok()?;
    match text.parse() {
        Ok(number) => Some(number),
        Err(_) => panic!("{variable} is no number: {text}"),
    }
}

/// Random numbers that a printed seed brings back (SplitMix64).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Of HINDCAST_SEED, or of the clock.
    pub fn seeded() -> Self {
        let seed = match number("HINDCAST_SEED") {
            Some(seed) => seed as u64,
            None => std::time::SystemTime::now()
                .duration_since(std::time::UNIX_EPOCH)
                .map_or(1, |since| since.as_nanos() as u64 & 0xffff_ffff),
        };
        eprintln!("HINDCAST_SEED={seed}");
        Self(seed)
    }

    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn any(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// One of `0..end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.any() % end
    }
}

/// How `hindcast` ends when it gives up.
pub const FAILED: i32 = 3;

/// # Panics
/// If it did not give up with an error that names all of these, and a next step.
#[track_caller]
pub fn assert_refused(finished: &crate::Finished, naming: &[&str]) {
    let (code, stderr) = (finished.code, &finished.stderr);
    assert_eq!(
        code,
        Some(FAILED),
        "it did not give up as it should:\n{stderr}"
    );
    for words in ["Error: ", "Hint: "].iter().chain(naming) {
        assert!(stderr.contains(words), "{words:?} is not in:\n{stderr}");
    }
    assert!(!stderr.contains("panicked"), "{stderr}");
}
