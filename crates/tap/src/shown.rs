//! What requests put into caches of their process, and see there.
//!
//! What is in a cache depends on who has filled it, and on whether it has expired. Each object that
//! a request puts there has a number, which is told with that request and with each that sees it. A
//! replay keeps the objects by their numbers, so that a request sees what it saw. Who keeps them is
//! the runtime: Java's in [`java::seen`](crate::java), Node's shim in `node_caches.cjs`.

use std::sync::atomic::{AtomicI64, Ordering};

use hindcast_taplog::pins::{Caller, Number, Place, Series, mixed};

use crate::{pins, process};

/// There was nothing; there was something of which it is not known who put it there.
pub const NOTHING: i64 = 0;
pub const UNKNOWN: i64 = 1;

/// A number for an object: no other of this recording has it.
pub fn next_number() -> i64 {
    static LAST: AtomicI64 = AtomicI64::new(UNKNOWN);
    let now = process::now() as i64;
    let next = |last: i64| Some(now.max(last.saturating_add(1)));
    let before = LAST.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
    now.max(before.unwrap_or(UNKNOWN).saturating_add(1))
}

/// A place in a cache of which a shim tells: hashes of the cache's name and of the key.
#[derive(Clone, Copy)]
pub struct Slot {
    cache: u64,
    key: u64,
}

impl Slot {
    pub const fn new(cache: u64, key: u64) -> Self {
        Self { cache, key }
    }

    /// The key has more bits than a place has, so they are in both.
    fn series(self, is_seen: bool) -> Series {
        let of = mixed(mixed(u64::from(is_seen), self.cache), self.key >> 16);
        Series {
            of: Caller::of(of.max(1)),
            numbers: Place(self.key as u16),
        }
    }
}

/// A request puts something there. Returns its number; in a replay the one that it had, if the
/// request has put it there originally.
pub fn put(request: u64, slot: Slot) -> Option<i64> {
    let series = slot.series(false);
    if process::board()?.replays() {
        return pins::number_again_of(request, series).map(|number| number.value);
    }
    let value = next_number();
    let number = Number {
        series,
        value,
        asks: 0,
    };
    pins::tell_number_of(request, number);
    Some(value)
}

/// While recording: a request saw this there.
pub fn saw(request: u64, slot: Slot, value: i64) {
    let number = Number {
        series: slot.series(true),
        value,
        asks: Number::SEEN,
    };
    pins::tell_number_of(request, number);
}

/// In a replay: what a request saw there; `None`: it did not look so often.
pub fn seen_again(request: u64, slot: Slot) -> Option<i64> {
    pins::number_again_of(request, slot.series(true)).map(|number| number.value)
}

/// In a replay: whether some request of the recording put this there.
pub fn is_put(slot: Slot, value: i64) -> bool {
    pins::is_given_away(slot.series(false), value)
}

/// In a replay: the number of what a request sees next, in whatever cache; 0 if that is nothing, or
/// is not known.
pub fn sees_next(request: u64) -> i64 {
    let board = process::board().filter(|board| board.replays());
    let next = board.and_then(|board| board.pins().sees_next(request));
    next.unwrap_or(NOTHING)
}
