//! Where in a request something is drawn or read.

use std::sync::atomic::{AtomicU64, Ordering};

use super::KEY;

/// What a request wrote last, to a database or to another service: a hash. Two writes with one hash
/// are told apart by nothing, so it has as many bits as keep that rare among the few hundred
/// statements of a service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place(pub u16);

/// What code asked for a reading: a hash of the functions that it is in, not of their lines, which
/// are others in changed code; or whose work did, if that is done apart from its request. 0: it is
/// not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Caller(pub u16);

impl Caller {
    pub const UNKNOWN: Self = Self(0);

    /// One that is known by this hash; 0 is none.
    pub const fn of(hash: u64) -> Self {
        match hash {
            0 => Self::UNKNOWN,
            _ => Self((hash % u16::MAX as u64) as u16 + 1),
        }
    }

    /// The work that is done apart from its request by this key.
    pub(super) const fn apart(key: &[u8; KEY]) -> Self {
        Self::of(u64::from_le_bytes(
            *key.first_chunk().expect("keys are longer"),
        ))
    }
}

/// Where somebody reads, and who does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Asks {
    pub place: Place,
    pub caller: Caller,
}

/// Bytes of a write that count.
const LOOKED_AT: usize = 256;

impl Place {
    /// The request has written nothing yet, or something encrypted.
    pub const BEGINNING: Self = Self(0);
    /// It has asked a database for a session.
    pub const CONNECTING: Self = Self(1);

    /// It has got a session. What it draws is its own again: PHP connects in each request and may
    /// draw before it has asked for anything.
    pub const CONNECTED: Self = Self(2);

    /// Behind what a database has answered; `None`: where it was.
    pub fn behind_answer(bytes: &[u8]) -> Option<Self> {
        const ACCEPTED: &[u8] = b"R\0\0\0\x08\0\0\0\0";
        let first = bytes.get(..LOOKED_AT).unwrap_or(bytes);
        // The last message of a login may be in front.
        let is_accepted = || first.windows(ACCEPTED.len()).any(|part| part == ACCEPTED);
        (first.first() == Some(&b'R') && is_accepted()).then_some(Self::CONNECTED)
    }

    /// From here on they are of work that is done apart from the request.
    const APART: u16 = 0xc000;

    /// The same for work that is done apart from its request: what the request wrote is another
    /// place.
    pub(super) const fn apart(self) -> Self {
        Self(Self::APART | self.0 ^ self.0 >> 14)
    }

    pub(super) const fn is_apart(self) -> bool {
        self.0 >= Self::APART
    }

    /// Behind these bytes, which are written to this stream; `None`: where it was.
    ///
    /// A driver prepares a statement on some connections, finds it prepared on others, and sends it
    /// as a text on a third; and a request of a replay may have another connection. So the texts of
    /// the statements that run count, whatever they are called and bound to. What settles a session
    /// counts for nothing: a pool makes one while the request that wanted it goes on with another.
    pub fn behind(bytes: &[u8], stream: u64, statements: &Statements) -> Option<Self> {
        match bytes {
            _ if is_startup(bytes) => return Some(Self::CONNECTING),
            // What is encrypted is other bytes each time. Readings are then known by their order.
            [0x17, 3, ..] => return Some(Self::BEGINNING),
            _ => {}
        }
        let (mut text, mut run) = (Text::new(), 0);
        if messages(bytes).next().is_none() {
            text.add(bytes);
        }
        for (kind, body) in messages(bytes) {
            match kind {
                b'P' => {
                    let (name, rest) = split_name(body);
                    statements.note(stream, name, of_statement(split_name(rest).0));
                }
                b'B' => {
                    let (name, values) = split_name(split_name(body).1);
                    match statements.text(stream, name) {
                        Some(SETTLES) => {}
                        Some(text) => run = mixed(run, text),
                        None => text.add(values),
                    }
                }
                b'Q' => match of_statement(split_name(body).0) {
                    SETTLES => {}
                    text => run = mixed(run, text),
                },
                b'D' | b'E' | b'C' | b'S' | b'H' => {}
                _ => text.add(body),
            }
        }
        if run == 0 && text.length == 0 {
            return None;
        }
        let hash = mixed(run, text.hash());
        Some(Self((hash % u64::from(Self::APART - 3)) as u16 + 3))
    }
}

/// What stands for a statement that says how a session is, or asks that: drivers and pools send
/// such ones where they make a session.
const SETTLES: u64 = 0;

fn of_statement(text: &[u8]) -> u64 {
    const BEGINNINGS: [&[u8]; 4] = [b"set ", b"show ", b"reset ", b"select version()"];
    let text = text.trim_ascii_start();
    let begins = |with: &&[u8]| {
        text.get(..with.len())
            .is_some_and(|own| own.eq_ignore_ascii_case(with))
    };
    match BEGINNINGS.iter().any(begins) {
        true => SETTLES,
        false => Text::of(text).max(SETTLES + 1),
    }
}

/// The texts of prepared statements, as hashes, by stream and name. One may take another's place
/// where there are too many: then the statement is known by what it is bound to.
pub struct Statements([Statement; STATEMENTS]);

const STATEMENTS: usize = 8192;
/// Places in which a statement may be, one behind the other.
const PLACES: usize = 16;

struct Statement {
    whose: AtomicU64,
    text: AtomicU64,
}

impl Default for Statements {
    fn default() -> Self {
        Self::new()
    }
}

impl Statements {
    pub const fn new() -> Self {
        Self(
            [const {
                Statement {
                    whose: AtomicU64::new(0),
                    text: AtomicU64::new(0),
                }
            }; STATEMENTS],
        )
    }

    /// Where it may be, and what it is known by: not 0.
    fn places(&self, stream: u64, name: &[u8]) -> (impl Iterator<Item = &Statement>, u64) {
        let whose = name
            .iter()
            .fold(mixed(1, stream), |hash, &byte| mixed(hash, u64::from(byte)));
        let whose = whose.max(1);
        let at = move |nth: usize| &self.0[(whose as usize).wrapping_add(nth) % STATEMENTS];
        ((0..PLACES).map(at), whose)
    }

    fn note(&self, stream: u64, name: &[u8], text: u64) {
        let (mut places, whose) = self.places(stream, name);
        let first = &self.0[whose as usize % STATEMENTS];
        let is_free = |place: &&Statement| {
            let of = place.whose.load(Ordering::Acquire);
            of == whose || of == 0
        };
        let statement = places.find(is_free).unwrap_or(first);
        statement.whose.store(0, Ordering::Relaxed);
        statement.text.store(text, Ordering::Release);
        statement.whose.store(whose, Ordering::Release);
    }

    fn text(&self, stream: u64, name: &[u8]) -> Option<u64> {
        let (mut places, whose) = self.places(stream, name);
        let statement = places.find(|place| place.whose.load(Ordering::Acquire) == whose)?;
        Some(statement.text.load(Ordering::Acquire))
    }
}

/// The messages of a client of Postgres, the last one as far as it is there; none if it is no such
/// client.
fn messages(bytes: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    /// Text of other protocols is a greater one.
    const LENGTH_MAX: u32 = 0x1000_0000;
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let (&[kind, ref length @ ..], body) = rest.split_first_chunk::<5>()?;
        let length = u32::from_be_bytes(*length);
        if !kind.is_ascii_alphabetic() || !(4..LENGTH_MAX).contains(&length) {
            return None;
        }
        let (body, behind) = body
            .split_at_checked(length as usize - 4)
            .unwrap_or((body, &[]));
        rest = behind;
        Some((kind, body))
    })
}

/// What comes up to the first zero, and what behind it.
fn split_name(body: &[u8]) -> (&[u8], &[u8]) {
    let end = body.iter().position(|&byte| byte == 0);
    end.map_or((body, &[]), |end| (&body[..end], &body[end + 1..]))
}

/// A hash that goes on with a word.
pub fn mixed(hash: u64, word: u64) -> u64 {
    let mixed = (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ mixed >> 32
}

/// The same with a text.
pub fn mixed_text(hash: u64, text: &[u8]) -> u64 {
    let all = text.iter();
    all.fold(hash, |hash, &byte| mixed(hash, u64::from(byte)))
}

/// What counts of a write. Numbers are all the same, since there are those of processes and of
/// threads in the names that clients give, and hexadecimal ones of what PDO has prepared on a
/// connection that outlives requests (`pdo_stmt_0000003f`).
struct Text {
    bytes: [u8; LOOKED_AT],
    length: usize,
    /// The last byte was of a number.
    is_number: bool,
}

impl Text {
    fn new() -> Self {
        Self {
            bytes: [0; LOOKED_AT],
            length: 0,
            is_number: false,
        }
    }

    fn add(&mut self, bytes: &[u8]) {
        const DIGIT: u8 = b'0';
        let left = LOOKED_AT - self.length;
        for &byte in bytes.iter().take(left) {
            self.is_number = byte.is_ascii_digit() || self.is_number && matches!(byte, b'a'..=b'f');
            if self.is_number && !byte.is_ascii_digit() {
                continue;
            }
            let byte = if byte >> 4 == 3 { DIGIT } else { byte };
            let before = self.length.checked_sub(1).map(|at| self.bytes[at]);
            if byte != DIGIT || before != Some(DIGIT) {
                self.bytes[self.length] = byte;
                self.length += 1;
            }
        }
    }

    fn of(bytes: &[u8]) -> u64 {
        let mut text = Self::new();
        text.add(bytes);
        text.hash()
    }

    fn hash(&self) -> u64 {
        let (words, _) = self.bytes.as_chunks();
        let words = words.iter().map(|word| u64::from_le_bytes(*word));
        words.fold(self.length as u64, mixed)
    }
}

/// Whether this asks for a session of Postgres, or for its encryption.
fn is_startup(bytes: &[u8]) -> bool {
    let Some((&[0, 0, _, _, rest @ ..], _)) = bytes.split_first_chunk::<8>() else {
        return false;
    };
    matches!(rest, [0, 3, 0, _] | [4, 210, 22, 47 | 48])
}
