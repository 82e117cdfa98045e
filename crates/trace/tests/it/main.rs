//! The integration tests of `hindcast-trace`: one program, a module per subject.

mod common;
mod damaged;
mod disk_full;
mod duckdb;
mod encrypted;
mod kill;
mod looked_up;
mod memory;
mod prune;
mod recording;
mod round_trip;
mod torn;
