//! The integration tests of `hindcast-memory`: one program, a module per subject.

mod memory;
mod serve;
mod serve_session;
mod serve_sql;
mod serve_support;
