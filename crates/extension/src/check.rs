//! Whether the extension records, and what is missing if not.

use hindcast_pg::tokio::Client;
use hindcast_pg::{ConnectError, ConnectOptions, DatabaseUrl, Error};

use crate::source::VERSION;

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub subject: &'static str,
    pub found: String,
    /// What to do, if it is not as it should be.
    pub next: Option<String>,
}

/// Why nothing could be found out.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    #[error("cannot connect")]
    Connect(#[source] ConnectError),
    #[error("cannot ask the server")]
    Ask(#[source] Error),
}

impl CheckError {
    pub fn hint(&self) -> String {
        match self {
            Self::Connect(error) => error.hint(),
            Self::Ask(_) => "the server's log may say more".to_owned(),
        }
    }
}

/// What the server says without the extension's help.
const LOOK: &str = "
SELECT current_setting('server_version_num')::int / 10000 AS major,
       current_setting('server_version') AS version,
       current_user::text AS role,
       current_database()::text AS database,
       quote_ident(current_user) AS quoted_role,
       current_setting('hindcast.ring_size', true) AS ring_size,
       current_setting('hindcast.next_snapshot', true) AS next_snapshot,
       current_setting('hindcast.enabled', true) AS enabled,
       current_setting('hindcast.databases', true) AS databases,
       (SELECT default_version FROM pg_available_extensions WHERE name = 'hindcast') AS installed,
       (SELECT extversion FROM pg_extension WHERE extname = 'hindcast') AS created";

/// Asked only where the extension is created. By number, for a name can only be looked up in a
/// schema that the role may use.
const RIGHTS: &str = "
SELECT has_schema_privilege(n.oid, 'USAGE') AND bool_and(has_function_privilege(p.oid, 'EXECUTE')) AS may
  FROM pg_namespace n JOIN pg_proc p ON p.pronamespace = n.oid
 WHERE n.nspname = 'hindcast' AND p.proname IN ('take', 'status')
 GROUP BY n.oid";

const STATUS: &str = "SELECT version, ring_size, used, records, lost, \
     pg_catalog.array_to_string(readers, ', ') AS readers FROM hindcast.status()";

/// Looks at the extension in this database, as the role that is to read.
pub async fn check(url: &DatabaseUrl) -> Result<Vec<Finding>, CheckError> {
    let client = Client::connect(url, &ConnectOptions::default())
        .await
        .map_err(CheckError::Connect)?;
    let findings = look(&client).await.map_err(CheckError::Ask);
    client.close().await;
    findings
}

fn finding(subject: &'static str, found: impl Into<String>, next: Option<String>) -> Finding {
    Finding {
        subject,
        found: found.into(),
        next,
    }
}

async fn look(client: &Client) -> Result<Vec<Finding>, Error> {
    let row = client.query_one(LOOK, &[]).await?;
    let text = |column: &str| {
        row.get::<Option<String>>(column)
            .filter(|text| !text.is_empty())
    };
    let major: i32 = row.get("major");
    let mut findings = vec![
        finding(
            "server",
            format!("Postgres {}", row.get::<String>("version")),
            (!(13..=18).contains(&major))
                .then(|| "the extension is for Postgres 13 to 18".to_owned()),
        ),
        installed(text("installed")),
        preloaded(
            text("ring_size").is_some(),
            row.get::<Option<String>>("next_snapshot").is_some(),
        ),
    ];
    if text("ring_size").is_some() {
        findings.push(recorded(
            text("enabled").as_deref(),
            text("databases").as_deref(),
            &row.get::<String>("database"),
        ));
    }
    findings.push(created(text("created"), &row.get::<String>("database")));
    // Another version may have other functions.
    if text("created").as_deref() != Some(VERSION) {
        return Ok(findings);
    }
    let may = client.query_one(RIGHTS, &[]).await?.is_true(0);
    findings.push(rights(
        may,
        &row.get::<String>("role"),
        &row.get::<String>("quoted_role"),
    ));
    if may && text("ring_size").is_some() {
        findings.extend(status(client).await?);
    }
    Ok(findings)
}

fn installed(version: Option<String>) -> Finding {
    let next = "hindcast extension install, on the machine of the server".to_owned();
    match version {
        None => finding("installed", "no", Some(next)),
        Some(version) if version != VERSION => finding(
            "installed",
            format!("version {version}; this hindcast brings {VERSION}"),
            Some(next),
        ),
        Some(version) => finding("installed", format!("version {version}"), None),
    }
}

/// `imposes`: it has the newest of its settings, too.
fn preloaded(yes: bool, imposes: bool) -> Finding {
    match (yes, imposes) {
        (true, true) => finding("preloaded", "yes", None),
        (true, false) => finding(
            "preloaded",
            "an older one",
            Some("restart the server, so that it loads what is installed".to_owned()),
        ),
        (false, _) => finding(
            "preloaded",
            "no",
            Some(
                "add hindcast to shared_preload_libraries in postgresql.conf, and restart the server"
                    .to_owned(),
            ),
        ),
    }
}

fn recorded(enabled: Option<&str>, databases: Option<&str>, own: &str) -> Finding {
    if enabled == Some("off") {
        let next = "ALTER SYSTEM SET hindcast.enabled = on; SELECT pg_reload_conf()";
        return finding("records", "no", Some(next.to_owned()));
    }
    let Some(databases) = databases else {
        return finding("records", "all databases", None);
    };
    let is_own = |name: &str| {
        let name = name.trim();
        name == format!("\"{own}\"") || name.to_lowercase() == own
    };
    let next = (!databases.split(',').any(is_own))
        .then(|| format!("add {own} to hindcast.databases, and SELECT pg_reload_conf()"));
    finding("records", databases, next)
}

fn created(version: Option<String>, database: &str) -> Finding {
    match version {
        None => finding(
            "created",
            "no",
            Some(format!(
                "CREATE EXTENSION hindcast, in the database {database}"
            )),
        ),
        Some(version) if version != VERSION => finding(
            "created",
            format!("version {version}; this hindcast reads {VERSION}"),
            Some("ALTER EXTENSION hindcast UPDATE".to_owned()),
        ),
        Some(version) => finding("created", format!("version {version}"), None),
    }
}

fn rights(may: bool, role: &str, quoted: &str) -> Finding {
    match may {
        true => finding("rights", format!("{role} may read"), None),
        false => finding(
            "rights",
            format!("{role} may not read"),
            Some(format!(
                "GRANT USAGE ON SCHEMA hindcast TO {quoted}; GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA hindcast TO {quoted}"
            )),
        ),
    }
}

async fn status(client: &Client) -> Result<Vec<Finding>, Error> {
    let row = client.query_one(STATUS, &[]).await?;
    let loaded: String = row.get("version");
    let (size, used): (i64, i64) = (row.get("ring_size"), row.get("used"));
    let (records, lost): (i64, i64) = (row.get("records"), row.get("lost"));
    let readers: Option<String> = row.get("readers");
    let readers = readers.filter(|list| !list.is_empty());
    Ok(vec![
        finding(
            "loaded",
            format!("version {loaded}"),
            (loaded != VERSION).then(|| "restart the server".to_owned()),
        ),
        finding(
            "ring",
            format!("{used} of {size} bytes used, {records} records written"),
            None,
        ),
        finding(
            "readers",
            match &readers {
                Some(processes) => format!("process {processes}"),
                None => "none".to_owned(),
            },
            None,
        ),
        // Before somebody reads, a full ring is as it should be.
        finding(
            "lost",
            format!("{lost} records"),
            (lost > 0 && readers.is_some()).then(|| {
                "if it grows while a recorder reads: raise hindcast.ring_size, and restart the server"
                    .to_owned()
            }),
        ),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn databases_are_compared_as_postgres_does() {
        let next = |databases| recorded(Some("on"), Some(databases), "shop").next;
        assert_eq!(next("shop"), None);
        assert_eq!(next("other, Shop"), None);
        assert_eq!(next("\"shop\""), None);
        assert!(next("other").is_some());
        assert!(next("\"Shop\"").is_some());
        assert!(recorded(Some("off"), None, "shop").next.is_some());
        assert_eq!(recorded(Some("on"), None, "shop").next, None);
    }
}
