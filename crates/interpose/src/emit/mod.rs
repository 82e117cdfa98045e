//! From the model to code.

pub mod c;
pub mod rust;
mod rust_expressions;
