//! A standby in memory, and the server that its reads go to.

use std::sync::{Arc, Mutex, PoisonError};

use hindcast_pg::{Connection, Lsn};
use hindcast_store::Mode;

use super::retry::Retry;
use super::{Ended, Granularity, MemoryOptions, StandbyError};
use crate::follow::{self, FollowError, Wish, follow};
use crate::initial::{Source, read_rows};
use crate::memory::{Catalog, Memory, MemoryError};
use crate::serve::Server;
use crate::source::{Names, Primary, Stream, StreamOptions, preflight, session, slot};
use crate::status::{Control, State, now_micros};

/// Copies, follows and serves until it is stopped or cannot go on. What is on the primary for it is removed at the end: memory
/// has nothing that a later start could go on from.
pub fn to_memory(options: &MemoryOptions, control: &Control) -> Result<Ended, StandbyError> {
    // Never that of a standby on a backup, however it is called: a slot of ours that is found is of no use and is dropped.
    let names = Names::new(&format!("memory_{}", options.common.name))?;
    control.update(|status| status.state = State::Starting);
    let primary = preflight(&options.common.from, &options.common.tables, &names.slot)?;
    super::note(control, &primary.notices);
    let result = with_slot(options, &names, &primary, control);
    // A primary that is gone keeps the slot; the next start drops it.
    let removed = slot::remove(&options.common.from, &names);
    control.update(|status| status.state = State::Stopped);
    let ended = result?;
    removed?;
    Ok(ended)
}

fn with_slot(
    options: &MemoryOptions,
    names: &Names,
    primary: &Primary,
    control: &Control,
) -> Result<Ended, StandbyError> {
    let common = &options.common;
    let (store, appender) = hindcast_store::open(hindcast_store::Options {
        workers: common.workers.unwrap_or_else(default_workers),
        mode: match common.granularity {
            Granularity::Row => Mode::Row,
            Granularity::Transaction => Mode::Transaction,
            Granularity::Single => Mode::Single,
        },
        retention: options.retention,
        memory_max: options.memory_max,
        ..hindcast_store::Options::default()
    });
    let catalog = Arc::new(Catalog::new(&primary.tables));
    let mut memory = Memory::new(store.clone(), appender, Arc::clone(&catalog))?;
    slot::remove(&common.from, names)?;
    slot::publish(&common.from, names, &primary.tables)?;
    load(options, names, primary, &mut memory, control)?;

    let server = Server::start(
        &options.serve,
        store,
        catalog,
        primary.database.clone(),
        version(common)?,
    )?;
    let notice = format!("reads are served at {}", server.address());
    super::note(control, &[notice]);
    let mut retry = Retry::default();
    retry.worked();
    loop {
        match follow_once(options, names, &mut memory, control, &mut retry) {
            Ok(ended) => return Ok(ended),
            Err(_) if control.is_stopping() => return Ok(Ended::Stopped),
            Err(error) if retry.may_help(&error) => {
                if retry.wait(control, error.in_a_line()) {
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
fn version(common: &super::Options) -> Result<String, StandbyError> {
    let connection = Connection::connect(&common.from, &session("hindcast standby"))
        .map_err(crate::source::SourceError::Connect)?;
    Ok(connection
        .parameter("server_version")
        .unwrap_or("15.0")
        .to_owned())
}

fn load(
    options: &MemoryOptions,
    names: &Names,
    primary: &Primary,
    memory: &mut Memory,
    control: &Control,
) -> Result<(), StandbyError> {
    let common = &options.common;
    let created = slot::create_unless(
        &common.from,
        names,
        || control.is_stopping(),
        |waiting| super::note(control, &[waiting]),
    )?;
    let source = Source {
        primary: &common.from,
        snapshot: &created.snapshot,
        workers: common.copy_workers,
        chunk_bytes: Source::CHUNK_BYTES,
    };
    // The store has one writer: rows that are read at the same time take turns.
    let writer = Mutex::new(&mut *memory);
    read_rows(&source, &primary.tables, control, |table, row| {
        let mut writer = writer.lock().unwrap_or_else(PoisonError::into_inner);
        writer.load(&primary.tables[table], row)
    })?;
    memory.loaded(created.consistent_point, now_micros())?;
    Ok(())
}

fn follow_once(
    options: &MemoryOptions,
    names: &Names,
    memory: &mut Memory,
    control: &Control,
    retry: &mut Retry,
) -> Result<Ended, StandbyError> {
    let common = &options.common;
    let from: Lsn = memory.resume_point();
    let stream = StreamOptions {
        stream_into: common.streaming.then(std::env::temp_dir),
        ..StreamOptions::default()
    };
    let mut log = Stream::start(&common.from, &names.slot, &names.publication, from, stream)?;
    retry.worked();
    let ended = follow(&mut log, memory, control, common.until, || {
        Ok::<_, MemoryError>(Wish::GoOn)
    });
    let ended = ended.map_err(|error| match error {
        FollowError::Log(error) => StandbyError::from(error),
        FollowError::Target(error) => StandbyError::from(error),
    })?;
    log.finish();
    Ok(match ended {
        follow::Ended::Stopped => Ended::Stopped,
        follow::Ended::Reached => Ended::Reached,
    })
}
