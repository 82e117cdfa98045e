//! Arguments of `hindcast exec`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::{ArgGroup, Args, ValueEnum};

#[derive(Args)]
#[command(
    override_usage = "hindcast exec --record <DIR> [OPTIONS] -- <PROGRAM> [ARGUMENTS]...\n       \
                      hindcast exec --follow <N> [--record <DIR>] -- <PROGRAM> [ARGUMENTS]...\n       \
                      hindcast exec --replay <DIR> [OPTIONS]\n       \
                      hindcast exec --show <DIR> [OPTIONS]\n       \
                      hindcast exec --check <PROGRAM>",
    after_help = "Exit codes: the program's own, 128 + n if signal n ended it. Of hindcast itself: 2 the arguments do not fit; 124 replay diverged, or stood still; 125 could not be done.",
    group = ArgGroup::new("action").required(true).multiple(true)
)]
pub struct ExecArgs {
    /// Record a program in this folder, which must not exist yet, or be empty
    #[arg(
        long,
        value_name = "DIR",
        group = "action",
        requires = "command",
        conflicts_with_all = ["replay", "show", "check", "become_recorded"],
        help_heading = "What to do"
    )]
    pub record: Option<PathBuf>,
    /// Run so many more copies of the program that replay what it does while it does it; if it is
    /// killed, one of them goes on in its place, with its connections. With --record, or more than
    /// one, it goes on being recorded, and is followed again
    #[arg(
        long,
        value_name = "N",
        group = "action",
        requires = "command",
        value_parser = clap::value_parser!(u32).range(1..=4),
        conflicts_with_all = ["replay", "show", "check", "become_recorded"],
        help_heading = "What to do"
    )]
    pub follow: Option<u32>,
    /// With --record: another process reads the large files that the program reads and writes them
    /// into the log, so that the program does not wait for that
    #[arg(
        long,
        requires = "record",
        conflicts_with_all = ["follow", "replay", "show", "check"],
        help_heading = "Recording"
    )]
    pub follower: bool,
    /// Replay the recording in this folder: without its files, its network and its clock, and with
    /// its order of locks
    #[arg(
        long,
        value_name = "DIR",
        group = "action",
        conflicts_with_all = ["show", "check", "become_recorded"],
        help_heading = "What to do"
    )]
    pub replay: Option<PathBuf>,
    /// Show what is in the recording in this folder
    #[arg(
        long,
        value_name = "DIR",
        group = "action",
        conflicts_with_all = ["check", "become_recorded"],
        help_heading = "What to do"
    )]
    pub show: Option<PathBuf>,
    /// Say whether a program can be recorded, and which of the functions that it imports are not
    /// covered
    #[arg(
        long,
        value_name = "PROGRAM",
        group = "action",
        conflicts_with = "become_recorded",
        help_heading = "What to do"
    )]
    pub check: Option<OsString>,
    /// What a debugger's wrapper runs: becomes the recorded program
    #[arg(long = "become", value_name = "DIR", group = "action", hide = true)]
    pub become_recorded: Option<PathBuf>,
    /// What a debugger runs when it is to go elsewhere
    #[arg(long, value_name = "THREAD:EVENT", group = "action", hide = true)]
    pub aim: Option<LogicalTime>,
    /// How many of the nearest checkpoints are passed over
    #[arg(
        long,
        value_name = "N",
        default_value_t = 0,
        requires = "aim",
        hide = true
    )]
    pub pass_over: u32,

    /// Which order of acquisitions is recorded, and enforced in replay
    #[arg(
        long,
        value_enum,
        default_value = "edge",
        conflicts_with_all = ["replay", "show", "check"],
        help_heading = "Recording"
    )]
    pub order: Order,
    /// Run one thread at a time and change threads at calls: replays programs whose threads share
    /// memory without locks, at the price of running them side by side
    #[arg(
        long,
        conflicts_with_all = ["follow", "replay", "show", "check"],
        help_heading = "Recording"
    )]
    pub one_at_a_time: bool,
    /// A higher interface to cut at: libc (always), sqlite3, mpi, or an annotated header of your
    /// own; may be given more than once
    #[arg(
        long = "interface",
        value_name = "NAME|PATH.h",
        conflicts_with_all = ["replay", "show"],
        help_heading = "Recording"
    )]
    pub interfaces: Vec<Interface>,
    /// What to do with a system call that no annotation covers
    #[arg(
        long,
        value_enum,
        default_value = "record",
        conflicts_with_all = ["replay", "show", "check"],
        help_heading = "Recording"
    )]
    pub policy: Policy,
    /// Leave out of the log what can be had otherwise: cache, reproduce or reproduce=FOLDER
    #[arg(
        long,
        value_name = "WHAT,WHAT",
        value_delimiter = ',',
        conflicts_with_all = ["replay", "show", "check"],
        help_heading = "Recording"
    )]
    pub optimize: Vec<Optimization>,
    /// How instructions are recorded that answer differently on every run
    #[arg(
        long,
        value_enum,
        default_value = "faulting",
        conflicts_with_all = ["replay", "show", "check"],
        hide = true
    )]
    pub instructions: Instructions,

    /// How a thread waits for its turn
    #[arg(
        long,
        value_enum,
        default_value = "adaptive",
        conflicts_with_all = ["record", "show", "check"],
        help_heading = "Replaying"
    )]
    pub waiting: Waiting,
    /// Give up when no thread has moved for this long
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = super::span, conflicts_with_all = ["record", "show", "check"], help_heading = "Replaying")]
    pub stall_timeout: Duration,
    /// Replay under gdb; what follows -- is for gdb
    #[arg(long, conflicts_with_all = ["record", "show", "check"], help_heading = "Replaying")]
    pub gdb: bool,
    /// Run to just before this event of this thread and stop there, e.g. 2:1234
    #[arg(
        long = "break",
        value_name = "THREAD:EVENT",
        requires = "gdb",
        help_heading = "Replaying"
    )]
    pub break_at: Option<LogicalTime>,
    /// Begin at the nearest checkpoint before this event of this thread, and with --gdb stop there
    #[arg(
        long,
        value_name = "THREAD:EVENT",
        requires = "replay",
        conflicts_with = "break_at",
        help_heading = "Replaying"
    )]
    pub at: Option<LogicalTime>,
    /// Take a checkpoint this often, for --at
    #[arg(
        long,
        value_name = "TIME",
        value_parser = super::span,
        requires = "replay",
        conflicts_with = "gdb",
        help_heading = "Replaying"
    )]
    pub checkpoint_every: Option<Duration>,

    /// Only this thread
    #[arg(long, value_name = "N", conflicts_with_all = ["record", "replay", "check"], help_heading = "Showing")]
    pub thread: Option<u32>,
    /// One event per line
    #[arg(long, conflicts_with_all = ["record", "replay", "check"], help_heading = "Showing")]
    pub events: bool,
    /// Print JSON; with --events one object per line
    #[arg(long, conflicts_with_all = ["record", "replay"])]
    pub json: bool,

    /// The program to record and its arguments; with --gdb, arguments for gdb
    #[arg(last = true, value_name = "PROGRAM")]
    pub command: Vec<OsString>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Order {
    /// Where a lock changes hands: its previous owner. No counter is shared
    Edge,
    /// The relaxed total order: a vector clock where a lock changes hands
    Relaxed,
    /// A ticket from one counter at every acquisition
    Total,
    /// A vector clock at every acquisition
    Vector,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Policy {
    /// Record it by its number, as if it were annotated
    Record,
    /// Record it, and name it at the end with the place that it comes from
    Report,
    /// End the program with a report
    Abort,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Instructions {
    /// Not at all
    Free,
    /// Traps are put in their place, on every processor
    Replaced,
    /// As well, cpuid faults where the processor can do that
    Faulting,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Waiting {
    /// Spins for a while, then sleeps
    Adaptive,
    Spin,
    Wait,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Interface {
    Libc,
    Sqlite3,
    Mpi,
    Header(PathBuf),
}

impl FromStr for Interface {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "libc" => Ok(Interface::Libc),
            "sqlite3" => Ok(Interface::Sqlite3),
            "mpi" => Ok(Interface::Mpi),
            header if header.ends_with(".h") => Ok(Interface::Header(header.into())),
            other => Err(format!(
                "{other:?} is neither libc, sqlite3, mpi, nor a header PATH.h"
            )),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Optimization {
    /// A status that repeats is not logged again
    Cache,
    /// Files are read again in replay instead of logged: all that were there before, or those below
    /// a folder
    Reproduce(PathBuf),
}

impl FromStr for Optimization {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('=') {
            None if text == "cache" => Ok(Optimization::Cache),
            None if text == "reproduce" => Ok(Optimization::Reproduce("/".into())),
            Some(("reproduce", folder)) if !folder.is_empty() => {
                Ok(Optimization::Reproduce(folder.into()))
            }
            _ => Err(format!(
                "{text:?} is neither cache, reproduce, nor reproduce=FOLDER"
            )),
        }
    }
}

/// A moment of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogicalTime {
    pub thread: u64,
    pub event: u64,
}

impl FromStr for LogicalTime {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text
            .split_once(':')
            .and_then(|(thread, event)| Some((thread.parse().ok()?, event.parse().ok()?)));
        match parts {
            Some((thread, event)) => Ok(LogicalTime { thread, event }),
            None => Err(format!("{text:?} is not a thread and an event like 2:1234")),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::*;

    #[derive(Parser)]
    #[command(name = "hindcast exec", no_binary_name = true)]
    struct Exec {
        #[command(flatten)]
        args: ExecArgs,
    }

    fn exec(given: &[&str]) -> Result<ExecArgs, String> {
        Exec::try_parse_from(given)
            .map(|exec| exec.args)
            .map_err(|error| error.to_string().lines().next().unwrap_or_default().into())
    }

    #[test]
    fn one_thing_at_a_time() {
        Exec::command().debug_assert();
        let record = exec(&[
            "--record=d",
            "--order=relaxed",
            "--interface=libc",
            "--interface=./mine.h",
            "--optimize=cache,reproduce=/usr/share",
            "--",
            "grep",
            "-r",
            "--color",
            "x",
        ])
        .unwrap();
        assert_eq!(record.command, ["grep", "-r", "--color", "x"]);
        assert_eq!(
            record.interfaces,
            [Interface::Libc, Interface::Header("./mine.h".into())]
        );
        assert_eq!(
            record.optimize,
            [
                Optimization::Cache,
                Optimization::Reproduce("/usr/share".into())
            ]
        );
        let replay = exec(&["--replay=d", "--gdb", "--break=2:1234", "--", "-batch"]).unwrap();
        assert_eq!(
            replay.break_at,
            Some(LogicalTime {
                thread: 2,
                event: 1234
            })
        );
        assert_eq!(replay.stall_timeout, Duration::from_secs(10));
        assert!(exec(&["--show=d", "--events", "--json", "--thread=2"]).is_ok());
        assert!(exec(&["--check=./prog", "--interface=sqlite3", "--json"]).is_ok());
    }

    #[test]
    fn what_cannot_go_together_is_refused() {
        for given in [
            &[][..],
            &["--record=d"],
            &["--record=d", "--replay=d", "--", "true"],
            &["--replay=d", "--order=edge"],
            &["--replay=d", "--break=1:2"],
            &["--replay=d", "--gdb", "--break=one"],
            &["--record=d", "--events", "--", "true"],
            &["--record=d", "--interface=mysql", "--", "true"],
            &["--record=d", "--optimize=speed", "--", "true"],
            &["--show=d", "--stall-timeout=3"],
        ] {
            assert!(exec(given).is_err(), "{given:?}");
        }
    }
}
