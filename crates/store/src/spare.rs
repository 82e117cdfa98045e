//! Memory for versions, kept by the worker that freed it.
//!
//! Versions come and go by the million. The allocator finds its free memory through lists that run
//! through that very memory, so that each step waits for a cache miss; here the free blocks are in
//! a plain array and can be fetched ahead.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ptr::NonNull;

/// Sizes are multiples of this.
const GRAIN: usize = 16;

/// Larger blocks go back to the allocator.
const BYTES_MAX: usize = 256;

/// So many blocks of one size are kept: about what becomes free between two snapshots.
const BLOCKS_MAX: usize = 1 << 15;

const FETCH_AHEAD: usize = 8;

pub(crate) struct Spare {
    /// Free blocks by size, in grains.
    blocks: [Vec<NonNull<u8>>; BYTES_MAX / GRAIN + 1],
}

// SAFETY: the blocks are owned like boxes.
unsafe impl Send for Spare {}

impl Default for Spare {
    fn default() -> Spare {
        Spare {
            blocks: std::array::from_fn(|_| Vec::new()),
        }
    }
}

/// The layout of the block for so many bytes. All that have the same one can stand for each other.
fn layout(bytes: usize) -> Layout {
    match Layout::from_size_align(bytes.next_multiple_of(GRAIN), GRAIN) {
        Ok(layout) => layout,
        Err(_) => unreachable!("{bytes} bytes have a layout"),
    }
}

/// What such a block takes from the allocator, about.
pub(crate) fn block_bytes(bytes: usize) -> u64 {
    (bytes.next_multiple_of(GRAIN) + GRAIN / 2).next_multiple_of(GRAIN) as u64
}

/// Gives a block to the allocator.
///
/// # Safety
/// The block came from `Spare::take` for as many bytes, and is the caller's.
pub(crate) unsafe fn free(block: NonNull<u8>, bytes: usize) {
    // SAFETY: `take` used this layout.
    unsafe { dealloc(block.as_ptr(), layout(bytes)) }
}

impl Spare {
    /// A block for at least so many bytes, more than none; what is in it is undefined.
    pub fn take(&mut self, bytes: usize) -> NonNull<u8> {
        let layout = layout(bytes);
        if let Some(blocks) = self.blocks.get_mut(layout.size() / GRAIN)
            && let Some(block) = blocks.pop()
        {
            if let Some(soon) = blocks.len().checked_sub(FETCH_AHEAD) {
                prefetch(blocks[soon].as_ptr());
            }
            return block;
        }
        assert!(layout.size() > 0, "a block of no bytes");
        // SAFETY: the layout is not empty.
        match NonNull::new(unsafe { alloc(layout) }) {
            Some(block) => block,
            None => handle_alloc_error(layout),
        }
    }

    /// Keeps a block, or gives it to the allocator when there are enough.
    ///
    /// # Safety
    /// As for `free`.
    pub unsafe fn give(&mut self, block: NonNull<u8>, bytes: usize) {
        match self.blocks.get_mut(layout(bytes).size() / GRAIN) {
            Some(blocks) if blocks.len() < BLOCKS_MAX => blocks.push(block),
            // SAFETY: as the caller promised.
            _ => unsafe { free(block, bytes) },
        }
    }
}

impl Drop for Spare {
    fn drop(&mut self) {
        for (grains, blocks) in self.blocks.iter_mut().enumerate() {
            for block in blocks.drain(..) {
                // SAFETY: blocks lie under their size, and are ours.
                unsafe { free(block, grains * GRAIN) };
            }
        }
    }
}

/// A hint to the processor; never an access.
pub(crate) fn prefetch<T>(at: *const T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: prefetching may be done with any address at all.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(at.cast());
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = at;
}
