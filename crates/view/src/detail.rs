//! One request or one transaction with everything that the recording has of it.

use std::collections::HashMap;

use hindcast_trace::{
    Id, Micros, ReadError, Request, RequestFilter, RequestId, Response, StatementSnapshot, Trace,
    Transaction, TransactionFilter, TransactionId,
};
use hindcast_wire::spoken::{Spoken, spoken};
use serde::Serialize;

use crate::index::{Index, UNRECORDED};
use crate::lanes::Lanes;
use crate::sight::{Sight, sight, snapshot_text};
use crate::words::{attribution, outcome};

/// How much of a body is told.
const BODY_MAX: usize = 64 << 10;
/// Transactions of one request that are told whole.
const TRANSACTIONS_MAX: usize = 200;

#[derive(Debug, PartialEq, Serialize)]
pub struct RequestDetail {
    pub id: String,
    /// Its type.
    pub of: Option<String>,
    pub method: String,
    pub target: String,
    pub arrived: Micros,
    pub took: Micros,
    pub headers: Vec<(String, String)>,
    pub body: Option<Body>,
    /// How it ended, if there was no response.
    pub unanswered: Option<String>,
    pub status: Option<u16>,
    pub response_headers: Vec<(String, String)>,
    pub response_bytes: u64,
    pub response_digest: Option<String>,
    /// `None`: it was not kept, or there was none.
    pub response: Option<Body>,
    pub calls: Vec<CallDetail>,
    pub transactions: Vec<TransactionDetail>,
    pub transactions_left_out: usize,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Body {
    pub text: String,
    /// It is not text: bytes are shown as `\x00`.
    pub binary: bool,
    pub bytes: usize,
    /// Only its beginning is here.
    pub cut: bool,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct CallDetail {
    pub peer: String,
    pub began: Micros,
    pub took: Micros,
    pub sent: usize,
    pub received: usize,
    pub encrypted: bool,
    pub within: bool,
}

#[derive(Debug, PartialEq, Serialize)]
pub struct TransactionDetail {
    pub id: String,
    pub request: Option<String>,
    /// How it was found to belong to it.
    pub attribution: Option<&'static str>,
    pub session: String,
    pub began: Micros,
    pub took: Micros,
    pub isolation: &'static str,
    pub outcome: String,
    pub xid: Option<u64>,
    pub statements: Vec<Spoken>,
    /// Whether the values were recorded.
    pub with_values: bool,
    /// Statements, from 1, that saw something else than the one before, and what.
    pub later_snapshots: Vec<(u32, String)>,
    pub reads: Vec<String>,
    pub writes: Vec<String>,
    pub result_rows: u64,
    pub result_digest: String,
    /// Values that its statements drew, as text.
    pub drawn: Vec<String>,
    /// What it saw; only where one transaction was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sight: Option<Sight>,
}

/// A request in a line: id, arrival, duration, status if it was answered, method, target.
pub type RequestLine = (String, Micros, u32, Option<u16>, String, String);

/// Requests that lie no further apart than this, in requests, are read for their targets.
const READ_MAX: usize = 20_000;

/// Requests at these places of the index, in their order. The targets of few that are spread over a
/// long recording would take reading all of it: of these the type is told instead.
pub fn request_lines(trace: &Trace, index: &Index, places: &[usize]) -> Vec<RequestLine> {
    let (Some(first), Some(last)) = (places.first(), places.last()) else {
        return Vec::new();
    };
    let mut targets = HashMap::new();
    if last - first <= READ_MAX {
        let filter = RequestFilter {
            arrived: Some(index.arrived[*first]..index.arrived[*last] + 1),
            lean: true,
            ..RequestFilter::default()
        };
        // What cannot be read is told where it is asked for by itself.
        let read = trace.requests(filter).map_while(Result::ok);
        targets = read.map(|it| (it.id.0, (it.method, it.target))).collect();
    }
    let line = |at: &usize| {
        let id = index.id[*at];
        let (method, target) = targets.remove(&id).unwrap_or_else(|| {
            let name = &index.types[usize::from(index.kind[*at])];
            let (method, path) = name.split_once(' ').unwrap_or((name, ""));
            (method.to_owned(), path.to_owned())
        });
        let status = Some(index.status[*at]).filter(|status| *status > UNRECORDED);
        let (arrived, took) = (index.arrived[*at], index.took[*at]);
        (Id(id).to_string(), arrived, took, status, method, target)
    };
    places.iter().map(line).collect()
}

/// `None`: there is no such request.
pub fn request_detail(
    trace: &Trace,
    index: &Index,
    id: RequestId,
) -> Result<Option<RequestDetail>, ReadError> {
    let Some(request) = trace.request(id)? else {
        return Ok(None);
    };
    let own = trace.transactions(TransactionFilter {
        requests: Some(id..=id),
        ..TransactionFilter::default()
    });
    let own: Vec<Transaction> = own.collect::<Result<_, _>>()?;
    let told = own.iter().take(TRANSACTIONS_MAX);
    let transactions: Vec<_> = told.map(|one| transaction(trace, index, one)).collect();
    let left_out = own.len() - transactions.len();
    let of = index
        .find(id)
        .map(|at| index.types[usize::from(index.kind[at])].clone());
    let mut detail = of_request(request, transactions);
    detail.of = of;
    detail.transactions_left_out = left_out;
    Ok(Some(detail))
}

fn of_request(request: Request, transactions: Vec<TransactionDetail>) -> RequestDetail {
    let took = request.ended - request.arrived;
    let mut detail = RequestDetail {
        id: request.id.to_string(),
        of: None,
        method: request.method,
        target: request.target,
        arrived: request.arrived,
        took,
        headers: headers(&request.headers),
        body: Some(&request.body)
            .filter(|body| !body.is_empty())
            .map(|body| self::body(body)),
        unanswered: None,
        status: None,
        response_headers: Vec::new(),
        response_bytes: 0,
        response_digest: None,
        response: None,
        calls: Vec::new(),
        transactions,
        transactions_left_out: 0,
    };
    match &request.response {
        Response::Answered {
            status,
            headers,
            body_digest,
            body_bytes,
            body,
        } => {
            detail.status = Some(*status);
            detail.response_headers = self::headers(headers);
            detail.response_bytes = *body_bytes;
            detail.response_digest = Some(body_digest.to_string());
            detail.response = body.as_deref().map(self::body);
        }
        Response::Broken { reason } => detail.unanswered = Some(format!("broken off: {reason}")),
        Response::Unrecorded { reason } => {
            detail.unanswered = Some(format!("not recorded: {reason}"));
        }
    }
    let calls = request.calls.iter().map(|call| CallDetail {
        peer: call.peer.clone(),
        began: call.began,
        took: call.ended - call.began,
        sent: call.sent.len(),
        received: call.received.len(),
        encrypted: call.encrypted,
        within: call.within,
    });
    detail.calls = calls.collect();
    detail
}

/// With what it saw. `None`: there is no such transaction.
pub fn transaction_detail(
    trace: &Trace,
    index: &Index,
    lanes: Lanes,
    id: TransactionId,
) -> Result<Option<TransactionDetail>, ReadError> {
    let Some(own) = trace.transaction(id)? else {
        return Ok(None);
    };
    let mut detail = transaction(trace, index, &own);
    let request = own.request.map(|(request, _)| request);
    if let Some(at) = index.find_transaction(id, request) {
        detail.sight = Some(sight(trace, index, lanes, at, &own)?);
    }
    Ok(Some(detail))
}

fn transaction(trace: &Trace, index: &Index, own: &Transaction) -> TransactionDetail {
    let shape = trace.shape(own.shape);
    let statements = shape.map_or(&[][..], |shape| &shape.statements);
    let facts = index.shapes.iter().find(|facts| facts.id == own.shape.0);
    let names = |of: fn(&crate::index::ShapeFacts) -> &std::collections::BTreeSet<String>| {
        let names = facts.map(|facts| of(facts).iter().cloned().collect());
        names.unwrap_or_default()
    };
    // The first is the transaction's own.
    let later = own.statement_snapshots.iter().skip(1);
    let later =
        later.map(|one: &StatementSnapshot| (one.statement + 1, snapshot_text(&one.snapshot)));
    let sequences = own
        .sequence_values
        .iter()
        .map(|drawn| drawn.value.to_string());
    let drawn = own.drawn_uuids.iter().map(|drawn| drawn.text());
    TransactionDetail {
        id: own.id.to_string(),
        request: own.request.map(|(id, _)| id.to_string()),
        attribution: own.request.map(|(_, by)| attribution(by)),
        session: Id(own.session.0).to_string(),
        began: own.began,
        took: own.ended - own.began,
        isolation: own.isolation.name(),
        outcome: outcome(&own.outcome),
        xid: own.xid.map(|xid| xid.0),
        statements: spoken(own.client_bytes.as_deref(), statements),
        with_values: own.client_bytes.is_some(),
        later_snapshots: later.collect(),
        reads: names(|facts| &facts.reads),
        writes: names(|facts| &facts.writes),
        result_rows: own.result_rows,
        result_digest: own.result_digest.to_string(),
        drawn: sequences.chain(drawn).collect(),
        sight: None,
    }
}

fn headers(headers: &[(String, Vec<u8>)]) -> Vec<(String, String)> {
    let text = |value: &[u8]| value.iter().map(|byte| char::from(*byte)).collect();
    let each = headers.iter();
    each.map(|(name, value)| (name.clone(), text(value)))
        .collect()
}

pub(crate) fn body(bytes: &[u8]) -> Body {
    let cut = bytes.len() > BODY_MAX;
    let mut shown = &bytes[..bytes.len().min(BODY_MAX)];
    // Not in the middle of a character.
    if cut
        && let Err(error) = str::from_utf8(shown)
        && error.error_len().is_none()
    {
        shown = &shown[..error.valid_up_to()];
    }
    let (text, binary) = match str::from_utf8(shown) {
        Ok(text) => (text.to_owned(), false),
        Err(_) => {
            let few = &shown[..shown.len().min(4096)];
            (few.escape_ascii().to_string(), true)
        }
    };
    Body {
        text,
        binary,
        bytes: bytes.len(),
        cut: cut || binary && shown.len() > 4096,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_text_where_it_can_be() {
        let text = body("größer".as_bytes());
        assert_eq!(
            (text.text.as_str(), text.binary, text.cut),
            ("größer", false, false)
        );
        let binary = body(&[0xff, b'a']);
        assert_eq!((binary.text.as_str(), binary.binary), ("\\xffa", true));
        let long = "ä".repeat(BODY_MAX);
        let long = body(&long.as_bytes()[1..]);
        assert!(long.binary && long.cut);
        let odd = "a".to_owned() + &"ä".repeat(BODY_MAX);
        let odd = body(odd.as_bytes());
        assert!(!odd.binary && odd.cut && odd.text.len() == BODY_MAX - 1);
    }
}
