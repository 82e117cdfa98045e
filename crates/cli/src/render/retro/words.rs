//! What the terminal and the page say alike: judgements about a report, in words.

use hindcast_retro::report::{
    Answer, Baseline, Cause, Check, Counts, Outcome, Remark, Report, RowText, Stopped, TableChange,
    ValueChange,
};
use hindcast_trace::Id;

use crate::render::format::{count, cut, thousands};

/// The answer in one line.
pub fn headline(report: &Report) -> String {
    match &report.outcome {
        Outcome::Faithful => match &report.state.against {
            Baseline::None { .. } => {
                "faithful: only analysis was added. Same responses and transactions; the final state was not compared"
            }
            _ => "faithful: only analysis was added. Same responses, transactions and final state",
        }
        .to_owned(),
        Outcome::Different => {
            let counts = &report.counts;
            let parts: Vec<String> = [
                (counts.responses_changed, "response"),
                (transactions_different(counts), "transaction"),
                (
                    report.state.tables.iter().filter(|t| differs(t)).count() as u64,
                    "table",
                ),
            ]
            .into_iter()
            .filter(|(n, _)| *n > 0)
            .map(|(n, noun)| count(n, noun))
            .collect();
            match parts.as_slice() {
                [] if has_noise(report) => {
                    "different only in clocks, sequence values or randomness".to_owned()
                }
                // Something was left out, or only a check sees it.
                [] => "the same in all that ran".to_owned(),
                parts => format!("different in {}", and(parts)),
            }
        }
        Outcome::Stopped { why } => match why {
            Stopped::ServiceExited { status, .. } => {
                format!("stopped: the changed service ended by itself ({status})")
            }
            Stopped::Hung { after_s, .. } => {
                format!("stopped: nothing moved for {after_s:.0} s")
            }
        },
    }
}

/// Recorded ones that came out differently or not at all, and added ones.
pub fn transactions_different(counts: &Counts) -> u64 {
    counts.changed + counts.deleted + counts.added + counts.newly_failing + counts.newly_succeeding
}

/// Whether more than noise differs.
pub fn differs(table: &TableChange) -> bool {
    table.added + table.removed + table.changed > table.noise || !table.columns_changed.is_empty()
}

fn has_noise(report: &Report) -> bool {
    !report.responses.noise.is_empty() || report.state.tables.iter().any(|table| table.noise > 0)
}

/// What a reader wants to know first: is the bug gone, and what broke.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Findings {
    pub gone: Vec<String>,
    pub new: Vec<String>,
    /// Was so and is so.
    pub still: Vec<String>,
    /// Neither better nor worse as far as can be told from here.
    pub changed: Vec<String>,
    pub unknown: Vec<String>,
}

pub fn findings(report: &Report) -> Findings {
    let mut findings = Findings::default();
    for (i, check) in report.checks.iter().enumerate() {
        let (judgement, words) = judge(check);
        let list = match judgement {
            Judgement::Gone => &mut findings.gone,
            Judgement::New => &mut findings.new,
            Judgement::Still => &mut findings.still,
            Judgement::Changed => &mut findings.changed,
            Judgement::Unknown => &mut findings.unknown,
            Judgement::Clean => continue,
        };
        list.push(format!("check {}, {words}", i + 1));
    }
    let counts = &report.counts;
    if counts.newly_succeeding > 0 {
        findings.gone.push(format!(
            "the errors of {}",
            count(counts.newly_succeeding, "transaction")
        ));
    }
    if counts.newly_failing > 0 {
        let retries = match counts.retries {
            0 => String::new(),
            n => format!(" (there were {})", count(n, "retry")),
        };
        findings.new.push(format!(
            "errors of {}{retries}",
            count(counts.newly_failing, "transaction")
        ));
    }
    if counts.same_failure > 0 {
        findings.still.push(format!(
            "the errors of {}",
            count(counts.same_failure, "transaction")
        ));
    }
    findings
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// Found something, finds nothing.
    Gone,
    New,
    /// Finds the same.
    Still,
    Changed,
    /// Finds nothing, and did not.
    Clean,
    Unknown,
}

pub fn judge(check: &Check) -> (Judgement, String) {
    let (before, after) = (&check.before, &check.after);
    match (before, after) {
        (Answer::Rows { count: 0, .. }, Answer::Rows { count: 0, .. }) => {
            (Judgement::Clean, "no rows before, none after".to_owned())
        }
        (Answer::Rows { count: n, .. }, Answer::Rows { count: 0, .. }) => (
            Judgement::Gone,
            format!("{} before, none after", count(*n, "row")),
        ),
        (Answer::Rows { count: 0, .. }, Answer::Rows { count: n, .. }) => (
            Judgement::New,
            format!("no rows before, {} after", thousands(*n)),
        ),
        (before, after) if before == after && matches!(after, Answer::Rows { .. }) => {
            let text = match single(after) {
                Some(value) => format!("{value} before and after"),
                None => format!("the same {} before and after", found(after)),
            };
            (Judgement::Still, text)
        }
        (Answer::Rows { .. }, Answer::Rows { .. }) => {
            let text = match (single(before), single(after)) {
                (Some(before), Some(after)) => format!("{before} before, {after} after"),
                _ => format!("{} before, {} after", found(before), found(after)),
            };
            (Judgement::Changed, text)
        }
        // A check of a table that the migration made cannot be asked before, and the other way
        // round.
        (Answer::Failed { .. }, Answer::Failed { .. }) => {
            (Judgement::Unknown, "failed before and after".to_owned())
        }
        (Answer::NotAsked, Answer::NotAsked) => (Judgement::Unknown, "not asked".to_owned()),
        (before, after) => (
            Judgement::Unknown,
            format!("{} before, {} after", found(before), found(after)),
        ),
    }
}

fn found(answer: &Answer) -> String {
    match answer {
        Answer::Rows { count: 0, .. } => "no rows".to_owned(),
        Answer::Rows { count: n, .. } => count(*n, "row"),
        Answer::Failed { .. } => "failed".to_owned(),
        Answer::NotAsked => "not asked".to_owned(),
    }
}

/// The value of a query like `SELECT count(*) …`.
pub fn single(answer: &Answer) -> Option<String> {
    match answer {
        Answer::Rows { rows, count: 1, .. } => match rows.as_slice() {
            [row] if row.len() == 1 => Some(value(row[0].as_deref(), 40)),
            _ => None,
        },
        _ => None,
    }
}

/// A column's value, quoted where it would be mistaken for something else.
pub fn value(value: Option<&str>, width: usize) -> String {
    match value {
        None => "NULL".to_owned(),
        Some(text) => {
            let ambiguous = text.is_empty()
                || text == "NULL"
                || text.contains([' ', ',', '=', '\'', '→'])
                || text.contains(char::is_control);
            if ambiguous {
                format!("'{}'", cut(text, width.saturating_sub(2)))
            } else {
                cut(text, width)
            }
        }
    }
}

/// What other statements there are, without those that both begin or end with: `now also INSERT …`.
pub fn statements_change(before: &[String], after: &[String], width: usize) -> String {
    let (start, end) = common_ends(before, after);
    let before = &before[start..before.len() - end];
    let after = &after[start..after.len() - end];
    match (before, after) {
        ([], after) => format!("now also {}", statements(after, width)),
        (before, []) => format!("no longer {}", statements(before, width)),
        ([before], [after]) => words_change(before, after, width),
        (before, after) => format!(
            "{} → {}",
            statements(before, width / 2),
            statements(after, width / 2)
        ),
    }
}

/// The statement's beginning, and the words that differ: `INSERT INTO t… now with ON CONFLICT …`.
fn words_change(before: &str, after: &str, width: usize) -> String {
    let words =
        |text: &str| -> Vec<String> { text.split_whitespace().map(str::to_owned).collect() };
    let (one, other) = (words(before), words(after));
    let (start, end) = common_ends(&one, &other);
    let gone = one[start..one.len() - end].join(" ");
    let new = other[start..other.len() - end].join(" ");
    let head = match cut(&one[..start].join(" "), width / 3) {
        head if start == 0 => head,
        head => format!("{} … ", head.trim_end_matches('…')),
    };
    let room = width - head.chars().count().min(width);
    match (gone.as_str(), new.as_str()) {
        ("", new) => format!("{head}now with {}", cut(new, room)),
        (gone, "") => format!("{head}now without {}", cut(gone, room)),
        (gone, new) => format!("{head}{} → {}", cut(gone, room / 2), cut(new, room / 2)),
    }
}

/// How many both begin with, and how many more both end with.
pub fn common_ends(before: &[String], after: &[String]) -> (usize, usize) {
    let start = before.iter().zip(after).take_while(|(a, b)| a == b).count();
    let tail = before[start..]
        .iter()
        .rev()
        .zip(after[start..].iter().rev());
    (start, tail.take_while(|(a, b)| a == b).count())
}

/// The first, and how many more.
pub fn statements(statements: &[String], width: usize) -> String {
    match statements {
        [] => "nothing".to_owned(),
        [one] => cut(one, width),
        [first, rest @ ..] => format!("{} and {} more", cut(first, width), rest.len()),
    }
}

/// Both values short enough to be shown, and, if they are different only far in, from there on.
pub fn excerpts(before: &str, after: &str, width: usize) -> (String, String) {
    let longest = before.chars().count().max(after.chars().count());
    let common = before
        .chars()
        .zip(after.chars())
        .take_while(|(a, b)| a == b)
        .count();
    // What comes before the difference is of use only as context.
    let context = width / 4;
    if longest <= width || common <= context {
        return (before.to_owned(), after.to_owned());
    }
    let from = |text: &str| {
        let rest: String = text.chars().skip(common - context).collect();
        format!("…{rest}")
    };
    (from(before), from(after))
}

/// `name: before → after`, or what became of it.
pub fn value_change(change: &ValueChange, width: usize) -> String {
    let name = cut(&change.name, 60);
    match (change.before.as_deref(), change.after.as_deref()) {
        (Some(before), Some(after)) => {
            let (before, after) = excerpts(before, after, width);
            format!("{name} {} → {}", cut(&before, width), cut(&after, width))
        }
        (Some(before), None) => format!("{name} {} is gone", cut(before, width)),
        (None, Some(after)) => format!("{name} {} is new", cut(after, width)),
        (None, None) => name,
    }
}

/// `id=3, userid=5`, the columns at `first` before the others.
pub fn row(columns: &[String], first: &[usize], row: &RowText, value_width: usize) -> String {
    let rest = (0..row.len()).filter(|i| !first.contains(i));
    let cells: Vec<String> = first
        .iter()
        .copied()
        .chain(rest)
        .filter_map(|i| {
            let value = value(row.get(i)?.as_deref(), value_width);
            Some(match columns.get(i) {
                Some(column) => format!("{}={value}", cut(column, 40)),
                None => value,
            })
        })
        .collect();
    cells.join(", ")
}

/// Where the key's columns are among the table's.
pub fn key_columns(table: &TableChange) -> Vec<usize> {
    table
        .key
        .iter()
        .filter_map(|key| table.columns.iter().position(|column| column == key))
        .collect()
}

/// `written by POST /subscribe, request 17: INSERT …` without the verb; `None` if nobody knows.
pub fn cause(cause: &Cause) -> Option<String> {
    match cause {
        Cause::Transaction {
            request,
            transaction,
            of,
            statement,
        } => {
            let who = match (request, transaction) {
                (Some(request), _) => format!("{}, request {request}", cut(of, 60)),
                (None, Some(transaction)) => format!("ghost t{transaction}"),
                (None, None) => cut(of, 60),
            };
            Some(match statement {
                Some(statement) => format!("by {who}: {}", cut(statement, 400)),
                None => format!("by {who}"),
            })
        }
        Cause::Migration => Some("by the migration".to_owned()),
        Cause::Before => Some("before the range began".to_owned()),
        Cause::Unknown => None,
    }
}

/// What the final state was compared with.
pub fn baseline(baseline: &Baseline) -> String {
    match baseline {
        Baseline::RecordedDatabase => "the recorded database".to_owned(),
        Baseline::Replayed { faithful: true } => {
            "a faithful replay of the original service".to_owned()
        }
        Baseline::Replayed { faithful: false } => {
            "a replay of the original service that was not faithful itself".to_owned()
        }
        Baseline::Given => "the database given with --compare-with".to_owned(),
        Baseline::Archive => "Postgres' archived WAL up to the end of the range".to_owned(),
        Baseline::None { reason } => format!("nothing ({})", cut(reason, 200)),
    }
}

/// How the transactions fared, with what there was none of left out.
pub fn transaction_counts(counts: &Counts) -> Vec<String> {
    let mut parts: Vec<String> = [
        (counts.same, "same"),
        (counts.same_failure, "failing as before"),
        (counts.changed, "changed"),
        (counts.newly_failing, "newly failing"),
        (counts.newly_succeeding, "newly succeeding"),
        (counts.deleted, "deleted"),
        (counts.unnoticed, "not followed, of connections themselves"),
        (counts.not_over, "not over when it stopped"),
    ]
    .into_iter()
    .filter(|(n, _)| *n > 0)
    .map(|(n, what)| format!("{} {what}", thousands(n)))
    .collect();
    if counts.added > 0 {
        let retries = match counts.retries {
            0 => String::new(),
            n if n == counts.added && n == 1 => " (a retry)".to_owned(),
            n if n == counts.added => " (retries)".to_owned(),
            n => format!(" ({} of them retries)", thousands(n)),
        };
        parts.push(format!("{} added{retries}", thousands(counts.added)));
    }
    parts
}

/// Of the transactions that did not keep their place.
pub fn order_counts(counts: &Counts) -> Vec<String> {
    let mut parts = Vec::new();
    if counts.yielded > 0 {
        parts.push(format!(
            "{} yielded (SQLSTATE 40001): blocked by one that was complete and had to commit later",
            thousands(counts.yielded)
        ));
    }
    if counts.let_go > 0 {
        parts.push(format!(
            "{} let go out of order, because nothing else would have moved",
            thousands(counts.let_go)
        ));
    }
    parts
}

/// Requests by what became of them: `60 (10 to 69): 40 executed, 20 not selected`
pub fn request_counts(report: &Report) -> String {
    let counts = &report.counts;
    let mut parts = Vec::new();
    if counts.requests_executed == counts.requests {
        parts.push("all executed".to_owned());
    } else {
        parts.push(format!("{} executed", thousands(counts.requests_executed)));
    }
    if counts.requests_unanswered > 0 {
        let unanswered = thousands(counts.requests_unanswered);
        parts.push(format!("{unanswered} sent and not answered"));
    }
    if counts.requests_not_sent > 0 {
        parts.push(format!("{} not sent", thousands(counts.requests_not_sent)));
    }
    if counts.requests_skipped > 0 {
        parts.push(format!("{} skipped", thousands(counts.requests_skipped)));
    }
    if counts.requests_not_selected > 0 {
        parts.push(format!(
            "{} not selected, because they cannot matter",
            thousands(counts.requests_not_selected)
        ));
    }
    format!(
        "{} ({} to {}): {}",
        thousands(counts.requests),
        report.from,
        report.to,
        parts.join(", ")
    )
}

/// What makes the report less than complete, and what to do about it. Remarks that say the same of
/// many are one.
pub fn remarks(remarks: &[Remark]) -> Vec<String> {
    let mut texts: Vec<String> = Vec::new();
    let mut not_sent: Vec<(&str, Id, u64)> = Vec::new();
    let mut ghosts: Vec<(&str, Id, u64)> = Vec::new();
    let tally = |list: &mut Vec<(&str, Id, u64)>, index: usize| list[index].2 += 1;
    for remark in remarks {
        match remark {
            Remark::NotSentAgain { request, reason } => {
                match not_sent.iter().position(|(known, ..)| known == reason) {
                    Some(index) => tally(&mut not_sent, index),
                    None => not_sent.push((reason, *request, 1)),
                }
            }
            Remark::GhostFailed { transaction, error } => {
                match ghosts.iter().position(|(known, ..)| known == error) {
                    Some(index) => tally(&mut ghosts, index),
                    None => ghosts.push((error, *transaction, 1)),
                }
            }
            other => texts.push(self::remark(other)),
        }
    }
    for (reason, request, n) in not_sent {
        texts.push(match n {
            1 => format!("request {request} was not sent again: {}", cut(reason, 300)),
            n => format!(
                "request {request} and {} more were not sent again: {}",
                thousands(n - 1),
                cut(reason, 300)
            ),
        });
    }
    for (error, transaction, n) in ghosts {
        texts.push(match n {
            1 => format!(
                "ghost t{transaction} failed: {} (`hindcast show t{transaction}` shows what it is)",
                cut(error, 300)
            ),
            n => format!(
                "ghost t{transaction} and {} more failed: {} (`hindcast show t{transaction}` shows what the first is)",
                thousands(n - 1),
                cut(error, 300)
            ),
        });
    }
    texts
}

fn remark(remark: &Remark) -> String {
    match remark {
        Remark::ReadCommitted { transactions } => format!(
            "{} ran at READ COMMITTED without the extension: only the first snapshot of each was enforced, and others may come out by chance",
            count(*transactions, "transaction")
        ),
        Remark::OtherIsolation { transactions } => format!(
            "{} ran with the recorded statements at another isolation, which the changed service asked for",
            count(*transactions, "transaction")
        ),
        Remark::MovedReads { reads, statements } => {
            crate::render::verdict::moved_reads(*reads, statements)
        }
        Remark::TakenForOthers { transactions } => format!(
            "{} of the changed code took the place of recorded ones which came after them, in each of several runs: they count as changed, and what they displaced as added and out of order",
            count(*transactions, "transaction")
        ),
        Remark::Learned { learning } => crate::render::verdict::learned(learning),
        Remark::DrawnResults {
            transactions,
            statements,
        } => crate::render::verdict::drawn_results(*transactions, statements),
        Remark::CrossedGap { gap } => format!(
            "{}. What is missing there may show as a difference",
            hindcast_view::gap_text(gap)
        ),
        Remark::LeftOut { until } => crate::render::verdict::left_out(until),
        Remark::CrossedPause { pause } => crate::render::verdict::crossed_pause(*pause),
        Remark::OutsideWriteRefused { statement, times } => format!(
            "refused {}×, outside any request: {} (--allow-outside-writes lets it through)",
            thousands(*times),
            cut(statement, 100)
        ),
        Remark::OutsideWriteUndone { statement, times } => {
            crate::render::verdict::write_undone(statement, *times)
        }
        Remark::CallNotRecorded { what, times } => {
            crate::render::verdict::call_not_recorded(what, *times)
        }
        Remark::CallDiffered { what, times } => crate::render::verdict::call_differed(what, *times),
        Remark::NotPinned { what } => format!(
            "not pinned: {}; values that come from there may differ by themselves",
            cut(what, 200)
        ),
        Remark::UnattributedTransactions { transactions } => {
            crate::render::verdict::unattributed(*transactions)
        }
        Remark::LetGo { transactions, hint } => format!(
            "{} went on without the recorded order being kept, because nothing else would have moved: {}",
            count(*transactions, "transaction"),
            cut(hint, 300)
        ),
        Remark::ModifiedFound { types } => {
            let shown: Vec<String> = types.iter().take(8).map(|name| cut(name, 60)).collect();
            let more = match types.len() - shown.len() {
                0 => String::new(),
                more => format!(" and {} more", thousands(more as u64)),
            };
            format!(
                "which request types were modified was found by comparing statements: {}{more} (--modified TYPE names them)",
                shown.join(", ")
            )
        }
        Remark::NotSentAgain { .. } | Remark::GhostFailed { .. } => {
            unreachable!("these are counted")
        }
    }
}

/// `a, b and c`
pub fn and(parts: &[String]) -> String {
    match parts {
        [] => String::new(),
        [one] => one.clone(),
        [head @ .., last] => format!("{} and {last}", head.join(", ")),
    }
}

/// `12, 15, 17 and 8 more`
pub fn some_of(ids: &[Id], most: usize) -> String {
    let mut parts: Vec<String> = ids.iter().take(most).map(Id::to_string).collect();
    if ids.len() > most {
        parts.push(format!("{} more", thousands((ids.len() - most) as u64)));
    }
    and(&parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(values: &[&str]) -> Answer {
        Answer::Rows {
            columns: vec!["v".into()],
            rows: values.iter().map(|v| vec![Some((*v).into())]).collect(),
            count: values.len() as u64,
        }
    }

    #[test]
    fn a_check_is_judged_by_what_it_finds() {
        let failed = || Answer::Failed {
            error: "no such table".into(),
        };
        for (before, after, judgement, text) in [
            (
                rows(&["1", "2"]),
                rows(&[]),
                Judgement::Gone,
                "2 rows before, none after",
            ),
            (
                rows(&[]),
                rows(&["1"]),
                Judgement::New,
                "no rows before, 1 after",
            ),
            (
                rows(&[]),
                rows(&[]),
                Judgement::Clean,
                "no rows before, none after",
            ),
            (
                rows(&["1", "2"]),
                rows(&["1", "2"]),
                Judgement::Still,
                "the same 2 rows before and after",
            ),
            (
                rows(&["1", "2"]),
                rows(&["1", "3"]),
                Judgement::Changed,
                "2 rows before, 2 rows after",
            ),
            // Like `SELECT count(*)`: the value is the answer.
            (
                rows(&["7"]),
                rows(&["0"]),
                Judgement::Changed,
                "7 before, 0 after",
            ),
            (
                rows(&["7"]),
                rows(&["7"]),
                Judgement::Still,
                "7 before and after",
            ),
            (
                failed(),
                rows(&["1", "2"]),
                Judgement::Unknown,
                "failed before, 2 rows after",
            ),
            (
                failed(),
                failed(),
                Judgement::Unknown,
                "failed before and after",
            ),
            (
                Answer::NotAsked,
                rows(&[]),
                Judgement::Unknown,
                "not asked before, no rows after",
            ),
        ] {
            let check = Check {
                sql: String::new(),
                before,
                after,
            };
            assert_eq!(judge(&check), (judgement, text.to_owned()));
        }
    }

    #[test]
    fn changed_statements_are_told_by_what_differs() {
        let of = |texts: &[&str]| -> Vec<String> { texts.iter().map(|t| (*t).into()).collect() };
        let told = |before: &[&str], after: &[&str]| statements_change(&of(before), &of(after), 60);
        assert_eq!(
            told(&["BEGIN", "A", "COMMIT"], &["BEGIN", "A", "B", "COMMIT"]),
            "now also B"
        );
        assert_eq!(told(&["A", "B", "C"], &["A"]), "no longer B and 1 more");
        assert_eq!(
            told(&["A", "B"], &["C", "D", "E"]),
            "A and 1 more → C and 2 more"
        );
        assert_eq!(
            told(
                &["INSERT INTO t VALUES ($1)"],
                &["INSERT INTO t VALUES ($1) ON CONFLICT DO NOTHING"]
            ),
            "INSERT INTO t VALUE … now with ON CONFLICT DO NOTHING"
        );
        assert_eq!(
            told(&["SELECT a FROM t FOR UPDATE"], &["SELECT a FROM t"]),
            "SELECT a FROM t … now without FOR UPDATE"
        );
        assert_eq!(
            told(&["SELECT a FROM t"], &["SELECT a FROM u"]),
            "SELECT a FROM … t → u"
        );
    }

    #[test]
    fn long_values_are_shown_from_where_they_differ() {
        let same = "x".repeat(100);
        let (before, after) = excerpts(&format!("{same}1"), &format!("{same}2"), 20);
        assert_eq!((before.as_str(), after.as_str()), ("…xxxxx1", "…xxxxx2"));
        assert_eq!(excerpts("ab", "ac", 20), ("ab".into(), "ac".into()));
        // One is only longer.
        assert_eq!(excerpts(&same, &format!("{same}y"), 20).1, "…xxxxxy");
    }

    #[test]
    fn values_are_told_from_what_is_around_them() {
        assert_eq!(value(None, 20), "NULL");
        assert_eq!(value(Some("NULL"), 20), "'NULL'");
        assert_eq!(value(Some(""), 20), "''");
        assert_eq!(value(Some("a, b=c"), 20), "'a, b=c'");
        assert_eq!(value(Some("plain"), 20), "plain");
    }
}
