//! Readings as a recording keeps them.
//!
//! Each is its distance from the one before, the first from a moment that is known, in nanoseconds,
//! sevenfold bits with the lowest first. The lowest of all says whether four bytes follow: place
//! and caller, where one of them is another one than before.

use super::{Caller, Place, Reading};

/// In front of readings that have callers, and of those that have only places of two bytes: zeros
/// as nothing else writes one. Those with neither have places of one byte, which are none of
/// today's: they are given by their order.
const WITH_CALLERS: [u8; 3] = [0x80, 0x80, 0];
const WITH_PLACES: [u8; 2] = [0x80, 0];

/// `base`: the moment before the first.
pub fn encode_readings(base: i64, readings: &[Reading]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(readings.len() * 8);
    if !readings.is_empty() {
        bytes.extend(WITH_CALLERS);
    }
    let (mut last, mut at) = (base, (Place::BEGINNING, Caller::UNKNOWN));
    for &Reading {
        time,
        place,
        caller,
    } in readings
    {
        let distance = time.wrapping_sub(last);
        let zigzag = (distance << 1 ^ distance >> 63) as u64;
        let differs = (place, caller) != at;
        let mut left = u128::from(zigzag) << 1 | u128::from(differs);
        while left >= 0x80 {
            bytes.push(left as u8 | 0x80);
            left >>= 7;
        }
        bytes.push(left as u8);
        if differs {
            bytes.extend(place.0.to_le_bytes());
            bytes.extend(caller.0.to_le_bytes());
        }
        (last, at) = (time, (place, caller));
    }
    bytes
}

/// `None` if no recorder writes such bytes.
pub fn decode_readings(base: i64, bytes: &[u8]) -> Option<Vec<Reading>> {
    let (mut readings, mut last) = (Vec::new(), base);
    let (mut place, mut caller) = (Place::BEGINNING, Caller::UNKNOWN);
    let (mut rest, width) = if let Some(rest) = bytes.strip_prefix(&WITH_CALLERS) {
        (rest, 4)
    } else if let Some(rest) = bytes.strip_prefix(&WITH_PLACES) {
        (rest, 2)
    } else {
        (bytes, 1)
    };
    while !rest.is_empty() {
        let number = take_number(&mut rest)?;
        if number & 1 == 1 {
            let (own, behind) = rest.split_at_checked(width)?;
            rest = behind;
            let two = |at: usize| own.get(at..at + 2)?.try_into().ok().map(u16::from_le_bytes);
            place = Place(two(0).unwrap_or(u16::from(*own.first()?)));
            caller = two(2).map_or(Caller::UNKNOWN, Caller);
        }
        let zigzag = (number >> 1) as u64;
        let distance = (zigzag >> 1) as i64 ^ -((zigzag & 1) as i64);
        last = last.wrapping_add(distance);
        readings.push(Reading {
            time: last,
            place,
            caller,
        });
    }
    Some(readings)
}

fn take_number(rest: &mut &[u8]) -> Option<u128> {
    let (mut number, mut shift) = (0u128, 0);
    loop {
        let (&byte, behind) = rest.split_first().filter(|_| shift < 70)?;
        *rest = behind;
        number |= u128::from(byte & 0x7f) << shift;
        shift += 7;
        if byte < 0x80 {
            return Some(number);
        }
    }
}
