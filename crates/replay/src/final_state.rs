//! Compares the tables at the end of a replay with those at the end of the recording.

use hindcast_pg::tokio::{Client, Connector};
use hindcast_pg::{ConnectOptions, DatabaseUrl};
use hindcast_state::{RowDifference, TableDifference};
use hindcast_trace::{TableDigest, Trace};

use crate::plan::Plan;
use crate::redacted::Redacted;
use crate::run::ReplayError;
use crate::shared::Shared;
use crate::verdict::{
    Divergence, DivergenceKind, FinalState, NotCompared, Position, differing_tables,
};

/// So many rows of a table are told.
const ROWS_TOLD: usize = 10;
/// In the place of what a rule leaves out.
const REDACTED: &str = "redacted";

/// Databases in which the rows may be that the recording ended with.
#[derive(Clone, Copy, Debug, Default)]
pub struct Originals<'a> {
    /// As the user says.
    pub given: Option<&'a DatabaseUrl>,
    /// If nothing was written to it since.
    pub recorded: Option<&'a DatabaseUrl>,
}

/// Tells the coordinator of each table that differs. `complete`: the replay came to its end, or
/// was to go on to it.
pub async fn compare(
    trace: &Trace,
    plan: &Plan,
    originals: Originals<'_>,
    connector: &Connector,
    complete: bool,
    shared: &Shared,
) -> Result<FinalState, ReplayError> {
    let not = |reason| Ok(FinalState::NotCompared { reason });
    let Some(expected) = &plan.final_state else {
        return not(NotCompared::NotRecorded);
    };
    if !plan.reaches_end {
        return not(NotCompared::RangeEndsBefore);
    }
    if !complete {
        return not(NotCompared::StoppedBefore);
    }
    let named = ConnectOptions::named("hindcast final state");
    let ours = connector.client(&named).await?;
    let actual = Redacted::digest_tables(trace, &ours).await?;
    let mut theirs = None;
    let (mut differs, mut drawn) = (false, Vec::new());
    for (table, expected_table, actual) in differing_tables(&expected.tables, &actual) {
        match only_drawn(trace, shared, &ours, table, expected_table.zip(actual)).await? {
            Drawn::Nothing => {}
            Drawn::Restored => continue,
            Drawn::Some => {
                drawn.push(table.to_owned());
                continue;
            }
        }
        differs = true;
        if theirs.is_none() {
            theirs = Some(recorded_state(trace, originals, &expected.tables).await?);
        }
        let differences = match theirs.as_ref().and_then(Option::as_ref) {
            Some(theirs) => rows_that_differ(trace, theirs, &ours, table).await,
            None => Vec::new(),
        };
        let kind = DivergenceKind::FinalState {
            table: table.to_owned(),
            expected_rows: expected_table.map(|table| table.rows),
            actual_rows: actual.map(|table| table.rows),
            differences,
        };
        let divergence = Divergence::at(Position::default(), kind);
        shared
            .monitor
            .with(|coordinator| coordinator.diverge(divergence));
    }
    let (tables, rows) = (actual.len(), actual.iter().map(|table| table.rows).sum());
    Ok(match () {
        () if differs => FinalState::Differs,
        () if drawn.is_empty() => FinalState::Same { tables, rows },
        () => FinalState::SameButDrawn {
            tables,
            rows,
            drawn,
        },
    })
}

/// Whether a table differs only by what the service drew.
enum Drawn {
    Nothing,
    /// With the recorded values it is as it was.
    Restored,
    Some,
}

async fn only_drawn(
    trace: &Trace,
    shared: &Shared,
    ours: &Client,
    table: &str,
    both: Option<(&TableDigest, &TableDigest)>,
) -> Result<Drawn, ReplayError> {
    let Some((expected, actual)) = both else {
        return Ok(Drawn::Nothing);
    };
    let learned = &shared.learned;
    if expected.rows != actual.rows {
        return Ok(Drawn::Nothing);
    }
    let rows = Redacted::rows(trace, ours, table).await?;
    let restored = rows
        .restored(ours, &|row| learned.restored_text(row))
        .await?;
    Ok(match () {
        () if restored == expected.digest => Drawn::Restored,
        () if rows.any(|row| learned.holds_drawn(row.as_bytes())) => Drawn::Some,
        () => Drawn::Nothing,
    })
}

/// A database in the recorded final state: the one that the user names, or else the recorded one if
/// nothing was written to it since.
async fn recorded_state(
    trace: &Trace,
    originals: Originals<'_>,
    expected: &[TableDigest],
) -> Result<Option<Client>, ReplayError> {
    let named = ConnectOptions::named("hindcast comparison");
    if let Some(url) = originals.given {
        return Ok(Some(Client::connect(url, &named).await?));
    }
    let Some(url) = originals.recorded else {
        return Ok(None);
    };
    // It is a help, and need not be there any more.
    let Ok(client) = Client::connect(url, &named).await else {
        return Ok(None);
    };
    let digests = Redacted::digest_tables(trace, &client).await;
    let same = digests.is_ok_and(|now| differing_tables(expected, &now).next().is_none());
    Ok(same.then_some(client))
}

/// A line for each row, the first few.
async fn rows_that_differ(
    trace: &Trace,
    theirs: &Client,
    ours: &Client,
    table: &str,
) -> Vec<String> {
    match hindcast_state::first_differences(theirs, ours, table, ROWS_TOLD).await {
        Ok(found) => lines(&found, &|column| Redacted::leaves_out(trace, column)),
        Err(error) => vec![error.to_string()],
    }
}

fn lines(found: &TableDifference, leaves_out: &dyn Fn(&str) -> bool) -> Vec<String> {
    let told = Telling { found, leaves_out };
    let mut lines: Vec<String> = found.rows.iter().filter_map(|row| told.line(row)).collect();
    lines.extend(found.more.then(|| "… and more".to_owned()));
    lines
}

struct Telling<'a> {
    found: &'a TableDifference,
    leaves_out: &'a dyn Fn(&str) -> bool,
}

impl Telling<'_> {
    /// `None`: only what a rule leaves out is different.
    fn line(&self, difference: &RowDifference) -> Option<String> {
        Some(match difference {
            RowDifference::OnlyInA(row) => format!("missing: {}", self.row(row)),
            RowDifference::OnlyInB(row) => format!("new: {}", self.row(row)),
            RowDifference::Changed { a, b } => self.changed(a, b)?,
            RowDifference::Count { row, a, b } => {
                format!("was there {a} times, is there {b} times: {}", self.row(row))
            }
        })
    }

    fn row(&self, row: &[Option<String>]) -> String {
        let columns = self.found.columns.iter().zip(row);
        let values =
            columns.map(|(column, value)| format!("{column} = {}", self.value(column, value)));
        values.collect::<Vec<_>>().join(", ")
    }

    /// `id = 5: votes was 3, is 4`.
    fn changed(&self, a: &[Option<String>], b: &[Option<String>]) -> Option<String> {
        let columns = self.found.columns.iter().zip(a.iter().zip(b));
        let is_key = |column: &String| self.found.key.contains(column);
        let key = columns.clone().filter(|(column, _)| is_key(column));
        let key =
            key.map(|(column, (value, _))| format!("{column} = {}", self.value(column, value)));
        let changed = columns.filter(|(column, (a, b))| a != b && !(self.leaves_out)(column));
        let changed = changed.map(|(column, (a, b))| {
            let [a, b] = [a, b].map(|value| self.value(column, value));
            format!("{column} was {a}, is {b}")
        });
        let changed: Vec<String> = changed.collect();
        let key: Vec<String> = key.collect();
        (!changed.is_empty()).then(|| format!("{}: {}", key.join(", "), changed.join("; ")))
    }

    fn value<'v>(&self, column: &str, value: &'v Option<String>) -> &'v str {
        match value {
            None => "NULL",
            Some(_) if (self.leaves_out)(column) => REDACTED,
            Some(value) => value,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_told_without_what_a_rule_leaves_out() {
        let row = |values: [&str; 3]| values.map(|value| Some(value.to_owned())).to_vec();
        let found = TableDifference {
            table: "account".to_owned(),
            columns: ["id", "password", "votes"].map(str::to_owned).to_vec(),
            key: vec!["id".to_owned()],
            rows: vec![
                RowDifference::Changed {
                    a: row(["5", "hunter2", "3"]),
                    b: row(["5", "hunter3", "4"]),
                },
                RowDifference::Changed {
                    a: row(["6", "hunter2", "3"]),
                    b: row(["6", "hunter3", "3"]),
                },
                RowDifference::OnlyInB(row(["7", "hunter2", "0"])),
            ],
            more: true,
        };
        let told = lines(&found, &|column| column == "password");
        let expected = [
            "id = 5: votes was 3, is 4",
            "new: id = 7, password = redacted, votes = 0",
            "… and more",
        ];
        assert_eq!(told, expected);
    }
}
