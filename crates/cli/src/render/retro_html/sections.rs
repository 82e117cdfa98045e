//! One section of the page each.

use std::ops::Range;

use hindcast_retro::report::{
    Answer, Baseline, BodyChange, Cause, Check, Group, Report, ResponseChange, RowChange,
    RowChangeKind, RowText, Selection, TableChange, TransactionChange, TransactionChangeKind,
    ValueChange,
};
use hindcast_trace::Id;
use maud::{Markup, html};

use super::{Cell, Described, Long, Section, Text, note, table};
use crate::render::format::{count, cut, thousands};
use crate::render::retro::{times, words};
use words::Judgement;

/// Described things up to this many are unfolded.
const OPEN: usize = 8;
/// Characters of a changed value up to which it is shown from its beginning.
const EXCERPT: usize = 160;

pub(super) fn checks(checks: &[Check]) -> Option<Section> {
    let body = html! {
        @for (i, check) in checks.iter().enumerate() {
            @let (judgement, text) = words::judge(check);
            @let (class, word) = match judgement {
                Judgement::Gone => ("gone", "gone"),
                Judgement::New => ("new", "new"),
                Judgement::Still => ("still", "still there"),
                Judgement::Changed => ("changed", "changed"),
                Judgement::Clean => ("gone", "clean"),
                Judgement::Unknown => ("unknown", "not known"),
            };
            article {
                h3 { "Check " (i + 1) " " (badge(class, word)) " " small { (Text(&text)) } }
                pre { (Long(check.sql.trim())) }
                div.pair {
                    @for (title, answer) in [("Before", &check.before), ("After", &check.after)] {
                        div { h4 { (title) } (self::answer(answer)) }
                    }
                }
            }
        }
    };
    (!checks.is_empty()).then(|| Section {
        id: "checks",
        title: "Checks".to_owned(),
        body,
    })
}

fn badge(class: &str, text: &str) -> Markup {
    html! { span class={ "badge " (class) } { (text) } }
}

fn error(text: &str) -> Markup {
    html! { p.error { (Long(text)) } }
}

fn answer(answer: &Answer) -> Markup {
    match answer {
        Answer::Rows { count: 0, .. } => note("no rows"),
        Answer::Rows {
            columns,
            rows,
            count: n,
        } => {
            let headings: Vec<&str> = columns.iter().map(String::as_str).collect();
            let shown = html! {
                @for row in rows { tr { @for value in row { td { (Cell(value.as_deref())) } } } }
            };
            html! {
                (table("rows", &headings, shown))
                (left_out(n.saturating_sub(rows.len() as u64), "row"))
            }
        }
        Answer::Failed { error } => self::error(error),
        Answer::NotAsked => note("not asked: there is no original final state"),
    }
}

fn left_out(n: u64, noun: &str) -> Markup {
    html! { @if n > 0 { (note(&format!("… and {}", count(n, &format!("more {noun}"))))) } }
}

fn number(n: u64) -> Markup {
    html! { td class=[(n == 0).then_some("zero")] { (thousands(n)) } }
}

pub(super) fn types(report: &Report) -> Option<Section> {
    let headings = [
        "type",
        "requests",
        "executed",
        "responses changed",
        "transactions changed",
    ];
    let rows = html! {
        @for kind in &report.types {
            tr {
                td { (Long(&kind.name)) }
                (number(kind.requests))
                (number(kind.executed))
                (number(kind.responses_changed))
                (number(kind.transactions_changed))
            }
        }
    };
    (report.types.len() >= 2).then(|| Section {
        id: "types",
        title: "Request types".to_owned(),
        body: table("numbers", &headings, rows),
    })
}

pub(super) fn responses(report: &Report, described: &Described) -> Option<Section> {
    let (responses, changed) = (&report.responses, report.counts.responses_changed);
    if responses.groups.is_empty() && responses.noise.is_empty() {
        return None;
    }
    let link = |id: Id| {
        html! { @if described.0.contains(&id) { a href={ "#r" (id) } { (id) } } @else { (id) } }
    };
    let one_by_one = &responses.changed;
    let body = html! {
        (groups(&responses.groups, link))
        @if !one_by_one.is_empty() {
            h3 { "One by one" }
            @for change in one_by_one { (response(change, one_by_one.len() <= OPEN)) }
            (left_out(changed.saturating_sub(one_by_one.len() as u64), "response"))
        }
        @if !responses.noise.is_empty() {
            h3 { "Different only in clocks, sequence values or randomness" }
            (groups(&responses.noise, link))
        }
    };
    Some(Section {
        id: "responses",
        title: format!("Responses: {} changed", thousands(changed)),
        body,
    })
}

fn groups(groups: &[Group<Id>], number: impl Fn(Id) -> Markup) -> Markup {
    // Added transactions have no number.
    let number = |id: Id| html! { td { @if id.0 != 0 { (number(id)) } } };
    let rows = html! {
        @for group in groups {
            tr {
                td { (thousands(group.count)) }
                td { (Long(&group.what)) }
                (number(group.first))
                (number(group.last))
            }
        }
    };
    html! {
        @if !groups.is_empty() { (table("groups", &["times", "what", "first", "last"], rows)) }
    }
}

fn response(change: &ResponseChange, open: bool) -> Markup {
    let status = |status: Option<u16>| status.map_or("none".to_owned(), |s| s.to_string());
    let (before, after) = (status(change.status.0), status(change.status.1));
    html! {
        details.item id={ "r" (change.request) } open[open] {
            summary {
                b { "request " (change.request) } " " (Text(&cut(&change.of, 100))) " "
                @if before == after { (before) } @else { del { (before) } " " ins { (after) } }
            }
            @if let Some(error) = &change.error { (self::error(error)) }
            @match &change.body {
                Some(BodyChange::Json { changes, more }) => {
                    (value_changes("body", changes))
                    (left_out(*more, "difference"))
                }
                Some(BodyChange::Text { at, before, after }) => {
                    p.note { "The body differs from byte " (thousands(*at)) " on:" }
                    div.pair { pre.before { (Long(before)) } pre.after { (Long(after)) } }
                }
                Some(BodyChange::Unkept { before_bytes, after_bytes, after }) => {
                    p.note {
                        "Another body: " (thousands(*before_bytes)) " bytes before, which were not kept; "
                        (thousands(*after_bytes)) " bytes after:"
                    }
                    pre { (Long(after)) }
                }
                None => {}
            }
            @if !change.headers.is_empty() { (value_changes("header", &change.headers)) }
        }
    }
}

fn value_changes(what: &str, changes: &[ValueChange]) -> Markup {
    let value = |value: &Option<String>, class| {
        html! {
            @if let Some(value) = value { td class=(class) { (Long(value)) } }
            @else { td { i.null { "absent" } } }
        }
    };
    let rows = html! {
        @for change in changes {
            tr {
                th { (Long(&change.name)) }
                (value(&change.before, "before"))
                (value(&change.after, "after"))
            }
        }
    };
    table("changes", &[what, "before", "after"], rows)
}

pub(super) fn transactions(report: &Report, described: &Described) -> Option<Section> {
    let (groups, changed) = (&report.transactions.groups, &report.transactions.changed);
    if groups.is_empty() && changed.is_empty() {
        return None;
    }
    let different = words::transactions_different(&report.counts);
    let rows = html! { @for alike in alike(changed) { (transaction(&alike, described)) } };
    let body = html! {
        (self::groups(groups, |id| html! { "t" (id) }))
        @if !changed.is_empty() {
            h3 { "One by one" }
            (table("items transactions", &["transaction", "of", "what"], rows))
            (left_out(different.saturating_sub(changed.len() as u64), "transaction"))
        }
    };
    Some(Section {
        id: "transactions",
        title: format!("Transactions: {} different", thousands(different)),
        body,
    })
}

/// Those that changed in the same way, in the order of the first of each: a changed statement
/// changes every transaction that has it.
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

fn transaction(alike: &[&TransactionChange], described: &Described) -> Markup {
    let name =
        |change: &TransactionChange| html! { @if let Some(id) = change.transaction { "t" (id) } };
    let request = |change: &TransactionChange| {
        html! { @if let Some(request) = change.request { (described.request(request)) } }
    };
    let change = alike[0];
    html! {
        tr {
            @if let [_] = alike {
                td { @if change.transaction.is_some() { (name(change)) } @else { "—" } }
                td { (Long(&change.of)) br; (request(change)) }
            } @else {
                td { (thousands(alike.len() as u64)) " ×" }
                td {
                    (Long(&change.of))
                    details {
                        summary { (request(change)) " and " (thousands(alike.len() as u64 - 1)) " more" }
                        @for change in alike {
                            (name(change))
                            @if change.transaction.is_some() && change.request.is_some() { " of " }
                            (request(change))
                            br;
                        }
                    }
                }
            }
            td { (what_changed(&change.kind)) }
        }
    }
}

fn what_changed(kind: &TransactionChangeKind) -> Markup {
    use TransactionChangeKind as K;
    match kind {
        K::Added {
            statements,
            error,
            retry,
        } => html! {
            (badge("added", if *retry { "retry" } else { "added" }))
            (self::statements("", statements, 0..0))
            @if let Some(error) = error { (self::error(error)) }
        },
        K::Deleted { into } => html! {
            (badge("deleted", "deleted"))
            @if let Some(into) = into { " its writes moved into t" (into) }
        },
        K::Statements { before, after } => {
            let (start, end) = words::common_ends(before, after);
            html! {
                (badge("changed", "other statements"))
                div.pair {
                    (statements("before", before, start..before.len() - end))
                    (statements("after", after, start..after.len() - end))
                }
            }
        }
        K::Results {
            before_rows,
            after_rows,
        } => html! {
            (badge("changed", "other results")) " "
            (count(*before_rows, "row"))
            @if before_rows == after_rows { ", others" }
            @else { " before, " (thousands(*after_rows)) " after" }
        },
        K::NewlyFailing { error } => html! { (badge("new", "fails now")) (self::error(error)) },
        K::NewlySucceeding { error } => html! {
            (badge("gone", "succeeds now"))
            @if let Some(error) = error { " it failed with" (self::error(error)) }
        },
        K::FailsOtherwise { before, after } => html! {
            (badge("still", "fails otherwise"))
            div.pair {
                @for (error, class) in [(before, "before"), (after, "after")] {
                    pre class=(class) { (Long(error.as_deref().unwrap_or("ROLLBACK"))) }
                }
            }
        },
    }
}

/// With a class there is another side, which has those outside of `changed` as well.
fn statements(class: &str, statements: &[String], changed: Range<usize>) -> Markup {
    let kept = |i| (!class.is_empty() && !changed.contains(&i)).then_some("kept");
    html! {
        ol class={ "statements " (class) } {
            @for (i, statement) in statements.iter().enumerate() { li class=[kept(i)] { (Long(statement)) } }
        }
    }
}

pub(super) fn state(report: &Report, described: &Described) -> Section {
    let state = &report.state;
    if let Baseline::None { reason } = &state.against {
        let body = html! {
            p { (Long(reason)) }
            (note("--original COMMAND makes an original final state to compare with; --compare-with URL names one."))
        };
        return Section {
            id: "state",
            title: "Final state: not compared".to_owned(),
            body,
        };
    }
    let different = match state.tables.len() as u64 {
        0 => "no table".to_owned(),
        n => count(n, "table"),
    };
    let same = match state.tables_same {
        0 => String::new(),
        n => format!(", {} the same", thousands(n)),
    };
    let incomparable = html! {
        @for (table, reason) in &state.incomparable { tr { td { (Long(table)) } td { (Long(reason)) } } }
    };
    let body = html! {
        @if state.tables.len() > 3 { (table_list(&state.tables)) }
        @for (i, table) in state.tables.iter().enumerate() { (changed_table(i, table, described)) }
        @if !state.incomparable.is_empty() {
            h3 { "Not comparable" }
            (table("items", &["table", "why"], incomparable))
        }
    };
    Section {
        id: "state",
        title: format!("Final state: {different} different{same}"),
        body,
    }
}

fn table_list(tables: &[TableChange]) -> Markup {
    let headings = ["table", "added", "removed", "changed", "of these noise"];
    let rows = html! {
        @for (i, table) in tables.iter().enumerate() {
            tr {
                td { a href={ "#table" (i + 1) } { (Text(&cut(&table.table, 100))) } }
                (number(table.added)) (number(table.removed)) (number(table.changed)) (number(table.noise))
            }
        }
    };
    table("numbers", &headings, rows)
}

fn changed_table(i: usize, table: &TableChange, described: &Described) -> Markup {
    let badges = [
        (table.added, "gone", "added"),
        (table.removed, "new", "removed"),
        (table.changed, "changed", "changed"),
    ];
    let differing = (table.added + table.removed + table.changed).saturating_sub(table.noise);
    let shown = table.rows.iter().map(|row| match row.kind {
        RowChangeKind::Count { before, after, .. } => before.abs_diff(after),
        _ => 1,
    });
    let shown = shown.fold(0, u64::saturating_add);
    html! {
        details.item id={ "table" (i + 1) } open[i < OPEN] {
            summary {
                b { (Text(&cut(&table.table, 100))) }
                @for (n, class, what) in badges {
                    @if n > 0 { " " (badge(class, &format!("{} {what}", thousands(n)))) }
                }
            }
            @if table.key.is_empty() {
                (note("The table has no primary key: rows are told apart by all they hold."))
            }
            @if table.noise > 0 {
                p.note {
                    (thousands(table.noise)) " of these "
                    (if table.noise == 1 { "differs" } else { "differ" })
                    " only in clocks, sequence values or randomness"
                    (if table.noise_columns.is_empty() { "." } else { ": " })
                    (Long(&table.noise_columns.join("; ")))
                }
            }
            @if table.not_paired > 0 {
                p.note {
                    (thousands(table.not_paired))
                    " more could be the same under another number; that was not looked into."
                }
            }
            @if !table.columns_changed.is_empty() {
                (note("Columns that were not compared:"))
                (value_changes("column", &table.columns_changed))
            }
            @if !table.rows.is_empty() { (rows(table, described)) }
            (left_out(differing.saturating_sub(shown), "row"))
        }
    }
}

/// The rows as the table has them, so that what is the same shows next to what is not.
fn rows(changed: &TableChange, described: &Described) -> Markup {
    let mut headings = vec![""];
    headings.extend(changed.columns.iter().map(String::as_str));
    headings.extend(["originally by", "now by"]);
    let columns = changed.columns.len();
    let shown = html! {
        @for row in &changed.rows {
            @let (class, sign) = sign(&row.kind);
            tr class=(class) {
                td.sign { (sign) }
                @match &row.kind {
                    RowChangeKind::Added { row } | RowChangeKind::Removed { row }
                    | RowChangeKind::Count { row, .. } => { (cells(columns, row)) }
                    RowChangeKind::Changed { before, after } => { (changed_cells(columns, before, after)) }
                }
                @for (cause, verb) in causes(row) {
                    td.cause { @if let Some(cause) = cause { (self::cause(cause, verb, described)) } }
                }
            }
        }
    };
    table("rows", &headings, shown)
}

fn sign(kind: &RowChangeKind) -> (&'static str, String) {
    match kind {
        RowChangeKind::Added { .. } => ("added", "+".to_owned()),
        RowChangeKind::Removed { .. } => ("removed", "−".to_owned()),
        RowChangeKind::Changed { .. } => ("edited", "~".to_owned()),
        RowChangeKind::Count { before, after, .. } => (
            if after > before { "added" } else { "removed" },
            format!("{}× → {}×", thousands(*before), thousands(*after)),
        ),
    }
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

fn cells(columns: usize, row: &RowText) -> Markup {
    html! {
        @for i in 0..columns { td { @if let Some(value) = row.get(i) { (Cell(value.as_deref())) } } }
    }
}

fn changed_cells(columns: usize, before: &RowText, after: &RowText) -> Markup {
    html! { @for i in 0..columns { (changed_cell(before.get(i), after.get(i))) } }
}

fn changed_cell(before: Option<&Option<String>>, after: Option<&Option<String>>) -> Markup {
    match (before, after) {
        (Some(before), Some(after)) if before == after => {
            html! { td.kept { (Cell(after.as_deref())) } }
        }
        (Some(Some(before)), Some(Some(after))) => {
            // What is long and the same up to the difference would hide it.
            let (before, after) = words::excerpts(before, after, EXCERPT);
            html! { td { del { (Cell(Some(&before))) } ins { (Cell(Some(&after))) } } }
        }
        (before, after) => html! {
            td {
                @if let Some(before) = before { del { (Cell(before.as_deref())) } }
                @if let Some(after) = after { ins { (Cell(after.as_deref())) } }
            }
        },
    }
}

fn cause(cause: &Cause, verb: &str, described: &Described) -> Markup {
    html! {
        @if !verb.is_empty() && *cause != Cause::Unknown { i { (verb) } " " }
        @match cause {
            Cause::Transaction { request, transaction, of, statement } => {
                (Long(of))
                @if let Some(request) = request { ", " (described.request(*request)) }
                @if let Some(transaction) = transaction { " (t" (transaction) ")" }
                @if let Some(statement) = statement { br; code { (Long(statement)) } }
            }
            Cause::Migration => { "the migration" }
            Cause::Before => { "before the range began" }
            Cause::Unknown => { i.null { "unknown" } }
        }
    }
}

pub(super) fn selection(selection: &Selection) -> Section {
    let (executed, left_out) = (selection.executed.len(), selection.left_out.len());
    let types = count((executed + left_out) as u64, "request type");
    let executed_rows = html! {
        @for kind in &selection.executed {
            tr {
                td { (Long(&kind.name)) }
                td { (thousands(kind.requests)) }
                td { (Long(&kind.why)) }
                td { (Long(&kind.reads.join(", "))) }
                td { (Long(&kind.writes.join(", "))) }
            }
        }
    };
    let left_out_rows = html! {
        @for kind in &selection.left_out {
            tr { td { (Long(&kind.name)) } td { (thousands(kind.requests)) } td { (Long(&kind.why)) } }
        }
    };
    let undetermined = html! {
        @for (statement, reason) in &selection.undetermined {
            tr { td { code { (Long(statement)) } } td { (Long(reason)) } }
        }
    };
    let body = html! {
        (table("items", &["executed", "requests", "why", "reads", "writes"], executed_rows))
        @if left_out > 0 { (table("items", &["left out", "requests", "why"], left_out_rows)) }
        dl.facts {
            @if !selection.tables_touched.is_empty() {
                dt { "touched" }
                dd {
                    (Long(&selection.tables_touched.join(", ")))
                    ", as the database counted; all in the closure"
                }
            }
            @if selection.restarts > 0 {
                dt { "began again" }
                dd {
                    (times(selection.restarts))
                    ": what the statements touched was more than could be told from them"
                }
            }
        }
        @if !selection.undetermined.is_empty() {
            (table("items", &["taken to touch everything", "why"], undetermined))
        }
    };
    Section {
        id: "selection",
        title: format!("Selection: {executed} of {types} executed"),
        body,
    }
}

pub(super) fn remarks(report: &Report) -> Option<Section> {
    let remarks = words::remarks(&report.remarks);
    let body = html! { ul.remarks { @for remark in &remarks { li { (Long(remark)) } } } };
    (!remarks.is_empty()).then(|| Section {
        id: "remarks",
        title: "Remarks".to_owned(),
        body,
    })
}
