//! Numbers that a process gives to requests, of those that it keeps: ids of rows, of which a
//! library takes fifty at a time.
//!
//! Which request is given which number depends on who asks next, and so does which of them asks
//! the database for the next fifty. In a replay a request is given what it was given, and asks when
//! it asked. A number is known by whose it is (a sequence, and the class of what is numbered), and
//! by its order among those of the request.
//!
//! Changed code may ask for more. What it gets then is numbered by the process itself, which must
//! not give what another request of the recording has or will have: see [`Pins::is_given_away`].
//!
//! A recording keeps them among the readings of the clock, as times that no clock shows.

use std::sync::atomic::{AtomicU64, Ordering};

use super::{Caller, Pins, Place, Reading, Reads, mixed};

/// Whose number it is: what it is taken from, and what is numbered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Series {
    pub of: Caller,
    pub numbers: Place,
}

/// A number that a request was given, or that of an object which it saw in a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Number {
    pub series: Series,
    pub value: i64,
    /// How often the database was asked for it, or [`Number::SEEN`].
    pub asks: u8,
}

const ASKS_BITS: u32 = 2;
/// So many values are known, from 0 on.
const VALUES: i64 = 1 << 60;
/// Readings below are numbers.
const BELOW: i64 = i64::MIN + (VALUES << ASKS_BITS);

pub(super) fn is_number(reading: i64) -> bool {
    reading < BELOW
}

impl Number {
    /// It is another request's, and was seen.
    pub const SEEN: u8 = 3;
    /// Above so many bits of the value stands what else was told of what was seen.
    const OBJECT_BITS: u32 = 58;

    /// The number of an object in a cache, if it may be one. Zero is nothing, and one is an object
    /// of which it is not known who put it there.
    pub fn object(self) -> Option<i64> {
        let number = match self.asks {
            Self::SEEN => self.value & ((1 << Self::OBJECT_BITS) - 1),
            _ => self.value,
        };
        (number > 1).then_some(number)
    }

    pub fn is_seen(self) -> bool {
        self.asks == Self::SEEN
    }

    /// `None`: it is too large, or below zero, or the database was asked too often.
    pub fn reading(self) -> Option<Reading> {
        let is_known = (0..VALUES).contains(&self.value) && self.asks >> ASKS_BITS == 0;
        is_known.then(|| Reading {
            time: i64::MIN + (self.value << ASKS_BITS | i64::from(self.asks)),
            place: self.series.numbers,
            caller: self.series.of,
        })
    }

    /// `None`: it is a reading of a clock.
    pub fn of(reading: Reading) -> Option<Self> {
        is_number(reading.time).then(|| {
            let both = reading.time.wrapping_sub(i64::MIN);
            Self {
                series: Series {
                    of: reading.caller,
                    numbers: reading.place,
                },
                value: both >> ASKS_BITS,
                asks: (both & ((1 << ASKS_BITS) - 1)) as u8,
            }
        })
    }
}

/// So many are known that requests of a recording were given.
const GIVEN: usize = 1 << 20;
/// Places in which one may be, one behind the other.
const PLACES: usize = 64;

/// What requests of a recording were given, whether a replay has come to them or not.
#[repr(C)]
pub(super) struct Given([AtomicU64; GIVEN]);

impl Given {
    fn places(&self, hash: u64) -> impl Iterator<Item = &AtomicU64> {
        (0..PLACES).map(move |nth| &self.0[(hash as usize).wrapping_add(nth) % GIVEN])
    }

    fn hash(of: Caller, value: i64) -> u64 {
        mixed(mixed(1, u64::from(of.0)), value as u64).max(1)
    }

    /// False: there is no room.
    fn put(&self, of: Caller, value: i64) -> bool {
        let hash = Self::hash(of, value);
        let is_put = |place: &AtomicU64| {
            let before = place.compare_exchange(0, hash, Ordering::AcqRel, Ordering::Acquire);
            before.is_ok() || before == Err(hash)
        };
        self.places(hash).any(is_put)
    }

    fn has(&self, of: Caller, value: i64) -> bool {
        let hash = Self::hash(of, value);
        let mut places = self.places(hash);
        places.any(|place| place.load(Ordering::Acquire) == hash)
    }
}

impl Pins {
    /// A request of the recording was given this number. False: there is no room to know it.
    pub fn was_given(&self, number: Number) -> bool {
        number.is_seen() || self.numbers.put(number.series.of, number.value)
    }

    /// Whether some request of the recording was given this number.
    pub fn is_given_away(&self, series: Series, value: i64) -> bool {
        self.numbers.has(series.of, value)
    }

    /// The number of the object that a replayed request sees next in a cache; `None`: it sees none,
    /// or it is not known which.
    pub fn sees_next(&self, request: u64) -> Option<i64> {
        let scripted = self.scripted(self.pinned(request)?);
        let seen = |at: usize| {
            let time = scripted.kept.times[scripted.kept_at(at)].load(Ordering::Relaxed);
            let reading = Reading {
                time,
                ..Reading::default()
            };
            Number::of(reading).filter(|number| number.is_seen() && !scripted.is_given(at))
        };
        (0..scripted.count()).find_map(seen)?.object()
    }

    /// What a replayed request was given next of this series; `None`: it was given no more.
    pub fn number_again(&self, request: u64, series: Series) -> Option<Number> {
        let script = self.pinned(request)?;
        let scripted = self.scripted(script);
        let number = |at: usize| {
            let time = scripted.kept.times[scripted.kept_at(at)].load(Ordering::Relaxed);
            Number::of(Reading {
                time,
                place: scripted.place(at),
                caller: scripted.caller(at),
            })
        };
        let mut walked = script.at(Reads::Number);
        let is_over = |&at: &usize| scripted.is_given(at) || number(at).is_none();
        let from = walked.behind as usize;
        let from = from + (from..scripted.count()).take_while(is_over).count();
        walked.behind = from as u32;
        script.set_at(Reads::Number, walked);
        (from..scripted.count())
            .find_map(|at| number(at).filter(|number| number.series == series && scripted.take(at)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pins::{KEY, Recorded};

    const NOTES: Series = Series {
        of: Caller(7),
        numbers: Place(1),
    };
    const MARKS: Series = Series {
        numbers: Place(2),
        ..NOTES
    };

    fn number(series: Series, value: i64, asks: u8) -> Number {
        Number {
            series,
            value,
            asks,
        }
    }

    fn pins() -> Box<Pins> {
        // SAFETY: all of it is numbers, of which zero is one.
        unsafe { Box::<Pins>::new_zeroed().assume_init() }
    }

    fn begin(pins: &Pins, request: u64, readings: &[Reading]) {
        let recorded = Recorded {
            request,
            recorded_as: request,
            key: Some(&[7; KEY]),
            arrived: 0,
            readings,
        };
        pins.begin(&recorded, 0);
    }

    #[test]
    fn a_number_is_no_time_and_comes_back_from_what_is_kept() {
        for value in [0, 1, 51, VALUES - 1] {
            let own = number(NOTES, value, 3);
            let reading = own.reading().unwrap();
            assert_eq!(Number::of(reading), Some(own));
            assert_eq!(Reads::of(reading.time), Reads::Number);
        }
        for unknown in [number(NOTES, -1, 0), number(NOTES, VALUES, 0)] {
            assert_eq!(unknown.reading(), None);
        }
        assert_eq!(number(NOTES, 1, 4).reading(), None);
        for time in [0, 1, 1_790_000_000_000_000_001, i64::MAX] {
            for reads in [Reads::Instant, Reads::Processor] {
                let reading = Reading {
                    time: reads.kept(time / 2),
                    ..Reading::default()
                };
                assert_eq!(Number::of(reading), None);
            }
        }
    }

    #[test]
    fn a_request_is_given_what_it_was_given_of_a_series_and_nothing_twice() {
        let pins = pins();
        let all = [
            number(NOTES, 1, 2),
            number(MARKS, 2, 0),
            number(NOTES, 51, 1),
        ];
        begin(&pins, 1, &all.map(|one| one.reading().unwrap()));
        begin(&pins, 2, &[number(NOTES, 3, 0).reading().unwrap()]);
        let again = |request, series| pins.number_again(request, series);
        assert_eq!(again(1, MARKS), Some(all[1]));
        assert_eq!(again(1, MARKS), None);
        assert_eq!(again(2, NOTES), Some(number(NOTES, 3, 0)));
        assert_eq!(again(1, NOTES), Some(all[0]));
        assert_eq!(again(1, NOTES), Some(all[2]));
        assert_eq!(again(1, NOTES), None);
        assert_eq!(again(2, NOTES), None);
        // Of no request, and of one that was not sent.
        assert_eq!((again(0, NOTES), again(3, NOTES)), (None, None));
    }

    #[test]
    fn what_a_request_sees_next_is_what_it_saw_first_of_all_that_it_has_not_seen_again() {
        let pins = pins();
        let all = [
            number(NOTES, 4711, 0),
            number(NOTES, 4712, Number::SEEN),
            number(MARKS, 1 << Number::OBJECT_BITS | 4713, Number::SEEN),
            number(MARKS, 0, Number::SEEN),
            number(MARKS, 4714, Number::SEEN),
        ];
        begin(&pins, 1, &all.map(|one| one.reading().unwrap()));
        assert_eq!(pins.sees_next(1), Some(4712));
        pins.number_again(1, NOTES);
        pins.number_again(1, NOTES);
        assert_eq!(pins.sees_next(1), Some(4713));
        pins.number_again(1, MARKS);
        // There is nothing.
        assert_eq!(pins.sees_next(1), None);
        pins.number_again(1, MARKS);
        assert_eq!(pins.sees_next(1), Some(4714));
        pins.number_again(1, MARKS);
        assert_eq!(pins.sees_next(1), None);
        assert_eq!(pins.sees_next(2), None);
    }

    #[test]
    fn what_any_request_was_given_is_not_given_anew() {
        let pins = pins();
        assert!(!pins.is_given_away(NOTES, 51));
        assert!(pins.was_given(number(NOTES, 51, 0)));
        assert!(pins.was_given(number(NOTES, 51, 0)));
        assert!(pins.is_given_away(NOTES, 51));
        // Of what is numbered there may be several kinds.
        assert!(pins.is_given_away(MARKS, 51));
        assert!(!pins.is_given_away(NOTES, 52));
    }
}
