//! Replay under gdb: the debugger runs as always, its inferior is the recorded program with
//! everything in place.
//!
//! gdb inherits the descriptors and its inferior inherits them from gdb. Arguments and environment
//! must be those of the recording byte by byte, and gdb would quote the ones and add to the others;
//! so gdb starts the inferior by a wrapper, which is this program again: it becomes the recorded
//! image (see [`become_recorded`]).

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use hindcast_execlog::Config;
use hindcast_execlog::config::{BeginsAt, descriptors};

use crate::checkpoint::Checkpoint;
use crate::error::{ExecError, system};
use crate::launch::{self, Image};
use crate::log::LogicalTime;
use crate::preflight;
use crate::recording::Recording;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Debugger {
    pub break_at: Option<LogicalTime>,
    /// More arguments for gdb.
    pub arguments: Vec<OsString>,
    /// This program, which becomes the recorded one.
    pub hindcast: PathBuf,
}

/// How gdb is started to debug `program` of the recording in `recording`. What it reads is put into
/// `room`.
pub fn image(
    debugger: &Debugger,
    recording: &Path,
    program: &Image,
    room: &Path,
) -> Result<Image, ExecError> {
    let recording = std::path::absolute(recording).map_err(system("the current folder is gone"))?;
    let scripts = [
        ("commands", commands(debugger, &recording)),
        ("back.py", back(debugger)),
    ]
    .map(|(name, content)| (room.join(name), content));
    for (path, content) in &scripts {
        hindcast_private::write(path, content)
            .map_err(system("the commands for gdb cannot be written"))?;
    }
    let folder = std::env::current_dir().unwrap_or_else(|_| "/".into());
    let found = crate::program::find(
        &["gdb".into()],
        std::env::var_os("PATH").as_deref(),
        &folder,
    )?;
    let mut arguments: Vec<OsString> = vec!["gdb".into(), "-q".into()];
    for (path, _) in scripts {
        arguments.extend(["-x".into(), path.into()]);
    }
    // Before the user's own, so that `run` among these finds everything in place.
    arguments.extend(debugger.arguments.iter().cloned());
    if debugger.break_at.is_some() && debugger.arguments.is_empty() {
        arguments.extend(["-ex".into(), "run".into()]);
    }
    arguments.push(program.path.clone().into());
    let mut environment: Vec<OsString> = std::env::vars_os()
        .filter(|(name, _)| name != "SHELL")
        .map(|(mut name, value)| {
            name.push("=");
            name.push(value);
            name
        })
        .collect();
    // What runs the wrapper: a shell of which the syntax is known.
    environment.push("SHELL=/bin/sh".into());
    Ok(Image {
        path: found.path,
        arguments,
        environment,
        folder: None,
        stack_limit: launch::stack_limit(),
    })
}

fn commands(debugger: &Debugger, recording: &Path) -> Vec<u8> {
    let hindcast = quoted(debugger.hindcast.as_os_str());
    let recording = quoted(recording.as_os_str());
    let lines: [&[u8]; 12] = [
        b"set disable-randomization on",
        b"set breakpoint pending on",
        &[b"set exec-wrapper ", &hindcast[..], b" 'exec' '--become' ", &recording, b" '--'"].concat(),
        // System calls that no stub covers.
        b"handle SIGSYS nostop noprint pass",
        // `rdtsc` and `cpuid` trap; a real fault has a code that says what kind it is.
        b"handle SIGSEGV nostop noprint pass",
        b"catch signal SIGSEGV",
        b"condition $bpnum $_siginfo.si_code > 0 && $_siginfo.si_code < 128",
        b"break hindcast_breakpoint",
        b"break hindcast_restored\ncommands\nsilent\ncontinue\nend",
        // The launcher's page is inherited by what gdb runs.
        &[b"define hindcast-at\nshell ", &hindcast[..], b" 'exec' '--aim' $arg0"].concat(),
        b"set confirm off\nrun\nset confirm on\nend",
        b"document hindcast-at\nGo to just before an event of a thread, forwards or backwards, from the nearest checkpoint: hindcast-at 2:1234\nend",
    ];
    let mut made = lines.join(&b'\n');
    made.push(b'\n');
    made
}

/// The command that goes back, which is written in Python.
fn back(debugger: &Debugger) -> Vec<u8> {
    let path = debugger.hindcast.as_os_str().as_bytes();
    let escaped: String = path.iter().map(|byte| format!("\\x{byte:02x}")).collect();
    format!("{}\n\nBack(b\"{escaped}\")\n", include_str!("gdb_back.py")).into_bytes()
}

/// For `/bin/sh`, whatever is in it.
fn quoted(word: &OsStr) -> Vec<u8> {
    let mut made = vec![b'\''];
    for byte in word.as_bytes() {
        match byte {
            b'\'' => made.extend(b"'\\''"),
            byte => made.push(*byte),
        }
    }
    made.push(b'\'');
    made
}

/// Becomes the program of a recording, in a process that has inherited the descriptors from the
/// launcher: at its beginning, or at the nearest checkpoint if the launcher's page says so. Does
/// not return when that succeeds.
pub fn become_recorded(folder: &Path) -> ExecError {
    match prepare(folder) {
        Ok((image, preload)) => launch::become_image(&image, &preload).into(),
        Err(error) => error,
    }
}

fn prepare(folder: &Path) -> Result<(Image, String), ExecError> {
    let recording = Recording::open(folder)?;
    let preload = launch::preload(recording.own_interfaces(folder)?.len());
    launch::clear_board();
    let page = launch::inherited(descriptors::CONFIG);
    let mut config = read_config(&page)?;
    if config.begins_at == BeginsAt::Beginning as u32 {
        return Ok((recording.image(), preload));
    }
    let at = LogicalTime {
        thread: config.break_thread,
        event: config.break_event,
    };
    let before = Checkpoint::before(folder, &recording, &preflight::here(), at);
    let found = before.into_iter().nth(config.passed_over as usize);
    config.begins_at = match found {
        Some(_) => BeginsAt::Checkpoint,
        None => BeginsAt::Nearest,
    } as u32;
    write_config(&page, &config)?;
    let Some(checkpoint) = found else {
        return Ok((recording.image(), preload));
    };
    checkpoint
        .inherit()
        .map_err(system("the checkpoint cannot be read"))?;
    Ok((checkpoint.image(&recording), preload))
}

/// Has the next start stop at this moment, from the nearest checkpoint but so many: in a process
/// that has inherited the launcher's page. How many checkpoints there are before.
pub fn aim(at: LogicalTime, passed_over: u32) -> Result<usize, ExecError> {
    let folder = PathBuf::from(format!("/proc/self/fd/{}", descriptors::FOLDER));
    let recording = Recording::open(&folder)?;
    let before = Checkpoint::before(&folder, &recording, &preflight::here(), at);
    let page = launch::inherited(descriptors::CONFIG);
    let mut config = read_config(&page)?;
    config.begins_at = BeginsAt::Nearest as u32;
    config.passed_over = passed_over;
    (config.break_thread, config.break_event) = (at.thread, at.event);
    write_config(&page, &config)?;
    Ok(before.len())
}

fn read_config(page: &File) -> Result<Config, ExecError> {
    let mut bytes = vec![0; size_of::<Config>()];
    page.read_exact_at(&mut bytes, 0)
        .ok()
        .and_then(|()| Config::from_bytes(&bytes))
        .ok_or_else(|| {
            system("this is no process of a replay under gdb")(
                std::io::ErrorKind::InvalidData.into(),
            )
        })
}

fn write_config(page: &File, config: &Config) -> Result<(), ExecError> {
    page.write_all_at(config.as_bytes(), 0)
        .map_err(system("the launcher's page cannot be written"))
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    #[test]
    fn gdb_is_told_everything_before_the_user_says_run() {
        let debugger = Debugger {
            break_at: None,
            arguments: Vec::new(),
            hindcast: "/opt/it's here/hindcast".into(),
        };
        let text = String::from_utf8(commands(&debugger, Path::new("/tmp/a b"))).unwrap();
        expect![[r#"
            set disable-randomization on
            set breakpoint pending on
            set exec-wrapper '/opt/it'\''s here/hindcast' 'exec' '--become' '/tmp/a b' '--'
            handle SIGSYS nostop noprint pass
            handle SIGSEGV nostop noprint pass
            catch signal SIGSEGV
            condition $bpnum $_siginfo.si_code > 0 && $_siginfo.si_code < 128
            break hindcast_breakpoint
            break hindcast_restored
            commands
            silent
            continue
            end
            define hindcast-at
            shell '/opt/it'\''s here/hindcast' 'exec' '--aim' $arg0
            set confirm off
            run
            set confirm on
            end
            document hindcast-at
            Go to just before an event of a thread, forwards or backwards, from the nearest checkpoint: hindcast-at 2:1234
            end
        "#]].assert_eq(&text);
    }
}
