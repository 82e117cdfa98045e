//! Questions of the page, and their answers, both JSON.

use std::sync::Arc;

use hindcast_trace::{Id, Micros, Trace};
use hindcast_view::{
    Filter, Lanes, Question, StatusClass, Wanted, gap_text, listed, overview, request_detail,
    request_lines, timeline, transaction_detail,
};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::desk::{Desk, Layer, Opened, chain, hint};

/// Why there is no answer: a status, what is wrong, and what to do.
#[derive(Debug)]
pub struct Refusal {
    pub status: u16,
    pub error: String,
    pub hint: Option<String>,
}

type Answer = Result<Value, Refusal>;

/// Requests that a list shows.
const LISTED_MAX: usize = 500;

fn refusal(status: u16, error: impl ToString) -> Refusal {
    Refusal {
        status,
        error: error.to_string(),
        hint: None,
    }
}

fn unreadable(error: &hindcast_trace::ReadError) -> Refusal {
    Refusal {
        status: 500,
        error: chain(error),
        hint: hint(error).map(str::to_owned),
    }
}

#[derive(Deserialize)]
#[serde(default)]
struct Asked {
    from: Micros,
    until: Micros,
    columns: u32,
    lane: usize,
    rows: usize,
    lanes: String,
    filter: AskedFilter,
    id: String,
}

impl Default for Asked {
    fn default() -> Self {
        Self {
            from: 0,
            until: 1,
            columns: 1000,
            lane: 0,
            rows: 64,
            lanes: "client".to_owned(),
            filter: AskedFilter::default(),
            id: String::new(),
        }
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct AskedFilter {
    types: Vec<String>,
    status: Vec<String>,
    took_min: String,
    contended: bool,
    text: String,
    row: String,
}

/// Answers what was asked at a path. Blocks: reads the trace, counts requests.
pub fn answer(desk: &Arc<Desk>, path: &str, body: &[u8]) -> Answer {
    if path == "/api/status" {
        return Ok(status(desk));
    }
    if path == "/api/report" {
        let report = desk.source.report.clone();
        return report.ok_or_else(|| refusal(404, "there is no report of a retroaction"));
    }
    if path == "/api/reload" {
        desk.read_now();
        return Ok(json!({}));
    }
    let asked: Asked = match body {
        [] => Asked::default(),
        body => serde_json::from_slice(body)
            .map_err(|error| refusal(400, format!("the question cannot be read: {error}")))?,
    };
    let Some(opened) = desk.opened() else {
        let why = desk.failure();
        return Err(match why {
            Some(why) => refusal(500, why),
            None => refusal(503, "the recording is still being read"),
        });
    };
    match path {
        "/api/timeline" => with_layer(desk, &opened, &asked, |levels| {
            let question = Question {
                from: asked.from,
                until: asked.until,
                columns: asked.columns,
                lane: asked.lane,
                rows: asked.rows,
            };
            let answer = timeline(&opened.index, levels, &question);
            serde_json::to_value(answer)
        }),
        "/api/overview" => with_layer(desk, &opened, &asked, |levels| {
            serde_json::to_value(overview(&opened.index, levels, asked.columns))
        }),
        "/api/list" => list(desk, &opened, &asked),
        "/api/request" => request(&opened, &asked),
        "/api/transaction" => transaction(&opened, &asked),
        _ => Err(refusal(404, format!("there is no {path}"))),
    }
}

fn status(desk: &Desk) -> Value {
    let (done, total) = desk.progress();
    let opened = desk.opened();
    let recording = opened.as_deref().map(|opened| {
        let (trace, index) = (&opened.trace, &opened.index);
        let gaps = trace.gaps().iter().map(|gap| {
            json!({ "from": gap.from, "to": gap.to, "doubt": gap.cause.is_doubt(), "text": gap_text(gap) })
        });
        let mut statuses: Vec<u16> = Vec::new();
        let mut seen = vec![false; 1 << 16];
        for status in &index.status {
            if !std::mem::replace(&mut seen[usize::from(*status)], true) {
                statuses.push(*status);
            }
        }
        statuses.sort_unstable();
        let span = index.span();
        json!({
            "generation": opened.generation,
            "requests": index.requests(),
            "transactions": index.transactions(),
            "ghosts": index.ghosts().len(),
            "from": span.map(|(from, _)| from),
            "until": span.map(|(_, until)| until),
            "types": index.types,
            "statuses": statuses,
            "live": !trace.recording().is_empty(),
            "recorders": recorders(trace),
            "gaps": gaps.collect::<Vec<_>>(),
            "warnings": trace.warnings(),
            "index_bytes": index.bytes(),
        })
    });
    json!({
        "trace": desk.source.shown,
        "done": done,
        "total": total,
        "failure": desk.failure(),
        "report": desk.source.report.is_some(),
        "recording": recording,
    })
}

fn recorders(trace: &Trace) -> Vec<Value> {
    let recorders = trace.recorders().iter();
    let each = recorders.map(|recorder| {
        json!({
            "number": recorder.number,
            "started": recorder.started,
            "database": recorder.database,
            "server_version": recorder.server_version,
            "command": recorder.command,
        })
    });
    each.collect()
}

fn understood(opened: &Opened, asked: &Asked) -> Result<(Lanes, Filter, Wanted), Refusal> {
    let wrong = |error: &dyn std::error::Error| refusal(422, error);
    let lanes = Lanes::named(&asked.lanes)
        .ok_or_else(|| refusal(422, format!("there are no lanes by {:?}", asked.lanes)))?;
    let asked = &asked.filter;
    let status = asked.status.iter().map(|text| StatusClass::parse(text));
    let filter = Filter {
        types: asked.types.clone(),
        status: status
            .collect::<Result<_, _>>()
            .map_err(|error| wrong(&error))?,
        took_min: match asked.took_min.trim() {
            "" => 0,
            text => Filter::parse_duration(text).map_err(|error| wrong(&error))?,
        },
        contended: asked.contended,
    };
    let row = match asked.row.trim() {
        "" => None,
        text => Some(Wanted::parse_row(text).map_err(|error| wrong(&error))?),
    };
    let wanted = Wanted {
        text: asked.text.trim().to_owned(),
        row,
    };
    wanted.check(&opened.index).map_err(|error| wrong(&error))?;
    Ok((lanes, filter, wanted))
}

fn with_layer(
    desk: &Arc<Desk>,
    opened: &Arc<Opened>,
    asked: &Asked,
    answer: impl FnOnce(&hindcast_view::Levels) -> serde_json::Result<Value>,
) -> Answer {
    let (lanes, filter, wanted) = understood(opened, asked)?;
    match desk.layer(opened, lanes, &filter, &wanted) {
        Layer::Searching(done, total) => {
            Ok(json!({ "searching": { "done": done, "total": total } }))
        }
        Layer::Failed(why) => Err(refusal(500, why)),
        Layer::Ready(levels, found) => {
            let answer = answer(&levels);
            let mut answer = answer.map_err(|error| refusal(500, error))?;
            answer["generation"] = json!(opened.generation);
            answer["taken"] = json!(levels.by_lane.iter().sum::<u64>());
            if wanted.row.is_some() {
                answer["found"] = json!(found.how);
            }
            Ok(answer)
        }
    }
}

fn list(desk: &Arc<Desk>, opened: &Arc<Opened>, asked: &Asked) -> Answer {
    let (trace, index) = (&opened.trace, &opened.index);
    with_layer(desk, opened, asked, |levels| {
        let places = listed(index, levels, asked.from, asked.until, LISTED_MAX);
        Ok(json!({ "rows": request_lines(trace, index, &places) }))
    })
}

fn parse_id(asked: &Asked) -> Result<Id, Refusal> {
    let id = asked.id.trim_start_matches('t');
    id.parse().map_err(|error| refusal(422, error))
}

fn request(opened: &Opened, asked: &Asked) -> Answer {
    let id = parse_id(asked)?;
    let detail = request_detail(&opened.trace, &opened.index, id);
    let detail = detail.map_err(|error| unreadable(&error))?;
    let detail =
        detail.ok_or_else(|| refusal(404, format!("request {id} is not in the recording")))?;
    serde_json::to_value(detail).map_err(|error| refusal(500, error))
}

fn transaction(opened: &Opened, asked: &Asked) -> Answer {
    let id = parse_id(asked)?;
    let lanes = Lanes::named(&asked.lanes).unwrap_or(Lanes::Client);
    let detail = transaction_detail(&opened.trace, &opened.index, lanes, id);
    let detail = detail.map_err(|error| unreadable(&error))?;
    let detail =
        detail.ok_or_else(|| refusal(404, format!("transaction t{id} is not in the recording")))?;
    serde_json::to_value(detail).map_err(|error| refusal(500, error))
}
