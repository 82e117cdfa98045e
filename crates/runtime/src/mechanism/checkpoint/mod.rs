//! Checkpoints of a replay: its memory and its threads, as they are at one moment.
//!
//! A process in replay has no state in the kernel but its memory, its threads and a few settings of
//! theirs: descriptors are numbers, and what threads wait for is in memory. So the launcher has all
//! threads wait where they are ([`halt`]), copies the memory from outside, and lets them go on. Any
//! instruction will do: a handler's frame has the registers.
//!
//! ```text
//!   launcher                                  a thread
//!   board.halts = 1, a signal to each ──────▶ notes what no memory tells (Halted), and waits
//!   copies the memory of the process
//!   board.halts = 0                   ──────▶ returns from the handler
//! ```
//!
//! A process that is to become that one starts as any replay does, and instead of its first step
//! maps the memory over its own ([`restore`]). The last thing it does is what the handlers would
//! have done, once for each thread: return to the frame.
//!
//! **The invariant to keep**: [`restore`] runs on a stack of its own and calls nothing that is not
//! mapped at the same address in both processes. It uses the runtime's text, and libc's `memcpy`.

mod halt;
mod restore;

pub use halt::{listen, postpone};
pub use restore::restore;
