//! Which kinds of requests can matter to a change.
//!
//! Changed code is run on past requests, and most of them have nothing to do with the change. A
//! request that only reads, or that writes tables which no request of interest looks at, would do
//! again what it did, so it can be left out. This is selective execution of R³ (section 4.5,
//! Algorithm 3). For each *request type*, which is one handler of the service, collect the tables
//! that it reads and writes. Then close the set of modified types over the tables that they share.
//!
//! ```text
//!   recording ──▶ types      POST /forums/{id}/subscribe, GET /report, (no request) DELETE FROM …
//!       │
//!       └───────▶ statement  INSERT INTO subs … ──▶ catalog  writes subs, log; reads forums
//!                                                       │
//!                                     facts  ◀──────────┘   each type with its tables
//!                                       │
//!   the change: modified types ──▶   closure   ──▶ executed, left out, and why
//!                                       ▲
//!   the run ──▶ touched ────────────────┘          tables touched outside: larger, and begin again
//! ```
//!
//! [`TypeNamer`] names types, [`Statement`] reads SQL with Postgres' own grammar, [`Catalog`]
//! follows a statement through views, rules, triggers, keys and functions, [`Facts`] puts together
//! what a recording says, [`Closure`] decides, and [`Counters`] tell what a run really touched.
//!
//! **A wrong forecast costs time, never correctness.** The closure rests on recorded statements,
//! and changed code may send others. So the run looks at the database's own counters, and
//! [`Closure::outside`] says whether a type that was left out matters after all. What is left out
//! cannot be observed, but its code has not changed: it would send the recorded statements, whose
//! tables are known but for what is taken on trust about the database (see `catalog`). What cannot
//! be told counts as touching everything, and is named with its reason.
//!
//! **What this crate does not do**: it runs nothing. It knows no rows. Tables are its finest grain,
//! as in R³: which rows a statement touches depends on values that changed code may change. It does
//! not know what was changed: the caller says which types are.
//!
//! **Where to start reading**: [`Closure::of`], which needs nothing else; then `catalog/expand.rs`.
//!
//! **The invariant to keep**: every expansion may only add. A table too many makes a run longer; a
//! table too few is found only after the run.

mod catalog;
mod closure;
mod facts;
mod statement;
mod touched;
mod types;

pub use catalog::{Catalog, CatalogError, Touched};
pub use closure::{Closure, Executed, LeftOut, Touches, TypeFacts};
pub use facts::{Facts, STATEMENTS_KEPT};
pub use statement::{ANY_COLUMN, Effects, Name, Statement, Statements};
pub use touched::{Counters, CountersError, PATIENCE, settled};
pub use types::{DISTINCT_MAX, PatternError, Patterns, SEGMENTS_MAX, TypeNamer};
