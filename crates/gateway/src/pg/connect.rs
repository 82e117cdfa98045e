//! Connections to the server: those of sessions, of cancel requests, and our own.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use hindcast_pg::{Address, DatabaseUrl, SslMode, TlsError, client_config};
use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;

use super::startup;
use crate::stream::Stream;

/// Why no server of a URL could be reached: one attempt per address.
#[derive(Debug)]
pub struct ConnectError {
    pub attempts: Vec<(Address, AttemptError)>,
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot reach Postgres at ")?;
        for (at, (address, error)) in self.attempts.iter().enumerate() {
            write!(f, "{}{address}: {error}", if at > 0 { "; " } else { "" })?;
        }
        Ok(())
    }
}

impl std::error::Error for ConnectError {}

#[derive(Debug, thiserror::Error)]
pub enum AttemptError {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("no answer within {0} s")]
    Timeout(u64),
    #[error("the server does not offer TLS, but sslmode asks for it")]
    NoTls,
    #[error("not a Postgres server: it answered the question for TLS with byte {0:#04x}")]
    NotPostgres(u8),
    #[error("the TLS handshake failed: {0}")]
    Handshake(#[source] io::Error),
    #[error("`{0}` is not a name that a certificate could be for")]
    Name(String),
}

/// Why a connection of our own could not be made.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error("the server refuses us")]
    Refused(#[source] tokio_postgres::Error),
}

/// Reaches the servers of a URL.
#[derive(Debug)]
pub struct Connector {
    url: DatabaseUrl,
    tls: Option<Arc<ClientConfig>>,
    /// Which address answered last: it is tried first.
    preferred: AtomicUsize,
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

    /// A connection that is ready for a `StartupMessage`, and the index of the address that it goes to.
    pub async fn connect(&self) -> Result<(Stream, usize), ConnectError> {
        let count = self.url.addresses.len();
        let first = self.preferred.load(Ordering::Relaxed);
        let mut attempts = Vec::new();
        for at in (0..count).map(|offset| (first + offset) % count) {
            match self.connect_to(at).await {
                Ok(stream) => {
                    self.preferred.store(at, Ordering::Relaxed);
                    return Ok((stream, at));
                }
                Err(error) => attempts.push((self.url.addresses[at].clone(), error)),
            }
        }
        Err(ConnectError { attempts })
    }

    /// Like [`Connector::connect`], to one of the addresses.
    pub async fn connect_to(&self, at: usize) -> Result<Stream, AttemptError> {
        let patience = self.url.connect_timeout;
        tokio::time::timeout(patience, self.attempt(&self.url.addresses[at]))
            .await
            .unwrap_or(Err(AttemptError::Timeout(patience.as_secs())))
    }

    async fn attempt(&self, address: &Address) -> Result<Stream, AttemptError> {
        let (host, port) = match address {
            Address::Unix(path) => return Ok(Stream::Unix(UnixStream::connect(path).await?)),
            Address::Tcp { host, port } => (host, *port),
        };
        let mut stream = TcpStream::connect((host.as_str(), port)).await?;
        Stream::tune(&stream);
        let Some(config) = &self.tls else {
            return Ok(Stream::Tcp(stream));
        };
        stream.write_all(&startup::ssl_request()).await?;
        match stream.read_u8().await? {
            b'S' => {}
            b'N' if self.url.ssl_mode == SslMode::Prefer => return Ok(Stream::Tcp(stream)),
            b'N' => return Err(AttemptError::NoTls),
            other => return Err(AttemptError::NotPostgres(other)),
        }
        let name =
            ServerName::try_from(host.clone()).map_err(|_| AttemptError::Name(host.clone()))?;
        let stream = TlsConnector::from(Arc::clone(config))
            .connect(name, stream)
            .await;
        Ok(Stream::Tls(Box::new(
            stream.map_err(AttemptError::Handshake)?.into(),
        )))
    }

    /// A connection of our own to the URL's database. `application_name` says what for.
    pub async fn control(
        &self,
        application_name: &str,
    ) -> Result<tokio_postgres::Client, ControlError> {
        let (stream, _) = self.connect().await?;
        let mut config = tokio_postgres::Config::new();
        config
            .user(self.url.user())
            .dbname(self.url.database())
            .application_name(application_name)
            // Already done, if at all.
            .ssl_mode(tokio_postgres::config::SslMode::Disable);
        if let Some(password) = self.url.password() {
            config.password(password);
        }
        for (name, value) in &self.url.others {
            if name == "options" {
                config.options(value);
            }
        }
        let (client, connection) = config
            .connect_raw(stream, tokio_postgres::NoTls)
            .await
            .map_err(ControlError::Refused)?;
        // Ends when the client is dropped. Its error shows up at whoever is waiting for an answer.
        tokio::spawn(async move {
            let _ = connection.await;
        });
        Ok(client)
    }
}
