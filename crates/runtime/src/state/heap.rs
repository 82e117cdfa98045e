//! A thread's part of the memory of the program.

use std::ptr::null_mut;

use crate::heap::arena::Arena;

/// A thread's part of the replay heap.
pub struct ThreadHeap {
    /// Null before the thread first uses memory, and after it gave its arena up.
    pub arena: *mut Arena,
    /// The thread uses the arena that all such threads share.
    pub without: bool,
    /// The thread is inside an event of its log: what takes part in the order of threads must
    /// wait.
    pub inside_event: bool,
    pub arenas_at_fork: usize,
    /// How often the thread asked the kernel for memory.
    pub asked: u32,
}

impl ThreadHeap {
    pub const fn new() -> Self {
        ThreadHeap {
            arena: null_mut(),
            without: false,
            inside_event: false,
            arenas_at_fork: 0,
            asked: 0,
        }
    }
}
