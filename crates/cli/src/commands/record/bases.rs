//! Takes bases while a recording goes on (`--base-every`).

use std::path::{Path, PathBuf};
use std::time::Duration;

use hindcast_gateway::record::{Moments, RecordOptions, Recording};
use hindcast_pg::DatabaseUrl;
use hindcast_rewind::{Held, RewindError};
use hindcast_trace::{Base, BaseKind, Location, Micros};
use serde_json::json;

use super::say;
use crate::args::RecordArgs;
use crate::commands::base::describe;
use crate::error::CliError;
use crate::render::format::{bytes, time};

/// How long after a moment another one is looked at.
const RETRY: Duration = Duration::from_millis(20);
/// So many connections are had for that.
const AT_A_TIME: usize = 5;

/// What is needed to take bases, if they are asked for.
pub struct Bases {
    every: Duration,
    url: DatabaseUrl,
    folder: PathBuf,
}

impl Bases {
    /// Has the recording tell when nothing is in flight, if it is needed.
    pub fn wanted(
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
        Ok(Some(Self {
            every,
            url: options.postgres.clone(),
            folder: folder.clone(),
        }))
    }

    /// Takes them until `over` resolves. One that is being written then is still noted.
    pub async fn take(
        self,
        args: &RecordArgs,
        recording: &Recording,
        over: impl Future<Output = ()>,
    ) {
        let moments = recording.moments();
        let recorder = recording.started().recorder.number;
        let mut over = std::pin::pin!(over);
        for number in 1.. {
            let found = tokio::select! {
                found = self.next(&moments) => found,
                () = &mut over => return,
            };
            let name = format!("dumps/r{recorder}-{number}");
            let taken = match found {
                Some(Ok((held, at))) => self.write(&moments, held, at, &name).await,
                Some(Err(error)) => Err(error),
                None => {
                    warn(
                        args,
                        "something was in flight whenever it was looked: there was no moment for it",
                    );
                    continue;
                }
            };
            match taken {
                Ok((base, size)) => tell(args, &base, size),
                Err(error) => warn(args, &error.to_string()),
            }
        }
    }

    /// What the database holds at the next moment at which nothing is in flight, when it is time
    /// for that. `None`: there was no such moment.
    async fn next(&self, moments: &Moments) -> Option<Result<(Held, Micros), RewindError>> {
        tokio::time::sleep(self.every).await;
        let deadline = tokio::time::Instant::now() + self.every;
        moments.begin();
        let found = loop {
            match self.among_some(moments).await {
                Ok(None) if tokio::time::Instant::now() > deadline => break None,
                Ok(None) => moments.begin(),
                Ok(Some(found)) => break Some(Ok(found)),
                Err(error) => break Some(Err(error)),
            }
        };
        moments.end();
        found
    }

    /// Whether a moment was quiet is known a while later, so a few are taken at a time.
    async fn among_some(&self, moments: &Moments) -> Result<Option<(Held, Micros)>, RewindError> {
        let mut all = Vec::new();
        for _ in 0..AT_A_TIME {
            let from = moments.now();
            let held = hindcast_rewind::hold(&self.url).await?;
            let to = moments.now();
            match held.in_use {
                true => held.discard().await,
                false => all.push((held, from..=to)),
            }
            tokio::time::sleep(RETRY).await;
        }
        let mut found = None;
        for (held, moment) in all {
            match found.is_none() && moments.was_quiet(&moment).await {
                true => found = Some((held, *moment.end())),
                false => held.discard().await,
            }
        }
        Ok(found)
    }

    async fn write(
        &self,
        moments: &Moments,
        held: Held,
        taken: Micros,
        name: &str,
    ) -> Result<(Base, u64), RewindError> {
        let snapshot = held.snapshot.clone();
        let folder = self.folder.join(name);
        held.dump(&folder).await?;
        let base = Base {
            taken,
            snapshot,
            kind: BaseKind::Dump {
                folder: name.to_owned(),
            },
        };
        moments.note(base.clone());
        Ok((base, size_of(&folder)))
    }
}

fn size_of(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let sizes = entries.filter_map(|entry| entry.metadata().ok());
    sizes.map(|found| found.len()).sum()
}

fn tell(args: &RecordArgs, base: &Base, size: u64) {
    match args.json {
        true => println!(
            "{}",
            json!({ "event": "base", "base": describe(base), "taken_us": base.taken, "bytes": size })
        ),
        false => say(
            args,
            format_args!(
                "Base taken as of {} UTC: {} ({})",
                time(base.taken),
                describe(base),
                bytes(size)
            ),
        ),
    }
}

fn warn(args: &RecordArgs, why: &str) {
    match args.json {
        true => println!("{}", json!({ "event": "no_base", "reason": why })),
        false => say(args, format_args!("No base was taken: {why}")),
    }
}
