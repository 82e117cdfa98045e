//! Where a Postgres server is and how to talk to it without a runtime.

mod lsn;
mod tls;
mod url;

pub use lsn::Lsn;
pub use tls::{ServerIdentity, TlsError, client_config};
pub use url::{Address, DatabaseUrl, SslMode, UrlError};
