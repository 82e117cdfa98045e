//! Stacks of threads, at addresses that both runs agree on.
//!
//! Each thread number has a slot. A stack lies at the upper end of its slot, with its guard below
//! it; one that is too large for a slot lies behind the slots. The address is logged, so replay
//! does not have to compute it.

use std::sync::atomic::{AtomicUsize, Ordering};

use hindcast_execlog::THREADS_MAX;
use hindcast_execlog::config::addresses;

use crate::{raw, syscall};

const SLOT: usize = 64 << 20;
const SLOTS_END: usize = addresses::STACKS + THREADS_MAX * SLOT;
const _: () = assert!(SLOTS_END < addresses::STACKS_END);

const PAGE: usize = 4096;
/// Our own frames, and those of signal handlers of ours, come on top of what the program planned
/// with.
pub const EXTRA: usize = 64 << 10;
/// Left free at the end of a slot, so that the kernel does not find room for a huge page around the
/// first frames.
const TOP_GAP: usize = 64 << 10;

/// A thread's stack without its guard: lowest address and length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stack {
    pub base: usize,
    pub length: usize,
    pub guard: usize,
}

impl Stack {
    /// The stack for a thread that asked for `length` usable bytes above a guard of `guard` bytes.
    pub fn place(number: u32, length: usize, guard: usize) -> Option<Stack> {
        let length = length.checked_add(EXTRA)?.checked_next_multiple_of(PAGE)?;
        let guard = guard.checked_next_multiple_of(PAGE)?;
        let whole = length.checked_add(guard)?;
        let top = if whole <= SLOT - 2 * TOP_GAP {
            // A few pages of difference keep the stacks of many threads from competing for the same
            // cache sets.
            addresses::STACKS + (number as usize + 1) * SLOT - TOP_GAP - number as usize % 15 * PAGE
        } else {
            static NEXT: AtomicUsize = AtomicUsize::new(SLOTS_END);
            let slot = whole.checked_next_multiple_of(SLOT)?;
            let start = NEXT.fetch_update(Ordering::AcqRel, Ordering::Acquire, |next| {
                next.checked_add(slot)
                    .filter(|end| *end <= addresses::STACKS_END)
            });
            start.ok()? + whole
        };
        Some(Stack {
            base: top - length,
            length,
            guard,
        })
    }

    /// Whose slot an address lies in.
    pub fn number_of(address: usize) -> Option<u32> {
        (addresses::STACKS..SLOTS_END)
            .contains(&address)
            .then(|| ((address - addresses::STACKS) / SLOT) as u32)
    }

    pub fn map(&self) -> Result<(), i32> {
        let flags = libc::MAP_PRIVATE | libc::MAP_NORESERVE | libc::MAP_STACK;
        let whole = self.length + self.guard;
        // SAFETY: the slot belongs to this thread's number, and its stack was not mapped yet.
        unsafe {
            raw::map_memory(self.base - self.guard, whole, flags)?;
            if self.guard != 0 {
                syscall!(
                    libc::SYS_mprotect,
                    self.base - self.guard,
                    self.guard,
                    libc::PROT_NONE
                );
            }
        }
        Ok(())
    }

    /// Gives the memory back.
    ///
    /// # Safety
    /// No thread runs on it any more.
    pub unsafe fn unmap(&self) {
        // SAFETY: the caller's promise.
        unsafe {
            syscall!(
                libc::SYS_munmap,
                self.base - self.guard,
                self.length + self.guard
            )
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stacks_of_different_threads_do_not_overlap_and_know_their_number() {
        let mut end = addresses::STACKS;
        for number in 0..THREADS_MAX as u32 {
            let stack = Stack::place(number, 8 << 20, 4096).unwrap();
            assert!(stack.base - stack.guard >= end);
            assert!(stack.length >= (8 << 20) + EXTRA);
            end = stack.base + stack.length;
            assert_eq!(Stack::number_of(stack.base), Some(number));
            assert_eq!(Stack::number_of(end - 1), Some(number));
        }
    }

    #[test]
    fn the_place_of_a_stack_depends_on_nothing_but_its_thread_and_size() {
        assert_eq!(
            Stack::place(7, 1 << 20, 4096),
            Stack::place(7, 1 << 20, 4096)
        );
    }

    #[test]
    fn a_stack_that_is_too_large_for_a_slot_lies_behind_them_all() {
        let stack = Stack::place(3, 512 << 20, 4096).unwrap();
        assert!(stack.base - stack.guard >= SLOTS_END);
        assert_eq!(Stack::number_of(stack.base), None);
        let other = Stack::place(4, 512 << 20, 4096).unwrap();
        assert!(other.base - other.guard >= stack.base + stack.length);
        assert_eq!(Stack::place(5, usize::MAX, 0), None);
    }
}
