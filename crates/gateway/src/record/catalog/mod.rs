//! What a recorder knows of the database's catalog.
//!
//! ```text
//!   sessions ──SchemaChange, unknown table──▶ known.rs: what is to be looked up, who waits for it
//!                                                │
//!                 refresh.rs: one task ◀─────────┘
//!                      │ read.rs: all of it at the start, then only what changed
//!                      ▼
//!                  Postgres
//! ```

mod facts;
mod known;
mod read;
mod refresh;

pub(super) use facts::{ServerFacts, database_bytes};
pub(super) use known::Known;
pub(super) use read::Catalog;
pub(super) use refresh::keep_current;
