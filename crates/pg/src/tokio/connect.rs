//! Reaching the servers of a URL: address, encryption, login.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::BytesMut;
use hindcast_wire::frame::{self, Direction};
use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;

use super::Client;
use super::stream::Stream;
use crate::error::{AttemptError, ConnectError, Error};
use crate::handshake::{self, ConnectOptions, Handshake, Session};
use crate::tls::{TlsError, client_config};
use crate::url::{Address, DatabaseUrl};

/// Reaches the servers of a URL. Keeps what connecting needs each time: the certificates, and which
/// server answered last.
#[derive(Debug)]
pub struct Connector {
    url: DatabaseUrl,
    tls: Option<Arc<ClientConfig>>,
    /// Which address answered last: it is tried first.
    preferred: AtomicUsize,
}

/// A connection that is logged in and ready for its first query.
#[derive(Debug)]
pub struct Opened {
    pub stream: Stream,
    pub session: Session,
}

impl Connector {
    pub fn new(url: DatabaseUrl) -> Result<Self, TlsError> {
        let tls = client_config(&url)?;
        Ok(Self {
            url,
            tls,
            preferred: AtomicUsize::new(0),
        })
    }

    pub fn url(&self) -> &DatabaseUrl {
        &self.url
    }

    /// A connection that is ready for a `StartupMessage`, and the index of the address that it goes
    /// to.
    pub async fn connect(&self) -> Result<(Stream, usize), ConnectError> {
        let (opened, at) = self.first_of_all(None).await?;
        Ok((opened.stream, at))
    }

    /// Like [`Connector::connect`], to one of the addresses.
    pub async fn connect_to(&self, at: usize) -> Result<Stream, AttemptError> {
        Ok(self.attempt(at, None).await?.stream)
    }

    /// A connection that is logged in.
    pub async fn open(&self, options: &ConnectOptions) -> Result<Opened, ConnectError> {
        Ok(self.first_of_all(Some(options)).await?.0)
    }

    /// A session of our own.
    pub async fn client(&self, options: &ConnectOptions) -> Result<Client, ConnectError> {
        Ok(Client::new(self.open(options).await?))
    }

    async fn first_of_all(
        &self,
        options: Option<&ConnectOptions>,
    ) -> Result<(Opened, usize), ConnectError> {
        let count = self.url.addresses.len();
        let first = self.preferred.load(Ordering::Relaxed);
        let mut attempts = Vec::new();
        for at in (0..count).map(|offset| (first + offset) % count) {
            match self.attempt(at, options).await {
                Ok(opened) => {
                    self.preferred.store(at, Ordering::Relaxed);
                    return Ok((opened, at));
                }
                Err(error) => attempts.push((self.url.addresses[at].clone(), error)),
            }
        }
        Err(ConnectError { attempts })
    }

    /// Without options nobody logs in.
    async fn attempt(
        &self,
        at: usize,
        options: Option<&ConnectOptions>,
    ) -> Result<Opened, AttemptError> {
        let address = &self.url.addresses[at];
        let attempt = async {
            let stream = self.reach(address).await?;
            match options {
                Some(options) => self.log_in(stream, address, options).await,
                None => Ok(Opened {
                    stream,
                    session: Session::default(),
                }),
            }
        };
        let patience = self.url.connect_timeout;
        tokio::time::timeout(patience, attempt)
            .await
            .unwrap_or(Err(AttemptError::Timeout(patience.as_secs())))
    }

    async fn reach(&self, address: &Address) -> Result<Stream, AttemptError> {
        let (host, port) = match address {
            Address::Unix(path) => return Ok(Stream::Unix(UnixStream::connect(path).await?)),
            Address::Tcp { host, port } => (host, *port),
        };
        let mut stream = TcpStream::connect((host.as_str(), port)).await?;
        Stream::tune(&stream);
        let Some(config) = &self.tls else {
            return Ok(Stream::Tcp(stream));
        };
        let mut request = BytesMut::new();
        handshake::ssl_request(&mut request);
        stream.write_all(&request).await?;
        if !handshake::ssl_answer(stream.read_u8().await?, self.url.ssl_mode)? {
            return Ok(Stream::Tcp(stream));
        }
        let name =
            ServerName::try_from(host.clone()).map_err(|_| AttemptError::Name(host.clone()))?;
        let stream = TlsConnector::from(Arc::clone(config))
            .connect(name, stream)
            .await
            .map_err(AttemptError::from_handshake)?;
        Ok(Stream::Tls(Box::new(stream.into())))
    }

    async fn log_in(
        &self,
        mut stream: Stream,
        address: &Address,
        options: &ConnectOptions,
    ) -> Result<Opened, AttemptError> {
        let (mut input, mut output) = (BytesMut::new(), BytesMut::new());
        let certificate = stream.peer_certificate();
        let mut login = Handshake::begin(&self.url, address, options, certificate, &mut output)?;
        loop {
            stream.write_all_buf(&mut output).await?;
            stream.flush().await?;
            let split = frame::split(Direction::FromServer, &mut input);
            let split = split.map_err(|error| Error::Protocol(error.to_string()));
            let Some(message) = split.map_err(AttemptError::Session)? else {
                if stream.read_buf(&mut input).await? == 0 {
                    return Err(AttemptError::Session(Error::Closed));
                }
                continue;
            };
            if let Some(session) = login.on_message(message.tag(), message.body(), &mut output)? {
                // The server says nothing more before it is asked something.
                debug_assert!(input.is_empty());
                return Ok(Opened { stream, session });
            }
        }
    }
}
