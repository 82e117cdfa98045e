//! The integration tests of `hindcast-store`: one program, a module per subject.

mod life;
mod model;
mod prefix;
