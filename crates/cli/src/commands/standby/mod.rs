//! `hindcast standby`

mod follow;
mod metrics;
mod notify;

use hindcast_standby::fence::{self, FenceError};
use hindcast_standby::promote::{Missing, PromoteOptions};
use hindcast_standby::run;
use hindcast_standby::switchover::{self, SwitchoverError, SwitchoverOptions};

use crate::args::{
    DropArgs, FenceArgs, PerDatabase, PromoteArgs, StandbyAction, StandbyArgs, StatusArgs,
    SwitchoverArgs,
};
use crate::error::{CliError, Exit};
use crate::render::standby as render;

pub async fn run(args: StandbyArgs) -> Result<Exit, CliError> {
    match (args.action, args.follow) {
        (None, Some(args)) => follow::follow(args).await,
        (Some(StandbyAction::Promote(args)), _) => {
            blocking(move || of_each(&args, args.json, Failure::IsOfOne, promote)).await
        }
        (Some(StandbyAction::Switchover(args)), _) => {
            blocking(move || of_each(&args, args.json, Failure::EndsAll, switchover)).await
        }
        (Some(StandbyAction::Fence(args)), _) => {
            blocking(move || of_each(&args, false, Failure::IsOfOne, fence)).await
        }
        (Some(StandbyAction::Status(args)), _) => {
            blocking(move || of_each(&args, args.json, Failure::IsOfOne, status)).await
        }
        (Some(StandbyAction::Drop(args)), _) => {
            blocking(move || of_each(&args, false, Failure::IsOfOne, drop_slot)).await
        }
        (None, None) => Err(CliError::usage("which primary, and which backup?")
            .hint("hindcast standby --from postgres://primary/db --to postgres://backup/db")),
    }
}

/// What an error with one database means for the others.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Failure {
    /// They are done all the same, and the first error is told last.
    IsOfOne,
    /// They are left as they are: half of an application's databases here and half there is worse
    /// than none moved.
    EndsAll,
}

/// Does the same for each database that was named, or for the one in the URLs. The worst outcome is
/// the command's.
fn of_each<A: PerDatabase>(
    args: &A,
    json: bool,
    failure: Failure,
    action: impl Fn(&A) -> Result<Exit, CliError>,
) -> Result<Exit, CliError> {
    let mut worst = Exit::Success;
    let mut first_error = None;
    let mut left = Vec::new();
    for (database, args) in args.each() {
        let Some(database) = database else {
            return action(&args);
        };
        if first_error.is_some() && failure == Failure::EndsAll {
            left.push(database);
            continue;
        }
        render::heading(&database, json);
        match action(&args) {
            Ok(Exit::Success) => {}
            Ok(exit) => worst = exit,
            Err(error) if first_error.is_none() => first_error = Some(error.of(&database)),
            Err(error) => eprintln!("{}", error.of(&database)),
        }
    }
    match first_error {
        Some(error) => Err(error.detail("not begun", &left)),
        None => Ok(worst),
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
    Ok(match report {
        Some(_) => Exit::Success,
        None => Exit::Missing,
    })
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
