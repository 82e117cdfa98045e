//! The integration tests of `hindcast-cluster`: one program, a module per subject.

mod cluster;
