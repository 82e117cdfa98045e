//! Asks a backup what it says of itself.

use std::net::TcpStream;
use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

use crate::ProtectError;
use crate::channel::{Channel, Side, wait};
use crate::key::Key;
use crate::message::{Status, ToBackup, ToPrimary};

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
