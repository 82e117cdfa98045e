//! Numbers of requests, transactions and sessions.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A recorder's number in the high 16 bits, a sequence number in the low 48.
///
/// Several recorders write into one trace without coordination: each owns a number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Id(pub u64);

impl Id {
    pub fn new(recorder: u16, sequence: u64) -> Self {
        assert!(sequence < 1 << 48, "a recorder numbers at most 2^48 things");
        Self(u64::from(recorder) << 48 | sequence)
    }
    pub fn recorder(self) -> u16 {
        (self.0 >> 48) as u16
    }
    pub fn sequence(self) -> u64 {
        self.0 & ((1 << 48) - 1)
    }
}

/// `17` for recorder 0, `2.17` for recorder 2. `FromStr` reads the same.
impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.recorder() {
            0 => f.pad(&self.sequence().to_string()),
            recorder => f.pad(&format!("{recorder}.{}", self.sequence())),
        }
    }
}

/// A text that is no [`Id`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a number like 17, or 2.17 for the second recorder's")]
pub struct IdError(String);

impl FromStr for Id {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        let (recorder, sequence) = text.split_once('.').unwrap_or(("0", text));
        match (recorder.parse(), sequence.parse()) {
            (Ok(recorder), Ok(sequence)) if sequence < 1 << 48 => Ok(Self::new(recorder, sequence)),
            _ => Err(IdError(text.to_owned())),
        }
    }
}

impl fmt::Debug for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Requests are numbered from 1 in order of arrival.
pub type RequestId = Id;
/// Transactions are numbered from 1 in the order in which they began at this recorder.
pub type TransactionId = Id;
/// Database sessions are numbered from 1 in the order in which they connected.
pub type SessionId = Id;
