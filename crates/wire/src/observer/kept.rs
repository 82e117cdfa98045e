//! Bytes that may be needed later.

use bytes::{Bytes, BytesMut};

use crate::limits;

/// The recent end of a stream, addressed by position in the stream, up to a limit.
///
/// When the limit is reached nothing more is kept until everything kept before has been released:
/// what was begun is then incomplete, and [`Kept::get`] says so.
#[derive(Debug)]
pub(super) struct Kept {
    bytes: BytesMut,
    /// Position in the stream of the first byte in `bytes`.
    start: u64,
    /// Position behind the last byte that was seen, kept or not.
    end: u64,
    bytes_max: usize,
}

impl Kept {
    pub fn new(bytes_max: usize) -> Self {
        Self {
            bytes: BytesMut::new(),
            start: 0,
            end: 0,
            bytes_max,
        }
    }

    pub fn end(&self) -> u64 {
        self.end
    }

    pub fn append(&mut self, bytes: &[u8]) {
        let complete = self.start + self.bytes.len() as u64 == self.end;
        if complete && self.bytes.len() + bytes.len() <= self.bytes_max {
            self.bytes.extend_from_slice(bytes);
        }
        self.end += bytes.len() as u64;
    }

    /// A copy of what lies between two positions; `None` if some of it was not kept.
    pub fn get(&self, from: u64, to: u64) -> Option<Bytes> {
        let first = usize::try_from(from.checked_sub(self.start)?).ok()?;
        let last = usize::try_from(to.checked_sub(self.start)?).ok()?;
        self.bytes.get(first..last).map(Bytes::copy_from_slice)
    }

    /// Forgets everything before a position.
    pub fn release(&mut self, to: u64) {
        debug_assert!(to <= self.end, "what has not been seen cannot be released");
        let Some(count) = to.checked_sub(self.start) else {
            return;
        };
        if count < self.bytes.len() as u64 {
            let kept = self.bytes.split_off(count as usize);
            self.bytes = kept;
        } else {
            self.bytes.clear();
            if self.bytes.capacity() > limits::IDLE_BUFFER_BYTES_MAX {
                self.bytes = BytesMut::new();
            }
        }
        self.start = to;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stretch_is_complete_or_not_there() {
        let mut kept = Kept::new(10);
        kept.append(b"abcde");
        kept.append(b"fghijk");
        assert_eq!(
            (kept.get(1, 4).as_deref(), kept.get(1, 7)),
            (Some(&b"bcd"[..]), None)
        );
        kept.release(5);
        kept.append(b"l");
        assert_eq!(kept.get(5, 12), None, "what came in between is missing");
        kept.release(12);
        kept.append(b"mno");
        assert_eq!(kept.get(12, 15).as_deref(), Some(&b"mno"[..]));
        kept.release(13);
        assert_eq!(kept.get(13, 15).as_deref(), Some(&b"no"[..]));
        assert_eq!(kept.get(12, 15), None);
    }
}
