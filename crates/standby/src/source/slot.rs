//! The publication and the slot on the primary: what is kept for us there.

use hindcast_pg::{
    ConnectError, ConnectOptions, Connection, DatabaseUrl, Error, Lsn, quote_identifier,
    quote_literal,
};

use super::stream::session;
use super::tables::ReplicatedTable;

/// What slot and publication of a standby are called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names {
    pub slot: String,
    pub publication: String,
}

impl Names {
    /// # Errors
    /// If it cannot be part of a slot's name: lower-case letters, digits and underscores can.
    pub fn new(standby: &str) -> Result<Self, SlotError> {
        let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        if standby.is_empty() || standby.len() > 40 || !standby.chars().all(fits) {
            return Err(SlotError::Name(standby.to_owned()));
        }
        let name = format!("hindcast_{standby}");
        Ok(Self {
            slot: name.clone(),
            publication: name,
        })
    }
}

#[derive(Debug, thiserror::Error)]
pub enum SlotError {
    #[error("`{0}` cannot be the name of a standby")]
    Name(String),
    #[error("the primary cannot be reached")]
    Connect(#[source] ConnectError),
    #[error("cannot {doing} on the primary")]
    Refused {
        doing: &'static str,
        #[source]
        source: Error,
    },
    #[error("slot {slot} is in use by another session (process {pid} on the primary)")]
    Active { slot: String, pid: String },
    #[error("slot {slot} is gone from the primary, and with it the WAL since {since}")]
    Gone { slot: String, since: Lsn },
    #[error("slot {slot} is lost: the primary has removed WAL that it needed ({why})")]
    Lost { slot: String, why: String },
    #[error("slot {slot} is of another kind: {what}")]
    Foreign { slot: String, what: String },
    /// The backup is older than what was acknowledged: it was put back to an earlier state.
    #[error(
        "slot {slot} has let go of the log up to {confirmed}, but the backup is only at {progress}"
    )]
    Ahead {
        slot: String,
        confirmed: Lsn,
        progress: Lsn,
    },
}

impl SlotError {
    pub fn hint(&self) -> String {
        match self {
            SlotError::Name(_) => "use up to 40 lower-case letters, digits and underscores".to_owned(),
            SlotError::Connect(error) => error.hint(),
            SlotError::Refused { source, .. } => match source.code() {
                Some("42501") => "let a superuser or the tables' owner with the attribute REPLICATION follow".to_owned(),
                _ => "the primary's log says more".to_owned(),
            },
            SlotError::Active { pid, .. } => format!(
                "another standby runs with this --name: stop it, or choose another name; if it is dead, SELECT pg_terminate_backend({pid}) on the primary"
            ),
            SlotError::Gone { .. } | SlotError::Lost { .. } | SlotError::Ahead { .. } => {
                "the gap cannot be closed: `hindcast standby drop`, make the backup's database anew, and start again".to_owned()
            }
            SlotError::Foreign { .. } => "choose another --name".to_owned(),
        }
    }

    /// Trying again may be enough.
    pub fn is_transient(&self) -> bool {
        match self {
            SlotError::Connect(error) => error.is_transient(),
            SlotError::Refused { source, .. } => source.is_connection(),
            // The primary has not missed our predecessor yet.
            SlotError::Active { .. } => true,
            _ => false,
        }
    }
}

fn refused(doing: &'static str) -> impl Fn(Error) -> SlotError {
    move |source| SlotError::Refused { doing, source }
}

/// A slot that was just made. As long as this lives, `snapshot` is the state that the slot's log continues.
pub struct Created {
    pub consistent_point: Lsn,
    /// For `SET TRANSACTION SNAPSHOT`.
    pub snapshot: String,
    /// The snapshot lives as long as this session does nothing else.
    _keeper: Connection,
}

fn connect(url: &DatabaseUrl) -> Result<Connection, SlotError> {
    Connection::connect(url, &session("hindcast standby")).map_err(SlotError::Connect)
}

/// Makes the publication hold exactly these tables.
///
/// Tables are named one by one: with `FOR ALL TABLES` a table that somebody makes tomorrow without a primary key could not be updated on the primary.
pub fn publish(
    url: &DatabaseUrl,
    names: &Names,
    tables: &[ReplicatedTable],
) -> Result<(), SlotError> {
    let refused = refused("publish the tables");
    let mut connection = connect(url)?;
    let exists = connection
        .query(&format!(
            "SELECT 1 FROM pg_catalog.pg_publication WHERE pubname = {}",
            quote_literal(&names.publication)
        ))
        .map_err(&refused)?;
    let publication = quote_identifier(&names.publication);
    let list = tables
        .iter()
        .map(|table| format!("ONLY {}", table.quoted()))
        .collect::<Vec<_>>()
        .join(", ");
    let sql = match exists.is_empty() {
        true => format!("CREATE PUBLICATION {publication} FOR TABLE {list}"),
        false => format!("ALTER PUBLICATION {publication} SET TABLE {list}"),
    };
    connection.execute(&sql).map_err(refused)?;
    Ok(())
}

/// Tables that are not in the publication.
pub fn unpublished(
    url: &DatabaseUrl,
    names: &Names,
    tables: &[ReplicatedTable],
) -> Result<Vec<String>, SlotError> {
    let published = published(&mut connect(url)?, names)?;
    Ok(tables
        .iter()
        .filter(|table| !published.contains(&table.oid))
        .map(ToString::to_string)
        .collect())
}

fn published(connection: &mut Connection, names: &Names) -> Result<Vec<u32>, SlotError> {
    let sql = format!(
        "SELECT r.prrelid FROM pg_catalog.pg_publication_rel r JOIN pg_catalog.pg_publication p ON p.oid = r.prpubid WHERE p.pubname = {}",
        quote_literal(&names.publication)
    );
    let refused = refused("look at the publication");
    let rows = connection.query(&sql).map_err(&refused)?;
    rows.iter()
        .map(|row| row.parse(0))
        .collect::<Result<_, _>>()
        .map_err(refused)
}

/// Makes the slot. The publication must be there already, or changes in between would be missing.
pub fn create(url: &DatabaseUrl, names: &Names) -> Result<Created, SlotError> {
    let options = ConnectOptions {
        replication: true,
        ..session("hindcast standby")
    };
    let mut keeper = Connection::connect(url, &options).map_err(SlotError::Connect)?;
    let sql = format!(
        "CREATE_REPLICATION_SLOT {} LOGICAL pgoutput (SNAPSHOT 'export')",
        quote_identifier(&names.slot)
    );
    // The form with parentheses is of version 15.
    let sql = match keeper.server_version() {
        150_000.. => sql,
        _ => sql.replace("(SNAPSHOT 'export')", "EXPORT_SNAPSHOT"),
    };
    let rows = keeper
        .query(&sql)
        .map_err(refused("make a replication slot"))?;
    let row = rows
        .first()
        .ok_or_else(|| Error::Protocol("no answer to CREATE_REPLICATION_SLOT".to_owned()))
        .map_err(refused("make a replication slot"))?;
    Ok(Created {
        consistent_point: row.parse(1).map_err(refused("make a replication slot"))?,
        snapshot: row.string(2),
        _keeper: keeper,
    })
}

/// Whether the slot can go on from `progress`, the end of what the backup has.
pub fn check(url: &DatabaseUrl, names: &Names, progress: Lsn) -> Result<(), SlotError> {
    let refused = refused("look at the replication slot");
    let mut connection = connect(url)?;
    let rows = connection
        .query(&format!(
            "SELECT coalesce(plugin, 'physical'), coalesce(database, '') = current_database(), active_pid, wal_status, confirmed_flush_lsn, database \
               FROM pg_catalog.pg_replication_slots WHERE slot_name = {}",
            quote_literal(&names.slot)
        ))
        .map_err(&refused)?;
    let slot = names.slot.clone();
    let Some(row) = rows.first() else {
        let since = progress;
        return Err(SlotError::Gone { slot, since });
    };
    if row.text(0) != Some("pgoutput") {
        let what = format!("its plugin is {}", row.string(0));
        return Err(SlotError::Foreign { slot, what });
    }
    if !row.is_true(1) {
        let what = format!("it belongs to the database {}", row.string(5));
        return Err(SlotError::Foreign { slot, what });
    }
    if row.text(3) == Some("lost") {
        let why = "max_slot_wal_keep_size".to_owned();
        return Err(SlotError::Lost { slot, why });
    }
    if let Some(pid) = row.text(2) {
        let pid = pid.to_owned();
        return Err(SlotError::Active { slot, pid });
    }
    let confirmed: Lsn = row.parse(4).map_err(&refused)?;
    if confirmed > progress {
        return Err(SlotError::Ahead {
            slot,
            confirmed,
            progress,
        });
    }
    Ok(())
}

/// Removes what there is of slot and publication; says what that was.
pub fn remove(url: &DatabaseUrl, names: &Names) -> Result<Vec<String>, SlotError> {
    let mut connection = connect(url)?;
    let mut removed = Vec::new();
    let slot = quote_literal(&names.slot);
    let rows = connection
        .query(&format!(
            "SELECT active_pid FROM pg_catalog.pg_replication_slots WHERE slot_name = {slot}"
        ))
        .map_err(refused("look at the replication slot"))?;
    if let Some(row) = rows.first() {
        if let Some(pid) = row.text(0) {
            return Err(SlotError::Active {
                slot: names.slot.clone(),
                pid: pid.to_owned(),
            });
        }
        connection
            .execute(&format!(
                "SELECT pg_catalog.pg_drop_replication_slot({slot})"
            ))
            .map_err(refused("drop the replication slot"))?;
        removed.push(format!("slot {}", names.slot));
    }
    let rows = connection
        .query(&format!(
            "SELECT 1 FROM pg_catalog.pg_publication WHERE pubname = {}",
            quote_literal(&names.publication)
        ))
        .map_err(refused("look at the publication"))?;
    if !rows.is_empty() {
        connection
            .execute(&format!(
                "DROP PUBLICATION {}",
                quote_identifier(&names.publication)
            ))
            .map_err(refused("drop the publication"))?;
        removed.push(format!("publication {}", names.publication));
    }
    Ok(removed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_what_slots_may_be_called() {
        assert_eq!(Names::new("eu_2").unwrap().slot, "hindcast_eu_2");
        for wrong in ["", "Big", "a-b", "a b", &"x".repeat(41)] {
            assert!(Names::new(wrong).is_err(), "{wrong}");
        }
    }
}
