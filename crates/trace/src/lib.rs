//! What a recording is: types, files, reader, writer.

mod types;

pub use types::*;
