//! In which order a replay lets threads have their locks.
//!
//! A program without data races is determined by what it reads from outside and by who gets which
//! lock after whom. A recorder sees the acquisitions; the question is how much of their order it
//! has to keep. The papers' "Optimizing Record/Replay through Relaxed Total Order and Multi-Version
//! Execution" (sections 2 and 3.1) answers with an order between two known ones. Here all of them
//! are, and one more way to write the weakest of them down:
//!
//! ```text
//!   recorded, left to right      1:A   2:B   2:B   1:A   1:C   2:C        thread:lock
//!
//!   total                        ──▶───▶─────▶─────▶─────▶─────▶          each after the one before it
//!
//!   relaxed (Algorithm 1)        ──▶───▶ · · · · · · · · ──▶────▶         first uses after the one before them,
//!                                                                         changes of owner after the last acquisition of the lock
//!   partial                       · · · · · · · · · · · · · · ──▶         changes of owner only
//! ```
//!
//! Each thread's own order holds in all of them. `partial ⊆ relaxed ⊆ total`, and the partial order
//! is happens-before itself, so a replay that obeys any of them shows the program what it saw. What
//! differs is what they cost, and that depends on how they are captured ([`Order`]):
//!
//! | order | a log word is | written | shared while recording |
//! |---|---|---|---|
//! | [`Order::Total`] | a ticket | at each acquisition | one counter |
//! | [`Order::Vector`] | how far every thread was | at each acquisition | every thread's count |
//! | [`Order::Relaxed`] | the same, as far as it is new | where the owner changes, and at first uses | the same, there |
//! | [`Order::Edge`] | the previous owner's thread and number | where the owner changes, if that is new | nothing but the lock itself |
//!
//! `Vector` and `Relaxed` are the paper's Figure 5. `Relaxed` is stronger than Algorithm 1, because
//! a vector clock says "after all of that", and weaker than total. `Edge` is exactly the partial
//! order: beside each lock there is an [`Owner`], the thread that had it last and the number of
//! that acquisition among the thread's own. Whoever gets the lock replaces it, and writes down what
//! was there if it was another thread. Replay waits until that thread has come as far, and then
//! takes the real lock.
//!
//! **Where to start reading**: [`Recorder`] and [`Replayer`] are what a runtime does, one step of
//! one thread at a time; [`Execution`] has the definitions of the paper, as relations over all
//! events, to judge them by.
//!
//! **Who is judged by it**: `runtime::sync`, which does the same with real locks. What it records
//! of real programs is held against these definitions in `tests/tests/it/exec_orders.rs`.
//!
//! **What this does not do**: it has no locks, threads, log files or waiting. A runtime brings
//! them, and must keep to rules that no state machine can:
//!
//! - An acquisition is recorded between the real lock and unlock, and in replay the real lock is
//!   taken when it is its thread's turn.
//! - Where several may hold a thing at the same time (readers, semaphores), the owner is replaced
//!   in one atomic step, and with a clock also the clock read and counted in it.
//! - What lets others go on counts as an acquisition *before* it does: a semaphore's post, an
//!   initialisation that is complete.
//! - An attempt that fails is recorded, and in replay not made.
//!
//! **The invariant to keep**: whatever an acquisition waits for was recorded earlier, in the one
//! order in which owners were really replaced. Of all that is left, the first one recorded can
//! therefore always go on. Two locks may share an owner, a lock may find the owner of another one
//! that was in its place before: that adds something to wait for, and it is always in the past.

mod execution;
mod recorder;
mod relation;
mod replayer;

pub use execution::{Acquisition, Execution, Pairs, Resource};
pub use recorder::{Entry, Order, Owner, Position, Recorder, Recording, Seen, Thread};
pub use relation::{Event, Relation};
pub use replayer::{Replayer, Turn, Wait};
