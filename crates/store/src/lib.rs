//! An in-memory multi-version store that follows a log row by row.

mod simple;
mod types;

pub use simple::{Appender, RowRef, Scan, Snapshot, Store, open};
pub use types::*;
