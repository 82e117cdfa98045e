//! The integration tests of `hindcast-state`: one program, a module per subject.

mod state;
