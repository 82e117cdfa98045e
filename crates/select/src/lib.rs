//! Which kinds of requests can matter to a change (R³, section 4.5).

mod catalog;
mod closure;
mod facts;
mod statement;
mod touched;
mod types;

pub use catalog::{Catalog, CatalogError, Touched};
pub use closure::{Closure, Executed, LeftOut, Touches, TypeFacts};
pub use facts::Facts;
pub use statement::{Effects, Name, Statement, Statements};
pub use touched::{Counters, CountersError, PATIENCE, settled};
pub use types::{DISTINCT_MAX, PatternError, Patterns, SEGMENTS_MAX, TypeNamer};
