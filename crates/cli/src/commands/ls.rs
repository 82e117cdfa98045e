//! `hindcast ls`

use std::io::{IsTerminal, Write};
use std::ops::RangeInclusive;

use hindcast_trace::{
    Id, Isolation, ReadError, Request, RequestFilter, RequestId, Response, Trace, TransactionFilter,
};
use hindcast_view::gap_text;
use serde_json::json;

use crate::args::LsArgs;
use crate::error::{CliError, Exit};
use crate::render::format::{count, time};
use crate::render::ghosts::nothing_listed;
use crate::render::request::{LIST_HEADER, list_line};

pub fn run(args: &LsArgs) -> Result<Exit, CliError> {
    let trace = super::open(&args.trace)?;
    let ids = range(args.from, args.to)?;
    let limit = if args.limit == 0 {
        usize::MAX
    } else {
        args.limit
    };

    // One more than is shown tells whether there are more.
    let mut requests = trace
        .requests(RequestFilter {
            ids: Some(ids.clone()),
            lean: true,
            ..Default::default()
        })
        .take(limit.saturating_add(1))
        .collect::<Result<Vec<Request>, ReadError>>()
        .map_err(unreadable)?;
    let more = requests.len() > limit;
    requests.truncate(limit);

    let shown = match (
        requests.iter().map(|r| r.id).min(),
        requests.iter().map(|r| r.id).max(),
    ) {
        (Some(first), Some(last)) => first..=last,
        _ => return nothing_there(&trace, args),
    };
    let mut transactions = std::collections::HashMap::<RequestId, usize>::new();
    for transaction in trace.transactions(TransactionFilter {
        requests: Some(shown),
        lean: true,
        ..Default::default()
    }) {
        if let Some((request, _)) = transaction.map_err(unreadable)?.request {
            *transactions.entry(request).or_default() += 1;
        }
    }

    let mut out = std::io::stdout().lock();
    let written = if args.json {
        requests.iter().try_for_each(|request| {
            let line = as_json(request, transactions.get(&request.id).copied().unwrap_or(0));
            writeln!(out, "{line}")
        })
    } else {
        let width = if out.is_terminal() {
            terminal_width()
        } else {
            usize::MAX
        };
        writeln!(out, "{LIST_HEADER}").and_then(|()| {
            requests.iter().try_for_each(|request| {
                let own = transactions.get(&request.id).copied().unwrap_or(0);
                writeln!(out, "{}", list_line(request, own, width))
            })
        })
    };
    if written.is_err() {
        // Whoever reads has seen enough (`hindcast ls | head`).
        return Ok(Exit::Success);
    }
    if !args.json {
        if more && let Some(last) = requests.last() {
            eprintln!("… more: hindcast ls --from {}", Id(last.id.0 + 1));
        }
        say_of_all(&trace, args)?;
    }
    Ok(Exit::Success)
}

/// What is in the recording as a whole, and whether that is all that there is.
fn say_of_all(trace: &Trace, args: &LsArgs) -> Result<(), CliError> {
    for line in summary(trace).map_err(unreadable)? {
        eprintln!("{line}");
    }
    let spooled = hindcast_trace::spooled(&args.trace.trace);
    let spooled = spooled.map_err(|error| super::cannot_open(&args.trace, &error))?;
    super::recover::still_spooled(&args.trace, &spooled).for_each(|line| eprintln!("{line}"));
    Ok(())
}

/// The requests from `from` to `to`, either end left open.
pub fn range(
    from: Option<RequestId>,
    to: Option<RequestId>,
) -> Result<RangeInclusive<RequestId>, CliError> {
    let (from, to) = (from.unwrap_or(Id(0)), to.unwrap_or(Id(u64::MAX)));
    if from > to {
        return Err(CliError::usage(format!(
            "--from {from} comes after --to {to}"
        )));
    }
    Ok(from..=to)
}

pub fn unreadable(error: ReadError) -> CliError {
    CliError::because("the recording cannot be read", &error)
}

fn nothing_there(trace: &Trace, args: &LsArgs) -> Result<Exit, CliError> {
    if args.from.is_none() && args.to.is_none() {
        match trace.pruned() {
            [] => eprintln!("{}", without_requests(trace, args)?),
            _ => eprintln!("All requests were pruned in {}.", args.trace.trace),
        }
        say_of_all(trace, args)?;
        return Ok(Exit::Success);
    }
    Err(
        CliError::failed("no such requests in the recording").hint(format!(
            "it has {}{}; see them with `hindcast ls`",
            count(trace.request_count(), "request"),
            match trace.pruned() {
                [] => "",
                _ => ", earlier ones were pruned",
            }
        )),
    )
}

fn without_requests(trace: &Trace, args: &LsArgs) -> Result<String, CliError> {
    let lean = TransactionFilter {
        lean: true,
        ..Default::default()
    };
    let first = trace.transactions(lean).next().transpose();
    let first = first.map_err(unreadable)?.map(|transaction| transaction.id);
    let recorder = trace.recorders().first();
    let front = match recorder {
        Some(recorder) if !recorder.command.is_empty() => None,
        Some(recorder) => Some((recorder.listen.as_str(), recorder.app.as_str())),
        None => Some(("the ingress (--listen)", "the service")),
    };
    Ok(nothing_listed(
        &args.trace.trace.to_string(),
        first.map(|first| (trace.transaction_count(), first)),
        front,
    ))
}

fn as_json(request: &Request, transactions: usize) -> serde_json::Value {
    let (status, note) = match &request.response {
        Response::Answered { status, .. } => (Some(*status), None),
        Response::Broken { reason } | Response::Unrecorded { reason } => (None, Some(reason)),
    };
    json!({
        "request": request.id.to_string(),
        "arrived_us": request.arrived,
        "ended_us": request.ended,
        "method": request.method,
        "target": request.target,
        "status": status,
        "note": note,
        "transactions": transactions,
    })
}

/// What the recording holds as a whole; also printed when recording ends.
fn summary(trace: &Trace) -> Result<Vec<String>, ReadError> {
    let (mut ghosts, mut read_committed) = (0, 0);
    let (mut first, mut last) = (i64::MAX, i64::MIN);
    for transaction in trace.transactions(TransactionFilter {
        lean: true,
        ..Default::default()
    }) {
        let transaction = transaction?;
        ghosts += u64::from(transaction.request.is_none());
        read_committed += u64::from(
            transaction.snapshot.is_some() && transaction.isolation == Isolation::ReadCommitted,
        );
        first = first.min(transaction.began);
        last = last.max(transaction.ended);
    }
    let mut lines = vec![format!(
        "{}, {} ({}, {read_committed} at READ COMMITTED)",
        count(trace.request_count(), "request"),
        count(trace.transaction_count(), "transaction"),
        count(ghosts, "ghost"),
    )];
    if first <= last {
        let recorders = match trace.recorders().len() {
            0 | 1 => String::new(),
            several => format!(", by {several} recorders"),
        };
        lines.push(format!(
            "from {} to {} UTC{recorders}",
            time(first),
            time(last)
        ));
    }
    lines.extend(trace.gaps().iter().map(gap_text));
    Ok(lines)
}

fn terminal_width() -> usize {
    // `indicatif`'s terminal library asks the terminal; without one the caller does not get here.
    usize::from(console::Term::stdout().size().1).max(40)
}
