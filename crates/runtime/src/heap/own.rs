//! The runtime's own memory: never libc's, never the program's.
//!
//! Classes of powers of two, a list for each, cut from a range of its own. What runs in a signal
//! handler may find the lock held by the very code it interrupted; then it gets memory that is
//! never used again. That is rare, and small.

use std::alloc::{GlobalAlloc, Layout};
use std::arch::asm;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::lock::Lock;
use super::space::{OWN, OWN_END};
use crate::raw;

const SMALLEST: u32 = 5;
const CLASSES: usize = 36;
/// What is cut from is mapped in steps of this.
const STEP: usize = 1 << 20;
/// Blocks freed of this size give their memory back to the kernel.
const DISCARD: usize = 1 << 18;
/// For code that interrupted the allocator: the second half of the range.
const ASIDE: usize = OWN + (OWN_END - OWN) / 2;

pub struct Own(());

struct State {
    free: [*mut Free; CLASSES],
    next: usize,
    mapped: usize,
}

struct Free {
    next: *mut Free,
}

// SAFETY: used by whoever holds the lock.
unsafe impl Send for State {}

static STATE: Lock<State> = Lock::new(State {
    free: [null_mut(); CLASSES],
    next: OWN,
    mapped: OWN,
});
/// The thread that holds the lock, by its control block.
static HOLDER: AtomicUsize = AtomicUsize::new(0);
static ASIDE_NEXT: AtomicUsize = AtomicUsize::new(ASIDE);

impl Own {
    pub const fn new() -> Self {
        Own(())
    }
}

fn me() -> usize {
    let thread: usize;
    // SAFETY: the thread's control block begins with its own address.
    unsafe {
        asm!("mov {}, qword ptr fs:[0]", out(reg) thread, options(nostack, readonly, preserves_flags))
    };
    thread
}

/// `None` in code that interrupted the allocator in the same thread.
fn locked<R>(inner: impl FnOnce(&mut State) -> R) -> Option<R> {
    let me = me();
    if HOLDER.load(Ordering::Relaxed) == me {
        return None;
    }
    Some(STATE.with(|state| {
        HOLDER.store(me, Ordering::Relaxed);
        let result = inner(state);
        HOLDER.store(0, Ordering::Relaxed);
        result
    }))
}

fn class_of(layout: Layout) -> usize {
    (layout
        .size()
        .max(layout.align())
        .next_power_of_two()
        .ilog2()
        .max(SMALLEST)
        - SMALLEST) as usize
}

fn map(address: usize, length: usize) -> bool {
    let flags = libc::MAP_PRIVATE | libc::MAP_NORESERVE;
    // SAFETY: room of ours that was not used yet.
    unsafe { raw::map_memory(address, length, flags) }.is_ok()
}

impl State {
    fn take(&mut self, class: usize) -> *mut u8 {
        let free = self.free[class];
        if !free.is_null() {
            // SAFETY: free blocks are ours.
            self.free[class] = unsafe { (*free).next };
            return free.cast();
        }
        let bytes = 1 << (class as u32 + SMALLEST);
        let address = self.next.next_multiple_of(bytes);
        let end = address + bytes;
        if end > ASIDE {
            return null_mut();
        }
        if end > self.mapped {
            let length = (end - self.mapped).next_multiple_of(STEP);
            if !map(self.mapped, length) {
                return null_mut();
            }
            self.mapped += length;
        }
        self.next = end;
        address as *mut u8
    }
}

fn aside(layout: Layout) -> *mut u8 {
    let length = layout.size().next_multiple_of(4096);
    let address = ASIDE_NEXT.fetch_add(length, Ordering::Relaxed);
    if layout.align() <= 4096 && address + length <= OWN_END && map(address, length) {
        address as *mut u8
    } else {
        null_mut()
    }
}

// SAFETY: blocks are disjoint, as large as their class, and aligned to their size.
unsafe impl GlobalAlloc for Own {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let class = class_of(layout);
        if class >= CLASSES {
            return null_mut();
        }
        locked(|state| state.take(class)).unwrap_or_else(|| aside(layout))
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if block as usize >= ASIDE {
            return;
        }
        let class = class_of(layout);
        if layout.size() >= DISCARD {
            // SAFETY: the caller gives the block away; its first page keeps the link.
            unsafe {
                super::space::discard(
                    block as usize + size_of::<Free>(),
                    layout.size() - size_of::<Free>(),
                )
            };
        }
        // Lost if this interrupted the allocator.
        locked(|state| {
            let free = block.cast::<Free>();
            // SAFETY: as above.
            unsafe {
                free.write(Free {
                    next: state.free[class],
                })
            };
            state.free[class] = free;
        });
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: alignment is the old one's, and the caller says that the size is possible.
        let wanted = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
        if (block as usize) < ASIDE && class_of(wanted) == class_of(layout) {
            return block;
        }
        // SAFETY: both blocks have room for the smaller size.
        unsafe {
            let new = self.alloc(wanted);
            if !new.is_null() {
                std::ptr::copy_nonoverlapping(block, new, layout.size().min(size));
                self.dealloc(block, layout);
            }
            new
        }
    }
}

/// Holds the lock over a fork; what allocates meanwhile gets memory aside.
pub fn lock_for_fork() {
    STATE.lock();
    HOLDER.store(me(), Ordering::Relaxed);
}

pub fn reset_after_fork() {
    HOLDER.store(0, Ordering::Relaxed);
    STATE.reset();
}

pub fn unlock_after_fork() {
    HOLDER.store(0, Ordering::Relaxed);
    STATE.unlock();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_aligned_disjoint_and_used_again() {
        let own = Own::new();
        let layouts: Vec<Layout> = (0..200)
            .map(|i| Layout::from_size_align(1 + i * 37 % 5000, 1 << (i % 9)).expect("a layout"))
            .collect();
        // SAFETY: blocks are used within their layouts, and freed once.
        unsafe {
            let mut blocks: Vec<(usize, Layout)> = layouts
                .iter()
                .map(|layout| (own.alloc(*layout) as usize, *layout))
                .collect();
            for (address, layout) in &blocks {
                assert!(*address != 0 && address.is_multiple_of(layout.align()));
                std::ptr::write_bytes(*address as *mut u8, 7, layout.size());
            }
            blocks.sort_by_key(|(address, _)| *address);
            for pair in blocks.windows(2) {
                assert!(pair[0].0 + pair[0].1.size() <= pair[1].0);
            }
            let (address, layout) = blocks[17];
            own.dealloc(address as *mut u8, layout);
            assert_eq!(own.alloc(layout) as usize, address);
        }
    }

    #[test]
    fn who_interrupts_the_allocator_gets_memory_all_the_same() {
        let own = Own::new();
        let layout = Layout::from_size_align(100, 8).expect("a layout");
        locked(|_| {
            // SAFETY: as above.
            unsafe {
                let block = own.alloc(layout);
                assert!(block as usize >= ASIDE);
                block.write_bytes(1, 100);
                own.dealloc(block, layout);
            }
        })
        .expect("the lock is free");
    }
}
