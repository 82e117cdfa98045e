//! Everything towards the primary.

pub mod error;
pub mod stream;

pub use error::SourceError;
pub use stream::{Stream, StreamOptions, session};
