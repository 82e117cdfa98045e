//! Functions of the program that lead to ours from then on.
//!
//! ```text
//!   a function    its first instructions ─────▶ jump
//!   a page        the first instructions; jump behind them in the function
//!                 what leads to ours             ◀── where that jump goes
//! ```
//!
//! What is moved are instructions that do the same anywhere: those that make room on the stack, and
//! keep registers there. Where a function may also begin with what counts from where it is, that is
//! written anew.

use crate::memory::{self, protect};

/// `mov rax, address`, `jmp rax`.
pub const JUMP: usize = 12;

/// What may be moved of a function.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Moves {
    /// What needs no place.
    Plain,
    /// Addresses, variables of threads and calls, too. Nothing can unwind through such a call.
    Calls,
}

pub fn jump(to: usize) -> [u8; JUMP] {
    let mut code = [0x48, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xe0];
    code[2..10].copy_from_slice(&to.to_le_bytes());
    code
}

/// The function begins with a jump to what `ours` makes, which is given the whole function's place.
///
/// # Safety
/// A function is there, which nobody runs, and what `ours` makes takes and gives what it does.
#[cfg(target_arch = "x86_64")]
pub unsafe fn lead(at: usize, moves: Moves, ours: impl FnOnce(usize) -> Vec<u8>) -> Option<()> {
    const PAGE: usize = 4096;
    /// More than is moved.
    const LOOKED_AT: usize = 32;
    // SAFETY: the function is longer, or others are behind it.
    let code = unsafe { std::slice::from_raw_parts(at as *const u8, LOOKED_AT) };
    let (length, mut page) = moved(code, at, moves)?;
    // The function has not begun: `rax` is nobody's, or what the last of these has put there.
    page.extend(far_jump(at + length));
    let memory = memory::fresh(PAGE)?;
    let start = memory as usize;
    let first = start + page.len();
    page.extend(ours(start));
    // SAFETY: the memory is ours, with room for so much; then the program's code, as the caller
    // promises.
    unsafe {
        memory
            .cast::<u8>()
            .copy_from_nonoverlapping(page.as_ptr(), page.len().min(PAGE));
        if !protect(&(start..start + PAGE), libc::PROT_READ | libc::PROT_EXEC) {
            return None;
        }
        let pages = at & !(PAGE - 1)..(at + JUMP).next_multiple_of(PAGE);
        if !protect(&pages, libc::PROT_READ | libc::PROT_WRITE) {
            return None;
        }
        (at as *mut u8).copy_from_nonoverlapping(jump(first).as_ptr(), JUMP);
        protect(&pages, libc::PROT_READ | libc::PROT_EXEC).then_some(())
    }
}

#[cfg(not(target_arch = "x86_64"))]
pub unsafe fn lead(_: usize, _: Moves, _: impl FnOnce(usize) -> Vec<u8>) -> Option<()> {
    None
}

/// It changes no register.
fn far_jump(to: usize) -> Vec<u8> {
    [&[0xff, 0x25, 0, 0, 0, 0][..], &to.to_le_bytes()].concat()
}

/// How long the first instructions are that take up the place of a jump, and what they are
/// elsewhere; `None`: there is one among them that may not be moved.
fn moved(code: &[u8], at: usize, moves: Moves) -> Option<(usize, Vec<u8>)> {
    let (mut length, mut all) = (0, Vec::new());
    while length < JUMP {
        let next = code.get(length..)?;
        let same = match next {
            // push
            [0x50..=0x57, ..] => 1,
            [0x41, 0x50..=0x57, ..] => 2,
            // sub rsp, …
            [0x48, 0x83, 0xec, ..] => 4,
            [0x48, 0x81, 0xec, ..] => 7,
            // mov between registers
            [0x48 | 0x49 | 0x4c | 0x4d, 0x89, 0xc0..=0xff, ..] => 3,
            // mov [rsp + …], a register
            [0x48 | 0x4c, 0x89, how, 0x24, ..] if how & 0xc7 == 0x44 => 5,
            [0x48 | 0x4c, 0x89, how, 0x24, ..] if how & 0xc7 == 0x84 => 8,
            _ if moves == Moves::Plain => return None,
            // mov a register, fs:…
            [0x64, 0x48, 0x8b, how, 0x25, ..] if how & 0xc7 == 0x04 => 9,
            [0x66, 0x66, 0x66, 0x64, 0x48, 0x8b, how, 0x25, ..] if how & 0xc7 == 0x04 => 12,
            _ => 0,
        };
        let behind = |length: usize| at.wrapping_add(length);
        match same {
            0 => {
                let (long, anew) = written_anew(next, behind(length))?;
                length += long;
                all.extend(anew);
            }
            _ => {
                all.extend(next.get(..same)?);
                length += same;
            }
        }
    }
    Some((length, all))
}

/// An instruction that counts from where it is, as one that does not, and how long it was.
fn written_anew(code: &[u8], at: usize) -> Option<(usize, Vec<u8>)> {
    let target = |before: usize| {
        let distance = i32::from_le_bytes(*code.get(before..)?.first_chunk()?);
        Some(
            at.wrapping_add(before + 4)
                .wrapping_add_signed(distance as isize),
        )
    };
    let number = |opcode: [u8; 2], number: usize, rest: &[u8]| {
        [&opcode[..], &number.to_le_bytes(), rest].concat()
    };
    Some(match code {
        // lea a register, [rip + …]
        [rex @ (0x48 | 0x4c), 0x8d, how, ..] if how & 0xc7 == 0x05 => {
            let rex = 0x48 | (rex >> 2 & 1);
            let move_to = [rex, 0xb8 | (how >> 3 & 7)];
            (7, number(move_to, target(3)?, &[]))
        }
        // call [rip + …], and a near call: by way of rax, which holds no argument.
        [0xff, 0x15, ..] => (6, number([0x48, 0xb8], target(2)?, &[0xff, 0x10])),
        [0xe8, ..] => (5, number([0x48, 0xb8], target(1)?, &[0xff, 0xd0])),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn movable(code: &[u8]) -> Option<usize> {
        let (length, moved) = moved(code, 0x1000, Moves::Plain)?;
        assert_eq!(moved, code[..length]);
        Some(length)
    }

    #[test]
    fn what_begins_a_function_is_moved_as_whole_instructions() {
        let optimized = [
            0x41, 0x57, 0x41, 0x56, 0x41, 0x54, 0x53, 0x48, 0x81, 0xec, 0x18, 0x01, 0, 0, 0x49,
        ];
        assert_eq!(movable(&optimized), Some(14));
        let plain = [
            0x48, 0x81, 0xec, 0xf8, 0x01, 0, 0, 0x48, 0x89, 0x54, 0x24, 0x10, 0x48,
        ];
        assert_eq!(movable(&plain), Some(12));
        // What counts from where it is: lea rdi, [rip + …], and a call.
        let near = [
            0x53, 0x48, 0x8d, 0x3d, 0, 0, 0, 0, 0x53, 0x53, 0x53, 0x53, 0x53,
        ];
        assert_eq!(movable(&near), None);
        assert_eq!(movable(&[0xe8; 32]), None);
        assert_eq!(movable(&[0x53; 5]), None);
    }

    #[test]
    fn what_counts_from_where_it_is_is_written_anew() {
        let optimized = [
            0x50, 0x66, 0x66, 0x66, 0x64, 0x48, 0x8b, 0x04, 0x25, 0, 0, 0, 0, 0x48,
        ];
        let whole = (13, optimized[..13].to_vec());
        assert_eq!(moved(&optimized, 0x1000, Moves::Calls), Some(whole));
        // push rax; lea rdi, [rip + 0x20]; call [rip - 8]
        let plain = [
            0x50, 0x48, 0x8d, 0x3d, 0x20, 0, 0, 0, 0xff, 0x15, 0xf8, 0xff, 0xff, 0xff, 0x48,
        ];
        let (length, anew) = moved(&plain, 0x1000, Moves::Calls).unwrap();
        assert_eq!(length, 14);
        let expected = [
            &[0x50, 0x48, 0xbf][..],
            &0x1028_u64.to_le_bytes(),
            &[0x48, 0xb8],
            &0x1006_u64.to_le_bytes(),
            &[0xff, 0x10],
        ];
        assert_eq!(anew, expected.concat());
    }
}
