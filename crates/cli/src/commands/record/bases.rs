//! Takes bases while a recording goes on (`--base-every`).

use std::path::{Path, PathBuf};
use std::time::Duration;

use hindcast_gateway::record::{Moments, RecordOptions, Recording};
use hindcast_pg::DatabaseUrl;
use hindcast_rewind::{Elsewhere, Held, RewindError};
use hindcast_standby::mark::{Mark, MarkError, There};
use hindcast_trace::{Base, BaseKind, Location, Micros};
use serde_json::json;

use super::backups::Backup;
use super::say;
use crate::args::RecordArgs;
use crate::commands::base::describe;
use crate::error::CliError;
use crate::render::format::{bytes, time};

/// How long after a moment another one is looked at.
const RETRY: Duration = Duration::from_millis(20);
/// So many connections are had for that.
const AT_A_TIME: usize = 5;
/// How long after something went wrong it is tried again, while there is time.
const PAUSE: Duration = Duration::from_secs(1);
const NEVER_QUIET: &str =
    "something was in flight whenever it was looked: there was no moment for it";

/// What is needed to take bases, if they are asked for.
pub struct Bases {
    every: Duration,
    url: DatabaseUrl,
    folder: PathBuf,
    /// Of which rows are read, in the place of the recorded database.
    backup: Option<Backup>,
}

/// A state that a base can be made of.
struct Found {
    held: Held,
    at: Micros,
    /// The backup showed the same.
    there: Option<(Mark, There)>,
}

/// Why there is none.
struct NoBase {
    /// In a line: the cause, and what to do about it.
    why: String,
    is_transient: bool,
}

impl NoBase {
    fn because(error: &dyn std::error::Error) -> Self {
        let mut why = error.to_string();
        let mut cause = error.source();
        while let Some(error) = cause {
            why += &format!(": {error}");
            cause = error.source();
        }
        Self {
            why,
            is_transient: false,
        }
    }
}

impl From<RewindError> for NoBase {
    fn from(error: RewindError) -> Self {
        Self::because(&error)
    }
}

impl From<MarkError> for NoBase {
    fn from(error: MarkError) -> Self {
        let Self { why, .. } = Self::because(&error);
        Self {
            why: format!("{why} ({})", error.hint()),
            is_transient: error.is_transient(),
        }
    }
}

impl Bases {
    /// Has the recording tell when nothing is in flight, if it is needed.
    pub async fn wanted(
        args: &RecordArgs,
        options: &mut RecordOptions,
    ) -> Result<Option<Self>, CliError> {
        let Some(every) = args.base_every else {
            return Ok(None);
        };
        let Location::Folder(folder) = &args.trace.trace else {
            return Err(CliError::usage(
                "--base-every writes dumps of the database beside the recording, and this one is in an object store",
            )
            .hint("record into a folder, or take bases with `hindcast base --backup`"));
        };
        if args.trace.key.is_some() {
            return Err(CliError::usage(
                "--base-every writes dumps of the database beside the recording, and these would not be encrypted as it is",
            )
            .hint("take bases with `hindcast base` instead"));
        }
        options.moments = true;
        let url = options.postgres.clone();
        let backup = match &args.base_from {
            Some(to) => Some(Backup::of(&url, to).await?),
            None => None,
        };
        Ok(Some(Self {
            every,
            url,
            folder: folder.clone(),
            backup,
        }))
    }

    /// Takes them until `over` resolves. One that is being written then is still noted.
    pub async fn take(
        mut self,
        args: &RecordArgs,
        recording: &Recording,
        over: impl Future<Output = ()>,
    ) {
        let moments = recording.moments();
        let recorder = recording.started().recorder.number;
        let mut over = std::pin::pin!(over);
        for number in 1.. {
            // That costs the recorded database nothing to speak of.
            let is_due = number == 1 && self.backup.is_some();
            let found = tokio::select! {
                found = self.next(&moments, is_due) => found,
                () = &mut over => return,
            };
            let name = format!("dumps/r{recorder}-{number}");
            let taken = match found {
                Ok(found) => self.write(&moments, found, &name).await,
                Err(error) => Err(error),
            };
            match taken {
                Ok(taken) => tell(args, &taken),
                Err(error) => warn(args, &error.why),
            }
        }
    }

    /// What the database holds at the next moment at which nothing is in flight, when it is time
    /// for that.
    async fn next(&mut self, moments: &Moments, is_due: bool) -> Result<Found, NoBase> {
        if !is_due {
            tokio::time::sleep(self.every).await;
        }
        let deadline = tokio::time::Instant::now() + self.every;
        moments.begin();
        let found = loop {
            let found = self.among_some(moments).await;
            let is_late = tokio::time::Instant::now() > deadline;
            match found {
                Ok(None) if is_late => {
                    break Err(NoBase {
                        why: NEVER_QUIET.to_owned(),
                        is_transient: false,
                    });
                }
                Ok(None) => moments.begin(),
                Ok(Some(found)) => break Ok(found),
                Err(error) if error.is_transient && !is_late => {
                    tokio::time::sleep(PAUSE).await;
                    moments.begin();
                }
                Err(error) => break Err(error),
            }
        };
        moments.end();
        found
    }

    /// Whether a moment was quiet is known a while later, so a few are taken at a time.
    async fn among_some(&mut self, moments: &Moments) -> Result<Option<Found>, NoBase> {
        let mut all = Vec::new();
        for _ in 0..AT_A_TIME {
            let from = moments.now();
            let held = hindcast_rewind::hold(&self.url).await?;
            let mark = match (&mut self.backup, held.in_use) {
                (Some(backup), false) => backup.mark(&held.shown).await?,
                _ => None,
            };
            let to = moments.now();
            match held.in_use || self.backup.is_some() && mark.is_none() {
                true => held.discard().await,
                false => all.push((held, mark, from..=to)),
            }
            tokio::time::sleep(RETRY).await;
        }
        let mut quiet = None;
        for (held, mark, moment) in all {
            match quiet.is_none() && moments.was_quiet(&moment).await {
                true => quiet = Some((held, mark, *moment.end())),
                false => held.discard().await,
            }
        }
        let Some((held, mark, at)) = quiet else {
            return Ok(None);
        };
        let there = match (&mut self.backup, mark) {
            (Some(backup), Some(mark)) => {
                let there = backup.there(&mark, &held.name).await?;
                Some((mark, there))
            }
            _ => None,
        };
        Ok(Some(Found { held, at, there }))
    }

    async fn write(
        &self,
        moments: &Moments,
        Found { held, at, there }: Found,
        name: &str,
    ) -> Result<Taken, NoBase> {
        let snapshot = held.snapshot.clone();
        let folder = self.folder.join(name);
        let elsewhere = there.as_ref().zip(self.backup.as_ref());
        let elsewhere = elsewhere.map(|((mark, there), backup)| Elsewhere {
            url: backup.url(),
            snapshot: &there.snapshot,
            tables: &there.tables,
            sequences: &mark.sequences,
        });
        held.dump(&folder, elsewhere.as_ref()).await?;
        let base = Base {
            taken: at,
            snapshot,
            kind: BaseKind::Dump {
                folder: name.to_owned(),
            },
        };
        moments.note(base.clone());
        Ok(Taken {
            base,
            bytes: size_of(&folder),
            there: there.map(|(_, there)| (there.tables.len(), there.elsewhere)),
        })
    }
}

/// A base that was written.
struct Taken {
    base: Base,
    bytes: u64,
    /// How many tables were read from the backup, and which could not be, with the reason.
    there: Option<(usize, Vec<(String, String)>)>,
}

fn size_of(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let sizes = entries.filter_map(|entry| entry.metadata().ok());
    sizes.map(|found| found.len()).sum()
}

fn tell(args: &RecordArgs, taken: &Taken) {
    let base = &taken.base;
    let (tables, others) = match &taken.there {
        Some((tables, others)) => (Some(tables), others.as_slice()),
        None => (None, &[][..]),
    };
    if args.json {
        let others: Vec<_> = others
            .iter()
            .map(|(table, why)| json!({ "table": table, "why": why }))
            .collect();
        println!(
            "{}",
            json!({
                "event": "base", "base": describe(base), "taken_us": base.taken, "bytes": taken.bytes,
                "tables_from_backup": tables, "read_from_primary": others
            })
        );
        return;
    }
    let from = match tables {
        Some(1) => ", rows of one table from the backup".to_owned(),
        Some(tables) => format!(", rows of {tables} tables from the backup"),
        None => String::new(),
    };
    say(
        args,
        format_args!(
            "Base taken as of {} UTC: {} ({}{from})",
            time(base.taken),
            describe(base),
            bytes(taken.bytes)
        ),
    );
    for (table, why) in others {
        say(
            args,
            format_args!("Its rows of {table} were read from the recorded database: {why}"),
        );
    }
}

fn warn(args: &RecordArgs, why: &str) {
    match args.json {
        true => println!("{}", json!({ "event": "no_base", "reason": why })),
        false => say(args, format_args!("No base was taken: {why}")),
    }
}
