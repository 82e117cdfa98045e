//! A verdict as a person reads it.

use std::fmt::Write;

use hindcast_replay::plan::Pause;
use hindcast_replay::verdict::{
    BodySeen, Counts, Divergence, DivergenceKind, FinalState, Learning, NotCompared, Position,
    Remark, Suspicion, Verdict,
};

use hindcast_trace::RequestId;

use super::format::{count, cut, duration, thousands};
use super::sides;

/// How many divergences are shown in full.
const SHOWN: usize = 10;
/// How many statements are named that came in other requests.
const READS_SHOWN: usize = 3;

pub fn page(verdict: &Verdict) -> String {
    let mut page = String::new();
    if verdict.faithful {
        let _ = writeln!(page, "Verdict: faithful");
    } else {
        let _ = writeln!(
            page,
            "Verdict: diverged ({})",
            count(verdict.divergence_count, "divergence")
        );
    }
    let counts = &verdict.counts;
    let _ = write!(
        page,
        "  {} ({} to {})",
        count(counts.requests, "request"),
        verdict.from,
        verdict.to
    );
    if counts.lead_in > 0 {
        let _ = write!(page, " after a lead-in of {}", counts.lead_in);
    }
    if counts.trail > 0 {
        let _ = write!(page, ", with {} that arrived meanwhile", counts.trail);
    }
    let _ = writeln!(page, ", {}", count(counts.transactions, "transaction"));
    if counts.served_from_recording > 0 {
        let _ = writeln!(
            page,
            "  {} aborted originally and served from the recording",
            count(counts.served_from_recording, "transaction")
        );
    }
    if counts.ghosts > 0 {
        let _ = writeln!(page, "  {}", ghosts(counts));
    }
    if counts.requests_not_compared > 0 {
        let _ = writeln!(
            page,
            "  {} without a complete response to compare with",
            count(counts.requests_not_compared, "request")
        );
    }
    final_state(&mut page, &verdict.final_state);
    let timing = &verdict.timing;
    let ratio = timing.replay_us as f64 / timing.original_us.max(1) as f64;
    let _ = writeln!(
        page,
        "  replayed in {} what took {} ({ratio:.2}×), after {} of preparation",
        duration(timing.replay_us),
        duration(timing.original_us),
        duration(timing.prepare_us)
    );
    for remark in &verdict.remarks {
        let _ = writeln!(page, "  note: {}", self::remark(remark));
    }
    divergences(&mut page, verdict);
    page
}

fn divergences(page: &mut String, verdict: &Verdict) {
    for divergence in verdict.divergences.iter().take(SHOWN) {
        page.push('\n');
        page.push_str(&self::divergence(divergence));
        if may_not_have_been_ready(divergence, verdict.from) {
            page.push_str("Hint: the service may not have been ready yet: `--ready` says by what that is known, a path that it answers or a text that it writes\n");
        }
    }
    let more = verdict.divergence_count.saturating_sub(SHOWN as u64);
    if more > 0 && !verdict.faithful {
        let _ = writeln!(page, "\n… and {more} more; all that were described: --json");
    }
}

/// Whether a service may have accepted its first request before it could answer it.
fn may_not_have_been_ready(divergence: &Divergence, first: RequestId) -> bool {
    let is_first = divergence.position.request == Some(first);
    is_first
        && matches!(divergence.kind, DivergenceKind::Status { expected, actual: 404 | 502 | 503, .. } if expected < 400)
}

fn final_state(page: &mut String, state: &FinalState) {
    match state {
        FinalState::Same { tables, rows } => {
            let _ = writeln!(
                page,
                "  final state: {} with {}, as recorded",
                count(*tables as u64, "table"),
                count(*rows, "row")
            );
        }
        FinalState::SameButDrawn {
            tables,
            rows,
            drawn,
        } => {
            let _ = writeln!(
                page,
                "  final state: {} with {}, as recorded but for what the service drew in {}",
                count(*tables as u64, "table"),
                count(*rows, "row"),
                drawn.join(", ")
            );
        }
        FinalState::Differs => {
            let _ = writeln!(page, "  final state: differs");
        }
        FinalState::NotCompared { reason } => {
            let why = match reason {
                NotCompared::NotRecorded => "none was recorded",
                NotCompared::RangeEndsBefore => "the range ends before the recording does",
                NotCompared::StoppedBefore => "the replay stopped before",
            };
            let _ = writeln!(page, "  final state: not compared, {why}");
        }
    }
}

fn place(divergence: &Divergence) -> String {
    let position = &divergence.position;
    let line = divergence.sides.as_ref().and_then(|it| it.request.as_ref());
    let line = line.map_or(String::new(), |line| format!(", {}", cut(line, 120)));
    match (position.request, position.transaction, &divergence.kind) {
        (Some(request), Some(transaction), _) => {
            format!("at transaction t{transaction} (request {request}{line})")
        }
        (Some(request), None, _) => format!("at request {request}{line}"),
        (None, Some(transaction), _) => format!("at transaction t{transaction} (a ghost)"),
        (None, None, DivergenceKind::FinalState { .. }) => "at the end".to_owned(),
        (None, None, _) => "in between requests".to_owned(),
    }
}

fn see(position: &Position) -> String {
    match (position.request, position.transaction) {
        (_, Some(transaction)) => format!("see it with `hindcast show t{transaction}`"),
        (Some(request), None) => format!("see it with `hindcast show {request}`"),
        (None, None) => String::new(),
    }
}

pub fn divergence(divergence: &Divergence) -> String {
    let position = &divergence.position;
    let (expected, actual, hint) = explain(&divergence.kind, position);
    let sides = divergence.sides.as_deref();
    let statement = sides.map(sides::place).unwrap_or_default();
    let mut text = format!(
        "Diverged {}{statement}\nExpected: {expected}\nActual:   {actual}\n",
        place(divergence)
    );
    text.extend(sides.map(sides::block));
    if !hint.is_empty() {
        let _ = writeln!(text, "Hint: {hint}");
    }
    if let Some(more) = sides.and_then(sides::hint) {
        let _ = writeln!(text, "Hint: {more}");
    }
    text
}

/// What to do about a replay that stands still for this reason.
fn suspect(suspicion: Suspicion) -> String {
    match suspicion {
        Suspicion::PoolTooSmall {
            connections,
            connections_needed,
        } => format!(
            "the service has {}, all of them wait, and {} were in flight at a time: give it as many \
             workers, and as large a pool, as it had",
            count(connections as u64, "database connection"),
            count(connections_needed as u64, "request"),
        ),
        Suspicion::ReadCommitted => "READ COMMITTED transactions may wait for each other's row \
             locks in another order than originally"
            .to_owned(),
    }
}

/// The same for an unknown one.
fn slow(see: &str) -> String {
    match see {
        "" => "a slow service needs a longer --stall-timeout".to_owned(),
        see => format!("{see}; a slow service needs a longer --stall-timeout"),
    }
}

/// What to do about a difference in a transaction whose statements' own snapshots are not known.
fn approximate(see: &str, is_it: bool) -> String {
    match is_it {
        false => see.to_owned(),
        true => format!(
            "{see}; it ran at READ COMMITTED, of which only the first snapshot was recorded: with the \
             extension in the database, each statement's is (`hindcast extension install`)"
        ),
    }
}

fn explain(kind: &DivergenceKind, position: &Position) -> (String, String, String) {
    let see = see(position);
    match kind {
        DivergenceKind::Status {
            expected,
            actual,
            actual_body,
        } => {
            let body = actual_body
                .as_deref()
                .map(|body| format!(": {}", cut(body, 160)))
                .unwrap_or_default();
            (
                format!("status {expected}"),
                format!("status {actual}{body}"),
                see,
            )
        }
        DivergenceKind::Header {
            name,
            expected,
            actual,
        } => {
            let value = |value: &Option<String>| {
                value
                    .as_deref()
                    .map_or("absent".to_owned(), |value| cut(value, 120))
            };
            (
                format!("header {name}: {}", value(expected)),
                format!("header {name}: {}", value(actual)),
                format!("if this is noise, `--ignore header:{name}`"),
            )
        }
        DivergenceKind::Body { expected, actual } => {
            let hint = match expected.excerpt {
                Some(_) => format!(
                    "{see}; if this is noise, `--ignore json:/POINTER` or `--ignore body:REGEX`"
                ),
                None => format!(
                    "{see}; the recorded body was longer than --response-body-max, or no text: only its digest is known"
                ),
            };
            (body(expected), body(actual), hint)
        }
        DivergenceKind::NoResponse { error } => {
            ("a response".to_owned(), format!("none: {error}"), see)
        }
        DivergenceKind::ExtraTransaction {
            recorded,
            statement,
        } => extra(*recorded, statement, &see),
        DivergenceKind::MissingTransaction => (
            "this transaction".to_owned(),
            "the request was answered without it".to_owned(),
            see,
        ),
        DivergenceKind::OtherStatements { .. } => (
            "the recorded statements".to_owned(),
            "other statements".to_owned(),
            format!("{see}; is this the code that was recorded?"),
        ),
        DivergenceKind::OtherResults {
            expected_rows,
            actual_rows,
            expected_digest,
            actual_digest,
            read_committed,
        } => {
            let hint = approximate(&see, *read_committed);
            (
                format!("{}, digest {expected_digest}", count(*expected_rows, "row")),
                format!("{}, digest {actual_digest}", count(*actual_rows, "row")),
                hint,
            )
        }
        DivergenceKind::Failed {
            error,
            read_committed,
        } => (
            "COMMIT".to_owned(),
            error.as_deref().unwrap_or("ROLLBACK").to_owned(),
            approximate(&see, *read_committed),
        ),
        DivergenceKind::ServedDiffers => (
            "the statements of a transaction that aborted".to_owned(),
            "other statements".to_owned(),
            see,
        ),
        DivergenceKind::ConnectionLost => (
            "COMMIT".to_owned(),
            "the service closed the connection".to_owned(),
            see,
        ),
        DivergenceKind::Stuck {
            waits,
            suspicion,
            after_s,
        } => {
            let actual = match waits.as_slice() {
                [] => format!("nothing moved for {after_s:.0} s"),
                waits => format!(
                    "nothing moved for {after_s:.0} s:\n            {}",
                    waits.join("\n            ")
                ),
            };
            let hint = suspicion.map_or_else(|| slow(&see), suspect);
            ("progress".to_owned(), actual, hint)
        }
        DivergenceKind::ServiceExited { status, last_lines } => {
            let words = if last_lines.is_empty() {
                String::new()
            } else {
                format!("\n            {}", last_lines.join("\n            "))
            };
            (
                "a running service".to_owned(),
                format!("it ended with {status}{words}"),
                "its whole output is in the file named below".to_owned(),
            )
        }
        DivergenceKind::FinalState {
            table,
            expected_rows,
            actual_rows,
            differences,
        } => {
            let rows = |rows: &Option<u64>| {
                rows.map_or("no such table".to_owned(), |rows| count(rows, "row"))
            };
            let list = if differences.is_empty() {
                String::new()
            } else {
                format!("\n            {}", differences.join("\n            "))
            };
            let hint = if differences.is_empty() {
                "which rows differ is shown where the recorded database still holds what it held at the end (--postgres), or another one that --compare-with names".to_owned()
            } else {
                String::new()
            };
            (
                format!("table {table}: {}", rows(expected_rows)),
                format!("{}, or others{list}", rows(actual_rows)),
                hint,
            )
        }
    }
}

fn extra(recorded: usize, statement: &str, see: &str) -> (String, String, String) {
    (
        count(recorded as u64, "transaction"),
        format!("one more, which begins with {}", cut(statement, 200)),
        format!("{see}; is this the code that was recorded?"),
    )
}

fn body(seen: &BodySeen) -> String {
    let at = seen
        .at
        .map(|at| format!(", different from byte {at} on"))
        .unwrap_or_default();
    let excerpt = seen
        .excerpt
        .as_deref()
        .map(|text| format!("\n            {}", cut(text, 160)))
        .unwrap_or_default();
    format!("{} bytes, digest {}{at}{excerpt}", seen.bytes, seen.digest)
}

/// That reads came in other requests than originally, or in none, and which.
pub fn moved_reads(reads: u64, statements: &[String]) -> String {
    let shown = statements.iter().take(READS_SHOWN);
    let shown: Vec<String> = shown.map(|text| cut(text, 100).to_string()).collect();
    let more = match statements.len().saturating_sub(READS_SHOWN) {
        0 => String::new(),
        more => format!("; and {}", count(more as u64, "other statement")),
    };
    format!(
        "{} came in other requests than originally, or in none, as where the first request that \
         needs something fills a cache: {}{more}",
        count(reads, "read"),
        shown.join("; ")
    )
}

/// What a service drew otherwise, and what became of that.
/// Of a trace into which several recorders recorded one after the other.
pub fn left_out(until: &[RequestId]) -> String {
    let last = until.last().map(ToString::to_string).unwrap_or_default();
    match until.len() {
        1 => format!(
            "an earlier recording in this trace, which ends with request {last}, is left out: --to {last} runs that one"
        ),
        several => format!(
            "{several} earlier recordings in this trace are left out: --to {last} runs the one before this"
        ),
    }
}

pub fn crossed_pause(pause: Pause) -> String {
    let Pause { after, before } = pause;
    format!(
        "recording had stopped after request {after}, and began anew before {before}: what happened to the database in between is not known, and this service was not started anew. --from {before} begins there"
    )
}

pub fn learned(learning: &Learning) -> String {
    let (what, time) = match learning.pinned {
        true => (
            "ids that depend on more than a request, as on a count or the number of the process",
            "",
        ),
        false => ("drawn by the service", " and for the time"),
    };
    let mut text = format!(
        "{what}: {} were learned from responses and put into {}; {} and {} are the same but for \
         such values{time}",
        count(learning.values, "value"),
        count(learning.requests, "request"),
        count(learning.responses, "response"),
        count(learning.transactions, "transaction"),
    );
    if learning.unread > 0 {
        let _ = write!(
            text,
            "; the bodies of {} could not be learned from: they are compressed, or were not kept",
            count(learning.unread, "response")
        );
    }
    text
}

fn ghosts(counts: &Counts) -> String {
    let all = format!("{} of no request", count(counts.ghosts, "ghost"));
    match counts.ghosts_by_service {
        0 => all,
        own => format!("{all}, {} done by the service itself", thousands(own)),
    }
}

/// Of ghosts that may have been a request's.
pub fn unattributed(transactions: u64) -> String {
    format!(
        "{} began while requests were in flight, and it is not known whether for one of them: they ran as ghosts, as recorded. \
         Jobs and what a worker does when it starts do so, too; a request that needed one of them differs",
        count(transactions, "transaction")
    )
}

/// What the service wrote outside of requests, and was not what it did then.
pub fn write_undone(statement: &str, times: u64) -> String {
    let times = thousands(times);
    let statement = cut(statement, 100);
    format!(
        "made {times}× and undone, outside any request, since the recording had done it or does not have it: {statement}"
    )
}

pub fn drawn_results(transactions: u64, statements: &[String]) -> String {
    let shown = statements.iter().take(READS_SHOWN);
    let shown: Vec<String> = shown.map(|text| cut(text, 100).to_string()).collect();
    let more = match statements.len().saturating_sub(READS_SHOWN) {
        0 => String::new(),
        more => format!("; and {}", count(more as u64, "other statement")),
    };
    format!(
        "drawn anew: {} read values that the service or the database drew in this run, or times of it; \
         what else they read is not compared: {}{more}",
        count(transactions, "transaction"),
        shown.join("; ")
    )
}

pub fn call_not_recorded(what: &str, times: u64) -> String {
    format!(
        "refused {times}×, since the recording has no answer to it: {} (--outbound live makes calls)",
        cut(what, 160)
    )
}

pub fn call_differed(what: &str, times: u64) -> String {
    format!(
        "brought {times}× with other values than recorded, and answered as then: {}",
        cut(what, 160)
    )
}

fn remark(remark: &Remark) -> String {
    match remark {
        Remark::ReadCommitted { transactions } => {
            format!(
                "{} ran at READ COMMITTED without the extension: only the first snapshot of each was enforced",
                count(*transactions, "transaction")
            )
        }
        Remark::MovedReads { reads, statements } => moved_reads(*reads, statements),
        Remark::Learned { learning } => learned(learning),
        Remark::DrawnResults {
            transactions,
            statements,
        } => drawn_results(*transactions, statements),
        Remark::CutOff { requests } => format!(
            "{} had no answer originally, as when a service is killed, and went no further than they did then",
            count(*requests, "request")
        ),
        Remark::CrossedGap { gap } => hindcast_view::gap_text(gap),
        Remark::LeftOut { until } => left_out(until),
        Remark::CrossedPause { pause } => crossed_pause(*pause),
        Remark::OutsideWriteRefused { statement, times } => {
            format!(
                "refused {times}×, outside any request: {} (--allow-outside-writes lets it through)",
                cut(statement, 100)
            )
        }
        Remark::OutsideWriteUndone { statement, times } => write_undone(statement, *times),
        Remark::ReadsLetGo { transactions } => format!(
            "{} read out of order: another request waited for them within the service, and they for it. What they read is compared",
            count(*transactions, "transaction")
        ),
        Remark::CallNotRecorded { what, times } => call_not_recorded(what, *times),
        Remark::CallDiffered { what, times } => call_differed(what, *times),
        Remark::NotPinned { what } => format!("not pinned: {what}"),
        Remark::UnattributedTransactions { transactions } => unattributed(*transactions),
        Remark::NotSentAgain { request, reason } => {
            format!("request {request} was not sent again: {reason}")
        }
        Remark::Redacted { request, rules } => {
            let what = match request {
                Some(request) => format!("request {request} was sent"),
                None => "ghosts ran".to_owned(),
            };
            format!(
                "{what} without secrets that the recording does not have, or for which the key is not here ({}): where the service checks one of them, \
                 that is the likely cause. Replay with the `--secrets-key` of the recording, or record without `--drop-secrets` or the rule",
                rules.join(", ")
            )
        }
        Remark::GhostsLate { transactions } => format!(
            "{} read otherwise and not compared: the service had begun to do the same, did something else, and they were done behind others then",
            count(*transactions, "ghost")
        ),
    }
}

#[cfg(test)]
mod tests {
    use hindcast_trace::Id;

    use super::*;

    #[test]
    fn a_first_request_that_came_too_early_is_suspected() {
        let suspects = |request: u64, expected, actual| {
            let divergence = Divergence {
                position: Position {
                    request: Some(Id(request)),
                    transaction: None,
                },
                kind: DivergenceKind::Status {
                    expected,
                    actual,
                    actual_body: None,
                },
                sides: None,
            };
            may_not_have_been_ready(&divergence, Id(7))
        };
        assert!(suspects(7, 200, 404) && suspects(7, 302, 503));
        assert!(!suspects(8, 200, 404) && !suspects(7, 401, 404) && !suspects(7, 200, 500));
    }
}
