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

use crate::pins::Pins;
use crate::place::Place;

/// How long to wait for room in the queue of a Unix socket, which says at once that it is full.
const FULL_PAUSE: Duration = Duration::from_millis(2);

/// How often another port is tried where one is taken.
const PORTS_TRIED: u32 = 16;

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

/// What stands in a request's address in place of the service's, so that each client has
/// connections of its own: `c` and all of the client's address in hexadecimal digits.
pub fn authority_of(client: SocketAddr) -> String {
    let ip = match client.ip() {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    format!("c{:032x}{:04x}", ip.to_bits(), client.port())
}

fn client_of(to: &Uri) -> Option<SocketAddr> {
    let digits = to.host()?.strip_prefix('c')?;
    let (ip, port) = digits.split_at_checked(32)?;
    let ip = Ipv6Addr::from_bits(u128::from_str_radix(ip, 16).ok()?);
    let port = u16::from_str_radix(port, 16).ok()?;
    Some(SocketAddr::new(ip.to_canonical(), port))
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
        let shown = self.pins.clone().zip(client_of(&to));
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
pub async fn connect_as(
    url: &ServiceUrl,
    shown: Option<(Pins, SocketAddr)>,
) -> io::Result<TcpStream> {
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
        if let Some(line) = Line::of_ports(socket.local_addr()?.port(), port) {
            pins.shows(line, client);
        }
        match socket.connect(to).await {
            Ok(stream) => {
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
            let client: SocketAddr = client.parse().unwrap();
            let uri = format!("http://{}/a", authority_of(client));
            assert_eq!(client_of(&uri.parse().unwrap()), Some(client));
        }
        for other in ["http://127.0.0.1:8000/", "http://cafe/", "http://[::1]/"] {
            assert_eq!(client_of(&other.parse().unwrap()), None, "{other}");
        }
    }
}
