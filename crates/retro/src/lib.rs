//! Runs changed code on recorded requests, under the recorded concurrency, and tells what would have been different.

pub mod checks;
pub mod correction;
pub mod noise;
pub mod report;
pub mod responses;
pub mod rows;
