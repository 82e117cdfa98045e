//! Where the gateway listens, for either protocol.

use std::io;
use std::net::SocketAddr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hindcast_pg::ListenAddress;
use hindcast_pg::tokio::Stream;
use hindcast_taplog::board::Line;
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

#[derive(Debug, thiserror::Error)]
pub enum BindError {
    #[error("{address} is in use by another process")]
    InUse { address: ListenAddress },
    #[error("no permission to listen on {address}")]
    Denied { address: ListenAddress },
    #[error("cannot listen on {address}")]
    Other {
        address: ListenAddress,
        source: io::Error,
    },
}

/// A bound socket. A unix socket's file goes when this goes.
#[derive(Debug)]
pub enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener, PathBuf),
}

impl Listener {
    pub async fn bind(address: &ListenAddress) -> Result<Self, BindError> {
        let bound = match address {
            ListenAddress::Tcp { host, port } => TcpListener::bind((host.as_str(), *port))
                .await
                .map(Self::Tcp),
            ListenAddress::Unix(path) => {
                bind_unix(path).map(|listener| Self::Unix(listener, path.clone()))
            }
        };
        bound.map_err(|source| match source.kind() {
            io::ErrorKind::AddrInUse => BindError::InUse {
                address: address.clone(),
            },
            io::ErrorKind::PermissionDenied => BindError::Denied {
                address: address.clone(),
            },
            _ => BindError::Other {
                address: address.clone(),
                source,
            },
        })
    }

    /// Where it really listens: the port is known even if 0 was asked for.
    pub fn address(&self) -> ListenAddress {
        match self {
            Self::Tcp(listener) => match listener.local_addr() {
                Ok(address) => ListenAddress::Tcp {
                    host: address.ip().to_string(),
                    port: address.port(),
                },
                Err(_) => ListenAddress::on_this_machine(0),
            },
            Self::Unix(_, path) => ListenAddress::Unix(path.clone()),
        }
    }
}

/// Bound sockets, at one of which a client finds what it finds at each.
#[derive(Debug)]
pub struct Listeners(pub(crate) Vec<Listener>);

/// How long to stop accepting when the process has run out of descriptors.
pub(crate) const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// An accepted connection that no runtime has registered yet: it is served on a runtime that is
/// chosen later.
pub enum Accepted {
    Tcp(std::net::TcpStream, SocketAddr, Option<Line>),
    /// With the name that its other end has from the kernel, if it asked for one.
    Unix(std::os::unix::net::UnixStream, Option<Line>),
}

impl Listener {
    pub async fn accept(&self) -> io::Result<Accepted> {
        Ok(match self {
            Self::Tcp(listener) => {
                let (stream, peer) = listener.accept().await?;
                let line = Line::of_ports(peer.port(), stream.local_addr()?.port());
                Accepted::Tcp(stream.into_std()?, peer, line)
            }
            Self::Unix(listener, _) => {
                let stream = listener.accept().await?.0.into_std()?;
                let peer = stream.peer_addr()?;
                let line = peer.as_abstract_name().and_then(Line::of_name);
                Accepted::Unix(stream, line)
            }
        })
    }
}

impl Accepted {
    /// Where the connection stands on the board of a service whose tap made it.
    pub fn line(&self) -> Option<Line> {
        match self {
            Self::Tcp(_, _, line) | Self::Unix(_, line) => *line,
        }
    }

    /// On the current runtime; says also where the client came from.
    pub fn register(self) -> io::Result<(Stream, String)> {
        Ok(match self {
            Accepted::Tcp(stream, peer, _) => {
                let stream = TcpStream::from_std(stream)?;
                Stream::tune(&stream);
                (Stream::Tcp(stream), peer.to_string())
            }
            Accepted::Unix(stream, _) => (
                Stream::Unix(UnixStream::from_std(stream)?),
                "unix".to_owned(),
            ),
        })
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Self::Unix(_, path) = self {
            let _ = std::fs::remove_file(path);
        }
    }
}

fn bind_unix(path: &Path) -> io::Result<UnixListener> {
    let listener = bind_unix_anew(path)?;
    // As Postgres does: who may do what is for the server to decide, not for our umask.
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o777))?;
    Ok(listener)
}

fn bind_unix_anew(path: &Path) -> io::Result<UnixListener> {
    match UnixListener::bind(path) {
        // The file outlives a process that was killed. If there is no answer, it is such a
        // leftover.
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            match std::os::unix::net::UnixStream::connect(path) {
                Err(refused) if refused.kind() == io::ErrorKind::ConnectionRefused => {
                    std::fs::remove_file(path)?;
                    UnixListener::bind(path)
                }
                _ => Err(error),
            }
        }
        bound => bound,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_socket_left_behind_is_taken_over_and_a_live_one_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let address = ListenAddress::Unix(folder.path().join("socket"));
        let ListenAddress::Unix(path) = &address else {
            unreachable!()
        };
        drop(std::os::unix::net::UnixListener::bind(path).unwrap());
        assert!(path.exists(), "std leaves the file behind");
        let listener = Listener::bind(&address).await.unwrap();
        assert!(matches!(
            Listener::bind(&address).await,
            Err(BindError::InUse { .. })
        ));
        drop(listener);
        assert!(!path.exists());
    }
}
