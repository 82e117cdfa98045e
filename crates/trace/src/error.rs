//! What can go wrong with a trace, one type per operation.
//!
//! Nothing here is about recording itself: [`Writer::record`](crate::Writer::record) cannot fail.

use std::io;
use std::path::PathBuf;

use crate::KeyId;

/// A trace could not be opened or created.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("there is no trace at {location}")]
    NotATrace { location: String },
    #[error(
        "{what} has format version {found}; this version of hindcast reads up to version {supported}"
    )]
    Newer {
        what: String,
        found: u32,
        supported: u32,
    },
    #[error("{what} is damaged: {reason}")]
    Damaged { what: String, reason: String },
    #[error("the recording in {location} is encrypted for key {needed}")]
    Encrypted { location: String, needed: KeyId },
    #[error(
        "the recording in {location} is encrypted for key {needed}, and the given one is {given}"
    )]
    OtherKey {
        location: String,
        needed: KeyId,
        given: KeyId,
    },
    #[error(
        "the recording in {location} is encrypted, and the given key {needed} is the public one"
    )]
    OnlyPublic { location: String, needed: KeyId },
    #[error("the recording in {location} was begun without encryption")]
    NotEncrypted { location: String },
    #[error("{location}: every recorder number is taken")]
    NoNumberLeft { location: String },
    #[error("a trace in {location} needs a local folder for its write-ahead file")]
    NoWalFolder { location: String },
    #[error("{what}")]
    Io { what: String, source: io::Error },
    #[error("{what}")]
    Store {
        what: String,
        source: object_store::Error,
    },
}

impl OpenError {
    /// What the user can do about it, in one sentence; empty where the error says it all.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::NotATrace { .. } => "check the path; `hindcast record --trace` creates a trace",
            Self::Newer { .. } => {
                "install the version of hindcast that recorded it, or a later one"
            }
            Self::Damaged { .. } => "restore the file from a copy",
            Self::Encrypted { .. } => "name the key file with `--key`, or put it into HINDCAST_KEY",
            Self::OtherKey { .. } => "find the key file with this id: `hindcast key show FILE`",
            Self::OnlyPublic { .. } => {
                "reading takes the secret key, which `hindcast key new` made"
            }
            Self::NotEncrypted { .. } => "record into a new trace, or without a key",
            Self::NoNumberLeft { .. } => "record into a new trace",
            Self::NoWalFolder { .. } => "name one with `--wal-folder`",
            Self::Io { .. } => "",
            Self::Store { .. } => {
                "check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION and AWS_ENDPOINT_URL, and that the bucket exists"
            }
        }
    }
}

/// Part of an opened trace could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error("{what} is damaged: {reason}")]
    Damaged { what: String, reason: String },
    #[error("{what} cannot be read")]
    Parquet {
        what: String,
        source: parquet::errors::ParquetError,
    },
    #[error("{what} was pruned while the recording was being read; open it again")]
    Pruned { what: String },
    #[error("{what}")]
    Io { what: String, source: io::Error },
    #[error("{what}")]
    Store {
        what: String,
        source: object_store::Error,
    },
}

impl From<ReadError> for OpenError {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Damaged { what, reason } => Self::Damaged { what, reason },
            ReadError::Parquet { what, source } => Self::Damaged {
                what,
                reason: source.to_string(),
            },
            ReadError::Pruned { what } => Self::Io {
                what: format!("{what} is gone"),
                source: io::Error::other("it was pruned while the recording was being opened"),
            },
            ReadError::Io { what, source } => Self::Io { what, source },
            ReadError::Store { what, source } => Self::Store { what, source },
        }
    }
}

/// The recording ended, but not everything reached the place where the trace is kept.
#[derive(Debug, thiserror::Error)]
pub enum CloseError {
    /// Nothing is lost: what is missing in the trace is still in the write-ahead files.
    #[error("the end of the recording could not be moved into the trace ({reason}); it is kept in {}", wal_folder.display())]
    NotPublished { wal_folder: PathBuf, reason: String },
    #[error(
        "the end of the recording could not be written ({reason}): {requests} requests and {transactions} transactions are lost"
    )]
    Lost {
        requests: u64,
        transactions: u64,
        reason: String,
    },
    #[error("the recording was closed before")]
    ClosedBefore,
}

/// What was recorded so far is not on disk; the reason is also in the writer's status.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("what was recorded is not on disk: {reason}")]
pub struct NotDurable {
    pub reason: String,
}
