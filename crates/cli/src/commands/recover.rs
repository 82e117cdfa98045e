//! `hindcast recover`

use hindcast_trace::Trace;

use super::{cannot_open, key};
use crate::args::RecoverArgs;
use crate::error::{CliError, Exit};
use crate::render::format::count;

pub fn run(args: &RecoverArgs) -> Result<Exit, CliError> {
    let key = key::given(&args.trace)?;
    let recovered = Trace::recover_with(&args.trace.trace, key.as_ref())
        .map_err(|error| cannot_open(&args.trace, &error))?;
    println!(
        "{} became segments",
        count(recovered as u64, "write-ahead file")
    );
    Ok(Exit::Success)
}
