//! A standby in memory, and the server that its reads go to.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hindcast_pg::{Connection, Lsn};
use hindcast_standby::follow::{self, FollowError, Wish, follow};
use hindcast_standby::initial::{Source, read_rows};
use hindcast_standby::run::{Ended, Options, Retry, StandbyError};
use hindcast_standby::source::{
    Names, Primary, SourceError, Stream, StreamOptions, preflight, publication, session, slot,
};
use hindcast_standby::status::{Control, State, now_micros};
use hindcast_store::Mode;

use crate::catalog::Catalog;
use crate::serve::{Door, ServeError, Server};
use crate::target::{Memory, MemoryError};

/// A standby in memory.
#[derive(Clone, Debug)]
pub struct MemoryOptions {
    pub common: Options,
    /// What the store's workers apply as one.
    pub mode: Mode,
    /// Where reads are served, and to whom.
    pub serve: Door,
    /// How far back states can be read.
    pub retention: Duration,
    /// Bytes.
    pub memory_max: Option<u64>,
}

/// Why a standby in memory could not go on.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error(transparent)]
    Standby(#[from] StandbyError),
    #[error(transparent)]
    Memory(#[from] MemoryError),
    #[error(transparent)]
    Serve(#[from] ServeError),
}

impl RunError {
    /// What to do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            RunError::Standby(error) => error.hint(),
            RunError::Memory(error) => Some(error.hint()),
            RunError::Serve(error) => Some(error.hint()),
        }
    }
}

/// Copies, follows and serves until it is stopped or cannot go on. What is on the primary for it is
/// removed at the end: memory has nothing that a later start could go on from.
pub fn to_memory(options: &MemoryOptions, control: &Control) -> Result<Ended, RunError> {
    let common = &options.common;
    control.update(|status| status.state = State::Starting);
    // A copy may take hours, and this no time.
    options.serve.check()?;
    // The slot is never one of a standby on a backup, whatever its name: a slot of ours that is
    // found is of no use and is dropped.
    let names = Names::new(&format!("memory_{}", common.name)).map_err(StandbyError::from)?;
    let mut retry = Retry::default();
    let primary = loop {
        let looked = preflight(&common.from, &common.tables, &names.slot);
        match looked.map_err(StandbyError::from) {
            Ok(primary) => break primary,
            Err(error) if retry.may_help(&error) => {
                if retry.wait(control, &error) {
                    return Ok(Ended::Stopped);
                }
            }
            Err(error) => return Err(error.into()),
        }
    };
    control.note(&primary.notices);
    let result = with_slot(options, &names, &primary, control);
    // A primary that is gone keeps the slot; the next start drops it.
    let removed = slot::remove(&common.from, &names);
    control.update(|status| status.state = State::Stopped);
    let ended = result?;
    removed.map_err(StandbyError::from)?;
    Ok(ended)
}

fn with_slot(
    options: &MemoryOptions,
    names: &Names,
    primary: &Primary,
    control: &Control,
) -> Result<Ended, RunError> {
    let common = &options.common;
    let (store, appender) = hindcast_store::open(hindcast_store::Options {
        workers: common.workers.unwrap_or_else(default_workers),
        mode: options.mode,
        retention: options.retention,
        memory_max: options.memory_max,
        ..hindcast_store::Options::default()
    });
    let catalog = Arc::new(Catalog::new(&primary.tables));
    let mut memory = Memory::new(store.clone(), appender, Arc::clone(&catalog))?;
    let copied_at = load(common, names, primary, &mut memory, control)?;
    memory.loaded(copied_at, now_micros())?;

    let server = Server::start(
        &options.serve,
        store,
        catalog,
        primary.database.clone(),
        version(common)?,
    )?;
    control.note(&[format!("reads are served at {}", server.address())]);
    let mut retry = Retry::default();
    retry.reached();
    loop {
        match follow_once(common, names, &mut memory, control, &mut retry) {
            Ok(ended) => return Ok(ended),
            Err(_) if control.is_stopping() => return Ok(Ended::Stopped),
            Err(RunError::Standby(error)) if retry.may_help(&error) => {
                if retry.wait(control, &error) {
                    return Ok(Ended::Stopped);
                }
            }
            Err(error) => return Err(error),
        }
    }
}

fn default_workers() -> usize {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    cores.saturating_sub(1).max(1)
}

/// What clients are told they talk to: the primary's.
fn version(common: &Options) -> Result<String, StandbyError> {
    let connection = Connection::connect(&common.from, &session("hindcast standby"))
        .map_err(SourceError::Connect)?;
    Ok(connection
        .parameter("server_version")
        .unwrap_or("15.0")
        .to_owned())
}

/// Makes publication and slot, and copies all rows; says which position they are the state at.
fn load(
    common: &Options,
    names: &Names,
    primary: &Primary,
    memory: &mut Memory,
    control: &Control,
) -> Result<Lsn, StandbyError> {
    slot::remove(&common.from, names)?;
    publication::publish(&common.from, names, &primary.tables)?;
    let created = slot::create_unless(
        &common.from,
        names,
        || control.is_stopping(),
        |waiting| control.note(&[waiting]),
    )?;
    let source = Source {
        primary: &common.from,
        snapshot: &created.snapshot,
        workers: common.copy_workers,
        chunk_bytes: Source::CHUNK_BYTES,
    };
    // The store has one writer: rows that are read at the same time take turns.
    let writer = Mutex::new(memory);
    read_rows(&source, &primary.tables, control, |table, row| {
        let mut writer = writer.lock().unwrap_or_else(PoisonError::into_inner);
        writer.load(&primary.tables[table], row)
    })?;
    Ok(created.consistent_point)
}

fn follow_once(
    common: &Options,
    names: &Names,
    memory: &mut Memory,
    control: &Control,
    retry: &mut Retry,
) -> Result<Ended, RunError> {
    let from: Lsn = memory.resume_point();
    let stream = StreamOptions {
        stream_into: common.streaming.then(std::env::temp_dir),
        ..StreamOptions::default()
    };
    let mut log = Stream::start(&common.from, &names.slot, &names.publication, from, stream)
        .map_err(StandbyError::from)?;
    retry.follows(from);
    let ended = follow(&mut log, memory, control, common.until, || {
        Ok::<_, MemoryError>(Wish::GoOn)
    });
    let ended = ended.map_err(|error| match error {
        FollowError::Log(error) => RunError::Standby(error.into()),
        FollowError::Target(error) => RunError::Memory(error),
    })?;
    log.finish();
    Ok(match ended {
        follow::Ended::Stopped => Ended::Stopped,
        follow::Ended::Reached => Ended::Reached,
    })
}
