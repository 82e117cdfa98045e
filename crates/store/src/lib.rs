//! An in-memory multi-version store that follows a log row by row.
//!
//! This is the cloned concurrency control of C5 (Helt, Sharma, Abadi, Lloyd, Faleiro: "C5: Cloned
//! Concurrency Control that Always Keeps Up", sections 4 and 7). A primary executes writes to
//! different rows in parallel, so a replica that applies whole transactions one after the other, or
//! any two that share a row, can fall behind without bound. Here each write waits for the previous
//! write to its own row and for nothing else. Readers are kept from what is half done by a prefix
//! cut: they see exactly the state after some commit, and never an older one than before (monotonic
//! prefix consistency).
//!
//! ```text
//!  Appender ═ scheduler            workers                          readers
//!  put ─▶ key → (row, last write)   segment ─▶ previous write in?     snapshot at c
//!         header + prev ─▶ segment ─▶          yes: new head          row ─▶ newest version ≤ c
//!                        round robin           no:  deferred          key ─▶ sorted runs ─▶ row
//!                                   c_i  ────────▶ snapshotter ──────▶ c = last commit ≤ min c_i
//!                                                              └─────▶ horizon: below it, free
//! ```
//!
//! Start reading at [`open`], then [`Appender`] (the one who writes) and [`Store`] (everybody who
//! reads). Inside: `scheduler`, `worker`, `snapshotter` are the three components of the paper,
//! `rows` is what they work on and holds nearly all the `unsafe` code with the argument why it is
//! sound, `runs` and `index` give rows an order, `modes` is KuaFu for comparison.
//!
//! The one invariant to keep: **horizon ≤ c ≤ every c_i**, and none of them ever goes back. Above c
//! nobody reads, at or below c everything is installed, and what was replaced at or below the
//! horizon is nobody's any more.
//!
//! Where this goes another way than the paper, and why:
//! - Transactions may span segments; the paper's prototype forbids it for simplicity, but a log has
//!   transactions of any length.
//! - A worker with nothing to do does not hold c back: the snapshotter knows what was assigned to
//!   whom.
//! - Deferred writes wait in a queue per row, not in one: behind a hot row one queue is long, and
//!   only its first write can be next.
//! - The number of a row's newest version lies beside the pointer to it. A worker that looks
//!   whether it is next must not look into a version, which may be freed at that moment.
//! - The scheduler takes in up to sixteen puts before it looks for their predecessors, and workers
//!   look ahead in their segments: rows of a large table are in no cache, and this way their misses
//!   overlap.
//! - Tombstones and their rows are given back, so that inserting and deleting for ever takes
//!   bounded memory.
//! - Readers register under a lock, which no worker ever takes. A scheme without locks would be
//!   quicker by tens of nanoseconds per snapshot and cost a subtle argument.
//!
//! What it does not do: it knows no SQL, no types and no files. It is gone with its process, and a
//! new process fills it again.

mod deferred;
mod history;
mod index;
#[cfg(test)]
mod judged_tests;
mod lock;
mod log;
mod map;
#[doc(hidden)]
pub mod measure;
mod modes;
mod reader;
mod rows;
mod runs;
mod scheduler;
mod shared;
mod snapshotter;
mod spare;
mod store;
mod types;
mod worker;

pub use reader::{RowRef, Scan, Snapshot};
pub use scheduler::Appender;
pub use store::{Store, open};
pub use types::*;
