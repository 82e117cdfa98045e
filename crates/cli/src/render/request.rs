//! Requests and transactions, for `ls` and `show`.

use std::fmt::Write;

use hindcast_trace::{Request, Response, Shape, Transaction};
use hindcast_view::snapshot_text;
use hindcast_view::words::{attribution, outcome};

use super::format::{body, count, cut, duration, time, time_of_day};
use super::statement::statements_of;

pub const LIST_HEADER: &str = "REQUEST  ARRIVED (UTC)       TIME  STATUS  TX  REQUEST LINE";

/// One line of `ls`.
pub fn list_line(request: &Request, transactions: usize, width: usize) -> String {
    let status = match &request.response {
        Response::Answered { status, .. } => status.to_string(),
        Response::Broken { .. } => "broken".into(),
        Response::Unrecorded { .. } => "—".into(),
    };
    cut(
        &format!(
            "{:>7}  {}  {:>9}  {:>6}  {:>2}  {} {}",
            request.id,
            time_of_day(request.arrived),
            duration(request.ended - request.arrived),
            status,
            transactions,
            request.method,
            request.target
        ),
        width,
    )
}

/// `show 17`
pub fn request_page(
    request: &Request,
    transactions: &[Transaction],
    redacted: &[String],
    shape: impl Fn(&Transaction) -> Option<Shape>,
) -> String {
    let mut page = String::new();
    let _ = writeln!(
        page,
        "request {}: {} {}",
        request.id,
        request.method,
        cut(&request.target, 200)
    );
    let _ = writeln!(
        page,
        "arrived {} UTC, took {}",
        time(request.arrived),
        duration(request.ended - request.arrived)
    );
    if let Some(caller) = &request.caller_traceparent {
        let _ = writeln!(page, "caller's traceparent {}", cut(caller, 80));
    }
    if let Some(user) = &request.user_id {
        let _ = writeln!(page, "user {}", cut(user, 80));
    }
    if !redacted.is_empty() {
        let _ = writeln!(page, "redacted by {}", redacted.join(", "));
    }
    for (name, value) in &request.headers {
        let _ = writeln!(page, "  {}: {}", cut(name, 60), body(value, 120));
    }
    if !request.body.is_empty() {
        let _ = writeln!(page, "  {}", body(&request.body, 400));
    }
    match &request.response {
        Response::Answered {
            status,
            headers,
            body_digest,
            body_bytes,
            body: kept,
        } => {
            let _ = writeln!(
                page,
                "response {status}, {body_bytes} bytes, digest {body_digest}"
            );
            for (name, value) in headers {
                let _ = writeln!(page, "  {}: {}", cut(name, 60), body(value, 120));
            }
            if let Some(kept) = kept.as_deref().filter(|kept| !kept.is_empty()) {
                let _ = writeln!(page, "  {}", body(kept, 400));
            }
        }
        Response::Broken { reason } => {
            let _ = writeln!(page, "response broken off: {reason}");
        }
        Response::Unrecorded { reason } => {
            let _ = writeln!(page, "response not recorded: {reason}");
        }
    }
    let _ = writeln!(page, "{}", count(transactions.len() as u64, "transaction"));
    for transaction in transactions {
        let _ = writeln!(page);
        page.push_str(&transaction_block(transaction, shape(transaction).as_ref()));
    }
    page.truncate(page.trim_end().len());
    page
}

fn belongs_to(transaction: &Transaction) -> String {
    let Some((request, by)) = transaction.request else {
        return "of no request: a ghost".to_owned();
    };
    let how = attribution(by);
    format!("of request {request}, {how}")
}

/// The lines about one transaction that `show` prints for a request and for the transaction itself.
pub fn transaction_block(transaction: &Transaction, shape: Option<&Shape>) -> String {
    let mut block = String::new();
    let outcome = outcome(&transaction.outcome);
    let isolation = transaction.isolation.name().to_uppercase();
    let _ = writeln!(
        block,
        "transaction t{}: {outcome}, {isolation}, began {}, took {}",
        transaction.id,
        time_of_day(transaction.began),
        duration(transaction.ended - transaction.began)
    );
    let _ = writeln!(block, "  {}", belongs_to(transaction));
    match shape {
        Some(shape) => block += &statements_of(transaction, shape),
        None => {
            let _ = writeln!(
                block,
                "  (its statements are not in the recording: shape {:08x})",
                transaction.shape.0
            );
        }
    }
    let _ = writeln!(
        block,
        "  answered {}, digest {}",
        count(transaction.result_rows, "row"),
        transaction.result_digest
    );
    if let Some(snapshot) = &transaction.snapshot {
        let _ = writeln!(block, "  saw {}", snapshot_text(snapshot));
    }
    // The first of them is the one above.
    for later in transaction.statement_snapshots.iter().skip(1) {
        let text = snapshot_text(&later.snapshot);
        let _ = writeln!(
            block,
            "  saw from statement {} on {text}",
            later.statement + 1
        );
    }
    if let Some(xid) = transaction.xid {
        let _ = writeln!(block, "  wrote as transaction id {}", xid.0);
    }
    if !transaction.drawn_uuids.is_empty() {
        let values = transaction.drawn_uuids.iter().map(|drawn| drawn.text());
        let values: Vec<_> = values.collect();
        let _ = writeln!(block, "  drew UUIDs: {}", cut(&values.join(", "), 120));
    }
    if !transaction.sequence_values.is_empty() {
        let values: Vec<_> = transaction
            .sequence_values
            .iter()
            .map(|drawn| drawn.value.to_string())
            .collect();
        let _ = writeln!(
            block,
            "  drew from sequences: {}",
            cut(&values.join(", "), 120)
        );
    }
    block
}
