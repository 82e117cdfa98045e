//! The way back: the old primary becomes the backup of the new one, without a copy.
//!
//! Both hold the same rows when nobody may write to either, so a slot that is made on the backup at
//! that moment is the log that the old primary goes on with.

use hindcast_pg::{Connection, DatabaseUrl, Lsn, quote_literal};

use super::error::Cause;
use crate::backup::{EPOCH_INTERVAL, schema};
use crate::initial::{Identity, Side, rights, state};
use crate::source::{Names, Primary, ReplicatedTable, TableFilter, preflight, publication, slot};
use crate::status::Control;

/// What the old primary will follow.
pub(super) struct Back {
    identity: Identity,
    tables: Vec<ReplicatedTable>,
    filter: TableFilter,
}

/// Looks whether the old primary can follow the backup. Makes at most the empty tables of the
/// schema `hindcast` on it.
pub(super) fn look(
    names: &Names,
    to: &DatabaseUrl,
    backup: &mut Connection,
    old_primary: &mut Connection,
) -> Result<Back, Cause> {
    let failed = Cause::query(Side::Backup, "see its tables");
    let filter = state::filter(backup, &names.slot).map_err(&failed)?;
    let filter = filter.unwrap_or_default();
    let primary: Primary = preflight(to, &filter, &names.slot).map_err(Cause::Back)?;
    rights::check(old_primary, backup)?;
    schema::create(old_primary).map_err(Cause::query(Side::Primary, "make the schema hindcast"))?;
    let mut copied = state::tables(backup, &names.slot).map_err(failed)?;
    let identity = Identity::new(&primary, to, names);
    let mut tables = primary.tables;
    tables.retain(|it| {
        copied
            .remove(&(it.schema.clone(), it.name.clone()))
            .is_some()
    });
    match copied.is_empty() {
        true => Ok(Back {
            identity,
            tables,
            filter,
        }),
        false => Err(Cause::Unpublished {
            tables: copied
                .into_keys()
                .map(|(s, name)| format!("{s}.{name}"))
                .collect(),
        }),
    }
}

impl Back {
    /// Makes slot and publication on the backup, and notes on the old primary that it is the
    /// backup's from there on. Nobody may write to either.
    pub fn prepare(
        &self,
        names: &Names,
        to: &DatabaseUrl,
        old_primary: &mut Connection,
        stop: impl Fn() -> bool,
    ) -> Result<Lsn, Cause> {
        // What a switchover that was killed has left.
        slot::remove(to, names)?;
        publication::publish(to, names, &self.tables)?;
        let created = slot::create_unless(to, names, stop, |_| {})?;
        let at = created.consistent_point;
        let slot = &names.slot;
        let note = format!(
            "BEGIN; SET LOCAL synchronous_commit = on; \
             UPDATE hindcast.standby SET state = 'copying' WHERE slot = {0}; {1}; {2}; \
             UPDATE hindcast.standby SET fenced_at = now(), switchover_at = NULL, promoted_at = NULL WHERE slot = {0}; COMMIT",
            quote_literal(slot),
            state::copying(&self.identity, false, &self.tables, at),
            state::following(slot, at),
        );
        let failed = Cause::query(Side::Primary, "note whose backup it becomes");
        old_primary.execute(&note).map_err(|error| {
            // The error says what happened; a session that cannot roll back says so at its next
            // use.
            let _ = old_primary.execute("ROLLBACK");
            failed(error)
        })?;
        state::note_filter(old_primary, slot, &self.filter).map_err(&failed)?;
        Ok(at)
    }
}

/// Removes what [`Back::prepare`] made; nobody follows it yet.
pub(super) fn remove(
    names: &Names,
    to: &DatabaseUrl,
    old_primary: &mut Connection,
) -> Result<(), Cause> {
    let noted = "DO $$ BEGIN IF pg_catalog.to_regclass('hindcast.standby') IS NOT NULL THEN DELETE FROM hindcast.standby WHERE slot = {slot}; END IF; END $$";
    old_primary
        .execute(&noted.replace("{slot}", &quote_literal(&names.slot)))
        .map_err(Cause::query(Side::Primary, "take back whose backup it is"))?;
    slot::remove(to, names)?;
    Ok(())
}

/// Brings a backup that nobody follows to a position of its primary.
pub(super) fn drain(
    from: &DatabaseUrl,
    to: &DatabaseUrl,
    name: &str,
    filter: TableFilter,
    until: Lsn,
) -> Result<(), Cause> {
    use crate::run::{BackupOptions, Granularity, Options, to_backup};
    let options = BackupOptions {
        common: Options {
            from: from.clone(),
            name: name.to_owned(),
            tables: filter,
            workers: None,
            copy_workers: 1,
            streaming: false,
            until: Some(until),
        },
        to: to.clone(),
        granularity: Granularity::Row,
        epoch_rows: 20_000,
        epoch_interval: EPOCH_INTERVAL,
        schema: true,
        check: None,
    };
    to_backup(&options, &Control::default())?;
    Ok(())
}
