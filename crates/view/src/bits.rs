//! One bit for each request.

/// A set of numbers below a length.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bits {
    words: Vec<u64>,
}

impl Bits {
    pub fn new(length: usize) -> Self {
        Self {
            words: vec![0; length.div_ceil(64)],
        }
    }

    pub fn set(&mut self, at: usize) {
        self.words[at / 64] |= 1 << (at % 64);
    }

    /// Not beyond the length either: a search that was given up has found nothing.
    pub fn has(&self, at: usize) -> bool {
        let word = self.words.get(at / 64);
        word.is_some_and(|word| word >> (at % 64) & 1 == 1)
    }

    pub fn count(&self) -> usize {
        let ones = self.words.iter().map(|word| word.count_ones() as usize);
        ones.sum()
    }

    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        let words = self.words.iter().enumerate();
        words.flat_map(|(place, &word)| {
            (0..64)
                .filter(move |bit| word >> bit & 1 == 1)
                .map(move |bit| place * 64 + bit)
        })
    }
}
