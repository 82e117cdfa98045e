//! Every command and flag, defined once: the parser and `--help` come from here.

mod base;
pub mod exec;
mod extension;
pub mod protect;
mod see;
mod standby;
mod web;

use std::ffi::OsString;
use std::num::NonZero;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use hindcast_pg::DatabaseUrl;
use hindcast_replay::ready::Ready;
use hindcast_trace::{Location, RequestId};

pub use base::{BaseAction, BaseArgs, BaseServerArgs, DropBaseArgs, ListBasesArgs, TakeBaseArgs};
pub use exec::ExecArgs;
pub use extension::{CheckArgs, ExtensionAction, InstallArgs};
pub use protect::ProtectAction;
pub use see::SeeArgs;
pub use standby::{
    DropArgs, FenceArgs, FollowArgs, Granularity, PerDatabase, PromoteArgs, StandbyAction,
    StandbyArgs, StatusArgs, SwitchoverArgs,
};
pub use web::{ExportArgs, WebArgs};

/// Time travel for services that keep their state in Postgres.
#[derive(Parser)]
#[command(
    name = "hindcast",
    version,
    max_term_width = 110,
    propagate_version = true,
    after_help = "Exit codes: 0 done, or faithful; 1 diverged, or stopped before the end; 2 the arguments do not fit; 3 could not be done."
)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand)]
pub enum Command {
    /// Record a service: one word in front of its start command, or two addresses
    Record(RecordArgs),
    /// Take a base, a state of the database from which a replay can start; list bases, drop them
    Base(Box<BaseArgs>),
    /// List the recorded requests
    Ls(LsArgs),
    /// Make the keys of encrypted recordings
    #[command(subcommand)]
    Key(KeyAction),
    /// Copy an encrypted recording, decrypted, for tools that read Parquet
    Decrypt(DecryptArgs),
    /// Make segments of what killed recorders left on this machine
    Recover(RecoverArgs),
    /// Remove the oldest part of a recording, in whole segments; what remains can be replayed
    Prune(PruneArgs),
    /// Divide a recording into ranges that can be replayed by themselves, side by side
    Windows(WindowsArgs),
    /// Show one request, or one transaction and what it saw
    Show(ShowArgs),
    /// Look at a recording in a browser: a timeline, who saw whom, what every request did
    Web(WebArgs),
    /// Write a recording for other tools: Perfetto, OpenTelemetry, CSV, DuckDB
    Export(Box<ExportArgs>),
    /// Open psql on a database that holds exactly what a transaction saw
    See(Box<SeeArgs>),
    /// Make a database as of just before a request
    Rewind(RewindArgs),
    /// Run recorded requests again, under the recorded concurrency, and compare
    Replay(ReplayArgs),
    /// Run changed code on recorded requests, under the recorded concurrency, and see what would
    /// have been different
    Retro(RetroArgs),
    /// Keep a replica that never falls behind and never shows a torn state, in another Postgres or
    /// in memory
    Standby(Box<StandbyArgs>),
    /// The Postgres extension, which tells what every transaction saw: install it in a server, and
    /// check it
    #[command(subcommand)]
    Extension(ExtensionAction),
    /// Record a native process as it is, and replay it: same output, same exit, same order of locks
    Exec(Box<ExecArgs>),
    /// Protect a server that keeps its state in memory: when its machine is lost another goes on,
    /// with its memory and its connections
    #[command(subcommand)]
    Protect(ProtectAction),
}

#[derive(Args, Clone)]
pub struct TraceArg {
    /// Where the recording is: a folder, or s3://bucket/prefix
    #[arg(long, env = "HINDCAST_TRACE", value_name = "DIR")]
    pub trace: Location,
    /// Key file of an encrypted recording; the public key records, the secret key records and reads
    #[arg(
        long,
        env = "HINDCAST_KEY",
        value_name = "FILE",
        hide_env_values = true
    )]
    pub key: Option<PathBuf>,
    /// Key file for what redaction takes out of requests: recording makes it, a replay reads it;
    /// default: hindcast/secrets.key in ~/.config. What is encrypted with --key has that key
    #[arg(long, env = "HINDCAST_SECRETS_KEY", value_name = "FILE")]
    pub secrets_key: Option<PathBuf>,
}

#[derive(Args)]
#[command(
    after_help = "What it is sent, the service is sent. Exit codes: the service's own if it ends by itself, 128 + n if signal n ended \
                  it; else, as of all commands, 0 done; 2 the arguments do not fit; 3 could not be done."
)]
pub struct RecordArgs {
    #[command(flatten)]
    pub trace: TraceArg,
    /// Where clients connect instead of to the service: :8080 for this machine only, 0.0.0.0:8080
    /// or [::]:8080 for others too
    #[arg(long, value_name = "ADDRESS", required_unless_present = "command")]
    pub listen: Option<String>,
    /// Where the service listens, e.g. http://127.0.0.1:8000
    #[arg(long, value_name = "URL", required_unless_present = "command")]
    pub app: Option<String>,
    /// Where the service connects instead of to Postgres: :6432 for this machine only, 0.0.0.0:6432
    /// or [::]:6432 for others too, or the path of a unix socket
    #[arg(long, value_name = "ADDRESS", required_unless_present = "command")]
    pub pg_listen: Option<String>,
    /// The database; its user also asks the catalog about sequences and transaction status. With a
    /// command: default is DATABASE_URL
    #[arg(
        long,
        env = "HINDCAST_POSTGRES",
        value_name = "URL",
        hide_env_values = true,
        required_unless_present = "command"
    )]
    pub postgres: Option<String>,
    /// Take a base before the first request, so that a replay has something to start from
    #[arg(long, value_enum, default_value_t = BaseMethod::None)]
    pub base: BaseMethod,
    /// Take another base this often, e.g. 10m, at a moment when nothing is in flight: a replay
    /// from the middle starts from the nearest one. Each is a dump of the database, beside the
    /// recording, that pg_dump makes while the service goes on
    #[arg(long, value_name = "TIME", value_parser = span)]
    pub base_every: Option<Duration>,
    /// Read the rows of these bases from a backup that `hindcast standby` keeps of the database,
    /// which then only gives a snapshot and its schema. The first one is taken at once
    #[arg(long, value_name = "URL", requires = "base_every")]
    pub base_from: Option<DatabaseUrl>,
    /// Raise sessions that do not choose, where their default is weaker. The service must then
    /// retry transactions that fail with SQLSTATE 40001
    #[arg(long, value_enum, value_name = "LEVEL")]
    pub isolation: Option<RaisedIsolation>,
    /// With a command: how its transactions are seen. By the extension in the database there is
    /// nothing between the service and it, if the extension is there
    #[arg(long, value_enum, value_name = "HOW", default_value_t = TransactionsBy::Auto, conflicts_with = "pg_listen")]
    pub transactions: TransactionsBy,
    /// Answer no request before its record is on disk
    #[arg(long)]
    pub durable: bool,
    /// How much of a recording a crash of the recorder may lose
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = span)]
    pub flush_interval: Duration,
    /// How often a segment of Parquet files is written
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = span)]
    pub roll_interval: Duration,
    /// Folder for the write-ahead file; needed when the trace is in an object store
    #[arg(long, value_name = "DIR")]
    pub wal_folder: Option<PathBuf>,
    /// With a command: how much of what the service does may lie on disk until the recorder has
    /// time to look at it. If it is more, some of it is lost, and the recording says so
    #[arg(long, value_name = "SIZE", default_value = "1GiB", value_parser = size)]
    pub spool_max: u64,
    /// Keep response bodies up to this size, and of what is no text up to 1 KiB; longer ones leave
    /// a digest
    #[arg(long, value_name = "BYTES", default_value_t = 65536)]
    pub response_body_max: usize,
    /// Leave this out of the recording: header:NAME, cookie:NAME, field:NAME (a JSON key or a form
    /// field), json:/pointer, column:NAME or cards; may be given more than once
    #[arg(long = "redact", value_name = "RULE")]
    pub redact: Vec<String>,
    /// A file with such rules, one a line
    #[arg(long, value_name = "FILE")]
    pub redact_file: Option<PathBuf>,
    /// Redact only what --redact and --redact-file say, and not Authorization, passwords, tokens
    /// and card numbers
    #[arg(long)]
    pub no_default_redaction: bool,
    /// Where requests name their user: header:NAME, cookie:NAME, field:NAME or json:/pointer. It is
    /// the column `user_id`, by which a query finds a user's requests; a hash if it is redacted
    #[arg(long, value_name = "RULE")]
    pub user: Option<String>,
    /// Keep nothing of what is redacted. It is else sealed for --secrets-key, so that a replay can
    /// send it; without, what checks a password or a token diverges
    #[arg(long)]
    pub drop_secrets: bool,
    /// Keep statements with their values, for `show`, of transactions that send less than 16 KiB.
    /// What a column rule is about is left out of them; what a header or field rule is about is
    /// not, where the service passes it on to another column
    #[arg(long)]
    pub values: bool,
    /// With a command: leave its random bytes to the kernel, and keep no times. What a request
    /// draws is else computed from a key in the recording, so that a replay draws the same
    #[arg(long)]
    pub no_pins: bool,
    /// Record what every table holds when recording stops
    #[arg(long, value_enum, default_value_t = FinalStateWhen::Auto)]
    pub final_state: FinalStateWhen,
    /// Certificate chain (PEM) to offer TLS to the service's database driver
    #[arg(long, value_name = "FILE", requires = "pg_tls_key")]
    pub pg_tls_cert: Option<PathBuf>,
    /// Private key (PEM) of that certificate
    #[arg(long, value_name = "FILE", requires = "pg_tls_cert")]
    pub pg_tls_key: Option<PathBuf>,
    /// Print status lines as JSON
    #[arg(long)]
    pub json: bool,
    /// Start the service with this command and record it from inside: no address changes
    #[arg(last = true, value_name = "COMMAND", conflicts_with_all = ["listen", "app", "pg_listen", "pg_tls_cert"])]
    pub command: Vec<OsString>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum BaseMethod {
    /// A base was taken before, or none is wanted
    None,
    /// A template database in the same cluster; nobody else may be connected while it is made. It
    /// stays until `hindcast base drop` removes it
    Template,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TransactionsBy {
    /// The extension if it is ready, or else the gateway
    Auto,
    /// What the service's process tells, and what the extension in its database tells
    Extension,
    /// A gateway between the service and its database
    Gateway,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum RaisedIsolation {
    RepeatableRead,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FinalStateWhen {
    /// If the database is smaller than 1 GiB
    Auto,
    Always,
    Never,
}

#[derive(Args)]
pub struct LsArgs {
    #[command(flatten)]
    pub trace: TraceArg,
    /// First request
    #[arg(long, value_name = "R")]
    pub from: Option<RequestId>,
    /// Last request
    #[arg(long, value_name = "R")]
    pub to: Option<RequestId>,
    /// Stop after this many; 0 for all
    #[arg(long, short = 'n', value_name = "N", default_value_t = 50)]
    pub limit: usize,
    /// One JSON object per line
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
#[command(group = clap::ArgGroup::new("limit").required(true).multiple(true).args(["older", "keep_size"]))]
pub struct PruneArgs {
    #[command(flatten)]
    pub trace: TraceArg,
    /// Remove what was recorded longer ago than this, e.g. 7d or 12h
    #[arg(long, value_name = "TIME", value_parser = span)]
    pub older: Option<Duration>,
    /// Remove the oldest until no more than this is left, e.g. 50GB
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub keep_size: Option<u64>,
    /// Look at age and size only: what remains may then not be replayable
    #[arg(long)]
    pub ignore_bases: bool,
    /// Say what would be removed, and remove nothing
    #[arg(long)]
    pub dry_run: bool,
    #[arg(long)]
    pub json: bool,
}

#[derive(Subcommand)]
pub enum KeyAction {
    /// Make a pair: FILE records and reads, FILE.pub only records
    New {
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
    /// Say which key is in a file, by its id and its public half
    Show {
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
}

#[derive(Args)]
pub struct WindowsArgs {
    #[command(flatten)]
    pub trace: TraceArg,
    /// As many requests, or as few more as there are until a window can begin
    #[arg(long, value_name = "N", default_value = "10000")]
    pub size: NonZero<u64>,
    /// One JSON object per line
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct DecryptArgs {
    #[command(flatten)]
    pub trace: TraceArg,
    /// Folder for the copy, which must not exist yet, or be empty
    #[arg(long, value_name = "DIR")]
    pub to: PathBuf,
}

#[derive(Args)]
pub struct RecoverArgs {
    #[command(flatten)]
    pub trace: TraceArg,
}

#[derive(Args)]
pub struct ShowArgs {
    #[command(flatten)]
    pub trace: TraceArg,
    /// A request (17) or a transaction (t42)
    #[arg(value_name = "WHAT")]
    pub what: String,
    #[arg(long)]
    pub json: bool,
}

/// Where a rewound database is made.
#[derive(Args)]
pub struct TargetArgs {
    /// The recorded cluster, if the base is a template database; default: as recorded, which lacks
    /// the password
    #[arg(
        long,
        env = "HINDCAST_POSTGRES",
        value_name = "URL",
        hide_env_values = true
    )]
    pub postgres: Option<String>,
    /// Folder for restored clusters
    #[arg(long, value_name = "DIR")]
    pub work_folder: Option<PathBuf>,
}

#[derive(Args)]
pub struct RewindArgs {
    #[command(flatten)]
    pub trace: TraceArg,
    #[command(flatten)]
    pub target: TargetArgs,
    /// Just before this request
    #[arg(long, value_name = "R")]
    pub before: RequestId,
    /// How to start the service, if requests must be replayed to get there
    #[arg(long, value_name = "COMMAND")]
    pub app: Option<String>,
    #[arg(long)]
    pub json: bool,
}

/// Which part of a recording is run again, and from where.
#[derive(Args)]
pub struct RangeArgs {
    #[command(flatten)]
    pub trace: TraceArg,
    #[command(flatten)]
    pub target: TargetArgs,
    /// First request; default: the first of its recording, which is the last one if `--to` does
    /// not say so either
    #[arg(long, value_name = "R")]
    pub from: Option<RequestId>,
    /// Last request; default: the last of its recording
    #[arg(long, value_name = "R")]
    pub to: Option<RequestId>,
    /// Go on although the recording has gaps in the range
    #[arg(long)]
    pub across_gaps: bool,
}

/// How the service runs again.
#[derive(Args)]
pub struct ServiceArgs {
    /// Where the service listens, or `unix:PATH`; default: as recorded
    #[arg(long, value_name = "URL")]
    pub app_url: Option<String>,
    /// Where the service finds its database; default: as recorded
    #[arg(long, value_name = "ADDRESS")]
    pub pg_listen: Option<String>,
    /// Where the service's output goes; default: a temporary file that is named when something
    /// goes wrong
    #[arg(long, value_name = "FILE")]
    pub app_log: Option<PathBuf>,
    /// Send nothing before the service, which accepts connections, answers this path with a status
    /// below 500, or has written a line with this text; default: as soon as it accepts them
    #[arg(long, value_name = "PATH|TEXT")]
    pub ready: Option<Ready>,
    /// Send requests as soon as their order permits, or when they arrived, as seen from the first
    #[arg(long, value_enum, default_value = "max")]
    pub pace: PaceArg,
    /// Give up when nothing has moved for this long
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = span)]
    pub stall_timeout: Duration,
    /// Keep what the service writes outside any request and the recording does not have, instead of
    /// undoing it
    #[arg(long)]
    pub allow_outside_writes: bool,
    /// What becomes of calls to others than the database, if `record -- COMMAND` recorded them:
    /// answered as recorded, and refused where nothing is recorded; or made
    #[arg(long, value_enum, default_value = "refuse")]
    pub outbound: OutboundArg,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PaceArg {
    Max,
    Recorded,
}

impl From<PaceArg> for hindcast_replay::sender::Pace {
    fn from(pace: PaceArg) -> Self {
        match pace {
            PaceArg::Max => Self::Max,
            PaceArg::Recorded => Self::Recorded,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OutboundArg {
    Refuse,
    Live,
}

impl From<OutboundArg> for hindcast_replay::inside::Outbound {
    fn from(outbound: OutboundArg) -> Self {
        match outbound {
            OutboundArg::Refuse => Self::Recorded,
            OutboundArg::Live => Self::Live,
        }
    }
}

/// How the service runs again, and what it is compared with.
#[derive(Args)]
pub struct RunArgs {
    #[command(flatten)]
    pub service: ServiceArgs,
    /// A difference that does not matter: header:NAME, json:/pointer, or body:REGEX
    #[arg(long, value_name = "WHAT")]
    pub ignore: Vec<String>,
    /// A database in the recorded final state, to show which rows differ
    #[arg(long, value_name = "URL")]
    pub compare_with: Option<String>,
    /// Keep the rewound database and print how to connect to it
    #[arg(long)]
    pub keep: bool,
}

#[derive(Args)]
pub struct ReplayArgs {
    #[command(flatten)]
    pub range: RangeArgs,
    /// Command that starts the service, as it was started for the recording; not needed where
    /// `record -- COMMAND` started it
    #[arg(long, value_name = "COMMAND")]
    pub app: Option<String>,
    #[command(flatten)]
    pub run: RunArgs,
    /// One transaction at a time, in start order
    #[arg(long)]
    pub sequential: bool,
    /// Go on after the first divergence and count them
    #[arg(long)]
    pub keep_going: bool,
    /// Stop before this request, so that a debugger can be attached to the service
    #[arg(long, value_name = "R")]
    pub debug_wait: Option<RequestId>,
    /// Tell of divergences without values of statements and without rows. What a redaction rule of
    /// the recording is about is never told
    #[arg(long)]
    pub no_values: bool,
    /// Print the verdict as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct RetroArgs {
    #[command(flatten)]
    pub range: RangeArgs,
    /// Command that starts the changed service; default: as it was started for the recording, where
    /// `record -- COMMAND` started it, with what its code is now
    #[arg(long, value_name = "COMMAND")]
    pub app: Option<String>,
    /// SQL to run in the rewound database before the first request, e.g. the fix's schema change;
    /// may be given more than once
    #[arg(long, value_name = "FILE")]
    pub migrate: Vec<PathBuf>,
    /// Isolation of sessions that do not choose one themselves; default: as recorded
    #[arg(long, value_enum, value_name = "LEVEL")]
    pub isolation: Option<RetroIsolation>,
    /// Leave out these requests
    #[arg(long, value_name = "R,R", value_delimiter = ',')]
    pub skip: Vec<RequestId>,
    /// Leave out all requests of a type, e.g. 'GET /health'; may be given more than once
    #[arg(long, value_name = "TYPE")]
    pub skip_type: Vec<String>,
    /// Run only the request types that can matter, found by the tables that their statements read
    /// and write
    #[arg(long)]
    pub select: bool,
    /// A request type whose code was changed, as the report names it; default: found by comparing
    /// statements
    #[arg(long, value_name = "TYPE", requires = "select")]
    pub modified: Vec<String>,
    /// What makes one request type: a path, or a method and a path, with placeholders, e.g.
    /// '/users/{name}' or 'GET /files/{path...}'
    #[arg(long = "type", value_name = "PATTERN")]
    pub types: Vec<String>,
    /// A query to ask of both final states, e.g. one that finds duplicates; may be given more than
    /// once
    #[arg(long, value_name = "SQL")]
    pub check: Vec<String>,
    /// Command that starts the original service, to make the original final state where the
    /// recording has none
    #[arg(long, value_name = "COMMAND", conflicts_with = "compare_with")]
    pub original: Option<String>,
    #[command(flatten)]
    pub run: RunArgs,
    /// Write the row changes that would bring today's database to the corrected past, as a script
    /// to review
    #[arg(long, value_name = "FILE")]
    pub emit_sql: Option<PathBuf>,
    /// Write the report as one HTML file, with everything that was described
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Print the report as JSON
    #[arg(long)]
    pub json: bool,
    /// Serve the report as a page beside the recording afterwards, until Ctrl-C
    #[arg(long, conflicts_with = "json")]
    pub web: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum RetroIsolation {
    RepeatableRead,
    Serializable,
}

/// `90`, `90s`, `5m`, `1h`, `500ms`.
fn span(text: &str) -> Result<Duration, String> {
    let split = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let factor = match unit.trim() {
        "ms" => 0.001,
        "" | "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        "d" => 86_400.0,
        _ => return Err(format!("{text:?} is not a time like 30s, 5m or 1h")),
    };
    let number: f64 = number
        .parse()
        .map_err(|_| format!("{text:?} is not a time like 30s, 5m or 1h"))?;
    Duration::try_from_secs_f64(number * factor).map_err(|error| error.to_string())
}

/// `8GB`, `512MB`, `1GiB`, `50G`, or bytes.
fn size(text: &str) -> Result<u64, String> {
    let wrong = || format!("{text:?} is not a size like 8GB or 512MiB");
    let split = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let factor: u64 = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kb" => 1_000,
        "m" | "mb" => 1_000_000,
        "g" | "gb" => 1_000_000_000,
        "t" | "tb" => 1_000_000_000_000,
        "kib" => 1 << 10,
        "mib" => 1 << 20,
        "gib" => 1 << 30,
        _ => return Err(wrong()),
    };
    let number: f64 = number.parse().map_err(|_| wrong())?;
    Ok((number * factor as f64) as u64)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[derive(Parser)]
    #[command(name = "hindcast retro", no_binary_name = true)]
    struct Retro {
        #[command(flatten)]
        args: RetroArgs,
    }

    fn retro(given: &[&str]) -> Result<RetroArgs, String> {
        let always = ["--trace", "./trace"];
        Retro::try_parse_from(always.iter().chain(given))
            .map(|retro| retro.args)
            .map_err(|error| error.to_string().lines().next().unwrap_or_default().into())
    }

    #[test]
    fn the_definitions_fit_together() {
        Cli::command().debug_assert();
        Retro::command().debug_assert();
    }

    #[test]
    fn a_retroaction_needs_little_and_takes_much() {
        let least = retro(&[]).unwrap();
        assert_eq!(least.app, None);
        assert!(!least.select && least.skip.is_empty() && least.isolation.is_none());
        assert_eq!(least.run.service.stall_timeout, Duration::from_secs(10));

        let most = retro(&[
            "--from=3",
            "--to=2.9",
            "--migrate=a.sql",
            "--migrate=b.sql",
            "--skip=4,2.5",
            "--skip=6",
            "--skip-type=GET /health",
            "--select",
            "--modified=POST /subscribe",
            "--type=/users/{name}",
            "--check=SELECT 1, 2",
            "--check=SELECT 3",
            "--isolation=serializable",
            "--ignore=header:etag",
            "--compare-with=postgres://h/d",
        ])
        .unwrap();
        assert_eq!(most.migrate.len(), 2);
        assert_eq!(
            most.skip,
            [
                RequestId::new(0, 4),
                RequestId::new(2, 5),
                RequestId::new(0, 6)
            ]
        );
        // A query has commas of its own: only --skip is cut at them.
        assert_eq!(most.check, ["SELECT 1, 2", "SELECT 3"]);
        assert_eq!(most.isolation, Some(RetroIsolation::Serializable));
    }

    #[test]
    fn what_cannot_go_together_is_refused() {
        for (given, why) in [
            (
                &["--original=./old", "--compare-with=postgres://h/d"][..],
                "error: the argument '--original <COMMAND>' cannot be used with '--compare-with <URL>'",
            ),
            (
                &["--modified=POST /subscribe"],
                "error: the following required arguments were not provided:",
            ),
            (
                &["--skip=4,x"],
                "error: invalid value 'x' for '--skip <R,R>': \"x\" is not a number like 17, or 2.17 for the second recorder's",
            ),
        ] {
            assert_eq!(retro(given).err().as_deref(), Some(why), "{given:?}");
        }
    }
}
