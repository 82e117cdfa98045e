//! Splits a stream of protocol messages without copying and without decoding.
//!
//! ```text
//!  ┌─────┬──────────────┬───────────────┐
//!  │ tag │ length (u32) │ body          │   length counts itself and the body, not the tag
//!  └─────┴──────────────┴───────────────┘
//! ```
//!
//! [`split`] takes whole messages off a buffer, for callers that treat messages one by one.
//! [`Cursor`] walks over a buffer and leaves it alone, so that a run of messages can be forwarded
//! as one slice; a message that is too long to be buffered is walked over in parts.

use bytes::{Buf, Bytes, BytesMut};

use crate::limits;

/// Who sent the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    FromClient,
    FromServer,
}

/// Bytes of tag and length.
pub const HEADER: usize = 5;

/// Why bytes are not a stream of protocol messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    #[error("no message begins with byte 0x{0:02x}")]
    UnknownTag(u8),
    #[error("message `{}` says that it is {length} bytes long, less than its own header", *tag as char)]
    TooShort { tag: u8, length: u32 },
    #[error("message `{}` says that it is {bytes} bytes long, more than the {max} that are accepted", *tag as char)]
    TooLong { tag: u8, bytes: usize, max: usize },
}

impl FrameError {
    /// The tag of the message in question.
    pub fn tag(&self) -> u8 {
        match *self {
            Self::UnknownTag(tag) | Self::TooShort { tag, .. } | Self::TooLong { tag, .. } => tag,
        }
    }
}

/// One whole message, header included.
#[derive(Clone, PartialEq, Eq)]
pub struct Frame(pub Bytes);

impl Frame {
    pub fn tag(&self) -> u8 {
        self.0[0]
    }
    pub fn body(&self) -> &[u8] {
        &self.0[HEADER..]
    }
}

impl std::fmt::Debug for Frame {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{}({:?})",
            self.tag() as char,
            Bytes::copy_from_slice(self.body())
        )
    }
}

/// Takes the first message off `input`, or leaves it alone if that is not complete yet.
///
/// Messages of every kind are returned whole, so up to [`limits::MESSAGE_BYTES_MAX`] may be
/// buffered: use [`Cursor`] where that matters.
pub fn split(direction: Direction, input: &mut BytesMut) -> Result<Option<Frame>, FrameError> {
    let Some(length) = message_length(direction, input)? else {
        return Ok(None);
    };
    if input.len() < length {
        input.reserve(length - input.len());
        return Ok(None);
    }
    Ok(Some(Frame(input.split_to(length).freeze())))
}

/// Takes a packet without a tag (startup, SSL and GSS requests, cancel requests) off `input`.
pub fn split_startup(input: &mut BytesMut) -> Result<Option<Bytes>, FrameError> {
    Ok(startup_length(input)?
        .filter(|&length| input.len() >= length)
        .map(|length| input.split_to(length).freeze()))
}

/// How long the packet without a tag at the head of `input` is, its length field included.
pub fn startup_length(input: &[u8]) -> Result<Option<usize>, FrameError> {
    let Some(mut head) = input.get(..4) else {
        return Ok(None);
    };
    let length = head.get_u32();
    if length < 8 {
        return Err(FrameError::TooShort { tag: 0, length });
    }
    if length as usize > limits::STARTUP_BYTES_MAX {
        return Err(FrameError::TooLong {
            tag: 0,
            bytes: length as usize,
            max: limits::STARTUP_BYTES_MAX,
        });
    }
    Ok(Some(length as usize))
}

/// What the walk does with a message, by its tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    Unknown,
    /// Short by the protocol; given whole.
    Small,
    Authentication,
    /// Given whole however long.
    Whole,
    /// Given in parts when longer than [`limits::BUFFERED_BYTES_MAX`].
    Streamed,
}

const CLIENT: [Class; 256] = classes(b"CDESHcfX", b"p", b"QP", b"BdF");
const SERVER: [Class; 256] = classes(b"123ncsZIK", b"", b"ECTRSvt", b"DdNAVGHW");

const fn classes(
    small: &[u8],
    authentication: &[u8],
    whole: &[u8],
    streamed: &[u8],
) -> [Class; 256] {
    let mut table = [Class::Unknown; 256];
    let groups = [
        (small, Class::Small),
        (authentication, Class::Authentication),
        (whole, Class::Whole),
        (streamed, Class::Streamed),
    ];
    let mut group = 0;
    while group < groups.len() {
        let mut i = 0;
        while i < groups[group].0.len() {
            table[groups[group].0[i] as usize] = groups[group].1;
            i += 1;
        }
        group += 1;
    }
    table
}

fn class(direction: Direction, tag: u8) -> Class {
    match direction {
        Direction::FromClient => CLIENT[tag as usize],
        Direction::FromServer => SERVER[tag as usize],
    }
}

/// How long the message at the head of `input` is, header included; `None` while the header is
/// incomplete.
pub fn message_length(direction: Direction, input: &[u8]) -> Result<Option<usize>, FrameError> {
    let Some(&tag) = input.first() else {
        return Ok(None);
    };
    let max = match class(direction, tag) {
        Class::Unknown => return Err(FrameError::UnknownTag(tag)),
        Class::Small => limits::SMALL_MESSAGE_BYTES_MAX,
        Class::Authentication => limits::AUTHENTICATION_BYTES_MAX,
        Class::Whole => limits::WHOLE_MESSAGE_BYTES_MAX,
        Class::Streamed => limits::MESSAGE_BYTES_MAX,
    };
    let Some(mut length) = input.get(1..HEADER) else {
        return Ok(None);
    };
    let length = length.get_u32();
    if length < 4 {
        return Err(FrameError::TooShort { tag, length });
    }
    let bytes = length as usize + 1;
    if bytes > max {
        return Err(FrameError::TooLong { tag, bytes, max });
    }
    Ok(Some(bytes))
}

/// A message, or a part of one that is too long to be buffered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece<'a> {
    pub tag: u8,
    /// With the header, if this is the first piece of its message.
    pub bytes: &'a [u8],
    pub first: bool,
    pub last: bool,
}

impl<'a> Piece<'a> {
    /// What this piece holds of the message's body.
    pub fn body(&self) -> &'a [u8] {
        if self.first {
            &self.bytes[HEADER..]
        } else {
            self.bytes
        }
    }
    pub fn is_whole(&self) -> bool {
        self.first && self.last
    }
}

/// Walks over the messages of one direction of a session.
///
/// The first piece of a message that comes in parts holds at least [`limits::BUFFERED_BYTES_MAX`]
/// bytes.
#[derive(Clone, Debug)]
pub struct Cursor {
    direction: Direction,
    /// Bytes walked over since the beginning of the session.
    offset: u64,
    /// The message that is being walked over in parts, and how much of it is still to come.
    within: Option<(u8, usize)>,
}

impl Cursor {
    pub fn new(direction: Direction) -> Self {
        Self {
            direction,
            offset: 0,
            within: None,
        }
    }

    /// Where in the stream the next piece begins.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Whether a message has been given in part only.
    pub fn is_within_message(&self) -> bool {
        self.within.is_some()
    }

    /// Counts bytes that the caller took off the stream by itself (the startup packet).
    pub fn skip(&mut self, bytes: usize) {
        self.offset += bytes as u64;
    }

    /// The piece at the head of `input`, or `None` if more bytes are needed.
    #[inline]
    pub fn next<'a>(&mut self, input: &'a [u8]) -> Result<Option<Piece<'a>>, FrameError> {
        if input.is_empty() {
            return Ok(None);
        }
        if let Some((tag, remaining)) = self.within {
            let bytes = &input[..remaining.min(input.len())];
            let last = bytes.len() == remaining;
            self.within = (!last).then(|| (tag, remaining - bytes.len()));
            self.offset += bytes.len() as u64;
            return Ok(Some(Piece {
                tag,
                bytes,
                first: false,
                last,
            }));
        }
        let Some(length) = message_length(self.direction, input)? else {
            return Ok(None);
        };
        let tag = input[0];
        if let Some(bytes) = input.get(..length) {
            self.offset += length as u64;
            return Ok(Some(Piece {
                tag,
                bytes,
                first: true,
                last: true,
            }));
        }
        if class(self.direction, tag) == Class::Streamed
            && input.len() >= limits::BUFFERED_BYTES_MAX
        {
            self.within = Some((tag, length - input.len()));
            self.offset += input.len() as u64;
            return Ok(Some(Piece {
                tag,
                bytes: input,
                first: true,
                last: false,
            }));
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{backend, frontend};

    #[test]
    fn whole_messages_are_split_off_and_the_rest_stays() {
        let mut input = BytesMut::new();
        frontend::query(&mut input, b"SELECT 1");
        frontend::sync(&mut input);
        input.extend_from_slice(b"Q\0");
        let first = split(Direction::FromClient, &mut input).unwrap().unwrap();
        assert_eq!((first.tag(), first.body()), (b'Q', &b"SELECT 1\0"[..]));
        assert_eq!(
            split(Direction::FromClient, &mut input)
                .unwrap()
                .unwrap()
                .tag(),
            b'S'
        );
        assert_eq!(split(Direction::FromClient, &mut input).unwrap(), None);
        assert_eq!(&input[..], b"Q\0");
    }

    #[test]
    fn a_length_shorter_than_itself_is_an_error() {
        let mut input = BytesMut::from(&b"Q\0\0\0\x03"[..]);
        assert_eq!(
            split(Direction::FromClient, &mut input),
            Err(FrameError::TooShort {
                tag: b'Q',
                length: 3
            })
        );
    }

    #[test]
    fn a_short_kind_of_message_may_not_claim_to_be_long() {
        let error = message_length(Direction::FromClient, b"S\0\xff\xff\xff").unwrap_err();
        assert_eq!(
            error.to_string(),
            "message `S` says that it is 16777216 bytes long, more than the 10005 that are accepted"
        );
    }

    #[test]
    fn a_long_row_is_walked_over_in_parts_that_add_up() {
        let mut stream = BytesMut::new();
        let value = vec![b'x'; 3 * limits::BUFFERED_BYTES_MAX];
        backend::data_row(&mut stream, &[Some(&value[..])]);
        backend::command_complete(&mut stream, b"SELECT 1");
        let mut cursor = Cursor::new(Direction::FromServer);
        assert_eq!(cursor.next(&stream[..1000]).unwrap(), None);
        let (mut position, mut available, mut pieces) = (0, limits::BUFFERED_BYTES_MAX, Vec::new());
        while position < stream.len() {
            match cursor.next(&stream[position..available]).unwrap() {
                Some(piece) => {
                    position += piece.bytes.len();
                    pieces.push((piece.tag, piece.first, piece.last));
                }
                None => available = (available + 50_000).min(stream.len()),
            }
        }
        assert_eq!(pieces.first(), Some(&(b'D', true, false)));
        assert_eq!(
            pieces[pieces.len() - 2..],
            [(b'D', false, true), (b'C', true, true)]
        );
        assert_eq!(cursor.offset(), stream.len() as u64);
    }
}
