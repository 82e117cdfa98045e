//! What a recording shows to a person who looks at it.
//!
//! A recording may hold ten million requests, and a screen two thousand columns. So an [`Index`]
//! keeps a few columns of numbers of every request and transaction in memory, and [`Levels`] counts
//! them in stretches of time of every size. A question about a stretch of time costs as much as the
//! screen is wide, however much happened in it.
//!
//! ```text
//!   trace ──▶ Index: sorted columns ──▶ Levels: counts by lane and stretch ──▶ timeline
//!     │         │                          ▲ only what a Filter takes            marks, or columns
//!     │         └── writers by xid ──▶ sight: who saw whom, who waited
//!     └── one row ──▶ detail: statements, values, response
//!     └── all rows ──▶ search: text, rows; export: Perfetto, OTLP, CSV
//! ```
//!
//! **What this crate does not do**: it serves nothing and prints nothing, and it never writes into
//! a trace. It knows no rows of the database: what touched a row is told by tables and values in
//! what was sent ([`Wanted`]).
//!
//! **Where to start reading**: `timeline.rs`, then `levels.rs`.
//!
//! **The invariant to keep**: an answer about a stretch of time has a bounded number of marks,
//! whatever the recording holds ([`MARKS_MAX`], [`COLUMNS_MAX`]).

mod bits;
mod detail;
pub mod export;
mod filter;
mod index;
mod lanes;
mod levels;
mod load;
mod search;
mod sight;
mod timeline;
pub mod words;

pub use bits::Bits;
pub use detail::{
    RequestDetail, RequestLine, TransactionDetail, request_detail, request_lines,
    transaction_detail,
};
pub use filter::{Filter, FilterError, StatusClass};
pub use hindcast_wire::answered::{Answer, of_transaction as answers};
pub use hindcast_wire::spoken::{Spoken, spoken, without_trace};
pub use index::Index;
pub use lanes::{LANES_MAX, Lanes};
pub use levels::Levels;
pub use load::{Progress, load};
pub use search::{Found, Wanted, WantedError, search};
pub use sight::{Crossing, Neighbour, Sight, Wait, sight, snapshot_text};
pub use timeline::{
    COLUMNS_MAX, LaneLine, MARKS_MAX, Overview, Question, Timeline, listed, overview, timeline,
};
pub use words::gap_text;
