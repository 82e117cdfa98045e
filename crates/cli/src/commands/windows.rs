//! `hindcast windows`

use std::io::Write;

use hindcast_replay::windows::{Window, windows};
use hindcast_trace::Trace;
use serde_json::json;

use super::setting::cannot_start;
use crate::args::WindowsArgs;
use crate::error::{CliError, Exit};
use crate::render::format::{count, duration, time};

pub fn run(args: &WindowsArgs) -> Result<Exit, CliError> {
    let trace = super::open(&args.trace)?;
    let found = windows(&trace, args.size).map_err(cannot_start)?;
    let mut out = std::io::stdout().lock();
    if !args.json {
        // Whoever reads may have seen enough, here and below (`hindcast windows | head`).
        let _ = writeln!(
            out,
            "{:>9}  {:>9}  {:>9}  {:<26}  {:>9}",
            "FROM", "TO", "REQUESTS", "ARRIVED (UTC)", "TIME"
        );
    }
    for window in &found {
        let line = match args.json {
            true => as_json(window).to_string(),
            false => line(window),
        };
        if writeln!(out, "{line}").is_err() {
            return Ok(Exit::Success);
        }
    }
    if !args.json {
        say_of_all(&trace, &found, args.size.get());
    }
    Ok(Exit::Success)
}

fn line(window: &Window) -> String {
    format!(
        "{:>9}  {:>9}  {:>9}  {:<26}  {:>9}",
        window.from.to_string(),
        window.to.to_string(),
        window.requests,
        time(window.period.start),
        duration(window.period.end - window.period.start),
    )
}

fn as_json(window: &Window) -> serde_json::Value {
    json!({
        "from": window.from.to_string(),
        "to": window.to.to_string(),
        "requests": window.requests,
        "arrived_us": window.period.start,
        "ended_us": window.period.end,
    })
}

/// How many requests are in no window, and what would give smaller ones.
fn say_of_all(trace: &Trace, found: &[Window], size: u64) {
    let covered: u64 = found.iter().map(|window| window.requests).sum();
    let before = trace.request_count().saturating_sub(covered);
    if before > 0 {
        eprintln!(
            "{} before the first base, in no window",
            count(before, "request")
        );
    }
    let at_bases = !trace.bases().iter().any(|base| base.has_archive());
    if at_bases && found.iter().any(|window| window.requests >= 2 * size) {
        eprintln!(
            "Hint: without archived WAL a window begins at a base, and there are {}: take more with `record --base-every`, or a backup with `hindcast base --wal-archive`",
            count(trace.bases().len() as u64, "base")
        );
    }
}
