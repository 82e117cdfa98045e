//! What several threads told, in the order in which it was done.
//!
//! ```text
//!   ring 0    ─── a ──────── d ──┬── f          a drain looks at one ring after the other,
//!   ring 1    ────── b ─ c ──────┴──── g ──     so of what is told meanwhile it may find
//!                                ▲              the second (g) and not the first (f)
//!                              moment: the drain began to look
//! ```
//!
//! Records have the moment of what they tell. What was done before the drain began to look, and has
//! had consequences, has been told by then: a call returns to the service only when the tap has
//! told it. So what is older than that is all there, and is sorted by its moments; the rest waits
//! for the next look. A write has the moment before it, and is told after it: while it lasts, the
//! client may have answered already. So the two halves of a connection are in order each for
//! itself, and what the service reads may come here earlier than what it had written, never later
//! than what it writes because of it.

use hindcast_taplog::pins::Reading;
use hindcast_taplog::{Direction, How, Told};

/// A record may say that it is from the future. It is not believed by more than this, in
/// nanoseconds.
const FUTURE: u64 = 10_000_000_000;

/// Bytes of memory that are kept for what comes next.
const KEPT: usize = 4 << 20;

/// What was told and is not given away yet.
#[derive(Debug, Default)]
pub(super) struct Merge {
    events: Vec<Event>,
    bytes: Vec<u8>,
    spare: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
struct Event {
    at: u64,
    ring: u32,
    stream: u64,
    what: Kept,
}

/// What was done with a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What<'a> {
    /// And where it leads to; what was accepted, to the service's own address, and from whom.
    Opened(How, &'a [u8], &'a [u8]),
    Turn(u64),
    /// What the request that stands in the stream's place read, and which reading it was.
    Reading(u16, Reading),
    Bytes(Direction, &'a [u8]),
    Unseen(Direction, u64),
    Ended(Direction),
    /// From here on, bytes are what is encrypted.
    Encrypted,
    Closed,
    /// Something of it was lost.
    Lost,
}

#[derive(Clone, Copy, Debug)]
enum Kept {
    /// Where both names are, how long they are together, and the first of them.
    Opened(How, usize, usize, usize),
    Turn(u64),
    Reading(u16, Reading),
    /// Where they are, and how many.
    Bytes(Direction, usize, usize),
    Unseen(Direction, u64),
    Ended(Direction),
    Encrypted,
    Closed,
    Lost,
}

/// What is given away: when, by which ring, of which stream; 0: of any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Done<'a> {
    pub at: u64,
    pub ring: u32,
    pub stream: u64,
    pub what: What<'a>,
}

impl Merge {
    /// `heard`: whether bytes of a stream are of any use.
    pub fn told(&mut self, ring: u32, at: u64, told: &Told<'_>, heard: impl FnOnce(u64) -> bool) {
        let (stream, what) = match *told {
            Told::Thread { .. } => return,
            Told::Opened {
                stream,
                how,
                local,
                peer,
            } => {
                let (to, from) = match how {
                    How::Accepted => (local, peer),
                    _ => (peer, &[][..]),
                };
                let begin = self.bytes.len();
                self.bytes.extend_from_slice(to);
                self.bytes.extend_from_slice(from);
                let length = to.len() + from.len();
                (stream, Kept::Opened(how, begin, length, to.len()))
            }
            Told::Turn { stream, request } => (stream, Kept::Turn(request)),
            Told::Reading {
                request,
                n,
                reading,
            } => (request, Kept::Reading(n, reading)),
            Told::Bytes {
                stream,
                direction,
                bytes,
            } => {
                // That they were written is known: somebody has the stream.
                let bytes = match heard(stream) {
                    true => bytes,
                    false => &[],
                };
                let begin = self.bytes.len();
                self.bytes.extend_from_slice(bytes);
                (stream, Kept::Bytes(direction, begin, bytes.len()))
            }
            Told::Unseen {
                stream,
                direction,
                length,
            } => (stream, Kept::Unseen(direction, length)),
            Told::Ended { stream, direction } => (stream, Kept::Ended(direction)),
            Told::Encrypted { stream } => (stream, Kept::Encrypted),
            Told::Closed { stream } => (stream, Kept::Closed),
            Told::Lost { stream, .. } => (stream.unwrap_or(0), Kept::Lost),
        };
        self.events.push(Event {
            at,
            ring,
            stream,
            what,
        });
    }

    /// Something was lost of any stream.
    pub fn lost(&mut self, ring: u32, at: u64) {
        self.events.push(Event {
            at,
            ring,
            stream: 0,
            what: Kept::Lost,
        });
    }

    /// Gives away what was done before a moment.
    pub fn until(&mut self, moment: u64, mut done: impl FnMut(Done<'_>)) {
        let horizon = moment.saturating_add(FUTURE);
        for event in &mut self.events {
            if event.at > horizon && moment < u64::MAX {
                event.at = moment.saturating_sub(1);
            }
        }
        // Rings are sorted each for itself, and stay so where moments are the same.
        self.events.sort_by_key(|event| (event.at, event.ring));
        let count = match moment {
            u64::MAX => self.events.len(),
            _ => self.events.partition_point(|event| event.at < moment),
        };
        for event in self.events.drain(..count) {
            done(Done {
                at: event.at,
                ring: event.ring,
                stream: event.stream,
                what: event.what.with(&self.bytes),
            });
        }
        self.spare.clear();
        for event in &mut self.events {
            if let Kept::Bytes(_, begin, length) | Kept::Opened(_, begin, length, _) =
                &mut event.what
            {
                let now = self.spare.len();
                self.spare
                    .extend_from_slice(&self.bytes[*begin..*begin + *length]);
                *begin = now;
            }
        }
        std::mem::swap(&mut self.bytes, &mut self.spare);
        // All rings may have been full at once.
        self.bytes.shrink_to(KEPT);
        self.spare.shrink_to(KEPT);
        self.events.shrink_to(KEPT / size_of::<Event>());
    }
}

impl Kept {
    fn with(self, bytes: &[u8]) -> What<'_> {
        match self {
            Self::Opened(how, begin, length, first) => {
                let (to, from) = bytes[begin..begin + length].split_at(first);
                What::Opened(how, to, from)
            }
            Self::Turn(number) => What::Turn(number),
            Self::Reading(n, reading) => What::Reading(n, reading),
            Self::Bytes(direction, begin, length) => {
                What::Bytes(direction, &bytes[begin..begin + length])
            }
            Self::Unseen(direction, length) => What::Unseen(direction, length),
            Self::Ended(direction) => What::Ended(direction),
            Self::Encrypted => What::Encrypted,
            Self::Closed => What::Closed,
            Self::Lost => What::Lost,
        }
    }
}
