//! Child processes that cannot be left behind.

use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crate::wait_for;

/// A running child process, its output in a file. Dropping it kills it and what it started.
pub struct Process {
    name: String,
    child: Child,
    log: PathBuf,
    /// Once it is known: the child was waited for, and its process id may belong to somebody else.
    status: Option<ExitStatus>,
}

/// What is left of a process.
#[derive(Debug)]
pub struct Finished {
    pub name: String,
    /// `None` if a signal ended it.
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Finished {
    /// # Panics
    /// If the exit code is another one; shows the output.
    #[track_caller]
    pub fn assert_code(self, expected: i32) -> Self {
        let Self {
            name,
            code,
            stdout,
            stderr,
        } = &self;
        assert!(
            *code == Some(expected),
            "{name} ended with {code:?} instead of {expected}\n-- stdout\n{stdout}\n-- stderr\n{stderr}"
        );
        self
    }
}

impl Process {
    /// Starts `command`; its output goes to `NAME.out` and `NAME.err` in `folder`.
    pub fn start(name: &str, command: Command, folder: &Path) -> Self {
        Self::start_with(name, command, folder, Stdio::null())
    }

    /// The same with something to read from.
    pub fn start_with(name: &str, mut command: Command, folder: &Path, input: Stdio) -> Self {
        let log = folder.join(format!("{name}.err"));
        let create = |path: &Path| {
            File::create(path)
                .unwrap_or_else(|error| panic!("cannot write {}: {error}", path.display()))
        };
        let child = command
            .stdin(input)
            .stdout(create(&log.with_extension("out")))
            .stderr(create(&log))
            // Signals go to the whole group: a shell that started the service may not pass them on.
            .process_group(0)
            .spawn()
            .unwrap_or_else(|error| panic!("cannot start {name} ({command:?}): {error}"));
        Self {
            name: name.to_owned(),
            child,
            log,
            status: None,
        }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Where its output is: standard output, standard error.
    pub fn output_files(&self) -> [PathBuf; 2] {
        [self.log.with_extension("out"), self.log.clone()]
    }

    /// What it has written to its standard output so far.
    pub fn stdout(&self) -> String {
        read(&self.log.with_extension("out"))
    }

    pub fn stderr(&self) -> String {
        read(&self.log)
    }

    pub fn is_running(&mut self) -> bool {
        if self.status.is_none() {
            self.status = self
                .child
                .try_wait()
                .unwrap_or_else(|error| panic!("cannot wait for {}: {error}", self.name));
        }
        self.status.is_none()
    }

    /// Waits until `fact` yields something.
    ///
    /// # Panics
    /// If it takes too long, or the process ends before; shows its output.
    #[track_caller]
    pub fn wait_until<T>(&mut self, what: &str, mut fact: impl FnMut() -> Option<T>) -> T {
        wait_for(what, || {
            let found = fact();
            if found.is_none() && !self.is_running() {
                let (stdout, stderr) = (self.stdout(), self.stderr());
                panic!(
                    "{} ended ({:?}) before {what}\n-- stdout\n{stdout}\n-- stderr\n{stderr}",
                    self.name, self.status
                );
            }
            found
        })
    }

    /// Waits until it accepts connections on a port of 127.0.0.1.
    #[track_caller]
    pub fn wait_until_it_listens(&mut self, port: u16) {
        let what = format!("{} to listen on port {port}", self.name);
        self.wait_until(&what, || {
            std::net::TcpStream::connect(("127.0.0.1", port)).ok()
        });
    }

    /// Waits until it handles Ctrl-C itself. Before that, when it has only just started, it simply
    /// ends of it.
    #[track_caller]
    pub fn wait_until_it_catches_interrupts(&mut self) {
        const SIGINT: u64 = 1 << (2 - 1);
        let status = format!("/proc/{}/status", self.child.id());
        self.wait_until("it to catch interrupts", || {
            let status = std::fs::read_to_string(&status).ok()?;
            let caught = status
                .lines()
                .find_map(|line| line.strip_prefix("SigCgt:"))?;
            let caught = u64::from_str_radix(caught.trim(), 16).ok()?;
            (caught & SIGINT != 0).then_some(())
        });
    }

    /// Sends it alone what Ctrl-C sends, and waits for the end. Who passes signals on passes this
    /// on: sent to the group, what it started would get it twice, and many end at once then.
    pub fn interrupt(self) -> Finished {
        self.signal_alone("INT");
        self.wait()
    }

    /// Asks it to end, and waits.
    pub fn stop(self) -> Finished {
        self.signal("TERM");
        self.wait()
    }

    /// Ends it without giving it a chance to do anything about it.
    pub fn kill(self) -> Finished {
        self.signal("KILL");
        self.wait()
    }

    /// Sends a signal to the process and what it started.
    pub fn signal(&self, signal: &str) {
        if self.status.is_none() {
            send(signal, self.child.id());
        }
    }

    /// Sends a signal to the process alone, as who knows its number would.
    pub fn signal_alone(&self, signal: &str) {
        if self.status.is_none() {
            let _ = Command::new("kill")
                .args([&format!("-{signal}"), &self.child.id().to_string()])
                .stderr(Stdio::null())
                .status();
        }
    }

    /// How it ended, if it did within this time.
    pub fn ended_within(&mut self, patience: Duration) -> Option<ExitStatus> {
        let begun = Instant::now();
        while self.is_running() {
            if begun.elapsed() > patience {
                return None;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        self.status
    }

    /// Waits for the end.
    pub fn wait(mut self) -> Finished {
        let name = self.name.clone();
        wait_for(&format!("{name} to end"), || {
            (!self.is_running()).then_some(())
        });
        let code = self.status.and_then(|status| status.code());
        Finished {
            name,
            code,
            stdout: self.stdout(),
            stderr: self.stderr(),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.is_running() {
            send("KILL", self.child.id());
            // It was just killed, so this does not take long.
            let _ = self.child.wait();
        }
    }
}

/// To a process group that we made, so its leader's id is still ours as long as the leader was not
/// waited for.
fn send(signal: &str, group: u32) {
    let _ = Command::new("kill")
        .args([&format!("-{signal}"), "--", &format!("-{group}")])
        .stderr(Stdio::null())
        .status();
}

fn read(path: &Path) -> String {
    String::from_utf8_lossy(&std::fs::read(path).unwrap_or_default()).into_owned()
}
