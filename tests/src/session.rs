//! A blocking session of an ordinary Postgres client, which is not ours: what it can read, others
//! can.

use std::fmt;
use std::time::Duration;

use tokio::runtime::Runtime;
use tokio_postgres::{Client, NoTls, SimpleQueryMessage};

/// Columns of a row as text.
pub type Row = Vec<Option<String>>;

/// A session, driven by whoever waits for an answer of it.
pub struct Session {
    runtime: Runtime,
    client: Client,
}

/// Why a statement has no answer.
#[derive(Debug)]
pub struct Failure {
    /// The SQLSTATE, if it was the server that refused.
    pub code: Option<String>,
    pub message: String,
}

impl Failure {
    /// The server is gone or going, and another session may do better.
    pub fn is_connection(&self) -> bool {
        match self.code.as_deref() {
            None => true,
            Some(code) => code.starts_with("57P") || code.starts_with("08"),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({:?})", self.message, self.code)
    }
}

impl From<tokio_postgres::Error> for Failure {
    fn from(error: tokio_postgres::Error) -> Self {
        Self {
            code: error.code().map(|code| code.code().to_owned()),
            message: match error.as_db_error() {
                Some(error) => format!(
                    "{}{}",
                    error.message(),
                    error
                        .hint()
                        .map(|hint| format!(" / {hint}"))
                        .unwrap_or_default()
                ),
                None => error.to_string(),
            },
        }
    }
}

impl Session {
    pub fn connect(url: &str) -> Result<Self, Failure> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime of one thread can be made");
        let client = runtime.block_on(async {
            let connect = tokio_postgres::connect(url, NoTls);
            match tokio::time::timeout(Duration::from_secs(30), connect).await {
                Ok(Ok((client, connection))) => {
                    tokio::spawn(connection);
                    Ok(client)
                }
                Ok(Err(error)) => Err(error.into()),
                Err(_) => Err(Failure {
                    code: None,
                    message: "no connection within 30 s".to_owned(),
                }),
            }
        })?;
        Ok(Self { runtime, client })
    }

    /// Runs one or more statements with the simple protocol; the rows are the last statement's.
    pub fn query(&self, sql: &str) -> Result<Vec<Row>, Failure> {
        let messages = self.runtime.block_on(self.client.simple_query(sql))?;
        let mut rows = Vec::new();
        for message in messages {
            match message {
                SimpleQueryMessage::RowDescription(_) => rows.clear(),
                SimpleQueryMessage::Row(row) => rows.push(
                    (0..row.len())
                        .map(|column| row.get(column).map(str::to_owned))
                        .collect(),
                ),
                _ => {}
            }
        }
        Ok(rows)
    }

    /// The names of the columns and the rows of one statement.
    pub fn table(&self, sql: &str) -> Result<(Vec<String>, Vec<Row>), Failure> {
        let messages = self.runtime.block_on(self.client.simple_query(sql))?;
        let (mut names, mut rows) = (Vec::new(), Vec::new());
        for message in messages {
            match message {
                SimpleQueryMessage::RowDescription(columns) => {
                    names = columns
                        .iter()
                        .map(|column| column.name().to_owned())
                        .collect();
                }
                SimpleQueryMessage::Row(row) => rows.push(
                    (0..row.len())
                        .map(|column| row.get(column).map(str::to_owned))
                        .collect(),
                ),
                _ => {}
            }
        }
        Ok((names, rows))
    }

    /// The only value of the only row.
    pub fn value(&self, sql: &str) -> Result<String, Failure> {
        let rows = self.query(sql)?;
        match rows.first().and_then(|row| row.first()) {
            Some(value) => Ok(value.clone().unwrap_or_default()),
            None => Err(Failure {
                code: Some("02000".to_owned()),
                message: format!("no row: {sql}"),
            }),
        }
    }

    /// Statements whose rows do not matter.
    pub fn run(&self, sql: &str) -> Result<(), Failure> {
        self.runtime
            .block_on(self.client.batch_execute(sql))
            .map_err(Failure::from)
    }

    /// With the extended protocol, as drivers do it: one `bigint` parameter, and the first column
    /// as `bigint`.
    pub fn prepared(&self, sql: &str, parameter: i64) -> Result<Vec<i64>, Failure> {
        self.runtime.block_on(async {
            let rows = self.client.query(sql, &[&parameter]).await?;
            rows.iter()
                .map(|row| row.try_get(0).map_err(Failure::from))
                .collect()
        })
    }
}
