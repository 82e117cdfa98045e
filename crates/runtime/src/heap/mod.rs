//! The memory of the recorded program.

pub mod own;

use crate::thread::Thread;

/// A thread's part of the replay heap.
pub struct ThreadHeap {
    slot: *mut u8,
}

impl ThreadHeap {
    pub const fn new(_number: u32) -> Self {
        ThreadHeap { slot: std::ptr::null_mut() }
    }
}

/// The process is about to have a second thread. Called by the first one before it creates it, in both runs.
pub fn second_thread() {}

/// The thread will end: its blocks may be used by threads yet to come. It may still call `free` and `malloc` afterwards.
pub fn thread_exiting(thread: &mut Thread) {
    let _ = thread;
}

/// Before `fork`: locks what must be whole in the child. In replay space an acquisition, so called before the fork is logged.
pub fn before_fork(thread: Option<&mut Thread>) {
    let _ = thread;
}

/// After `fork` in the parent.
pub fn after_fork_in_parent() {}

/// After `fork` in the child, whose only thread is the calling one.
pub fn after_fork_in_child(thread: Option<&mut Thread>) {
    let _ = thread;
}

/// A block of the replay heap for a thread that is in system space at the moment.
pub fn allocate_for_replay(thread: &mut Thread, length: usize) -> *mut u8 {
    let _ = (thread, length);
    std::ptr::null_mut()
}
