//! Opening a connection: address, encryption, login.

use std::io;
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use rustls_pki_types::ServerName;

use super::Connection;
use super::transport::Transport;
use crate::error::{AttemptError, ConnectError, Error};
use crate::handshake::{self, ConnectOptions};
use crate::tls::client_config;
use crate::url::{Address, DatabaseUrl, SslMode};

pub(crate) fn connect(
    url: &DatabaseUrl,
    options: &ConnectOptions,
) -> Result<Connection, ConnectError> {
    let mut attempts = Vec::new();
    for address in &url.addresses {
        match attempt(url, address, options) {
            Ok(connection) => return Ok(connection),
            Err(error) => attempts.push((address.clone(), error)),
        }
    }
    Err(ConnectError { attempts })
}

fn attempt(
    url: &DatabaseUrl,
    address: &Address,
    options: &ConnectOptions,
) -> Result<Connection, AttemptError> {
    let patience = url.connect_timeout;
    let deadline = Instant::now() + patience;
    let opened = open(url, address, patience)?;
    let mut connection =
        Connection::new(opened, url.clone(), address.clone()).map_err(AttemptError::Session)?;
    connection
        .log_in(url, address, options, deadline)
        .map_err(|error| match error {
            AttemptError::Session(Error::Timeout(_)) => AttemptError::Timeout(patience.as_secs()),
            error => error,
        })?;
    Ok(connection)
}

/// A socket on which nothing but an agreement about encryption was said.
pub(crate) struct Opened {
    pub transport: Transport,
    /// How long the network took for the first round trip; nothing on a Unix socket.
    pub round_trip: Option<Duration>,
}

pub(crate) fn open(
    url: &DatabaseUrl,
    address: &Address,
    patience: Duration,
) -> Result<Opened, AttemptError> {
    let (host, port) = match address {
        Address::Unix(path) => {
            return Ok(Opened {
                transport: Transport::Unix(UnixStream::connect(path)?),
                round_trip: None,
            });
        }
        Address::Tcp { host, port } => (host, *port),
    };
    let (stream, round_trip) = connect_tcp(host, port, patience)?;
    let transport = match client_config(url)? {
        None => Transport::Tcp(stream),
        Some(config) => encrypt(stream, host, &config, url.ssl_mode)?,
    };
    Ok(Opened {
        transport,
        round_trip: Some(round_trip),
    })
}

fn connect_tcp(
    host: &str,
    port: u16,
    patience: Duration,
) -> Result<(TcpStream, Duration), AttemptError> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    for address in (host, port).to_socket_addrs()? {
        let began = Instant::now();
        match TcpStream::connect_timeout(&address, patience) {
            Ok(stream) => {
                let round_trip = began.elapsed();
                stream.set_nodelay(true)?;
                // A peer that vanished without a word is noticed within two minutes.
                let keepalive = socket2::TcpKeepalive::new()
                    .with_time(Duration::from_secs(30))
                    .with_interval(Duration::from_secs(10));
                socket2::SockRef::from(&stream).set_tcp_keepalive(&keepalive)?;
                return Ok((stream, round_trip));
            }
            Err(error) => last = error,
        }
    }
    match last.kind() {
        io::ErrorKind::TimedOut => Err(AttemptError::Timeout(patience.as_secs())),
        _ => Err(last.into()),
    }
}

fn encrypt(
    mut stream: TcpStream,
    host: &str,
    config: &Arc<ClientConfig>,
    mode: SslMode,
) -> Result<Transport, AttemptError> {
    use std::io::{Read, Write};
    let mut request = BytesMut::new();
    handshake::ssl_request(&mut request);
    stream.write_all(&request)?;
    let mut answer = [0];
    stream.read_exact(&mut answer)?;
    if !handshake::ssl_answer(answer[0], mode)? {
        return Ok(Transport::Tcp(stream));
    }
    let name =
        ServerName::try_from(host.to_owned()).map_err(|_| AttemptError::Name(host.to_owned()))?;
    let mut session =
        ClientConnection::new(Arc::clone(config), name).map_err(AttemptError::Handshake)?;
    while session.is_handshaking() {
        let done = session.complete_io(&mut stream);
        done.map_err(AttemptError::from_handshake)?;
    }
    Ok(Transport::Tls(Box::new(StreamOwned::new(session, stream))))
}
