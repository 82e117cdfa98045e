//! The beginning of a conversation with a backup.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpStream, ToSocketAddrs as _};
use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

use crate::channel::{Channel, Side, wait};
use crate::error::ProtectError;
use crate::key::Key;
use crate::message::{ToBackup, ToPrimary, VERSION};
use crate::network::Address;

/// What is said of a program.
#[derive(Clone, Debug)]
pub struct Introduction {
    /// The backup: host and port.
    pub to: String,
    pub key: Option<Key>,
    pub address: Address,
    /// It runs already.
    pub runs: bool,
    /// Files of the recording that were there before it ran.
    pub files: Vec<(String, Vec<u8>)>,
    /// Where its log begins: the number of a checkpoint, and what that is of.
    pub checkpoint: Option<(u64, Vec<u8>)>,
}

/// Says what is to be followed, and hears whether the backup can. The address of this end.
pub fn introduce(what: Introduction) -> Result<(Channel, Ipv4Addr), ProtectError> {
    let to = &what.to;
    let unreachable = |source| ProtectError::Unreachable {
        to: to.clone(),
        source,
    };
    let mut addresses = to.to_socket_addrs().map_err(unreachable)?;
    let address = addresses.find(SocketAddr::is_ipv4);
    let address = address.ok_or_else(|| unreachable(io::ErrorKind::NotFound.into()))?;
    let stream =
        TcpStream::connect_timeout(&address, Duration::from_secs(5)).map_err(unreachable)?;
    let local = match stream.local_addr().map_err(unreachable)? {
        SocketAddr::V4(local) => *local.ip(),
        SocketAddr::V6(_) => return Err(unreachable(io::ErrorKind::Unsupported.into())),
    };
    let mut channel =
        Channel::new(stream, what.key.as_ref(), Side::Connects).map_err(unreachable)?;
    channel.put(&ToBackup::Hello {
        version: VERSION,
        runs: what.runs,
        files: what.files,
        checkpoint: what.checkpoint,
        address: what.address.to_string(),
    });
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        channel.flush().map_err(unreachable)?;
        wait(&[channel.as_fd()], Duration::from_millis(10));
        let filled = channel.fill();
        let said = channel.take::<ToPrimary>();
        match said.map_err(|_| ProtectError::OtherVersion { to: to.clone() })? {
            Some(ToPrimary::Ready) => return Ok((channel, local)),
            Some(ToPrimary::Refused { why, hint }) => {
                return Err(ProtectError::Refused {
                    to: to.clone(),
                    why,
                    hint,
                });
            }
            Some(_) => return Err(ProtectError::OtherVersion { to: to.clone() }),
            None if filled.is_err() => return Err(ProtectError::OtherKey { to: to.clone() }),
            None if Instant::now() > deadline => {
                return Err(unreachable(io::ErrorKind::TimedOut.into()));
            }
            None => {}
        }
    }
}
