//! `hindcast base`

use hindcast_rewind::Template;
use hindcast_trace::{Base, BaseKind, Location, Record, Trace, Writer, WriterOptions};

use super::{key, setting};
use crate::args::{
    BaseAction, BaseArgs, BaseServerArgs, DropBaseArgs, ListBasesArgs, TakeBaseArgs, TraceArg,
};
use crate::error::{CliError, Exit};
use crate::render::bases::{self, Listed, Use};
use crate::render::format::bytes;

pub async fn run(args: BaseArgs) -> Result<Exit, CliError> {
    match (args.action, args.take) {
        (Some(BaseAction::Take(args)), _) | (None, Some(args)) => take(args).await,
        (Some(BaseAction::Ls(args)), _) => list(args).await,
        (Some(BaseAction::Drop(args)), _) => drop(args).await,
        (None, None) => Err(
            CliError::usage("a base of which database, for which recording?")
                .hint("hindcast base --postgres postgres://me@db.example/shop --trace ./trace"),
        ),
    }
}

async fn take(args: TakeBaseArgs) -> Result<Exit, CliError> {
    let postgres = setting::url("--postgres", &args.postgres)?;
    let trace = args.trace_arg();
    let base = match &args.backup {
        Some(folder) => {
            hindcast_rewind::take_backup(&postgres, folder, args.wal_archive.clone()).await
        }
        None => hindcast_rewind::take_template_for(&postgres, place(&trace.trace)).await,
    }
    .map_err(cannot_take)?;
    println!("Base taken: {}", describe(&base));
    tokio::task::spawn_blocking(move || write(&trace, base))
        .await
        .expect("writing does not panic")?;
    Ok(Exit::Success)
}

async fn list(args: ListBasesArgs) -> Result<Exit, CliError> {
    let postgres = setting::url("--postgres", &args.server.postgres)?;
    let templates = hindcast_rewind::templates(&postgres)
        .await
        .map_err(|error| cannot("the bases cannot be listed", error))?;
    let listed = with_uses(templates, args.server).await;
    match args.json {
        true => listed
            .iter()
            .for_each(|base| println!("{}", bases::json(base))),
        false => print!("{}", bases::table(&listed)),
    }
    Ok(Exit::Success)
}

async fn drop(args: DropBaseArgs) -> Result<Exit, CliError> {
    let postgres = setting::url("--postgres", &args.server.postgres)?;
    let cannot_drop = |error| cannot("the bases cannot be removed", error);
    let templates = hindcast_rewind::templates(&postgres)
        .await
        .map_err(cannot_drop)?;
    let mut wanted = Vec::new();
    for name in &args.names {
        let template = templates.iter().find(|base| base.database == *name);
        wanted.push(template.cloned().ok_or_else(|| {
            CliError::failed(format!("the server has no base {name}")).hint(
                "`hindcast base ls` names those that it has; other databases are never removed",
            )
        })?);
    }
    // All or none.
    let wanted = with_uses(wanted, args.server).await;
    if !args.force {
        wanted.iter().try_for_each(not_needed)?;
    }
    for base in wanted {
        let name = &base.template.database;
        hindcast_rewind::drop_template(&postgres, name)
            .await
            .map_err(cannot_drop)?;
        println!("Removed {name} ({})", bytes(base.template.bytes));
    }
    Ok(Exit::Success)
}

/// Opens the recordings for which bases were taken, and the given ones, to see which bases they
/// need.
/// An error if a recording needs the base, or if that cannot be told.
fn not_needed(base: &Listed) -> Result<(), CliError> {
    let name = &base.template.database;
    match (&base.used, &base.template.recording) {
        (Use::By(recordings), _) => Err(CliError::failed(format!(
            "{name} is the base of the recording in {}",
            recordings.join(" and ")
        ))
        .hint("without it the recording cannot be replayed; remove the recording first, or say --force")),
        (Use::Unknown, Some(recording)) => Err(CliError::failed(format!(
            "{name} was taken for the recording in {recording}, which cannot be read from here"
        ))
        .hint("name its key with --key if it is encrypted, or say --force if it is not needed any more")),
        (Use::Gone, _) | (Use::Unknown, None) => Ok(()),
    }
}

/// Opens the recordings for which bases were taken, and the given ones, to see which bases they
/// need.
async fn with_uses(templates: Vec<Template>, server: BaseServerArgs) -> Vec<Listed> {
    let look = move || {
        let listed = templates.into_iter().map(|base| used(base, &server));
        listed.collect()
    };
    tokio::task::spawn_blocking(look)
        .await
        .expect("looking at recordings does not panic")
}

fn used(template: Template, server: &BaseServerArgs) -> Listed {
    let needs = |location: &Location| needs(location, &template.database, server);
    let own = template.recording.as_ref();
    let own: Option<Location> = own.and_then(|text| text.parse().ok());
    let mut recordings: Vec<String> = server
        .traces
        .iter()
        .chain(&own)
        .filter(|location| needs(location) == Some(true))
        .map(place)
        .collect();
    recordings.sort();
    recordings.dedup();
    let used = match &own {
        _ if !recordings.is_empty() => Use::By(recordings),
        // Another machine's folder cannot be told from one that was removed.
        Some(Location::Folder(folder)) if !folder.exists() => Use::Gone,
        Some(location) if needs(location) == Some(false) => Use::Gone,
        _ => Use::Unknown,
    };
    Listed { template, used }
}

/// Whether a recording starts from this base; `None` if it cannot be read.
fn needs(location: &Location, database: &str, server: &BaseServerArgs) -> Option<bool> {
    let trace = TraceArg {
        trace: location.clone(),
        key: server.key.clone(),
        secrets_key: None,
    };
    let key = key::given(&trace).ok()?;
    let trace = Trace::open_with(location, key.as_ref()).ok()?;
    let is_it =
        |base: &Base| matches!(&base.kind, BaseKind::Template { database: own } if own == database);
    Some(trace.bases().iter().any(is_it))
}

/// Where a recording is, wherever the command is run.
pub fn place(location: &Location) -> String {
    match location {
        Location::Folder(folder) => std::path::absolute(folder)
            .map_or_else(|_| location.to_string(), |path| path.display().to_string()),
        Location::S3 { .. } => location.to_string(),
    }
}

pub fn cannot_take(error: hindcast_rewind::RewindError) -> CliError {
    cannot("no base could be taken", error)
}

fn cannot(what: &str, error: hindcast_rewind::RewindError) -> CliError {
    let hint = error.hint();
    let failed = CliError::because(what, &error);
    match hint {
        Some(hint) => failed.hint(hint),
        None => failed,
    }
}

pub fn describe(base: &Base) -> String {
    match &base.kind {
        BaseKind::Template { database } => format!("template database {database}"),
        BaseKind::Backup {
            folder,
            wal_archive: None,
        } => format!("backup in {folder}"),
        BaseKind::Backup {
            folder,
            wal_archive: Some(archive),
        } => format!("backup in {folder}, with Postgres' WAL archived in {archive}"),
        BaseKind::Dump { folder } => format!("dump in {folder}"),
    }
}

fn write(trace: &TraceArg, base: Base) -> Result<(), CliError> {
    let location = &trace.trace;
    let options = WriterOptions {
        notes_only: true,
        key: key::given(trace)?,
        ..WriterOptions::default()
    };
    let (writer, _) = Writer::create(location, options).map_err(|error| {
        CliError::because(
            format!("cannot write to the recording in {location}"),
            &error,
        )
        .hint(error.hint())
    })?;
    writer.record(Record::Base(base));
    writer.close().map_err(|error| {
        CliError::because("the base could not be noted in the recording", &error)
    })?;
    Ok(())
}
