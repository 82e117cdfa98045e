//! Following, of one database or of several.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use hindcast_memory::serve::Door;
use hindcast_memory::{MemoryOptions, Mode, to_memory};
use hindcast_pg::ServerIdentity;
use hindcast_pg::scram::Verifier;
use hindcast_standby::run::{self, BackupOptions, Check, Ended, Granularity, Options};
use hindcast_standby::source::TableFilter;
use hindcast_standby::status::Control;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::{JoinError, JoinSet};

use super::notify::Supervisor;
use super::{failed, metrics};
use crate::args::{self, FollowArgs, PerDatabase};
use crate::error::{CliError, Exit};
use crate::render::standby as render;

/// How often the status is written.
const STATUS_EVERY: Duration = Duration::from_secs(1);
/// What is said first when following ends with an error.
const STOPPED: &str = "the standby stopped";

/// A database that is followed.
struct Followed {
    /// If it was named, as those of several are.
    database: Option<String>,
    control: Control,
    shown: render::Shown,
    ended: bool,
}

pub async fn follow(args: FollowArgs) -> Result<Exit, CliError> {
    let cannot_listen = |error| {
        CliError::because(
            "cannot listen for signals",
            &error as &dyn std::error::Error,
        )
    };
    let mut interrupt = signal(SignalKind::interrupt()).map_err(cannot_listen)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(cannot_listen)?;
    let each = args.each();
    let mut all = Vec::new();
    let mut starts = Vec::new();
    for (database, args) in each {
        render::announce(&args);
        all.push(Followed {
            shown: render::Shown::new(args.json, args.memory, database.clone()),
            database,
            control: Control::default(),
            ended: false,
        });
        starts.push(start(args)?);
    }
    if let Some(address) = &args.metrics {
        let of = |one: &Followed| (one.database.clone(), one.control.clone());
        metrics::serve(address, all.iter().map(of).collect()).await?;
    }
    let mut supervisor = Supervisor::of_this_process();
    supervisor.ready();
    let mut ticks = tokio::time::interval(STATUS_EVERY);
    ticks.tick().await;
    let mut work = JoinSet::new();
    for (number, start) in starts.into_iter().enumerate() {
        let control = all[number].control.clone();
        work.spawn(async move {
            let ended = tokio::task::spawn_blocking(move || start(&control)).await;
            (number, ended)
        });
    }
    let mut first_error = None;
    loop {
        tokio::select! {
            ended = work.join_next() => {
                let Some(Ok((number, ended))) = ended else {
                    return first_error.map_or(Ok(Exit::Success), Err);
                };
                if work.is_empty() {
                    supervisor.stopping();
                }
                if let Err(error) = all[number].conclude(ended) {
                    match work.is_empty() && first_error.is_none() {
                        true => return Err(error),
                        false => eprintln!("{error}"),
                    }
                    first_error.get_or_insert(error);
                }
            }
            _ = ticks.tick() => show(&mut all, &mut supervisor),
            _ = interrupt.recv() => stop(&all),
            _ = terminate.recv() => stop(&all),
        }
    }
}

fn show(all: &mut [Followed], supervisor: &mut Supervisor) {
    let mut statuses = Vec::new();
    let mut lines = Vec::new();
    for one in all.iter_mut().filter(|one| !one.ended) {
        let status = one.control.status();
        one.shown.show(&status);
        lines.push(match &one.database {
            Some(database) => format!("{database}: {}", render::line(&status)),
            None => render::line(&status),
        });
        statuses.push(status);
    }
    supervisor.show(&statuses, &lines.join("; "), Instant::now());
}

/// The first time in good order, the second time at once.
fn stop(all: &[Followed]) {
    if all.iter().any(|one| one.control.is_stopping()) {
        eprintln!(
            "Stopped at once. What the backup has not committed is sent again at the next start."
        );
        std::process::exit(i32::from(Exit::Failed.code()));
    }
    eprintln!("Stopping: applying what was received. Once more to stop at once.");
    for one in all {
        one.control.stop();
    }
}

impl Followed {
    fn conclude(
        &mut self,
        ended: Result<Result<Ended, CliError>, JoinError>,
    ) -> Result<(), CliError> {
        self.ended = true;
        self.shown.show(&self.control.status());
        let ended = ended.unwrap_or_else(|panic| {
            Err(CliError::because(STOPPED, &panic).hint(
                "this is a defect of hindcast; what was not committed on the backup is sent again at the next start",
            ))
        });
        match (ended, &self.database) {
            (Ok(ended), _) => {
                self.shown.conclude(ended);
                Ok(())
            }
            (Err(error), Some(database)) => Err(error.of(database)),
            (Err(error), None) => Err(error),
        }
    }
}

type Start = Box<dyn FnOnce(&Control) -> Result<Ended, CliError> + Send>;

fn start(args: FollowArgs) -> Result<Start, CliError> {
    let options = Options {
        from: args.from,
        name: args.name,
        tables: TableFilter {
            include: args.tables,
            exclude: args.exclude_tables,
            rows: args.row_filters,
        },
        workers: args.workers.map(usize::from),
        copy_workers: usize::from(args.copy_workers),
        streaming: args.streaming,
        until: args.until,
    };
    match args.to {
        Some(to) => {
            let options = BackupOptions {
                common: options,
                to,
                granularity: match args.granularity {
                    args::Granularity::Row => Granularity::Row,
                    args::Granularity::Transaction => {
                        return Err(CliError::usage(
                            "transactions side by side are for --memory alone: a backup that is killed could not go on",
                        )
                        .hint("leave --granularity out, or follow with --memory"));
                    }
                    args::Granularity::Single => Granularity::Single,
                },
                epoch_rows: args.epoch_rows as usize,
                epoch_interval: Duration::from_millis(args.epoch_ms),
                schema: !args.no_schema,
                check: args.check_rate.map(|bytes_per_second| Check {
                    bytes_per_second,
                    period: args.check_period,
                }),
            };
            Ok(Box::new(move |control| {
                run::to_backup(&options, control)
                    .map_err(|error| failed(STOPPED, &error, error.hint()))
            }))
        }
        None => {
            let certificate = args.serve_tls_cert.zip(args.serve_tls_key);
            let serve = Door {
                address: args.serve.unwrap_or_default(),
                password: args
                    .serve_password_file
                    .as_deref()
                    .map(password)
                    .transpose()?,
                identity: certificate.map(identity).transpose()?,
            };
            let options = MemoryOptions {
                common: options,
                mode: match args.granularity {
                    args::Granularity::Row => Mode::Row,
                    args::Granularity::Transaction => Mode::Transaction,
                    args::Granularity::Single => Mode::Single,
                },
                serve,
                retention: args.retention,
                memory_max: args.memory_max,
            };
            Ok(Box::new(move |control| {
                to_memory(&options, control).map_err(|error| failed(STOPPED, &error, error.hint()))
            }))
        }
    }
}

/// What clients must know, from the first line of a file that only its owner can read.
fn password(path: &Path) -> Result<Verifier, CliError> {
    let shown = path.display();
    let cannot = |error: std::io::Error| {
        CliError::because(format!("cannot read the password in {shown}"), &error)
    };
    let mode = std::fs::metadata(path)
        .map_err(cannot)?
        .permissions()
        .mode();
    if mode & 0o077 != 0 {
        return Err(
            CliError::usage(format!("others can read the password in {shown}"))
                .hint(format!("chmod 600 {shown}")),
        );
    }
    let text = std::fs::read_to_string(path).map_err(cannot)?;
    match text.lines().next().unwrap_or_default() {
        "" => Err(CliError::usage(format!(
            "{shown} has no password in its first line"
        ))),
        line => Ok(Verifier::parse(line).unwrap_or_else(|| Verifier::of_password(line))),
    }
}

/// What clients are shown, and connections are encrypted with.
fn identity((certificate, key): (PathBuf, PathBuf)) -> Result<ServerIdentity, CliError> {
    ServerIdentity::load(&certificate, &key).map_err(|error| {
        let mut failed = CliError::because("connections cannot be encrypted", &error);
        failed.exit = Exit::Usage;
        failed.hint("--serve-tls-cert and --serve-tls-key name files in PEM that belong together")
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::{Cli, Command};

    fn started(flags: &[&str]) -> Result<(), CliError> {
        let given = ["hindcast", "standby", "--from=postgres://p/d"];
        let cli = Cli::try_parse_from(given.iter().chain(flags)).expect("flags that exist");
        let Command::Standby(args) = cli.command else {
            panic!("another command");
        };
        start(args.follow.expect("it follows")).map(drop)
    }

    #[test]
    fn a_backup_is_not_written_transaction_by_transaction() {
        let error = started(&["--to=postgres://b/d", "--granularity=transaction"]).unwrap_err();
        assert_eq!(error.exit.code(), Exit::Usage.code());
        assert!(error.to_string().contains("--memory"), "{error}");
        started(&["--to=postgres://b/d", "--granularity=single"]).unwrap();
        started(&["--memory", "--serve=:1", "--granularity=transaction"]).unwrap();
    }
}
