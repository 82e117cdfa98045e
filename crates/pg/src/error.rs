//! What can go wrong on a connection that is open.

use std::fmt;
use std::io;

use hindcast_wire::message::backend::Fields;

/// Why a call on a connection failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
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
}

impl Error {
    /// The SQLSTATE, when it was the server that refused.
    pub fn code(&self) -> Option<&str> {
        match self {
            Error::Server(error) => Some(&error.code),
            _ => None,
        }
    }

    /// The connection is gone, or is being ended by the server: another one may do better.
    pub fn is_connection(&self) -> bool {
        match self {
            // Terminated by an administrator, crash of another backend, starting up, shutting down; idle timeouts.
            Error::Server(error) => {
                error.is_fatal()
                    || matches!(error.code.as_str(), "57P01" | "57P02" | "57P03" | "57P05")
            }
            Error::Io(_) | Error::Closed | Error::Timeout(_) | Error::Protocol(_) => true,
            Error::Interrupted => false,
        }
    }

    pub fn server(&self) -> Option<&ServerError> {
        match self {
            Error::Server(error) => Some(error),
            _ => None,
        }
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
