//! What a backup says of itself.

use std::net::TcpStream;
use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::ProtectError;
use crate::channel::{Channel, Side, wait};
use crate::key::Key;
use crate::message::{ToBackup, ToPrimary};

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

/// Asks a backup.
pub fn ask(at: &str, key: Option<&Key>) -> Result<Status, ProtectError> {
    let unreachable = |source| ProtectError::Unreachable {
        to: at.to_owned(),
        source,
    };
    let stream = TcpStream::connect(at).map_err(unreachable)?;
    let mut channel = Channel::new(stream, key, Side::Connects).map_err(unreachable)?;
    channel.put(&ToBackup::Status);
    let deadline = Instant::now() + Duration::from_secs(5);
    loop {
        channel.flush().map_err(unreachable)?;
        wait(&[channel.as_fd()], Duration::from_millis(10));
        let filled = channel.fill();
        match channel.take::<ToPrimary>() {
            Ok(Some(ToPrimary::Status(status))) => return Ok(status),
            Ok(Some(_)) | Err(_) => return Err(ProtectError::OtherVersion { to: at.to_owned() }),
            Ok(None) if filled.is_err() => {
                return Err(ProtectError::OtherKey { to: at.to_owned() });
            }
            Ok(None) => {}
        }
        if Instant::now() > deadline {
            return Err(unreachable(std::io::ErrorKind::TimedOut.into()));
        }
    }
}
