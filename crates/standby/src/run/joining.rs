//! Tables that appear on the primary while it is followed, or change there in a way that the log
//! does not tell.
//!
//! ```text
//!  seen ──▶ noted on the backup ──▶ published ──▶ a slot for the moment: position and snapshot
//!       ──▶ the log followed exactly up to there ──▶ made and copied, in one transaction
//! ```
//!
//! What the log has of them before that position is in the copy, and is not applied. The other
//! tables wait meanwhile, so that readers see all tables at one state of the primary. Only one that
//! the log does not fit any more keeps the rows that it had before its change until it is copied.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use hindcast_pg::{Connection, Lsn};

use super::open::{connect, open};
use super::retry::Later;
use super::{BackupOptions, StandbyError};
use crate::backup::BackupError;
use crate::follow::{Wish, follow};
use crate::initial::{self, Adapted, InitialError, Join, Side, Source, enums, state};
use crate::source::compared::{self, Compared, Copied, TableName};
use crate::source::{Names, ReplicatedTable, SlotError, publication, slot};
use crate::status::Control;

/// How often the primary's tables are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// How long following may wait for transactions that run on the primary.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often the same may not fit.
const MENDED_MAX: u32 = 3;
/// Until what could not be renamed is tried again.
const LABELS_AGAIN: Duration = Duration::from_secs(60);
/// `invalid_text_representation`: of an enum, that it has no such label.
const NO_LABEL: &str = "22P02";

pub(super) struct Joining<'a> {
    options: &'a BackupOptions,
    names: &'a Names,
    look_at: Instant,
    /// Tables that could not be copied, by the primary's oid.
    refused: Later<u32>,
    /// The tables whose rows the backup has.
    copied: Copied,
    /// Schema and name of tables that the log does not fit any more, or that hold other rows than
    /// the primary's, and why.
    unfit: HashMap<TableName, String>,
    /// What did not fit last, and how often that was so.
    mended: Option<(TableName, String, u32)>,
    /// By the primary's oid: the log fits them as before.
    altered: HashSet<u32>,
    /// See [`crate::backup::Options::alone_until`].
    alone_until: Option<Lsn>,
    /// What has only another name.
    renamed: Vec<ReplicatedTable>,
    /// What has all rows, and lacks columns.
    outgrown: Vec<ReplicatedTable>,
    /// Of those, by the primary's oid.
    differences: HashMap<u32, String>,
    /// What is to be copied now.
    tables: Vec<ReplicatedTable>,
    /// Labels of enums are to be renamed, if it is time.
    labels: bool,
    labels_at: Instant,
    /// Where a label was not known last, and how often.
    labels_mended: Option<(Lsn, u32)>,
}

impl<'a> Joining<'a> {
    pub fn new(options: &'a BackupOptions, names: &'a Names) -> Self {
        Self {
            options,
            names,
            look_at: Instant::now(),
            refused: Later::new(),
            copied: Copied::new(),
            unfit: HashMap::new(),
            mended: None,
            altered: HashSet::new(),
            alone_until: None,
            renamed: Vec::new(),
            outgrown: Vec::new(),
            differences: HashMap::new(),
            tables: Vec::new(),
            labels: false,
            labels_at: Instant::now(),
            labels_mended: None,
        }
    }

    /// Whether there are tables to copy, if it is time to look. A server that cannot be asked is
    /// missed elsewhere.
    pub fn look(&mut self, control: &Control) -> bool {
        let now = Instant::now();
        if now < self.look_at {
            return false;
        }
        self.look_at = now + LOOK_EVERY;
        let Ok(mut compared) = self.compare(control) else {
            return false;
        };
        let without_identity: Vec<_> = compared
            .missing
            .iter()
            .filter(|table| !table.may_be_published())
            .map(|table| {
                format!("{table} is not replicated: {}. ALTER TABLE {} REPLICA IDENTITY FULL permits it; or say --exclude-table {table}", table.unpublished(), table.in_sql())
            })
            .collect();
        control.note(&without_identity);
        control.update(|status| {
            status.missing_tables = compared.lacking();
            status.left_out = std::mem::take(&mut compared.left_out);
        });
        self.altered = compared.altered.iter().map(|table| table.oid).collect();
        let may_be_tried = |table: &ReplicatedTable| {
            table.may_be_published() && self.refused.may_be_tried(&table.oid)
        };
        let tables = compared.missing.into_iter().chain(compared.altered);
        self.tables = tables.filter(may_be_tried).collect();
        self.renamed = compared.renamed;
        self.renamed.retain(may_be_tried);
        self.outgrown = compared.outgrown;
        self.outgrown
            .retain(|table| self.options.schema && may_be_tried(table));
        let is_none = self.tables.is_empty() && self.renamed.is_empty() && self.outgrown.is_empty();
        !is_none || self.labels
    }

    fn compare(&mut self, control: &Control) -> Result<Compared, InitialError> {
        let common = &self.options.common;
        let ours = InitialError::query(Side::Backup, "see its tables");
        let mut backup = connect(&self.options.to, Side::Backup)?;
        self.copied = state::tables(&mut backup, &self.names.slot).map_err(&ours)?;
        self.look_at_labels(control)?;
        let mut primary = connect(&common.from, Side::Primary)?;
        let mut compared =
            compared::compare(&mut primary, self.names, &common.tables, &self.copied)
                .map_err(InitialError::query(Side::Primary, "see its tables"))?;
        compared.look_at_columns(&mut backup).map_err(&ours)?;
        self.differences = std::mem::take(&mut compared.differences);
        if self.options.schema {
            self.look_at_outgrown(&mut primary, &mut backup, &compared.outgrown)?;
        }
        self.sort_out(&mut compared);
        let slot = &self.names.slot;
        state::note_shapes(&mut backup, slot, &self.copied, &compared.reshaped).map_err(ours)?;
        Ok(compared)
    }

    /// What cannot just be given the columns that it lacks does not fit.
    fn look_at_outgrown(
        &mut self,
        primary: &mut Connection,
        backup: &mut Connection,
        outgrown: &[ReplicatedTable],
    ) -> Result<(), InitialError> {
        for table in outgrown {
            if initial::grown(primary, backup, table, &self.copied)?.is_none() {
                let name = (table.schema.clone(), table.name.clone());
                let what = &self.differences[&table.oid];
                let why = format!("was changed on the primary ({what})");
                self.unfit.insert(name, why);
            }
        }
        Ok(())
    }

    /// Tables that the log does not fit are as good as missing. Partitions of one table are changed
    /// together, so they are copied together.
    fn sort_out(&self, compared: &mut Compared) {
        let Compared {
            missing,
            altered,
            reshaped,
            outgrown,
            same,
            ..
        } = compared;
        let is_unfit = |table: &ReplicatedTable| {
            let name = (table.schema.clone(), table.name.clone());
            self.unfit.contains_key(&name)
        };
        let with_them = |chosen: &dyn Fn(&ReplicatedTable) -> bool, lists: [&mut Vec<_>; 4]| {
            let all = lists.iter().flat_map(|list| list.iter());
            let roots: HashSet<u32> = all
                .filter(|it| chosen(it))
                .filter_map(|it| it.root)
                .collect();
            let is_one = |table: &mut ReplicatedTable| {
                chosen(table) || table.root.is_some_and(|root| roots.contains(&root))
            };
            let taken = lists.into_iter().map(|list| list.extract_if(.., is_one));
            taken.flatten().collect::<Vec<_>>()
        };
        missing.extend(with_them(&is_unfit, [altered, reshaped, outgrown, same]));
        let oids: HashSet<u32> = altered.iter().map(|table| table.oid).collect();
        let is_altered = |table: &ReplicatedTable| oids.contains(&table.oid);
        *altered = with_them(&is_altered, [altered, reshaped, outgrown, same]);
    }

    /// Takes care of an error that says that rows of the log do not fit a table of the backup,
    /// which has all before: the table is changed, or is copied again by the next
    /// [`Joining::join`].
    ///
    /// # Errors
    /// If it is another error, or was taken care of and is there again.
    pub fn mend(&mut self, error: StandbyError, control: &Control) -> Result<(), StandbyError> {
        if let StandbyError::Backup(BackupError::Refused { lsn, source, .. }) = &error
            && source.code() == Some(NO_LABEL)
            && self.mend_labels(*lsn, &source.to_string(), control)?
        {
            return Ok(());
        }
        let StandbyError::Backup(BackupError::Mismatch { relation, what, .. }) = &error else {
            return Err(error);
        };
        let name = (relation.schema.clone(), relation.name.clone());
        let times = match self.mended.take() {
            Some((of, why, times)) if of == name && why == *what => times + 1,
            _ => 1,
        };
        self.mended = Some((name.clone(), what.clone(), times));
        if !self.options.schema || times > MENDED_MAX {
            return Err(error);
        }
        self.look_at_labels(control)?;
        let (from, to) = (&self.options.common.from, &self.options.to);
        match initial::adapt(from, to, self.names, relation)? {
            Adapted::Done => control.note(&[format!(
                "{relation} was changed on the primary, and is changed here: {what}"
            )]),
            Adapted::Name | Adapted::Gone => return Err(error),
            Adapted::No => {
                self.unfit
                    .insert(name, format!("was changed on the primary ({what})"));
                self.look_at = Instant::now();
            }
        }
        Ok(())
    }

    /// Makes what the primary's enums have and the backup's lack. What has other names is renamed,
    /// or its tables are copied again, by the next [`Joining::join`].
    fn look_at_labels(&mut self, control: &Control) -> Result<(), InitialError> {
        if !self.options.schema {
            return Ok(());
        }
        let (from, to) = (&self.options.common.from, &self.options.to);
        let found = enums::look(from, to, &self.names.slot)?;
        tell_of_labels(found.made, control);
        self.labels = found.is_renamed && Instant::now() >= self.labels_at;
        self.copy_mixed(found.mixed);
        Ok(())
    }

    /// Takes care of a label that the backup does not know. Says whether anything was done.
    fn mend_labels(
        &mut self,
        lsn: Lsn,
        message: &str,
        control: &Control,
    ) -> Result<bool, StandbyError> {
        let times = match self.labels_mended {
            Some((at, times)) if at == lsn => times + 1,
            _ => 1,
        };
        self.labels_mended = Some((lsn, times));
        if !self.options.schema || times > MENDED_MAX {
            return Ok(false);
        }
        let (from, to) = (&self.options.common.from, &self.options.to);
        let found = enums::refused(from, to, &self.names.slot, message)?;
        let is_done = !found.made.is_empty() || !found.mixed.is_empty();
        tell_of_labels(found.made, control);
        self.copy_mixed(found.mixed);
        self.look_at = Instant::now();
        Ok(is_done)
    }

    /// Renames labels, where the log was followed to.
    fn settle_labels(
        &mut self,
        tables: &[ReplicatedTable],
        control: &Control,
    ) -> Result<(), InitialError> {
        self.labels = false;
        if !self.options.schema {
            return Ok(());
        }
        let name = |table: &ReplicatedTable| (table.schema.clone(), table.name.clone());
        let anew: HashSet<_> = tables.iter().map(name).collect();
        let is_anew = |table: &TableName| anew.contains(table) || !self.copied.contains_key(table);
        let (from, to) = (&self.options.common.from, &self.options.to);
        let made = enums::settle(from, to, &self.names.slot, is_anew)?;
        tell_of_labels(made, control);
        Ok(())
    }

    fn copy_mixed(&mut self, tables: Vec<TableName>) {
        let why = "has labels of an enum that are names of others by now";
        let ours = tables
            .into_iter()
            .filter(|table| self.copied.contains_key(table));
        self.unfit.extend(ours.map(|table| (table, why.to_owned())));
    }

    /// A table holds other rows than the primary's: it is copied again by the next
    /// [`Joining::join`].
    pub fn copy_again(&mut self, table: &ReplicatedTable) {
        let name = (table.schema.clone(), table.name.clone());
        let why = "held other rows than the primary's".to_owned();
        self.unfit.insert(name, why);
        self.look_at = Instant::now();
    }

    /// Copies what was found. Nobody may follow meanwhile.
    ///
    /// # Errors
    /// If a server is lost, or the log cannot be followed up to the copy. A table that cannot be
    /// copied is told, and tried again later; the log is followed without it.
    pub fn join(
        &mut self,
        control: &Control,
        alone_until: Option<Lsn>,
    ) -> Result<(), StandbyError> {
        self.alone_until = alone_until;
        let tables = std::mem::take(&mut self.tables);
        let renamed = std::mem::take(&mut self.renamed);
        let outgrown = std::mem::take(&mut self.outgrown);
        self.look_at = Instant::now();
        match self.copy(&tables, &renamed, &outgrown, control) {
            // One that cannot be copied keeps back no other.
            Err(error)
                if is_about_tables(&error) && tables.len() + renamed.len() + outgrown.len() > 1 =>
            {
                let copied = self.copy(&[], &renamed, &[], control);
                self.settle(&renamed, copied, control)?;
                for table in &outgrown {
                    let table = std::slice::from_ref(table);
                    let changed = self.copy(&[], &[], table, control);
                    self.settle(table, changed, control)?;
                }
                for table in &tables {
                    let table = std::slice::from_ref(table);
                    let copied = self.copy(table, &[], &[], control);
                    self.settle(table, copied, control)?;
                }
                Ok(())
            }
            copied => {
                let all = tables.into_iter().chain(renamed).chain(outgrown);
                let all: Vec<_> = all.collect();
                self.settle(&all, copied, control)
            }
        }
    }

    fn settle(
        &mut self,
        tables: &[ReplicatedTable],
        copied: Result<(), StandbyError>,
        control: &Control,
    ) -> Result<(), StandbyError> {
        let error = match copied {
            Err(error) if is_about_tables(&error) && !control.is_stopping() => error,
            copied => return copied,
        };
        // Labels are tried again by themselves.
        if tables.is_empty() {
            return Ok(());
        }
        self.refused.put_off(tables.iter().map(|table| table.oid));
        let (why, hint) = match &error {
            StandbyError::Slot(SlotError::Stopped) => (
                "a transaction that runs on the primary has to end first".to_owned(),
                None,
            ),
            error => (error.in_a_line(), error.hint()),
        };
        let hint = hint.map_or_else(String::new, |hint| format!(" ({hint})"));
        let names: Vec<_> = tables.iter().map(ToString::to_string).collect();
        control.note(&[format!(
            "not replicated, and tried again every minute: {}: {why}{hint}",
            names.join(", ")
        )]);
        Ok(())
    }

    fn copy(
        &mut self,
        tables: &[ReplicatedTable],
        renamed: &[ReplicatedTable],
        outgrown: &[ReplicatedTable],
        control: &Control,
    ) -> Result<(), StandbyError> {
        let is_none = tables.is_empty() && renamed.is_empty() && outgrown.is_empty();
        if is_none && !self.labels {
            return Ok(());
        }
        let (options, names) = (self.options, self.names);
        let from = &options.common.from;
        let mut backup = connect(&options.to, Side::Backup)?;
        let noted = InitialError::query(Side::Backup, "see its tables");
        let copies = state::copies(&mut backup, &names.slot).map_err(noted)?;
        self.labels_at = Instant::now() + LABELS_AGAIN;
        let mut awaited = tables.to_vec();
        awaited.retain(|table| !self.altered.contains(&table.oid));
        state::await_copy(&mut backup, &names.slot, &awaited).map_err(InitialError::query(
            Side::Backup,
            "note tables that are new",
        ))?;
        publication::publish_also(from, names, tables)?;
        let deadline = Instant::now() + PATIENCE;
        let is_over = || control.is_stopping() || Instant::now() > deadline;
        let created = slot::create_temporary(from, names, is_over, |_| {})?;
        let at = created.consistent_point;

        let (mut log, mut target) = open(options, names, self.alone_until)?;
        follow(&mut log, &mut target, control, Some(at), || Ok(Wish::GoOn))?;
        log.finish();
        drop(target);
        if control.is_stopping() {
            return Ok(());
        }
        self.settle_labels(tables, control)?;
        if is_none {
            return Ok(());
        }
        let join = Join {
            source: Source {
                primary: from,
                snapshot: &created.snapshot,
                workers: 1,
                chunk_bytes: Source::CHUNK_BYTES,
            },
            backup: &options.to,
            slot: &names.slot,
            ours: &copies,
            renamed,
            outgrown,
            consistent_point: at,
            make_schema: options.schema,
        };
        initial::join(&join, tables, control)?;
        self.tell(tables, outgrown, control);
        Ok(())
    }

    /// What was done.
    fn tell(
        &mut self,
        tables: &[ReplicatedTable],
        outgrown: &[ReplicatedTable],
        control: &Control,
    ) {
        let joined = tables.iter().map(|table| {
            let name = (table.schema.clone(), table.name.clone());
            let why = match (self.unfit.remove(&name), self.copied.contains_key(&name)) {
                (Some(what), _) => format!("{what}, and was copied again"),
                (None, true) => "was changed on the primary in a way that the log does not tell, and was copied again".to_owned(),
                (None, false) => "is new on the primary, and is replicated from now on".to_owned(),
            };
            format!("{table} {why}")
        });
        control.note(&joined.collect::<Vec<_>>());
        let changed = outgrown.iter().map(|table| {
            let what = self.differences.get(&table.oid).map_or("", String::as_str);
            format!("{table} was changed on the primary, and is changed here: {what}")
        });
        control.note(&changed.collect::<Vec<_>>());
        let bare = tables.iter().filter(|table| !table.has_identity());
        control.note(
            &bare
                .map(ReplicatedTable::without_identity)
                .collect::<Vec<_>>(),
        );
    }
}

fn tell_of_labels(made: Vec<String>, control: &Control) {
    let made = made.into_iter();
    let made =
        made.map(|sql| format!("an enum was changed on the primary, and is changed here: {sql}"));
    control.note(&made.collect::<Vec<_>>());
}

/// Not about a server, nor about the log.
fn is_about_tables(error: &StandbyError) -> bool {
    let is_of_log = matches!(error, StandbyError::Backup(_) | StandbyError::Source(_));
    !is_of_log && !error.is_transient()
}
