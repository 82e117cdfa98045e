//! An in-memory multi-version store that follows a log row by row.
//!
//! The cloned concurrency control of C5 (Helt, Sharma, Abadi, Lloyd, Faleiro: "C5: Cloned Concurrency Control that Always
//! Keeps Up", sections 4 and 7): writes to different rows are applied in parallel whatever transactions they belong to, and readers see
//! only states that end with a commit (monotonic prefix consistency).

mod deferred;
mod history;
mod index;
mod log;
#[doc(hidden)]
pub mod measure;
mod modes;
mod reader;
mod rows;
mod scheduler;
mod shared;
mod snapshotter;
mod store;
mod types;
mod worker;

pub use reader::{RowRef, Scan, Snapshot};
pub use scheduler::Appender;
pub use store::{Store, open};
pub use types::*;
