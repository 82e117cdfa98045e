//! Trace events as JSON, which Perfetto's page and Chrome read.
//!
//! One process has a lane for each client with its requests, another one a lane for each database
//! session with its transactions. Arrows go from a request to its transactions, and from one that
//! was in the way to the one that waited for it.

use std::io::Write;

use hindcast_trace::{Id, Micros, Trace};
use serde_json::{Value, json};

use super::{ExportError, outcome, outcome_of, place, requests, statements, transactions, waits};
use crate::index::Index;

/// The two processes.
const REQUESTS: u32 = 1;
const TRANSACTIONS: u32 = 2;

pub fn perfetto(trace: &Trace, index: &Index, out: &mut dyn Write) -> Result<(), ExportError> {
    let (start, _) = index.span().unwrap_or((0, 1));
    let mut events = Events {
        out,
        start,
        first: true,
        flows: 0,
    };
    // Times are from the first arrival on: a page that reads them as floating-point numbers would
    // lose microseconds of what has passed since 1970.
    let other = json!({ "first_arrival_us": start, "tool": "hindcast" });
    writeln!(
        events.out,
        "{{\"displayTimeUnit\":\"ms\",\"otherData\":{other},\"traceEvents\":["
    )?;
    lanes(index, &mut events)?;
    for request in requests(trace) {
        let request = request?;
        let Some(at) = index.find(request.id) else {
            continue;
        };
        let (outcome, status) = outcome(&request.response);
        events.write(&json!({
            "ph": "X", "cat": "request", "pid": REQUESTS, "tid": index.slot[at] + 1,
            "name": index.types[usize::from(index.kind[at])],
            "ts": request.arrived - start, "dur": (request.ended - request.arrived).max(1),
            "args": {
                "request": request.id.to_string(), "method": request.method,
                "target": request.target, "status": status, "outcome": outcome,
            },
        }))?;
    }
    for transaction in transactions(trace) {
        let transaction = transaction?;
        let Some(at) = place(index, &transaction) else {
            continue;
        };
        let own = statements(trace, &transaction);
        let name = own.iter().find(|text| !is_bracket(text));
        let name = name.map_or("transaction", String::as_str);
        events.write(&json!({
            "ph": "X", "cat": "transaction", "pid": TRANSACTIONS, "tid": session(index, at),
            "name": name.chars().take(60).collect::<String>(),
            "ts": transaction.began - start,
            "dur": (transaction.ended - transaction.began).max(1),
            "args": {
                "transaction": format!("t{}", transaction.id),
                "request": transaction.request.map(|(id, _)| id.to_string()),
                "isolation": transaction.isolation.name(),
                "outcome": outcome_of(&transaction),
                "xid": transaction.xid.map(|xid| xid.0),
                "rows": transaction.result_rows,
                "statements": own,
            },
        }))?;
        if let Some(request) = index.request_of(at) {
            let from = (REQUESTS, u64::from(index.slot[request]) + 1);
            events.arrow("request", from, index.began[at], at, index.began[at], index)?;
        }
    }
    for (holder, waiting) in waits(trace, index)? {
        let end = index.transaction_ended(holder);
        let from = (TRANSACTIONS, session(index, holder));
        let before = (end - 1).max(index.began[holder]);
        events.arrow("wait", from, before, waiting, end, index)?;
    }
    events.out.write_all(b"\n]}\n")?;
    Ok(())
}

struct Events<'a> {
    out: &'a mut dyn Write,
    start: Micros,
    first: bool,
    flows: u64,
}

impl Events<'_> {
    fn write(&mut self, event: &Value) -> Result<(), ExportError> {
        if !std::mem::take(&mut self.first) {
            self.out.write_all(b",\n")?;
        }
        serde_json::to_writer(&mut self.out, event).map_err(std::io::Error::from)?;
        Ok(())
    }

    /// From a lane, at a time, to a transaction.
    fn arrow(
        &mut self,
        category: &str,
        (process, lane): (u32, u64),
        leaves: Micros,
        to: usize,
        arrives: Micros,
        index: &Index,
    ) -> Result<(), ExportError> {
        self.flows += 1;
        let id = self.flows;
        self.write(&json!({
            "ph": "s", "cat": category, "name": category, "id": id,
            "pid": process, "tid": lane, "ts": leaves - self.start,
        }))?;
        self.write(&json!({
            "ph": "f", "bp": "e", "cat": category, "name": category, "id": id,
            "pid": TRANSACTIONS, "tid": session(index, to), "ts": arrives - self.start,
        }))
    }
}

fn lanes(index: &Index, events: &mut Events) -> Result<(), ExportError> {
    let mut name = |kind: &str, process: u32, lane: u64, name: String| {
        events.write(&json!({
            "ph": "M", "name": kind, "pid": process, "tid": lane, "args": { "name": name },
        }))
    };
    name(
        "process_name",
        REQUESTS,
        0,
        "requests, by client".to_owned(),
    )?;
    name(
        "process_name",
        TRANSACTIONS,
        0,
        "transactions, by session".to_owned(),
    )?;
    for slot in 0..index.slots as u64 {
        name(
            "thread_name",
            REQUESTS,
            slot + 1,
            format!("client {}", slot + 1),
        )?;
    }
    for (place, session) in (1..).zip(&index.sessions) {
        name(
            "thread_name",
            TRANSACTIONS,
            place,
            format!("session {}", Id(*session)),
        )?;
    }
    Ok(())
}

fn session(index: &Index, transaction: usize) -> u64 {
    u64::from(index.session[transaction]) + 1
}

/// Says nothing about what a transaction does.
fn is_bracket(statement: &str) -> bool {
    let first = statement.split_whitespace().next().unwrap_or_default();
    ["BEGIN", "START", "COMMIT", "END", "ROLLBACK", "SET"]
        .iter()
        .any(|word| first.trim_end_matches(';').eq_ignore_ascii_case(word))
}
