//! One file per command: arguments in, library calls, output. No logic of its own.

pub mod base;
pub mod decrypt;
pub mod exec;
pub mod export;
pub mod extension;
pub mod key;
mod launch;
pub mod ls;
pub mod protect;
pub mod prune;
pub mod record;
pub mod recover;
pub mod replay;
pub mod retro;
pub mod rewind;
pub mod see;
pub mod setting;
pub mod show;
pub mod standby;
pub mod web;
pub mod windows;

use hindcast_trace::{OpenError, Trace};

use crate::args::TraceArg;
use crate::error::CliError;

/// Opens a trace and prints what is wrong with it, if it can be read all the same.
fn open(args: &TraceArg) -> Result<Trace, CliError> {
    let key = key::given(args)?;
    let opened = Trace::open_with(&args.trace, key.as_ref());
    let mut trace = opened.map_err(|error| cannot_open(args, &error))?;
    if let Some(key) = key::of_secrets(args)? {
        trace.read_secrets_with(key);
    }
    for warning in trace.warnings() {
        eprintln!("Warning: {warning}");
    }
    Ok(trace)
}

fn cannot_open(args: &TraceArg, error: &OpenError) -> CliError {
    let message = format!("cannot open the recording in {}", args.trace);
    CliError::because(message, error).hint(error.hint())
}
