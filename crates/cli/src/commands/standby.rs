//! `hindcast standby`

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use hindcast_memory::serve::Door;
use hindcast_memory::{MemoryOptions, Mode, to_memory};
use hindcast_pg::ServerIdentity;
use hindcast_pg::scram::Verifier;
use hindcast_standby::fence::{self, FenceError};
use hindcast_standby::promote::{Missing, PromoteOptions};
use hindcast_standby::run::{self, BackupOptions, Check, Ended, Granularity, Options};
use hindcast_standby::source::TableFilter;
use hindcast_standby::status::Control;
use hindcast_standby::switchover::{self, SwitchoverError, SwitchoverOptions};
use tokio::signal::unix::{SignalKind, signal};

use super::metrics;
use super::notify::Supervisor;
use crate::args::{
    self, DropArgs, FenceArgs, FollowArgs, PromoteArgs, StandbyAction, StandbyArgs, StatusArgs,
    SwitchoverArgs,
};
use crate::error::{CliError, Exit};
use crate::render::standby as render;

/// How often the status is written.
const STATUS_EVERY: Duration = Duration::from_secs(1);
/// What is said first when following ends with an error.
const STOPPED: &str = "the standby stopped";

pub async fn run(args: StandbyArgs) -> Result<Exit, CliError> {
    match (args.action, args.follow) {
        (None, Some(args)) => follow(args).await,
        (Some(StandbyAction::Promote(args)), _) => blocking(move || promote(&args)).await,
        (Some(StandbyAction::Switchover(args)), _) => blocking(move || switchover(&args)).await,
        (Some(StandbyAction::Fence(args)), _) => blocking(move || fence(&args)).await,
        (Some(StandbyAction::Status(args)), _) => blocking(move || status(&args)).await,
        (Some(StandbyAction::Drop(args)), _) => blocking(move || drop_slot(&args)).await,
        (None, None) => Err(CliError::usage("which primary, and which backup?")
            .hint("hindcast standby --from postgres://primary/db --to postgres://backup/db")),
    }
}

async fn follow(args: FollowArgs) -> Result<Exit, CliError> {
    let cannot_listen = |error| {
        CliError::because(
            "cannot listen for signals",
            &error as &dyn std::error::Error,
        )
    };
    let mut interrupt = signal(SignalKind::interrupt()).map_err(cannot_listen)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(cannot_listen)?;
    let control = Control::default();
    let _metrics = match &args.metrics {
        Some(address) => Some(metrics::serve(address, control.clone()).await?),
        None => None,
    };

    render::announce(&args);
    let mut supervisor = Supervisor::of_this_process();
    supervisor.ready();
    let mut ticks = tokio::time::interval(STATUS_EVERY);
    ticks.tick().await;
    let mut shown = render::Shown::new(args.json, args.memory);
    let work = {
        let control = control.clone();
        let start = start(args)?;
        tokio::task::spawn_blocking(move || start(&control))
    };
    tokio::pin!(work);
    loop {
        tokio::select! {
            ended = &mut work => {
                supervisor.stopping();
                shown.show(&control.status());
                return conclude(ended, &shown);
            }
            _ = ticks.tick() => {
                let status = control.status();
                supervisor.show(&status, &render::line(&status), Instant::now());
                shown.show(&status);
            }
            _ = interrupt.recv() => stop(&control),
            _ = terminate.recv() => stop(&control),
        }
    }
}

/// The first time in good order, the second time at once.
fn stop(control: &Control) {
    if control.is_stopping() {
        eprintln!(
            "Stopped at once. What the backup has not committed is sent again at the next start."
        );
        std::process::exit(i32::from(Exit::Failed.code()));
    }
    eprintln!("Stopping: applying what was received. Once more to stop at once.");
    control.stop();
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

fn conclude(
    ended: Result<Result<Ended, CliError>, tokio::task::JoinError>,
    shown: &render::Shown,
) -> Result<Exit, CliError> {
    match ended {
        Ok(Ok(ended)) => {
            shown.conclude(ended);
            Ok(Exit::Success)
        }
        Ok(Err(error)) => Err(error),
        Err(panic) => Err(CliError::because(STOPPED, &panic).hint(
            "this is a defect of hindcast; what was not committed on the backup is sent again at the next start",
        )),
    }
}

fn failed(what: &str, error: &dyn std::error::Error, hint: Option<String>) -> CliError {
    let failed = CliError::because(what, error);
    match hint {
        Some(hint) => failed.hint(hint),
        None => failed,
    }
}

fn promote(args: &PromoteArgs) -> Result<Exit, CliError> {
    let options = PromoteOptions {
        to: args.to.clone(),
        from: args.from.clone(),
        name: args.name.clone(),
        wait: !args.no_wait,
        check: args.check,
        patience: PromoteOptions::PATIENCE,
    };
    let report = hindcast_standby::promote::promote(&options).map_err(|error| {
        CliError::because("the backup was not promoted", &error).hint(error.hint())
    })?;
    render::promoted(&report, args.json);
    Ok(match report.is_incomplete() {
        true => Exit::Missing,
        false => Exit::Success,
    })
}

fn switchover(args: &SwitchoverArgs) -> Result<Exit, CliError> {
    let options = SwitchoverOptions {
        from: args.from.clone(),
        to: args.to.clone(),
        name: args.name.clone(),
        check: !args.no_check,
        back: !args.no_back,
        patience: args.patience,
    };
    let failed = |error: SwitchoverError| {
        let hint = error.hint();
        let error = CliError::because(error.to_string(), &error.cause);
        error.hint(hint)
    };
    if args.abort {
        switchover::abort(&options).map_err(failed)?;
        render::aborted(args.json);
        return Ok(Exit::Success);
    }
    let mut step = |step| render::step(step, args.json);
    let report = switchover::switchover(&options, &mut step).map_err(failed)?;
    render::switched(&report, args);
    Ok(match report.missing == Some(Missing::default()) {
        true => Exit::Success,
        false => Exit::Missing,
    })
}

fn fence(args: &FenceArgs) -> Result<Exit, CliError> {
    let failed = |error: FenceError| {
        let hint = error.hint();
        CliError::because("the database was not fenced", &error).hint(hint)
    };
    if args.lift {
        fence::lift(&args.from).map_err(failed)?;
        println!("New sessions may write. Those that are there read until they end.");
        return Ok(Exit::Success);
    }
    let ended = fence::fence(&args.from, PromoteOptions::PATIENCE).map_err(failed)?;
    println!("New sessions only read; {ended} that were there have ended.");
    Ok(Exit::Success)
}

fn status(args: &StatusArgs) -> Result<Exit, CliError> {
    let report = run::status(&args.to, args.from.as_ref(), &args.name)
        .map_err(|error| failed("cannot tell", &error, error.hint()))?;
    render::status(report.as_ref(), args.json);
    Ok(Exit::Success)
}

fn drop_slot(args: &DropArgs) -> Result<Exit, CliError> {
    let dropped = run::drop(&args.from, &args.name).map_err(|error| {
        CliError::because("cannot remove slot and publication", &error).hint(error.hint())
    })?;
    match dropped.is_empty() {
        true => println!("Nothing to remove: the primary has neither."),
        false => println!("Removed from the primary: {}.", dropped.join(", ")),
    }
    Ok(Exit::Success)
}

/// The library blocks; the runtime's threads must not.
async fn blocking(
    work: impl FnOnce() -> Result<Exit, CliError> + Send + 'static,
) -> Result<Exit, CliError> {
    tokio::task::spawn_blocking(work)
        .await
        .unwrap_or_else(|panic| Err(CliError::because("stopped", &panic)))
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
