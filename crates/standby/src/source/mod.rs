//! Everything towards the primary: whether it can be followed, what is kept for us there, and its
//! log.

pub mod compared;
mod end;
pub mod error;
mod pace;
pub mod preflight;
pub mod publication;
mod row_filter;
mod session;
pub mod shape;
pub mod slot;
pub mod spill;
pub mod stream;
pub mod tables;

pub(crate) use end::end_of_log;
pub use error::SourceError;
pub use preflight::{PreflightError, Primary, preflight};
pub use row_filter::{NoRowFilter, RowFilter};
pub use session::session;
pub use slot::{Names, SlotError};
pub use stream::{Stream, StreamOptions};
pub use tables::{ReplicatedTable, TableColumn, TableFilter};
