//! The service that `record -- COMMAND` starts.

use std::ffi::OsString;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::IsTerminal;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use hindcast_exec::{preflight, program};
use hindcast_gateway::inside::SOCKET_VARIABLE;
use hindcast_gateway::record::{Launch, Variable};
use hindcast_pg::secret;
use hindcast_preload::Preload;
use hindcast_trace::PinsKey;
use tokio::process::{Child, Command};
use tokio::signal::unix::SignalKind;

use super::left;
use super::signals::is_of_terminals;
use super::started::{starts_another, with_started};
use super::unseen::{self, Unseen};
use crate::error::{CliError, Exit};

/// What is the recorder's business and not the service's.
const OURS: [&str; 3] = ["HINDCAST_KEY", "HINDCAST_SECRETS_KEY", "HINDCAST_POSTGRES"];

/// A service with the tap in it.
pub struct Service {
    child: Child,
    unseen: Unseen,
    /// The library must stay as long as the service may start children.
    preload: Preload,
}

/// Refuses what the tap cannot be loaded into, before anything is started.
pub fn check(command: &[OsString], outside: impl FnOnce() -> String) -> Result<(), CliError> {
    if std::env::var_os(SOCKET_VARIABLE).is_some() {
        let message = format!("this command is recorded itself: {SOCKET_VARIABLE} is set");
        return Err(CliError::usage(message).hint(
            "leave one of the two recorders out: all that a recorded service starts is in its recording",
        ));
    }
    let cannot = |error: &dyn std::error::Error| {
        let words = command.iter().map(|word| word.to_string_lossy());
        let words = words.collect::<Vec<_>>().join(" ");
        CliError::because(format!("cannot record `{words}` from inside"), error)
    };
    let folder = std::env::current_dir()
        .map_err(|error| CliError::because("the current folder cannot be found", &error))?;
    let path = std::env::var_os("PATH");
    let found = program::find(command, path.as_deref(), &folder).map_err(|error| cannot(&error))?;
    if starts_another(command) {
        return Ok(());
    }
    preflight::loadable(&found.path)
        .map_err(|error| cannot(&error).hint(unseen::rather(&error, outside())))
}

/// What is loaded into the service.
pub fn preload(key: Option<&PinsKey>) -> Result<Preload, CliError> {
    Preload::make(key.map(PinsKey::name).as_deref())
        .map_err(|error| CliError::because("the library for the service cannot be written", &error))
}

impl Service {
    pub fn start(
        command: &[OsString],
        tap: &Variable,
        seeds: &[(&str, String)],
        preload: Preload,
    ) -> Result<Self, CliError> {
        let mut starting = Command::new(&command[0]);
        starting.args(&command[1..]);
        starting.envs(preload.environment(|name| std::env::var_os(name)));
        starting.env(tap.0, &tap.1);
        starting.envs(seeds.iter().map(|(name, value)| (name, value)));
        for name in OURS {
            starting.env_remove(name);
        }
        let child = starting.spawn().map_err(|error| {
            CliError::because(
                format!("cannot start {}", command[0].to_string_lossy()),
                &error,
            )
        })?;
        Ok(Self {
            child,
            unseen: Unseen::default(),
            preload,
        })
    }

    /// Says of programs that a script has started what to do where nothing of them is recorded.
    pub fn look(&mut self, trace: &str, postgres: &str) {
        let Some(service) = self.child.id() else {
            return;
        };
        for program in self.unseen.look(service) {
            eprintln!(
                "Warning: nothing is recorded of a program of the service that listens on port {}.\n\
                 Cause: {}\n\
                 Hint: {}",
                program.port,
                program.why,
                unseen::rather(
                    &program.why,
                    unseen::hint(trace, postgres, Some(program.port))
                )
            );
        }
    }

    /// What the end of a recording says of them.
    pub fn remarks(&self) -> Vec<String> {
        let told = self.unseen.told().iter().map(unseen::Program::remark);
        told.chain(left::remark(self.preload.folder())).collect()
    }

    /// Resolves when the process that was started has ended.
    pub async fn ended(&mut self) -> Result<ExitStatus, CliError> {
        let ended = self.child.wait().await;
        ended.map_err(|error| CliError::because("the service cannot be waited for", &error))
    }

    /// Passes on what the recorder was sent, also to what a command that only starts another one
    /// has started. What a terminal sends, it sends to the service, too.
    pub fn signal(&self, kind: SignalKind) {
        if is_of_terminals(kind) && is_in_foreground() {
            return;
        }
        if let Some(pid) = self.child.id() {
            for pid in with_started(pid) {
                // SAFETY: a plain system call. The process that was started has not been waited
                // for, so it is ours, and what it waits for is there.
                unsafe { libc::kill(pid as i32, kind.as_raw_value()) };
            }
        }
    }
}

/// Variables by which runtimes that draw a seed when they start, for the order in which they go
/// through sets and tables of hashes, use one that a replay has, too; but for those that the user
/// has set. Each recording has others.
pub fn seeds() -> Vec<(&'static str, String)> {
    let drawn = RandomState::new().build_hasher().finish();
    let seeds = [
        ("PYTHONHASHSEED", (drawn as u32).to_string()),
        ("PERL_HASH_SEED", format!("{drawn:#018x}")),
        // Else the order depends on all that the process has put into any table before.
        ("PERL_PERTURB_KEYS", "NO".to_owned()),
    ];
    let is_free = |name: &str| std::env::var_os(name).is_none();
    seeds
        .into_iter()
        .filter(|(name, _)| is_free(name))
        .collect()
}

/// What a replay needs to start it again.
pub fn launch(command: &[OsString], seeds: &[(&str, String)]) -> Launch {
    if command.is_empty() {
        return Launch::default();
    }
    let seeds = seeds.iter().map(|(name, value)| format!("{name}={value}"));
    let text = |text: &OsString| text.to_string_lossy().into_owned();
    let folder = std::env::current_dir().unwrap_or_default();
    let kept = |(name, value): (OsString, OsString)| {
        let (name, value) = (text(&name), text(&value));
        match is_secret(&name, &value) {
            true => name,
            false => format!("{name}={value}"),
        }
    };
    let theirs = |(name, _): &(OsString, OsString)| !OURS.iter().any(|ours| name == ours);
    Launch {
        command: command.iter().map(text).collect(),
        directory: folder.to_string_lossy().into_owned(),
        environment: std::env::vars_os()
            .filter(theirs)
            .map(kept)
            .chain(seeds)
            .collect(),
    }
}

/// By what it is called, or a URL with a password in it.
fn is_secret(name: &str, value: &str) -> bool {
    const NAMES: [&str; 9] = [
        "PASS",
        "SECRET",
        "TOKEN",
        "KEY",
        "CREDENTIAL",
        "AUTH",
        "SALT",
        "COOKIE",
        "PRIVATE",
    ];
    let name = name.to_ascii_uppercase();
    NAMES.iter().any(|word| name.contains(word)) || secret::masked(value) != value
}

/// Whether keys of the terminal reach our process group.
fn is_in_foreground() -> bool {
    // SAFETY: plain system calls.
    std::io::stdin().is_terminal() && unsafe { libc::tcgetpgrp(0) == libc::getpgrp() }
}

/// What a shell would say of how it ended.
pub fn exit(status: ExitStatus) -> Exit {
    let signalled = |signal| 128u8.wrapping_add(signal as u8);
    let code = status.code().map(|code| code as u8);
    Exit::Program(code.or(status.signal().map(signalled)).unwrap_or_default())
}

/// How it ended, in words.
pub fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("with exit status {code}"),
        (None, Some(signal)) => format!("by signal {signal}"),
        (None, None) => status.to_string(),
    }
}
