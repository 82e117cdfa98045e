//! Numbers, times and gaps as people read them.

use chrono::{DateTime, Utc};
use hindcast_trace::{Attribution, Gap, GapCause, Micros, Outcome, Xid};

/// `2026-11-21 04:00:01.123` (UTC).
pub fn time(at: Micros) -> String {
    match DateTime::<Utc>::from_timestamp_micros(at) {
        Some(time) => time.format("%Y-%m-%d %H:%M:%S%.3f").to_string(),
        None => format!("{at} µs"),
    }
}

/// Three significant digits: `312 µs`, `4.21 ms`, `12.3 s`, `4 min 10 s`.
pub fn duration(micros: i64) -> String {
    let digits = |value: f64, unit: &str| {
        let decimals = if value < 10.0 {
            2
        } else {
            usize::from(value < 100.0)
        };
        format!("{value:.decimals$} {unit}")
    };
    match micros {
        i64::MIN..1_000 => format!("{micros} µs"),
        1_000..1_000_000 => digits(micros as f64 / 1e3, "ms"),
        1_000_000..120_000_000 => digits(micros as f64 / 1e6, "s"),
        _ => format!("{} min {} s", micros / 60_000_000, micros / 1_000_000 % 60),
    }
}

/// `1 request`, `1,203 requests`, `2 queries`.
pub fn count(n: u64, noun: &str) -> String {
    let number = thousands(n);
    match noun.strip_suffix("ry") {
        _ if n == 1 => format!("1 {noun}"),
        Some(stem) => format!("{number} {stem}ries"),
        None => format!("{number} {noun}s"),
    }
}

pub fn thousands(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// What is missing, when and why, in one line.
pub fn gap_text(gap: &Gap) -> String {
    let what = match &gap.cause {
        GapCause::Dropped {
            requests: 0,
            transactions: 0,
            reason,
        } => format!("requests may be missing: {reason}"),
        GapCause::Dropped {
            requests,
            transactions,
            reason,
        } => {
            format!(
                "{} and {} were not recorded: {reason}",
                count(*requests, "request"),
                count(*transactions, "transaction")
            )
        }
        GapCause::Crashed { recorder } => format!(
            "recorder {recorder} stopped without closing the recording; its last moments may be missing"
        ),
        GapCause::Unaccounted { xids, wrote } => {
            let what = count(xids.len() as u64, "transaction");
            let wrote = match wrote.as_str() {
                "" => "written past the recorder".to_owned(),
                wrote => format!("wrote to {wrote} past the recorder"),
            };
            format!("{what} {wrote}: transaction {}", ids(xids))
        }
        GapCause::Unobserved { session, reason } => {
            format!("session {session} could not be followed: {reason}")
        }
        GapCause::Pruned {
            recorder,
            requests,
            transactions,
        } => {
            return format!(
                "Pruned: {} – {} UTC: {} and {} of recorder {recorder} were removed",
                time(gap.from),
                time(gap.to),
                count(*requests, "request"),
                count(*transactions, "transaction")
            );
        }
        GapCause::Unexplained { xids, reason } => format!(
            "{} may have written here past the recorder, or not (transaction {}): {reason}",
            count(xids.len() as u64, "transaction"),
            ids(xids)
        ),
    };
    let kind = if gap.cause.is_doubt() {
        "Unclear"
    } else {
        "Gap"
    };
    format!("{kind}: {} – {} UTC: {what}", time(gap.from), time(gap.to))
}

/// The first few of many, and how far they reach.
fn ids(xids: &[Xid]) -> String {
    const SHOWN: usize = 5;
    let shown: Vec<_> = xids
        .iter()
        .take(SHOWN)
        .map(|xid| xid.0.to_string())
        .collect();
    let noun = if xids.len() == 1 { "id" } else { "ids" };
    match xids.last() {
        Some(last) if xids.len() > SHOWN => format!("{noun} {}, … {}", shown.join(", "), last.0),
        _ => format!("{noun} {}", shown.join(", ")),
    }
}

/// How a transaction was found to belong to a request.
pub fn attribution(by: Attribution) -> &'static str {
    match by {
        Attribution::Comment => "by a comment in its SQL",
        Attribution::ApplicationName => "by application_name",
        Attribution::Alone => "the only one in flight",
        Attribution::Turn => "by the thread that sent it",
    }
}

/// How a transaction ended.
pub fn outcome(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Committed => "committed".to_owned(),
        Outcome::Aborted => "aborted".to_owned(),
        Outcome::Prepared { gid } => format!("prepared as {gid}"),
        Outcome::Unknown => "outcome unknown (the answer to COMMIT was lost)".to_owned(),
    }
}
