//! Opening a connection: address, encryption, startup, password.

use std::fmt;
use std::io;
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use postgres_protocol::authentication::{md5_hash, sasl};
use postgres_protocol::message::frontend;
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use rustls_pki_types::ServerName;

use crate::connection::Connection;
use crate::error::{Error, ServerError};
use crate::tls::{TlsError, client_config};
use crate::transport::Transport;
use crate::url::{Address, DatabaseUrl, SslMode};

/// What a session is for.
#[derive(Clone, Debug, Default)]
pub struct ConnectOptions {
    /// Ask for a replication session: `START_REPLICATION` and its like work, and simple queries.
    pub replication: bool,
    /// Another database than the URL's.
    pub database: Option<String>,
    /// Settings of the session, `application_name` among them.
    pub settings: Vec<(String, String)>,
}

impl ConnectOptions {
    pub fn named(application_name: &str) -> Self {
        Self {
            settings: vec![("application_name".to_owned(), application_name.to_owned())],
            ..Self::default()
        }
    }

    pub fn set(mut self, name: &str, value: &str) -> Self {
        self.settings.push((name.to_owned(), value.to_owned()));
        self
    }
}

/// Why none of a URL's servers could be used.
#[derive(Debug)]
pub struct ConnectError {
    pub attempts: Vec<(Address, AttemptError)>,
}

impl ConnectError {
    /// The answer of a server that was reached, if one was.
    pub fn server(&self) -> Option<&ServerError> {
        self.attempts.iter().find_map(|(_, error)| match error {
            AttemptError::Session(error) => error.server(),
            _ => None,
        })
    }

    /// Waiting may help: nobody listens, or the server is starting up or full.
    pub fn is_transient(&self) -> bool {
        self.attempts.iter().any(|(_, error)| match error {
            AttemptError::Io(_) | AttemptError::Timeout(_) => true,
            AttemptError::Session(error) => error
                .server()
                .is_none_or(|error| error.code.starts_with("57P") || error.code.starts_with("53")),
            _ => false,
        })
    }

    /// What to do about it.
    pub fn hint(&self) -> String {
        let code = self.server().map(|error| error.code.as_str());
        match code {
            Some("28P01" | "28000") => "check user and password of the URL, and the server's pg_hba.conf \
                (replication sessions need a line of their own there: database `replication` for physical ones, the database itself for logical ones)"
                .to_owned(),
            Some("3D000") => "create the database first, or name another one in the URL".to_owned(),
            Some("53300") => "the server has no connection left: raise max_connections, or end idle sessions".to_owned(),
            Some(_) => "the server's log says more".to_owned(),
            None => "check that the server runs, and the URL's host and port".to_owned(),
        }
    }
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot connect to Postgres at ")?;
        for (index, (address, error)) in self.attempts.iter().enumerate() {
            let separator = if index == 0 { "" } else { "; " };
            write!(f, "{separator}{address}: {error}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ConnectError {}

/// Why one server could not be used.
#[derive(Debug, thiserror::Error)]
pub enum AttemptError {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("no answer within {0} s")]
    Timeout(u64),
    #[error("the server offers no TLS, and sslmode asks for it")]
    NoTls,
    #[error("what listens there does not speak Postgres' protocol (it answered {0:#04x})")]
    NotPostgres(u8),
    #[error("`{0}` is not a name that a certificate can be checked against")]
    Name(String),
    #[error("TLS: {0}")]
    Tls(#[from] TlsError),
    #[error("TLS: {0}")]
    Handshake(rustls::Error),
    #[error("the server asks for a password: put it into the URL or into PGPASSWORD")]
    NoPassword,
    #[error("the server asks for a kind of authentication that is not supported ({0})")]
    Authentication(String),
    #[error("{0}")]
    Session(Error),
}

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
    let transport = open(url, address, patience)?;
    let mut connection =
        Connection::new(transport, url.clone(), address.clone()).map_err(AttemptError::Session)?;
    start(url, options, &mut connection, deadline).map_err(|error| match error {
        AttemptError::Session(Error::Timeout(_)) => AttemptError::Timeout(patience.as_secs()),
        error => error,
    })?;
    Ok(connection)
}

/// A socket on which nothing but an agreement about encryption was said.
pub(crate) fn open(
    url: &DatabaseUrl,
    address: &Address,
    patience: Duration,
) -> Result<Transport, AttemptError> {
    let (host, port) = match address {
        Address::Unix(path) => return Ok(Transport::Unix(UnixStream::connect(path)?)),
        Address::Tcp { host, port } => (host, *port),
    };
    let stream = connect_tcp(host, port, patience)?;
    let Some(config) = client_config(url)? else {
        return Ok(Transport::Tcp(stream));
    };
    encrypt(stream, host, &config, url.ssl_mode)
}

fn connect_tcp(host: &str, port: u16, patience: Duration) -> Result<TcpStream, AttemptError> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    for address in (host, port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, patience) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                // A peer that vanished without a word is noticed within two minutes.
                let keepalive = socket2::TcpKeepalive::new()
                    .with_time(Duration::from_secs(30))
                    .with_interval(Duration::from_secs(10));
                socket2::SockRef::from(&stream).set_tcp_keepalive(&keepalive)?;
                return Ok(stream);
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
    frontend::ssl_request(&mut request);
    stream.write_all(&request)?;
    let mut answer = [0];
    stream.read_exact(&mut answer)?;
    match answer[0] {
        b'S' => {}
        b'N' if mode == SslMode::Prefer => return Ok(Transport::Tcp(stream)),
        b'N' => return Err(AttemptError::NoTls),
        other => return Err(AttemptError::NotPostgres(other)),
    }
    let name =
        ServerName::try_from(host.to_owned()).map_err(|_| AttemptError::Name(host.to_owned()))?;
    let mut session =
        ClientConnection::new(Arc::clone(config), name).map_err(AttemptError::Handshake)?;
    while session.is_handshaking() {
        session.complete_io(&mut stream).map_err(|error| {
            let inner = error
                .get_ref()
                .and_then(|inner| inner.downcast_ref::<rustls::Error>());
            match inner {
                Some(inner) => AttemptError::Handshake(inner.clone()),
                None => AttemptError::Io(error),
            }
        })?;
    }
    Ok(Transport::Tls(Box::new(StreamOwned::new(session, stream))))
}

fn start(
    url: &DatabaseUrl,
    options: &ConnectOptions,
    connection: &mut Connection,
    deadline: Instant,
) -> Result<(), AttemptError> {
    let user = url.user();
    let database = options.database.clone().unwrap_or_else(|| url.database());
    let mut parameters = vec![
        ("user", user.as_str()),
        ("database", database.as_str()),
        ("client_encoding", "UTF8"),
    ];
    if options.replication {
        parameters.push(("replication", "database"));
    }
    let given = url.others.iter().chain(&options.settings);
    parameters.extend(given.map(|(name, value)| (name.as_str(), value.as_str())));
    frontend::startup_message(parameters, connection.output())?;
    connection.send().map_err(AttemptError::Session)?;
    authenticate(url, &user, connection, deadline)?;
    connection
        .wait_until_ready(deadline)
        .map_err(AttemptError::Session)
}

fn authenticate(
    url: &DatabaseUrl,
    user: &str,
    connection: &mut Connection,
    deadline: Instant,
) -> Result<(), AttemptError> {
    let password = || url.password().ok_or(AttemptError::NoPassword);
    let mut scram: Option<sasl::ScramSha256> = None;
    loop {
        let message = connection.answer(deadline).map_err(AttemptError::Session)?;
        let body = match message {
            (b'R', body) => body.to_vec(),
            (tag, _) => {
                return Err(AttemptError::Session(Error::Protocol(format!(
                    "{:?} in place of a request for authentication",
                    char::from(tag)
                ))));
            }
        };
        let Some((kind, data)) = body.split_first_chunk() else {
            return Err(AttemptError::Authentication("cut off".to_owned()));
        };
        match u32::from_be_bytes(*kind) {
            0 => return Ok(()),
            3 => frontend::password_message(password()?.as_bytes(), connection.output())?,
            5 => {
                let salt = data.try_into().map_err(|_| {
                    AttemptError::Authentication("md5 with a salt of another length".to_owned())
                })?;
                let hash = md5_hash(user.as_bytes(), password()?.as_bytes(), salt);
                frontend::password_message(hash.as_bytes(), connection.output())?;
            }
            10 => {
                let mechanisms: Vec<&[u8]> = data.split(|&byte| byte == 0).collect();
                if !mechanisms.contains(&sasl::SCRAM_SHA_256.as_bytes()) {
                    let names = String::from_utf8_lossy(data).replace('\0', " ");
                    return Err(AttemptError::Authentication(names.trim().to_owned()));
                }
                let exchange = sasl::ScramSha256::new(
                    password()?.as_bytes(),
                    sasl::ChannelBinding::unsupported(),
                );
                frontend::sasl_initial_response(
                    sasl::SCRAM_SHA_256,
                    exchange.message(),
                    connection.output(),
                )?;
                scram = Some(exchange);
            }
            11 => {
                let exchange = scram.as_mut().ok_or_else(unasked)?;
                exchange.update(data)?;
                frontend::sasl_response(exchange.message(), connection.output())?;
            }
            12 => {
                scram.as_mut().ok_or_else(unasked)?.finish(data)?;
                continue;
            }
            7..=9 => return Err(AttemptError::Authentication("GSSAPI or SSPI".to_owned())),
            other => return Err(AttemptError::Authentication(format!("number {other}"))),
        }
        connection.send().map_err(AttemptError::Session)?;
    }
}

fn unasked() -> AttemptError {
    AttemptError::Authentication("SASL that was not begun".to_owned())
}
