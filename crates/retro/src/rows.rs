//! What the database holds at the end, row by row, and who wrote what differs.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use hindcast_pg::tokio::Client;
use hindcast_state::{
    Aligned, Difference, ForeignKey, FoundRow, Pair, RowText, Show, Side, StateError, parents_first,
};

use crate::drawn::Drawn;
use crate::noise::{Noise, Window};
use crate::pairing::{Offered, Pairing, Renumbered};
use crate::report::{Baseline, Cause, RowChange, RowChangeKind, State, TableChange, ValueChange};

/// Knows who wrote a row. `xmin` and `cmin` are the row's system columns: the low 32 bits of the
/// writing transaction's id, and the number of the command within it.
pub trait Causes: Send + Sync {
    /// Who wrote this row of the original final state.
    fn before(&self, table: &str, xmin: u32, cmin: u32) -> Cause;
    /// Who wrote this row of the retroacted database.
    fn after(&self, table: &str, xmin: u32, cmin: u32) -> Cause;
    /// Who deleted a row in the retroacted database. `key` is `ROW(key columns)::text`, or the
    /// whole row's text where the table has no primary key.
    fn deleted(&self, table: &str, key: &str) -> Option<Cause>;
}

impl dyn Causes + '_ {
    /// Who wrote a row that was found in one of the databases.
    pub(crate) fn of(&self, table: &str, side: Side, row: &FoundRow) -> Option<Cause> {
        let written = row.written?;
        let ask = match side {
            Side::A => Causes::before,
            Side::B => Causes::after,
        };
        Some(ask(self, table, written.xmin, written.cmin))
    }
}

/// How much is described and kept.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Rows that are no noise, per table.
    pub described_per_table: usize,
    /// Longer values are cut and carry their length and a hash.
    pub value_characters: usize,
    /// Added and removed rows per table that are remembered until their counterpart with another
    /// number comes along.
    pub renumbered_candidates: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            described_per_table: 100,
            value_characters: 200,
            renumbered_candidates: 200_000,
        }
    }
}

/// What comparing all tables of two databases finds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Compared {
    pub tables: Vec<TableChange>,
    pub tables_same: u64,
    /// `(table, reason)`
    pub incomparable: Vec<(String, String)>,
}

impl Compared {
    pub fn into_state(self, against: Baseline) -> State {
        State {
            against,
            tables: self.tables,
            tables_same: self.tables_same,
            incomparable: self.incomparable,
        }
    }
}

/// What makes a difference noise.
#[derive(Clone, Copy)]
pub struct Reasons<'a> {
    pub window: &'a Window,
    pub drawn: &'a Drawn,
    /// Ids that the service made otherwise, each with the recorded one.
    pub ids: &'a [(String, String)],
}

/// Compares the tables of two databases, or only those named (as `state::digest_tables` names
/// them). Both sessions must be idle; each database is seen as of one snapshot.
///
/// Memory is bounded by `limits`, whatever the sizes of the tables and the number of differences.
pub async fn compare_states(
    before: &Client,
    after: &Client,
    only: Option<&BTreeSet<String>>,
    causes: &dyn Causes,
    noise: Reasons<'_>,
    limits: &Limits,
) -> Result<Compared, StateError> {
    let pair = Pair::open(before, after).await?;
    let result = compare_pair(&pair, only, causes, noise, limits).await;
    pair.close().await;
    result
}

async fn compare_pair(
    pair: &Pair<'_>,
    only: Option<&BTreeSet<String>>,
    causes: &dyn Causes,
    noise: Reasons<'_>,
    limits: &Limits,
) -> Result<Compared, StateError> {
    let mut compared = Compared::default();
    let mut renumbered = Renumbered::new(pair.foreign_keys().await?, noise.ids);
    for table in ordered_tables(pair, only, &renumbered.foreign_keys).await? {
        let mut aligned = match pair.align(&table).await {
            Ok(aligned) => aligned,
            Err(error) if error.is_about_layout() => {
                compared.incomparable.push((table, error.to_string()));
                continue;
            }
            Err(error) => return Err(error),
        };
        noise.drawn.apply(&mut aligned);
        let mut rows = TableRows::new(&aligned, causes, noise.window, limits, &mut renumbered);
        pair.differences(&aligned, SHOW, &mut |difference| {
            rows.take(difference);
            ControlFlow::Continue(())
        })
        .await?;
        let change = rows.finish();
        if change.added + change.removed + change.changed == 0 && change.columns_changed.is_empty()
        {
            compared.tables_same += 1;
        } else {
            compared.tables.push(change);
        }
    }
    compared.tables.sort_by(|a, b| a.table.cmp(&b.table));
    compared.incomparable.sort();
    Ok(compared)
}

/// Values are needed completely to tell noise; they are cut when they are described.
pub(crate) const SHOW: Show = Show {
    value_characters_max: None,
    provenance: true,
};

/// The tables to compare, each after those that it refers to: so it is known which of their rows
/// were given other numbers.
pub(crate) async fn ordered_tables(
    pair: &Pair<'_>,
    only: Option<&BTreeSet<String>>,
    foreign_keys: &[ForeignKey],
) -> Result<Vec<String>, StateError> {
    let tables: Vec<String> = (pair.tables().await?.into_iter())
        .map(|table| table.name)
        .filter(|table| only.is_none_or(|only| only.contains(table)))
        .collect();
    Ok(parents_first(&tables, foreign_keys).0)
}

/// Sorts the differences of one table into real ones and noise.
struct TableRows<'a> {
    aligned: &'a Aligned,
    causes: &'a dyn Causes,
    limits: &'a Limits,
    change: TableChange,
    noise_columns: BTreeSet<(usize, Noise)>,
    pairing: Pairing<'a>,
    /// With the ordinals of the differences: candidates that found no counterpart come late.
    described: Vec<(u64, RowChange)>,
    seen: u64,
}

impl<'a> TableRows<'a> {
    fn new(
        aligned: &'a Aligned,
        causes: &'a dyn Causes,
        window: &'a Window,
        limits: &'a Limits,
        renumbered: &'a mut Renumbered,
    ) -> Self {
        Self {
            aligned,
            causes,
            limits,
            change: TableChange {
                table: aligned.table.clone(),
                columns: aligned.column_names(),
                key: aligned.key_names(),
                columns_changed: columns_changed(aligned),
                added: 0,
                removed: 0,
                changed: 0,
                noise: 0,
                noise_columns: Vec::new(),
                not_paired: 0,
                rows: Vec::new(),
            },
            noise_columns: BTreeSet::new(),
            pairing: Pairing::new(aligned, window, limits.renumbered_candidates, renumbered),
            described: Vec::new(),
            seen: 0,
        }
    }

    fn take(&mut self, difference: Difference) {
        self.seen += 1;
        let (side, row) = match difference {
            Difference::Changed { a, b } => return self.take_changed(&a, &b),
            Difference::OnlyInA(row) => (Side::A, row),
            Difference::OnlyInB(row) => (Side::B, row),
        };
        match side {
            Side::A => self.change.removed += row.count,
            Side::B => self.change.added += row.count,
        }
        match self.pairing.offer(side, self.seen, row) {
            Offered::Paired { rows, noise } => {
                self.change.noise += rows;
                self.noise_columns.extend(noise);
            }
            Offered::Waits => {}
            Offered::Alone(row) => self.describe_alone(side, self.seen, &row),
            Offered::Full(row) => {
                self.change.not_paired += row.count;
                self.describe_alone(side, self.seen, &row);
            }
        }
    }

    fn take_changed(&mut self, a: &FoundRow, b: &FoundRow) {
        if self.aligned.key.is_empty() {
            // The same row, so there is nothing that could be noise.
            self.change.added += b.count.saturating_sub(a.count);
            self.change.removed += a.count.saturating_sub(b.count);
        } else {
            self.change.changed += 1;
            if let Some(noise) = self.pairing.noise(&a.values, &b.values) {
                self.change.noise += 1;
                self.noise_columns.extend(noise);
                return;
            }
        }
        if !self.has_room(self.seen) {
            return;
        }
        let kind = if self.aligned.key.is_empty() {
            RowChangeKind::Count {
                row: self.shown(&a.values),
                before: a.count,
                after: b.count,
            }
        } else {
            RowChangeKind::Changed {
                before: self.shown(&a.values),
                after: self.shown(&b.values),
            }
        };
        let change = RowChange {
            kind,
            before_by: self.causes.of(&self.aligned.table, Side::A, a),
            after_by: self.causes.of(&self.aligned.table, Side::B, b),
        };
        self.described.push((self.seen, change));
    }

    fn describe_alone(&mut self, side: Side, ordinal: u64, found: &FoundRow) {
        if !self.has_room(ordinal) {
            return;
        }
        let row = self.shown(&found.values);
        let kind = match (side, found.count) {
            (Side::A, 1) => RowChangeKind::Removed { row },
            (Side::B, 1) => RowChangeKind::Added { row },
            (Side::A, before) => RowChangeKind::Count {
                row,
                before,
                after: 0,
            },
            (Side::B, after) => RowChangeKind::Count {
                row,
                before: 0,
                after,
            },
        };
        let (before_by, after_by) = match side {
            Side::A => (
                self.causes.of(&self.aligned.table, Side::A, found),
                self.causes.deleted(&self.aligned.table, &found.key),
            ),
            Side::B => (None, self.causes.of(&self.aligned.table, Side::B, found)),
        };
        let change = RowChange {
            kind,
            before_by,
            after_by,
        };
        self.described.push((ordinal, change));
    }

    /// Whether a row is among the first ones as far as is known; later ones make room for it.
    fn has_room(&mut self, ordinal: u64) -> bool {
        if self.described.len() < self.limits.described_per_table {
            return true;
        }
        let last = self.described.iter().map(|(ordinal, _)| *ordinal).max();
        match last {
            Some(last) if ordinal < last => {
                self.described.retain(|(ordinal, _)| *ordinal != last);
                true
            }
            _ => false,
        }
    }

    fn shown(&self, values: &RowText) -> RowText {
        let max = self.limits.value_characters;
        (values.iter())
            .map(|value| value.as_deref().map(|value| cut(value, max)))
            .collect()
    }

    fn finish(mut self) -> TableChange {
        let mut left = self.pairing.take_left();
        left.sort_by_key(|(_, candidate)| candidate.ordinal);
        for (side, candidate) in left {
            self.describe_alone(side, candidate.ordinal, &candidate.row);
        }
        self.described.sort_by_key(|(ordinal, _)| *ordinal);
        if self.aligned.key.is_empty() {
            // They came in the order of hashes.
            (self.described).sort_by(|(_, a), (_, b)| values(&a.kind).cmp(values(&b.kind)));
        }
        let columns = &self.aligned.columns;
        self.change.noise_columns = (self.noise_columns.iter())
            .map(|(index, noise)| format!("{}: {noise}", columns[*index].name))
            .collect();
        self.change.rows = self.described.into_iter().map(|(_, row)| row).collect();
        self.change
    }
}

fn values(kind: &RowChangeKind) -> &RowText {
    match kind {
        RowChangeKind::Added { row }
        | RowChangeKind::Removed { row }
        | RowChangeKind::Count { row, .. } => row,
        RowChangeKind::Changed { before, .. } => before,
    }
}

fn columns_changed(aligned: &Aligned) -> Vec<ValueChange> {
    let changes = (aligned.left_out.iter()).map(|left| ValueChange {
        name: left.column.clone(),
        before: left.a.clone(),
        after: left.b.clone(),
    });
    let whole_table = (aligned.columns.iter()).filter_map(|column| {
        let declared = Some(column.declared_type.clone());
        let (before, after) = match aligned.only_in? {
            Side::A => (declared, None),
            Side::B => (None, declared),
        };
        Some(ValueChange {
            name: column.name.clone(),
            before,
            after,
        })
    });
    changes.chain(whole_table).collect()
}

pub(crate) fn cut(value: &str, characters_max: usize) -> String {
    match value.char_indices().nth(characters_max) {
        None => value.to_owned(),
        Some((end, _)) => format!(
            "{}… ({} characters, hash {:016x})",
            &value[..end],
            value.chars().count(),
            xxhash_rust::xxh3::xxh3_64(value.as_bytes())
        ),
    }
}
