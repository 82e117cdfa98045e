//! `hindcast decrypt`

use hindcast_trace::decrypt;

use super::{cannot_open, key};
use crate::args::DecryptArgs;
use crate::error::{CliError, Exit};
use crate::render::format::{bytes, count};

pub fn run(args: &DecryptArgs) -> Result<Exit, CliError> {
    let key = key::given(&args.trace)?.ok_or_else(|| {
        CliError::usage("decrypting takes the secret key")
            .hint("name the key file with --key, or put it into HINDCAST_KEY")
    })?;
    let copied = decrypt(&args.trace.trace, &key, &args.to)
        .map_err(|error| cannot_open(&args.trace, &error))?;
    println!(
        "Decrypted {} ({}) into {}",
        count(copied.segments, "segment"),
        bytes(copied.bytes),
        args.to.display()
    );
    println!("Remove the copy when it is not needed any more: it is readable without a key.");
    Ok(Exit::Success)
}
