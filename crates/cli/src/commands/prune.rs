//! `hindcast prune`

use std::time::SystemTime;

use hindcast_trace::{Micros, PruneError, PruneOptions, PrunePlan, PrunedPart, plan_prune, prune};
use serde_json::json;

use super::{base, key};
use crate::args::PruneArgs;
use crate::error::{CliError, Exit};
use crate::render::format::{bytes, count, time};

pub fn run(args: &PruneArgs) -> Result<Exit, CliError> {
    let location = &args.trace.trace;
    let options = PruneOptions {
        older_than: args.older.map(|age| now() - age.as_micros() as Micros),
        keep_bytes: args.keep_size,
        ignore_bases: args.ignore_bases,
    };
    let failed = |error: PruneError| {
        let hint = error.hint();
        let failed = CliError::because(format!("cannot prune the recording in {location}"), &error);
        match hint {
            "" => failed,
            hint => failed.hint(hint),
        }
    };
    let key = key::given(&args.trace)?;
    let plan = plan_prune(location, key.as_ref(), &options).map_err(failed)?;
    if !args.dry_run {
        // Also if there is nothing to remove: a run that was killed may have left files.
        prune(location, key.as_ref(), &plan, |_| ()).map_err(failed)?;
    }
    if args.json {
        println!("{}", as_json(&plan, args.dry_run));
    } else {
        page(&plan, args);
    }
    Ok(Exit::Success)
}

fn now() -> Micros {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_micros() as Micros)
}

fn page(plan: &PrunePlan, args: &PruneArgs) {
    for part in &plan.recorders {
        println!("{}", line(part, args.dry_run));
    }
    if plan.recorders.is_empty() {
        println!("Nothing to remove.");
    }
    println!("{} remain", bytes(plan.kept_bytes));
    if let Some(base) = &plan.held_by {
        println!(
            "{} more would go but for the base of {} UTC ({}): what remains is replayed from it.",
            count(plan.held_segments, "segment"),
            time(base.taken),
            base::describe(base)
        );
        println!(
            "Take a new base with `hindcast base`, and prune when it is old enough; or remove them all the same with --ignore-bases."
        );
    }
}

fn line(part: &PrunedPart, dry_run: bool) -> String {
    let ids = part.ids.map_or_else(String::new, |(first, last)| {
        format!(", requests {first} to {last}")
    });
    format!(
        "{} {} of recorder {}, up to {} UTC: {}, {}, {}{ids}",
        if dry_run { "Would remove" } else { "Removed" },
        count(part.segments, "segment"),
        part.recorder,
        time(part.until),
        count(part.requests, "request"),
        count(part.transactions, "transaction"),
        bytes(part.bytes),
    )
}

fn as_json(plan: &PrunePlan, dry_run: bool) -> serde_json::Value {
    let parts = plan.recorders.iter().map(|part| {
        json!({
            "recorder": part.recorder,
            "segments": part.segments,
            "requests": part.requests,
            "transactions": part.transactions,
            "bytes": part.bytes,
            "until_us": part.until,
            "first_request": part.ids.map(|(first, _)| first.to_string()),
            "last_request": part.ids.map(|(_, last)| last.to_string()),
        })
    });
    json!({
        "dry_run": dry_run,
        "removed": parts.collect::<Vec<_>>(),
        "kept_bytes": plan.kept_bytes,
        "held_by_base_taken_us": plan.held_by.as_ref().map(|base| base.taken),
        "held_segments": plan.held_segments,
    })
}
