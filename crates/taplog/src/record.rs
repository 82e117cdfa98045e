//! What is said.

use crate::pins::{Caller, Place, Reading};

/// Something that a thread of the service did with a socket. Sockets have numbers that the kernel
/// gives (`SO_COOKIE`): a number is one socket's for ever, in whichever process and under whichever
/// descriptor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told<'a> {
    /// The ring is this thread's from here on.
    Thread { tid: u32 },
    /// A stream is seen for the first time in this process.
    Opened {
        stream: u64,
        how: How,
        /// `127.0.0.1:8000`, `[::1]:8000`, `unix:/run/x.sock`, `unix:` without a name.
        local: &'a [u8],
        peer: &'a [u8],
    },
    /// What is read from the stream next begins a request, which the tap numbered so; or, on a
    /// connection to the database, what is written next is on this request's behalf.
    Turn { stream: u64, request: u64 },
    /// What a request read from a clock: its n-th reading.
    Reading {
        request: u64,
        n: u16,
        reading: Reading,
    },
    /// Bytes that the service read or wrote; consecutive ones of a stream and direction follow each
    /// other.
    Bytes {
        stream: u64,
        direction: Direction,
        bytes: &'a [u8],
    },
    /// Bytes that went past the tap, from file to socket or the other way; `u64::MAX`: all from
    /// here on, by stdio.
    Unseen {
        stream: u64,
        direction: Direction,
        length: u64,
    },
    /// The other side will send nothing more (`In`), or this one will not (`Out`).
    Ended { stream: u64, direction: Direction },
    /// The stream is encrypted in the process: bytes from here on are what it says, and those
    /// before that were encrypted say nothing.
    Encrypted { stream: u64 },
    /// The process closed a descriptor of the stream. Others may have it open.
    Closed { stream: u64 },
    /// This much was not told, because the ring was full. `stream` is `None` if several lost some.
    Lost {
        stream: Option<u64>,
        records: u64,
        bytes: u64,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Read by the service.
    In,
    /// Written by it.
    Out,
}

/// How a process came by a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    Accepted,
    Connected,
    /// Inherited, passed by another process, or made by a pair.
    Found,
    /// Connected to the service's database.
    Database,
}

/// The first bytes of a record in the ring.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    /// Of the record, head included and padding not.
    pub size: u32,
    pub kind: u16,
    /// Depends on the kind.
    pub detail: u16,
    /// Nanoseconds of the machine's monotonic clock.
    pub at: u64,
    pub stream: u64,
    /// Depends on the kind.
    pub number: u64,
}

pub(crate) const HEAD: usize = size_of::<Head>();

impl Head {
    pub fn to_bytes(self) -> [u8; HEAD] {
        let mut bytes = [0; HEAD];
        bytes[0..4].copy_from_slice(&self.size.to_ne_bytes());
        bytes[4..6].copy_from_slice(&self.kind.to_ne_bytes());
        bytes[6..8].copy_from_slice(&self.detail.to_ne_bytes());
        bytes[8..16].copy_from_slice(&self.at.to_ne_bytes());
        bytes[16..24].copy_from_slice(&self.stream.to_ne_bytes());
        bytes[24..32].copy_from_slice(&self.number.to_ne_bytes());
        bytes
    }

    pub fn from_bytes(bytes: &[u8; HEAD]) -> Self {
        let long = |at: usize| {
            u64::from_ne_bytes(
                bytes[at..at + 8]
                    .try_into()
                    .expect("eight bytes were taken"),
            )
        };
        Self {
            size: u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]),
            kind: u16::from_ne_bytes([bytes[4], bytes[5]]),
            detail: u16::from_ne_bytes([bytes[6], bytes[7]]),
            at: long(8),
            stream: long(16),
            number: long(24),
        }
    }
}

const THREAD: u16 = 0x4801;
const OPENED: u16 = 0x4802;
const BYTES: u16 = 0x4803;
const UNSEEN: u16 = 0x4804;
const ENDED: u16 = 0x4805;
const CLOSED: u16 = 0x4806;
const LOST: u16 = 0x4807;
const TURN: u16 = 0x4808;
const READING: u16 = 0x4809;
const ENCRYPTED: u16 = 0x480a;

/// Each at its own place, so that one can be borrowed.
static NUMBERS: [[u8; 2]; 1 << 16] = {
    let mut numbers = [[0; 2]; 1 << 16];
    let mut number = 0;
    while number < numbers.len() {
        numbers[number] = (number as u16).to_ne_bytes();
        number += 1;
    }
    numbers
};

impl<'a> Told<'a> {
    /// As a head, its size left open, and what follows it.
    pub(crate) fn parts(&self, at: u64) -> (Head, [&'a [u8]; 2]) {
        let head = |kind, detail, stream, number| Head {
            size: 0,
            kind,
            detail,
            at,
            stream,
            number,
        };
        let none: [&[u8]; 2] = [&[], &[]];
        match *self {
            Self::Thread { tid } => (head(THREAD, 0, 0, u64::from(tid)), none),
            Self::Opened {
                stream,
                how,
                local,
                peer,
            } => {
                let head = head(OPENED, how as u16, stream, local.len() as u64);
                (head, [local, peer])
            }
            Self::Turn { stream, request } => (head(TURN, 0, stream, request), none),
            Self::Reading {
                request,
                n,
                reading,
            } => {
                let head = head(READING, reading.place.0, request, reading.time as u64);
                let caller = usize::from(reading.caller.0);
                (head, [&NUMBERS[usize::from(n)], &NUMBERS[caller]])
            }
            Self::Bytes {
                stream,
                direction,
                bytes,
            } => (head(BYTES, direction as u16, stream, 0), [bytes, &[]]),
            Self::Unseen {
                stream,
                direction,
                length,
            } => (head(UNSEEN, direction as u16, stream, length), none),
            Self::Ended { stream, direction } => (head(ENDED, direction as u16, stream, 0), none),
            Self::Encrypted { stream } => (head(ENCRYPTED, 0, stream, 0), none),
            Self::Closed { stream } => (head(CLOSED, 0, stream, 0), none),
            Self::Lost {
                stream,
                records,
                bytes,
            } => {
                let records = u16::try_from(records).unwrap_or(u16::MAX);
                (head(LOST, records, stream.unwrap_or(0), bytes), none)
            }
        }
    }

    /// `None` if no producer writes such a record.
    pub(crate) fn of(head: &Head, rest: &'a [u8]) -> Option<Self> {
        let direction = match head.detail {
            0 => Some(Direction::In),
            1 => Some(Direction::Out),
            _ => None,
        };
        let stream = head.stream;
        match head.kind {
            THREAD => Some(Self::Thread {
                tid: u32::try_from(head.number).ok()?,
            }),
            OPENED => {
                let how = match head.detail {
                    0 => How::Accepted,
                    1 => How::Connected,
                    2 => How::Found,
                    3 => How::Database,
                    _ => return None,
                };
                let (local, peer) = rest.split_at_checked(usize::try_from(head.number).ok()?)?;
                Some(Self::Opened {
                    stream,
                    how,
                    local,
                    peer,
                })
            }
            TURN => Some(Self::Turn {
                stream,
                request: head.number,
            }),
            READING => {
                let (&n, caller) = rest.split_first_chunk()?;
                let n = u16::from_ne_bytes(n);
                let reading = Reading {
                    time: head.number as i64,
                    place: Place(head.detail),
                    caller: Caller(u16::from_ne_bytes(caller.try_into().ok()?)),
                };
                Some(Self::Reading {
                    request: stream,
                    n,
                    reading,
                })
            }
            BYTES => Some(Self::Bytes {
                stream,
                direction: direction?,
                bytes: rest,
            }),
            UNSEEN => Some(Self::Unseen {
                stream,
                direction: direction?,
                length: head.number,
            }),
            ENDED => Some(Self::Ended {
                stream,
                direction: direction?,
            }),
            ENCRYPTED => Some(Self::Encrypted { stream }),
            CLOSED => Some(Self::Closed { stream }),
            LOST => Some(Self::Lost {
                stream: (stream != 0).then_some(stream),
                records: u64::from(head.detail),
                bytes: head.number,
            }),
            _ => None,
        }
    }

    /// Appends it, with its moment, as [`Told::decode`] reads it.
    pub fn encode(&self, at: u64, out: &mut Vec<u8>) {
        let (mut head, parts) = self.parts(at);
        let length: usize = parts.iter().map(|part| part.len()).sum();
        head.size = (HEAD + length) as u32;
        out.extend_from_slice(&head.to_bytes());
        parts.iter().for_each(|part| out.extend_from_slice(part));
    }

    /// Takes the first of several off `bytes`; `None` if they are no such things.
    pub fn decode(bytes: &mut &'a [u8]) -> Option<(u64, Self)> {
        let (head, _) = bytes.split_first_chunk()?;
        let head = Head::from_bytes(head);
        let (first, rest) = bytes.split_at_checked(head.size as usize)?;
        let told = Self::of(&head, first.get(HEAD..)?)?;
        *bytes = rest;
        Some((head.at, told))
    }

    /// The stream that it is about.
    pub fn stream(&self) -> Option<u64> {
        match *self {
            Self::Thread { .. } | Self::Reading { .. } => None,
            Self::Opened { stream, .. }
            | Self::Turn { stream, .. }
            | Self::Bytes { stream, .. }
            | Self::Unseen { stream, .. }
            | Self::Ended { stream, .. }
            | Self::Encrypted { stream }
            | Self::Closed { stream } => Some(stream),
            Self::Lost { stream, .. } => stream,
        }
    }
}
