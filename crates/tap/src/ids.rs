//! Ids that libraries make of the time and of what the process keeps (a counter, the latest time):
//! a request is given the one that it got.
//!
//! An id is known by the code that asks for it, and by the order among those of the request.

use hindcast_taplog::pins::{Caller, Number, Place, Series};

use crate::pins;

/// A number of a request has fewer bits than an id: an id is three.
const BITS: u32 = 43;
const PARTS: u16 = 3;

fn part(id: u128, nth: u16) -> i64 {
    (id >> (u32::from(nth) * BITS)) as i64 & ((1 << BITS) - 1)
}

fn series(of: Caller, nth: u16) -> Series {
    let numbers = Place(nth);
    Series { of, numbers }
}

/// In a replay: what the request that the thread works on was given next by this code.
pub fn again(of: Caller) -> Option<u128> {
    let again = |nth| pins::number_again(series(of, nth)).map(|number| number.value);
    let lowest = again(0)?;
    let others = (1..PARTS).map(|nth| (nth, again(nth).unwrap_or(0)));
    Some(others.fold(lowest as u128, |id, (nth, part)| {
        id | (part as u128) << (u32::from(nth) * BITS)
    }))
}

/// While recording: it is given this one.
pub fn given(of: Caller, id: u128) {
    for nth in 0..PARTS {
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
            let all = (0..PARTS).map(|nth| (part(id, nth) as u128) << (u32::from(nth) * BITS));
            assert_eq!(all.fold(0, |all, part| all | part), id);
        }
    }
}
