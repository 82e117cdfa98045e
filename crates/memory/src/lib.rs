//! The standby in memory: the primary's log applied to a store of versions, and SQL over it.
//!
//! ```text
//!  hindcast-standby: preflight, copy, log
//!         │ rows, changes in commit order
//!         ▼
//!  target: Memory ─▶ hindcast-store ─▶ serve: SELECT … AS OF …, by the catalog ─▶ clients
//! ```
//!
//! Rows are kept as the log has them: every value in text form, in the order of the table's
//! columns. Keys, and values that are compared, are encoded so that the order of their bytes is the
//! order of the values ([`encoding`]).
//!
//! **What this crate does not do**: it survives nothing, so each start begins with a copy. It
//! writes nothing to the primary but slot and publication, and it does not authenticate or encrypt
//! ([`serve`]). It does not order writes: the store does.
//!
//! **Where to start reading**: [`to_memory`] runs it all, [`Memory`] is the target that the log is
//! applied to, and [`serve::sql`] answers queries.
//!
//! **The invariant to keep**: a read sees a state that the primary had, the newest or the one that
//! it asks for, and never parts of two.

pub mod catalog;
pub mod encoding;
mod run;
pub mod serve;
mod target;

pub use catalog::Catalog;
pub use hindcast_store::Mode;
pub use run::{MemoryOptions, RunError, to_memory};
pub use target::{Memory, MemoryError};
