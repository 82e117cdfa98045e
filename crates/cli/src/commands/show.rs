//! `hindcast show`

use std::io::Write;

use hindcast_replay::redacted::Redacted;
use hindcast_trace::{ReadError, RequestFilter, Trace, Transaction, TransactionFilter};

use super::ls::unreadable;
use crate::args::ShowArgs;
use crate::error::{CliError, Exit};
use crate::render::request::{request_page, transaction_block};

/// How far around a transaction others are looked for that ran at the same time, in µs. Longer ones
/// are missed; the list is for a person to look at.
const NEIGHBOURHOOD: i64 = 60_000_000;

pub fn run(args: &ShowArgs) -> Result<Exit, CliError> {
    let trace = super::open(&args.trace)?;
    let not_an_id = || {
        CliError::usage(format!(
            "{:?} is neither a request nor a transaction",
            args.what
        ))
        .hint("`hindcast show 17` shows request 17, `hindcast show t42` transaction 42")
    };
    match args.what.strip_prefix('t') {
        Some(id) => show_transaction(&trace, args, id.parse().map_err(|_| not_an_id())?),
        None => show_request(&trace, args, args.what.parse().map_err(|_| not_an_id())?),
    }
}

fn show_request(
    trace: &Trace,
    args: &ShowArgs,
    id: hindcast_trace::RequestId,
) -> Result<Exit, CliError> {
    let Some(request) = trace.request(id).map_err(unreadable)? else {
        return Err(
            CliError::failed(format!("request {id} is not in the recording"))
                .hint("`hindcast ls` lists those that are"),
        );
    };
    let transactions = trace
        .transactions(TransactionFilter {
            requests: Some(id..=id),
            ..Default::default()
        })
        .collect::<Result<Vec<Transaction>, ReadError>>()
        .map_err(unreadable)?;
    let redacted = Redacted::of(trace).rules_of(&request);
    if args.json {
        print_json(
            &serde_json::json!({ "request": request, "redacted": redacted, "transactions": transactions }),
        );
    } else {
        print(&format!(
            "{}\n",
            request_page(&request, &transactions, &redacted, |t| trace
                .shape(t.shape)
                .cloned())
        ));
    }
    Ok(Exit::Success)
}

fn show_transaction(
    trace: &Trace,
    args: &ShowArgs,
    id: hindcast_trace::TransactionId,
) -> Result<Exit, CliError> {
    let transaction = transaction(trace, id)?;
    let concurrent = concurrent_with(trace, &transaction)?;
    if args.json {
        let ids: Vec<_> = concurrent.iter().map(|t| t.id).collect();
        print_json(&serde_json::json!({ "transaction": transaction, "concurrent_writers": ids }));
        return Ok(Exit::Success);
    }
    let mut page = transaction_block(&transaction, trace.shape(transaction.shape));
    if transaction.snapshot.is_some() {
        if concurrent.is_empty() {
            page += "\nNo recorded writer ran at the same time.\n";
        } else {
            page += "\nWriters at the same time, not seen by it:\n";
            for other in &concurrent {
                page += &neighbour(trace, other)?;
            }
        }
    }
    print(&page);
    Ok(Exit::Success)
}

pub fn transaction(
    trace: &Trace,
    id: hindcast_trace::TransactionId,
) -> Result<Transaction, CliError> {
    let found = trace.transaction(id).map_err(unreadable)?;
    found.ok_or_else(|| {
        CliError::failed(format!("transaction t{id} is not in the recording"))
            .hint("`hindcast show` of a request lists its transactions")
    })
}

/// Writers that `transaction` did not see although they began before it ended.
fn concurrent_with(trace: &Trace, transaction: &Transaction) -> Result<Vec<Transaction>, CliError> {
    let Some(snapshot) = &transaction.snapshot else {
        return Ok(Vec::new());
    };
    let around = transaction.began - NEIGHBOURHOOD..transaction.ended + 1;
    let mut found = Vec::new();
    for other in trace.transactions(TransactionFilter {
        began: Some(around),
        lean: true,
        ..Default::default()
    }) {
        let other = other.map_err(unreadable)?;
        let unseen = other.xid.is_some_and(|xid| !snapshot.sees(xid));
        if unseen && other.id != transaction.id && other.ended >= transaction.began {
            found.push(other);
        }
    }
    Ok(found)
}

fn neighbour(trace: &Trace, other: &Transaction) -> Result<String, CliError> {
    let request = match other.request {
        Some((id, _)) => {
            let line = trace
                .requests(RequestFilter {
                    ids: Some(id..=id),
                    lean: true,
                    ..Default::default()
                })
                .next()
                .transpose()
                .map_err(unreadable)?
                .map(|request| format!(": {} {}", request.method, request.target))
                .unwrap_or_default();
            format!("request {id}{line}")
        }
        None => "a ghost".to_owned(),
    };
    Ok(format!(
        "  t{} of {}\n",
        other.id,
        crate::render::format::cut(&request, 120)
    ))
}

fn print_json(value: &serde_json::Value) {
    print(&format!(
        "{}\n",
        serde_json::to_string_pretty(value).expect("recorded values have string keys")
    ));
}

/// Whoever reads may have seen enough (`hindcast show 17 | head`).
fn print(text: &str) {
    let _ = std::io::stdout().lock().write_all(text.as_bytes());
}
