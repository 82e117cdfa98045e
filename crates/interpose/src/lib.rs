//! From annotated C prototypes to the stubs that record and replay them.
mod error;
mod expression;
pub mod model;
mod oracle;
mod reading;
mod source;

pub use error::InterfaceError;
pub use reading::{read, read_preprocessed};
