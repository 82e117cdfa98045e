//! What the two ends say to each other.

use std::net::SocketAddrV4;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::book::Entry;

/// Of this crate's messages. Both ends must be the same.
pub const VERSION: u32 = 4;

/// How often a primary says at least that it is there.
pub const ALIVE_EVERY: Duration = Duration::from_millis(20);

/// From the primary, or from a client that asks something.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToBackup {
    /// A program is about to run, or runs already.
    Hello {
        version: u32,
        /// It runs already: its log comes from the beginning, and answers are not held before
        /// [`ToBackup::Holds`].
        runs: bool,
        /// Files of the recording that are there before it runs.
        files: Vec<(String, Vec<u8>)>,
        /// At which checkpoint the follower begins: its number, and what it is of. The log comes
        /// from there on.
        checkpoint: Option<(u64, Vec<u8>)>,
        address: String,
    },
    /// Bytes of a file of the log.
    Bytes {
        name: String,
        offset: u64,
        bytes: Vec<u8>,
    },
    /// The first bytes of a thread's log, whose counts are in it.
    Header { name: String, bytes: Vec<u8> },
    /// The folder of a process and what is in it are this user's and group's from here on, as the
    /// process is.
    Owner {
        process: String,
        user: u32,
        group: u32,
    },
    /// A packet of a client's, whole.
    Came(Vec<u8>),
    /// A packet to a client that begins or ends a connection.
    Goes(Vec<u8>),
    /// Bytes that lie unread in the primary's kernel, of all connections.
    Unread(Vec<(SocketAddrV4, u16, u64)>),
    /// What is known of connections that were there before.
    Entry(Entry),
    /// To a backup that has caught up: from here on answers are held until it has what explains
    /// them. It may take over.
    Holds,
    /// Asks to be told when everything up to here is there.
    Mark(u64),
    /// The primary is there, and has nothing else to say.
    Alive,
    /// The program is lost: take over.
    Lost,
    /// The program has ended by itself.
    Ended,
    /// The program runs on without this backup, which must not take over.
    Leaves,
    /// Somebody wants to know.
    Status,
    /// To a program that runs without protection: this is a backup for it.
    Attach { to: String },
}

/// From the backup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToPrimary {
    /// The program may run.
    Ready,
    /// It cannot be followed here: why, and what to do.
    Refused {
        why: String,
        hint: String,
    },
    /// Everything up to this mark is here; before [`ToBackup::Holds`]: and was replayed.
    Mark(u64),
    /// The follower is no copy any more: the program runs on unprotected.
    Dropped(String),
    /// This machine goes on in the primary's place, which has to end.
    Replaced,
    Status(Status),
    /// To who asked for a backup: it is not as far as the program.
    CatchesUp(Progress),
    /// From a backup that catches up: events replayed.
    Replayed(u64),
    /// A process that the program has started has no copy any more.
    NotCopied,
    /// To [`ToBackup::Alive`]: so is the backup.
    Alive,
}

/// How far a backup is that catches up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// Bytes of the log that were sent, of how many.
    pub sent: u64,
    pub of: u64,
    /// Events that were replayed.
    pub replayed: u64,
}

/// Whether somebody would go on in the place of a program that runs here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Protection {
    /// Nobody would: why a backup cannot be attached, if it cannot.
    Nobody {
        impossible: Option<String>,
    },
    /// A backup catches up.
    CatchesUp {
        backup: String,
        progress: Progress,
    },
    By(String),
}

/// What a backup says of itself, or a machine on which the program runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    pub standing: Standing,
    /// The address that is protected.
    pub address: Option<String>,
    /// The program.
    pub program: Option<String>,
    /// Connections of clients.
    pub connections: u64,
    /// Bytes of log that have arrived.
    pub log_bytes: u64,
    /// Events that the follower has replayed.
    pub events: u64,
    /// Since when the primary was not heard, in milliseconds.
    pub silent_ms: u64,
    /// How long the takeover took, in milliseconds.
    pub took_ms: Option<u64>,
    /// Of a program that runs here.
    pub protection: Option<Protection>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// No primary has come yet, or it has gone.
    #[default]
    Waits,
    Follows,
    /// The program ran before this backup came: it replays what has been, and cannot take over yet.
    CatchesUp,
    /// The program runs here as it was started.
    Runs,
    /// It goes on in the primary's place.
    Leads,
}
