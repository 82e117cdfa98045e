//! Applies the log to a stock Postgres, the backup.

pub mod catalog;
pub mod epoch;
mod error;
pub mod net;
pub mod schema;
pub mod statements;
pub mod table;
pub mod values;

pub use error::BackupError;
