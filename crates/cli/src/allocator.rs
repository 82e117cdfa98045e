//! What the C library's allocator keeps of memory that was freed.
//!
//! By default it keeps a great deal: each thread has an arena of its own, and the size from which a
//! block goes back to the system at once grows with the blocks that are freed. A recorder frees
//! much at a time, when a segment has been written or a large message has passed, and then does
//! nothing of that size for a while.

/// Blocks of this size and larger come from the system and go back to it, and so does the free end
/// of an arena.
const LARGE_BYTES: i32 = 1 << 20;
/// Less than this is not worth the walk through all arenas.
const WORTH_BYTES: usize = 8 << 20;

/// Gives freed memory back to the system.
pub struct Allocator {
    /// What was free after the last time. Pages that were given back still count as free.
    free_bytes: usize,
}

impl Allocator {
    pub fn new() -> Self {
        for setting in [libc::M_MMAP_THRESHOLD, libc::M_TRIM_THRESHOLD] {
            // SAFETY: it sets a number under the allocator's own lock; no memory is touched.
            unsafe { libc::mallopt(setting, LARGE_BYTES) };
        }
        Self { free_bytes: 0 }
    }

    /// Takes milliseconds, and only where much has been freed since the last time.
    pub fn give_back(&mut self) {
        let free = free_bytes();
        if free >= self.free_bytes + WORTH_BYTES {
            // SAFETY: it gives back pages of which no allocation has a part, under the locks of the
            // arenas.
            unsafe { libc::malloc_trim(0) };
        }
        self.free_bytes = free;
    }
}

fn free_bytes() -> usize {
    // SAFETY: it counts under the locks of the arenas and returns numbers.
    unsafe { libc::mallinfo2() }.fordblks
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resident_bytes() -> usize {
        let pages = std::fs::read_to_string("/proc/self/statm").expect("Linux");
        let resident = pages.split_whitespace().nth(1).expect("a second number");
        resident.parse::<usize>().expect("a number") * 4096
    }

    #[test]
    fn what_was_freed_between_what_stays_is_given_back() {
        let mut allocator = Allocator::new();
        allocator.give_back();
        // Small blocks of which every 64th stays: the end of the arena does not become free.
        let mut blocks: Vec<_> = (0..64_000).map(|_| vec![1u8; 2000]).collect();
        let mut number = 0;
        blocks.retain(|_| {
            number += 1;
            number % 64 == 0
        });
        let before = resident_bytes();
        allocator.give_back();
        let after = resident_bytes();
        assert!(after + (64 << 20) < before, "{before} → {after}");
        assert_eq!(blocks.len(), 1000);
    }
}
