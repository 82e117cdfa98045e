//! A recording as views of DuckDB over its Parquet files, where they lie.
//!
//! ```text
//!   the trace's Parquet files ──▶ raw.requests, …   as they are, of whole segments
//!   statements' texts, parsed ──▶ statements        a table: SQL cannot parse SQL
//!                                      └──▶ requests, transactions, snapshots, wrote, saw, …
//! ```
//!
//! The views look for files when they are asked, so what is recorded or pruned later is in them.
//! Only the statements of kinds of transactions that were not there yet are missing then.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use hindcast_select::Statement;
use hindcast_trace::Trace;

use super::ExportError;

/// The columns of the tables, as DuckDB sees them. Where no file has a column, it is empty.
const COLUMNS: &str = include_str!("columns.txt");
const VIEWS: &str = include_str!("views.sql");

/// Writes the script that makes the views. `folder` is where the trace is.
pub fn sql(trace: &Trace, folder: &Path, out: &mut dyn Write) -> Result<(), ExportError> {
    let folder = std::path::absolute(folder)?;
    writeln!(
        out,
        "-- Views over the recording in {}: read by DuckDB 1.1 and newer.\n",
        folder.display()
    )?;
    writeln!(out, "CREATE SCHEMA IF NOT EXISTS raw;\n")?;
    write_segments(&folder, out)?;
    for (table, columns) in raw_tables() {
        write_raw(&folder, table, columns, out)?;
    }
    write_statements(trace, out)?;
    out.write_all(VIEWS.as_bytes())?;
    Ok(())
}

/// Which files are part of the trace, by the names of manifests and markers. What a marker carried
/// over has names with a `p`.
fn write_segments(folder: &Path, out: &mut dyn Write) -> io::Result<()> {
    let names = |of: &str| quoted(&folder.join(of).join("*.json").display().to_string());
    writeln!(
        out,
        "CREATE OR REPLACE VIEW raw.pruned AS\n\
         SELECT split_part(part, '-', 1) AS recorder, max(split_part(part, '-', 2)) AS through\n  \
           FROM (SELECT parse_filename(file, true) AS part FROM glob({})) GROUP BY recorder;\n\n\
         CREATE OR REPLACE VIEW raw.segments AS\n\
         SELECT part FROM (SELECT parse_filename(file, true) AS part FROM glob({}))\n \
          WHERE NOT EXISTS (FROM raw.pruned WHERE recorder = split_part(part, '-', 1) AND through >= split_part(part, '-', 2));\n",
        names("pruned"),
        names("segments"),
    )
}

fn write_raw(folder: &Path, table: &str, columns: &str, out: &mut dyn Write) -> io::Result<()> {
    let files = folder.join(table);
    writeln!(
        out,
        "CREATE OR REPLACE VIEW raw.{table} AS\n\
         SELECT unnest(columns) FROM (SELECT CAST(NULL AS STRUCT({columns})) AS columns) WHERE false"
    )?;
    if has_parquet(&files)? {
        // What was carried over may be there twice for a moment, and tables without values of a
        // request are small.
        let distinct = match table {
            "requests" | "transactions" => "",
            _ => "DISTINCT ",
        };
        writeln!(
            out,
            "UNION ALL BY NAME\nSELECT {distinct}* EXCLUDE (file, part)\n  \
               FROM (SELECT *, parse_filename(file, true) AS part FROM read_parquet({}, union_by_name = true, filename = 'file'))\n \
              WHERE part IN (SELECT part FROM raw.segments)\n    \
                 OR EXISTS (FROM raw.pruned WHERE starts_with(part, recorder || '-p' || through || '-'))",
            quoted(&files.join("*.parquet").display().to_string())
        )?;
    }
    writeln!(out, ";\n")
}

fn has_parquet(folder: &Path) -> io::Result<bool> {
    let entries = match std::fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        entries => entries?,
    };
    let paths: Vec<PathBuf> = entries
        .map(|entry| Ok(entry?.path()))
        .collect::<io::Result<_>>()?;
    Ok(paths
        .iter()
        .any(|path| path.extension().is_some_and(|it| it == "parquet")))
}

fn write_statements(trace: &Trace, out: &mut dyn Write) -> io::Result<()> {
    writeln!(
        out,
        "CREATE OR REPLACE TABLE statements (shape UINTEGER, statement UINTEGER, text VARCHAR, reads VARCHAR[], writes VARCHAR[]);"
    )?;
    let mut known: BTreeMap<&str, String> = BTreeMap::new();
    // Each recorder has its own copy of a shape.
    let shapes: BTreeMap<u32, _> = trace
        .shapes()
        .iter()
        .map(|shape| (shape.id.0, &shape.statements))
        .collect();
    for (id, statements) in shapes {
        for (number, text) in (1..).zip(statements) {
            let row = known.entry(text).or_insert_with(|| row_of(text));
            writeln!(
                out,
                "INSERT INTO statements VALUES ({id}, {number}, {row});"
            )?;
        }
    }
    writeln!(out)
}

/// The text and the tables of a statement, as values.
fn row_of(text: &str) -> String {
    let touched = Statement::of(text);
    let list = |names: Vec<String>| {
        let names: Vec<_> = names.iter().map(|name| quoted(name)).collect();
        format!("[{}]", names.join(", "))
    };
    let reads = touched.reads.iter().map(ToString::to_string).collect();
    let writes = touched.writes.keys().map(ToString::to_string).collect();
    format!("{}, {}, {}", quoted(text), list(reads), list(writes))
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// Names and columns from the file beside this one: a line with a name, then one for each column.
fn raw_tables() -> impl Iterator<Item = (&'static str, &'static str)> {
    let blocks = COLUMNS.split("\n\n").map(str::trim);
    blocks
        .filter(|block| !block.starts_with('#'))
        .filter_map(|block| block.split_once('\n'))
        .map(|(name, columns)| (name.trim_end_matches(':'), columns))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_table_of_the_format_is_there() {
        let names: Vec<_> = raw_tables().map(|(name, _)| name).collect();
        assert_eq!(
            names,
            [
                "requests",
                "transactions",
                "shapes",
                "gaps",
                "bases",
                "recorders",
                "final_states"
            ]
        );
    }

    #[test]
    fn a_text_with_quotes_stays_one_value() {
        assert_eq!(
            row_of("INSERT INTO \"it's\" SELECT 'a' FROM b"),
            "'INSERT INTO \"it''s\" SELECT ''a'' FROM b', ['b'], ['it''s']"
        );
    }
}
