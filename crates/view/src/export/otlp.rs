//! Spans as OTLP JSON: one `ExportTraceServiceRequest` a line, as OpenTelemetry's collector writes
//! and reads files.
//!
//! A request is a server's span in the trace whose id it had then, and its transactions are its
//! children. Who was waited for is a link.

use std::collections::HashMap;
use std::io::Write;

use hindcast_trace::{Id, Micros, Request, Trace, Transaction};
use serde_json::{Value, json};

use super::{ExportError, outcome, outcome_of, place, requests, statements, transactions, waits};
use crate::index::Index;

/// Spans of one line.
const BATCH: usize = 512;
/// `SPAN_KIND_SERVER`, `SPAN_KIND_CLIENT`
const SERVER: u8 = 2;
const CLIENT: u8 = 3;
/// `STATUS_CODE_ERROR`
const ERROR: u8 = 2;

pub fn otlp(trace: &Trace, index: &Index, out: &mut dyn Write) -> Result<(), ExportError> {
    let prefixes = trace.recorders().iter();
    let names = Names {
        prefixes: prefixes.map(|it| (it.number, it.trace_id_prefix)).collect(),
    };
    let mut batches = Batches {
        out,
        spans: Vec::new(),
    };
    for request in requests(trace) {
        batches.push(of_request(index, &names, &request?))?;
    }
    let mut waited: HashMap<usize, Vec<usize>> = HashMap::new();
    for (holder, waiting) in waits(trace, index)? {
        waited.entry(waiting).or_default().push(holder);
    }
    for transaction in transactions(trace) {
        let transaction = transaction?;
        let mut span = of_transaction(&names, trace, &transaction);
        let holders = place(index, &transaction).and_then(|at| waited.get(&at));
        let links = holders.into_iter().flatten().map(|holder| {
            let id = Id(index.transaction[*holder]);
            let request = index.request_of(*holder).map(|at| Id(index.id[at]));
            json!({
                "traceId": names.trace(id, request), "spanId": transaction_span(id),
                "attributes": [attribute("hindcast.link", "waited for".into())],
            })
        });
        span["links"] = links.collect();
        batches.push(span)?;
    }
    batches.flush()
}

struct Batches<'a> {
    out: &'a mut dyn Write,
    spans: Vec<Value>,
}

impl Batches<'_> {
    fn push(&mut self, span: Value) -> Result<(), ExportError> {
        self.spans.push(span);
        if self.spans.len() == BATCH {
            self.flush()?;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), ExportError> {
        if self.spans.is_empty() {
            return Ok(());
        }
        let line = json!({ "resourceSpans": [{
            "resource": { "attributes": [
                attribute("service.name", "hindcast".into()),
                attribute("telemetry.sdk.name", "hindcast".into()),
            ] },
            "scopeSpans": [{
                "scope": { "name": "hindcast", "version": env!("CARGO_PKG_VERSION") },
                "spans": std::mem::take(&mut self.spans),
            }],
        }] });
        writeln!(self.out, "{line}")?;
        Ok(())
    }
}

struct Names {
    prefixes: HashMap<u16, u64>,
}

impl Names {
    /// The trace-id that the request had. A ghost, which had none, is a trace by itself.
    fn trace(&self, transaction: Id, request: Option<Id>) -> String {
        let id = request.unwrap_or(transaction);
        let prefix = self.prefixes.get(&id.recorder()).copied().unwrap_or(1);
        match request {
            Some(request) => format!("{prefix:016x}{:016x}", request.0),
            None => format!("{:016x}{:016x}", !prefix, transaction.0),
        }
    }
}

fn request_span(id: Id) -> String {
    format!("{:016x}", id.0)
}

/// Ids never use the highest bit.
fn transaction_span(id: Id) -> String {
    format!("{:016x}", id.0 | 1 << 63)
}

fn of_request(index: &Index, names: &Names, request: &Request) -> Value {
    let (outcome, status) = outcome(&request.response);
    let (path, query) = match request.target.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (request.target.as_str(), None),
    };
    let kind = index.find(request.id).map(|at| usize::from(index.kind[at]));
    let name = kind.map_or(request.method.as_str(), |kind| &index.types[kind]);
    let mut attributes = vec![
        attribute("http.request.method", request.method.as_str().into()),
        attribute("url.path", path.into()),
        attribute("hindcast.request", request.id.to_string().into()),
        attribute("hindcast.outcome", outcome.into()),
    ];
    attributes.extend(query.map(|query| attribute("url.query", query.into())));
    attributes.extend(status.map(|it| attribute("http.response.status_code", it.into())));
    let user = request.user_id.as_deref();
    attributes.extend(user.map(|user| attribute("user.id", user.into())));
    let mut span = json!({
        "traceId": names.trace(request.id, Some(request.id)),
        "spanId": request_span(request.id),
        "name": name, "kind": SERVER,
        "startTimeUnixNano": nanos(request.arrived),
        "endTimeUnixNano": nanos(request.ended),
        "attributes": attributes,
    });
    if status.is_none_or(|status| status >= 500) {
        span["status"] = json!({ "code": ERROR });
    }
    span
}

fn of_transaction(names: &Names, trace: &Trace, own: &Transaction) -> Value {
    let request = own.request.map(|(id, _)| id);
    let mut attributes = vec![
        attribute("db.system.name", "postgresql".into()),
        attribute("db.query.text", statements(trace, own).join(";\n").into()),
        attribute("hindcast.transaction", format!("t{}", own.id).into()),
        attribute("hindcast.session", own.session.to_string().into()),
        attribute("hindcast.isolation", own.isolation.name().into()),
        attribute("hindcast.outcome", outcome_of(own).into()),
        attribute("db.response.returned_rows", own.result_rows.into()),
    ];
    attributes.extend(own.xid.map(|xid| attribute("hindcast.xid", xid.0.into())));
    let mut span = json!({
        "traceId": names.trace(own.id, request),
        "spanId": transaction_span(own.id),
        "name": "transaction", "kind": CLIENT,
        "startTimeUnixNano": nanos(own.began),
        "endTimeUnixNano": nanos(own.ended),
        "attributes": attributes,
    });
    if let Some(request) = request {
        span["parentSpanId"] = request_span(request).into();
    }
    if own.outcome == hindcast_trace::Outcome::Aborted {
        span["status"] = json!({ "code": ERROR });
    }
    span
}

/// 64-bit numbers are texts in OTLP JSON.
fn nanos(at: Micros) -> String {
    (i128::from(at) * 1000).max(0).to_string()
}

fn attribute(key: &str, value: Value) -> Value {
    let value = match value {
        Value::Number(number) => json!({ "intValue": number.to_string() }),
        value => json!({ "stringValue": value }),
    };
    json!({ "key": key, "value": value })
}
