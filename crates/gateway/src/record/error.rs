//! Why a recording could not start.

use hindcast_trace::OpenError;
use tokio_postgres::error::SqlState;

use crate::listen::BindError;
use crate::pg::{ConnectError, ControlError, DatabaseUrl, TlsError};

#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    #[error("{source}")]
    Unreachable { url: String, source: ConnectError },
    #[error("{url} refuses us: {}", crate::http::with_causes(source))]
    Refused {
        url: String,
        source: tokio_postgres::Error,
    },
    #[error(
        "{url} does not answer a question about itself: {}",
        crate::http::with_causes(source)
    )]
    Question {
        url: String,
        source: tokio_postgres::Error,
    },
    #[error("the server is Postgres {version}; recording needs Postgres 13 or later")]
    TooOld { version: String },
    #[error("{url} is a standby: nothing can be written there, so there is nothing to record")]
    Standby { url: String },
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error(transparent)]
    Listen(#[from] BindError),
    #[error("the trace cannot be written: {0}")]
    Trace(#[from] OpenError),
}

impl RecordError {
    pub(super) fn database(url: &DatabaseUrl, error: ControlError) -> Self {
        let url = url.to_string();
        match error {
            ControlError::Connect(source) => Self::Unreachable { url, source },
            ControlError::Refused(source) => Self::Refused { url, source },
        }
    }

    pub(super) fn question(url: &DatabaseUrl, source: tokio_postgres::Error) -> Self {
        Self::Question {
            url: url.to_string(),
            source,
        }
    }

    /// What the user can do about it, in one sentence; empty where the error says it all.
    pub fn hint(&self) -> String {
        match self {
            Self::Unreachable { url, .. } => {
                format!(
                    "check host and port in the database URL, and that the server runs: `psql '{url}' -c 'SELECT 1'`"
                )
            }
            Self::Refused { source, .. } => match source.code() {
                Some(code) if *code == SqlState::INVALID_PASSWORD => {
                    "check user and password in the database URL".into()
                }
                Some(code) if *code == SqlState::INVALID_CATALOG_NAME => {
                    "check the database's name, the last part of the database URL".into()
                }
                Some(code) if *code == SqlState::INVALID_AUTHORIZATION_SPECIFICATION => {
                    "check the user in the database URL, and pg_hba.conf on the server".into()
                }
                Some(code) if *code == SqlState::TOO_MANY_CONNECTIONS => {
                    "the recorder needs two connections of its own besides the service's".into()
                }
                None if source.to_string().contains("password missing") => {
                    "put the password into the database URL, or into PGPASSWORD".into()
                }
                _ => String::new(),
            },
            Self::Question { .. } => String::new(),
            Self::TooOld { .. } => "record at a newer server".into(),
            Self::Standby { .. } => "point the database URL at the primary".into(),
            Self::Tls(_) => String::new(),
            Self::Listen(BindError::InUse { address }) => {
                format!(
                    "choose another address than {address}, or stop who listens there: `ss -ltnp`"
                )
            }
            Self::Listen(BindError::Denied { .. }) => {
                "choose a port above 1023, or a folder that you may write to".into()
            }
            Self::Listen(BindError::Other { .. }) => "check the address".into(),
            Self::Trace(error) => error.hint().to_owned(),
        }
    }
}
