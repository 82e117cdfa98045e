//! The `hindcast` command: arguments in, library calls, output and exit codes out. No logic of its own.
//!
//! [`args`] defines every flag; each command is a file in [`commands`]; what things look like is in [`render`].

mod args;
mod commands;
mod error;
mod render;

use std::process::ExitCode;

use clap::Parser;

use args::{Cli, Command};
use error::{CliError, Exit};

fn main() -> ExitCode {
    let cli = Cli::parse();
    init_log();
    match run(cli) {
        Ok(exit) => exit.into(),
        Err(error) => {
            eprintln!("{error}");
            error.exit.into()
        }
    }
}

fn run(cli: Cli) -> Result<Exit, CliError> {
    match cli.command {
        Command::Ls(args) => commands::ls::run(&args),
        Command::Show(args) => commands::show::run(&args),
        Command::Record(args) => block_on(commands::record::run(args)),
        Command::Base(args) => block_on(commands::base::run(args)),
        Command::Rewind(args) => block_on(commands::rewind::run(args)),
        Command::Replay(args) => block_on(commands::replay::run(args)),
        Command::Retro(args) => block_on(commands::retro::run(args)),
        Command::Standby(args) => block_on(commands::standby::run(*args)),
        Command::Exec(args) => commands::exec::run(*args),
    }
}

fn block_on(work: impl Future<Output = Result<Exit, CliError>>) -> Result<Exit, CliError> {
    tokio::runtime::Builder::new_multi_thread()
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
