//! What a recorder asks the database about itself.

use std::sync::Arc;

use hindcast_trace::{Snapshot, Xid};
use hindcast_wire::SequenceColumns;
use tokio_postgres::{Client, Error};

use super::sink::Sink;
use crate::http::with_causes;
use crate::pg::Connector;

/// The oldest server with `pg_current_snapshot`.
const VERSION_MIN: i32 = 130_000;

/// Who the server is.
#[derive(Clone, Debug)]
pub(super) struct ServerFacts {
    pub version_number: i32,
    pub version: String,
    pub system_identifier: u64,
    pub database: String,
    pub standby: bool,
    pub snapshot: Snapshot,
}

impl ServerFacts {
    pub async fn ask(client: &Client) -> Result<Self, Error> {
        let row = client
            .query_one(
                "SELECT pg_catalog.current_setting('server_version_num')::int4, \
                        pg_catalog.current_setting('server_version'), \
                        pg_catalog.current_database()::text, \
                        pg_catalog.pg_is_in_recovery()",
                &[],
            )
            .await?;
        let mut facts = Self {
            version_number: row.get(0),
            version: row.get(1),
            system_identifier: 0,
            database: row.get(2),
            standby: row.get(3),
            snapshot: Snapshot {
                xmin: Xid(0),
                xmax: Xid(0),
                in_progress: Vec::new(),
            },
        };
        if facts.is_too_old() {
            return Ok(facts);
        }
        let row = client
            .query_one(
                "SELECT (SELECT system_identifier FROM pg_catalog.pg_control_system()), \
                        pg_catalog.pg_current_snapshot()::text",
                &[],
            )
            .await?;
        facts.system_identifier = row.get::<_, i64>(0) as u64;
        if let Some(snapshot) = parse_snapshot(row.get(1)) {
            facts.snapshot = snapshot;
        }
        Ok(facts)
    }

    pub fn is_too_old(&self) -> bool {
        self.version_number < VERSION_MIN
    }
}

/// `xmin:xmax:a,b,c`
pub(super) fn parse_snapshot(text: &str) -> Option<Snapshot> {
    let mut parts = text.split(':');
    let mut bound = || parts.next()?.parse().ok().map(Xid);
    let (xmin, xmax) = (bound()?, bound()?);
    let in_progress = parts
        .next()?
        .split(',')
        .filter(|xid| !xid.is_empty())
        .map(|xid| xid.parse().ok().map(Xid))
        .collect::<Option<_>>()?;
    Some(Snapshot {
        xmin,
        xmax,
        in_progress,
    })
}

/// Which columns are filled from which sequences, and by what names those go in `nextval('…')`.
async fn sequences(client: &Client) -> Result<SequenceColumns, Error> {
    let mut sequences = SequenceColumns::default();
    let tables = client
        .query(
            "SELECT oid FROM pg_catalog.pg_class WHERE relkind IN ('r', 'p', 'v', 'm', 'f')",
            &[],
        )
        .await?;
    tables
        .iter()
        .for_each(|row| sequences.add_table(row.get(0)));
    let columns = client
        .query(
            // Identity columns own their sequence ('i'); defaults refer to theirs.
            "SELECT d.refobjid, d.refobjsubid::int2, d.objid \
               FROM pg_catalog.pg_depend d JOIN pg_catalog.pg_class s ON s.oid = d.objid AND s.relkind = 'S' \
              WHERE d.classid = 'pg_catalog.pg_class'::regclass AND d.refclassid = 'pg_catalog.pg_class'::regclass \
                AND d.deptype = 'i' AND d.refobjsubid > 0 \
             UNION \
             SELECT a.adrelid, a.adnum, d.refobjid \
               FROM pg_catalog.pg_attrdef a \
               JOIN pg_catalog.pg_depend d ON d.classid = 'pg_catalog.pg_attrdef'::regclass AND d.objid = a.oid \
                AND d.refclassid = 'pg_catalog.pg_class'::regclass \
               JOIN pg_catalog.pg_class s ON s.oid = d.refobjid AND s.relkind = 'S'",
            &[],
        )
        .await?;
    columns
        .iter()
        .for_each(|row| sequences.add_column(row.get(0), row.get(1), row.get(2)));
    let names = client
        .query(
            // What is visible under the role's own search path goes by its name alone; a schema always helps.
            "SELECT c.oid, c.relname::text, pg_catalog.quote_ident(c.relname), pg_catalog.pg_table_is_visible(c.oid), \
                    n.nspname::text, pg_catalog.quote_ident(n.nspname) \
               FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
              WHERE c.relkind = 'S'",
            &[],
        )
        .await?;
    for row in &names {
        let (oid, visible): (u32, bool) = (row.get(0), row.get(3));
        let names: [(&str, &str); 2] = [(row.get(1), row.get(4)), (row.get(2), row.get(5))];
        for (name, schema) in names {
            sequences.add_name(&format!("{schema}.{name}"), oid);
            if visible {
                sequences.add_name(name, oid);
            }
        }
    }
    Ok(sequences)
}

/// Whether functions open subtransactions, as a block that catches exceptions does. Their ids show nowhere on the wire.
async fn functions_catch(client: &Client) -> Result<bool, Error> {
    let row = client
        .query_one(
            "SELECT EXISTS (SELECT FROM pg_catalog.pg_proc p \
               JOIN pg_catalog.pg_language l ON l.oid = p.prolang AND l.lanname NOT IN ('internal', 'c', 'sql') \
               JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace AND n.nspname <> 'pg_catalog' \
              WHERE l.lanname <> 'plpgsql' OR p.prosrc ~* '\\mexception\\s+when\\M')",
            &[],
        )
        .await?;
    Ok(row.get(0))
}

/// Reads the sequences again whenever somebody met a table that is not known, or changed the schema.
pub(super) async fn keep_current(control: Client, connector: Arc<Connector>, sink: Arc<Sink>) {
    let mut control = Some(control);
    loop {
        let ticket = sink.catalog_wanted().await;
        let read = async {
            let client = match control.take().filter(|control| !control.is_closed()) {
                Some(client) => client,
                None => connector
                    .control("hindcast: catalog")
                    .await
                    .map_err(|error| error.to_string())?,
            };
            let read = Catalog::read(&client)
                .await
                .map_err(|error| with_causes(&error));
            control = Some(client);
            read
        };
        match read.await {
            Ok(catalog) => sink.catalog_read(ticket, Some(catalog)),
            Err(error) => {
                tracing::warn!(error, "cannot read the catalog again");
                sink.catalog_read(ticket, None);
            }
        }
    }
}

/// What is kept current.
pub(super) struct Catalog {
    pub sequences: SequenceColumns,
    pub functions_catch: bool,
}

impl Catalog {
    pub async fn read(client: &Client) -> Result<Self, Error> {
        Ok(Self {
            sequences: sequences(client).await?,
            functions_catch: functions_catch(client).await?,
        })
    }
}

pub(super) async fn database_bytes(client: &Client) -> Result<i64, Error> {
    let row = client
        .query_one(
            "SELECT pg_catalog.pg_database_size(pg_catalog.current_database())",
            &[],
        )
        .await?;
    Ok(row.get(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn snapshots_are_read() {
        let snapshot = parse_snapshot("10:20:10,14").unwrap();
        assert_eq!((snapshot.xmin, snapshot.xmax), (Xid(10), Xid(20)));
        assert_eq!(snapshot.in_progress, [Xid(10), Xid(14)]);
        assert_eq!(parse_snapshot("10:10:").unwrap().in_progress, []);
        assert_eq!(parse_snapshot("10:x:"), None);
        assert_eq!(parse_snapshot(""), None);
    }
}
