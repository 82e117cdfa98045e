//! Runs changed code on recorded requests, under the recorded concurrency, and tells what would have been different.

pub mod report;
