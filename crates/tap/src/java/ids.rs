//! Ids that libraries make of the time and of what they keep (a counter, the latest time): what the
//! classes call that [`given`](super::class::given) changes.
//!
//! ```text
//!   idAgain           whether the request was given one here: in a replay, by the recording
//!   idHigh, idLow     its halves
//!   idGiven           one was made
//! ```
//!
//! An id is known by the code that asks for it, and by the order among those of the request.

use std::cell::Cell;

use hindcast_taplog::pins::{Caller, Number, Place, Series};
use libc::c_void;

use super::asker::asker;
use super::machine::{Reference, tools};
use super::seen::replays;
use crate::{pins, turns};

thread_local! {
    /// Between this and the halves nothing waits, so the machine's own threads stay in the same one
    /// of ours.
    static AGAIN: Cell<u128> = const { Cell::new(0) };
}

/// A number of a request has fewer bits than an id: an id is three.
const BITS: u32 = 43;

fn part(id: u128, nth: u16) -> i64 {
    (id >> (u32::from(nth) * BITS)) as i64 & ((1 << BITS) - 1)
}

fn series(of: Caller, nth: u16) -> Series {
    let numbers = Place(nth);
    Series { of, numbers }
}

pub extern "C" fn id_again(_: *mut c_void, _: Reference) -> u8 {
    // While recording, who asks is looked for once, behind.
    if turns::of_code() == 0 || !replays() {
        return 0;
    }
    let of = Caller::of(asker(tools()));
    let again = |nth| pins::number_again(series(of, nth)).map(|number| number.value);
    let Some(lowest) = again(0) else {
        return 0;
    };
    let others = (1..=2).map(|nth| (nth, again(nth).unwrap_or(0)));
    let id = others.fold(lowest as u128, |id, (nth, part)| {
        id | (part as u128) << (u32::from(nth) * BITS)
    });
    AGAIN.set(id);
    1
}

pub extern "C" fn id_high(_: *mut c_void, _: Reference) -> i64 {
    (AGAIN.get() >> u64::BITS) as i64
}

pub extern "C" fn id_low(_: *mut c_void, _: Reference) -> i64 {
    AGAIN.get() as i64
}

pub extern "C" fn id_given(_: *mut c_void, _: Reference, high: i64, low: i64) {
    if turns::of_code() == 0 || replays() {
        return;
    }
    let id = u128::from(high as u64) << u64::BITS | u128::from(low as u64);
    let of = Caller::of(asker(tools()));
    for nth in 0..=2 {
        pins::tell_number(Number {
            series: series(of, nth),
            value: part(id, nth),
            asks: 0,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_its_parts() {
        for id in [0, 1, u128::MAX, 0x1dea_6022_ec64_11f1_9ef2_02fc_0000_0001] {
            let all = (0..=2).map(|nth| (part(id, nth) as u128) << (u32::from(nth) * BITS));
            assert_eq!(all.fold(0, |all, part| all | part), id);
        }
    }
}
