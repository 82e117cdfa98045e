//! Runs changed code on recorded requests, under the recorded concurrency, and tells what would have been different.

pub mod baseline;
pub mod causes;
pub mod checks;
pub mod correction;
pub mod database;
mod dependents;
pub mod json;
pub mod noise;
mod outcome;
mod pairing;
pub mod report;
pub mod responses;
pub mod rows;
pub mod run;
pub mod selection;

pub use run::{Options, RetroError, retroact};
