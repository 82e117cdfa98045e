//! Who the server is.

use hindcast_pg::Error;
use hindcast_pg::tokio::Client;

/// The oldest server with `pg_current_snapshot`.
const VERSION_MIN: i32 = 130_000;

/// Who the server is.
#[derive(Clone, Debug)]
pub(in crate::record) struct ServerFacts {
    pub version_number: i32,
    pub version: String,
    pub system_identifier: u64,
    pub database: String,
    pub standby: bool,
    pub offers_tls: bool,
}

impl ServerFacts {
    pub async fn ask(client: &Client) -> Result<Self, Error> {
        let row = client
            .query_one(
                "SELECT pg_catalog.current_setting('server_version_num')::int4, \
                        pg_catalog.current_setting('server_version'), \
                        pg_catalog.current_database()::text, \
                        pg_catalog.pg_is_in_recovery(), \
                        pg_catalog.current_setting('ssl')::bool",
                &[],
            )
            .await?;
        let mut facts = Self {
            version_number: row.get(0),
            version: row.get(1),
            system_identifier: 0,
            database: row.get(2),
            standby: row.get(3),
            offers_tls: row.get(4),
        };
        if facts.is_too_old() {
            return Ok(facts);
        }
        let row = client
            .query_one(
                "SELECT system_identifier FROM pg_catalog.pg_control_system()",
                &[],
            )
            .await?;
        facts.system_identifier = row.get::<i64>(0) as u64;
        Ok(facts)
    }

    pub fn is_too_old(&self) -> bool {
        self.version_number < VERSION_MIN
    }
}

pub(in crate::record) async fn database_bytes(client: &Client) -> Result<i64, Error> {
    let row = client
        .query_one(
            "SELECT pg_catalog.pg_database_size(pg_catalog.current_database())",
            &[],
        )
        .await?;
    Ok(row.get(0))
}
