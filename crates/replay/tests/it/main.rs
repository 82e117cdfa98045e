//! The integration tests of `hindcast-replay`: one program, a module per subject.

mod common;
mod coordinator;
mod faithful;
mod holder;
mod restore;
mod see;
mod service;
