//! Whether a database can be a backup at all: looked at before anything is made on either side.

use hindcast_pg::{Connection, Error, quote_identifier};

use super::error::{InitialError, Side, Unfit};

const ASK: &str = "\
SELECT current_user, r.rolsuper, pg_catalog.has_database_privilege(current_database(), 'CREATE') OR pg_catalog.to_regnamespace('hindcast') IS NOT NULL, \
       current_database(), pg_catalog.pg_is_in_recovery(), current_setting('server_version_num')::int \
  FROM pg_catalog.pg_roles r WHERE r.rolname = current_user";

const ITSELF: &str = "\
SELECT (SELECT system_identifier FROM pg_catalog.pg_control_system()) || ' ' || pg_catalog.pg_postmaster_start_time()::text || ' ' || current_database()";

/// Refuses a backup that is the primary itself, that copies another server, or whose role cannot
/// write as a replica does.
pub fn check(backup: &mut Connection, primary: &mut Connection) -> Result<(), InitialError> {
    let failed = InitialError::query(Side::Backup, "see what its role may do");
    let name = |connection: &mut Connection| -> Result<String, Error> {
        let rows = connection.query(ITSELF)?;
        Ok(rows.first().map(|row| row.string(0)).unwrap_or_default())
    };
    let ours = name(backup).map_err(&failed)?;
    let theirs =
        name(primary).map_err(InitialError::query(Side::Primary, "see which server it is"))?;
    if ours == theirs {
        return Err(InitialError::Unfit(Unfit::Itself));
    }
    let rows = backup.query(ASK).map_err(&failed)?;
    let Some(row) = rows.first() else {
        return Ok(());
    };
    let (role, database) = (row.string(0), row.string(3));
    if row.is_true(4) {
        return Err(InitialError::Unfit(Unfit::InRecovery));
    }
    let quoted = quote_identifier(&role);
    if !row.is_true(2) {
        return Err(InitialError::Role {
            lacks: format!("may not make the schema hindcast in the database {database}"),
            grant: format!(
                "GRANT CREATE ON DATABASE {} TO {quoted}",
                quote_identifier(&database)
            ),
            role,
        });
    }
    let version: u32 = row.parse(5).map_err(&failed)?;
    let may_replicate = match (row.is_true(1), version) {
        (true, _) => true,
        (false, ..150_000) => false,
        (false, _) => {
            let sql =
                "SELECT pg_catalog.has_parameter_privilege('session_replication_role', 'SET')";
            let rows = backup.query(sql).map_err(failed)?;
            rows.first().is_some_and(|row| row.is_true(0))
        }
    };
    if !may_replicate {
        return Err(InitialError::Role {
            lacks: "may not set session_replication_role, without which triggers and foreign keys of the backup would act on what the primary has done already".to_owned(),
            grant: match version {
                ..150_000 => format!("ALTER ROLE {quoted} SUPERUSER"),
                _ => format!("GRANT SET ON PARAMETER session_replication_role TO {quoted}"),
            },
            role,
        });
    }
    Ok(())
}
