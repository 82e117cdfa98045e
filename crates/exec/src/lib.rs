//! Records and replays native processes: `hindcast exec`.

pub mod elf;
pub mod gdb;
pub mod launch;
pub mod log;
pub mod preflight;
pub mod program;
pub mod recording;
pub mod report;
pub mod run;
pub mod runtime;
pub mod show;
pub mod watch;
