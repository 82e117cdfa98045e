//! `hindcast web` and `hindcast export`

use std::path::PathBuf;

use clap::Args;

use hindcast_trace::RequestId;

use super::{TargetArgs, TraceArg};

#[derive(Args)]
#[command(
    after_help = "Keys on the page: ? lists them. It is served to this machine only, loads nothing from elsewhere, and goes on \
                  until Ctrl-C."
)]
pub struct WebArgs {
    #[command(flatten)]
    pub trace: TraceArg,
    /// Where the page is served: an address of this machine; port 0 is any that is free
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    pub listen: String,
    /// A report of a retroaction, as `hindcast retro --json` prints it, to look at beside the
    /// recording
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
}

#[derive(Args)]
#[command(group = clap::ArgGroup::new("format").required(true).multiple(true).args(["perfetto", "otlp", "csv", "sql", "redact"]))]
pub struct ExportArgs {
    #[command(flatten)]
    pub trace: TraceArg,
    /// For ui.perfetto.dev and chrome://tracing: lanes by client and by database session, arrows
    /// for waits
    #[arg(long, value_name = "FILE")]
    pub perfetto: Option<PathBuf>,
    /// Spans as OTLP JSON, one batch a line, for OpenTelemetry's collector and what reads its files
    #[arg(long, value_name = "FILE")]
    pub otlp: Option<PathBuf>,
    /// requests.csv, transactions.csv and statements.csv in a folder
    #[arg(long, value_name = "DIR")]
    pub csv: Option<PathBuf>,
    /// A DuckDB database with views over the recording's files: requests, transactions, saw, wrote
    /// and more. A name that ends in .sql, or - for standard output: the script that makes it
    #[arg(long, value_name = "FILE")]
    pub sql: Option<PathBuf>,
    /// A recording of its own to give away: some requests, what they need of the base, no secrets.
    /// `hindcast replay` runs it on any machine with a Postgres
    #[arg(long, value_name = "DIR")]
    pub redact: Option<PathBuf>,
    /// With --redact: the first request; default: as of `hindcast replay`
    #[arg(long, value_name = "R", requires = "redact")]
    pub from: Option<RequestId>,
    /// With --redact: the last request; default: likewise
    #[arg(long, value_name = "R", requires = "redact")]
    pub to: Option<RequestId>,
    /// With --redact: leave this out as well, beside what the recording leaves out and what is left
    /// out by default; see `record --redact`. May be given more than once
    #[arg(long, value_name = "RULE", requires = "redact")]
    pub rule: Vec<String>,
    #[command(flatten)]
    pub target: TargetArgs,
}
