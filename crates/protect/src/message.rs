//! What the two ends say to each other.

use serde::{Deserialize, Serialize};

/// Of this crate's messages. Both ends must be the same.
pub const VERSION: u32 = 1;

/// From the primary, or from a client that asks for the status.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToBackup {
    /// A program is about to run.
    Hello {
        version: u32,
        /// Files of the recording that are there before it runs.
        files: Vec<(String, Vec<u8>)>,
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
    Unread(Vec<(std::net::SocketAddrV4, u16, u64)>),
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
    /// Everything up to this mark is here.
    Mark(u64),
    /// The follower is no copy any more: the program runs on unprotected.
    Dropped(String),
    /// This machine goes on in the primary's place, which has to end.
    Replaced,
    Status(Status),
}

/// What a backup says of itself.
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
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// No primary has come yet, or it has gone.
    #[default]
    Waits,
    Follows,
    /// It goes on in the primary's place.
    Leads,
}
