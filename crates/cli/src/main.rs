//! The `hindcast` command: arguments in, library calls, output and exit codes out.
//!
//! It does not decide anything: what a command does is in the crate of that name.
//!
//! Start reading at [`args`], which defines every flag. Each command is a file in [`commands`];
//! what things look like is in [`render`].
//!
//! The invariant: **an error names the thing, the cause and the next step**, and its exit code says
//! which kind it is ([`Exit`]).

#[macro_use]
mod printing;

mod allocator;
mod args;
mod commands;
mod error;
mod ps;
mod render;

use std::process::ExitCode;

use clap::Parser;
use clap::error::ContextKind;
use hindcast_pg::secret::masked;

use args::{Cli, Command};
use error::{CliError, Exit};

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().collect();
    ps::hide_passwords(&arguments);
    let cli = match Cli::try_parse_from(arguments) {
        Ok(cli) => cli,
        Err(error) => return refused(&error),
    };
    init_log();
    match run(cli) {
        Ok(exit) => exit.into(),
        Err(error) => {
            // What libraries and servers say may repeat what they were given.
            eprintln!("{}", masked(&error.to_string()));
            error.exit.into()
        }
    }
}

/// The arguments do not fit, or help was asked for. A message repeats an argument, which may be a
/// URL with its password.
fn refused(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        // Help and version, in which `--key <FILE>` is no key.
        error.exit();
    }
    let text = error.to_string();
    let context = |kind| error.get(kind).map(ToString::to_string);
    let mut shown = masked(&text);
    if let Some(value) = context(ContextKind::InvalidValue)
        && !value.is_empty()
        && context(ContextKind::InvalidArg).is_some_and(|argument| argument.contains("<URL>"))
    {
        // Where a password ends in something that is no URL cannot be known.
        shown = text.replace(&value, "…");
    }
    match shown == text {
        true => error.exit(),
        false => eprint!("{shown}"),
    }
    ExitCode::from(error.exit_code() as u8)
}

fn run(cli: Cli) -> Result<Exit, CliError> {
    match cli.command {
        Command::Ls(args) => commands::ls::run(&args),
        Command::Key(action) => commands::key::run(&action),
        Command::Decrypt(args) => commands::decrypt::run(&args),
        Command::Recover(args) => commands::recover::run(&args),
        Command::Prune(args) => commands::prune::run(&args),
        Command::Windows(args) => commands::windows::run(&args),
        Command::Show(args) => commands::show::run(&args),
        Command::Record(args) => block_on(commands::record::run(args)),
        Command::Base(args) => block_on(commands::base::run(*args)),
        Command::Export(args) => block_on(commands::export::run(*args)),
        Command::Web(args) => block_on(commands::web::run(args)),
        Command::See(args) => block_on_few(commands::see::run(*args)),
        Command::Rewind(args) => block_on(commands::rewind::run(args)),
        Command::Replay(args) => block_on_few(commands::replay::run(args)),
        Command::Retro(args) => block_on_few(commands::retro::run(args)),
        Command::Standby(args) => block_on(commands::standby::run(*args)),
        Command::Extension(action) => block_on(commands::extension::run(action)),
        Command::Exec(args) => commands::exec::run(*args),
        Command::Protect(action) => commands::protect::run(action),
    }
}

fn block_on(work: impl Future<Output = Result<Exit, CliError>>) -> Result<Exit, CliError> {
    block_with(&mut tokio::runtime::Builder::new_multi_thread(), work)
}

/// A replay passes each message on between two processes, and has little to do with it: to wake
/// another thread for that takes longer. The service and its database need the processors besides.
fn block_on_few(work: impl Future<Output = Result<Exit, CliError>>) -> Result<Exit, CliError> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    match cores / CORES_PER_THREAD {
        0 | 1 => block_with(&mut tokio::runtime::Builder::new_current_thread(), work),
        few => block_with(
            tokio::runtime::Builder::new_multi_thread().worker_threads(few),
            work,
        ),
    }
}

/// How many processors there are for each thread of a replay.
const CORES_PER_THREAD: usize = 4;

fn block_with(
    runtime: &mut tokio::runtime::Builder,
    work: impl Future<Output = Result<Exit, CliError>>,
) -> Result<Exit, CliError> {
    runtime
        .enable_all()
        .build()
        .map_err(|error| CliError::because("cannot start", &error))?
        .block_on(work)
}

/// Diagnostics of the libraries, off unless asked for with `HINDCAST_LOG`.
fn init_log() {
    let filter = tracing_subscriber::EnvFilter::try_from_env("HINDCAST_LOG")
        .unwrap_or_else(|_| "warn".into());
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .init();
}
