//! What a recording is: types, files, writer, reader.
//!
//! A *trace* is a folder, or a prefix in an S3-compatible store, into which any number of
//! *recorders* write without knowing of each other. Each claims a number, then numbers its own
//! requests, transactions and sessions.
//!
//! ```text
//!  Writer ──▶ write-ahead file ──▶ segment: one Parquet file per table, one manifest    Trace
//!  record()   checksummed,         columns packed for about twenty bytes per request requests(), …
//!             synced every 2 s     readable with DuckDB, Spark, ClickHouse
//!                    │                                  │                               ▲
//!                    └──────────────────────────────────┴───────────────────────────────┘
//! ```
//!
//! - [`Writer`] never blocks and never fails its caller: what cannot be kept is counted and becomes
//!   a [`Gap`]. After a crash at most one flush interval is missing, or nothing that
//!   [`Writer::durable`] was awaited for.
//! - [`Trace`] reads segments and whatever is still in write-ahead files, torn tails cut off,
//!   merged in order and in bounded memory. It is what every job that uses a recording starts from.
//! - `docs/trace-format.md` describes the files for those who read them with something else.
//!
//! It deliberately does not know who observes (a gateway now; a library or an extension later), nor
//! what a replay does with a recording, and it never prints.
//!
//! The one invariant: nothing is dropped silently. Whatever should be in a trace and is not, there
//! is a [`Gap`] for.
//!
//! Start reading at [`Record`], then `writer/mod.rs` and `reader/mod.rs`; `segment.rs` shows where
//! files are, `wal.rs` and `parquet_table/` how they look inside, `tables/` what is in them.
//!
//! ```no_run
//! use hindcast_trace::{Location, Record, RequestFilter, Trace, Writer, WriterOptions};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let location: Location = "s3://traces/forum".parse()?;
//! let options = WriterOptions {
//!     wal_folder: Some("/var/lib/hindcast".into()),
//!     ..WriterOptions::default()
//! };
//! let (writer, recorder) = Writer::create(&location, options)?;
//! # let request = unimplemented!();
//! writer.record(Record::Request(request));
//! writer.close()?;
//!
//! let trace = Trace::open(&location)?;
//! for request in trace.requests(RequestFilter::default()) {
//!     println!("{}", request?.target);
//! }
//! # Ok(())
//! # }
//! ```

mod crypt;
mod decrypt;
mod error;
mod exposure;
mod location;
mod parquet_table;
mod prune;
mod reader;
mod segment;
mod store;
mod tables;
mod types;
mod wal;
mod writer;

pub use crypt::{
    Key, KeyError, KeyId, PublicKey, Sealer, SecretKey, ValuesDigest, ValuesKey, opened, sealed_for,
};
pub use decrypt::{Decrypted, decrypt};
pub use error::{CloseError, NotDurable, OpenError, ReadError};
pub use exposure::{Exposed, exposed};
pub use location::{Location, LocationError};
pub use prune::{PruneError, PruneOptions, PrunePlan, PrunedPart, plan_prune, prune};
pub use reader::{
    Index, IndexEntry, Pruned, RequestFilter, Requests, Spooled, Trace, TransactionFilter,
    Transactions, spooled,
};
pub use types::*;
pub use writer::{Resume, Resumed, Writer, WriterOptions, WriterStatus};
