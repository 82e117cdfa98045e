//! What a transaction was answered, kept until it is known what its request drew.

use std::borrow::Cow;

use bytes::BytesMut;
use hindcast_model::uuid_text;
use hindcast_trace::Micros;
use hindcast_wire::digest::ResultDigest;
use hindcast_wire::message::backend::{data_row, parse_data_row};
use hindcast_wire::message::frontend::{self, Bind};
use xxhash_rust::xxh3::xxh3_64;

use super::generated::may_be_generated;
use super::replacer::words;
use super::{Clock, Draws, Learned, now};
use crate::clock::times_in;

/// So much is kept of one transaction; of more only the digest is known.
const BYTES_MAX: usize = 256 << 10;
/// Tag and length of a message.
const HEAD: usize = 5;

/// The answers of one transaction, one behind the other: many are kept, and few are looked at.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Results {
    text: Vec<u8>,
    /// Of each, what it is and where it ends.
    answers: Vec<(Kind, usize)>,
    /// It was more than is kept.
    too_long: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Row { ordered: bool },
    Complete,
    Error,
}

impl std::fmt::Debug for Results {
    /// They may hold secrets.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Results").finish_non_exhaustive()
    }
}

impl Results {
    /// A `DataRow`, as [`ResultDigest::row`] takes it.
    pub fn row(&mut self, ordered: bool, body: &[u8]) {
        self.add(Kind::Row { ordered }, body);
    }

    pub fn complete(&mut self, tag: &[u8]) {
        self.add(Kind::Complete, tag);
    }

    pub fn error(&mut self, sqlstate: &[u8]) {
        self.add(Kind::Error, sqlstate);
    }

    fn add(&mut self, kind: Kind, answer: &[u8]) {
        self.too_long |= self.text.len() + answer.len() > BYTES_MAX;
        if self.too_long {
            (self.text, self.answers) = Default::default();
            return;
        }
        self.text.extend_from_slice(answer);
        self.answers.push((kind, self.text.len()));
    }

    /// Whether what is not known yet may be why they are others.
    pub fn may_be_explained(&self, draws: Draws) -> bool {
        match draws {
            Draws::Free => true,
            Draws::Pinned => self.values().flat_map(drawn_words).next().is_some(),
        }
    }

    fn is_whole(&self) -> bool {
        !self.too_long
    }

    fn answers(&self) -> impl Iterator<Item = (Kind, &[u8])> {
        let mut start = 0;
        self.answers.iter().map(move |&(kind, end)| {
            let answer = &self.text[start..end];
            start = end;
            (kind, answer)
        })
    }

    /// The digest with recorded values in the places of what they stand for.
    fn restored(&self, learned: &Learned) -> u32 {
        let mut digest = ResultDigest::new();
        let mut message = BytesMut::new();
        for (kind, answer) in self.answers() {
            match kind {
                Kind::Row { ordered } => {
                    let values = parse_data_row(answer);
                    let values: Vec<Option<Vec<u8>>> = values
                        .map(|value| value.map(|it| learned.restored(it).unwrap_or(it.to_vec())))
                        .collect();
                    let values: Vec<_> = values.iter().map(Option::as_deref).collect();
                    message.clear();
                    data_row(&mut message, &values);
                    digest.row(ordered, &message[HEAD..]);
                }
                Kind::Complete => digest.complete(answer),
                Kind::Error => digest.error(answer),
            }
        }
        digest.value()
    }

    /// Whether a row holds what can only be of this run: a value that stands for another one, or a
    /// time of day since it began.
    fn hold_drawn(&self, learned: &Learned) -> bool {
        self.values().any(|value| learned.holds_drawn(value))
    }

    /// Those of its rows that are not NULL.
    fn values(&self) -> impl Iterator<Item = &[u8]> {
        let rows = self.answers().filter_map(|(kind, answer)| match kind {
            Kind::Row { .. } => Some(answer),
            _ => None,
        });
        rows.flat_map(parse_data_row).flatten()
    }
}

/// What became of results that are not the recorded ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Explained {
    /// They are the same but for values that are known to stand for each other.
    Same,
    /// They hold values that the service drew in this run, or times that it read. Of what else
    /// they hold nothing can be said, for the recording has one digest of all.
    Drawn,
    Other,
}

impl Learned {
    /// Why a transaction's results have another digest than this one.
    pub fn explain(&self, results: &Results, recorded: u32) -> Explained {
        if !results.is_whole() {
            return Explained::Other;
        }
        if results.restored(self) == recorded {
            self.count_transaction();
            return Explained::Same;
        }
        match self.draws == Draws::Free && results.hold_drawn(self) {
            true => Explained::Drawn,
            false => Explained::Other,
        }
    }

    /// Whether a value, or a row as text, holds what can only be of this run: what stands for
    /// something else, bytes that the service made, or a time of day since it began.
    pub fn holds_drawn(&self, value: &[u8]) -> bool {
        if self.draws == Draws::Pinned {
            return self.holds_unknown(value);
        }
        let began = match self.clock {
            Clock::Real => self.began,
            // Times of a clock that was moved back cannot be told from recorded ones.
            Clock::Moved => self.original,
        };
        let run = (began, now().saturating_add(EXPIRES_WITHIN));
        holds_time_of_day(value, run) || self.restored(value).is_some() || self.was_given(value)
    }

    /// Whether a row holds an id that no answer showed, where others were other ones.
    fn holds_unknown(&self, row: &[u8]) -> bool {
        let known = self.known();
        let is_known =
            |word: &[u8]| known.recorded.contains_key(word) || known.same.contains(&xxh3_64(word));
        let is_given = |word: &[u8]| known.given.contains(&xxh3_64(word));
        let mut all = words(row).map(|word| &row[word]);
        !known.recorded.is_empty() && all.any(|word| is_given(word) && !is_known(word))
    }

    /// The service gives its database what this message holds.
    pub fn note_given(&self, tag: u8, body: &[u8]) {
        let given = match (self.draws, tag) {
            (Draws::Free, frontend::BIND) => bytes_of(body),
            (Draws::Pinned, frontend::BIND) => words_of(body),
            (Draws::Pinned, frontend::QUERY) => drawn_words(body).collect(),
            _ => return,
        };
        if !given.is_empty() {
            self.known().given.extend(given);
        }
    }

    fn was_given(&self, value: &[u8]) -> bool {
        let given = &self.known().given;
        let is_given = |bytes: Cow<[u8]>| given.contains(&xxh3_64(&bytes));
        let of_row = value.split(|byte| b"(,)\"".contains(byte));
        let mut all = of_row.filter(|part| part.len() >= OPAQUE);
        as_bytes(value).is_some_and(is_given)
            || all.any(|part| as_bytes(part).is_some_and(is_given))
    }
}

/// Hashes of values that are bytes.
fn bytes_of(bind: &[u8]) -> Vec<u64> {
    let Ok(bind) = Bind::parse(bind) else {
        return Vec::new();
    };
    let values = bind.parameters.iter().flatten();
    let bytes = values.filter_map(|value| as_bytes(value));
    bytes.map(|it| xxh3_64(&it)).collect()
}

/// Hashes of words in values that may be drawn; of sixteen bytes, of the UUID that they may be.
fn words_of(bind: &[u8]) -> Vec<u64> {
    let Ok(bind) = Bind::parse(bind) else {
        return Vec::new();
    };
    let mut words = Vec::new();
    for value in bind.parameters.iter().flatten() {
        words.extend(drawn_words(value));
        if let Ok(bytes) = <[u8; 16]>::try_from(*value) {
            words.push(xxh3_64(uuid_text(u128::from_be_bytes(bytes)).as_bytes()));
        }
    }
    words
}

fn drawn_words(text: &[u8]) -> impl Iterator<Item = u64> {
    let words = words(text).map(|word| &text[word]);
    words.filter(|word| may_be_generated(word)).map(xxh3_64)
}

/// Shorter bytes may be a number or a UUID.
const OPAQUE: usize = 20;

/// A value that is bytes, plain or as Postgres writes them, and no text: a hash of a token, or what
/// a session holds.
fn as_bytes(value: &[u8]) -> Option<Cow<'_, [u8]>> {
    let digits = value.iter().position(|&byte| byte == b'x');
    let digits = digits.filter(|&at| at > 0 && value[..at].iter().all(|&byte| byte == b'\\'));
    let bytes = match digits {
        None => Cow::Borrowed(value),
        Some(at) => Cow::Owned(from_hex(&value[at + 1..])?),
    };
    (bytes.len() >= OPAQUE && std::str::from_utf8(&bytes).is_err()).then_some(bytes)
}

fn from_hex(digits: &[u8]) -> Option<Vec<u8>> {
    let pairs = digits.chunks(2);
    let pairs = pairs.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok());
    pairs.collect()
}

/// What a service says expires later is about as far from now as this at most.
const EXPIRES_WITHIN: Micros = 400 * 24 * 3600 * 1_000_000;

/// Whether a value is, or holds, a time within a period, to the second: people choose whole
/// minutes.
fn holds_time_of_day(value: &[u8], (from, to): (Micros, Micros)) -> bool {
    const MINUTE: Micros = 60_000_000;
    let is_within = |at: Micros| (from..=to).contains(&at) && at % MINUTE != 0;
    let text = || times_in(value).any(|(_, time)| is_within(time.from));
    if value.is_ascii() && !value.contains(&0) {
        return text();
    }
    let number = |window: &[u8]| -> i64 { window.try_into().map_or(0, i64::from_be_bytes) };
    if value.len() == 8 {
        return is_within(number(value).saturating_add(PG_EPOCH));
    }
    // As Go writes a time among other values: seconds since the year 1.
    let mut windows = value.windows(8);
    windows.any(|window| {
        let seconds = number(window).saturating_sub(SECONDS_BEFORE_UNIX);
        is_within(seconds.saturating_mul(1_000_000))
    }) || text()
}

/// From 1970 to 2000, in microseconds.
const PG_EPOCH: Micros = 946_684_800_000_000;
/// From the year 1 to 1970.
const SECONDS_BEFORE_UNIX: i64 = 62_135_596_800;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_the_service_made_are_known_in_a_row() {
        use hindcast_wire::message::frontend::bind;

        let learned = Learned::new(0, Clock::Real, Draws::Free);
        let hash: Vec<u8> = (0..32).map(|n| 255 - n).collect();
        let mut message = BytesMut::new();
        bind(
            &mut message,
            b"",
            b"",
            &[Some(&hash), Some(b"a text of somebody")],
        );
        learned.note_given(frontend::BIND, &message[HEAD..]);
        let hex: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
        assert!(learned.holds_drawn(&hash));
        assert!(learned.holds_drawn(format!("(\"\\\\x{hex}\",1)").as_bytes()));
        assert!(!learned.holds_drawn(b"a text of somebody"));
        assert!(!learned.holds_drawn(&[200; 32]));
    }

    #[test]
    fn a_time_of_this_run_is_found_however_it_is_written() {
        let at = 1_764_033_123_456_789;
        let run = (at - 10_000_000, at + 10_000_000);
        let holds = |value: &[u8]| holds_time_of_day(value, run);
        assert!(holds(b"2025-11-25 01:12:03.456789+00"));
        assert!(holds(br#"{"user":1,"expires":"2025-11-25T01:12:03.456Z"}"#));
        assert!(holds(&(at - PG_EPOCH).to_be_bytes()));
        let seconds = at / 1_000_000 + SECONDS_BEFORE_UNIX;
        let gob = [
            b"\x10\xff\x81\x00\x01".as_slice(),
            &seconds.to_be_bytes(),
            b"\x00\x01",
        ];
        assert!(holds(&gob.concat()));
        for other in [
            b"2025-11-24 01:12:03.456789+00".as_slice(),
            b"1234567890123",
            b"a note that was written",
            &42i64.to_be_bytes(),
            &[7; 40],
        ] {
            assert!(!holds(other), "{other:?}");
        }
    }
}
