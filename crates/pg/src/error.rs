//! What can go wrong: on the way to a server, and on a connection that is open.

use std::fmt;
use std::io;
use std::path::PathBuf;

use hindcast_wire::message::backend::Fields;

use crate::tls::TlsError;
use crate::url::Address;

/// Why a call on a connection failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Connect(Box<ConnectError>),
    #[error(transparent)]
    Server(Box<ServerError>),
    #[error("the connection broke")]
    Io(#[source] io::Error),
    #[error("the server closed the connection")]
    Closed,
    /// Somebody used the connection's [`Interrupter`](crate::Interrupter).
    #[error("interrupted")]
    Interrupted,
    #[error("the server did not answer within {0} s")]
    Timeout(u64),
    #[error("the server does not speak the protocol: {0}")]
    Protocol(String),
    /// A query that brings one row, or at most one, brought another number.
    #[error("the query returned {0} rows")]
    RowCount(usize),
}

impl Error {
    /// The SQLSTATE, when it was the server that refused.
    pub fn code(&self) -> Option<&str> {
        self.server().map(|error| error.code.as_str())
    }

    /// The connection is gone, or is being ended by the server: another one may do better.
    pub fn is_connection(&self) -> bool {
        match self {
            // Terminated by an administrator, crash of another backend, starting up, shutting down;
            // idle timeouts.
            Error::Server(error) => {
                error.is_fatal()
                    || matches!(error.code.as_str(), "57P01" | "57P02" | "57P03" | "57P05")
            }
            Error::Connect(_)
            | Error::Io(_)
            | Error::Closed
            | Error::Timeout(_)
            | Error::Protocol(_) => true,
            Error::Interrupted | Error::RowCount(_) => false,
        }
    }

    pub fn server(&self) -> Option<&ServerError> {
        match self {
            Error::Server(error) => Some(error),
            Error::Connect(error) => error.server(),
            _ => None,
        }
    }
}

impl From<ConnectError> for Error {
    fn from(error: ConnectError) -> Self {
        Error::Connect(Box::new(error))
    }
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => Error::Closed,
            _ => Error::Io(error),
        }
    }
}

/// An `ErrorResponse`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerError {
    pub severity: String,
    /// The SQLSTATE.
    pub code: String,
    pub message: String,
    pub detail: Option<String>,
    pub hint: Option<String>,
    /// Which character of the statement it is about, from 1.
    pub position: Option<u32>,
    /// Where the error is about one.
    pub schema: Option<String>,
    pub table: Option<String>,
    pub column: Option<String>,
    pub constraint: Option<String>,
    /// Which run of a pipeline failed, from 0.
    pub run: Option<usize>,
}

impl ServerError {
    pub(crate) fn parse(body: &[u8]) -> Result<Self, Error> {
        let fields = Fields::parse(body).map_err(|error| Error::Protocol(error.to_string()))?;
        let text = |field| {
            fields
                .get(field)
                .map(|value| String::from_utf8_lossy(value).into_owned())
        };
        Ok(Self {
            severity: text(b'V').or(text(b'S')).unwrap_or_default(),
            code: text(b'C').unwrap_or_default(),
            message: text(b'M').unwrap_or_default(),
            detail: text(b'D'),
            hint: text(b'H'),
            position: text(b'P').and_then(|text| text.parse().ok()),
            schema: text(b's'),
            table: text(b't'),
            column: text(b'c'),
            constraint: text(b'n'),
            run: None,
        })
    }

    /// The session ended with this error.
    pub fn is_fatal(&self) -> bool {
        matches!(self.severity.as_str(), "FATAL" | "PANIC")
    }
}

impl fmt::Display for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (SQLSTATE {})", self.message, self.code)?;
        if let Some(detail) = &self.detail {
            write!(f, ": {detail}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ServerError {}

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

    /// Waiting may help: no server listens, or it is starting up or full.
    pub fn is_transient(&self) -> bool {
        self.attempts.iter().any(|(_, error)| match error {
            AttemptError::Io(_) | AttemptError::Timeout(_) => true,
            AttemptError::Session(error) => error
                .server()
                .is_none_or(|error| error.code.starts_with("57P") || error.code.starts_with("53")),
            _ => false,
        })
    }

    fn lacks_password(&self) -> bool {
        let lacks = |error: &AttemptError| matches!(error, AttemptError::NoPassword { .. });
        self.attempts.iter().any(|(_, error)| lacks(error))
    }

    /// What to do about it.
    pub fn hint(&self) -> String {
        let code = self.server().map(|error| error.code.as_str());
        match code {
            Some("28P01" | "28000") => "check user and password in the database URL, and the server's pg_hba.conf \
                (replication sessions need a line of their own there: database `replication` for physical ones, the database itself for logical ones)"
                .to_owned(),
            Some("3D000") => {
                "check the database's name, the last part of the database URL, or create the database first"
                    .to_owned()
            }
            Some("53300") => "the server has no connection left: raise max_connections, or end idle sessions".to_owned(),
            Some(_) => "the server's log says more".to_owned(),
            None if self.lacks_password() => {
                "put the password into the database URL, PGPASSWORD or ~/.pgpass".to_owned()
            }
            None => "check host and port in the database URL, and that the server runs".to_owned(),
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
    #[error("the server does not offer TLS, but sslmode asks for it")]
    NoTls,
    #[error("what listens there does not speak Postgres' protocol (it answered {0:#04x})")]
    NotPostgres(u8),
    #[error("`{0}` is not a name that a certificate can be checked against")]
    Name(String),
    #[error("TLS: {0}")]
    Tls(#[from] TlsError),
    #[error("the TLS handshake failed: {0}")]
    Handshake(rustls::Error),
    #[error(
        "the server asks for a password{}",
        exposed.as_ref().map_or_else(String::new, |path| format!(
            " ({} was not used because others can read it: chmod 600)",
            path.display()
        ))
    )]
    NoPassword { exposed: Option<PathBuf> },
    #[error(
        "the server cannot bind the password to the connection, and channel_binding=require asks for it"
    )]
    NoChannelBinding,
    #[error("the server asks for a kind of authentication that is not supported ({0})")]
    Authentication(String),
    #[error("{0}")]
    Session(Error),
}

impl AttemptError {
    /// What a TLS handshake over a socket ended with.
    pub(crate) fn from_handshake(error: io::Error) -> Self {
        let inner = error.get_ref().and_then(|inner| inner.downcast_ref());
        match inner {
            Some(inner) => AttemptError::Handshake(rustls::Error::clone(inner)),
            None => AttemptError::Io(error),
        }
    }
}
