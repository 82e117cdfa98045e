//! Reads that are not in a log: the follower that writes it reads the same bytes of the same file.

/// A file that reads may refer to. Its path follows in the event; the file itself, unless it is
/// `zeros`, was sent to the follower under its number.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Given {
    /// From one, and different for all files of a recording.
    pub number: u32,
    /// Reads of one thread refer to it, until the same thread is given another file of this place.
    pub place: u32,
    /// 1: it has nothing but zeros, and no end.
    pub zeros: u32,
    pub reserved: u32,
    pub state: FileState,
}

/// Which file it is, and which of its contents it had. Times are in nanoseconds since 1970.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileState {
    pub device: u64,
    pub inode: u64,
    pub size: u64,
    pub modified: i64,
    pub changed: i64,
}

/// What a read has in the log in place of its bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reference {
    pub file: u32,
    /// The lower half of the [`ends`] of the bytes.
    pub ends: u32,
    pub offset: u64,
}

/// From how many bytes on a read refers to its file, and a write is checked by its ends alone. Less
/// is not dearer as it is.
pub const REFERRED_FROM: usize = 128;
/// Files that are smaller are logged: they are read once, and may be written soon.
pub const FILE_FROM: u64 = 64 << 10;
/// A file that was written less than this before it was opened may be written again without its
/// times saying so.
pub const QUIET_NS: i64 = 2_000_000_000;
/// How many bytes a log may refer to that the follower has not read. The program logs what it
/// reads from there on.
pub const BEHIND_MOST: u64 = 256 << 20;

macro_rules! plain {
    ($name:ident) => {
        impl $name {
            pub const BYTES: usize = size_of::<Self>();

            pub fn to_bytes(self) -> [u8; Self::BYTES] {
                // SAFETY: integers without padding between them.
                unsafe { std::mem::transmute(self) }
            }

            pub fn from_bytes(bytes: &[u8; Self::BYTES]) -> Self {
                // SAFETY: every bit pattern is a value.
                unsafe { bytes.as_ptr().cast::<Self>().read_unaligned() }
            }
        }
    };
}
plain!(Given);
plain!(Reference);

impl FileState {
    pub fn of(found: &Stat) -> FileState {
        let nanoseconds = |seconds: i64, rest: i64| seconds * 1_000_000_000 + rest;
        FileState {
            device: found.device,
            inode: found.inode,
            size: found.size,
            modified: nanoseconds(found.modified.0, found.modified.1),
            changed: nanoseconds(found.changed.0, found.changed.1),
        }
    }
}

/// The part of a `stat` that matters here: this crate knows no system.
pub struct Stat {
    pub device: u64,
    pub inode: u64,
    pub size: u64,
    pub modified: (i64, i64),
    pub changed: (i64, i64),
}

const LANE: usize = 32;

/// A checksum of the first and the last bytes: enough to notice that it is the wrong place of a
/// file, at a price that does not depend on the length.
#[inline]
pub fn ends(bytes: &[u8]) -> u64 {
    const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;
    let lane = |start: u64, bytes: &[u8]| {
        bytes.chunks_exact(8).fold(start, |sum, word| {
            let word = u64::from_ne_bytes(word.try_into().unwrap_or_default());
            (sum.rotate_left(23) ^ word).wrapping_mul(MULTIPLIER)
        })
    };
    let length = bytes.len() as u64;
    match (bytes.first_chunk::<LANE>(), bytes.last_chunk::<LANE>()) {
        (Some(first), Some(last)) => {
            let sum = lane(length, first) ^ lane(!length, last).rotate_left(32);
            sum ^ sum >> 29
        }
        _ => lane(length, bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_logged_of_a_file_is_read_as_it_was_written() {
        let given = Given {
            number: 3,
            place: 4,
            zeros: 0,
            reserved: 0,
            state: FileState {
                device: 1,
                inode: 2,
                size: 3,
                modified: 4,
                changed: -5,
            },
        };
        assert_eq!(Given::from_bytes(&given.to_bytes()), given);
        let reference = Reference {
            file: 1,
            ends: 2,
            offset: u64::MAX,
        };
        assert_eq!(Reference::from_bytes(&reference.to_bytes()), reference);
    }

    #[test]
    fn ends_differ_with_either_end_and_with_the_length() {
        let bytes: Vec<u8> = (0..=255).collect();
        let sum = ends(&bytes);
        for at in [0, 31, 224, 255] {
            let mut other = bytes.clone();
            other[at] ^= 1;
            assert_ne!(ends(&other), sum, "{at}");
        }
        assert_ne!(ends(&[0; 200]), ends(&[0; 201]));
        let mut middle = bytes.clone();
        middle[100] ^= 1;
        assert_eq!(ends(&middle), sum);
    }
}
