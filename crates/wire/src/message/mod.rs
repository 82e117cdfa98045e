//! Builders and parsers for the few messages that are looked into.
//!
//! Builders append one whole message to a buffer. Parsers take a message's body and borrow from it;
//! they return [`Malformed`] and never panic, whatever the bytes.

pub mod backend;
pub mod frontend;

use bytes::{BufMut, BytesMut};

/// A message's body does not have the shape that its tag promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} at byte {at} of its body")]
pub struct Malformed {
    pub what: &'static str,
    pub at: usize,
}

/// Reads a body from the front.
pub(crate) struct Body<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Body<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    pub fn rest(&self) -> &'a [u8] {
        &self.bytes[self.at..]
    }

    pub fn fail<T>(&self, what: &'static str) -> Result<T, Malformed> {
        Err(Malformed { what, at: self.at })
    }

    pub fn take(&mut self, count: usize, what: &'static str) -> Result<&'a [u8], Malformed> {
        match self.rest().get(..count) {
            Some(taken) => {
                self.at += count;
                Ok(taken)
            }
            None => self.fail(what),
        }
    }

    pub fn u8(&mut self, what: &'static str) -> Result<u8, Malformed> {
        Ok(self.take(1, what)?[0])
    }

    pub fn u16(&mut self, what: &'static str) -> Result<u16, Malformed> {
        Ok(u16::from_be_bytes(
            self.take(2, what)?
                .try_into()
                .expect("two bytes were taken"),
        ))
    }

    pub fn u32(&mut self, what: &'static str) -> Result<u32, Malformed> {
        Ok(u32::from_be_bytes(
            self.take(4, what)?
                .try_into()
                .expect("four bytes were taken"),
        ))
    }

    /// Up to the next zero byte, which is taken too.
    pub fn text(&mut self, what: &'static str) -> Result<&'a [u8], Malformed> {
        match memchr::memchr(0, self.rest()) {
            Some(end) => {
                let text = &self.rest()[..end];
                self.at += end + 1;
                Ok(text)
            }
            None => self.fail(what),
        }
    }

    /// A length of -1 stands for NULL.
    pub fn value(&mut self) -> Result<Option<&'a [u8]>, Malformed> {
        match self.u32("a value's length is cut off")? {
            u32::MAX => Ok(None),
            length => self.take(length as usize, "a value is cut off").map(Some),
        }
    }

    pub fn end(&self) -> Result<(), Malformed> {
        if self.rest().is_empty() {
            Ok(())
        } else {
            self.fail("there are bytes too many")
        }
    }
}

/// Appends a message whose body `fill` appends.
pub(crate) fn message(out: &mut BytesMut, tag: u8, fill: impl FnOnce(&mut BytesMut)) {
    out.put_u8(tag);
    untagged(out, fill);
}

pub(crate) fn untagged(out: &mut BytesMut, fill: impl FnOnce(&mut BytesMut)) {
    let start = out.len();
    out.put_u32(0);
    fill(out);
    let length =
        u32::try_from(out.len() - start).expect("messages we build are shorter than 4 GiB");
    out[start..start + 4].copy_from_slice(&length.to_be_bytes());
}

/// Appends `text` and a zero byte.
pub(crate) fn put_text(out: &mut BytesMut, text: &[u8]) {
    out.put_slice(text);
    out.put_u8(0);
}

fn put_value(out: &mut BytesMut, value: Option<&[u8]>) {
    match value {
        None => out.put_u32(u32::MAX),
        Some(value) => {
            out.put_u32(
                u32::try_from(value.len()).expect("values we build are shorter than 4 GiB"),
            );
            out.put_slice(value);
        }
    }
}

fn put_count(out: &mut BytesMut, count: usize) {
    out.put_u16(u16::try_from(count).expect("the protocol counts to 65535"));
}
