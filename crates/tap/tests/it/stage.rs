//! Starts programs with the tap, and reads what it told.

use std::collections::{BTreeMap, BTreeSet};
use std::net::TcpStream;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use hindcast_spool::{Drain, Entry, Program, Reader, SharedBoard, spool};
use hindcast_taplog::pins::Reading;
use hindcast_taplog::{CAPACITY_VARIABLE, Direction, How, Told};

/// For what should take no time.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The library, which cargo builds beside the tests.
pub fn library() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let library = test.with_file_name("libhindcast_tap.so");
    assert!(library.exists(), "{} was not built", library.display());
    library
}

/// A test program in C, built once.
pub fn built(name: &str) -> PathBuf {
    built_with(name, name, &[])
}

/// The same under another name, with more flags.
pub fn built_with(name: &str, called: &str, flags: &[&str]) -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join(called);
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/programs/{name}.c"));
    // Each test has its own, or one would execute what another is writing.
    let own = target.with_extension(format!("{:?}", std::thread::current().id()));
    let status = Command::new("cc")
        .args(["-O1", "-pthread", "-D_FORTIFY_SOURCE=2", "-Wall"])
        .args(flags)
        .arg("-o")
        .args([&own, &source])
        .status()
        .expect("there is a C compiler");
    assert!(status.success(), "{name} does not compile");
    own
}

pub fn free_port() -> u16 {
    hindcast_cluster::free_port().expect("not all ports are taken")
}

/// The server may take a while to begin.
pub fn connect(port: u16) -> TcpStream {
    let begun = Instant::now();
    loop {
        match TcpStream::connect(("127.0.0.1", port)) {
            Ok(stream) => return stream,
            Err(error) if begun.elapsed() > PATIENCE => panic!("{error}"),
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

/// A recorder.
pub struct Recorder {
    spool: Reader,
    variable: (&'static str, String),
    stop: Arc<AtomicBool>,
    drain: JoinHandle<Drain>,
}

impl Recorder {
    pub fn start() -> Self {
        Self::with_limit(u64::MAX)
    }

    pub fn with_limit(limit: u64) -> Self {
        Self::of(Drain::new().unwrap(), limit)
    }

    pub fn with_board(board: Arc<SharedBoard>) -> Self {
        Self::of(Drain::with_board(board).unwrap(), u64::MAX)
    }

    fn of(mut drain: Drain, limit: u64) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let variable = drain.variable();
        let (mut writer, spool) = spool(folder.path(), limit).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let drain = std::thread::spawn(move || {
            drain.run(&mut writer, &stopped).unwrap();
            drain
        });
        Self {
            spool,
            variable,
            stop,
            drain,
        }
    }

    /// The same command, recorded.
    pub fn tap(&self, command: &mut Command) {
        command
            .env("LD_PRELOAD", library())
            .env(self.variable.0, &self.variable.1);
    }

    /// Ends it, and reads what it has.
    pub fn stop(mut self) -> Heard {
        self.stop.store(true, Ordering::Relaxed);
        let drain = self.drain.join().unwrap();
        let mut heard = Heard {
            refused: drain.refused(),
            ..Heard::default()
        };
        while let Some(entry) = self.spool.read().unwrap() {
            heard.hear(entry);
        }
        heard
    }
}

/// What taps told, put together.
#[derive(Debug, Default)]
pub struct Heard {
    pub refused: u64,
    pub programs: Vec<Program>,
    pub streams: BTreeMap<u64, Stream>,
    pub threads: BTreeSet<u32>,
    /// Of the wall clock, by request and number.
    pub readings: BTreeMap<(u64, u16), Reading>,
    pub rings: usize,
    pub lost_records: u64,
    pub lost_bytes: u64,
}

#[derive(Debug, Default)]
pub struct Stream {
    pub opened: Vec<(How, String, String)>,
    /// By direction, as `(moment, bytes)`.
    told: [Vec<(u64, Vec<u8>)>; 2],
    pub unseen: [u64; 2],
    pub ended: [u32; 2],
    pub encrypted: bool,
    pub closed: u32,
}

impl Heard {
    fn hear(&mut self, entry: Entry<'_>) {
        match entry {
            Entry::Ring { program, .. } => {
                self.rings += 1;
                self.programs.push(program);
            }
            Entry::Garbled { ring } => panic!("ring {ring} holds nonsense"),
            Entry::Told { told, .. } => told.for_each(|(at, told)| self.told(at, &told)),
            Entry::Ended { .. } | Entry::Looked { .. } => {}
            Entry::Noted(_) | Entry::About(_) => panic!("a drain notes nothing"),
        }
    }

    fn told(&mut self, at: u64, told: &Told<'_>) {
        match *told {
            Told::Thread { tid } => {
                self.threads.insert(tid);
            }
            Told::Opened {
                stream,
                how,
                local,
                peer,
            } => {
                let text = |name| String::from_utf8_lossy(name).into_owned();
                let opened = (how, text(local), text(peer));
                self.stream(stream).opened.push(opened);
            }
            Told::Turn { .. } => {}
            Told::Reading {
                request,
                n,
                reading,
            } => {
                self.readings.insert((request, n), reading);
            }
            Told::Bytes {
                stream,
                direction,
                bytes,
            } => self.stream(stream).told[direction as usize].push((at, bytes.to_vec())),
            Told::Unseen {
                stream,
                direction,
                length,
            } => self.stream(stream).unseen[direction as usize] += length,
            Told::Ended { stream, direction } => {
                self.stream(stream).ended[direction as usize] += 1;
            }
            Told::Encrypted { stream } => self.stream(stream).encrypted = true,
            Told::Closed { stream } => self.stream(stream).closed += 1,
            Told::Lost { records, bytes, .. } => {
                self.lost_records += records;
                self.lost_bytes += bytes;
            }
        }
    }

    fn stream(&mut self, stream: u64) -> &mut Stream {
        self.streams.entry(stream).or_default()
    }

    /// The stream of which these bytes were written first.
    pub fn writing(&self, first: &str) -> &Stream {
        let begins = |stream: &&Stream| stream.text(Direction::Out).starts_with(first);
        self.streams.values().find(begins).unwrap_or_else(|| {
            let all: Vec<String> = self
                .streams
                .values()
                .map(|s| s.text(Direction::Out))
                .collect();
            panic!("nothing begins with {first}: {all:?}")
        })
    }

    pub fn bytes(&self, direction: Direction) -> u64 {
        let all = self.streams.values();
        all.map(|stream| stream.bytes(direction).len() as u64).sum()
    }
}

impl Stream {
    /// In the order of their moments, whichever threads and processes told them.
    pub fn bytes(&self, direction: Direction) -> Vec<u8> {
        let mut told: Vec<_> = self.told[direction as usize].iter().collect();
        told.sort_by_key(|(at, _)| *at);
        told.into_iter()
            .flat_map(|(_, bytes)| bytes)
            .copied()
            .collect()
    }

    pub fn text(&self, direction: Direction) -> String {
        String::from_utf8_lossy(&self.bytes(direction)).into_owned()
    }
}

/// A command whose descriptors from 3 on are these.
pub fn with_descriptors(program: &Path, descriptors: Vec<OwnedFd>) -> Command {
    let mut command = Command::new(program);
    let place = move || {
        for (to, from) in (3..).zip(&descriptors) {
            // SAFETY: plain system calls in a child that has done nothing yet.
            unsafe {
                if from.as_raw_fd() == to {
                    libc::fcntl(to, libc::F_SETFD, 0);
                } else if libc::dup2(from.as_raw_fd(), to) < 0 {
                    return Err(std::io::Error::last_os_error());
                }
            }
        }
        Ok(())
    };
    // SAFETY: as above.
    unsafe { command.pre_exec(place) };
    command
}

/// A descriptor far from those of a test program.
pub fn far(descriptor: impl Into<OwnedFd>) -> OwnedFd {
    use std::os::fd::FromRawFd;
    let descriptor = descriptor.into();
    // SAFETY: the copy is new, and ours.
    unsafe {
        let copy = libc::fcntl(descriptor.as_raw_fd(), libc::F_DUPFD_CLOEXEC, 300);
        assert!(copy >= 0);
        OwnedFd::from_raw_fd(copy)
    }
}

pub fn small_ring(command: &mut Command) {
    command.env(CAPACITY_VARIABLE, "65536");
}

/// Runs it to its end.
pub fn output(command: &mut Command) -> Output {
    command
        .stdin(Stdio::null())
        .output()
        .expect("the program can be started")
}

/// Ends with the test.
pub struct Service(Child);

impl Service {
    pub fn start(command: &mut Command) -> Self {
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        Self(command.spawn().expect("the program can be started"))
    }

    pub fn wait(mut self) -> ExitStatus {
        self.0.wait().unwrap()
    }

    /// Waits until all of its threads wait: it has told what it did.
    pub fn wait_until_idle(&self) {
        let tasks = format!("/proc/{}/task", self.0.id());
        let sleeps = |task: std::io::Result<std::fs::DirEntry>| {
            let stat = std::fs::read_to_string(task.unwrap().path().join("stat"));
            // A thread that has just ended does nothing either.
            stat.map_or(true, |stat| {
                stat.rsplit(')').next().unwrap().starts_with(" S")
            })
        };
        let begun = std::time::Instant::now();
        while !std::fs::read_dir(&tasks).unwrap().all(sleeps) {
            assert!(begun.elapsed() < PATIENCE, "it does not come to rest");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
