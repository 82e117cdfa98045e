//! The library that is loaded into a process to record or replay it.
//!
//! ```text
//!   replay space        the program and its libraries, libc included          runs in both runs
//!  ═════════╤══════════════════════════════╤═══════════════════════════════   the cut: system calls, taken at two heights
//!     stubs │ read, epoll_wait, …          │ trap: system calls that no stub   recorded; in replay taken from the log
//!           │ (generated, by_hand)         │ covers (Syscall User Dispatch)
//!  ─────────┴──────────────────────────────┴───────────────────────────────
//!   system space        this library, and what is below a chosen interface    runs only when recording
//! ```
//!
//! Each thread has a mode bit, as in R2 (section 2.3). It is at the same time the selector byte of
//! Syscall User Dispatch, so the kernel itself watches the cut: whatever enters it from replay
//! space behind the stubs' back raises a signal.
//!
//! # Survival rules
//!
//! This code runs inside somebody else's process, at any moment of its life: before its
//! constructors, in its signal handlers, in its forked children, while it is out of memory. So
//! here:
//!
//! - The kernel is entered through [`raw`] only. A libc function that makes a system call would
//!   trap, or be recorded.
//! - Libc's heap is the program's. What the runtime allocates comes from its own address range
//!   ([`heap::own`]), and nothing on the path of a call allocates at all.
//! - Nothing unwinds into the program: exported functions are `extern "C"`, which aborts.
//! - No lock is held across a call of the program's code, and none is taken in a signal handler
//!   that the interrupted code may hold.
//! - `errno` is the program's: who may change it saves it.
//! - What cannot be recorded ends recording ([`mechanism::detach`]), never the program. In replay,
//!   what differs ends the process with a report ([`mechanism::divergence`]): a replay is right or
//!   it says where it was not.
//! - Registers of a trapped system call are the kernel's convention: everything but `rax`, `rcx`,
//!   `r11` survives.
//!
//! # Layers
//!
//! ```text
//!   doors       where the program, the loader and the kernel come in: stubs, the trap, signals, threads, users' interfaces
//!     │
//!   mechanism   how a step is recorded or replayed, wherever it came in: a call, an acquisition, a delivery, a block
//!     │
//!   state       what is known: a thread, its log, the process, what was asked for; decides nothing
//!     │
//!   raw, probe, heap, functions   system calls, memory that may not be there, blocks, numbers of functions
//! ```
//!
//! A file imports from its own layer and from those below, and no files import each other in a
//! circle.
//!
//! **Where to start reading**: [`state::thread`] for the mode bit, [`mechanism::call`] for what a
//! stub does, [`doors::trap`] for what happens without one, [`doors::init`] for how it begins,
//! [`mechanism::sync`] for the order of threads.
//!
//! **What this crate does not do**: it launches nothing and renders nothing; that is
//! `hindcast-exec`. It is never linked, only loaded: linking it would replace the linker's
//! `malloc`.
//!
//! **The invariant to keep**: between two events of a thread's log, what the program computes is a
//! function of what the log gave it. Whoever lets it see anything else (a clock, an address, an
//! order) must log that or make it equal.

// Everything here is called from C or by the kernel; what callers must guarantee is what C
// guarantees.
#![allow(clippy::missing_safety_doc)]
// `syscall!` takes arguments of any integer or pointer type.
#![allow(clippy::unnecessary_cast)]
// In unit tests nothing is exported, so that they are not interposed themselves.
#![cfg_attr(test, allow(dead_code))]

mod doors;
#[rustfmt::skip]
#[allow(dead_code)]
mod functions;
mod heap;
mod mechanism;
mod probe;
mod raw;
mod state;
