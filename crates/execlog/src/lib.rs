//! What the recording of a native process is: the folder, the files in it, the events in them, and
//! the two shared pages through which the launcher and the runtime talk.
//!
//! ```text
//! DIR/recording.json      what was run, written by the launcher
//! DIR/p0/process          one folder per process image: who, how it ended   (ProcessHeader)
//! DIR/p0/t0, t1, …        one log per thread: a header, then events         (LogHeader, Event)
//! DIR/p0.1/…              the first child that p0 forked
//! DIR/p0+/…               what p0 became by exec
//! ```
//!
//! All files are mapped by the process that is being recorded, so what it wrote survives its death
//! by any signal. A thread log grows at its end only, by one writer; `committed` moves after an
//! event is complete, so a reader never sees half of one.
//!
//! **Where to start reading**: [`event`] for the bytes, [`config`] for what the launcher tells the
//! runtime, [`board`] for what the runtime tells the launcher.
//!
//! **What this crate does not do**: it opens no file and makes no system call. The runtime lives
//! inside somebody else's process and has rules of its own about that; tools use the standard
//! library.
//!
//! **The invariant to keep**: everything here is plain data with a fixed layout, shared between two
//! programs built apart. Whatever changes it must change [`VERSION`].

pub mod board;
pub mod checkpoint;
pub mod config;
pub mod event;
pub mod files;
pub mod handover;
pub mod reference;
pub mod text;

pub use board::Board;
pub use config::Config;
pub use event::{Event, Events, Kind};
pub use files::{LogHeader, ProcessHeader};
pub use text::Text;

/// The version of every layout in this crate. A recording of another version is refused.
pub const VERSION: u32 = 8;

/// Threads that one process may have over its whole life: a thread's number fits 16 bits of an
/// owner word.
pub const THREADS_MAX: usize = 1 << 16;
