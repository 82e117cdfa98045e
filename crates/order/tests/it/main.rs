//! The integration tests of `hindcast-order`: one program, a module per subject.

mod acquisition_programs;
mod acquisitions;
mod laws;
mod prefixes;
mod retroaction;
mod rows;
mod scenarios;
