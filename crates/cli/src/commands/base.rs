//! `hindcast base`

use hindcast_trace::{Base, BaseKind, Location, Record, Writer, WriterOptions};

use crate::args::BaseArgs;
use crate::error::{CliError, Exit};

pub async fn run(args: BaseArgs) -> Result<Exit, CliError> {
    let base = match &args.backup {
        Some(folder) => {
            hindcast_rewind::take_backup(&args.postgres, folder, args.wal_archive.clone()).await
        }
        None => hindcast_rewind::take_template(&args.postgres).await,
    }
    .map_err(cannot_take)?;
    println!("Base taken: {}", describe(&base));
    let location = args.trace.trace.clone();
    tokio::task::spawn_blocking(move || write(&location, base))
        .await
        .expect("writing does not panic")?;
    Ok(Exit::Success)
}

pub fn cannot_take(error: hindcast_rewind::RewindError) -> CliError {
    let hint = error.hint();
    let failed = CliError::because("no base could be taken", &error);
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
    }
}

fn write(location: &Location, base: Base) -> Result<(), CliError> {
    let options = WriterOptions {
        notes_only: true,
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
