//! The integration tests of `hindcast-select`: one program, a module per subject.

mod catalog;
mod facts;
mod fingerprints;
mod touched;
