//! Ids that a Go program's libraries make of the time and of what the process keeps.
//!
//! ```text
//!   in a replay       a function begins ──▶ the recording's id; where there is none it goes on
//!   while recording   a function ends   ──▶ what it gives is told
//! ```
//!
//! In a replay nothing is left of a call, so no frame of ours is on the goroutine's stack. Where a
//! function ends is known by the instructions that give its frame back.

use std::ops::Range;

use super::goroutines::for_code;
use super::image::{Image, code};
use crate::{ids, process, turns, works};

/// What a function gives, as the entries are told it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Gives {
    /// A word.
    One = 0,
    /// A word, and an error, which is two.
    OneOrError = 1,
    Two = 2,
    TwoOrError = 3,
    /// So many bytes on the stack, behind where it returns to.
    Twelve = 12,
    Sixteen = 16,
}

impl Gives {
    fn named(name: &[u8]) -> Option<Self> {
        const OF_GOFRS: [&[u8]; 2] = [b".(*Gen).getClockSequence", b".(*Gen).nextV7Sequence"];
        // Up to version 5 each has a path of its own.
        let gofrs = name.strip_prefix(b"github.com/gofrs/uuid");
        if gofrs.is_some_and(|rest| OF_GOFRS.iter().any(|end| rest.ends_with(end))) {
            return Some(Self::TwoOrError);
        }
        Some(match name {
            b"github.com/google/uuid.getV7Time" => Self::Two,
            b"github.com/google/uuid.GetTime" => Self::TwoOrError,
            b"github.com/bwmarrin/snowflake.(*Node).Generate" => Self::One,
            b"github.com/sony/sonyflake.(*Sonyflake).NextID"
            | b"github.com/sony/sonyflake/v2.(*Sonyflake).NextID" => Self::OneOrError,
            b"github.com/rs/xid.NewWithTime" => Self::Twelve,
            b"github.com/oklog/ulid.Make" | b"github.com/oklog/ulid/v2.Make" => Self::Sixteen,
            _ => return None,
        })
    }

    fn of(number: u32) -> Option<Self> {
        let all = [
            Self::One,
            Self::OneOrError,
            Self::Two,
            Self::TwoOrError,
            Self::Twelve,
            Self::Sixteen,
        ];
        all.into_iter().find(|gives| *gives as u32 == number)
    }
}

/// Where a function is to come to us.
pub enum Change {
    /// At its beginning.
    Begins(usize, Gives),
    /// At an end of it.
    Ends(End, Gives),
}

/// Instructions that give a frame back, and return.
pub struct End {
    pub at: usize,
    /// All of them but the last.
    pub before: Vec<u8>,
}

pub fn of(image: &Image) -> Vec<Change> {
    let Some(board) = process::board() else {
        return Vec::new();
    };
    let all = image.all_ranges(Gives::named).into_iter();
    let changes = |(range, gives): (Range<usize>, Gives)| match board.replays() {
        true => vec![Change::Begins(range.start, gives)],
        // SAFETY: the program's code is there.
        false => ends(unsafe { code(range.start, range.len()) }, range.start)
            .into_iter()
            .map(|end| Change::Ends(end, gives))
            .collect(),
    };
    all.flat_map(changes).collect()
}

/// `add rsp, …`, `pop rbp`, `ret`.
fn ends(all: &[u8], start: usize) -> Vec<End> {
    // What follows may be put where a line of the cache ends.
    const RETURNS: [&[u8]; 2] = [&[0x5d, 0xc3], &[0x5d, 0x90, 0xc3]];
    let end = |at: usize| {
        let rest = all.get(at..)?;
        let length = match rest {
            [0x48, 0x83, 0xc4, ..] => 4,
            [0x48, 0x81, 0xc4, ..] => 7,
            _ => return None,
        };
        let behind = rest.get(length..)?;
        let returns = RETURNS.iter().any(|one| behind.starts_with(one));
        returns.then(|| End {
            at: start + at,
            before: rest[..=length].to_vec(),
        })
    };
    (0..all.len()).filter_map(end).collect()
}

/// What a function gives and has given: the registers that hold it, in the order in which the entry
/// keeps them, the last one first.
#[repr(C)]
pub struct Given {
    gives: u64,
    rest: [u64; 4],
    rcx: u64,
    rbx: u64,
    rax: u64,
}

/// A goroutine asks for an id: true if it is there.
///
/// # Safety
/// There is room for it.
pub unsafe extern "C" fn again(goroutine: usize, frame: usize, id: *mut [u64; 2]) -> bool {
    if !works::is_at_work(goroutine) {
        return false;
    }
    let again = for_code(goroutine, frame, || ids::again(turns::caller()?));
    if let Some(again) = again {
        // SAFETY: as the caller promises.
        unsafe { *id = [again as u64, (again >> u64::BITS) as u64] };
    }
    again.is_some()
}

/// It was given one. `stack`: where the function returns to.
///
/// # Safety
/// They are as the function left them.
pub unsafe extern "C" fn told(
    goroutine: usize,
    frame: usize,
    given: *const Given,
    stack: *const u64,
) {
    if !works::is_at_work(goroutine) {
        return;
    }
    // SAFETY: as the caller promises.
    let (given, [low, high]) = unsafe { (&*given, *stack.add(1).cast::<[u64; 2]>()) };
    let Some(gives) = Gives::of(given.gives as u32) else {
        return;
    };
    let words = match gives {
        Gives::One => Some([given.rax, 0]),
        Gives::OneOrError => (given.rbx == 0).then_some([given.rax, 0]),
        Gives::Two => Some([given.rax, given.rbx]),
        Gives::TwoOrError => (given.rcx == 0).then_some([given.rax, given.rbx]),
        Gives::Twelve => Some([low, u64::from(high as u32)]),
        Gives::Sixteen => Some([low, high]),
    };
    if let Some([low, high]) = words {
        let id = u128::from(high) << u64::BITS | u128::from(low);
        for_code(goroutine, frame, || {
            if let Some(caller) = turns::caller() {
                ids::given(caller, id);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_known_by_what_they_give() {
        let check = |name: &str, gives| assert_eq!(Gives::named(name.as_bytes()), gives, "{name}");
        check("github.com/google/uuid.getV7Time", Some(Gives::Two));
        let clock = Some(Gives::TwoOrError);
        check("github.com/gofrs/uuid/v5.(*Gen).getClockSequence", clock);
        check("github.com/gofrs/uuid.(*Gen).nextV7Sequence", clock);
        check("github.com/oklog/ulid/v2.Make", Some(Gives::Sixteen));
        check("github.com/google/uuid.getV7Time.deferwrap1", None);
        for gives in [Gives::One, Gives::TwoOrError, Gives::Twelve] {
            assert_eq!(Gives::of(gives as u32), Some(gives));
        }
    }

    #[test]
    fn a_function_ends_where_its_frame_is_given_back() {
        let code = [
            0x90, 0x48, 0x83, 0xc4, 0x38, 0x5d, 0xc3, 0x48, 0x81, 0xc4, 0, 1, 0, 0, 0x5d, 0xc3,
            0x48, 0x83, 0xc4, 0x08, 0x90, 0xc3, 0x48, 0x83, 0xc4, 0x38, 0x5d, 0x90, 0xc3, 0x48,
            0x83,
        ];
        let found = ends(&code, 0x100);
        let places: Vec<_> = found.iter().map(|end| end.at).collect();
        assert_eq!(places, [0x101, 0x107, 0x116]);
        assert_eq!(found[0].before, code[1..6]);
        assert_eq!(found[1].before, code[7..15]);
    }
}
