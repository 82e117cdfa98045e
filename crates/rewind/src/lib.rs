//! Puts a Postgres database back to a past state.
//!
//! Start reading at [`cluster`]: private servers that never outlive the process that started them.

pub mod cluster;
pub mod state;
