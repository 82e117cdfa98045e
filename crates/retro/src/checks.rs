//! The user's own queries, asked before and after.
//!
//! A query runs in a read-only transaction and through a cursor, so that it can neither write nor
//! bring more rows than are kept, whatever it says; and it must be one statement, so that it cannot
//! leave the transaction either.

use std::time::Duration;

use hindcast_pg::tokio::Client;
use hindcast_pg::{Error, Row};

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
    // Values look the same before and after, whatever the settings of the two databases are. The
    // search path stays the user's.
    let begin = format!(
        "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET LOCAL statement_timeout = {}; \
         SET LOCAL datestyle = 'ISO, YMD'; SET LOCAL timezone = 'UTC'; SET LOCAL intervalstyle = 'postgres'; \
         SET LOCAL extra_float_digits = 1; SET LOCAL bytea_output = 'hex'",
        limits.timeout.as_millis().max(1)
    );
    client.batch_execute(&begin).await?;
    // A semicolon at the end is usual and harmless; a line break ends a comment at the end.
    let sql = sql.trim().trim_end_matches(';');
    let declare = format!("DECLARE hindcast_check NO SCROLL CURSOR FOR {sql}\n");
    client.execute(&declare, &[]).await?;
    let fetch = format!("FETCH {} FROM hindcast_check", limits.rows);
    let fetched = client.query(&fetch, &[]).await?;
    let values = |row: &Row| {
        let texts = (0..fetched.columns().len()).map(|column| row.get(column));
        texts.collect::<RowText>()
    };
    let rows: Vec<RowText> = fetched.iter().map(values).collect();
    let mut count = rows.len() as u64;
    if rows.len() == limits.rows {
        let rest = "MOVE FORWARD ALL FROM hindcast_check";
        count += client.execute(rest, &[]).await?;
    }
    Ok(Answer::Rows {
        columns: fetched.columns().to_vec(),
        rows,
        count,
    })
}

/// What the database said, without what surrounds it.
fn described(error: &Error) -> String {
    match error.server() {
        Some(error) => error.message.clone(),
        None => error.to_string(),
    }
}
