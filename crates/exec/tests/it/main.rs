//! The integration tests of `hindcast-exec`: one program, a module per subject.

mod supervision;
