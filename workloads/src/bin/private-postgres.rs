//! A private throw-away Postgres, for the demo, for other people's test suites (`tests/suites`) and
//! for trying things out: `private-postgres [--url-file FILE] [--set NAME=VALUE]…`.
//!
//! Runs until it is interrupted, and leaves nothing behind. The URL of its database goes to
//! standard output, and into FILE once the server accepts connections.

use std::path::PathBuf;

use clap::Parser;
use hindcast_cluster::{Cluster, ClusterError, Options};
use tokio::signal::unix::{SignalKind, signal};

#[derive(Parser)]
#[command(about = "Run a private throw-away Postgres until interrupted")]
struct Args {
    /// Write the database's URL here as well
    #[arg(long, value_name = "FILE")]
    url_file: Option<PathBuf>,
    /// Name of the database
    #[arg(long, default_value = "app")]
    database: String,
    /// A line of postgresql.conf; may be given several times
    #[arg(long, value_name = "NAME=VALUE", value_parser = setting)]
    set: Vec<(String, String)>,
}

fn setting(text: &str) -> Result<(String, String), String> {
    text.split_once('=')
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .ok_or_else(|| "give NAME=VALUE".to_owned())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::process::ExitCode {
    match run(Args::parse()).await {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("Error: {error}");
            if let Some(hint) = error
                .downcast_ref::<ClusterError>()
                .and_then(ClusterError::hint)
            {
                eprintln!("Hint: {hint}");
            }
            std::process::ExitCode::from(3)
        }
    }
}

async fn run(args: Args) -> Result<(), Box<dyn std::error::Error>> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let options = args
        .set
        .iter()
        .fold(Options::throw_away(), |options, (name, value)| {
            options.set(name, value)
        });
    let cluster = Cluster::temporary(options)?;
    cluster.sql(
        "postgres",
        &format!("CREATE DATABASE \"{}\"", args.database.replace('"', "\"\"")),
    )?;
    let url = cluster.url(&args.database);
    println!("{url}");
    if let Some(file) = &args.url_file {
        // Whoever waits for the file must not see half of it.
        let unfinished = file.with_extension("unfinished");
        std::fs::write(&unfinished, &url)?;
        std::fs::rename(unfinished, file)?;
    }
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    Ok(())
}
