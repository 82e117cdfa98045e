//! Asks a backup, or a machine on which a program runs, what it says of itself, or for a backup.

use std::net::TcpStream;
use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

use crate::ProtectError;
use crate::channel::{Channel, Side, wait};
use crate::key::Key;
use crate::message::{Progress, Status, ToBackup, ToPrimary};

/// A conversation in which one thing is asked.
struct Asked {
    at: String,
    channel: Channel,
}

impl Asked {
    fn new(at: &str, key: Option<&Key>, what: &ToBackup) -> Result<Asked, ProtectError> {
        let silent = |source| ProtectError::Silent {
            at: at.to_owned(),
            source,
        };
        let stream = TcpStream::connect(at).map_err(silent)?;
        let mut channel = Channel::new(stream, key, Side::Connects).map_err(silent)?;
        channel.put(what);
        Ok(Asked {
            at: at.to_owned(),
            channel,
        })
    }

    /// The next that is said, within a time.
    fn hear(&mut self, within: Duration) -> Result<ToPrimary, ProtectError> {
        let at = || self.at.clone();
        let silent = |source| ProtectError::Silent { at: at(), source };
        let deadline = Instant::now() + within;
        while Instant::now() < deadline {
            self.channel.flush().map_err(silent)?;
            wait(&[self.channel.as_fd()], Duration::from_millis(10));
            let filled = self.channel.fill();
            match self.channel.take::<ToPrimary>() {
                Ok(Some(said)) => return Ok(said),
                Err(_) => return Err(ProtectError::OtherVersion { to: at() }),
                Ok(None) if filled.is_err() => return Err(ProtectError::OtherKey { to: at() }),
                Ok(None) => {}
            }
        }
        Err(silent(std::io::ErrorKind::TimedOut.into()))
    }
}

/// Asks for the status.
pub fn ask(at: &str, key: Option<&Key>) -> Result<Status, ProtectError> {
    let mut asked = Asked::new(at, key, &ToBackup::Status)?;
    match asked.hear(Duration::from_secs(5))? {
        ToPrimary::Status(status) => Ok(status),
        _ => Err(ProtectError::OtherVersion { to: at.to_owned() }),
    }
}

/// Has the program that runs `at` a machine without protection protected by the backup `to`, and
/// waits until it is.
pub fn attach(
    at: &str,
    to: &str,
    key: Option<&Key>,
    say: &mut dyn FnMut(Progress),
) -> Result<(), ProtectError> {
    let mut asked = Asked::new(at, key, &ToBackup::Attach { to: to.to_owned() })?;
    loop {
        // It speaks twice a second, unless it cannot reach the backup.
        match asked.hear(Duration::from_secs(30))? {
            ToPrimary::CatchesUp(progress) => say(progress),
            ToPrimary::Ready => return Ok(()),
            ToPrimary::Refused { why, hint } => {
                return Err(ProtectError::NotAttached {
                    at: at.to_owned(),
                    why,
                    hint,
                });
            }
            _ => return Err(ProtectError::OtherVersion { to: at.to_owned() }),
        }
    }
}
