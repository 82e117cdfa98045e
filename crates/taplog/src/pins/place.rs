//! Where in a request something is drawn or read.

use super::KEY;

/// What a request wrote last, to a database or to another service: a hash of few bits. Two writes
/// with one hash are told apart by nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place(pub u8);

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
    const APART: u8 = 192;

    /// The same for work that is done apart from its request by this key: what the request wrote is
    /// another place.
    pub fn apart(self, key: &[u8; KEY]) -> Self {
        let hash = u64::from(self.0) + u64::from(key[0]);
        Self((hash % u64::from(u8::MAX - Self::APART + 1)) as u8 + Self::APART)
    }

    pub(super) fn is_apart(self) -> bool {
        self.0 >= Self::APART
    }

    /// Behind these bytes.
    ///
    /// A driver prepares a statement on some connections and finds it prepared on others, and a
    /// request of a replay may have another connection. So where a statement is bound, only what it
    /// is bound to counts, and the names that drivers number never do.
    pub fn behind(bytes: &[u8]) -> Self {
        match bytes {
            _ if is_startup(bytes) => return Self::CONNECTING,
            // What is encrypted is other bytes each time. Readings are then known by their order.
            [0x17, 3, ..] => return Self::BEGINNING,
            _ => {}
        }
        let mut text = Text::new();
        let binds = || messages(bytes).any(|(kind, _)| kind == b'B');
        match messages(bytes).next() {
            None => text.add(bytes),
            Some(_) if binds() => messages(bytes).for_each(|(kind, body)| match kind {
                b'B' => text.add(behind_names(body, 2)),
                b'P' | b'D' | b'E' | b'C' | b'S' | b'H' => {}
                _ => text.add(body),
            }),
            Some(_) => messages(bytes).for_each(|(kind, body)| match kind {
                b'P' => text.add(behind_names(body, 1)),
                b'D' | b'E' | b'C' | b'S' | b'H' => {}
                _ => text.add(body),
            }),
        }
        Self((text.hash() % u64::from(Self::APART - 3)) as u8 + 3)
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

/// What follows so many names, each with a zero behind it.
fn behind_names(body: &[u8], names: usize) -> &[u8] {
    (0..names).fold(body, |rest, _| {
        let end = rest.iter().position(|&byte| byte == 0);
        end.map_or(&[], |end| &rest[end + 1..])
    })
}

/// What counts of a write. Numbers are all the same, since there are those of processes and of
/// threads in the names that clients give.
struct Text {
    bytes: [u8; LOOKED_AT],
    length: usize,
}

impl Text {
    fn new() -> Self {
        Self {
            bytes: [0; LOOKED_AT],
            length: 0,
        }
    }

    fn add(&mut self, bytes: &[u8]) {
        const DIGIT: u8 = b'0';
        let left = LOOKED_AT - self.length;
        for &byte in bytes.iter().take(left) {
            let byte = if byte >> 4 == 3 { DIGIT } else { byte };
            let before = self.length.checked_sub(1).map(|at| self.bytes[at]);
            if byte != DIGIT || before != Some(DIGIT) {
                self.bytes[self.length] = byte;
                self.length += 1;
            }
        }
    }

    fn hash(&self) -> u64 {
        let (words, _) = self.bytes.as_chunks();
        words.iter().fold(self.length as u64, |hash, word| {
            let mixed = (hash ^ u64::from_le_bytes(*word)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            mixed ^ mixed >> 32
        })
    }
}

/// Whether this asks for a session of Postgres, or for its encryption.
fn is_startup(bytes: &[u8]) -> bool {
    let Some((&[0, 0, _, _, rest @ ..], _)) = bytes.split_first_chunk::<8>() else {
        return false;
    };
    matches!(rest, [0, 3, 0, _] | [4, 210, 22, 47 | 48])
}
