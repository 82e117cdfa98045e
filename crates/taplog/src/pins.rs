//! What a request draws and which time it reads, the same when it is recorded and when it is
//! replayed.
//!
//! ```text
//!   recording   draw     key of the recording, request, n-th draw ──▶ bytes
//!               reading  n-th reading of the request ──▶ told by the ring ──▶ the recording
//!   replay      draw     key of the recording, request, n-th draw ──▶ the same bytes
//!               reading  request, n-th reading ──▶ what was told
//! ```
//!
//! A part of the board: draws and readings of a request are counted here, whichever thread or
//! process makes them. Before a replay sends a request, it writes the request's script here.

use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};

/// Bytes of a recording's secret.
pub const KEY: usize = 32;
/// Readings of one request that are noted.
pub const READINGS: usize = 250;

/// Requests at a time that are counted while recording.
const COUNTED: usize = 1 << 16;
/// Requests at a time that a replay can have in flight.
const SCRIPTS: usize = 1 << 12;
/// Bits of a count; above them stands the request that it is of.
const COUNT_BITS: u32 = 20;
const COUNT_MASK: u64 = (1 << COUNT_BITS) - 1;

/// Bits of a draw's length in blocks.
const BLOCK_BITS: u32 = 64 - COUNT_BITS;

/// Where a draw's bytes come from. No two draws of a recording have the same place.
#[derive(Clone, Copy)]
pub struct Draw {
    pub key: [u8; KEY],
    /// The number of the stream of blocks.
    pub request: u64,
    /// Its first block.
    pub block: u64,
}

#[repr(C)]
struct Key([AtomicU64; KEY / 8]);

impl Key {
    fn set(&self, key: &[u8; KEY]) {
        for (word, bytes) in self.0.iter().zip(key.as_chunks().0) {
            word.store(u64::from_le_bytes(*bytes), Ordering::Relaxed);
        }
    }

    /// `None` if none was set.
    fn get(&self) -> Option<[u8; KEY]> {
        let mut key = [0; KEY];
        for (word, bytes) in self.0.iter().zip(key.as_chunks_mut().0) {
            *bytes = word.load(Ordering::Relaxed).to_le_bytes();
        }
        (key != [0; KEY]).then_some(key)
    }
}

/// A request as a replay knows it.
#[repr(C)]
struct Script {
    /// 0 while the rest is being written.
    request: AtomicU64,
    key: Key,
    draws: AtomicU64,
    /// By what is read; see [`Reads`].
    next_reading: [AtomicU32; 2],
    /// How many of the readings there are.
    count: AtomicU32,
    /// The latest time that was given, and when by the monotonic clock.
    last: AtomicI64,
    last_at: AtomicI64,
    /// How far the time that was given last is from the real one; `i64::MIN`: none was given.
    ahead: AtomicI64,
    readings: [AtomicI64; READINGS],
}

#[repr(C)]
pub struct Pins {
    /// How far the wall clock of a replayed service is from the real one, in nanoseconds.
    ahead: AtomicI64,
    /// Readings in a replay that the recording does not have.
    beyond: AtomicU64,
    /// Readings in a replay that it has.
    given: AtomicU64,
    draws: AtomicU64,
    key: Key,
    drawn: [AtomicU64; COUNTED],
    read: [AtomicU64; COUNTED],
    scripts: [Script; SCRIPTS],
}

/// What of the wall clock is read. Programs ask for one of the two, and the libraries that they
/// call for the other: a client of a database that opens a connection, in one request and not in
/// another, looks at the seconds. So each has an order of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reads {
    Instant,
    /// `time()`.
    Second,
}

impl Reads {
    fn of(reading: i64) -> Self {
        match reading % 1_000_000_000 {
            0 => Self::Second,
            _ => Self::Instant,
        }
    }
}

/// What a replay says of a request before it sends it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorded<'a> {
    pub request: u64,
    pub key: Option<&'a [u8; KEY]>,
    /// In nanoseconds since 1970.
    pub arrived: i64,
    /// As well; in the order in which they were made.
    pub readings: &'a [i64],
}

/// What a replay has given away so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Given {
    pub draws: u64,
    pub readings: u64,
    /// Readings that the recording does not have.
    pub beyond: u64,
}

impl Pins {
    /// Requests of a recording draw from a generator with this key.
    pub fn set_key(&self, key: &[u8; KEY]) {
        self.key.set(key);
    }

    /// Where the next draw of a recorded request comes from; `None`: from the kernel.
    pub fn draw(&self, request: u64) -> Option<Draw> {
        let key = self.key.get()?;
        let count = count(&self.drawn, request)?;
        Some(Draw::new(key, request, count))
    }

    /// Which reading of a recorded request this is; `None` if it is not to be told.
    pub fn note_reading(&self, request: u64) -> Option<u32> {
        self.key.get()?;
        let count = count(&self.read, request)?;
        let count = u32::try_from(count).ok()?;
        ((count as usize) < READINGS).then_some(count)
    }

    /// A replay is about to send this request. `now`: by the monotonic clock.
    pub fn begin(&self, recorded: &Recorded<'_>, now: i64) {
        let script = self.script(recorded.request);
        script.request.store(0, Ordering::Release);
        script.key.set(recorded.key.unwrap_or(&[0; KEY]));
        script.draws.store(0, Ordering::Relaxed);
        for next in &script.next_reading {
            next.store(0, Ordering::Relaxed);
        }
        let count = recorded.readings.len().min(READINGS);
        script.count.store(count as u32, Ordering::Relaxed);
        script.last.store(recorded.arrived, Ordering::Relaxed);
        script.last_at.store(now, Ordering::Relaxed);
        script.ahead.store(i64::MIN, Ordering::Relaxed);
        for (place, &reading) in script.readings.iter().zip(recorded.readings) {
            place.store(reading, Ordering::Relaxed);
        }
        script.request.store(recorded.request, Ordering::Release);
    }

    fn script(&self, request: u64) -> &Script {
        &self.scripts[request as usize % SCRIPTS]
    }

    fn script_of(&self, request: u64) -> Option<&Script> {
        let script = self.script(request);
        (request != 0 && script.request.load(Ordering::Acquire) == request).then_some(script)
    }

    /// Where the next draw of a replayed request comes from; `None`: from the kernel.
    pub fn draw_again(&self, request: u64) -> Option<Draw> {
        let script = self.script_of(request)?;
        let key = script.key.get()?;
        let count = script.draws.fetch_add(1, Ordering::Relaxed);
        self.draws.fetch_add(1, Ordering::Relaxed);
        (count <= COUNT_MASK).then(|| Draw::new(key, request, count))
    }

    /// What a replayed request reads next; `None` if nothing is known of it. `real`: what the wall
    /// clock shows, `now`: what the monotonic one does.
    pub fn read_again(&self, request: u64, reads: Reads, real: i64, now: i64) -> Option<i64> {
        let script = self.script_of(request)?;
        let next = script.next_reading[reads as usize].fetch_add(1, Ordering::Relaxed);
        let count = script.count.load(Ordering::Relaxed) as usize;
        let readings = script.readings.iter().take(count);
        let readings = readings.map(|reading| reading.load(Ordering::Relaxed));
        let mut alike = readings.filter(|&reading| Reads::of(reading) == reads);
        let reading = match alike.nth(next as usize) {
            Some(reading) => {
                self.given.fetch_add(1, Ordering::Relaxed);
                reading
            }
            None => {
                self.beyond.fetch_add(1, Ordering::Relaxed);
                let since = now.saturating_sub(script.last_at.load(Ordering::Relaxed));
                let last = script.last.load(Ordering::Relaxed);
                last.saturating_add(since.max(0))
            }
        };
        let last = script.last.fetch_max(reading, Ordering::Relaxed);
        if reading > last {
            script.last_at.store(now, Ordering::Relaxed);
        }
        let ahead = reading.saturating_sub(real);
        script.ahead.store(ahead, Ordering::Relaxed);
        Some(reading)
    }

    /// How far the wall clock of a replayed service is from the real one, for who works on this
    /// request, in nanoseconds; 0: on none.
    pub fn ahead(&self, request: u64) -> i64 {
        let own = self.script_of(request);
        let own = own.map(|script| script.ahead.load(Ordering::Relaxed));
        own.filter(|&ahead| ahead != i64::MIN)
            .unwrap_or_else(|| self.ahead.load(Ordering::Relaxed))
    }

    /// From here on the wall clock of a replayed service is so far from the real one.
    pub fn set_ahead(&self, ahead: i64) {
        self.ahead.store(ahead, Ordering::Relaxed);
    }

    /// It is at least so far.
    pub fn advance(&self, ahead: i64) {
        self.ahead.fetch_max(ahead, Ordering::Relaxed);
    }

    pub fn given(&self) -> Given {
        Given {
            draws: self.draws.load(Ordering::Relaxed),
            readings: self.given.load(Ordering::Relaxed),
            beyond: self.beyond.load(Ordering::Relaxed),
        }
    }
}

impl Draw {
    fn new(key: [u8; KEY], request: u64, count: u64) -> Self {
        Self {
            key,
            request,
            block: count << BLOCK_BITS,
        }
    }
}

/// How often this was asked before for the request. A place is only ever given on to a later
/// request, and what comes back to it then is not counted: so a count is never given twice.
fn count(counts: &[AtomicU64; COUNTED], request: u64) -> Option<u64> {
    if request == 0 {
        return None;
    }
    let place = &counts[request as usize % COUNTED];
    let own = request & (u64::MAX >> COUNT_BITS);
    let next = |now: u64| match now >> COUNT_BITS {
        of if of == own => (now & COUNT_MASK < COUNT_MASK).then(|| now + 1),
        of if of < own => Some(own << COUNT_BITS | 1),
        _ => None,
    };
    let before = place
        .fetch_update(Ordering::Relaxed, Ordering::Relaxed, next)
        .ok()?;
    Some(match before >> COUNT_BITS == own {
        true => before & COUNT_MASK,
        false => 0,
    })
}

/// Readings as a recording keeps them: each as its distance from the one before, the first from
/// `base`, in nanoseconds, sevenfold bits with the lowest first.
pub fn encode_readings(base: i64, readings: &[i64]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(readings.len() * 5);
    let mut last = base;
    for &reading in readings {
        let distance = reading.wrapping_sub(last);
        let mut left = (distance << 1 ^ distance >> 63) as u64;
        while left >= 0x80 {
            bytes.push(left as u8 | 0x80);
            left >>= 7;
        }
        bytes.push(left as u8);
        last = reading;
    }
    bytes
}

/// `None` if no recorder writes such bytes.
pub fn decode_readings(base: i64, bytes: &[u8]) -> Option<Vec<i64>> {
    let (mut readings, mut last) = (Vec::new(), base);
    let (mut number, mut shift) = (0u64, 0);
    for &byte in bytes {
        if shift > 63 {
            return None;
        }
        number |= u64::from(byte & 0x7f) << shift;
        shift += 7;
        if byte < 0x80 {
            let distance = (number >> 1) as i64 ^ -((number & 1) as i64);
            last = last.wrapping_add(distance);
            readings.push(last);
            (number, shift) = (0, 0);
        }
    }
    (shift == 0).then_some(readings)
}

#[cfg(test)]
mod tests;
