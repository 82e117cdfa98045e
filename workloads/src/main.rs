//! `hindcast-workload`: load, serve, drive and check the workloads. Arguments and output; the rest
//! is the library.

use std::error::Error;
use std::future::Future;
use std::io::Write;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueEnum};
use hindcast_workloads::check::check;
use hindcast_workloads::database::{DatabaseOptions, Isolation, Propagation};
use hindcast_workloads::drive::{Arrivals, DriveOptions, Limit, Mix, Requests, Target, drive};
use hindcast_workloads::load::{LoadOptions, load, loaded_scale, migrate, migration};
use hindcast_workloads::race::{RaceOptions, race};
use hindcast_workloads::service::{Service, Threads, serve};
use hindcast_workloads::{Scale, Variant, Workload};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

/// Services to record, replay and measure: Moodle's forum, WordPress's options and comments, TPC-C.
#[derive(Parser)]
#[command(name = "hindcast-workload", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Create a workload's tables and fill them
    Load(LoadArgs),
    /// Bring an existing database to the schema that a variant needs
    Migrate {
        workload: Workload,
        #[arg(long)]
        variant: Variant,
        /// Print the SQL instead of running it
        #[arg(long)]
        print: bool,
        /// Where the data is
        #[arg(
            long,
            value_name = "URL",
            env = "DATABASE_URL",
            hide_env_values = true,
            required_unless_present = "print"
        )]
        database_url: Option<String>,
    },
    /// Serve a workload over HTTP until interrupted
    Serve(ServeArgs),
    /// Send requests and measure
    Drive(DriveArgs),
    /// Drive a service until its bug has struck
    ///
    /// Moodle: a user is subscribed to one forum twice. WordPress options: a visitor is shown a
    /// duplicate key error. WordPress comments: a comment is not restored with its post.
    Race(RaceArgs),
    /// Look for what must not be in a workload's data; fails if anything is found
    Check {
        workload: Workload,
        /// Fail if nothing is found instead: the bug is expected
        #[arg(long)]
        expect_violation: bool,
        /// Print JSON
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        database: DatabaseArgs,
    },
}

#[derive(Args)]
struct DatabaseArgs {
    /// Where the data is
    #[arg(long, value_name = "URL", env = "DATABASE_URL", hide_env_values = true)]
    database_url: String,
}

#[derive(Args)]
struct LoadArgs {
    workload: Workload,
    #[command(flatten)]
    database: DatabaseArgs,
    /// How much, as a multiple of the paper's size
    #[arg(long, default_value_t = Scale::PAPER)]
    scale: Scale,
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// `upsert` adds the unique index that Moodle's fix needs
    #[arg(long, default_value_t)]
    variant: Variant,
    /// Drop the workload's tables first
    #[arg(long)]
    replace: bool,
}

#[derive(Args)]
struct ServeArgs {
    workload: Workload,
    #[command(flatten)]
    database: DatabaseArgs,
    #[arg(
        long,
        value_name = "ADDRESS",
        env = "LISTEN",
        default_value = "127.0.0.1:8000"
    )]
    listen: SocketAddr,
    /// The code as it was or one of its fixes
    #[arg(long, default_value_t)]
    variant: Variant,
    /// Database sessions at most
    #[arg(long, value_name = "SESSIONS", default_value_t = 16)]
    pool: usize,
    /// How a transaction tells which request it belongs to
    #[arg(long, value_enum, default_value_t)]
    propagate: Propagation,
    #[arg(long, value_enum, default_value_t)]
    isolation: Isolation,
    /// Send a transaction of one reading statement without BEGIN and COMMIT
    #[arg(long)]
    autocommit_reads: bool,
    /// Try transactions that fail to serialize again, so many times if a number is given
    #[arg(long, value_name = "TIMES", default_value_t = 0, num_args = 0..=1, default_missing_value = "10")]
    retry: u32,
    /// Threads that handle requests
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// A thread for each connection, with a database session of its own, as many servers have it
    #[arg(long, conflicts_with_all = ["threads", "pool"])]
    thread_per_connection: bool,
}

#[derive(Args)]
struct DriveArgs {
    workload: Workload,
    /// The service
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8000")]
    url: Target,
    /// What the data was loaded with
    #[arg(long, default_value_t = Scale::PAPER)]
    scale: Scale,
    /// The same seed sends the same requests
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Clients of a closed loop, connections at most of an open one
    #[arg(long, default_value_t = 16)]
    clients: usize,
    /// Open loop: requests per second, whether or not they are answered in time
    #[arg(long, value_name = "PER_SECOND", value_parser = rate)]
    rate: Option<f64>,
    /// With --rate: at equal distances instead of as a Poisson process
    #[arg(long, requires = "rate")]
    fixed: bool,
    /// Seconds to run, warm-up included [default: 10 unless --requests]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    duration: Option<Duration>,
    /// Requests to send
    #[arg(long)]
    requests: Option<u64>,
    /// Seconds at the start that are not measured
    #[arg(long, value_name = "SECONDS", default_value = "0", value_parser = seconds)]
    warmup: Duration,
    /// Another mix, such as subscribe-user=1,list-subscribers=1
    #[arg(long, value_name = "OPERATION=WEIGHT,…")]
    mix: Option<Mix>,
    /// Send a traceparent with each request, as a traced caller does
    #[arg(long)]
    traceparent: bool,
    /// Seconds to wait for an answer
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = seconds)]
    timeout: Duration,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
struct RaceArgs {
    #[arg(value_parser = racing_workload())]
    workload: Workload,
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8000")]
    url: Target,
    /// What the data was loaded with
    #[arg(long, default_value_t = Scale::PAPER, conflicts_with = "database_url")]
    scale: Scale,
    /// Where the data is, to see what it was loaded with
    #[arg(long, value_name = "URL")]
    database_url: Option<String>,
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Clients that run the usual mix meanwhile
    #[arg(long, default_value_t = 4)]
    clients: usize,
    /// Seconds after which to give up
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = seconds)]
    within: Duration,
    /// Seconds of the usual mix before the first try, and as many after the bug has struck
    #[arg(long, value_name = "SECONDS", default_value = "0.5", value_parser = seconds)]
    around: Duration,
    #[arg(long)]
    json: bool,
}

/// The workloads that [`race`] knows a bug of.
fn racing_workload() -> impl TypedValueParser<Value = Workload> {
    PossibleValuesParser::new(["moodle", "wp-options", "wp-comments"])
        .try_map(|name| Workload::from_str(&name, false))
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())
}

fn rate(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(rate) if rate > 0.0 && rate <= 1e6 => Ok(rate),
        _ => Err("not a rate above 0 and up to a million".to_owned()),
    }
}

/// Like `println!`, but whoever stops reading, such as `head`, ends us without a panic.
macro_rules! say {
    ($($argument:tt)*) => {
        if writeln!(std::io::stdout(), $($argument)*).is_err() {
            std::process::exit(1);
        }
    };
}

type Outcome = Result<ExitCode, Box<dyn Error>>;

fn main() -> ExitCode {
    match run(Cli::parse().command) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("Error: {error}");
            let mut cause = error.source();
            while let Some(inner) = cause {
                eprintln!("  caused by: {inner}");
                cause = inner.source();
            }
            if let Some(hint) = hint(error.as_ref()) {
                eprintln!("Hint: {hint}");
            }
            ExitCode::FAILURE
        }
    }
}

fn hint(error: &(dyn Error + 'static)) -> Option<&'static str> {
    use hindcast_workloads::drive::DriveError;
    use hindcast_workloads::load::LoadError;
    use hindcast_workloads::race::RaceError;
    if let Some(LoadError::Exists(_)) = error.downcast_ref() {
        return Some("`--replace` drops the workload's tables first");
    }
    if let Some(LoadError::Connect(_)) = error.downcast_ref() {
        return Some("is the server running, and does --database-url name a database that exists?");
    }
    if let Some(DriveError::Unreachable { .. }) = error.downcast_ref() {
        return Some(
            "start the service with `hindcast-workload serve`, or name its address with --url",
        );
    }
    match error.downcast_ref()? {
        RaceError::Drive(DriveError::Unreachable { .. }) => {
            Some("start the service with `hindcast-workload serve`, or name its address with --url")
        }
        RaceError::NotFound { .. } => {
            Some("does the service run the original variant, on a schema without the unique index?")
        }
        _ => None,
    }
}

fn run(command: Command) -> Outcome {
    match command {
        Command::Load(args) => {
            let options = LoadOptions {
                database_url: args.database.database_url,
                scale: args.scale,
                seed: args.seed,
                variant: args.variant,
                replace: args.replace,
            };
            on_runtime(1, async { Ok(load(args.workload, &options).await?) })?;
            say!("{} loaded at scale {}", args.workload, args.scale);
            Ok(ExitCode::SUCCESS)
        }
        Command::Migrate {
            workload,
            variant,
            print: true,
            database_url: _,
        } => {
            match migration(workload, variant)? {
                Some(sql) => say!("{}", sql.trim()),
                None => say!("-- {variant} needs no other schema than the original"),
            }
            Ok(ExitCode::SUCCESS)
        }
        Command::Migrate {
            workload,
            variant,
            print: false,
            database_url,
        } => {
            let database_url = database_url.expect("clap requires it unless the SQL is printed");
            on_runtime(1, async {
                Ok(migrate(workload, variant, &database_url).await?)
            })?;
            say!("{workload} has the schema of {variant}");
            Ok(ExitCode::SUCCESS)
        }
        Command::Serve(args) => on_runtime(args.threads, serve_until_signal(&args)),
        Command::Drive(args) => run_drive(args),
        Command::Race(args) => run_race(args),
        Command::Check {
            workload,
            expect_violation,
            json,
            database,
        } => {
            let findings = on_runtime(1, async {
                Ok(check(workload, &database.database_url).await?)
            })?;
            if json {
                say!("{}", serde_json::to_string_pretty(&findings)?);
            } else {
                for finding in &findings {
                    let verdict = if finding.violations.is_empty() {
                        "holds"
                    } else {
                        "VIOLATED"
                    };
                    say!("{verdict:<9} {}", finding.check);
                    for violation in &finding.violations {
                        say!("          {violation}");
                    }
                }
            }
            let violated = findings
                .iter()
                .any(|finding| !finding.violations.is_empty());
            Ok(if violated == expect_violation {
                ExitCode::SUCCESS
            } else {
                ExitCode::from(2)
            })
        }
    }
}

/// Worker threads only where there is something to do in parallel: a loader needs none.
fn on_runtime<T>(
    threads: usize,
    work: impl Future<Output = Result<T, Box<dyn Error>>>,
) -> Result<T, Box<dyn Error>> {
    let runtime = match threads {
        0 | 1 => tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?,
        threads => tokio::runtime::Builder::new_multi_thread()
            .worker_threads(threads)
            .enable_all()
            .build()?,
    };
    runtime.block_on(work)
}

async fn serve_until_signal(args: &ServeArgs) -> Outcome {
    let options = DatabaseOptions {
        sessions_max: args.pool,
        propagation: args.propagate,
        isolation: args.isolation,
        autocommit_reads: args.autocommit_reads,
        retries_max: args.retry,
        ..DatabaseOptions::new(&args.database.database_url)
    };
    let service = Service::new(args.workload, args.variant, &options)?;
    let listener = TcpListener::bind(args.listen)
        .await
        .map_err(|error| format!("cannot listen on {}: {error}", args.listen))?;
    let (mut interrupt, mut terminate) = (
        signal(SignalKind::interrupt())?,
        signal(SignalKind::terminate())?,
    );
    // Whoever started us on port 0 reads the port from this line.
    say!(
        "{} ({}) listening on http://{}",
        args.workload,
        args.variant,
        listener.local_addr()?
    );
    let shutdown = async {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    };
    let threads = match args.thread_per_connection {
        true => Threads::PerConnection,
        false => Threads::Shared,
    };
    serve(listener, service, threads, shutdown).await?;
    Ok(ExitCode::SUCCESS)
}

fn run_drive(args: DriveArgs) -> Outcome {
    let arrivals = match (args.rate, args.fixed) {
        (None, _) => Arrivals::Closed,
        (Some(rate), false) => Arrivals::Poisson { rate },
        (Some(rate), true) => Arrivals::Fixed { rate },
    };
    let duration = match (args.duration, args.requests) {
        (None, None) => Some(Duration::from_secs(10)),
        (duration, _) => duration,
    };
    let options = DriveOptions {
        clients: args.clients,
        arrivals,
        warmup: args.warmup,
        traceparent: args.traceparent,
        timeout: args.timeout,
        ..DriveOptions::new(
            args.url,
            Limit {
                duration,
                requests: args.requests,
            },
        )
    };
    let requests = Requests::new(args.workload, args.scale, args.seed, args.mix.as_ref())?;
    let report = drive(requests, &options)?;
    if args.json {
        say!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        say!("{}", report.to_string().trim_end());
    }
    Ok(ExitCode::SUCCESS)
}

fn run_race(args: RaceArgs) -> Outcome {
    let loaded = match &args.database_url {
        Some(url) => on_runtime(1, async { Ok(loaded_scale(args.workload, url).await?) })?,
        None => None,
    };
    let options = RaceOptions {
        target: args.url,
        scale: loaded.unwrap_or(args.scale),
        seed: args.seed,
        clients: args.clients,
        time_max: args.within,
        around: args.around,
    };
    let race = race(args.workload, &options)?;
    if args.json {
        say!("{}", serde_json::to_string_pretty(&race)?);
    } else {
        say!("{}", race.struck);
        say!(
            "It took {} {} in {:.1} s, beside {} other requests.",
            race.attempts,
            race.tries,
            race.seconds,
            race.load.requests
        );
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_migration_is_printed_without_a_database_and_run_with_one() {
        let migrate = ["hindcast-workload", "migrate", "moodle", "--variant=upsert"];
        let parses = |more: &[&str]| Cli::try_parse_from(migrate.iter().chain(more)).is_ok();
        assert!(parses(&["--print"]) && parses(&["--database-url", "x"]));
        // Unless whoever runs the tests has named one.
        assert!(!parses(&[]) || std::env::var_os("DATABASE_URL").is_some());
    }

    #[test]
    fn retrying_is_off_on_or_a_number() {
        let retry = |arguments: &[&str]| {
            let all = ["hindcast-workload", "serve", "tpcc", "--database-url", "x"];
            let cli = Cli::parse_from(all.iter().chain(arguments));
            let Command::Serve(args) = cli.command else {
                panic!("serve was parsed as something else")
            };
            args.retry
        };
        assert_eq!(
            [retry(&[]), retry(&["--retry"]), retry(&["--retry", "3"])],
            [0, 10, 3]
        );
    }
}
