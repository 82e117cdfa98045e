//! The integration tests of `hindcast-retro`: one program, a module per subject.

mod checks;
mod correction;
mod rows;
mod support;
