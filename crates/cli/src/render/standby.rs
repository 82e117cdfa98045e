//! What a standby looks like: a line a second for people, an object a second for programs.

use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};

use hindcast_standby::promote::{Like, Missing, PromoteReport};
use hindcast_standby::run::{BackupStatus, Ended};
use hindcast_standby::source::compared::LeftOut;
use hindcast_standby::status::{CheckStatus, State, Status};
use hindcast_standby::switchover::{Step, SwitchoverReport};
use serde_json::json;

use super::format::{bytes, count, duration, thousands};
use crate::args::{FollowArgs, SwitchoverArgs};

pub fn announce(args: &FollowArgs) {
    if args.json {
        return;
    }
    let shown = |url: &hindcast_pg::DatabaseUrl| format!("{}/{}", url.addresses[0], url.database());
    let to = match (&args.to, &args.serve) {
        (Some(to), _) => shown(to),
        (None, Some(serve)) => format!("memory, served at {serve}"),
        (None, None) => "memory".to_owned(),
    };
    let slot = match args.memory {
        true => format!("hindcast_memory_{}", args.name),
        false => format!("hindcast_{}", args.name),
    };
    println!("Standby: {} → {to} (slot {slot})", shown(&args.from));
}

/// Of which of several databases the following is.
pub fn heading(database: &str, as_json: bool) {
    match as_json {
        true => println!("{}", json!({ "database": database })),
        false => println!("Database {database}:"),
    }
}

/// Shows one status after the other.
pub struct Shown {
    json: bool,
    /// In memory: nothing is left to go on from.
    memory: bool,
    /// Which of several databases it is.
    database: Option<String>,
    /// On a terminal the line is written over; elsewhere only what changed is worth a line.
    terminal: bool,
    /// The line that is to be written over, or what was said last.
    last: std::cell::RefCell<String>,
    notices: usize,
    quiet: u32,
}

/// Without a terminal, how many seconds pass between lines of a copy. All else is said once, as a
/// log should have it; that a server is waited for, again if the reason is another.
const QUIET_SECONDS: u32 = 10;

impl Shown {
    pub fn new(json: bool, memory: bool, database: Option<String>) -> Self {
        Self {
            json,
            memory,
            // Lines of several databases would be written over each other.
            terminal: database.is_none() && std::io::stdout().is_terminal(),
            database,
            last: std::cell::RefCell::default(),
            notices: 0,
            quiet: QUIET_SECONDS,
        }
    }

    pub fn show(&mut self, status: &Status) {
        for notice in status.notices.iter().skip(self.notices) {
            self.end_line();
            eprintln!("Note: {}{notice}", self.prefix());
        }
        self.notices = status.notices.len();
        if self.json {
            let mut object = as_json(status);
            if let Some(database) = &self.database {
                object["database"] = json!(database);
            }
            println!("{object}");
            return;
        }
        let line = line(status);
        if self.terminal {
            print!("\r\x1b[2K{line}");
            let _ = std::io::stdout().flush();
            self.last.replace(line);
            return;
        }
        if self.is_due(status, &line) {
            println!("{}{line}", self.prefix());
        }
    }

    /// In front of what is said of one of several.
    fn prefix(&self) -> String {
        let database = self.database.as_ref();
        database.map_or_else(String::new, |database| format!("{database}: "))
    }

    /// Whether a log should have this line.
    fn is_due(&mut self, status: &Status, line: &str) -> bool {
        self.quiet += 1;
        let state = || line.split(' ').next().unwrap_or_default().to_owned();
        let (what, again) = match &status.state {
            State::Waiting { reason, .. } => (format!("Waiting    {reason}"), false),
            State::Copying(_) => (state(), true),
            _ => (state(), false),
        };
        let due = again && self.quiet >= QUIET_SECONDS || what != *self.last.borrow();
        if due {
            self.quiet = 0;
            self.last.replace(what);
        }
        due
    }

    fn end_line(&self) {
        if self.terminal && !self.last.borrow().is_empty() {
            println!();
            self.last.borrow_mut().clear();
        }
    }

    pub fn conclude(&self, ended: Ended) {
        self.end_line();
        if self.json {
            return;
        }
        print!("{}", self.prefix());
        match ended {
            Ended::Stopped if self.memory => {
                println!("Stopped. Nothing is left on the primary; the next start copies again.");
            }
            Ended::Stopped => println!(
                "Stopped. The primary keeps its WAL from here on: start again to go on, or `hindcast standby drop` to let it go."
            ),
            Ended::Reached => println!("Reached."),
            Ended::Promoted => println!(
                "Promoted: the backup is a database of its own now, and nobody follows any more."
            ),
        }
    }
}

/// What it does, in a line.
pub fn line(status: &Status) -> String {
    match &status.state {
        State::Starting => "Starting".to_owned(),
        State::Copying(progress) => format!(
            "Copying    {} of {}, {} of about {}, {} ({})",
            progress.tables_done,
            count(progress.tables as u64, "table"),
            bytes(progress.bytes_done),
            bytes(progress.bytes_estimate.max(progress.bytes_done)),
            count(progress.rows_done, "row"),
            progress.current,
        ),
        State::Following => format!(
            "Following  lag {} and {}, {} changes/s, epoch {}, deferred {}, at {}{}",
            duration(i64::try_from(status.lag.time.as_micros()).unwrap_or(i64::MAX)),
            bytes(status.lag.bytes),
            thousands(status.changes_per_second.round() as u64),
            thousands(status.target.epoch_changes),
            thousands(status.target.deferred),
            status.visible,
            match status.missing_tables.len() as u64 {
                0 => String::new(),
                missing => format!(", {} not replicated", count(missing, "table")),
            },
        ),
        State::Waiting { reason, attempt } => {
            format!("Waiting    attempt {attempt}: {reason}")
        }
        State::Promoting => "Promoting  somebody promotes the backup".to_owned(),
        State::Stopped => "Stopped".to_owned(),
    }
}

fn as_json(status: &Status) -> serde_json::Value {
    let target = &status.target;
    let mut object = json!({
        "state": status.state.name(),
        "lag_ms": status.lag.time.as_secs_f64() * 1e3,
        "lag_bytes": status.lag.bytes,
        "primary_lsn": status.primary_end.to_string(),
        "received_lsn": status.received.to_string(),
        "visible_lsn": status.visible.to_string(),
        "durable_lsn": status.durable.to_string(),
        "rows_per_second": status.changes_per_second,
        "transactions": target.transactions,
        "changes": target.changes,
        "rows_written": target.rows_written,
        "epochs": target.epochs,
        "epoch_changes": target.epoch_changes,
        "deferred": target.deferred,
        "pending_bytes": target.pending_bytes,
        "reconnects": status.reconnects,
        "missing_tables": status.missing_tables,
        "left_out_tables": left_out_json(&status.left_out),
        "check": status.check.as_ref().map(check_json),
        "slot_wal_status": status.retention.wal_status.name(),
        "slot_kept_bytes": status.retention.kept_bytes,
        "slot_safe_bytes": status.retention.safe_bytes,
        "cpu_seconds": cpu_seconds(),
    });
    match &status.state {
        State::Copying(progress) => {
            object["copy"] = json!({
                "tables_done": progress.tables_done,
                "tables": progress.tables,
                "rows_done": progress.rows_done,
                "bytes_done": progress.bytes_done,
                "bytes_estimate": progress.bytes_estimate,
                "current": progress.current,
            });
        }
        State::Waiting { reason, attempt } => {
            object["reason"] = json!(reason);
            object["attempt"] = json!(attempt);
        }
        _ => {}
    }
    object
}

pub fn status(status: Option<&BackupStatus>, as_json: bool) {
    let Some(status) = status else {
        return match as_json {
            true => println!("null"),
            false => println!("The backup knows no standby of that name."),
        };
    };
    if as_json {
        let object = json!({
            "slot": status.slot,
            "source": status.source,
            "state": status.state,
            "followed": status.followed,
            "applied_lsn": status.applied.map(|lsn| lsn.to_string()),
            "primary_lsn": status.primary_end.map(|lsn| lsn.to_string()),
            "behind_bytes": status.behind(),
            "missing_tables": status.missing_tables,
            "left_out_tables": left_out_json(&status.left_out),
            "checked": status.checked.as_ref().map(|(when, differed, repaired)| {
                json!({ "when": when, "differed": differed, "repaired": repaired })
            }),
            "switchover_since": status.switchover,
            "fenced": status.fenced,
        });
        println!("{object}");
        return;
    }
    let lsn = |lsn: Option<hindcast_pg::Lsn>| {
        lsn.map_or_else(|| "unknown".to_owned(), |lsn| lsn.to_string())
    };
    let followed = match status.followed {
        true => "somebody follows",
        false => "nobody follows",
    };
    println!("{} of {}", status.slot, status.source);
    println!("  state    {}, {followed}", status.state);
    println!("  applied  {}", lsn(status.applied));
    if let Some((when, differed, repaired)) = &status.checked {
        println!("  checked  {when}: {differed} rows differed, {repaired} were repaired");
    }
    if let Some(since) = &status.switchover {
        println!(
            "  switchover under way since {since}: run `hindcast standby switchover` again to go on, or with --abort to take it back"
        );
    }
    if status.fenced {
        println!("  fenced   it was the primary: its users only read until it is promoted");
    }
    if status.primary_end.is_some() {
        println!(
            "  primary  {}, {} ahead",
            lsn(status.primary_end),
            status.behind().map_or_else(|| "unknown".to_owned(), bytes)
        );
    }
    if let Some(missing) = status.missing_tables.as_ref().filter(|it| !it.is_empty()) {
        println!("  missing  {}", missing.join(", "));
    }
    print_left_out(&status.left_out);
}

/// A line per reason.
fn print_left_out(left_out: &[LeftOut]) {
    let mut by_reason: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for LeftOut { table, why } in left_out {
        by_reason.entry(why).or_default().push(table);
    }
    for (why, tables) in by_reason {
        println!("  left out {}: {why}", tables.join(", "));
    }
}

fn check_json(check: &CheckStatus) -> serde_json::Value {
    json!({
        "complete_at": check.complete.map(|(micros, _)| micros as f64 / 1e6),
        "complete_lsn": check.complete.map(|(_, at)| at.to_string()),
        "rows": check.rows,
        "differed": check.differed,
        "repaired": check.repaired,
        "passed_over": check.passed_over,
    })
}

fn left_out_json(left_out: &[LeftOut]) -> serde_json::Value {
    let one = |LeftOut { table, why }: &LeftOut| json!({ "table": table, "why": why });
    left_out.iter().map(one).collect()
}

/// A step of a switchover, as soon as it is done.
pub fn step(step: Step, as_json: bool) {
    let (name, text) = match step {
        Step::Noted => (
            "noted",
            "from here on, a run that is killed can be run again".to_owned(),
        ),
        Step::Fenced { ended } => (
            "fenced",
            format!(
                "the primary's users only read; {} ended",
                count(ended as u64, "session")
            ),
        ),
        Step::Drained { at, compared } => (
            "drained",
            match compared {
                0 => format!("the backup has everything up to {at}"),
                some => format!(
                    "the backup has everything up to {at}; {} compared, all rows the same",
                    count(some as u64, "table")
                ),
            },
        ),
        Step::WayBack { at } => (
            "way back",
            format!("the backup keeps its log from {at} on for the old primary"),
        ),
        Step::Promoted => ("promoted", "the backup is the one to write to".to_owned()),
    };
    match as_json {
        true => println!("{}", json!({ "step": name, "what": text })),
        false => println!("  {name:<8} {text}"),
    }
    let _ = std::io::stdout().flush();
}

/// How a switchover ended.
pub fn switched(report: &SwitchoverReport, args: &SwitchoverArgs) {
    if args.json {
        let missing = report.missing.map(missing_json);
        let promotion = report.promotion.as_ref().map(promoted_json);
        println!(
            "{}",
            json!({ "step": "done", "missing": missing, "back": report.back, "promotion": promotion })
        );
        return;
    }
    match &report.promotion {
        Some(promotion) => promoted(promotion, false),
        None => println!("The backup was promoted by an earlier run; the rest is done now."),
    }
    if report.promotion.is_none() && report.missing.is_none_or(|it| it != Default::default()) {
        println!("What the old primary has that the new one lacks, its slot still has.");
    }
    if report.back {
        println!(
            "The old primary only reads, and can follow: hindcast standby --from '{}' --to '{}' --name {}",
            args.to, args.from, args.name
        );
    } else {
        println!(
            "The old primary only reads: `hindcast standby fence --lift` lets its users write."
        );
    }
}

/// Everything was taken back.
pub fn aborted(as_json: bool) {
    match as_json {
        true => println!("{}", json!({ "step": "aborted" })),
        false => println!("Taken back: the primary takes writes, and the backup follows it."),
    }
}

/// What promotion did, and what is left to do.
pub fn promoted(report: &PromoteReport, as_json: bool) {
    if as_json {
        println!("{}", promoted_json(report));
        return;
    }
    println!("Promoted: the backup is a database of its own now.");
    println!("  was      {} of {}", report.slot, report.source);
    println!("  applied  {}", report.applied);
    match (&report.missing, &report.without_primary) {
        (Some(missing), _) if missing.transactions == 0 => {
            println!("  missing  nothing that the primary has committed");
        }
        (Some(missing), _) => println!(
            "  missing  {}{}, {}",
            if missing.more { "at least " } else { "" },
            count(missing.transactions, "transaction"),
            count(missing.changes, "row change"),
        ),
        (None, Some(why)) => println!("  missing  unknown, the primary was not asked: {why}"),
        (None, None) => println!("  missing  unknown"),
    }
    print_left_out(&report.left_out);
    if report.compared > 0 {
        println!(
            "  compared {}, all rows the same",
            count(report.compared as u64, "table")
        );
    }
    let from_columns = report
        .sequences
        .set
        .iter()
        .filter(|set| matches!(set.like, Like::Column(_)))
        .count();
    println!(
        "  set      {}{}",
        count(report.sequences.set.len() as u64, "sequence"),
        match from_columns {
            0 => String::new(),
            some => format!(", {some} of them from the values in their columns"),
        }
    );
    for (sequence, why) in &report.sequences.left {
        println!("  left     {sequence}: {why}");
    }
    for dropped in &report.dropped {
        println!("  dropped  {dropped}");
    }
    for finding in &report.findings {
        println!("  look at  {finding}");
    }
    if !report.to_drop_later.is_empty() {
        println!(
            "{}, run there, or it keeps its WAL for ever:",
            match report.without_primary {
                Some(_) =>
                    "Should the primary come back, keep its users from writing: `hindcast standby fence --from URL`. What it has that the backup lacks is in its slot. When nobody needs that any more",
                None =>
                    "Slot and publication are left on the primary. When nobody needs them any more",
            }
        );
        for statement in &report.to_drop_later {
            println!("  {statement};");
        }
    }
}

fn missing_json(missing: Missing) -> serde_json::Value {
    json!({ "transactions": missing.transactions, "changes": missing.changes, "more": missing.more })
}

fn promoted_json(report: &PromoteReport) -> serde_json::Value {
    let sequences: Vec<_> = report
        .sequences
        .set
        .iter()
        .map(|set| {
            let column = match &set.like {
                Like::Primary => None,
                Like::Column(column) => Some(column),
            };
            json!({ "name": set.name, "value": set.value, "called": set.called, "from_column": column })
        })
        .collect();
    json!({
        "slot": report.slot,
        "source": report.source,
        "applied_lsn": report.applied.to_string(),
        "follower_stopped": report.follower_stopped,
        "without_primary": report.without_primary,
        "complete": !report.is_incomplete(),
        "torn": report.torn,
        "missing": report.missing.map(missing_json),
        "left_out_tables": left_out_json(&report.left_out),
        "tables_compared": report.compared,
        "sequences": sequences,
        "sequences_left": report.sequences.left,
        "dropped": report.dropped,
        "to_drop_later": report.to_drop_later,
        "findings": report.findings,
    })
}

/// What this process has used so far; `None` where the system does not tell.
fn cpu_seconds() -> Option<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let mut ticks = || fields.next()?.parse::<f64>().ok();
    // USER_HZ is 100 on every Linux.
    Some((ticks()? + ticks()?) / 100.0)
}

#[cfg(test)]
mod tests {
    use hindcast_standby::status::CopyProgress;

    use super::*;

    #[test]
    fn a_log_has_a_line_for_each_change_of_state() {
        let mut shown = Shown::new(false, false, None);
        let mut said = |state: State, seconds: usize| {
            let status = Status {
                state,
                ..Status::default()
            };
            let due = |_: &usize| shown.is_due(&status, &line(&status));
            (0..seconds).filter(due).count()
        };
        let waiting = |attempt, reason: &str| State::Waiting {
            reason: reason.to_owned(),
            attempt,
        };
        assert_eq!(said(State::Copying(CopyProgress::default()), 30), 3);
        assert_eq!(said(State::Following, 1000), 1);
        assert_eq!(said(waiting(1, "it is down"), 50), 1);
        assert_eq!(said(waiting(2, "it is down"), 50), 0);
        assert_eq!(said(waiting(3, "it starts"), 50), 1);
        assert_eq!(said(State::Following, 1000), 1);
    }
}
