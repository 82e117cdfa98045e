//! `hindcast standby`

use std::time::Duration;

use hindcast_standby::promote::PromoteOptions;
use hindcast_standby::run::{
    self, BackupOptions, Ended, Granularity, MemoryOptions, Options, StandbyError,
};
use hindcast_standby::source::TableFilter;
use hindcast_standby::status::Control;
use tokio::signal::unix::{SignalKind, signal};

use super::metrics;
use crate::args::{
    self, DropArgs, FollowArgs, PromoteArgs, StandbyAction, StandbyArgs, StatusArgs,
};
use crate::error::{CliError, Exit};
use crate::render::standby as render;

/// How often the status is written.
const STATUS_EVERY: Duration = Duration::from_secs(1);

pub async fn run(args: StandbyArgs) -> Result<Exit, CliError> {
    match (args.action, args.follow) {
        (None, Some(args)) => follow(args).await,
        (Some(StandbyAction::Promote(args)), _) => blocking(move || promote(&args)).await,
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
                shown.show(&control.status());
                return conclude(ended, &shown);
            }
            _ = ticks.tick() => shown.show(&control.status()),
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

fn granularity(given: args::Granularity) -> Granularity {
    match given {
        args::Granularity::Row => Granularity::Row,
        args::Granularity::Transaction => Granularity::Transaction,
        args::Granularity::Single => Granularity::Single,
    }
}

type Start = Box<dyn FnOnce(&Control) -> Result<Ended, StandbyError> + Send>;

fn start(args: FollowArgs) -> Result<Start, CliError> {
    let options = Options {
        from: args.from,
        name: args.name,
        tables: TableFilter {
            include: args.tables,
            exclude: args.exclude_tables,
        },
        workers: args.workers.map(usize::from),
        granularity: granularity(args.granularity),
        copy_workers: usize::from(args.copy_workers),
        streaming: args.streaming,
        until: args.until,
    };
    match args.to {
        Some(to) => {
            let options = BackupOptions {
                common: options,
                to,
                epoch_rows: args.epoch_rows as usize,
                epoch_interval: Duration::from_millis(args.epoch_ms),
                schema: !args.no_schema,
            };
            Ok(Box::new(move |control| run::to_backup(&options, control)))
        }
        None => {
            let options = MemoryOptions {
                common: options,
                serve: args.serve.unwrap_or_default(),
                retention: args.retention,
                memory_max: args.memory_max,
            };
            Ok(Box::new(move |control| run::to_memory(&options, control)))
        }
    }
}

fn conclude(
    ended: Result<Result<Ended, StandbyError>, tokio::task::JoinError>,
    shown: &render::Shown,
) -> Result<Exit, CliError> {
    match ended {
        Ok(Ok(ended)) => {
            shown.conclude(ended);
            Ok(Exit::Success)
        }
        Ok(Err(error)) => Err(failed("the standby stopped", &error)),
        Err(panic) => Err(CliError::because("the standby stopped", &panic).hint(
            "this is a defect of hindcast; what was not committed on the backup is sent again at the next start",
        )),
    }
}

fn failed(what: &str, error: &StandbyError) -> CliError {
    let failed = CliError::because(what, error);
    match error.hint() {
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
    Ok(Exit::Success)
}

fn status(args: &StatusArgs) -> Result<Exit, CliError> {
    let report = run::status(&args.to, args.from.as_ref(), &args.name)
        .map_err(|error| failed("cannot tell", &error))?;
    render::status(report.as_ref(), args.json);
    Ok(Exit::Success)
}

fn drop_slot(args: &DropArgs) -> Result<Exit, CliError> {
    let dropped = run::drop(&args.from, &args.name)
        .map_err(|error| failed("cannot remove slot and publication", &error.into()))?;
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
