//! The final state: tables, rows, and who wrote them.

use hindcast_retro::report::{
    Baseline, Cause, Outcome, Report, RowChange, RowChangeKind, TableChange,
};

use super::{Page, Room, words};
use crate::render::format::{count, cut, thousands};

pub fn section(page: &mut Page, room: &Room, report: &Report) {
    let state = &report.state;
    if let Baseline::None { reason } = &state.against {
        page.heading("Final state: not compared");
        let hint = match report.outcome {
            Outcome::Stopped { .. } => "",
            _ => {
                ". --original COMMAND makes an original final state to compare with; --compare-with URL names one"
            }
        };
        let text = format!("{}{hint}.", reason.trim_end_matches('.'));
        page.paragraph(2, 0, &text, 3);
        return;
    }
    let differing = state.tables.len() as u64;
    let mut counts = Vec::new();
    if differing > 0 {
        counts.push(format!("{} different", count(differing, "table")));
    }
    if state.tables_same > 0 {
        counts.push(format!("{} the same", thousands(state.tables_same)));
    }
    if !state.incomparable.is_empty() {
        counts.push(format!(
            "{} not comparable",
            thousands(state.incomparable.len() as u64)
        ));
    }
    if counts.is_empty() {
        counts.push("no tables".to_owned());
    }
    page.0.push('\n');
    let text = format!(
        "Final state: {}, compared with {}",
        counts.join(", "),
        words::baseline(&state.against)
    );
    page.paragraph(0, 2, &text, 2);
    let shown = &state.tables[..state.tables.len().min(room.tables)];
    let blocks: Vec<Vec<Vec<String>>> = shown
        .iter()
        .map(|table| {
            let key = words::key_columns(table);
            table
                .rows
                .iter()
                .take(room.rows_per_table)
                .map(|row| row_lines(table, &key, row))
                .collect()
        })
        .collect();
    let shares = shares(&blocks, room);
    for ((table, blocks), share) in shown.iter().zip(&blocks).zip(shares) {
        table_lines(page, table);
        for line in blocks[..share].iter().flatten() {
            page.line(4, line);
        }
        let described = table.rows[..share].iter().map(rows_in);
        let shown = described.fold(0, u64::saturating_add);
        page.left_out(4, rows(table).saturating_sub(shown), "row");
    }
    let rest = &state.tables[shown.len()..];
    if !rest.is_empty() {
        let names: Vec<String> = rest
            .iter()
            .take(8)
            .map(|table| format!("{} ({})", cut(&table.table, 40), thousands(rows(table))))
            .chain((rest.len() > 8).then(|| "…".to_owned()))
            .collect();
        let text = format!(
            "… and {} (rows): {}",
            count(rest.len() as u64, "more table"),
            names.join(", ")
        );
        page.paragraph(2, 2, &text, 2);
    }
    for (table, reason) in state.incomparable.iter().take(room.incomparable) {
        page.line(2, &format!("{}  not comparable: {reason}", cut(table, 60)));
    }
    page.left_out(
        2,
        state.incomparable.len().saturating_sub(room.incomparable) as u64,
        "incomparable table",
    );
}

/// Rows that differ in more than noise.
fn rows(table: &TableChange) -> u64 {
    (table.added + table.removed + table.changed).saturating_sub(table.noise)
}

/// For how many rows of the count a described one stands.
fn rows_in(row: &RowChange) -> u64 {
    match row.kind {
        RowChangeKind::Count { before, after, .. } => before.abs_diff(after),
        _ => 1,
    }
}

/// How many blocks of each list are shown, of what there is room for: each list gets its first
/// before any gets its second.
fn shares(lists: &[Vec<Vec<String>>], room: &Room) -> Vec<usize> {
    let mut shares = vec![0; lists.len()];
    let mut left = room.row_lines;
    for round in 0..room.rows_per_table {
        for (list, share) in lists.iter().zip(&mut shares) {
            if let Some(block) = list.get(round)
                && *share == round
                && block.len() <= left
            {
                left -= block.len();
                *share += 1;
            }
        }
    }
    shares
}

fn table_lines(page: &mut Page, table: &TableChange) {
    let mut counts: Vec<String> = [
        (table.added, '+', "added"),
        (table.removed, '−', "removed"),
        (table.changed, '~', "changed"),
    ]
    .into_iter()
    .filter(|(n, ..)| *n > 0)
    .map(|(n, sign, what)| format!("{sign}{} {what}", thousands(n)))
    .collect();
    if table.key.is_empty() {
        counts.push("no primary key".to_owned());
    }
    page.line(
        2,
        &format!("{}  {}", cut(&table.table, 60), counts.join(", ")),
    );
    for column in &table.columns_changed {
        page.line(
            4,
            &format!(
                "column {}; it was not compared",
                words::value_change(column, 40)
            ),
        );
    }
    if table.noise > 0 {
        let columns = match table.noise_columns.is_empty() {
            true => String::new(),
            false => format!(" ({})", table.noise_columns.join("; ")),
        };
        page.line(
            4,
            &format!(
                "{} of these {} only in clocks, sequence values or randomness{columns}",
                thousands(table.noise),
                if table.noise == 1 {
                    "differs"
                } else {
                    "differ"
                }
            ),
        );
    }
    if table.not_paired > 0 {
        page.line(
            4,
            &format!(
                "{} more could be the same under another number; that was not looked into",
                thousands(table.not_paired)
            ),
        );
    }
}

fn row_lines(table: &TableChange, key: &[usize], row: &RowChange) -> Vec<String> {
    let columns = &table.columns;
    let written = |by: &Option<Cause>, label: &str| {
        by.as_ref()
            .and_then(words::cause)
            .map(|cause| format!("    {label} {cause}"))
    };
    let (head, causes) = match &row.kind {
        RowChangeKind::Added { row: values } => (
            format!("+ {}", words::row(columns, key, values, 40)),
            // What removed it originally is worth a line; that nobody wrote it is not.
            [
                written(&row.before_by, "originally deleted"),
                written(&row.after_by, "written"),
            ],
        ),
        RowChangeKind::Removed { row: values } => (
            format!("− {}", words::row(columns, key, values, 40)),
            [
                written(&row.before_by, "originally written"),
                written(&row.after_by, "deleted"),
            ],
        ),
        RowChangeKind::Changed { before, after } => (
            format!("~ {}", changed_columns(columns, key, before, after)),
            [
                written(&row.before_by, "originally written"),
                written(&row.after_by, "now written"),
            ],
        ),
        RowChangeKind::Count {
            row: values,
            before,
            after,
        } => (
            format!(
                "{} {}× instead of {}×: {}",
                if after > before { '+' } else { '−' },
                thousands(*after),
                thousands(*before),
                words::row(columns, key, values, 40)
            ),
            [
                written(&row.before_by, "originally written"),
                written(&row.after_by, "now written"),
            ],
        ),
    };
    [Some(head)].into_iter().chain(causes).flatten().collect()
}

/// `id=3: status draft → final, author NULL → 5`
fn changed_columns(
    columns: &[String],
    key: &[usize],
    before: &[Option<String>],
    after: &[Option<String>],
) -> String {
    let identity: Vec<String> = key
        .iter()
        .filter_map(|&i| {
            Some(format!(
                "{}={}",
                cut(columns.get(i)?, 40),
                words::value(after.get(i)?.as_deref(), 40)
            ))
        })
        .collect();
    let changes: Vec<String> = before
        .iter()
        .zip(after)
        .enumerate()
        .filter(|(_, (before, after))| before != after)
        .map(|(i, (before, after))| {
            let name = columns.get(i).map_or("?", String::as_str);
            let (before, after) = match (before, after) {
                (Some(before), Some(after)) => {
                    let (before, after) = words::excerpts(before, after, 40);
                    (
                        words::value(Some(&before), 40),
                        words::value(Some(&after), 40),
                    )
                }
                (before, after) => (
                    words::value(before.as_deref(), 40),
                    words::value(after.as_deref(), 40),
                ),
            };
            format!("{} {before} → {after}", cut(name, 40))
        })
        .collect();
    format!("{}: {}", identity.join(", "), changes.join(", "))
}
