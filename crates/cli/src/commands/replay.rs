//! `hindcast replay`

use std::sync::Arc;

use hindcast_replay::{ReplayOptions, Start, Verdict, restore};

use super::setting::{self, Watcher};
use crate::args::ReplayArgs;
use crate::error::{CliError, Exit};
use crate::render::verdict::page;

pub async fn run(args: ReplayArgs) -> Result<Exit, CliError> {
    let trace = setting::open(&args.range.trace).await?;
    let start =
        Start::choose(&trace, args.range.from, args.range.to).map_err(setting::cannot_start)?;
    setting::refuse_gaps(&trace, &start.plan, args.range.across_gaps)?;
    let mut options = ReplayOptions {
        setting: setting::setting(&trace, &start.plan, args.app.as_deref(), &args.run.service)?,
        sequential: args.sequential,
        keep_going: args.keep_going,
        ignore: setting::ignore(&args.run)?,
        compare_with: setting::compare_with(&args.run)?,
        recorded_database: None,
        values: !args.no_values,
    };
    options.setting.debug_wait = args.debug_wait;
    let log = options.setting.service_log.clone();

    let mut watcher = Watcher::new(args.json, "replaying requests");
    let rewinding = setting::rewind_options(
        &trace,
        &start.plan,
        &args.range.target,
        args.range.across_gaps,
    )?;
    options.recorded_database.clone_from(&rewinding.server);
    let (rewound, pinned) = restore(&trace, &start, &rewinding)
        .await
        .map_err(setting::cannot_restore)?;
    options.setting.use_database(rewound.url().clone(), &pinned);

    let run = hindcast_replay::run(Arc::clone(&trace), start.plan, options, &mut watcher);
    // The rewound database goes with `rewound`.
    let Some(outcome) = setting::unless_interrupted(run).await? else {
        return Err(watcher.interrupted());
    };
    watcher.finish();
    let verdict = outcome.map_err(|error| setting::cannot_run("cannot replay", error))?;
    show(&args, &verdict, &log)?;
    setting::put_away(rewound, args.run.keep, args.json).await?;
    Ok(if verdict.faithful {
        Exit::Success
    } else {
        Exit::Diverged
    })
}

fn show(args: &ReplayArgs, verdict: &Verdict, log: &std::path::Path) -> Result<(), CliError> {
    if args.json {
        let text = serde_json::to_string_pretty(verdict)
            .map_err(|error| CliError::because("the verdict cannot be written", &error))?;
        println!("{text}");
    } else {
        print!("{}", page(verdict));
        if !verdict.faithful {
            println!("The service's output is in {}", log.display());
        }
    }
    if verdict.faithful && args.run.service.app_log.is_none() {
        let _ = std::fs::remove_file(log);
    }
    Ok(())
}
