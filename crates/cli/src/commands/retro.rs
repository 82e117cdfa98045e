//! `hindcast retro`

use std::path::PathBuf;
use std::sync::Arc;

use hindcast_replay::run::ReplayError;
use hindcast_replay::service::ServiceError;
use hindcast_replay::{RestoreError, Start};
use hindcast_retro::baseline::Choice;
use hindcast_retro::database::{Migration, PrepareError};
use hindcast_retro::report::{Outcome, Report};
use hindcast_retro::selection::{SelectError, Wishes};
use hindcast_retro::{Options, RetroError, retroact};
use hindcast_trace::Isolation;

use super::setting::{self, Watcher};
use crate::args::{RetroArgs, RetroIsolation};
use crate::error::{CliError, Exit};
use crate::render;

pub async fn run(args: RetroArgs) -> Result<Exit, CliError> {
    let trace = setting::open(&args.range.trace).await?;
    let start =
        Start::choose(&trace, args.range.from, args.range.to).map_err(setting::cannot_start)?;
    setting::refuse_gaps(&trace, &start.plan, args.range.across_gaps)?;
    let mut service =
        setting::setting(&trace, &start.plan, args.app.as_deref(), &args.run.service)?;
    service.isolation = args.isolation.map(|isolation| match isolation {
        RetroIsolation::RepeatableRead => Isolation::RepeatableRead,
        RetroIsolation::Serializable => Isolation::Serializable,
    });
    let log = service.service_log.clone();
    let options = Options {
        setting: service,
        rewinding: setting::rewind_options(
            &trace,
            &start.plan,
            &args.range.target,
            args.range.across_gaps,
        )?,
        migrations: args
            .migrate
            .iter()
            .map(migration)
            .collect::<Result<_, _>>()?,
        skip: args.skip.iter().copied().collect(),
        selection: Wishes {
            select: args.select,
            modified: args.modified.clone(),
            skip: args.skip_type.clone(),
            patterns: args.types.clone(),
            ..Wishes::default()
        },
        checks: args.check.clone(),
        baseline: match (&args.original, setting::compare_with(&args.run)?) {
            (Some(command), _) => Choice::Replay {
                command: command.clone(),
            },
            (None, Some(url)) => Choice::Given(Box::new(url)),
            (None, None) => Choice::Recorded,
        },
        ignore: setting::ignore(&args.run)?,
        correction: args.emit_sql.clone(),
    };

    let mut watcher = Watcher::new(args.json, "running the changed service");
    let run = retroact(Arc::clone(&trace), start, options, &mut watcher);
    let Some(outcome) = setting::unless_interrupted(run).await? else {
        return Err(watcher.interrupted());
    };
    watcher.finish();
    let (report, rewound) = outcome.map_err(cannot_retroact)?;
    show(&args, &report, &log)?;
    setting::put_away(rewound, args.run.keep, args.json).await?;
    if args.web {
        let json = serde_json::to_value(&report)
            .map_err(|error| CliError::because("the report cannot be written", &error))?;
        super::web::serve(args.range.trace, "127.0.0.1:0", Some(json)).await?;
    }
    Ok(match report.outcome {
        Outcome::Stopped { .. } => Exit::Diverged,
        Outcome::Faithful | Outcome::Different => Exit::Success,
    })
}

fn migration(path: &PathBuf) -> Result<Migration, CliError> {
    let sql = std::fs::read_to_string(path).map_err(|error| {
        CliError::because(
            format!("cannot read the migration {}", path.display()),
            &error,
        )
    })?;
    Ok(Migration {
        name: path.display().to_string(),
        sql,
    })
}

fn show(args: &RetroArgs, report: &Report, log: &std::path::Path) -> Result<(), CliError> {
    if let Some(path) = &args.html {
        hindcast_private::write(path, render::retro_html::page(report)).map_err(|error| {
            CliError::because(format!("cannot write {}", path.display()), &error)
        })?;
    }
    let stopped = matches!(report.outcome, Outcome::Stopped { .. });
    if args.json {
        let text = serde_json::to_string_pretty(report)
            .map_err(|error| CliError::because("the report cannot be written", &error))?;
        println!("{text}");
    } else {
        print!("{}", render::retro::page(report));
        if let Some(path) = &args.html {
            println!("The whole report is in {}", path.display());
        }
        if let Some(path) = &args.emit_sql {
            println!(
                "The row changes are in {}: read them before you run them",
                path.display()
            );
        }
        if stopped {
            println!("The service's output is in {}", log.display());
        }
    }
    if !stopped && args.run.service.app_log.is_none() {
        let _ = std::fs::remove_file(log);
    }
    Ok(())
}

fn cannot_retroact(error: RetroError) -> CliError {
    const WHAT: &str = "cannot run the changed code";
    match error {
        RetroError::Replay(ReplayError::Service(ServiceError::AlreadyThere { url })) => {
            setting::cannot_run(WHAT, ServiceError::AlreadyThere { url }.into())
        }
        RetroError::Replay(error) => setting::cannot_run(WHAT, error),
        RetroError::Prepare(PrepareError::Restore(error @ RestoreError::Rewind(_))) => {
            setting::cannot_restore(error)
        }
        RetroError::Prepare(error @ PrepareError::Migration { .. }) => CliError::because(
            WHAT, &error,
        )
        .hint(
            "it ran in a rewound copy, which is gone again; try it with `hindcast rewind` and psql",
        ),
        RetroError::Select(SelectError::Pattern(error)) => {
            CliError::usage(format!("--type: {error}"))
        }
        RetroError::Select(SelectError::NoSuchType { asked, known }) => {
            CliError::usage(format!("no recorded request is of the type {asked:?}"))
                .detail("the recording has", &known)
        }
        error => CliError::because(WHAT, &error),
    }
}
