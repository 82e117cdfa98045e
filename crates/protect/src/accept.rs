//! Who may be followed here, and what is said to others.

use std::path::Path;

use hindcast_exec::apart;
use hindcast_exec::checkpoint::Checkpoint;
use hindcast_exec::recording::Recording;
use hindcast_exec::report::Report;
use hindcast_execlog::board::ReportKind;
use hindcast_execlog::files::is_first;

use crate::channel::Channel;
use crate::doors::{self, Hello, Visit};
use crate::error::{ProtectError, system};
use crate::message::VERSION;
use crate::network;
use crate::terms::Terms;

/// The device that gets the address, the program, and where its copy begins.
pub fn accept(
    (listen, terms, device): (&str, &Terms, Option<&str>),
    folder: &Path,
    hello: &Hello,
) -> Result<(String, String, Option<Checkpoint>), ProtectError> {
    let to = || listen.to_owned();
    if hello.version != VERSION {
        return Err(ProtectError::OtherVersion { to: to() });
    }
    let ours = terms.address.to_string();
    if hello.address != ours {
        return Err(ProtectError::OtherAddress {
            ours,
            theirs: hello.address.clone(),
        });
    }
    for (name, bytes) in &hello.files {
        let name = Path::new(name).file_name().unwrap_or_default();
        hindcast_private::write(folder.join(name), bytes)
            .map_err(system("keeping what is to run"))?;
    }
    apart::check(folder)?;
    let from = checkpoint(folder, hello)?;
    network::forget_connections(&terms.address)?;
    let recording = Recording::open(folder).map_err(hindcast_exec::error::ExecError::from)?;
    let device = match device {
        Some(device) => device.to_owned(),
        None => network::device_of(hello.channel.local()?)?,
    };
    Ok((device, recording.path.lossy().into_owned(), from))
}

/// The checkpoint at which the copy is to begin, of which more comes with the log.
fn checkpoint(folder: &Path, hello: &Hello) -> Result<Option<Checkpoint>, ProtectError> {
    let Some((number, about)) = &hello.checkpoint else {
        return Ok(None);
    };
    let kept = Checkpoint::announced(folder, *number, about);
    let kept = kept.map_err(system("keeping what a checkpoint is of"))?;
    match kept {
        Some(checkpoint) if apart::can_begin_at(folder, &checkpoint)? => Ok(Some(checkpoint)),
        _ => Err(ProtectError::OtherCheckpoint),
    }
}

/// To who wants a backup for the program that runs here.
pub fn no_program(visitor: Channel) {
    doors::refuse(
        visitor,
        "this is a backup, on which no program runs",
        "name the machine on which it runs with --at, and this one with --to",
    );
}

/// Somebody wants something of a backup that has something to do.
pub fn refuse(visit: Visit) {
    match visit {
        Visit::Attach { visitor, .. } => no_program(visitor),
        Visit::Hello(hello) => doors::refuse(
            hello.channel,
            "it follows another program",
            "start another backup, at another port or on another machine",
        ),
    }
}

/// What the follower has reported.
pub fn why(report: &Report) -> String {
    let place = format!("thread {}, event {}", report.thread, report.event);
    let place = match is_first(&report.process) {
        true => place,
        false => format!(
            "{} (a process that the program has started), {place}",
            report.process
        ),
    };
    match report.kind {
        ReportKind::Divergence => format!(
            "at {place} it did {} where the log has {}",
            report.actual, report.expected
        ),
        ReportKind::RecordingEnds => format!("the log ends at {place}: {}", report.expected),
        _ => report.actual.clone(),
    }
}
