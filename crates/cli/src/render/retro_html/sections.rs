//! One section of the page each.

use std::fmt::Write;
use std::ops::Range;

use hindcast_retro::report::{
    Answer, Baseline, BodyChange, Cause, Check, Group, Report, ResponseChange, RowChange,
    RowChangeKind, RowText, Selection, TableChange, TransactionChange, TransactionChangeKind,
    ValueChange,
};
use hindcast_trace::Id;

use super::{Cell, Long, Page, escaped};
use crate::render::format::{count, thousands};
use crate::render::retro::{times, words};
use words::Judgement;

/// Described things up to this many are unfolded.
const OPEN: usize = 8;
/// Characters of a changed value up to which it is shown from its beginning.
const EXCERPT: usize = 160;

pub(super) fn checks(page: &mut Page, checks: &[Check]) {
    if checks.is_empty() {
        return;
    }
    page.section("checks", "Checks");
    for (i, check) in checks.iter().enumerate() {
        let (judgement, text) = words::judge(check);
        let (class, word) = match judgement {
            Judgement::Gone => ("gone", "gone"),
            Judgement::New => ("new", "new"),
            Judgement::Still => ("still", "still there"),
            Judgement::Changed => ("changed", "changed"),
            Judgement::Clean => ("gone", "clean"),
            Judgement::Unknown => ("unknown", "not known"),
        };
        html!(
            page,
            "<article>\n<h3>Check {} <span class=\"badge {class}\">{word}</span> <small>{}</small></h3>\n<pre>{}</pre>\n<div class=\"pair\">\n",
            i + 1,
            escaped(&text),
            Long(check.sql.trim())
        );
        for (title, answer) in [("Before", &check.before), ("After", &check.after)] {
            html!(page, "<div><h4>{title}</h4>\n");
            self::answer(page, answer);
            html!(page, "</div>\n");
        }
        html!(page, "</div>\n</article>\n");
    }
    page.end();
}

fn answer(page: &mut Page, answer: &Answer) {
    match answer {
        Answer::Rows { count: 0, .. } => page.note("no rows"),
        Answer::Rows {
            columns,
            rows,
            count: n,
        } => {
            let headings: Vec<&str> = columns.iter().map(String::as_str).collect();
            page.table("rows", &headings);
            for row in rows {
                html!(page, "<tr>");
                for value in row {
                    html!(page, "<td>{}</td>", Cell(value.as_deref()));
                }
                html!(page, "</tr>\n");
            }
            page.end_table();
            left_out(page, n.saturating_sub(rows.len() as u64), "row");
        }
        Answer::Failed { error } => html!(page, "<p class=\"error\">{}</p>\n", Long(error)),
        Answer::NotAsked => page.note("not asked: there is no original final state"),
    }
}

fn left_out(page: &mut Page, n: u64, noun: &str) {
    if n > 0 {
        page.note(&format!("… and {}", count(n, &format!("more {noun}"))));
    }
}

pub(super) fn types(page: &mut Page, report: &Report) {
    if report.types.len() < 2 {
        return;
    }
    page.section("types", "Request types");
    page.table(
        "numbers",
        &[
            "type",
            "requests",
            "executed",
            "responses changed",
            "transactions changed",
        ],
    );
    for kind in &report.types {
        html!(page, "<tr><td>{}</td>", Long(&kind.name));
        for n in [
            kind.requests,
            kind.executed,
            kind.responses_changed,
            kind.transactions_changed,
        ] {
            html!(
                page,
                "<td{}>{}</td>",
                if n == 0 { " class=\"zero\"" } else { "" },
                thousands(n)
            );
        }
        html!(page, "</tr>\n");
    }
    page.end_table();
    page.end();
}

pub(super) fn responses(page: &mut Page, report: &Report) {
    let responses = &report.responses;
    if responses.groups.is_empty() && responses.noise.is_empty() {
        return;
    }
    page.section(
        "responses",
        &format!(
            "Responses: {} changed",
            thousands(report.counts.responses_changed)
        ),
    );
    groups(page, &responses.groups, "");
    if !responses.changed.is_empty() {
        html!(page, "<h3>One by one</h3>\n");
        let open = if responses.changed.len() <= OPEN {
            " open"
        } else {
            ""
        };
        for change in &responses.changed {
            response(page, change, open);
        }
        let described = responses.changed.len() as u64;
        left_out(
            page,
            report.counts.responses_changed.saturating_sub(described),
            "response",
        );
    }
    if !responses.noise.is_empty() {
        html!(
            page,
            "<h3>Different only in clocks, sequence values or randomness</h3>\n"
        );
        groups(page, &responses.noise, "");
    }
    page.end();
}

fn groups(page: &mut Page, groups: &[Group<Id>], prefix: &str) {
    if groups.is_empty() {
        return;
    }
    page.table("groups", &["times", "what", "first", "last"]);
    for group in groups {
        let number = |id: Id| match id.0 {
            // Added transactions have no number.
            0 => String::new(),
            _ if prefix.is_empty() && page.described.contains(&id) => {
                format!("<a href=\"#r{id}\">{id}</a>")
            }
            _ => format!("{prefix}{id}"),
        };
        let (first, last) = (number(group.first), number(group.last));
        html!(
            page,
            "<tr><td>{}</td><td>{}</td><td>{first}</td><td>{last}</td></tr>\n",
            thousands(group.count),
            Long(&group.what)
        );
    }
    page.end_table();
}

fn response(page: &mut Page, change: &ResponseChange, open: &str) {
    let status = |status: Option<u16>| status.map_or("none".to_owned(), |s| s.to_string());
    let (before, after) = (status(change.status.0), status(change.status.1));
    let statuses = if before == after {
        before.clone()
    } else {
        format!("<del>{before}</del> <ins>{after}</ins>")
    };
    html!(
        page,
        "<details class=\"item\" id=\"r{}\"{open}>\n<summary><b>request {}</b> {} {statuses}</summary>\n",
        change.request,
        change.request,
        escaped(&crate::render::format::cut(&change.of, 100))
    );
    if let Some(error) = &change.error {
        html!(page, "<p class=\"error\">{}</p>\n", Long(error));
    }
    match &change.body {
        Some(BodyChange::Json { changes, more }) => {
            value_changes(page, "body", changes);
            left_out(page, *more, "difference");
        }
        Some(BodyChange::Text { at, before, after }) => {
            html!(
                page,
                "<p class=\"note\">The body differs from byte {} on:</p>\n",
                thousands(*at)
            );
            pair(page, before, after);
        }
        Some(BodyChange::Unkept {
            before_bytes,
            after_bytes,
            after,
        }) => {
            html!(
                page,
                "<p class=\"note\">Another body: {} bytes before, which were not kept; {} bytes after:</p>\n<pre>{}</pre>\n",
                thousands(*before_bytes),
                thousands(*after_bytes),
                Long(after)
            );
        }
        None => {}
    }
    if !change.headers.is_empty() {
        value_changes(page, "header", &change.headers);
    }
    html!(page, "</details>\n");
}

fn value_changes(page: &mut Page, what: &str, changes: &[ValueChange]) {
    page.table("changes", &[what, "before", "after"]);
    for change in changes {
        html!(page, "<tr><th>{}</th>", Long(&change.name));
        for (value, class) in [(&change.before, "before"), (&change.after, "after")] {
            match value {
                Some(value) => html!(page, "<td class=\"{class}\">{}</td>", Long(value)),
                None => html!(page, "<td><i class=\"null\">absent</i></td>"),
            }
        }
        html!(page, "</tr>\n");
    }
    page.end_table();
}

fn pair(page: &mut Page, before: &str, after: &str) {
    html!(
        page,
        "<div class=\"pair\"><pre class=\"before\">{}</pre><pre class=\"after\">{}</pre></div>\n",
        Long(before),
        Long(after)
    );
}

pub(super) fn transactions(page: &mut Page, report: &Report) {
    let transactions = &report.transactions;
    if transactions.groups.is_empty() && transactions.changed.is_empty() {
        return;
    }
    let different = words::transactions_different(&report.counts);
    page.section(
        "transactions",
        &format!("Transactions: {} different", thousands(different)),
    );
    groups(page, &transactions.groups, "t");
    if !transactions.changed.is_empty() {
        html!(page, "<h3>One by one</h3>\n");
        page.table("items transactions", &["transaction", "of", "what"]);
        for alike in alike(&transactions.changed) {
            transaction(page, &alike);
        }
        page.end_table();
        let described = transactions.changed.len() as u64;
        left_out(page, different.saturating_sub(described), "transaction");
    }
    page.end();
}

/// Those that changed in the same way, in the order of the first of each: a changed statement changes every transaction that has it.
fn alike(changes: &[TransactionChange]) -> Vec<Vec<&TransactionChange>> {
    let mut lists: Vec<Vec<&TransactionChange>> = Vec::new();
    for change in changes {
        let same = |list: &&mut Vec<&TransactionChange>| {
            list[0].of == change.of && list[0].kind == change.kind
        };
        match lists.iter_mut().find(same) {
            Some(list) => list.push(change),
            None => lists.push(vec![change]),
        }
    }
    lists
}

fn transaction(page: &mut Page, alike: &[&TransactionChange]) {
    let name = |change: &TransactionChange| change.transaction.map(|id| format!("t{id}"));
    let request = |page: &Page, change: &TransactionChange| {
        change.request.map(|request| page.request(request))
    };
    let change = alike[0];
    let first = request(page, change).unwrap_or_default();
    if alike.len() == 1 {
        html!(
            page,
            "<tr><td>{}</td><td>{}<br>{first}</td><td>",
            name(change).unwrap_or("—".to_owned()),
            Long(&change.of)
        );
    } else {
        html!(
            page,
            "<tr><td>{} ×</td><td>{}<details><summary>{first} and {} more</summary>",
            thousands(alike.len() as u64),
            Long(&change.of),
            thousands(alike.len() as u64 - 1)
        );
        for change in alike {
            let parts: Vec<String> = [name(change), request(page, change)]
                .into_iter()
                .flatten()
                .collect();
            html!(page, "{}<br>", parts.join(" of "));
        }
        html!(page, "</details></td><td>");
    }
    match &change.kind {
        TransactionChangeKind::Added {
            statements,
            error,
            retry,
        } => {
            let (class, word) = if *retry {
                ("added", "retry")
            } else {
                ("added", "added")
            };
            html!(page, "<span class=\"badge {class}\">{word}</span>");
            self::statements(page, "", statements, 0..0);
            if let Some(error) = error {
                html!(page, "<p class=\"error\">{}</p>", Long(error));
            }
        }
        TransactionChangeKind::Deleted { into } => {
            html!(page, "<span class=\"badge deleted\">deleted</span>");
            if let Some(into) = into {
                html!(page, " its writes moved into t{into}");
            }
        }
        TransactionChangeKind::Statements { before, after } => {
            html!(
                page,
                "<span class=\"badge changed\">other statements</span>"
            );
            html!(page, "<div class=\"pair\">");
            let (start, end) = words::common_ends(before, after);
            self::statements(page, "before", before, start..before.len() - end);
            self::statements(page, "after", after, start..after.len() - end);
            html!(page, "</div>");
        }
        TransactionChangeKind::Results {
            before_rows,
            after_rows,
        } => {
            html!(page, "<span class=\"badge changed\">other results</span> ");
            if before_rows == after_rows {
                html!(page, "{}, others", count(*after_rows, "row"));
            } else {
                html!(
                    page,
                    "{} before, {} after",
                    count(*before_rows, "row"),
                    thousands(*after_rows)
                );
            }
        }
        TransactionChangeKind::NewlyFailing { error } => {
            html!(
                page,
                "<span class=\"badge new\">fails now</span><p class=\"error\">{}</p>",
                Long(error)
            );
        }
        TransactionChangeKind::NewlySucceeding { error } => {
            html!(page, "<span class=\"badge gone\">succeeds now</span>");
            if let Some(error) = error {
                html!(
                    page,
                    " it failed with<p class=\"error\">{}</p>",
                    Long(error)
                );
            }
        }
        TransactionChangeKind::FailsOtherwise { before, after } => {
            html!(page, "<span class=\"badge still\">fails otherwise</span>");
            html!(page, "<div class=\"pair\">");
            for (error, class) in [(before, "before"), (after, "after")] {
                html!(
                    page,
                    "<pre class=\"{class}\">{}</pre>",
                    Long(error.as_deref().unwrap_or("ROLLBACK"))
                );
            }
            html!(page, "</div>");
        }
    }
    html!(page, "</td></tr>\n");
}

/// With a class there is another side, which has those outside of `changed` as well.
fn statements(page: &mut Page, class: &str, statements: &[String], changed: Range<usize>) {
    html!(page, "<ol class=\"statements {class}\">");
    for (i, statement) in statements.iter().enumerate() {
        let kept = !class.is_empty() && !changed.contains(&i);
        html!(
            page,
            "<li{}>{}</li>",
            if kept { " class=\"kept\"" } else { "" },
            Long(statement)
        );
    }
    html!(page, "</ol>");
}

pub(super) fn state(page: &mut Page, report: &Report) {
    let state = &report.state;
    if let Baseline::None { reason } = &state.against {
        page.section("state", "Final state: not compared");
        html!(
            page,
            "<p>{}</p>\n<p class=\"note\">--original COMMAND makes an original final state to compare with; --compare-with URL names one.</p>\n",
            Long(reason)
        );
        page.end();
        return;
    }
    let mut title = match state.tables.len() as u64 {
        0 => "Final state: no table different".to_owned(),
        n => format!("Final state: {} different", count(n, "table")),
    };
    if state.tables_same > 0 {
        let _ = write!(title, ", {} the same", thousands(state.tables_same));
    }
    page.section("state", &title);
    if state.tables.len() > 3 {
        table_list(page, &state.tables);
    }
    for (i, table) in state.tables.iter().enumerate() {
        self::table(page, i, table, i < OPEN);
    }
    if !state.incomparable.is_empty() {
        html!(page, "<h3>Not comparable</h3>\n");
        page.table("items", &["table", "why"]);
        for (table, reason) in &state.incomparable {
            html!(
                page,
                "<tr><td>{}</td><td>{}</td></tr>\n",
                Long(table),
                Long(reason)
            );
        }
        page.end_table();
    }
    page.end();
}

fn table_list(page: &mut Page, tables: &[TableChange]) {
    page.table(
        "numbers",
        &["table", "added", "removed", "changed", "of these noise"],
    );
    for (i, table) in tables.iter().enumerate() {
        html!(
            page,
            "<tr><td><a href=\"#table{}\">{}</a></td>",
            i + 1,
            escaped(&crate::render::format::cut(&table.table, 100))
        );
        for n in [table.added, table.removed, table.changed, table.noise] {
            html!(
                page,
                "<td{}>{}</td>",
                if n == 0 { " class=\"zero\"" } else { "" },
                thousands(n)
            );
        }
        html!(page, "</tr>\n");
    }
    page.end_table();
}

fn table(page: &mut Page, number: usize, table: &TableChange, open: bool) {
    html!(
        page,
        "<details class=\"item\" id=\"table{}\"{}>\n<summary><b>{}</b>",
        number + 1,
        if open { " open" } else { "" },
        escaped(&crate::render::format::cut(&table.table, 100))
    );
    for (n, class, what) in [
        (table.added, "gone", "added"),
        (table.removed, "new", "removed"),
        (table.changed, "changed", "changed"),
    ] {
        if n > 0 {
            html!(
                page,
                " <span class=\"badge {class}\">{} {what}</span>",
                thousands(n)
            );
        }
    }
    html!(page, "</summary>\n");
    if table.key.is_empty() {
        page.note("The table has no primary key: rows are told apart by all they hold.");
    }
    if table.noise > 0 {
        html!(
            page,
            "<p class=\"note\">{} of these {} only in clocks, sequence values or randomness{}{}</p>\n",
            thousands(table.noise),
            if table.noise == 1 {
                "differs"
            } else {
                "differ"
            },
            if table.noise_columns.is_empty() {
                "."
            } else {
                ": "
            },
            Long(&table.noise_columns.join("; "))
        );
    }
    if table.not_paired > 0 {
        page.note(&format!(
            "{} more could be the same under another number; that was not looked into.",
            thousands(table.not_paired)
        ));
    }
    if !table.columns_changed.is_empty() {
        html!(
            page,
            "<p class=\"note\">Columns that were not compared:</p>\n"
        );
        value_changes(page, "column", &table.columns_changed);
    }
    if !table.rows.is_empty() {
        rows(page, table);
    }
    let differing = (table.added + table.removed + table.changed).saturating_sub(table.noise);
    let described = table
        .rows
        .iter()
        .map(|row| match row.kind {
            RowChangeKind::Count { before, after, .. } => before.abs_diff(after),
            _ => 1,
        })
        .fold(0, u64::saturating_add);
    left_out(page, differing.saturating_sub(described), "row");
    html!(page, "</details>\n");
}

/// The rows as the table has them, so that what is the same shows next to what is not.
fn rows(page: &mut Page, table: &TableChange) {
    let mut headings = vec![""];
    headings.extend(table.columns.iter().map(String::as_str));
    headings.extend(["originally by", "now by"]);
    page.table("rows", &headings);
    for row in &table.rows {
        let (class, sign) = match &row.kind {
            RowChangeKind::Added { .. } => ("added", "+".to_owned()),
            RowChangeKind::Removed { .. } => ("removed", "−".to_owned()),
            RowChangeKind::Changed { .. } => ("edited", "~".to_owned()),
            RowChangeKind::Count { before, after, .. } => (
                if after > before { "added" } else { "removed" },
                format!("{}× → {}×", thousands(*before), thousands(*after)),
            ),
        };
        html!(page, "<tr class=\"{class}\"><td class=\"sign\">{sign}</td>");
        match &row.kind {
            RowChangeKind::Added { row }
            | RowChangeKind::Removed { row }
            | RowChangeKind::Count { row, .. } => cells(page, table.columns.len(), row),
            RowChangeKind::Changed { before, after } => {
                changed_cells(page, table.columns.len(), before, after);
            }
        }
        for (cause, verb) in causes(row) {
            html!(page, "<td class=\"cause\">");
            if let Some(cause) = cause {
                self::cause(page, cause, verb);
            }
            html!(page, "</td>");
        }
        html!(page, "</tr>\n");
    }
    page.end_table();
}

/// Each with a verb, where it is not the obvious one.
fn causes(row: &RowChange) -> [(&Option<Cause>, &'static str); 2] {
    let verbs = match row.kind {
        RowChangeKind::Added { .. } => ["deleted by", ""],
        RowChangeKind::Removed { .. } => ["", "deleted by"],
        _ => ["", ""],
    };
    [(&row.before_by, verbs[0]), (&row.after_by, verbs[1])]
}

fn cells(page: &mut Page, columns: usize, row: &RowText) {
    for i in 0..columns {
        match row.get(i) {
            Some(value) => html!(page, "<td>{}</td>", Cell(value.as_deref())),
            None => html!(page, "<td></td>"),
        }
    }
}

fn changed_cells(page: &mut Page, columns: usize, before: &RowText, after: &RowText) {
    for i in 0..columns {
        match (before.get(i), after.get(i)) {
            (Some(before), Some(after)) if before == after => {
                html!(page, "<td class=\"kept\">{}</td>", Cell(after.as_deref()));
            }
            (Some(Some(before)), Some(Some(after))) => {
                // What is long and the same up to the difference would hide it.
                let (before, after) = words::excerpts(before, after, EXCERPT);
                html!(
                    page,
                    "<td><del>{}</del><ins>{}</ins></td>",
                    Cell(Some(&before)),
                    Cell(Some(&after))
                );
            }
            (before, after) => {
                html!(page, "<td>");
                if let Some(before) = before {
                    html!(page, "<del>{}</del>", Cell(before.as_deref()));
                }
                if let Some(after) = after {
                    html!(page, "<ins>{}</ins>", Cell(after.as_deref()));
                }
                html!(page, "</td>");
            }
        }
    }
}

fn cause(page: &mut Page, cause: &Cause, verb: &str) {
    if !verb.is_empty() && *cause != Cause::Unknown {
        html!(page, "<i>{verb}</i> ");
    }
    match cause {
        Cause::Transaction {
            request,
            transaction,
            of,
            statement,
        } => {
            let request = request.map(|request| page.request(request));
            html!(page, "{}", Long(of));
            if let Some(request) = request {
                html!(page, ", {request}");
            }
            if let Some(transaction) = transaction {
                html!(page, " (t{transaction})");
            }
            if let Some(statement) = statement {
                html!(page, "<br><code>{}</code>", Long(statement));
            }
        }
        Cause::Migration => html!(page, "the migration"),
        Cause::Before => html!(page, "before the range began"),
        Cause::Unknown => html!(page, "<i class=\"null\">unknown</i>"),
    }
}

pub(super) fn selection(page: &mut Page, selection: &Selection) {
    page.section(
        "selection",
        &format!(
            "Selection: {} of {} executed",
            selection.executed.len(),
            count(
                (selection.executed.len() + selection.left_out.len()) as u64,
                "request type"
            )
        ),
    );
    page.table("items", &["executed", "requests", "why", "reads", "writes"]);
    for kind in &selection.executed {
        html!(
            page,
            "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>\n",
            Long(&kind.name),
            thousands(kind.requests),
            Long(&kind.why),
            Long(&kind.reads.join(", ")),
            Long(&kind.writes.join(", "))
        );
    }
    page.end_table();
    if !selection.left_out.is_empty() {
        page.table("items", &["left out", "requests", "why"]);
        for kind in &selection.left_out {
            html!(
                page,
                "<tr><td>{}</td><td>{}</td><td>{}</td></tr>\n",
                Long(&kind.name),
                thousands(kind.requests),
                Long(&kind.why)
            );
        }
        page.end_table();
    }
    html!(page, "<dl class=\"facts\">\n");
    if !selection.tables_touched.is_empty() {
        html!(
            page,
            "<dt>touched</dt><dd>{}, as the database counted; all in the closure</dd>\n",
            Long(&selection.tables_touched.join(", "))
        );
    }
    if selection.restarts > 0 {
        html!(
            page,
            "<dt>began again</dt><dd>{}: what the statements touched was more than could be told from them</dd>\n",
            times(selection.restarts)
        );
    }
    html!(page, "</dl>\n");
    if !selection.undetermined.is_empty() {
        page.table("items", &["taken to touch everything", "why"]);
        for (statement, reason) in &selection.undetermined {
            html!(
                page,
                "<tr><td><code>{}</code></td><td>{}</td></tr>\n",
                Long(statement),
                Long(reason)
            );
        }
        page.end_table();
    }
    page.end();
}

pub(super) fn remarks(page: &mut Page, report: &Report) {
    let remarks = words::remarks(&report.remarks);
    if remarks.is_empty() {
        return;
    }
    page.section("remarks", "Remarks");
    html!(page, "<ul class=\"remarks\">\n");
    for remark in remarks {
        html!(page, "<li>{}</li>\n", Long(&remark));
    }
    html!(page, "</ul>\n");
    page.end();
}
