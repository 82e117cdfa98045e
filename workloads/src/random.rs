//! Seeded randomness for data and requests.
//!
//! Own, because the same seed must give the same data and the same requests for as long as
//! recordings made with it are kept; a crate's generator may change between versions.

/// SplitMix64 (Steele, Lea, Flood 2014): one word of state, passes BigCrush.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform in `0.0..1.0`.
    pub fn unit(&mut self) -> f64 {
        (self.word() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Uniform in `low..=high`.
    pub fn between(&mut self, low: i64, high: i64) -> i64 {
        assert!(low <= high, "an empty range: {low}..={high}");
        let span = (high - low) as u64 + 1;
        // Multiply-shift: the bias is below 2^-32 for every range used here.
        low + ((u128::from(self.word()) * u128::from(span)) >> 64) as i64
    }

    pub fn chance(&mut self, probability: f64) -> bool {
        self.unit() < probability
    }

    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.between(0, from.len() as i64 - 1) as usize]
    }

    /// Waiting time until the next arrival of a Poisson process, in units of the mean.
    pub fn exponential(&mut self) -> f64 {
        -(1.0 - self.unit()).ln()
    }

    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.between(0, i as i64) as usize);
        }
    }

    /// Letters and digits, between `low` and `high` of them.
    pub fn alphanumeric(&mut self, low: i64, high: i64) -> String {
        const LETTERS: &[u8; 64] =
            b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789ab";
        let length = self.between(low, high) as usize;
        let mut text = String::with_capacity(length);
        while text.len() < length {
            let mut bits = self.word();
            for _ in 0..10.min(length - text.len()) {
                text.push(char::from(LETTERS[(bits & 63) as usize]));
                bits >>= 6;
            }
        }
        text
    }

    pub fn digits(&mut self, count: usize) -> String {
        (0..count)
            .map(|_| char::from(b'0' + self.between(0, 9) as u8))
            .collect()
    }

    /// Prose of exactly `bytes` bytes.
    pub fn prose(&mut self, bytes: usize) -> String {
        const WORDS: [&str; 32] = [
            "the", "forum", "of", "a", "late", "reply", "and", "every", "post", "that", "we",
            "read", "in", "one", "evening", "about", "rivers", "which", "never", "meet", "again",
            "unless", "somebody", "writes", "down", "their", "order", "with", "care", "for",
            "those", "later",
        ];
        let mut text = String::with_capacity(bytes + 16);
        while text.len() < bytes {
            let word: &&str = self.pick(&WORDS);
            text.push_str(word);
            text.push(if self.chance(0.1) { '.' } else { ' ' });
        }
        text.truncate(bytes);
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_numbers_for_ever() {
        // The first outputs of SplitMix64 for seed 1234567, from its authors' reference
        // implementation.
        let mut random = Random::new(1_234_567);
        let first: Vec<u64> = (0..5).map(|_| random.word()).collect();
        let expected = [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
            4_593_380_528_125_082_431,
            16_408_922_859_458_223_821,
        ];
        assert_eq!(first, expected);
    }

    #[test]
    fn ranges_reach_both_ends_and_no_further() {
        let mut random = Random::new(1);
        let drawn: Vec<i64> = (0..1_000).map(|_| random.between(-2, 3)).collect();
        assert_eq!(
            (drawn.iter().min(), drawn.iter().max()),
            (Some(&-2), Some(&3))
        );
    }

    #[test]
    fn waiting_times_have_mean_one() {
        let mut random = Random::new(7);
        let mean = (0..100_000).map(|_| random.exponential()).sum::<f64>() / 100_000.0;
        assert!((mean - 1.0).abs() < 0.02, "{mean}");
    }

    #[test]
    fn text_is_as_long_as_asked() {
        let mut random = Random::new(3);
        assert_eq!(random.prose(1024).len(), 1024);
        assert!((14..=24).contains(&random.alphanumeric(14, 24).len()));
    }
}
