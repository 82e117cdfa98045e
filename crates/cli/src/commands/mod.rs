//! One file per command: arguments in, library calls, output. No logic of its own.

pub mod base;
pub mod exec;
pub mod ls;
mod metrics;
pub mod record;
pub mod replay;
pub mod retro;
pub mod rewind;
pub mod setting;
pub mod show;
pub mod standby;

use hindcast_trace::{Location, Trace};

use crate::error::CliError;

/// Opens a trace and prints what is wrong with it, if it can be read all the same.
fn open(location: &Location) -> Result<Trace, CliError> {
    let trace = Trace::open(location).map_err(|error| {
        CliError::because(format!("cannot open the recording in {location}"), &error)
            .hint(error.hint())
    })?;
    for warning in trace.warnings() {
        eprintln!("Warning: {warning}");
    }
    Ok(trace)
}
