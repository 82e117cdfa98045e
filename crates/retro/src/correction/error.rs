//! Why a correction script cannot be written.

use hindcast_state::StateError;

/// Why there is no script.
#[derive(Debug, thiserror::Error)]
pub enum CorrectionError {
    #[error(transparent)]
    State(#[from] StateError),
    #[error("cannot write the correction script")]
    Write(#[source] std::io::Error),
    #[error("cannot use a temporary file")]
    Temporary(#[source] std::io::Error),
}
