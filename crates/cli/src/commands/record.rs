//! `hindcast record`

use std::time::Duration;

use hindcast_gateway::record::{
    self, FinalStateMode, RecordOptions, Recording, Started, Status, Summary,
};
use hindcast_trace::WriterOptions;
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};

use super::base;
use crate::args::{BaseMethod, FinalStateWhen, RecordArgs};
use crate::error::{CliError, Exit};
use crate::render::format::{bytes, count};

/// How often the status line is written.
const STATUS_INTERVAL: Duration = Duration::from_secs(10);

pub async fn run(args: RecordArgs) -> Result<Exit, CliError> {
    let mut interrupt = signal(SignalKind::interrupt())
        .map_err(|error| CliError::because("cannot listen for signals", &error))?;
    let mut terminate = signal(SignalKind::terminate())
        .map_err(|error| CliError::because("cannot listen for signals", &error))?;

    let mut options = options(&args)?;
    if args.base == BaseMethod::Template {
        options.base = Some(
            hindcast_rewind::take_template(&args.postgres)
                .await
                .map_err(base::cannot_take)?,
        );
    }
    let taken = options.base.as_ref().map(base::describe);
    let recording = record::start(options).await.map_err(|error| {
        let failed = CliError::because("cannot record", &error);
        match error.hint() {
            hint if hint.is_empty() => failed,
            hint => failed.hint(hint),
        }
    })?;
    announce(&args, recording.started(), taken.as_deref());

    let mut ticks = tokio::time::interval(STATUS_INTERVAL);
    ticks.tick().await;
    let mut last = Status::default();
    loop {
        tokio::select! {
            _ = interrupt.recv() => break,
            _ = terminate.recv() => break,
            _ = ticks.tick() => last = report(&args, &recording, last),
        }
    }
    eprintln!("Stopping: waiting for what is in flight. Once more to stop at once.");
    let summary = tokio::select! {
        summary = recording.stop() => summary,
        _ = interrupt.recv() => return Err(stopped_at_once()),
        _ = terminate.recv() => return Err(stopped_at_once()),
    };
    conclude(&args, summary)
}

fn stopped_at_once() -> CliError {
    CliError::failed("stopped without closing the recording").hint(
        "the recording can be read all the same; its last moments may be missing, and it says so",
    )
}

fn options(args: &RecordArgs) -> Result<RecordOptions, CliError> {
    let wrong =
        |flag: &str, error: &dyn std::fmt::Display| CliError::usage(format!("{flag}: {error}"));
    let mut options = RecordOptions::new(
        args.listen
            .parse()
            .map_err(|error| wrong("--listen", &error))?,
        args.app.parse().map_err(|error| wrong("--app", &error))?,
        args.pg_listen
            .parse()
            .map_err(|error| wrong("--pg-listen", &error))?,
        args.postgres
            .parse()
            .map_err(|error| wrong("--postgres", &error))?,
        args.trace.trace.clone(),
    );
    options.writer = WriterOptions {
        flush_interval: args.flush_interval,
        durable: args.durable,
        roll_every: args.roll_interval,
        wal_folder: args.wal_folder.clone(),
        ..WriterOptions::default()
    };
    options.limits.response_body_max = args.response_body_max;
    options.raise_isolation = args.isolation.is_some();
    options.pg_identity = args.pg_tls_cert.clone().zip(args.pg_tls_key.clone());
    options.final_state = match args.final_state {
        FinalStateWhen::Auto => FinalStateMode::Auto,
        FinalStateWhen::Always => FinalStateMode::Always,
        FinalStateWhen::Never => FinalStateMode::Never,
    };
    Ok(options)
}

fn announce(args: &RecordArgs, started: &Started, base: Option<&str>) {
    if args.json {
        println!(
            "{}",
            json!({ "event": "started", "recorder": started.recorder.number, "listen": started.listen.to_string(), "pg_listen": started.pg_listen.to_string(), "base": base, "warnings": started.warnings })
        );
        return;
    }
    println!(
        "Recording into {} as recorder {}",
        args.trace.trace, started.recorder.number
    );
    println!("  requests      {} → {}", started.listen, args.app);
    println!(
        "  transactions  {} → {}",
        started.pg_listen, started.recorder.postgres
    );
    match base {
        Some(base) => println!("  base          {base}"),
        None => println!(
            "  base          none: take one with `hindcast base` before the first request, or nothing can be replayed"
        ),
    }
    for warning in &started.warnings {
        println!("  warning       {warning}");
    }
    println!("Stop with Ctrl-C.");
}

fn report(args: &RecordArgs, recording: &Recording, last: Status) -> Status {
    let status = recording.status();
    if args.json {
        println!("{}", as_json("status", &status));
    } else if status.requests != last.requests || status.transactions != last.transactions {
        println!("{}", line(&status));
    }
    if let Some(failure) = status
        .writer
        .wal_failure
        .as_ref()
        .filter(|failure| Some(*failure) != last.writer.wal_failure.as_ref())
    {
        eprintln!(
            "Warning: the recording cannot be written: {failure}. The service goes on; what is lost becomes a gap."
        );
    }
    if let Some(failure) = status
        .writer
        .segment_failure
        .as_ref()
        .filter(|failure| Some(*failure) != last.writer.segment_failure.as_ref())
    {
        eprintln!(
            "Warning: finished segments cannot be put into the recording: {failure}. They wait in the write-ahead folder."
        );
    }
    status
}

fn line(status: &Status) -> String {
    let mut line = format!(
        "{}, {} ({})",
        count(status.requests, "request"),
        count(status.transactions, "transaction"),
        count(status.ghosts, "ghost")
    );
    if status.writer.buffered_bytes > 0 {
        line += &format!(
            ", {} waiting to be written",
            bytes(status.writer.buffered_bytes)
        );
    }
    line
}

fn as_json(event: &str, status: &Status) -> serde_json::Value {
    json!({
        "event": event,
        "requests": status.requests,
        "requests_in_flight": status.requests_in_flight,
        "requests_broken": status.requests_broken,
        "requests_unrecorded": status.requests_unrecorded,
        "transactions": status.transactions,
        "transactions_aborted": status.transactions_aborted,
        "by_comment": status.by_comment,
        "by_application_name": status.by_application_name,
        "by_being_alone": status.by_being_alone,
        "ghosts": status.ghosts,
        "unattributed": status.unattributed,
        "read_committed": status.read_committed,
        "gaps": status.gaps,
        "unaccounted": status.unaccounted,
        "dropped_requests": status.writer.dropped_requests,
        "dropped_transactions": status.writer.dropped_transactions,
        "buffered_bytes": status.writer.buffered_bytes,
    })
}

/// What should be known about a recording, with what to do about it.
fn remarks(status: &Status) -> Vec<String> {
    let mut remarks = Vec::new();
    if status.unattributed > 0 {
        let by: Vec<_> = status
            .unattributed_by
            .iter()
            .take(3)
            .map(|(client, times)| format!("{client}: {times}"))
            .collect();
        remarks.push(format!(
            "{} began while several requests were in flight and carried no traceparent ({}). They are ghosts now, and the requests they belong to cannot be \
             replayed. Make the service pass traceparent on to its database: see examples/README.md",
            count(status.unattributed, "transaction"),
            by.join(", ")
        ));
    }
    if status.read_committed > 0 {
        remarks.push(format!(
            "{} ran at READ COMMITTED; their replay is approximate. `--isolation repeatable-read` raises sessions that do not choose",
            count(status.read_committed, "transaction")
        ));
    }
    if status.unaccounted > 0 {
        remarks.push(format!(
            "{} committed without passing a recorder; replay refuses to cross them unless told to",
            count(status.unaccounted, "transaction")
        ));
    }
    if status.unobserved_sessions > 0 {
        remarks.push(format!(
            "{} could not be followed and was passed through",
            count(status.unobserved_sessions, "session")
        ));
    }
    let (requests, transactions) = (
        status.writer.dropped_requests,
        status.writer.dropped_transactions,
    );
    if requests + transactions > 0 {
        remarks.push(format!(
            "{} and {} are missing: the recording could not be written fast enough, or not at all",
            count(requests, "request"),
            count(transactions, "transaction")
        ));
    }
    remarks
}

fn conclude(args: &RecordArgs, summary: Summary) -> Result<Exit, CliError> {
    if args.json {
        println!("{}", as_json("stopped", &summary.status));
    } else {
        println!(
            "Recorded {} into {}",
            line(&summary.status),
            args.trace.trace
        );
        match &summary.final_state {
            Ok(state) => println!(
                "  final state   {}",
                count(state.tables.len() as u64, "table")
            ),
            Err(reason) => println!("  final state   not recorded: {reason}"),
        }
        for remark in remarks(&summary.status) {
            println!("  note          {remark}");
        }
        println!("Next: hindcast ls --trace {}", args.trace.trace);
    }
    summary
        .closed
        .map_err(|error| CliError::because("the recording could not be completed", &error))?;
    Ok(Exit::Success)
}
