//! What surrounds a native process that is recorded or replayed: `hindcast exec` without its
//! arguments and its words.
//!
//! ```text
//!   program    what was typed → what the kernel would execute     ┐
//!   preflight  can it be recorded, here?                 elf      │ before anything runs
//!   check      what of its imports is covered?                    ┘
//!   recording  recording.json: what ran, with what, and where
//!   launch     the same image in both runs, the runtime and two shared pages inside     gdb
//!   follow     a second process that replays what the first records, and goes on in its place
//!   beside     a second process that writes the log with what it reads itself            fill
//!   apart      the same on two machines: both ends of it, for who carries the log between them
//!   watch      passes signals on; in replay looks at the board, leaves nothing running   report
//!   checkpoint what a replay was at some moments, so that another one can begin there
//!   log        what the runtime wrote                    show
//! ```
//!
//! **Where to start reading**: [`run`] and [`replay`], the two runs from end to end.
//!
//! **What this crate does not do**: it decides nothing about what is recorded and in which order it
//! is replayed. That is `hindcast-runtime`, which is inside the process, is built by `build.rs` and
//! embedded ([`runtime`]); the two share `hindcast-execlog` and nothing else. It prints nothing.
//!
//! **The invariant to keep**: whatever lies on the stack of the program or decides about its
//! addresses is byte by byte the same in both runs, and nothing in a recording depends on where
//! hindcast is installed.

pub mod apart;
mod beside;
pub mod check;
pub mod checkpoint;
mod configure;
mod credentials;
pub mod elf;
pub mod error;
pub mod fill;
pub mod follow;
pub mod gdb;
pub mod keeper;
pub mod launch;
pub mod log;
pub mod mapped;
mod numbers;
pub mod preflight;
pub mod program;
pub mod recording;
pub mod replay;
pub mod report;
pub mod run;
pub mod runtime;
pub mod show;
pub mod warning;
pub mod watch;
