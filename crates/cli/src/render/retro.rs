//! The report of a retroaction as a person reads it on a terminal.
//!
//! First the answer, then how often, then what: groups with an example each, rows with who wrote
//! them. Sections have a fixed share of the page, so that ten thousand differences take no more
//! room than a hundred.

#[cfg(test)]
pub mod samples;
mod state;
#[cfg(test)]
mod tests;
pub mod words;

use std::fmt::Write;

use hindcast_retro::report::{
    Answer, BodyChange, Check, Group, Outcome, Report, ResponseChange, Selection, Stopped, Timing,
    TransactionChange, TransactionChangeKind,
};
use hindcast_trace::Id;

use super::format::{count, cut, duration, thousands};
use words::Judgement;

/// Characters per line.
const WIDTH: usize = 100;
/// A page that would be longer is drawn [tight](Room::TIGHT).
const LINES: usize = 120;

/// How much of each list is shown.
struct Room {
    checks: usize,
    check_rows: usize,
    types: usize,
    response_groups: usize,
    transaction_groups: usize,
    tables: usize,
    rows_per_table: usize,
    /// Over all tables, those about who wrote them included.
    row_lines: usize,
    incomparable: usize,
    selected: usize,
    undetermined: usize,
    remarks: usize,
}

impl Room {
    const WIDE: Self = Self {
        checks: 4,
        check_rows: 5,
        types: 6,
        response_groups: 10,
        transaction_groups: 10,
        tables: 6,
        rows_per_table: 10,
        row_lines: 30,
        incomparable: 4,
        selected: 6,
        undetermined: 3,
        remarks: 6,
    };
    const TIGHT: Self = Self {
        checks: 2,
        check_rows: 2,
        types: 4,
        response_groups: 5,
        transaction_groups: 4,
        tables: 2,
        rows_per_table: 10,
        row_lines: 12,
        incomparable: 1,
        selected: 3,
        undetermined: 2,
        remarks: 3,
    };
}

/// Around 120 lines at most, whatever the size. The last line is the timing; all others depend on
/// nothing but the rest of the report.
pub fn page(report: &Report) -> String {
    let wide = draw(report, &Room::WIDE);
    if wide.lines().count() <= LINES {
        wide
    } else {
        draw(report, &Room::TIGHT)
    }
}

fn draw(report: &Report, room: &Room) -> String {
    let mut page = Page::default();
    answer(&mut page, report);
    checks(&mut page, room, &report.checks);
    types(&mut page, room, report);
    responses(&mut page, room, report);
    transactions(&mut page, room, report);
    state::section(&mut page, room, report);
    if let Some(selection) = &report.selection {
        self::selection(&mut page, room, selection);
    }
    remarks(&mut page, room, report);
    more(&mut page, report);
    page.line(0, &timing(report));
    page.0
}

/// Lines, none longer than [`WIDTH`], whose control characters are escaped.
#[derive(Default)]
struct Page(String);

impl Page {
    fn line(&mut self, indent: usize, text: &str) {
        let _ = writeln!(self.0, "{:indent$}{}", "", cut(text, WIDTH - indent));
    }

    /// `text`, and behind it something that must not be cut off.
    fn line_with_end(&mut self, indent: usize, text: &str, end: &str) {
        let room = (WIDTH - indent).saturating_sub(end.chars().count());
        self.line(indent, &format!("{}{end}", cut(text, room)));
    }

    /// Over several lines if need be; the second and later ones are indented by `hang` more.
    fn paragraph(&mut self, indent: usize, hang: usize, text: &str, lines_max: usize) {
        let text = cut(text, usize::MAX);
        let mut lines: Vec<String> = Vec::new();
        for word in text.split(' ') {
            let room = WIDTH - indent - if lines.len() > 1 { hang } else { 0 };
            match lines.last_mut() {
                Some(line) if line.chars().count() + 1 + word.chars().count() <= room => {
                    line.push(' ');
                    line.push_str(word);
                }
                _ => lines.push(word.to_owned()),
            }
        }
        if lines.len() > lines_max {
            lines.truncate(lines_max);
            lines[lines_max - 1].push_str(" …");
        }
        for (i, line) in lines.iter().enumerate() {
            self.line(if i == 0 { indent } else { indent + hang }, line);
        }
    }

    fn heading(&mut self, text: &str) {
        self.0.push('\n');
        self.line(0, text);
    }

    /// What a list left out.
    fn left_out(&mut self, indent: usize, n: u64, noun: &str) {
        if n > 0 {
            self.line(
                indent,
                &format!("… and {}", count(n, &format!("more {noun}"))),
            );
        }
    }
}

fn answer(page: &mut Page, report: &Report) {
    page.paragraph(
        0,
        2,
        &format!("Retroaction: {}", words::headline(report)),
        2,
    );
    if let Outcome::Stopped { why } = &report.outcome {
        stopped(page, why);
    }
    let findings = words::findings(report);
    for (label, list) in [
        ("gone", &findings.gone),
        ("new", &findings.new),
        ("still there", &findings.still),
        ("changed", &findings.changed),
        ("not known", &findings.unknown),
    ] {
        if !list.is_empty() {
            page.paragraph(2, 13, &format!("{label:<13}{}", list.join("; ")), 2);
        }
    }
    let counts = &report.counts;
    page.paragraph(
        2,
        13,
        &format!("requests     {}", words::request_counts(report)),
        2,
    );
    let mut transactions = words::transaction_counts(counts);
    if counts.ghosts > 0 {
        transactions.push(format!("{} of no request", count(counts.ghosts, "ghost")));
    }
    page.paragraph(
        2,
        13,
        &format!(
            "transactions {}: {}",
            thousands(counts.transactions),
            transactions.join(", ")
        ),
        3,
    );
    let order = words::order_counts(counts);
    if !order.is_empty() {
        page.paragraph(2, 13, &format!("{:13}{}", "order", order.join("; ")), 2);
    }
    let change = &report.change;
    if !change.app.is_empty() {
        page.paragraph(2, 13, &format!("{:13}{}", "what ran", change.app), 2);
    }
    let mut with = Vec::new();
    if !change.migrations.is_empty() {
        let many = if change.migrations.len() == 1 {
            ""
        } else {
            "s"
        };
        with.push(format!(
            "migration{many} {}",
            words::and(&change.migrations)
        ));
    }
    if let Some(isolation) = &change.isolation {
        with.push(format!("isolation {isolation}"));
    }
    if !change.skipped.is_empty() {
        with.push(format!("skipped {}", words::and(&change.skipped)));
    }
    if !with.is_empty() {
        page.paragraph(2, 13, &format!("{:13}{}", "with", with.join("; ")), 2);
    }
}

fn stopped(page: &mut Page, why: &Stopped) {
    let in_flight = match why {
        Stopped::ServiceExited {
            last_lines,
            in_flight,
            ..
        } => {
            let skipped = last_lines.len().saturating_sub(6);
            for line in &last_lines[skipped..] {
                page.line(4, line);
            }
            in_flight
        }
        Stopped::Hung {
            in_flight, waits, ..
        } => {
            for wait in waits.iter().take(6) {
                page.line(4, wait);
            }
            page.left_out(4, waits.len().saturating_sub(6) as u64, "wait");
            in_flight
        }
    };
    if let Some(first) = in_flight.first() {
        page.paragraph(
            2,
            2,
            &format!(
                "Not answered then: {} (`hindcast show {first}`). What follows was seen up to there.",
                words::some_of(in_flight, 12)
            ),
            2,
        );
    } else {
        page.line(2, "What follows was seen up to there.");
    }
}

fn checks(page: &mut Page, room: &Room, checks: &[Check]) {
    if checks.is_empty() {
        return;
    }
    page.heading("Checks");
    for (i, check) in checks.iter().take(room.checks).enumerate() {
        let sql = check.sql.split_whitespace().collect::<Vec<_>>().join(" ");
        page.line(2, &format!("{}  {sql}", i + 1));
        let (judgement, text) = words::judge(check);
        let verdict = match judgement {
            Judgement::Gone => "gone: ",
            Judgement::New => "new: ",
            Judgement::Still => "still there: ",
            Judgement::Changed => "changed: ",
            Judgement::Clean | Judgement::Unknown => "",
        };
        page.line(5, &format!("{verdict}{text}"));
        for answer in [&check.before, &check.after] {
            if let Answer::Failed { error } = answer {
                page.line(7, error);
            }
        }
        check_rows(page, room, check);
    }
    page.left_out(2, checks.len().saturating_sub(room.checks) as u64, "check");
}

/// The rows that only one answer has; if both have the same, these.
fn check_rows(page: &mut Page, room: &Room, check: &Check) {
    // That a number is another one was said.
    if words::single(&check.before).is_some() && words::single(&check.after).is_some() {
        return;
    }
    let (before, all_before) = answer_rows(&check.before);
    let (after, all_after) = answer_rows(&check.after);
    let mut rows = Vec::new();
    if before == after {
        rows.extend(before.iter().map(|row| format!("= {row}")));
    } else {
        // What is missing among the rows that were kept may be among those that were not.
        let only = |these: &[String], others: &[String], sign: &str| -> Vec<String> {
            let those = these.iter().filter(|row| !others.contains(row));
            those.map(|row| format!("{sign} {row}")).collect()
        };
        if all_after {
            rows.extend(only(&before, &after, "−"));
        }
        if all_before {
            rows.extend(only(&after, &before, "+"));
        }
    }
    for row in rows.iter().take(room.check_rows) {
        page.line(7, row);
    }
    if all_before && all_after {
        let n = rows.len().saturating_sub(room.check_rows);
        page.left_out(7, n as u64, "row");
    } else {
        page.line(7, "… and more");
    }
}

/// And whether these are all of them.
fn answer_rows(answer: &Answer) -> (Vec<String>, bool) {
    match answer {
        Answer::Rows {
            columns,
            rows,
            count,
        } => {
            let texts = rows.iter().map(|row| words::row(columns, &[], row, 60));
            (texts.collect(), rows.len() as u64 == *count)
        }
        Answer::Failed { .. } | Answer::NotAsked => (Vec::new(), true),
    }
}

fn types(page: &mut Page, room: &Room, report: &Report) {
    let changed = report
        .types
        .iter()
        .filter(|kind| kind.responses_changed + kind.transactions_changed > 0)
        .count();
    // One type says nothing that the counts do not.
    if changed == 0 || report.types.len() < 2 {
        return;
    }
    page.heading(&format!(
        "{:<50} {:>9} {:>9} {:>10} {:>13}",
        "Request types", "requests", "executed", "responses", "transactions"
    ));
    page.line(
        0,
        &format!("{:<70} {:>10} {:>13}", "", "changed", "changed"),
    );
    for kind in report.types.iter().take(room.types) {
        page.line(
            2,
            &format!(
                "{:<48} {:>9} {:>9} {:>10} {:>13}",
                cut(&kind.name, 48),
                thousands(kind.requests),
                thousands(kind.executed),
                thousands(kind.responses_changed),
                thousands(kind.transactions_changed)
            ),
        );
    }
    page.left_out(
        2,
        report.types.len().saturating_sub(room.types) as u64,
        "type",
    );
}

fn responses(page: &mut Page, room: &Room, report: &Report) {
    let responses = &report.responses;
    let noise: u64 = responses.noise.iter().map(|group| group.count).sum();
    if responses.groups.is_empty() && noise == 0 {
        return;
    }
    page.heading(&format!(
        "Responses: {} changed",
        thousands(report.counts.responses_changed)
    ));
    groups(
        page,
        &responses.groups,
        room.response_groups,
        "responses",
        "",
        |group| {
            responses
                .changed
                .iter()
                .find(|change| change.request == group.first)
                .and_then(|change| response_example(change, &group.what))
        },
    );
    if noise > 0 {
        page.line(
            2,
            &format!(
                "{} more {} only in clocks, sequence values or randomness",
                thousands(noise),
                if noise == 1 { "differs" } else { "differ" }
            ),
        );
    }
}

fn transactions(page: &mut Page, room: &Room, report: &Report) {
    let transactions = &report.transactions;
    if transactions.groups.is_empty() {
        return;
    }
    page.heading(&format!(
        "Transactions: {} different",
        thousands(words::transactions_different(&report.counts))
    ));
    groups(
        page,
        &transactions.groups,
        room.transaction_groups,
        "transactions",
        "t",
        |group| {
            transactions
                .changed
                .iter()
                .find(|change| match change.transaction {
                    Some(transaction) => transaction == group.first,
                    None => group.first.0 == 0 && group.what.starts_with(&change.of),
                })
                .and_then(|change| transaction_example(change, &group.what))
        },
    );
}

/// `9 × GET /forums/{id}/subscribers: … (14 to 58)`, each with an example below it.
fn groups(
    page: &mut Page,
    groups: &[Group<Id>],
    most: usize,
    noun: &str,
    prefix: &str,
    example: impl Fn(&Group<Id>) -> Option<String>,
) {
    let shown = &groups[..groups.len().min(most)];
    let width = shown
        .iter()
        .map(|group| thousands(group.count).len())
        .max()
        .unwrap_or(0);
    for group in shown {
        // Added ones have no number.
        let ids = if group.first.0 == 0 {
            String::new()
        } else if group.first == group.last {
            format!(" ({prefix}{})", group.first)
        } else {
            format!(" ({prefix}{}–{prefix}{})", group.first, group.last)
        };
        let text = format!("{:>width$} × {}", thousands(group.count), group.what);
        page.paragraph(
            2,
            width + 3,
            &format!("{}{ids}", cut(&text, WIDTH + WIDTH / 2)),
            2,
        );
        if let Some(example) = example(group) {
            page.line(2 + width + 3, &example);
        }
    }
    let rest = &groups[shown.len()..];
    if !rest.is_empty() {
        let n = rest.iter().map(|group| group.count).sum();
        page.line(
            2,
            &format!(
                "… and {} more {noun} of {}",
                thousands(n),
                count(rest.len() as u64, "other kind")
            ),
        );
    }
}

/// `status 201 → 200; /created true → false`
fn response_example(change: &ResponseChange, told: &str) -> Option<String> {
    let mut parts = Vec::new();
    if change.status.0 != change.status.1 {
        let status = |status: Option<u16>| status.map_or("none".to_owned(), |s| s.to_string());
        let text = format!("{} → {}", status(change.status.0), status(change.status.1));
        if !told.contains(&text) {
            parts.push(format!("status {text}"));
        }
    }
    if let Some(error) = &change.error {
        parts.push(cut(error, 120));
    }
    match &change.body {
        Some(BodyChange::Json { changes, more }) => {
            // What is gone says least: it is told last.
            let mut changes: Vec<_> = changes.iter().collect();
            changes.sort_by_key(|change| change.after.is_none());
            let shown = changes.iter().take(4);
            parts.extend(shown.map(|change| words::value_change(change, 40)));
            let more = more + changes.len().saturating_sub(4) as u64;
            if more > 0 {
                parts.push(format!("{} more", thousands(more)));
            }
        }
        Some(BodyChange::Text { at, before, after }) => parts.push(format!(
            "from byte {at} on {} → {}",
            words::value(Some(before), 40),
            words::value(Some(after), 40)
        )),
        Some(BodyChange::Unkept {
            before_bytes,
            after_bytes,
            ..
        }) => parts.push(format!(
            "another body: {before_bytes} → {after_bytes} bytes; the recorded one was not kept"
        )),
        None => {}
    }
    parts.extend(
        change
            .headers
            .iter()
            .take(2)
            .map(|header| format!("header {}", words::value_change(header, 40))),
    );
    (!parts.is_empty()).then(|| format!("request {}: {}", change.request, parts.join("; ")))
}

/// What the name of the group does not tell.
fn transaction_example(change: &TransactionChange, told: &str) -> Option<String> {
    let text = match &change.kind {
        TransactionChangeKind::Added {
            statements: of,
            error,
            ..
        } => match error {
            Some(error) => format!("{}: {}", words::statements(of, 60), cut(error, 120)),
            None => words::statements(of, 60),
        },
        TransactionChangeKind::Deleted { into } => match into {
            Some(into) => format!("its writes moved into t{into}"),
            None => return None,
        },
        TransactionChangeKind::Statements { before, after } => {
            words::statements_change(before, after, 80)
        }
        TransactionChangeKind::Results {
            before_rows,
            after_rows,
        } if before_rows != after_rows => {
            format!(
                "{} → {}",
                count(*before_rows, "row"),
                thousands(*after_rows)
            )
        }
        TransactionChangeKind::Results { .. } => return None,
        TransactionChangeKind::NewlyFailing { error } => cut(error, 200),
        TransactionChangeKind::NewlySucceeding { error } => match error {
            Some(error) => format!("failed with {}", cut(error, 200)),
            None => return None,
        },
        TransactionChangeKind::FailsOtherwise { before, after } => {
            let error = |error: &Option<String>| {
                error
                    .as_deref()
                    .map_or("ROLLBACK".to_owned(), |error| cut(error, 120))
            };
            format!("{} → {}", error(before), error(after))
        }
    };
    if told.contains(&text) {
        return None;
    }
    let of = match (change.transaction, change.request) {
        (Some(transaction), Some(request)) => format!("t{transaction} of request {request}"),
        (Some(transaction), None) => format!("t{transaction}"),
        (None, Some(request)) => format!("request {request}"),
        (None, None) => return Some(text),
    };
    Some(format!("{of}: {text}"))
}

fn selection(page: &mut Page, room: &Room, selection: &Selection) {
    let sum = |counts: &mut dyn Iterator<Item = u64>| thousands(counts.sum());
    page.heading(&format!(
        "Selection: {} of {} request types executed ({} of {} requests)",
        selection.executed.len(),
        selection.executed.len() + selection.left_out.len(),
        sum(&mut selection.executed.iter().map(|kind| kind.requests)),
        sum(&mut selection
            .executed
            .iter()
            .map(|kind| kind.requests)
            .chain(selection.left_out.iter().map(|kind| kind.requests))),
    ));
    for kind in selection.executed.iter().take(room.selected) {
        page.line(
            2,
            &format!("executed  {}: {}", cut(&kind.name, 60), kind.why),
        );
    }
    page.left_out(
        2,
        selection.executed.len().saturating_sub(room.selected) as u64,
        "executed type",
    );
    for kind in selection.left_out.iter().take(room.selected) {
        page.line(
            2,
            &format!("left out  {}: {}", cut(&kind.name, 60), kind.why),
        );
    }
    page.left_out(
        2,
        selection.left_out.len().saturating_sub(room.selected) as u64,
        "left-out type",
    );
    if !selection.tables_touched.is_empty() {
        page.paragraph(
            2,
            10,
            &format!(
                "touched   {}, as the database counted; all in the closure",
                selection.tables_touched.join(", ")
            ),
            2,
        );
    }
    if selection.restarts > 0 {
        page.line(
            2,
            &format!(
                "began again {}: what the statements touched was more than could be told from them",
                times(selection.restarts)
            ),
        );
    }
    for (statement, reason) in selection.undetermined.iter().take(room.undetermined) {
        page.line_with_end(
            2,
            &format!("taken to touch everything: {}", statement.trim()),
            &format!(" ({})", cut(reason, 40)),
        );
    }
    page.left_out(
        2,
        selection
            .undetermined
            .len()
            .saturating_sub(room.undetermined) as u64,
        "such statement",
    );
}

pub fn times(n: u32) -> String {
    match n {
        1 => "once".to_owned(),
        2 => "twice".to_owned(),
        n => format!("{n} times"),
    }
}

fn remarks(page: &mut Page, room: &Room, report: &Report) {
    let remarks = words::remarks(&report.remarks);
    if remarks.is_empty() {
        return;
    }
    page.heading("Remarks");
    for remark in remarks.iter().take(room.remarks) {
        page.paragraph(2, 2, &format!("- {remark}"), 2);
    }
    page.left_out(
        2,
        remarks.len().saturating_sub(room.remarks) as u64,
        "remark",
    );
}

fn more(page: &mut Page, report: &Report) {
    page.0.push('\n');
    if report.outcome == Outcome::Faithful {
        return;
    }
    let example = report
        .responses
        .groups
        .first()
        .map(|group| group.first.to_string())
        .or_else(|| {
            let mut groups = report.transactions.groups.iter();
            let group = groups.find(|group| group.first.0 > 0)?;
            Some(format!("t{}", group.first))
        });
    page.line(0, "More: --html FILE is a page with every difference that was described, --json the same for programs.");
    if let Some(example) = example {
        page.line(
            0,
            &format!("`hindcast show {example}` shows what was recorded there."),
        );
    }
}

fn timing(report: &Report) -> String {
    let timing = &report.timing;
    let ratio = timing.run_us as f64 / timing.original_us.max(1) as f64;
    format!(
        "Time: {} for what took {} ({ratio:.2}×), after {} of preparation; comparing took {}{}",
        duration(timing.run_us),
        duration(timing.original_us),
        duration(timing.prepare_us),
        duration(timing.compare_us),
        given_up(timing)
    )
}

/// What was spent before the run that counts.
pub fn given_up(timing: &Timing) -> String {
    match timing.runs_given_up {
        0 => String::new(),
        runs => format!(
            "; before that it had begun {}, which took {} and told what the changed code does",
            times(runs),
            duration(timing.given_up_us)
        ),
    }
}
