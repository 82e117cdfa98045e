//! Why a recording could not start.

use hindcast_pg::{ConnectError, DatabaseUrl, TlsError};
use hindcast_spool::SpoolError;
use hindcast_trace::{KeyError, OpenError};

use super::extension::ExtensionError;
use crate::listen::BindError;

#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error(
        "{url} does not answer a question about itself: {}",
        crate::http::with_causes(source)
    )]
    Question {
        url: String,
        source: hindcast_pg::Error,
    },
    #[error("the server is Postgres {version}; recording needs Postgres 13 or later")]
    TooOld { version: String },
    #[error("{url} is a standby: nothing can be written there, so there is nothing to record")]
    Standby { url: String },
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error(transparent)]
    Listen(#[from] BindError),
    #[error("what the service's process tells cannot be received")]
    Tap(#[source] std::io::Error),
    #[error(transparent)]
    Spool(#[from] SpoolError),
    #[error(transparent)]
    Extension(#[from] ExtensionError),
    #[error("what is redacted cannot be sealed")]
    Seal(#[source] KeyError),
    #[error("the trace cannot be written: {0}")]
    Trace(#[from] OpenError),
}

impl RecordError {
    pub(super) fn question(url: &DatabaseUrl, source: hindcast_pg::Error) -> Self {
        Self::Question {
            url: url.to_string(),
            source,
        }
    }

    /// What the user can do about it, in one sentence; empty where the error says it all.
    pub fn hint(&self) -> String {
        match self {
            Self::Connect(error) => error.hint(),
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
            Self::Tap(_) | Self::Seal(_) => String::new(),
            Self::Spool(_) => {
                "what the service's processes tell is kept there until it is in the trace: make room on this disk"
                    .into()
            }
            Self::Extension(ExtensionError::Layout) => String::new(),
            Self::Extension(ExtensionError::Connect(error)) => error.hint(),
            Self::Extension(ExtensionError::Query(_)) => {
                "`hindcast extension check` says what is missing; one recorder reads from a server \
                 at a time"
                    .into()
            }
            Self::Trace(error) => error.hint().to_owned(),
        }
    }
}
