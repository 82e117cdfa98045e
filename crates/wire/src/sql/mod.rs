//! Reads statement texts as far as an observer needs to.
//!
//! This is no parser of SQL. It knows the lexical rules exactly ([`lexer`]) and of the grammar only
//! how statements begin, so it is right about where statements end and what kind they are, and
//! takes no position on the rest. [`Script::of`] does everything in one pass; [`ScriptCache`]
//! remembers the result by text.
//!
//! - [`trace`] finds the comment that names a request.
//! - [`rewrite`] changes texts and maps error positions back.
//! - [`SchemaChange`] says what a statement changes of what is known about sequences.

mod cache;
mod classify;
mod drawn;
mod keywords;
pub mod lexer;
mod reach;
pub mod rewrite;
mod schema;
mod script;
mod statement;
pub mod trace;
mod unlock;
mod words;

pub use cache::ScriptCache;
pub use keywords::keyword_edits;
pub use lexer::{Dialect, Encoding};
pub use reach::Reach;
pub use rewrite::{Edits, PositionMap};
pub use schema::{Relations, SchemaChange};
pub use script::Script;
pub use statement::{
    ADVISORY, ADVISORY_REFUSED, Company, Fingerprint, Kind, SequenceColumn, Statement,
};
pub use trace::{TraceComment, trace_comment};
pub use unlock::lock_edits;

#[cfg(test)]
mod tests;
