//! Randomness that a seed repeats: SplitMix64, small enough to read, the same on every machine.

#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// Streams of different purposes do not follow each other's draws.
    pub fn new(seed: u64, purpose: &str) -> Self {
        Self(
            purpose
                .bytes()
                .fold(mix(seed), |state, byte| mix(state ^ u64::from(byte))),
        )
    }

    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    pub fn below(&mut self, end: usize) -> usize {
        assert!(end > 0, "there is something to choose from");
        (self.draw() % end as u64) as usize
    }

    /// Both ends included.
    pub fn between(&mut self, low: usize, high: usize) -> usize {
        low + self.below(high - low + 1)
    }

    pub fn percent(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }
}

/// Every bit of the result depends on every bit of the argument.
pub fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}
