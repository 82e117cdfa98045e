//! `hindcast protect`

use std::io::Write as _;
use std::path::Path;

use hindcast_exec::run::RecordOptions;
use hindcast_execlog::config;
use hindcast_protect::key::Key;
use hindcast_protect::terms::{self, Terms};
use hindcast_protect::{ProtectError, backup, primary, status};

use crate::args::protect::{
    BackupArgs, KeyArg, ProtectAction, ProtectAttachArgs, ProtectRunArgs, ProtectStatusArgs,
    TermsArgs,
};
use crate::error::{CliError, Exit};
use crate::render::protect as render;

pub fn run(action: ProtectAction) -> Result<Exit, CliError> {
    match action {
        ProtectAction::Backup(args) => stand_by(args),
        ProtectAction::Run(args) => protect(args),
        ProtectAction::Attach(args) => attach(&args),
        ProtectAction::Status(args) => show(&args),
        ProtectAction::Key(args) => make_key(&args.file),
    }
}

fn make_key(file: &Path) -> Result<Exit, CliError> {
    let mut options = hindcast_private::options();
    let made = options.write(true).create_new(true).open(file);
    let written = made.and_then(|mut made| made.write_all(Key::new().text().as_bytes()));
    written.map_err(|error| {
        CliError::because(format!("cannot make the key {}", file.display()), &error)
    })?;
    Ok(Exit::Success)
}

fn key(given: &KeyArg) -> Result<Option<Key>, CliError> {
    let read = given.key.as_deref().map(Key::read).transpose();
    read.map_err(|error| cannot("there is no key", &error))
}

fn terms_of(given: TermsArgs) -> Result<Terms, CliError> {
    Ok(Terms {
        key: key(&given.key)?,
        address: given.address,
        queue: given.queue,
        alone_after: given.alone_after,
        keep: given.keep,
    })
}

/// Where to listen: without a host at every address.
fn place(given: String) -> String {
    match given.strip_prefix(':') {
        Some(port) => format!("0.0.0.0:{port}"),
        None => given,
    }
}

fn stand_by(args: BackupArgs) -> Result<Exit, CliError> {
    let options = backup::BackupOptions {
        listen: place(args.listen),
        terms: terms_of(args.terms)?,
        device: args.device,
        detect: args.detect,
        again: args.again,
        checkpoint_every: args.checkpoint_every,
        lag: args.lag,
    };
    let outcome = backup::run(&options, &mut |notice| {
        eprint!("{}", render::of_backup(&notice))
    })
    .map_err(|error| cannot("this machine cannot stand by", &error))?;
    Ok(match outcome {
        backup::Outcome::Ended(None) | backup::Outcome::TakenOver => Exit::Success,
        backup::Outcome::Ended(Some(ended)) => Exit::Program(ended.code()),
        backup::Outcome::Lost => Exit::NotExecuted,
        backup::Outcome::Interrupted(signal) => Exit::Program(128u8.wrapping_add(signal as u8)),
    })
}

fn protect(args: ProtectRunArgs) -> Result<Exit, CliError> {
    let folder = hindcast_private::temporary_folder(std::env::temp_dir(), "hindcast-protect-")
        .map_err(|error| CliError::because("no folder for the log", &error))?;
    let options = primary::PrimaryOptions {
        to: args.to,
        terms: terms_of(args.terms)?,
        device: args.device,
        listen: args.listen.map(place),
        record: RecordOptions {
            folder: folder.path().to_owned(),
            command: args.command,
            order: config::Order::default(),
            policy: config::Policy::default(),
            instructions: config::Instructions::default(),
            cache: false,
            one_at_a_time: false,
            reproduce: None,
            interfaces: Vec::new(),
            followers: 0,
            is_written_beside: false,
            is_kept: false,
        },
    };
    let outcome = primary::run(&options, &mut |notice| {
        eprint!("{}", render::of_running(&notice))
    })
    .map_err(|error| cannot("the program was not started", &error))?;
    Ok(match outcome {
        terms::Outcome::Ended(ended) | terms::Outcome::Lost(ended) => Exit::Program(ended.code()),
        terms::Outcome::TakenOver => Exit::Success,
    })
}

fn attach(args: &ProtectAttachArgs) -> Result<Exit, CliError> {
    let key = key(&args.key)?;
    let attached = status::attach(&args.at, &args.to, key.as_ref(), &mut |progress| {
        eprint!("{}", render::catches_up(&args.to, progress))
    });
    attached.map_err(|error| {
        let made = CliError::because("the program is not protected", &error);
        match error.hint() {
            hint if hint.is_empty() => made,
            hint => made.hint(hint),
        }
    })?;
    println!("The program at {} is protected by {}", args.at, args.to);
    Ok(Exit::Success)
}

fn show(args: &ProtectStatusArgs) -> Result<Exit, CliError> {
    let status = status::ask(&args.at, key(&args.key)?.as_ref()).map_err(|error| {
        CliError::because("it is not known how it is", &error).hint(error.hint())
    })?;
    match args.json {
        true => println!("{}", serde_json::json!(status)),
        false => print!("{}", render::status(&status)),
    }
    Ok(Exit::Success)
}

fn cannot(what: &str, error: &ProtectError) -> CliError {
    let mut made = CliError::because(what, error);
    let hint = error.hint();
    if !hint.is_empty() {
        made = made.hint(hint);
    }
    made.exit = Exit::NotExecuted;
    made
}
