//! Three tables as CSV (RFC 4180), with a line of names first.

use std::io::{self, Write};

use chrono::{DateTime, Utc};
use hindcast_select::Statement;
use hindcast_trace::{Micros, Trace};

use super::{ExportError, outcome, outcome_of, requests, transactions};
use crate::index::Index;

/// Where the tables go.
pub struct Tables<'a> {
    pub requests: &'a mut dyn Write,
    pub transactions: &'a mut dyn Write,
    /// What kinds of transactions are made of.
    pub statements: &'a mut dyn Write,
}

pub fn csv(trace: &Trace, index: &Index, tables: Tables<'_>) -> Result<(), ExportError> {
    write_requests(trace, index, tables.requests)?;
    write_transactions(trace, tables.transactions)?;
    let out = tables.statements;
    line(out, &["shape", "statement", "text", "reads", "writes"])?;
    for shape in &index.shapes {
        for (number, text) in (1..).zip(&shape.statements) {
            let touched = Statement::of(text);
            let reads: Vec<String> = touched.reads.iter().map(ToString::to_string).collect();
            let writes: Vec<String> = touched.writes.keys().map(ToString::to_string).collect();
            line(
                out,
                &[
                    &format!("{:08x}", shape.id),
                    &format!("{number}"),
                    text,
                    &reads.join(" "),
                    &writes.join(" "),
                ],
            )?;
        }
    }
    Ok(())
}

fn write_requests(trace: &Trace, index: &Index, out: &mut dyn Write) -> Result<(), ExportError> {
    line(
        out,
        &[
            "request",
            "arrived",
            "duration_us",
            "method",
            "target",
            "type",
            "outcome",
            "status",
            "client",
            "transactions",
        ],
    )?;
    for request in requests(trace) {
        let request = request?;
        let Some(at) = index.find(request.id) else {
            continue;
        };
        let (outcome, status) = outcome(&request.response);
        line(
            out,
            &[
                &request.id.to_string(),
                &moment(request.arrived),
                &(request.ended - request.arrived).to_string(),
                &request.method,
                &request.target,
                &index.types[usize::from(index.kind[at])],
                outcome,
                &status.map(|status| status.to_string()).unwrap_or_default(),
                &(index.slot[at] + 1).to_string(),
                &index.transactions_of(at).len().to_string(),
            ],
        )?;
    }
    Ok(())
}

fn write_transactions(trace: &Trace, out: &mut dyn Write) -> Result<(), ExportError> {
    line(
        out,
        &[
            "transaction",
            "request",
            "session",
            "began",
            "duration_us",
            "isolation",
            "outcome",
            "xid",
            "snapshot_xmax",
            "snapshot_in_progress",
            "result_rows",
            "shape",
        ],
    )?;
    for own in transactions(trace) {
        let own = own?;
        let snapshot = own.snapshot.as_ref();
        let in_progress = snapshot.map_or(&[][..], |snapshot| &snapshot.in_progress);
        let in_progress: Vec<String> = in_progress.iter().map(ToString::to_string).collect();
        let optional = |number: Option<u64>| number.map(|it| it.to_string()).unwrap_or_default();
        line(
            out,
            &[
                &own.id.to_string(),
                &own.request
                    .map(|(id, _)| id.to_string())
                    .unwrap_or_default(),
                &own.session.to_string(),
                &moment(own.began),
                &(own.ended - own.began).to_string(),
                own.isolation.name(),
                outcome_of(&own),
                &optional(own.xid.map(|xid| xid.0)),
                &optional(snapshot.map(|snapshot| snapshot.xmax.0)),
                &in_progress.join(" "),
                &own.result_rows.to_string(),
                &format!("{:08x}", own.shape.0),
            ],
        )?;
    }
    Ok(())
}

/// `2026-11-21 04:00:01.123456`, in UTC.
fn moment(at: Micros) -> String {
    let time = DateTime::<Utc>::from_timestamp_micros(at);
    time.map_or_else(String::new, |time| {
        time.format("%Y-%m-%d %H:%M:%S%.6f").to_string()
    })
}

fn line(out: &mut dyn Write, cells: &[&str]) -> io::Result<()> {
    for (at, cell) in cells.iter().enumerate() {
        if at > 0 {
            out.write_all(b",")?;
        }
        match cell.contains(['"', ',', '\n', '\r']) {
            true => write!(out, "\"{}\"", cell.replace('"', "\"\""))?,
            false => out.write_all(cell.as_bytes())?,
        }
    }
    out.write_all(b"\r\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_with_commas_and_quotes_stay_one_cell() {
        let mut out = Vec::new();
        line(&mut out, &["a", "b,\"c\"", "d\ne", ""]).unwrap();
        assert_eq!(out, b"a,\"b,\"\"c\"\"\",\"d\ne\",\r\n");
    }
}
