//! What a recording is: types, files, reader, writer.

mod error;
mod location;
mod reader;
mod types;
mod writer;

pub use error::{CloseError, NotDurable, OpenError, ReadError};
pub use location::{Location, LocationError};
pub use reader::{RequestFilter, Requests, Trace, TransactionFilter, Transactions};
pub use types::*;
pub use writer::{Writer, WriterOptions, WriterStatus};
