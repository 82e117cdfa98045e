//! Applies the log to a stock Postgres, the backup.

pub mod net;
