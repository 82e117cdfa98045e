//! The integration tests of `hindcast-stubs`: one program, a module per subject.

mod generated;
mod golden;
