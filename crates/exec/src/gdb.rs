//! Replay under gdb: the debugger runs as always, its inferior is the recorded program with
//! everything in place.
//!
//! gdb inherits the descriptors and its inferior inherits them from gdb. Arguments and environment
//! must be those of the recording byte by byte, and gdb would quote the ones and add to the others;
//! so gdb starts the inferior by a wrapper, which is this program again: it becomes the recorded
//! image (see [`become_recorded`]).

use std::ffi::OsString;
use std::path::Path;

use crate::error::ExecError;
use crate::launch::{self, Image};
use crate::recording::Recording;

/// A moment of a thread: just before it replays this event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogicalTime {
    pub thread: u64,
    pub event: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Debugger {
    pub break_at: Option<LogicalTime>,
    /// More arguments for gdb.
    pub arguments: Vec<OsString>,
    /// The command that becomes the recorded program: its words, each of which the shell is to
    /// take as it is.
    pub wrapper: Vec<OsString>,
}

/// How gdb is started to debug `program`.
pub fn image(debugger: &Debugger, program: &Image) -> Result<Image, ExecError> {
    let folder = std::env::current_dir().unwrap_or_else(|_| "/".into());
    let found = crate::program::find(
        &["gdb".into()],
        std::env::var_os("PATH").as_deref(),
        &folder,
    )?;
    let mut arguments: Vec<OsString> = vec!["gdb".into(), "-q".into()];
    for command in commands(debugger) {
        arguments.extend(["-ex".into(), command]);
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

fn commands(debugger: &Debugger) -> Vec<OsString> {
    let mut wrapper = OsString::from("set exec-wrapper");
    for word in &debugger.wrapper {
        wrapper.push(" ");
        wrapper.push(quoted(word));
    }
    let mut made: Vec<OsString> = vec![
        "set disable-randomization on".into(),
        "set breakpoint pending on".into(),
        wrapper,
        // System calls that no stub covers.
        "handle SIGSYS nostop noprint pass".into(),
        // `rdtsc` and `cpuid` trap; a real fault has a code that says what kind it is.
        "handle SIGSEGV nostop noprint pass".into(),
        "catch signal SIGSEGV".into(),
        "condition $bpnum $_siginfo.si_code > 0 && $_siginfo.si_code < 128".into(),
    ];
    if debugger.break_at.is_some() {
        made.push("break hindcast_breakpoint".into());
    }
    made
}

/// For `/bin/sh`, whatever is in it.
fn quoted(word: &OsString) -> OsString {
    use std::os::unix::ffi::{OsStrExt, OsStringExt};
    let mut made = vec![b'\''];
    for byte in word.as_bytes() {
        match byte {
            b'\'' => made.extend(b"'\\''"),
            byte => made.push(*byte),
        }
    }
    made.push(b'\'');
    OsString::from_vec(made)
}

/// Becomes the program of a recording, in a process that has inherited the descriptors from the
/// launcher. Does not return when that succeeds.
pub fn become_recorded(folder: &Path) -> ExecError {
    let recording = match Recording::open(folder) {
        Ok(recording) => recording,
        Err(error) => return error.into(),
    };
    match recording.own_interfaces(folder) {
        Ok(own) => {
            launch::clear_board();
            launch::become_image(&recording.image(), &launch::preload(own.len())).into()
        }
        Err(error) => error.into(),
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    #[test]
    fn gdb_is_told_everything_before_the_user_says_run() {
        let debugger = Debugger {
            break_at: Some(LogicalTime {
                thread: 1,
                event: 2,
            }),
            arguments: Vec::new(),
            wrapper: vec![
                "/opt/it's here/hindcast".into(),
                "exec".into(),
                "--become".into(),
                "/tmp/a b".into(),
            ],
        };
        let text: Vec<_> = commands(&debugger)
            .into_iter()
            .map(|command| command.into_string().unwrap())
            .collect();
        expect![[r#"
            set disable-randomization on
            set breakpoint pending on
            set exec-wrapper '/opt/it'\''s here/hindcast' 'exec' '--become' '/tmp/a b'
            handle SIGSYS nostop noprint pass
            handle SIGSEGV nostop noprint pass
            catch signal SIGSEGV
            condition $bpnum $_siginfo.si_code > 0 && $_siginfo.si_code < 128
            break hindcast_breakpoint"#]]
        .assert_eq(&text.join("\n"));
    }
}
