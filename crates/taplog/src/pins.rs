//! What a request draws and which time it reads, the same when it is recorded and when it is
//! replayed.
//!
//! ```text
//!   recording   draw     key of the recording, request, code that asks, n-th draw ──▶ bytes
//!               reading  n-th reading of the request ──▶ told by the ring ──▶ the recording
//!   replay      draw     key of the recording, request, code, n-th draw ──▶ the same bytes
//!               reading  request, n-th reading ──▶ what was told
//! ```
//!
//! A part of the board: draws and readings of a request are counted here, whichever thread or
//! process makes them. Before a replay sends a request, it writes the request's script here.
//!
//! A replayed request may read the clock once more or once less than it did: it fills a cache, or
//! finds it filled. So a reading is known by what the request wrote last before it, to a database
//! or to another service ([`Place`]), by what code asks for it ([`Caller`]), if that is known, and
//! by its order among those. See [`Pins::read_again`].

mod callers;
mod numbers;
mod place;
mod spins;
mod written;

use std::sync::atomic::{AtomicI64, AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

pub(crate) use callers::ByCaller;

pub use callers::count_by_caller;
pub use numbers::{Number, Series};
pub use place::{Asks, Caller, Place, Statements, mixed, mixed_text};
pub use written::{decode_readings, encode_readings};

/// Bytes of a recording's secret.
pub const KEY: usize = 32;
/// Readings of one request that are noted. Who hashes a password in a program looks at the clock in
/// each of some thousand rounds.
pub const READINGS: usize = 10_000;

/// Requests at a time that are counted while recording.
const COUNTED: usize = 1 << 16;
/// Requests at a time that a replay can have in flight.
const SCRIPTS: usize = 1 << 12;
/// Readings that a replay keeps at a time, of all requests.
const KEPT: usize = 1 << 20;
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
pub(crate) struct Key([AtomicU64; KEY / 8]);

impl Key {
    pub fn set(&self, key: &[u8; KEY]) {
        for (word, bytes) in self.0.iter().zip(key.as_chunks().0) {
            word.store(u64::from_le_bytes(*bytes), Ordering::Relaxed);
        }
    }

    /// `None` if none was set.
    pub fn get(&self) -> Option<[u8; KEY]> {
        let mut key = [0; KEY];
        for (word, bytes) in self.0.iter().zip(key.as_chunks_mut().0) {
            *bytes = word.load(Ordering::Relaxed).to_le_bytes();
        }
        (key != [0; KEY]).then_some(key)
    }
}

/// What a request was shown behind one write: nothing yet, readings of that place, also others.
const NOTHING: u32 = 0;
const ITS_OWN: u32 = 1;
const LENT: u32 = 2;

/// How far somebody has come through the readings of a kind: as [`Script`] has it.
#[derive(Clone, Copy, Debug, Default)]
struct At {
    behind: u32,
    since: u32,
}

/// How far work that is done apart from its request has come through the request's readings.
#[derive(Clone, Copy, Debug)]
pub struct Walk {
    key: [u8; KEY],
    asks: Asks,
    at: [At; READS],
}

impl Walk {
    /// By this key, which the request has drawn for it.
    pub const fn new(key: [u8; KEY]) -> Self {
        let at = At {
            behind: 0,
            since: NOTHING,
        };
        Self {
            key,
            asks: Asks {
                place: Place::BEGINNING.apart(),
                caller: Caller::apart(&key),
            },
            at: [at; READS],
        }
    }

    pub fn key(&self) -> &[u8; KEY] {
        &self.key
    }

    /// Where it is, which is never where the request is, and whose work it is.
    pub fn asks(&self) -> Asks {
        self.asks
    }

    /// It writes this to a database, or to another service.
    pub fn writes(&mut self, place: Place) {
        self.asks.place = place.apart();
        self.at.iter_mut().for_each(|at| at.since = NOTHING);
    }
}

/// A request as a replay knows it.
#[repr(C)]
struct Script {
    /// 0 while the rest is being written.
    request: AtomicU64,
    recorded_as: AtomicU64,
    key: Key,
    draws: AtomicU64,
    drawn_by: ByCaller,
    /// By what is read ([`Reads`]): the place in the readings behind the last one that was shown.
    behind: [AtomicU32; READS],
    /// As well: what was shown since the request wrote last.
    since: [AtomicU32; READS],
    /// Where its readings begin, and how many there are.
    first: AtomicU64,
    count: AtomicU32,
    /// The latest time that was given, and when by the monotonic clock.
    last: AtomicI64,
    last_at: AtomicI64,
    spins: spins::Spins,
    /// How far the time that was given last is from the real one; `i64::MIN`: none was given.
    ahead: AtomicI64,
}

/// The readings of replayed requests. Places are counted without end: what was begun long ago is
/// not kept any more.
#[repr(C)]
struct Kept {
    next: AtomicU64,
    times: [AtomicI64; KEPT],
    places: [AtomicU16; KEPT],
    callers: [AtomicU16; KEPT],
    /// 1: it was given where it belongs.
    is_given: [AtomicU8; KEPT],
}

impl Kept {
    /// Puts the readings of a request there. Returns where they begin.
    fn put(&self, readings: &[Reading]) -> u64 {
        let first = self
            .next
            .fetch_add(readings.len() as u64, Ordering::Relaxed);
        for (at, reading) in (first..).zip(readings) {
            let at = at as usize % KEPT;
            self.times[at].store(reading.time, Ordering::Relaxed);
            self.places[at].store(reading.place.0, Ordering::Relaxed);
            self.callers[at].store(reading.caller.0, Ordering::Relaxed);
            self.is_given[at].store(0, Ordering::Relaxed);
        }
        first
    }

    /// Whether what begins there is still kept.
    fn has(&self, first: u64) -> bool {
        self.next.load(Ordering::Relaxed).saturating_sub(first) <= KEPT as u64
    }
}

/// A request, and its readings.
#[derive(Clone, Copy)]
struct Scripted<'a> {
    script: &'a Script,
    kept: &'a Kept,
}

/// A clock that is slow goes on by this part of the time: one that stood still would be waited for
/// without end.
const SLOW: i64 = 16;

#[repr(C)]
pub struct Pins {
    /// How far the wall clock of a replayed service is from the real one, in nanoseconds.
    ahead: AtomicI64,
    /// From this moment on it is slow; 0: never.
    until: AtomicI64,
    /// Readings in a replay that the recording does not have.
    beyond: AtomicU64,
    /// Readings in a replay that it has.
    given: AtomicU64,
    draws: AtomicU64,
    key: Key,
    drawn: [AtomicU64; COUNTED],
    drawn_by: [ByCaller; COUNTED],
    read: [AtomicU64; COUNTED],
    /// What a request wrote last: the lower half of its number, and a [`Place`].
    wrote: [AtomicU64; COUNTED],
    scripts: [Script; SCRIPTS],
    kept: Kept,
    numbers: numbers::Given,
}

/// What is read. Programs ask for one of the two kinds of wall clock, and the libraries that they
/// call for the other: a client of a database that opens a connection, in one request and not in
/// another, looks at the seconds. So each has an order of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reads {
    Instant,
    /// `time()`.
    Second,
    /// How much time of a processor was used, which programs show in pages.
    Processor,
    /// No time: a [`Number`].
    Number,
}

/// So many kinds of readings.
const READS: usize = 4;

/// What a request read from a clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// In nanoseconds, since 1970 if it is the wall clock's; as [`Reads::kept`] has it.
    pub time: i64,
    pub place: Place,
    pub caller: Caller,
}

impl Reads {
    /// What the recording has of a time, which tells the kind: of a processor's the complement,
    /// which no wall clock shows. Of that, the time.
    pub fn kept(self, time: i64) -> i64 {
        match self {
            Self::Processor => !time,
            Self::Instant | Self::Second | Self::Number => time,
        }
    }

    fn of(reading: i64) -> Self {
        match reading % 1_000_000_000 {
            _ if numbers::is_number(reading) => Self::Number,
            _ if reading < 0 => Self::Processor,
            0 => Self::Second,
            _ => Self::Instant,
        }
    }
}

/// What a replay says of a request before it sends it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorded<'a> {
    /// The number that the replay gives it.
    pub request: u64,
    /// The number that it drew with.
    pub recorded_as: u64,
    pub key: Option<&'a [u8; KEY]>,
    /// In nanoseconds since 1970.
    pub arrived: i64,
    /// In the order in which they were made.
    pub readings: &'a [Reading],
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

    /// Whether what requests of a recording draw and read is pinned.
    pub fn has_key(&self) -> bool {
        self.key.get().is_some()
    }

    /// Where the next draw of a recorded request comes from, by this code; `None`: from the kernel.
    pub fn draw(&self, request: u64, caller: Caller) -> Option<Draw> {
        let key = self.key.get()?;
        let by = || {
            let own = &self.drawn_by[request as usize % COUNTED];
            own.count(of_recorder(request) / COUNTED as u64 + 1, caller)
        };
        if callers::counts_by_caller(&key)
            && is_counted(&self.drawn, request)
            && let Some(count) = by()
        {
            return Some(Draw::by(caller, key, request, count));
        }
        let count = count(&self.drawn, request)?;
        Some(Draw::new(key, request, count))
    }

    /// What stands for the number of the process in a generator's seed, while the process works on
    /// the request. It is not counted among the request's draws.
    pub fn process(&self, request: u64, replays: bool) -> Option<Draw> {
        let (key, recorded_as) = self.recorded(request, replays)?;
        // No draw of the request's own comes so far.
        Some(Draw::new(key, recorded_as, COUNT_MASK))
    }

    /// What a runtime draws for itself in this code of a request, such as the order of a table. It
    /// is the same each time, and not counted: how often it draws depends on what others did.
    pub fn order(&self, request: u64, caller: Caller, replays: bool) -> Option<Draw> {
        let (key, recorded_as) = self.recorded(request, replays)?;
        Some(Draw::by(caller, key, recorded_as, COUNT_MASK))
    }

    fn recorded(&self, request: u64, replays: bool) -> Option<([u8; KEY], u64)> {
        if request == 0 {
            return None;
        }
        if !replays {
            return Some((self.key.get()?, request));
        }
        let script = self.script_of(request)?;
        let recorded_as = script.recorded_as.load(Ordering::Relaxed);
        Some((script.key.get()?, recorded_as))
    }

    /// A request writes this to a database, or to another service.
    pub fn writes(&self, request: u64, place: Place) {
        if request != 0 {
            let wrote = &self.wrote[request as usize % COUNTED];
            wrote.store(request << 32 | u64::from(place.0), Ordering::Relaxed);
        }
        for since in self.script_of(request).iter().flat_map(|one| &one.since) {
            since.store(NOTHING, Ordering::Relaxed);
        }
    }

    /// Where a request is.
    pub fn place(&self, request: u64) -> Place {
        let wrote = self.wrote[request as usize % COUNTED].load(Ordering::Relaxed);
        match wrote >> 32 == request & u64::from(u32::MAX) {
            true => Place(wrote as u16),
            false => Place::BEGINNING,
        }
    }

    /// Which reading of a recorded request this is; `None` if it is not to be told.
    pub fn note_reading(&self, request: u64) -> Option<u16> {
        self.key.get()?;
        let count = count(&self.read, request)?;
        u16::try_from(count)
            .ok()
            .filter(|&count| usize::from(count) < READINGS)
    }

    /// A replay is about to send this request. `now`: by the monotonic clock.
    pub fn begin(&self, recorded: &Recorded<'_>, now: i64) {
        let script = self.script(recorded.request);
        script.request.store(0, Ordering::Release);
        script.key.set(recorded.key.unwrap_or(&[0; KEY]));
        script
            .recorded_as
            .store(recorded.recorded_as, Ordering::Relaxed);
        script.draws.store(0, Ordering::Relaxed);
        script.drawn_by.clear();
        for behind in &script.behind {
            behind.store(0, Ordering::Relaxed);
        }
        let readings = &recorded.readings[..recorded.readings.len().min(READINGS)];
        let first = self.kept.put(readings);
        script.first.store(first, Ordering::Relaxed);
        script.count.store(readings.len() as u32, Ordering::Relaxed);
        script.last.store(recorded.arrived, Ordering::Relaxed);
        script.last_at.store(now, Ordering::Relaxed);
        script.ahead.store(i64::MIN, Ordering::Relaxed);
        script.spins.reset();
        script.request.store(recorded.request, Ordering::Release);
        self.writes(recorded.request, Place::BEGINNING);
    }

    fn script(&self, request: u64) -> &Script {
        &self.scripts[request as usize % SCRIPTS]
    }

    fn script_of(&self, request: u64) -> Option<&Script> {
        let script = self.script(request);
        (request != 0 && script.request.load(Ordering::Acquire) == request).then_some(script)
    }

    /// One whose readings were noted when it was recorded. Others read the service's clock, which
    /// goes on from one to the next.
    fn pinned(&self, request: u64) -> Option<&Script> {
        self.script_of(request)
            .filter(|script| script.key.get().is_some() || script.count.load(Ordering::Relaxed) > 0)
    }

    fn scripted<'a>(&'a self, script: &'a Script) -> Scripted<'a> {
        let kept = &self.kept;
        Scripted { script, kept }
    }

    /// Where the next draw of a replayed request comes from, by this code; `None`: from the kernel.
    pub fn draw_again(&self, request: u64, caller: Caller) -> Option<Draw> {
        let script = self.script_of(request)?;
        let key = script.key.get()?;
        self.draws.fetch_add(1, Ordering::Relaxed);
        let stream = script.recorded_as.load(Ordering::Relaxed);
        if callers::counts_by_caller(&key)
            && let Some(count) = script.drawn_by.count(1, caller)
        {
            return Some(Draw::by(caller, key, stream, count));
        }
        let count = script.draws.fetch_add(1, Ordering::Relaxed);
        (count < COUNT_MASK).then(|| Draw::new(key, stream, count))
    }

    /// What a replayed request reads next; `None` if nothing is known of it. `real`: what the wall
    /// clock shows, `now`: what the monotonic one does.
    ///
    /// That is what the same code read that asks now: the first reading of its place that was not
    /// given yet, or else of any place, since a cache that another request has filled is asked for
    /// in place of a database. A cache that looks once more whether something has expired shifts no
    /// other reading.
    ///
    /// Where it is not known what code asks, it is the first reading of its place that was not
    /// given yet, and then the one behind it, if that is of the same place. Where there is none,
    /// the request has written something that it did not, or has not written what it did, or reads
    /// once more: the next one is lent, and given again at its own place, if that comes.
    pub fn read_again(
        &self,
        request: u64,
        caller: Caller,
        reads: Reads,
        real: i64,
        now: i64,
    ) -> Option<i64> {
        let script = self.pinned(request)?;
        let scripted = self.scripted(script);
        let mut at = script.at(reads);
        let asks = Asks {
            place: self.place(request),
            caller: Caller::UNKNOWN,
        };
        let reading = scripted
            .give_to(caller, reads, asks, &mut at)
            .or_else(|| scripted.give(reads, asks, &mut at))
            .or_else(|| scripted.lend(reads, asks, &mut at));
        script.set_at(reads, at);
        Some(self.shown(script, reads, reading, real, now))
    }

    /// The same for work that is done apart from the request, which goes through the readings by
    /// itself.
    pub fn read_apart(
        &self,
        request: u64,
        apart: &mut Walk,
        reads: Reads,
        real: i64,
        now: i64,
    ) -> Option<i64> {
        let script = self.pinned(request)?;
        let scripted = self.scripted(script);
        let at = &mut apart.at[reads as usize];
        let own = scripted.give(reads, apart.asks, at);
        let reading = own.or_else(|| scripted.lend(reads, apart.asks, at));
        Some(self.shown(script, reads, reading, real, now))
    }

    fn shown(
        &self,
        script: &Script,
        reads: Reads,
        reading: Option<i64>,
        real: i64,
        now: i64,
    ) -> i64 {
        if reads == Reads::Processor {
            let count = reading.map_or(&self.beyond, |_| &self.given);
            count.fetch_add(1, Ordering::Relaxed);
            return reading.map_or(real, |kept| reads.kept(kept));
        }
        let reading = match reading {
            Some(reading) => {
                self.given.fetch_add(1, Ordering::Relaxed);
                script.spins.reset();
                reading
            }
            None => {
                self.beyond.fetch_add(1, Ordering::Relaxed);
                if let Some(later) = script.spins.note(now) {
                    let of_all = real.saturating_add(self.ahead_of_all(real));
                    return of_all.saturating_add(later);
                }
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
        reading
    }

    /// How far the wall clock of a replayed service is from the real one, which shows `real`, for
    /// who works on this request, in nanoseconds; 0: on none.
    pub fn ahead(&self, request: u64, real: i64) -> i64 {
        let own = self.script_of(request);
        let own = own.map(|script| script.ahead.load(Ordering::Relaxed));
        own.filter(|&ahead| ahead != i64::MIN)
            .unwrap_or_else(|| self.ahead_of_all(real))
    }

    fn ahead_of_all(&self, real: i64) -> i64 {
        let ahead = self.ahead.load(Ordering::Relaxed);
        let beyond = match self.until.load(Ordering::Relaxed) {
            0 => 0,
            until => real.saturating_add(ahead).saturating_sub(until).max(0),
        };
        ahead.saturating_sub(beyond - beyond / SLOW)
    }

    /// From here on the wall clock of a replayed service is so far from the real one, and slow from
    /// the moment `until` on, if that is not 0.
    pub fn set_ahead(&self, ahead: i64, until: i64) {
        self.until.store(until, Ordering::Relaxed);
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

impl Script {
    fn at(&self, reads: Reads) -> At {
        At {
            behind: self.behind[reads as usize].load(Ordering::Relaxed),
            since: self.since[reads as usize].load(Ordering::Relaxed),
        }
    }

    fn set_at(&self, reads: Reads, at: At) {
        self.behind[reads as usize].store(at.behind, Ordering::Relaxed);
        self.since[reads as usize].store(at.since, Ordering::Relaxed);
    }
}

impl Scripted<'_> {
    /// The readings of a kind from one on, and where they are, of who asks: the request, or work
    /// that is done apart from it.
    fn readings(
        &self,
        reads: Reads,
        asks: Asks,
        from: usize,
    ) -> impl Iterator<Item = (usize, i64)> + '_ {
        let readings = (from..self.count()).map(move |at| {
            (
                at,
                self.kept.times[self.kept_at(at)].load(Ordering::Relaxed),
            )
        });
        let is_own = move |at: usize| match asks.place.is_apart() {
            true => self.place(at).is_apart() && self.caller(at) == asks.caller,
            false => !self.place(at).is_apart(),
        };
        let alike = move |&(at, reading): &(usize, i64)| Reads::of(reading) == reads && is_own(at);
        readings.filter(alike)
    }

    /// How many readings there are.
    fn count(&self) -> usize {
        let first = self.script.first.load(Ordering::Relaxed);
        match self.kept.has(first) {
            true => self.script.count.load(Ordering::Relaxed) as usize,
            false => 0,
        }
    }

    /// Where the reading with this number is kept.
    fn kept_at(&self, at: usize) -> usize {
        let first = self.script.first.load(Ordering::Relaxed);
        first.wrapping_add(at as u64) as usize % KEPT
    }

    fn place(&self, at: usize) -> Place {
        Place(self.kept.places[self.kept_at(at)].load(Ordering::Relaxed))
    }

    fn caller(&self, at: usize) -> Caller {
        Caller(self.kept.callers[self.kept_at(at)].load(Ordering::Relaxed))
    }

    fn is_given(&self, at: usize) -> bool {
        self.kept.is_given[self.kept_at(at)].load(Ordering::Relaxed) != 0
    }

    /// False: it is given already.
    fn take(&self, at: usize) -> bool {
        self.kept.is_given[self.kept_at(at)].swap(1, Ordering::Relaxed) == 0
    }

    fn set_given(&self, at: usize) {
        self.kept.is_given[self.kept_at(at)].store(1, Ordering::Relaxed);
    }

    /// One that the same code has read, if it is known what code asks.
    fn give_to(&self, caller: Caller, reads: Reads, asks: Asks, walk: &mut At) -> Option<i64> {
        if caller == Caller::UNKNOWN {
            return None;
        }
        let readings = self.readings(reads, asks, 0);
        let own = |&(at, _): &(usize, i64)| !self.is_given(at) && self.caller(at) == caller;
        let mut own = readings.filter(own).peekable();
        let first = own.peek().copied()?;
        let here = own.find(|&(at, _)| self.place(at) == asks.place);
        let (at, reading) = here.unwrap_or(first);
        self.set_given(at);
        walk.behind = walk.behind.max(at as u32 + 1);
        Some(reading)
    }

    /// One of this place, of those of a request that are known by it alone.
    fn give(&self, reads: Reads, asks: Asks, walk: &mut At) -> Option<i64> {
        let is_there = |at: usize| {
            let here = Asks {
                place: self.place(at),
                caller: self.caller(at),
            };
            here == asks && !self.is_given(at)
        };
        let behind = walk.behind as usize;
        let found = match walk.since {
            NOTHING => self.readings(reads, asks, 0).find(|one| is_there(one.0)),
            ITS_OWN => self
                .readings(reads, asks, behind)
                .next()
                .filter(|one| is_there(one.0)),
            _ => None,
        };
        walk.since = found.map_or(LENT, |_| ITS_OWN);
        let (at, reading) = found?;
        self.set_given(at);
        walk.behind = at as u32 + 1;
        Some(reading)
    }

    /// The next one that was not given.
    fn lend(&self, reads: Reads, asks: Asks, walk: &mut At) -> Option<i64> {
        let mut readings = self.readings(reads, asks, walk.behind as usize);
        let (at, reading) = readings.find(|&(at, _)| !self.is_given(at))?;
        walk.behind = at as u32 + 1;
        Some(reading)
    }
}

impl Draw {
    /// The n-th draw by a key that belongs to no request, as that of work that is done apart from
    /// its request; `None`: it has drawn too often.
    pub fn apart(key: [u8; KEY], count: u64) -> Option<Self> {
        (count <= COUNT_MASK).then(|| Self::new(key, 0, count))
    }

    /// The n-th draw by this code of who has this stream of a key; `None`: it has drawn too often.
    pub(crate) fn of(caller: Caller, key: [u8; KEY], stream: u64, count: u64) -> Option<Self> {
        (count <= COUNT_MASK).then(|| Self::by(caller, key, stream, count))
    }

    /// The n-th draw of a request by this code.
    fn by(caller: Caller, mut key: [u8; KEY], request: u64, count: u64) -> Self {
        for (byte, own) in key.iter_mut().zip(caller.0.to_le_bytes()) {
            *byte ^= own;
        }
        Self::new(key, request, count)
    }

    fn new(key: [u8; KEY], request: u64, count: u64) -> Self {
        Self {
            key,
            request,
            block: count << BLOCK_BITS,
        }
    }
}

/// A request's number without that of its recorder: a process that is recorded has one recorder.
fn of_recorder(request: u64) -> u64 {
    request & (u64::MAX >> COUNT_BITS)
}

/// Whether the request can be counted there, which is its place then.
fn is_counted(counts: &[AtomicU64; COUNTED], request: u64) -> bool {
    let own = of_recorder(request);
    let take = |now: u64| match now >> COUNT_BITS {
        of if of == own => Some(now),
        of if of < own => Some(own << COUNT_BITS),
        _ => None,
    };
    let place = &counts[request as usize % COUNTED];
    request != 0
        && place
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, take)
            .is_ok()
}

/// How often this was asked before for the request. A place is only ever given on to a later
/// request, and what comes back to it then is not counted: so a count is never given twice.
fn count(counts: &[AtomicU64; COUNTED], request: u64) -> Option<u64> {
    if request == 0 {
        return None;
    }
    let place = &counts[request as usize % COUNTED];
    let own = of_recorder(request);
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

#[cfg(test)]
mod tests;
