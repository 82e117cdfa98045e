//! The integration tests of `hindcast-interpose`: one program, a module per subject.

mod headers;
mod imports;
mod own;
mod stubs;
