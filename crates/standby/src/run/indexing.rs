//! Indexes and constraints follow the primary's, beside the log, which has no word of them.
//!
//! ```text
//!  seen ──▶ an index that allows anything is made beside following, without holding up writers;
//!           what is gone goes
//!       ──▶ what rows have to meet: the log followed to where the primary had it, then made while
//!           nobody follows
//! ```
//!
//! The latter is true of states of the primary, and workers that apply at the same time pass
//! through others.

use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use hindcast_pg::{Connection, Error, Lsn};

use super::open::{connect, open};
use super::retry::Later;
use super::{BackupOptions, StandbyError};
use crate::backup::BackupError;
use crate::follow::{Wish, follow};
use crate::initial::indexes::{self, Id, Step};
use crate::initial::{InitialError, Side, reading, state, watched, writing};
use crate::source::{Names, end_of_log};
use crate::status::Control;

/// How often both catalogs are compared.
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// A table that is changed cannot be read: its readers wait no longer than this.
const PATIENT: &str = "SET lock_timeout = '5s'";
/// It keeps nobody out, and waits for each transaction that runs.
const VERY_PATIENT: &str = "SET lock_timeout = 0";
/// Integrity constraint violations, by their class.
const VIOLATION: &str = "23";

pub(super) struct Indexing<'a> {
    options: &'a BackupOptions,
    names: &'a Names,
    look_at: Instant,
    refused: Later<Id>,
    /// The catalogs of both servers when there was nothing to do.
    settled: Option<[String; 2]>,
    /// Does what keeps nobody from following. Its end says what could not be done.
    running: Option<JoinHandle<Vec<Id>>>,
}

impl<'a> Indexing<'a> {
    pub fn new(options: &'a BackupOptions, names: &'a Names) -> Self {
        Self {
            options,
            names,
            look_at: Instant::now(),
            refused: Later::new(),
            settled: None,
            running: None,
        }
    }

    /// Whether to stop following, and [`Indexing::adapt`]. A server that cannot be asked is missed
    /// elsewhere.
    pub fn look(&mut self, control: &Control) -> bool {
        if self.running.as_ref().is_some_and(JoinHandle::is_finished) {
            let refused = self.running.take().map(JoinHandle::join);
            let refused =
                refused.map(|it| it.unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
            self.refused.put_off(refused.unwrap_or_default());
            self.look_at = Instant::now();
        }
        let now = Instant::now();
        if !self.options.schema || self.running.is_some() || now < self.look_at {
            return false;
        }
        self.look_at = now + LOOK_EVERY;
        let Ok(mut steps) = self.steps() else {
            return false;
        };
        let beside: Vec<_> = steps
            .extract_if(.., |step| !step.needs_whole_state())
            .collect();
        if beside.is_empty() {
            return !steps.is_empty();
        }
        let (to, slot) = (self.options.to.clone(), self.names.slot.clone());
        let control = control.clone();
        self.running = Some(std::thread::spawn(move || match writing(&to) {
            Ok(mut backup) => take_all(&mut backup, &slot, &beside, &control).unwrap_or_default(),
            // Looked at again soon.
            Err(_) => Vec::new(),
        }));
        false
    }

    /// Makes what rows have to meet. Nobody may follow meanwhile.
    ///
    /// # Errors
    /// If a server is lost, or the log cannot be followed up to there. What cannot be made is told,
    /// and tried again later.
    pub fn adapt(
        &mut self,
        control: &Control,
        alone_until: Option<Lsn>,
    ) -> Result<(), StandbyError> {
        let mut steps = self.steps()?;
        steps.retain(Step::needs_whole_state);
        if steps.is_empty() {
            return Ok(());
        }
        // All rows up to here, and of those before some may not meet it.
        let mut primary = connect(&self.options.common.from, Side::Primary)?;
        let failed = InitialError::query(Side::Primary, "see where its log ends");
        let at = end_of_log(&mut primary).map_err(failed)?;
        let (mut log, mut target) = open(self.options, self.names, alone_until)?;
        follow(&mut log, &mut target, control, Some(at), || Ok(Wish::GoOn))?;
        log.finish();
        drop(target);
        if control.is_stopping() {
            return Ok(());
        }
        let mut backup = writing(&self.options.to)?;
        let refused = take_all(&mut backup, &self.names.slot, &steps, control)?;
        self.refused.put_off(refused);
        Ok(())
    }

    /// Takes care of an error that says that a row does not meet what the primary's have to meet no
    /// more.
    ///
    /// # Errors
    /// If it is another error.
    pub fn mend(&mut self, error: StandbyError, control: &Control) -> Result<(), StandbyError> {
        let StandbyError::Backup(
            BackupError::Refused { source, .. } | BackupError::Changed { source, .. },
        ) = &error
        else {
            return Err(error);
        };
        let is_violation = source
            .code()
            .is_some_and(|code| code.starts_with(VIOLATION));
        if !is_violation || !self.options.schema {
            return Err(error);
        }
        let mut steps = self.steps()?;
        steps.retain(|step| matches!(step, Step::Drop(_)));
        let mut backup = writing(&self.options.to)?;
        let refused = take_all(&mut backup, &self.names.slot, &steps, control)?;
        match refused.len() < steps.len() {
            true => Ok(()),
            false => Err(error),
        }
    }

    fn steps(&mut self) -> Result<Vec<Step>, InitialError> {
        let (from, to) = (&self.options.common.from, &self.options.to);
        let connect =
            |url, side| Connection::connect(url, &reading()).map_err(InitialError::connect(side));
        let (mut backup, mut primary) = (connect(to, Side::Backup)?, connect(from, Side::Primary)?);
        let failed = |side| InitialError::query(side, "see its indexes and constraints");
        // Before they are looked at: what changes meanwhile is seen the next time.
        let versions = [
            indexes::version(&mut primary).map_err(failed(Side::Primary))?,
            indexes::version(&mut backup).map_err(failed(Side::Backup))?,
        ];
        if self.settled.as_ref() == Some(&versions) {
            return Ok(Vec::new());
        }
        let copied = state::tables(&mut backup, &self.names.slot)
            .map_err(InitialError::query(Side::Backup, "see its tables"))?;
        let mut steps = indexes::look(&mut primary, &mut backup, &self.names.slot, |table| {
            copied.contains_key(table)
        })?;
        self.settled = steps.is_empty().then_some(versions);
        steps.retain(|step| self.refused.may_be_tried(step.id()));
        Ok(steps)
    }
}

/// Does them, and says so. Returns those that the backup refused.
///
/// # Errors
/// If it is lost, or everything is to stop.
fn take_all(
    backup: &mut Connection,
    slot: &str,
    steps: &[Step],
    control: &Control,
) -> Result<Vec<Id>, InitialError> {
    let failed = InitialError::query(Side::Backup, "make its indexes and constraints");
    let mut refused = Vec::new();
    for step in steps {
        let id = step.id();
        let of = format!("{} {} of {}.{}", id.what, id.name, id.table.0, id.table.1);
        let patience = match step {
            Step::Make(..) if !step.needs_whole_state() => VERY_PATIENT,
            _ => PATIENT,
        };
        let taken = watched(backup, control, |backup| {
            backup.execute(patience).map_err(&failed)?;
            Ok(indexes::take(backup, slot, step))
        })?;
        match taken {
            Ok(None) => {}
            Ok(Some(sql)) => control.note(&[format!(
                "{of} {}: {sql}",
                match step {
                    Step::Drop(_) => "is gone from the primary, and was dropped here",
                    Step::Validate(..) => "was validated on the primary, and is here",
                    _ => "is new on the primary, and was made here",
                }
            )]),
            Err(error) if error.is_connection() || matches!(error, Error::Interrupted) => {
                return Err(failed(error));
            }
            Err(error) => {
                refused.push(id.clone());
                control.note(&[format!(
                    "not as on the primary, and tried again every minute: {of}: {error}"
                )]);
            }
        }
    }
    Ok(refused)
}
