//! Primary and backup change places, with nothing lost and nothing copied again.
//!
//! ```text
//!  looked at ──▶ noted ──▶ primary fenced ──▶ drained, compared ──▶ way back made ──▶ promoted
//!               (backup)   its users read     rows are the same     slot on the backup,   │
//!                                                                   note on the primary   ▼
//!                                                                        old slot removed, done
//! ```
//!
//! Until the one transaction that promotes, everything can be taken back, and is when something
//! fails. A process that is killed leaves the note on the backup: the same command then goes on,
//! since each step may be done again, and `abort` takes back. After that transaction only the rest
//! can be done.
//!
//! The invariant: at no moment can the users of both servers write, unless one of them sets
//! `default_transaction_read_only` itself; what such a one has committed is found after the
//! promotion, and told.

mod back;
mod error;

use std::time::{Duration, Instant};

use hindcast_pg::{Connection, DatabaseUrl, Lsn, quote_literal};

use crate::backup::schema;
use crate::fence;
use crate::initial::{Hold, InitialError, Side, state};
use crate::promote::{self, Missing, PromoteError, PromoteOptions, PromoteReport, Ready};
use crate::source::{Names, preflight, session, slot};

pub use error::{After, Cause, SwitchoverError};

#[derive(Clone, Debug)]
pub struct SwitchoverOptions {
    pub from: DatabaseUrl,
    /// The backup, which becomes the primary.
    pub to: DatabaseUrl,
    /// As for following.
    pub name: String,
    /// Compare all rows of both before.
    pub check: bool,
    /// The old primary becomes the backup.
    pub back: bool,
    /// How long each wait may take: for sessions that end, for a follower without progress.
    pub patience: Duration,
}

/// What was done last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// From here on the command can be run again, or be taken back.
    Noted,
    /// Users of the primary can only read. So many sessions were ended.
    Fenced { ended: usize },
    /// The backup has all that the primary has; so many tables were compared.
    Drained { at: Lsn, compared: usize },
    /// The backup keeps its log from here on for the old primary.
    WayBack { at: Lsn },
    /// The backup is the one to write to.
    Promoted,
}

/// How it ended.
#[derive(Clone, Debug)]
pub struct SwitchoverReport {
    /// What the promotion did; `None` if an earlier run had promoted.
    pub promotion: Option<PromoteReport>,
    /// What was found on the old primary that the new one has not; `None` if that cannot be known.
    pub missing: Option<Missing>,
    /// The old primary is a backup, which can follow.
    pub back: bool,
}

/// Lets them change places, or finishes what an earlier run began.
pub fn switchover(
    options: &SwitchoverOptions,
    step: &mut dyn FnMut(Step),
) -> Result<SwitchoverReport, SwitchoverError> {
    let (names, mut servers, stored) = begin(options).map_err(nothing_done)?;
    // An earlier run got this far, or was even done, and could not say so.
    let promoted = stored.filter(|it| it.state == "promoted");
    if let Some(stored) = promoted
        && (stored.switchover.is_some() || servers.is_back(&names).map_err(nothing_done)?)
    {
        let finished = servers.finish(options, &names, None);
        return finished.map_err(|cause| SwitchoverError {
            cause,
            after: After::Promoted,
        });
    }
    let back = servers.look(options, &names).map_err(nothing_done)?;
    let promotion = match servers.attempt(options, &names, back.as_ref(), step) {
        Ok(promotion) => promotion,
        Err(cause) => {
            let after = take_back(options, &names);
            return Err(SwitchoverError { cause, after });
        }
    };
    let finished = servers.finish(options, &names, Some(promotion));
    finished.map_err(|cause| SwitchoverError {
        cause,
        after: After::Promoted,
    })
}

/// Takes back what a switchover began that was killed.
pub fn abort(options: &SwitchoverOptions) -> Result<(), SwitchoverError> {
    let (names, servers, stored) = begin(options).map_err(nothing_done)?;
    if stored.is_none_or(|it| it.switchover.is_none()) {
        return Err(nothing_done(Cause::NotUnderWay));
    }
    drop(servers);
    match take_back(options, &names) {
        After::TakenBack => Ok(()),
        after => Err(SwitchoverError {
            cause: PromoteError::Already.into(),
            after,
        }),
    }
}

fn nothing_done(cause: Cause) -> SwitchoverError {
    SwitchoverError {
        cause,
        after: After::Nothing,
    }
}

/// Both servers, and what the backup says that it is.
fn begin(options: &SwitchoverOptions) -> Result<(Names, Servers, Option<state::Stored>), Cause> {
    let names = Names::new(&options.name)?;
    let mut servers = Servers::connect(options, &names)?;
    let stored = state::stored(&mut servers.backup, &names.slot)
        .map_err(Cause::query(Side::Backup, "see what it is"))?;
    Ok((names, servers, stored))
}

struct Servers {
    primary: Connection,
    backup: Connection,
}

fn connect(url: &DatabaseUrl, side: Side) -> Result<Connection, InitialError> {
    let settings = session("hindcast switchover")
        .set("search_path", "")
        .set("idle_session_timeout", "0");
    Connection::connect(url, &settings).map_err(|source| InitialError::Connect {
        side,
        source: Box::new(source),
    })
}

impl Servers {
    fn connect(options: &SwitchoverOptions, names: &Names) -> Result<Self, Cause> {
        let mut backup = connect(&options.to, Side::Backup)?;
        // A database that is no backup gets no schema of ours.
        if state::stored(&mut backup, &names.slot).is_ok_and(|stored| stored.is_some()) {
            let failed = Cause::query(Side::Backup, "see what it is a backup of");
            schema::create(&mut backup).map_err(failed)?;
        }
        Ok(Self {
            primary: connect(&options.from, Side::Primary)?,
            backup,
        })
    }

    /// Everything that can be known before anything is changed.
    fn look(
        &mut self,
        options: &SwitchoverOptions,
        names: &Names,
    ) -> Result<Option<back::Back>, Cause> {
        let known = promote::known(&mut self.backup, names)?;
        let failed = Cause::query(Side::Backup, "see which tables are wanted");
        let filter = state::filter(&mut self.backup, &names.slot).map_err(failed)?;
        let filter = filter.unwrap_or_default();
        if let Some(rows) = filter.rows.first() {
            return Err(Cause::Partial(rows.to_string()));
        }
        let primary = preflight(&options.from, &filter, &names.slot)?;
        if (primary.system_identifier, primary.database)
            != (known.system_identifier, known.source_database)
        {
            return Err(Cause::Promote(PromoteError::OtherPrimary {
                given: options.from.to_string(),
                known: known.source,
            }));
        }
        fence::check(&mut self.primary)?;
        if !options.back {
            return Ok(None);
        }
        // One that is there without a note of ours belongs to somebody else.
        if known.switchover.is_none() {
            match slot::check(&options.to, names, Lsn(u64::MAX)) {
                Err(slot::SlotError::Gone { .. }) => {}
                Err(error) => return Err(error.into()),
                Ok(()) => {
                    let slot = names.slot.clone();
                    return Err(slot::SlotError::Exists { slot }.into());
                }
            }
        }
        back::look(names, &options.to, &mut self.backup, &mut self.primary).map(Some)
    }

    /// Up to the promotion.
    fn attempt(
        &mut self,
        options: &SwitchoverOptions,
        names: &Names,
        back: Option<&back::Back>,
        step: &mut dyn FnMut(Step),
    ) -> Result<PromoteReport, Cause> {
        let failed = Cause::query(Side::Backup, "see what it is");
        let before = state::stored(&mut self.backup, &names.slot).map_err(failed)?;
        if back.is_none() && before.is_some_and(|it| it.switchover.is_some() && it.way_back) {
            back::remove(names, &options.to, &mut self.primary)?;
        }
        self.note(names, Some(back.is_some()))?;
        step(Step::Noted);
        let ended = fence::raise(&mut self.primary, options.patience)?;
        step(Step::Fenced { ended });

        let promotion = PromoteOptions {
            to: options.to.clone(),
            from: Some(options.from.clone()),
            name: options.name.clone(),
            wait: true,
            check: options.check,
            patience: options.patience,
        };
        let ready = self.drain(options, &promotion, names)?;
        // The follower has made way, and nobody but us can write to either.
        step(Step::Drained {
            at: ready.report.applied,
            compared: ready.report.compared,
        });
        if let Some(reason) = &ready.report.without_primary {
            return Err(Cause::Promote(PromoteError::Gone(reason.clone())));
        }
        if ready.report.is_incomplete() {
            return Err(Cause::Promote(PromoteError::StillWritten {
                findings: ready.report.findings.clone(),
            }));
        }
        if let Some(back) = back {
            let deadline = Instant::now() + options.patience;
            let is_over = || Instant::now() > deadline;
            let at = back.prepare(names, &options.to, &mut self.primary, is_over)?;
            step(Step::WayBack { at });
        }
        Ok(ready.hand_over(|| step(Step::Promoted))?)
    }

    /// The backup gets all that the primary has, from the one who follows, or without one from us.
    fn drain<'a>(
        &mut self,
        options: &SwitchoverOptions,
        promotion: &'a PromoteOptions,
        names: &Names,
    ) -> Result<Ready<'a>, Cause> {
        let deadline = Instant::now() + options.patience;
        loop {
            let hold = Hold::take(&options.to, &names.slot)?;
            let followed = hold.is_none();
            drop(hold);
            if !followed {
                let failed = Cause::query(Side::Backup, "see which tables are wanted");
                let filter = state::filter(&mut self.backup, &names.slot).map_err(failed)?;
                let end = promote::end_of(&options.from)?;
                let filter = filter.unwrap_or_default();
                back::drain(&options.from, &options.to, &options.name, filter, end)?;
            }
            match Ready::make(promotion) {
                // The one who follows copies what is new.
                Err(PromoteError::Tables { .. }) if followed && Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_millis(500));
                }
                ready => return Ok(ready?),
            }
        }
    }

    /// After the promotion: nothing may be kept on the old primary for a standby that is gone.
    fn finish(
        &mut self,
        options: &SwitchoverOptions,
        names: &Names,
        promotion: Option<PromoteReport>,
    ) -> Result<SwitchoverReport, Cause> {
        let missing = match &promotion {
            Some(promotion) => promotion.missing,
            None => promote::clean_after(&options.from, &mut self.backup, names)?,
        };
        let back = self.is_back(names)?;
        self.note(names, None)?;
        Ok(SwitchoverReport {
            promotion,
            missing,
            back,
        })
    }

    /// Whether the old primary is a backup by now, which can follow.
    fn is_back(&mut self, names: &Names) -> Result<bool, Cause> {
        let failed = Cause::query(Side::Primary, "see whose backup it is");
        let stored = state::stored(&mut self.primary, &names.slot).map_err(failed)?;
        Ok(stored.is_some_and(|it| it.state == "following" && it.fenced))
    }

    /// That a switchover is under way, with or without a way back; or that none is.
    fn note(&mut self, names: &Names, under_way: Option<bool>) -> Result<(), Cause> {
        let (at, back) = match under_way {
            Some(true) => ("now()", "true"),
            Some(false) => ("now()", "false"),
            None => ("NULL", "NULL"),
        };
        self.backup
            .execute(&format!(
                "UPDATE hindcast.standby SET switchover_at = {at}, way_back = {back} WHERE slot = {}",
                quote_literal(&names.slot)
            ))
            .map(drop)
            .map_err(Cause::query(
                Side::Backup,
                "note that a switchover is under way",
            ))
    }
}

/// The primary takes writes again, if the backup was not promoted.
fn take_back(options: &SwitchoverOptions, names: &Names) -> After {
    let taken = (|| -> Result<After, Cause> {
        let mut servers = Servers::connect(options, names)?;
        let failed = Cause::query(Side::Backup, "see what became of it");
        let stored = state::stored(&mut servers.backup, &names.slot).map_err(failed)?;
        let Some(stored) = stored.filter(|it| it.switchover.is_some()) else {
            return Ok(After::Nothing);
        };
        if stored.state == "promoted" {
            return Ok(After::Promoted);
        }
        if stored.way_back {
            back::remove(names, &options.to, &mut servers.primary)?;
        }
        fence::lower(&mut servers.primary)?;
        servers.note(names, None)?;
        Ok(After::TakenBack)
    })();
    taken.unwrap_or_else(|error| {
        let why = std::error::Error::source(&error).map(|source| format!(": {source}"));
        After::Fenced(format!("{error}{}", why.unwrap_or_default()))
    })
}
