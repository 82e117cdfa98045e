//! A script that brings today's database to the corrected past (R³ §4.5), to review and to run with
//! psql.
//!
//! ```text
//!   delete        children first
//!   update        what refers to nothing else than before
//!   insert        parents first
//!   update        what refers to something else now
//!   delete        what was referred to until then
//! ```
//!
//! The script is careful, since the database has lived on: each statement changes a row only if it
//! still is as it was when the recording ended, and one that is not is left alone and listed.
//! Nothing is committed unless asked for. Triggers of the tables are off meanwhile: what they did
//! in the corrected past is among the rows already.
//!
//! It does not cover columns that only one of the two databases has, nor values of unique
//! constraints that rows exchange with each other.

mod error;
mod spool;
mod sql;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::Write;
use std::ops::ControlFlow;

use hindcast_gateway::redact::holds_hash;
use hindcast_pg::tokio::Client;
use hindcast_state::{
    Aligned, Column, Difference, ForeignKey, FoundRow, Pair, Side, StateError, parents_first,
};
use hindcast_trace::RequestId;

use crate::noise::{self, Window};
use crate::pairing::{Offered, Pairing, Renumbered};
use crate::report::{Cause, RowText};
use crate::rows::{Causes, SHOW, ordered_tables};
pub use error::CorrectionError;
use spool::Spool;
use sql::{LEFT_ALONE, TableFacts, comment};

/// Knows which requests built on what another one did.
pub trait Dependents: Send + Sync {
    /// Later requests that read what `cause` wrote to `table`, some of them, and how many more
    /// there are.
    fn of(&self, cause: &Cause, table: &str) -> (Vec<RequestId>, u64);
}

/// What the script is to be like.
#[derive(Clone, Debug)]
pub struct Options<'a> {
    /// Lines for the head of the script: what was retroacted, and how.
    pub about: Vec<String>,
    pub only: Option<&'a BTreeSet<String>>,
    /// Leave out rows that differ only in clocks, sequence values or randomness. References to
    /// rows with another number are put back.
    pub without_noise: Option<Window>,
    /// Ids that the service made otherwise, each with the recorded one.
    pub ids: &'a [(String, String)],
}

/// What the script does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    pub deleted: u64,
    pub updated: u64,
    pub inserted: u64,
    pub noise_left_out: u64,
    /// Rows that the script would have given hashes in the places of secrets.
    pub redacted_left_out: u64,
    /// What the script does not correct, and why: `(table, reason)`.
    pub left_out: Vec<(String, String)>,
}

/// Writes the script for all rows that differ. `before` is the original final state, `after` the
/// retroacted one; both sessions must be idle. Memory is bounded; rows are put in order in
/// temporary files.
pub async fn write(
    before: &Client,
    after: &Client,
    causes: &dyn Causes,
    dependents: &dyn Dependents,
    options: &Options<'_>,
    script: &mut (dyn Write + Send),
) -> Result<Summary, CorrectionError> {
    let pair = Pair::open(before, after).await?;
    let result = write_pair(&pair, before, causes, dependents, options, script).await;
    pair.close().await;
    result
}

async fn write_pair(
    pair: &Pair<'_>,
    before: &Client,
    causes: &dyn Causes,
    dependents: &dyn Dependents,
    options: &Options<'_>,
    script: &mut (dyn Write + Send),
) -> Result<Summary, CorrectionError> {
    let foreign_keys = pair.foreign_keys().await?;
    let mut facts = read_facts(before, &foreign_keys).await?;
    let tables = ordered_tables(pair, options.only, &foreign_keys).await?;
    let (_, circular) = parents_first(&tables, &foreign_keys);
    let mut renumbered = Renumbered::new(foreign_keys.clone(), options.ids);
    let mut parts = Parts::new().map_err(CorrectionError::Temporary)?;
    for table in tables {
        let aligned = match pair.align(&table).await {
            Ok(aligned) => aligned,
            Err(error) if error.is_about_layout() => {
                parts.summary.left_out.push((table, error.to_string()));
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        if !parts.can_correct(&aligned) {
            continue;
        }
        let mut writer = TableWriter {
            aligned: &aligned,
            facts: facts.remove(&table).unwrap_or_default(),
            referring: referring_columns(&aligned, &foreign_keys),
            refers_to_itself: (foreign_keys.iter())
                .any(|key| key.table == table && key.references == table),
            causes,
            dependents,
            window: options.without_noise.as_ref(),
            noise: (options.without_noise.as_ref())
                .map(|window| Pairing::new(&aligned, window, CANDIDATES_MAX, &mut renumbered)),
            seen: 0,
            failed: None,
            parts: &mut parts,
        };
        writer.begin();
        pair.differences(
            &aligned,
            SHOW,
            &mut |difference| match writer.take(difference) {
                Ok(()) => ControlFlow::Continue(()),
                Err(error) => {
                    writer.failed = Some(error);
                    ControlFlow::Break(())
                }
            },
        )
        .await?;
        writer.finish().map_err(CorrectionError::Temporary)?;
    }
    parts.assemble(options, &foreign_keys, &circular, script)
}

/// Rows that may wait for a counterpart with another number.
const CANDIDATES_MAX: usize = 200_000;

/// Which columns refer to other tables, by index.
fn referring_columns(aligned: &Aligned, foreign_keys: &[ForeignKey]) -> Vec<bool> {
    let refers = |name: &String| {
        (foreign_keys.iter()).any(|key| key.table == aligned.table && key.columns.contains(name))
    };
    (aligned.columns.iter())
        .map(|column| refers(&column.name))
        .collect()
}

const FACTS: &str = "SELECT pg_catalog.format('%I.%I', n.nspname, c.relname), \
     ARRAY(SELECT pg_catalog.quote_ident(t.tgname) FROM pg_catalog.pg_trigger t \
         WHERE t.tgrelid = c.oid AND NOT t.tgisinternal AND t.tgenabled IN ('O', 'A') ORDER BY t.tgname), \
     ARRAY(SELECT t.tgenabled::text FROM pg_catalog.pg_trigger t \
         WHERE t.tgrelid = c.oid AND NOT t.tgisinternal AND t.tgenabled IN ('O', 'A') ORDER BY t.tgname), \
     EXISTS (SELECT FROM pg_catalog.pg_index i WHERE i.indrelid = c.oid AND NOT i.indimmediate) \
     FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE c.relkind = 'r'";

/// What the catalog of the original database says about its tables, within the transaction of the
/// pair.
async fn read_facts(
    client: &Client,
    foreign_keys: &[ForeignKey],
) -> Result<HashMap<String, TableFacts>, StateError> {
    let rows = client.query(FACTS, &[]).await.map_err(StateError::List)?;
    let mut facts = HashMap::with_capacity(rows.len());
    for row in &rows {
        let table: String = row.get(0);
        let (names, enabled): (Vec<String>, Vec<String>) = (row.get(1), row.get(2));
        let modes = enabled.iter().filter_map(|mode| mode.chars().next());
        let alone = (foreign_keys.iter())
            .filter(|key| key.acts && key.references == table && key.table != table)
            .map(not_referred)
            .collect();
        facts.insert(
            table,
            TableFacts {
                triggers: names.into_iter().zip(modes).collect(),
                deferrable_unique: row.get(3),
                alone,
            },
        );
    }
    Ok(facts)
}

/// That no row refers to the row `t`: otherwise deleting that would change or delete others,
/// perhaps such that are to be left alone.
fn not_referred(key: &ForeignKey) -> String {
    let quoted = |name: &String| format!("\"{}\"", name.replace('"', "\"\""));
    let same: Vec<_> = (key.columns.iter().zip(&key.referenced_columns))
        .map(|(column, referenced)| format!("r.{} = t.{}", quoted(column), quoted(referenced)))
        .collect();
    format!(
        "NOT EXISTS (SELECT FROM ONLY {} AS r WHERE {})",
        key.table,
        same.join(" AND ")
    )
}

/// Writes the statements for one table.
struct TableWriter<'a> {
    aligned: &'a Aligned,
    facts: TableFacts,
    referring: Vec<bool>,
    refers_to_itself: bool,
    causes: &'a dyn Causes,
    dependents: &'a dyn Dependents,
    window: Option<&'a Window>,
    noise: Option<Pairing<'a>>,
    seen: u64,
    failed: Option<std::io::Error>,
    parts: &'a mut Parts,
}

impl TableWriter<'_> {
    fn begin(&mut self) {
        let parts = &mut *self.parts;
        // A row mostly refers to one that was there before it, so the last one goes first.
        parts
            .deletes
            .begin(&self.aligned.table, self.refers_to_itself);
    }

    fn take(&mut self, difference: Difference) -> std::io::Result<()> {
        self.seen += 1;
        let (side, row) = match difference {
            Difference::Changed { a, b } if self.aligned.key.is_empty() => {
                return self.recount(a, b);
            }
            Difference::Changed { a, b } => return self.update(&a, b),
            Difference::OnlyInA(row) => (Side::A, row),
            Difference::OnlyInB(row) => (Side::B, row),
        };
        let row = match &mut self.noise {
            None => row,
            Some(noise) => match noise.offer(side, self.seen, row) {
                Offered::Paired { rows, .. } => {
                    self.parts.summary.noise_left_out += rows;
                    return Ok(());
                }
                // It comes with those that are left in the end.
                Offered::Waits => return Ok(()),
                Offered::Alone(row) | Offered::Full(row) => row,
            },
        };
        self.alone(side, row)
    }

    fn alone(&mut self, side: Side, row: FoundRow) -> std::io::Result<()> {
        match side {
            Side::A => {
                let by = (
                    self.causes.of(&self.aligned.table, Side::A, &row),
                    self.causes.deleted(&self.aligned.table, &row.key),
                );
                self.delete(&row, by)
            }
            Side::B => {
                let by = (None, self.causes.of(&self.aligned.table, Side::B, &row));
                self.insert(row, by)
            }
        }
    }

    /// Without a primary key: the same row, but not the same number of times.
    fn recount(&mut self, a: FoundRow, b: FoundRow) -> std::io::Result<()> {
        let by = (
            self.causes.of(&self.aligned.table, Side::A, &a),
            self.causes.of(&self.aligned.table, Side::B, &b),
        );
        if a.count > b.count {
            let count = a.count - b.count;
            self.delete(&FoundRow { count, ..a }, by)
        } else {
            let count = b.count - a.count;
            self.insert(FoundRow { count, ..b }, by)
        }
    }

    fn delete(
        &mut self,
        row: &FoundRow,
        by: (Option<Cause>, Option<Cause>),
    ) -> std::io::Result<()> {
        self.parts.summary.deleted += row.count;
        let statement = self.explained(by)
            + &sql::delete(self.aligned, &self.facts, row, &self.unsure(&row.values));
        self.parts.deletes.write(&statement)?;
        self.touch();
        Ok(())
    }

    fn insert(&mut self, row: FoundRow, by: (Option<Cause>, Option<Cause>)) -> std::io::Result<()> {
        if is_redacted(&row.values) {
            self.parts.summary.redacted_left_out += row.count;
            return Ok(());
        }
        self.parts.summary.inserted += row.count;
        let values = self.translated(row.values);
        for (column, value) in self.aligned.columns.iter().zip(&values) {
            if let (Some(sequence), Some(Ok(value))) = (
                sql::sequence(column),
                value.as_deref().map(str::parse::<i64>),
            ) {
                let highest = self.parts.sequences.entry(sequence).or_insert(value);
                *highest = value.max(*highest);
            }
        }
        let insert = sql::insert(self.aligned, &self.facts, &row.key, &values, row.count);
        let statement = self.explained(by) + &insert;
        self.parts.inserts.write(&statement)?;
        self.touch();
        Ok(())
    }

    fn update(&mut self, a: &FoundRow, b: FoundRow) -> std::io::Result<()> {
        let noise = self.noise.as_ref();
        if noise.is_some_and(|noise| noise.noise(&a.values, &b.values).is_some()) {
            self.parts.summary.noise_left_out += 1;
            return Ok(());
        }
        if is_redacted(&b.values) {
            self.parts.summary.redacted_left_out += 1;
            return Ok(());
        }
        let by = (
            self.causes.of(&self.aligned.table, Side::A, a),
            self.causes.of(&self.aligned.table, Side::B, &b),
        );
        let after = self.translated(b.values);
        let Some(update) = sql::update(self.aligned, a, &after, &self.unsure(&a.values)) else {
            return Ok(());
        };
        self.parts.summary.updated += 1;
        let refers_elsewhere = (a.values.iter().zip(&after).zip(&self.referring))
            .any(|((before, after), referring)| *referring && before != after);
        let statement = self.explained(by) + &update;
        if refers_elsewhere {
            self.parts.moves.write(&statement)?;
            self.parts.moved.insert(self.aligned.table.clone());
        } else {
            self.parts.updates.write(&statement)?;
        }
        self.touch();
        Ok(())
    }

    /// By column: whether the value came from a clock while the original was replayed, so that the
    /// database to correct holds another one.
    fn unsure(&self, before: &RowText) -> Vec<bool> {
        let of_replay = |(column, value): (&Column, &Option<String>)| {
            (self.window.zip(value.as_deref()))
                .is_some_and(|(window, value)| noise::is_of_replay(column, value, window))
        };
        let columns = self.aligned.columns.iter().zip(before);
        columns.map(of_replay).collect()
    }

    fn translated(&self, after: RowText) -> RowText {
        match &self.noise {
            None => after,
            Some(noise) => noise.translated(after),
        }
    }

    fn touch(&mut self) {
        let table = &self.aligned.table;
        if !self.parts.touched.contains_key(table) {
            let triggers = self.facts.triggers.clone();
            self.parts.touched.insert(table.clone(), triggers);
        }
    }

    /// Comments that say who wrote the row before, who wrote or deleted it now, and who depended on
    /// it.
    fn explained(&self, (before, after): (Option<Cause>, Option<Cause>)) -> String {
        let mut lines = String::from("\n");
        let (mut dependents, mut more) = (BTreeSet::new(), 0);
        for (cause, when) in [(before, "before"), (after, "now")] {
            let Some(cause) = cause else { continue };
            if let Some(who) = who(&cause) {
                lines += &format!("-- {when}: {}\n", comment(&who));
            }
            let (some, others) = self.dependents.of(&cause, &self.aligned.table);
            dependents.extend(some);
            more = others.max(more);
        }
        if !dependents.is_empty() {
            let list: Vec<_> = dependents.iter().map(RequestId::to_string).collect();
            lines += &format!("-- later requests that depended on it: {}", list.join(", "));
            if more > 0 {
                lines += &format!(" and {more} more");
            }
            lines.push('\n');
        }
        lines
    }

    fn finish(mut self) -> std::io::Result<()> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        let mut left = match &mut self.noise {
            None => Vec::new(),
            Some(noise) => noise.take_left(),
        };
        left.sort_by_key(|(_, candidate)| candidate.ordinal);
        for (side, candidate) in left {
            self.alone(side, candidate.row)?;
        }
        Ok(())
    }
}

/// Whether a row has a hash in the place of a secret that the recording does not have: nothing that
/// the database should hold.
fn is_redacted(values: &RowText) -> bool {
    values.iter().flatten().any(|value| holds_hash(value))
}

fn who(cause: &Cause) -> Option<String> {
    match cause {
        Cause::Transaction {
            request,
            of,
            statement,
            ..
        } => {
            let request = match request {
                Some(request) => format!("request {request} ({of})"),
                None => "no request".to_owned(),
            };
            Some(match statement {
                Some(statement) => format!("{request}: {statement}"),
                None => request,
            })
        }
        Cause::Migration => Some("the migration".to_owned()),
        Cause::Before => Some("something before the range".to_owned()),
        Cause::Unknown => None,
    }
}

/// The parts of the script, in temporary files until all is known.
struct Parts {
    summary: Summary,
    deletes: Spool,
    updates: Spool,
    inserts: Spool,
    /// Updates after which a row refers to something else.
    moves: Spool,
    /// Tables with such updates.
    moved: BTreeSet<String>,
    /// Tables that are changed, and their triggers.
    touched: BTreeMap<String, Vec<(String, char)>>,
    /// Sequences, and the highest value that is inserted.
    sequences: BTreeMap<String, i64>,
}

impl Parts {
    fn new() -> std::io::Result<Self> {
        Ok(Self {
            summary: Summary::default(),
            deletes: Spool::new()?,
            updates: Spool::new()?,
            inserts: Spool::new()?,
            moves: Spool::new()?,
            moved: BTreeSet::new(),
            touched: BTreeMap::new(),
            sequences: BTreeMap::new(),
        })
    }

    /// Whether there is a table to correct; and notes what of it is not corrected.
    fn can_correct(&mut self, aligned: &Aligned) -> bool {
        let mut leave_out = |reason: String| {
            self.summary.left_out.push((aligned.table.clone(), reason));
        };
        match aligned.only_in {
            Some(Side::A) => leave_out("the migration removes the table".to_owned()),
            Some(Side::B) => leave_out("the migration adds the table".to_owned()),
            None => {}
        }
        for left in &aligned.left_out {
            let declared = |declared: &Option<String>| match declared {
                Some(declared) => declared.clone(),
                None => "not there".to_owned(),
            };
            leave_out(format!(
                "its column {} is {} before and {} after the migration",
                left.column,
                declared(&left.a),
                declared(&left.b)
            ));
        }
        let nothing = !aligned.columns.iter().any(|column| !column.generated);
        if nothing && aligned.only_in.is_none() {
            leave_out("it has no columns that can be written".to_owned());
        }
        aligned.only_in.is_none() && !nothing
    }

    fn assemble(
        mut self,
        options: &Options<'_>,
        foreign_keys: &[ForeignKey],
        circular: &[String],
        script: &mut (dyn Write + Send),
    ) -> Result<Summary, CorrectionError> {
        let late = self.deleted_late(foreign_keys);
        let head = self.head(options, circular);
        let foot = self.foot();
        let mut put = |text: &str| {
            script
                .write_all(text.as_bytes())
                .map_err(CorrectionError::Write)
        };
        put(&head)?;
        // Tables were visited parents first.
        let tables: Vec<String> = self.deletes.parts().rev().map(str::to_owned).collect();
        let (early, late): (Vec<_>, Vec<_>) =
            tables.into_iter().partition(|table| !late.contains(table));
        for table in &early {
            self.deletes.copy_part(table, script)?;
        }
        self.updates.copy(script)?;
        self.inserts.copy(script)?;
        self.moves.copy(script)?;
        for table in &late {
            self.deletes.copy_part(table, script)?;
        }
        script
            .write_all(foot.as_bytes())
            .and_then(|()| script.flush())
            .map_err(CorrectionError::Write)?;
        Ok(self.summary)
    }

    /// Tables with rows that are referred to until the referring ones were updated: they, and what
    /// they refer to, have to wait with their deletes.
    fn deleted_late(&self, foreign_keys: &[ForeignKey]) -> BTreeSet<String> {
        let mut late = BTreeSet::new();
        let mut referring = self.moved.clone();
        while let Some(table) = referring.pop_first() {
            for key in foreign_keys.iter().filter(|key| key.table == table) {
                if late.insert(key.references.clone()) {
                    referring.insert(key.references.clone());
                }
            }
        }
        late
    }

    fn head(&self, options: &Options<'_>, circular: &[String]) -> String {
        let summary = &self.summary;
        let mut head = String::from("-- Data correction\n");
        for line in &options.about {
            head += &format!("-- {}\n", comment(line));
        }
        head += &format!(
            "--\n-- {} rows are deleted, {} updated, {} inserted.\n",
            summary.deleted, summary.updated, summary.inserted
        );
        if summary.noise_left_out > 0 {
            head += &format!(
                "-- {} rows that differ only in clocks, sequence values or randomness are left as they are.\n",
                summary.noise_left_out
            );
        }
        if summary.redacted_left_out > 0 {
            head += &format!(
                "-- {} rows are left out: the recording does not have their values, which were redacted.\n",
                summary.redacted_left_out
            );
        }
        head += "--\n-- Review it, try it, then run it for good:\n--   psql DATABASE -f THIS_FILE\n--   psql DATABASE -v commit=1 -f THIS_FILE\n\
                 -- Without commit=1 everything is rolled back. Rows that are not as expected any more are left alone and listed.\n";
        for (table, reason) in &summary.left_out {
            head += &format!(
                "-- Not corrected: {}: {}\n",
                comment(table),
                comment(reason)
            );
        }
        let circles = (circular.iter()).filter(|table| self.touched.contains_key(*table));
        for table in circles {
            head += &format!(
                "-- Rows of {} refer to each other, perhaps through other tables: the order of statements may not suit constraints that cannot be deferred.\n",
                comment(table)
            );
        }
        head += "\n\\set ON_ERROR_STOP on\n\\set QUIET on\n\\if :{?commit}\n\\else\n\\set commit 0\n\\endif\n\
                 SET client_encoding = 'UTF8';\nBEGIN;\n\
                 SET LOCAL standard_conforming_strings = on;\nSET LOCAL datestyle = 'ISO, YMD';\nSET LOCAL timezone = 'UTC';\n\
                 SET LOCAL intervalstyle = 'postgres';\nSET LOCAL extra_float_digits = 3;\nSET LOCAL bytea_output = 'hex';\n\
                 SET LOCAL xmloption = 'content';\nSET LOCAL lc_monetary = 'C';\nSET LOCAL row_security = off;\nSET CONSTRAINTS ALL DEFERRED;\n";
        head += "CREATE TEMPORARY TABLE hindcast_left_alone (change text, of_table text, row_key text) ON COMMIT DROP;\n";
        for (table, triggers) in &self.touched {
            for (trigger, _) in triggers {
                head += &format!("ALTER TABLE {table} DISABLE TRIGGER {trigger};\n");
            }
        }
        head
    }

    fn foot(&self) -> String {
        let summary = &self.summary;
        let mut foot = String::from("\nSET CONSTRAINTS ALL IMMEDIATE;\n");
        for (table, triggers) in &self.touched {
            for (trigger, mode) in triggers {
                let enable = match mode {
                    'A' => "ENABLE ALWAYS",
                    _ => "ENABLE",
                };
                foot += &format!("ALTER TABLE {table} {enable} TRIGGER {trigger};\n");
            }
        }
        foot += &format!(
            "SELECT pg_catalog.count(*) AS left_alone, pg_catalog.count(*) > 0 AS some_left_alone FROM {LEFT_ALONE} \\gset hindcast_\n\
             \\if :hindcast_some_left_alone\n\\echo 'Not as expected any more, and left alone:'\n\
             SELECT change, of_table AS \"table\", row_key AS \"row\" FROM {LEFT_ALONE};\n\\endif\n\
             \\echo :hindcast_left_alone 'of {} changes left alone'\n\\if :commit\n",
            summary.deleted + summary.updated + summary.inserted
        );
        for (sequence, value) in &self.sequences {
            foot += &format!(
                "SELECT pg_catalog.count(pg_catalog.setval({}, {value})) AS advanced FROM {sequence} \
                 WHERE last_value < {value} OR last_value = {value} AND NOT is_called \\gset hindcast_\n",
                sql::literal(sequence)
            );
        }
        foot += "COMMIT;\n\\echo committed\n\\else\nROLLBACK;\n\\echo 'rolled back; run it with -v commit=1 to keep the changes'\n\\endif\n";
        foot
    }
}
