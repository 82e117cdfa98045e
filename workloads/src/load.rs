//! Schema and data: everything by `COPY` in one transaction, indexes afterwards.
//!
//! The same scale and seed give the same rows. The tables are made in the transaction that fills
//! them, so their rows can be written frozen: the measured run then starts without hint bits to set
//! or rows to freeze.

use bytes::{BufMut, BytesMut};
use futures::SinkExt;
use std::pin::Pin;
use tokio::task::JoinHandle;
use tokio_postgres::{Client, CopyInSink, NoTls};

use crate::random::Random;
use crate::workload::NoSuchVariant;
use crate::{Scale, Variant, Workload, moodle, tpcc, wp_comments, wp_options};

const FLUSH_BYTES: usize = 256 << 10;

#[derive(Clone, Debug)]
pub struct LoadOptions {
    pub database_url: String,
    pub scale: Scale,
    pub seed: u64,
    /// `Upsert` adds what Moodle's fix needs of the schema.
    pub variant: Variant,
    /// Drop the workload's tables first if they are there.
    pub replace: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    #[error(transparent)]
    Variant(#[from] NoSuchVariant),
    #[error("table {0} is there already")]
    Exists(&'static str),
    #[error("cannot connect to the database")]
    Connect(#[source] tokio_postgres::Error),
    #[error("the database refused to load the data")]
    Load(#[from] tokio_postgres::Error),
}

/// Creates the workload's tables and fills them.
pub async fn load(workload: Workload, options: &LoadOptions) -> Result<(), LoadError> {
    workload.check_variant(options.variant)?;
    let (client, _connection) = connect(&options.database_url).await?;
    let loader = Loader { client: &client };
    loader
        .run("BEGIN; SET LOCAL synchronous_commit = off; SET LOCAL maintenance_work_mem = '256MB'")
        .await?;
    let mut tables = Vec::new();
    for part in workload.parts() {
        tables.extend_from_slice(loader.load_part(*part, options).await?);
    }
    loader.run("COMMIT").await?;
    // Refused inside a transaction, and one by one because a list of statements is a transaction.
    for table in tables {
        loader.run(&format!("VACUUM ANALYZE {table}")).await?;
    }
    // What was loaded is on disk before anything is measured.
    loader.run("CHECKPOINT").await.or_else(|error| match error {
        LoadError::Load(error)
            if error.code() == Some(&tokio_postgres::error::SqlState::INSUFFICIENT_PRIVILEGE) =>
        {
            Ok(())
        }
        error => Err(error),
    })
}

/// What brings an existing database to the schema that a variant needs, duplicates removed as the
/// original's upgrade did; `None` if it needs no other than the original.
pub fn migration(
    workload: Workload,
    variant: Variant,
) -> Result<Option<&'static str>, NoSuchVariant> {
    workload.check_variant(variant)?;
    Ok(match (workload, variant) {
        (Workload::Moodle, Variant::Upsert) => Some(moodle::UNIQUE_SUBSCRIPTIONS),
        _ => None,
    })
}

/// Runs [`migration`].
pub async fn migrate(
    workload: Workload,
    variant: Variant,
    database_url: &str,
) -> Result<(), LoadError> {
    let migration = migration(workload, variant)?;
    let (client, _connection) = connect(database_url).await?;
    if let Some(sql) = migration {
        // Several statements in one message are one transaction.
        client.batch_execute(sql).await?;
    }
    Ok(())
}

/// The scale that a database was loaded with, as far as it tells. `None` for a workload that does
/// not tell.
pub async fn loaded_scale(
    workload: Workload,
    database_url: &str,
) -> Result<Option<Scale>, LoadError> {
    let (rows, full) = match workload {
        Workload::Moodle => ("mdl_forum", Scale::PAPER.moodle_forums()),
        // Those that were added by a mix are numbered on from these.
        Workload::WpOptions => (
            "wp_options WHERE option_name LIKE 'opt\\_%'",
            Scale::PAPER.wp_options(),
        ),
        Workload::WpComments => ("wp_posts", Scale::PAPER.wp_posts()),
        Workload::Tpcc | Workload::Wordpress => return Ok(None),
    };
    let (client, _connection) = connect(database_url).await?;
    let row = client
        .query_one(&format!("SELECT count(*) FROM {rows}"), &[])
        .await?;
    Ok(Some(Scale::of_rows(row.try_get(0)?, full)))
}

/// A client and the task that carries its traffic; the task ends when the client is dropped.
pub(crate) async fn connect(database_url: &str) -> Result<(Client, JoinHandle<()>), LoadError> {
    let (client, connection) = tokio_postgres::connect(database_url, NoTls)
        .await
        .map_err(LoadError::Connect)?;
    let connection = tokio::spawn(async move {
        // Its error reaches whoever awaits a query.
        let _ = connection.await;
    });
    Ok((client, connection))
}

pub(crate) struct Loader<'a> {
    client: &'a Client,
}

impl Loader<'_> {
    async fn load_part(
        &self,
        part: Workload,
        options: &LoadOptions,
    ) -> Result<&'static [&'static str], LoadError> {
        let (tables, schema) = match part {
            Workload::Moodle => (moodle::TABLES, moodle::SCHEMA),
            Workload::WpOptions => (wp_options::TABLES, wp_options::SCHEMA),
            Workload::WpComments => (wp_comments::TABLES, wp_comments::SCHEMA),
            Workload::Tpcc => (tpcc::schema::TABLES, tpcc::schema::SCHEMA),
            Workload::Wordpress => unreachable!("a combination is made of its parts"),
        };
        for table in tables {
            if options.replace {
                self.run(&format!("DROP TABLE IF EXISTS {table} CASCADE"))
                    .await?;
            } else if self
                .client
                .query_one("SELECT to_regclass($1::text) IS NOT NULL", &[table])
                .await?
                .get(0)
            {
                return Err(LoadError::Exists(table));
            }
        }
        self.run(schema).await?;
        let random = &mut Random::new(options.seed);
        match part {
            Workload::Moodle => {
                moodle::load(self, options.scale, random).await?;
                if options.variant == Variant::Upsert {
                    self.run(moodle::UNIQUE_SUBSCRIPTIONS).await?;
                }
            }
            Workload::WpOptions => wp_options::load(self, options.scale, random).await?,
            Workload::WpComments => wp_comments::load(self, options.scale, random).await?,
            Workload::Tpcc => tpcc::load::load(self, options.scale.tpcc(), random).await?,
            Workload::Wordpress => unreachable!("a combination is made of its parts"),
        }
        Ok(tables)
    }

    pub async fn run(&self, sql: &str) -> Result<(), LoadError> {
        Ok(self.client.batch_execute(sql).await?)
    }

    /// Rows for `table (column, …)`.
    pub async fn copy(&self, target: &str) -> Result<Rows, LoadError> {
        let sink = self
            .client
            .copy_in(&format!("COPY {target} FROM STDIN WITH (FREEZE)"))
            .await?;
        Ok(Rows {
            sink: Box::pin(sink),
            buffer: BytesMut::with_capacity(FLUSH_BYTES + 4096),
            fresh: true,
        })
    }

    /// Lets a serial column go on after `last`.
    pub async fn sequence(&self, table: &str, column: &str, last: u64) -> Result<(), LoadError> {
        let column = column.trim_matches('"');
        self.run(&format!(
            "SELECT setval(pg_get_serial_sequence('{table}', '{column}'), {last})"
        ))
        .await
    }
}

/// Rows on their way into a table, in the text format of `COPY`.
pub(crate) struct Rows {
    sink: Pin<Box<CopyInSink<bytes::Bytes>>>,
    buffer: BytesMut,
    /// At the beginning of a row.
    fresh: bool,
}

impl Rows {
    pub fn text(&mut self, text: &str) -> &mut Self {
        self.separate();
        let mut rest = text.as_bytes();
        while let Some(at) = rest
            .iter()
            .position(|byte| matches!(byte, b'\\' | b'\t' | b'\n' | b'\r'))
        {
            self.buffer.put_slice(&rest[..at]);
            let escape = match rest[at] {
                b'\t' => b't',
                b'\n' => b'n',
                b'\r' => b'r',
                _ => b'\\',
            };
            self.buffer.put_slice(&[b'\\', escape]);
            rest = &rest[at + 1..];
        }
        self.buffer.put_slice(rest);
        self
    }

    pub fn integer(&mut self, number: impl TryInto<i64, Error: std::fmt::Debug>) -> &mut Self {
        let number: i64 = number.try_into().expect("ids fit a bigint");
        self.separate();
        self.display(format_args!("{number}"))
    }

    /// An amount of money given in cents.
    pub fn cents(&mut self, cents: i64) -> &mut Self {
        self.separate();
        let sign = if cents < 0 { "-" } else { "" };
        let cents = cents.unsigned_abs();
        self.display(format_args!("{sign}{}.{:02}", cents / 100, cents % 100))
    }

    /// A rate given in ten-thousandths.
    pub fn rate(&mut self, ten_thousandths: i64) -> &mut Self {
        self.separate();
        self.display(format_args!("0.{ten_thousandths:04}"))
    }

    pub fn null(&mut self) -> &mut Self {
        self.separate();
        self.buffer.put_slice(b"\\N");
        self
    }

    pub async fn end(&mut self) -> Result<(), LoadError> {
        self.buffer.put_u8(b'\n');
        self.fresh = true;
        if self.buffer.len() >= FLUSH_BYTES {
            self.sink.feed(self.buffer.split().freeze()).await?;
            self.buffer.reserve(FLUSH_BYTES + 4096);
        }
        Ok(())
    }

    pub async fn finish(mut self) -> Result<u64, LoadError> {
        self.sink.feed(self.buffer.split().freeze()).await?;
        Ok(self.sink.as_mut().finish().await?)
    }

    fn separate(&mut self) {
        if !self.fresh {
            self.buffer.put_u8(b'\t');
        }
        self.fresh = false;
    }

    fn display(&mut self, text: std::fmt::Arguments<'_>) -> &mut Self {
        use std::fmt::Write;
        self.buffer.write_fmt(text).expect("a buffer grows");
        self
    }
}
