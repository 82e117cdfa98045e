//! The integration tests of `hindcast-pg`: one program, a module per subject.

mod client;
mod connection;
