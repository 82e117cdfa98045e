//! How requests reach a service: by TCP, or by the Unix socket that it listens on.

use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::BoxFuture;
use hindcast_gateway::http::ServiceUrl;
use hindcast_taplog::board::Line;
use http::Uri;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_rustls::{FixedServerNameResolver, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;
use rustls_pki_types::ServerName;
use tokio::net::{TcpSocket, TcpStream, UnixSocket, UnixStream};
use tower_service::Service;

use crate::guests::Made;
use crate::pins::Pins;
use crate::place::Place;

/// How long to wait for room in the queue of a Unix socket, which says at once that it is full.
const FULL_PAUSE: Duration = Duration::from_millis(2);

/// How often another port is tried where one is taken.
const PORTS_TRIED: u32 = 16;

/// How often another port is tried where each process has a listener of its own, of which the
/// kernel chooses one by the ports.
const LISTENERS_TRIED: u32 = 64;

/// Speaks TLS where a request came encrypted. `pins`: of a service that is to see who its clients
/// were.
pub fn connector(to: &Place, pins: Option<&Pins>) -> HttpsConnector<Connector> {
    let authority = to.authority();
    let (host, _) = authority.rsplit_once(':').unwrap_or((&authority, ""));
    let host = host.trim_matches(['[', ']']).to_owned();
    let name = ServerName::try_from(host).unwrap_or_else(|_| {
        let localhost = std::net::Ipv4Addr::LOCALHOST;
        ServerName::IpAddress(std::net::IpAddr::from(localhost).into())
    });
    HttpsConnectorBuilder::new()
        .with_tls_config(hindcast_pg::trusting_config())
        .https_or_http()
        // It is not in the address where that says who the client is.
        .with_server_name_resolver(FixedServerNameResolver::new(name))
        .enable_http1()
        .wrap_connector(Connector {
            to: to.clone(),
            pins: pins.cloned(),
        })
}

/// Whose connection it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Client {
    /// What the service is to see at the other end.
    pub address: SocketAddr,
    /// The process of the recording that had accepted it, if that matters.
    pub came_by: Option<u64>,
}

impl Client {
    /// What stands in a request's address in place of the service's, so that each client has
    /// connections of its own: `c`, all of the client's address and the process in hexadecimal
    /// digits.
    pub fn authority(self) -> String {
        let ip = match self.address.ip() {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        let client = format!("c{:032x}{:04x}", ip.to_bits(), self.address.port());
        match self.came_by {
            Some(process) => format!("{client}{process:016x}"),
            None => client,
        }
    }

    fn of(to: &Uri) -> Option<Self> {
        let digits = to.host()?.strip_prefix('c')?;
        let (ip, digits) = digits.split_at_checked(32)?;
        let (port, process) = digits.split_at_checked(4)?;
        let ip = Ipv6Addr::from_bits(u128::from_str_radix(ip, 16).ok()?);
        let port = u16::from_str_radix(port, 16).ok()?;
        Some(Self {
            address: SocketAddr::new(ip.to_canonical(), port),
            came_by: u64::from_str_radix(process, 16).ok(),
        })
    }
}

#[derive(Clone)]
pub struct Connector {
    to: Place,
    pins: Option<Pins>,
}

impl Service<Uri> for Connector {
    type Response = Stream;
    type Error = Box<dyn std::error::Error + Send + Sync>;
    type Future = BoxFuture<'static, Result<Stream, Self::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, to: Uri) -> Self::Future {
        let shown = self.pins.clone().zip(Client::of(&to));
        let place = self.to.clone();
        Box::pin(async move {
            Ok(match &place {
                Place::Tcp(url) => Stream::Tcp(TokioIo::new(connect_as(url, shown).await?)),
                Place::Unix(name) => {
                    let (stream, _) = connect_by_name(name).await?;
                    Stream::Unix(TokioIo::new(stream))
                }
            })
        })
    }
}

/// Connects to a service that is to see this client at the other end.
pub async fn connect_as(url: &ServiceUrl, shown: Option<(Pins, Client)>) -> io::Result<TcpStream> {
    let Some((pins, client)) = shown else {
        return url.connect().await;
    };
    let host = url.authority().host().trim_matches(['[', ']']);
    let port = url.authority().port_u16().unwrap_or(80);
    let found = tokio::net::lookup_host((host, port)).await?.next();
    // What is on another machine has no tap of ours.
    let Some(to) = found.filter(|to| to.ip().is_loopback()) else {
        return url.connect().await;
    };
    let mut tried = 0;
    loop {
        tried += 1;
        // The service may ask as soon as it has accepted, so the port has to be known before that.
        let socket = match to {
            SocketAddr::V4(_) => TcpSocket::new_v4()?,
            SocketAddr::V6(_) => TcpSocket::new_v6()?,
        };
        socket.set_reuseaddr(true)?;
        socket.bind(SocketAddr::new(to.ip(), 0))?;
        let line = Line::of_ports(socket.local_addr()?.port(), port);
        if let Some(line) = line {
            pins.shows(line, client.address);
        }
        let connected = match line.zip(client.came_by) {
            Some((line, by)) => pins.connects_to(by, line, socket.connect(to)).await,
            None => socket.connect(to).await.map(Made::Settled),
        };
        match connected {
            Ok(Made::Elsewhere(_)) if tried < LISTENERS_TRIED => {}
            Ok(Made::Settled(stream) | Made::Elsewhere(stream)) => {
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            Err(error)
                if error.kind() == io::ErrorKind::AddrNotAvailable && tried < PORTS_TRIED => {}
            Err(error) => return Err(error),
        }
    }
}

pub enum Stream {
    Tcp(TokioIo<TcpStream>),
    Unix(TokioIo<UnixStream>),
}

impl Connection for Stream {
    fn connected(&self) -> Connected {
        match self {
            Self::Tcp(stream) => stream.connected(),
            Self::Unix(_) => Connected::new(),
        }
    }
}

impl Read for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_read(cx, into),
            Self::Unix(stream) => Pin::new(stream).poll_read(cx, into),
        }
    }
}

impl Write for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_write(cx, bytes),
            Self::Unix(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_flush(cx),
            Self::Unix(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Unix(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

/// Both ends of a Unix socket know it by the name of the one that connected, which the kernel
/// gives.
pub async fn connect_by_name(name: &str) -> io::Result<(UnixStream, Option<Line>)> {
    loop {
        let socket = UnixSocket::new_stream()?;
        socket.bind("")?;
        match socket.connect(format!("\0{name}")).await {
            Ok(stream) => {
                let ours = stream.local_addr()?;
                let line = ours.as_abstract_name().and_then(Line::of_name);
                return Ok((stream, line));
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                tokio::time::sleep(FULL_PAUSE).await;
            }
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_told_by_the_address_of_a_request() {
        for client in ["127.0.0.1:40312", "[2001:db8::1]:1", "10.0.0.7:65535"] {
            for came_by in [None, Some(0), Some(1 << 32 | 4711)] {
                let address = client.parse().unwrap();
                let client = Client { address, came_by };
                let uri = format!("http://{}/a", client.authority());
                assert_eq!(Client::of(&uri.parse().unwrap()), Some(client));
            }
        }
        for other in ["http://127.0.0.1:8000/", "http://cafe/", "http://[::1]/"] {
            assert_eq!(Client::of(&other.parse().unwrap()), None, "{other}");
        }
    }
}
