//! The user's own queries, asked before and after.
//!
//! A query runs in a read-only transaction and through a cursor, so that it can neither write nor bring more rows than are kept, whatever it
//! says; and it must be one statement, so that it cannot leave the transaction either.

use std::time::Duration;

use tokio_postgres::{Client, Error, SimpleQueryMessage};

use crate::report::{Answer, Check, RowText};

/// How much of an answer is kept, and how long it may take.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Rows that are kept; all are counted.
    pub rows: usize,
    pub timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            rows: 100,
            timeout: Duration::from_secs(60),
        }
    }
}

/// Asks both databases; without an original final state there is only the one answer.
pub async fn check(before: Option<&Client>, after: &Client, sql: &str, limits: &Limits) -> Check {
    Check {
        sql: sql.to_owned(),
        before: match before {
            Some(before) => ask(before, sql, limits).await,
            None => Answer::NotAsked,
        },
        after: ask(after, sql, limits).await,
    }
}

/// Runs one query read-only on an idle session, which is left as it was.
pub async fn ask(client: &Client, sql: &str, limits: &Limits) -> Answer {
    let answer = answer(client, sql, limits).await;
    // A session that cannot even roll back is broken, and the first error says so better.
    let _ = client.batch_execute("ROLLBACK").await;
    answer.unwrap_or_else(|error| Answer::Failed {
        error: described(&error),
    })
}

async fn answer(client: &Client, sql: &str, limits: &Limits) -> Result<Answer, Error> {
    // Values look the same before and after, whatever the settings of the two databases are. The search path stays the user's.
    let begin = format!(
        "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET LOCAL statement_timeout = {}; \
         SET LOCAL datestyle = 'ISO, YMD'; SET LOCAL timezone = 'UTC'; SET LOCAL intervalstyle = 'postgres'; \
         SET LOCAL extra_float_digits = 1; SET LOCAL bytea_output = 'hex'",
        limits.timeout.as_millis().max(1)
    );
    client.batch_execute(&begin).await?;
    // A semicolon at the end is usual and harmless; a line break ends a comment at the end.
    let sql = sql.trim().trim_end_matches(';');
    let columns = client.prepare(sql).await?;
    let columns = columns.columns().iter();
    let columns = columns.map(|column| column.name().to_owned()).collect();
    client
        .execute(
            &format!("DECLARE hindcast_check NO SCROLL CURSOR FOR {sql}\n"),
            &[],
        )
        .await?;
    let messages = client
        .simple_query(&format!("FETCH {} FROM hindcast_check", limits.rows))
        .await?;
    let rows: Vec<RowText> = (messages.iter())
        .filter_map(|message| match message {
            SimpleQueryMessage::Row(row) => Some(
                (0..row.len())
                    .map(|column| row.get(column).map(str::to_owned))
                    .collect(),
            ),
            _ => None,
        })
        .collect();
    let mut count = rows.len() as u64;
    if rows.len() == limits.rows {
        let moved = client
            .simple_query("MOVE FORWARD ALL FROM hindcast_check")
            .await?;
        count += (moved.iter())
            .map(|message| match message {
                SimpleQueryMessage::CommandComplete(rows) => *rows,
                _ => 0,
            })
            .sum::<u64>();
    }
    Ok(Answer::Rows {
        columns,
        rows,
        count,
    })
}

/// What the database said, without what surrounds it.
fn described(error: &Error) -> String {
    match error.as_db_error() {
        Some(error) => error.message().to_owned(),
        None => error.to_string(),
    }
}
