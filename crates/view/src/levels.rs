//! Levels of detail: how many requests arrived in each stretch of time, by lane.
//!
//! A stretch of level `k` is `2^(first + k)` µs long and begins at a multiple of that, so
//! stretches of all levels lie within each other and a picture does not flicker as it is moved.
//! Only stretches in which something arrived are kept. Below the first level rows are counted
//! themselves: there are few of them in a stretch so short.

use hindcast_trace::Micros;

use crate::bits::Bits;
use crate::filter::is_failed;
use crate::index::Index;
use crate::lanes::Lanes;

/// What arrived in a stretch of time in one lane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Of the stretch, counted from the first arrival.
    pub stretch: u64,
    pub lane: u16,
    pub requests: u32,
    /// Answered with 400 and above, or not at all.
    pub failed: u32,
    /// The longest of them, in µs.
    pub longest: u32,
}

/// Counts of the requests that a filter takes, in one layout of lanes.
#[derive(Debug)]
pub struct Levels {
    pub lanes: Lanes,
    /// What the filter takes. `None`: everything.
    pub only: Option<Bits>,
    /// Requests by lane.
    pub by_lane: Vec<u64>,
    /// The multiple of stretches that is before all arrivals.
    origin: Micros,
    /// Length of the first level's stretches, as a power of two.
    first: u32,
    levels: Vec<Vec<Count>>,
}

/// So many requests share an entry of the first level, on average.
const SHARED: u64 = 8;
/// Stretches are never longer than this: 2^48 µs are nine years.
const BITS_MAX: u32 = 48;

impl Levels {
    pub fn of(index: &Index, lanes: Lanes, only: Option<Bits>) -> Self {
        let origin = index.arrived.first().copied().unwrap_or_default();
        let mut levels = Self {
            lanes,
            only,
            by_lane: vec![0; lanes.count(index)],
            origin,
            first: first_bits(index, lanes),
            levels: Vec::new(),
        };
        let mut counts = levels.counted(index, levels.first, 0..index.requests());
        // Requests that come in bursts fill few stretches, and those that trickle fill many.
        while counts.len() as u64 * SHARED / 2 > index.requests() as u64 && levels.first < BITS_MAX
        {
            counts = halved(&counts);
            levels.first += 1;
        }
        for at in 0..index.requests() {
            if levels.takes(at) {
                levels.by_lane[lanes.of(index, at)] += 1;
            }
        }
        while counts.len() > 1024 && levels.first + (levels.levels.len() as u32) < BITS_MAX {
            let next = halved(&counts);
            levels.levels.push(counts);
            counts = next;
        }
        levels.levels.push(counts);
        levels
    }

    pub fn takes(&self, request: usize) -> bool {
        self.only.as_ref().is_none_or(|only| only.has(request))
    }

    /// Bytes that the counts take.
    pub fn bytes(&self) -> usize {
        let counts = self.levels.iter().map(Vec::len).sum::<usize>();
        counts * size_of::<Count>()
    }

    /// The counts within a range, in stretches of at least `least` µs: when the first stretch
    /// begins, how long each is, and the counts, stretches numbered from there.
    pub fn columns(
        &self,
        index: &Index,
        from: Micros,
        until: Micros,
        least: Micros,
    ) -> (Micros, Micros, Vec<Count>) {
        let bits = bits_of(least);
        let stretch = |at: Micros| (at - self.origin).max(0) as u64 >> bits;
        let (first, last) = (stretch(from), stretch(until.max(from)));
        let begins = self.origin + ((first as i64) << bits);
        let mut counts = match bits.checked_sub(self.first) {
            None => {
                let start = index.arrived.partition_point(|at| *at < begins);
                let end = index.arrived.partition_point(|at| *at < until);
                self.counted(index, bits, start..end.max(start))
            }
            Some(level) => {
                let kept = (level as usize).min(self.levels.len() - 1);
                let extra = level - kept as u32;
                let counts = &self.levels[kept];
                let start = counts.partition_point(|it| it.stretch >> extra < first);
                let end = counts.partition_point(|it| it.stretch >> extra <= last);
                joined(&counts[start..end], extra)
            }
        };
        for count in &mut counts {
            count.stretch -= first;
        }
        (begins, 1 << bits, counts)
    }

    /// Rows, counted. Arrivals do not decrease, so a stretch is over once the next has begun.
    fn counted(&self, index: &Index, bits: u32, rows: std::ops::Range<usize>) -> Vec<Count> {
        let mut sum = Sum::new(self.by_lane.len());
        for at in rows.filter(|at| self.takes(*at)) {
            let stretch = (index.arrived[at] - self.origin) as u64 >> bits;
            sum.add(Count {
                stretch,
                lane: self.lanes.of(index, at) as u16,
                requests: 1,
                failed: u32::from(is_failed(index.status[at])),
                longest: index.took[at],
            });
        }
        sum.finish()
    }
}

/// The least power of two that is no shorter.
fn bits_of(least: Micros) -> u32 {
    (least.max(1) as u64)
        .next_power_of_two()
        .trailing_zeros()
        .min(BITS_MAX)
}

/// So that entries of the first level hold [`SHARED`] requests, were they spread evenly.
fn first_bits(index: &Index, lanes: Lanes) -> u32 {
    let requests = index.requests().max(1) as u64;
    let span = match (index.arrived.first(), index.arrived.last()) {
        (Some(first), Some(last)) => (last - first).max(1) as u64,
        _ => 1,
    };
    let lanes = (lanes.count(index) as u64).min(64);
    bits_of((span.saturating_mul(SHARED * lanes) / requests) as Micros)
}

fn halved(counts: &[Count]) -> Vec<Count> {
    joined(counts, 1)
}

/// Stretches of which `2^bits` become one.
fn joined(counts: &[Count], bits: u32) -> Vec<Count> {
    if bits == 0 {
        return counts.to_vec();
    }
    let lanes = counts.iter().map(|count| count.lane).max();
    let mut sum = Sum::new(lanes.map_or(0, |lane| usize::from(lane) + 1));
    for count in counts {
        sum.add(Count {
            stretch: count.stretch >> bits,
            ..*count
        });
    }
    sum.finish()
}

/// Sums by lane within one stretch, stretch after stretch.
struct Sum {
    /// Where in `done` the lane's entry of the current stretch is.
    places: Vec<u32>,
    begun: usize,
    done: Vec<Count>,
}

impl Sum {
    const NONE: u32 = u32::MAX;

    fn new(lanes: usize) -> Self {
        Self {
            places: vec![Self::NONE; lanes],
            begun: 0,
            done: Vec::new(),
        }
    }

    fn add(&mut self, count: Count) {
        if self
            .done
            .last()
            .is_some_and(|last| last.stretch != count.stretch)
        {
            self.end_stretch();
        }
        let place = &mut self.places[usize::from(count.lane)];
        if *place == Self::NONE {
            *place = self.done.len() as u32;
            self.done.push(count);
            return;
        }
        let sum = &mut self.done[*place as usize];
        sum.requests = sum.requests.saturating_add(count.requests);
        sum.failed = sum.failed.saturating_add(count.failed);
        sum.longest = sum.longest.max(count.longest);
    }

    fn end_stretch(&mut self) {
        for count in &self.done[self.begun..] {
            self.places[usize::from(count.lane)] = Self::NONE;
        }
        self.begun = self.done.len();
    }

    fn finish(self) -> Vec<Count> {
        self.done
    }
}
