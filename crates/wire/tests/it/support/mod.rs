//! What the tests of this crate share.

pub mod abuse;
pub mod notation;
pub mod relay;
pub mod script;

pub use notation::*;
