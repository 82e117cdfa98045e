//! Starts the program: the same image in both runs, with the runtime loaded and its shared pages in
//! place.
//!
//! What must be equal in both runs is equal here already: no address space randomisation, the same
//! path, arguments and environment byte by byte (they lie on the stack and decide where everything
//! below them is), the same limit of the stack (it decides where the kernel begins to map).
//! Everything else the runtime sees to.

use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd as _, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use hindcast_execlog::checkpoint::HALT_SIGNAL;
use hindcast_execlog::config::descriptors;
use hindcast_execlog::{Board, Config};

use crate::mapped::Mapped;
use crate::numbers::Numbers;

/// What `execve` is given, and what else decides about addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    pub path: PathBuf,
    /// With `argv[0]`.
    pub arguments: Vec<OsString>,
    /// `NAME=value`, in order, without anything of ours.
    pub environment: Vec<OsString>,
    /// Where it starts; `None` when that is of no importance, as in replay.
    pub folder: Option<PathBuf>,
    /// The soft limit of the stack, in bytes.
    pub stack_limit: u64,
}

#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    #[error("{what} failed")]
    System {
        what: &'static str,
        source: io::Error,
    },
    #[error("the recording's folder {} cannot be opened", path.display())]
    Folder { path: PathBuf, source: io::Error },
    #[error("{} cannot be executed", path.display())]
    Exec { path: PathBuf, source: io::Error },
    #[error("an argument or a variable of the environment has a NUL inside")]
    Nul,
}

fn failed(what: &'static str) -> LaunchError {
    LaunchError::System {
        what,
        source: io::Error::last_os_error(),
    }
}

/// A library of an interface of the user's own.
pub struct Interface {
    pub name: String,
    pub library: Vec<u8>,
}

/// Descriptors of a program that begins in its middle.
#[derive(Default)]
pub struct Opened {
    /// Under which numbers it has what, each of which has a higher number here.
    pub files: Vec<(OwnedFd, RawFd)>,
    pub watches: Vec<Watch>,
    /// Of the standard ones, those that it has not.
    pub closed: Vec<RawFd>,
    /// Its limits, by resource.
    pub limits: Vec<(u32, libc::rlimit)>,
}

/// What one of its sets watches, by its own numbers.
#[derive(Clone, Copy, Debug)]
pub struct Watch {
    pub set: RawFd,
    pub member: RawFd,
    pub events: u32,
    pub data: u64,
}

/// What the process inherits, ready to be handed over.
pub struct Stage {
    /// Which file becomes which descriptor.
    descriptors: Vec<(OwnedFd, RawFd)>,
    preload: String,
    opened: Opened,
    /// The numbers of its processes are its own; and that of the first, if it is known.
    numbers: Option<(Numbers, Option<libc::pid_t>)>,
    /// Where the runtime reports.
    pub board: Mapped<Board>,
}

impl Stage {
    /// `config` is completed with what only the launcher knows: what to preload.
    pub fn new(
        folder: &Path,
        mut config: Config,
        library: &[u8],
        interfaces: &[Interface],
    ) -> Result<Stage, LaunchError> {
        let preload = preload(interfaces.len());
        let mut handed = Vec::new();
        for (interface, descriptor) in interfaces
            .iter()
            .zip(descriptors::INTERFACES..descriptors::CHECKPOINT)
        {
            let name = format!("hindcast-interface-{}", interface.name);
            handed.push((memory_file(&name, &interface.library)?.into(), descriptor));
        }
        config.preload.set(&preload);

        let replay = config.run() == hindcast_execlog::config::Run::Replay;
        let board = memory_file("hindcast-board", &Board::prefix())?;
        board
            .set_len(Board::bytes() as u64)
            .map_err(|source| LaunchError::System {
                what: "making the board",
                source,
            })?;
        let shared = Mapped::to_write(&board)
            .and_then(|mapped| mapped.ok_or_else(|| io::ErrorKind::UnexpectedEof.into()))
            .map_err(|source| LaunchError::System {
                what: "mapping the board",
                source,
            })?;
        let opened = File::open(folder).map_err(|source| LaunchError::Folder {
            path: folder.into(),
            source,
        })?;
        handed.push((
            memory_file("hindcast-runtime", library)?.into(),
            descriptors::LIBRARY,
        ));
        handed.push((
            memory_file("hindcast-config", config.as_bytes())?.into(),
            descriptors::CONFIG,
        ));
        handed.push((board.into(), descriptors::BOARD));
        handed.push((opened.into(), descriptors::FOLDER));
        if replay {
            for (own, descriptor) in [(1, descriptors::STDOUT), (2, descriptors::STDERR)] {
                if let Some(copy) = duplicate(own) {
                    handed.push((copy, descriptor));
                }
            }
        }
        Ok(Stage {
            descriptors: handed,
            preload,
            opened: Opened::default(),
            numbers: None,
            board: shared,
        })
    }

    /// Hands over one more descriptor.
    pub fn hand(&mut self, file: OwnedFd, number: RawFd) {
        self.descriptors.push((file, number));
    }

    /// What is started with this one has numbers of its own, and is ended when this is dropped.
    pub(crate) fn hand_numbers(&mut self, numbers: Numbers, first: Option<libc::pid_t>) {
        self.numbers = Some((numbers, first));
    }

    /// The program has these from the beginning.
    pub fn hand_opened(&mut self, opened: Opened) {
        self.opened = opened;
    }

    /// Nothing more is started with this one.
    pub fn let_go(&mut self, number: RawFd) {
        self.descriptors.retain(|(_, handed)| *handed != number);
    }

    /// The board's file, by which a process of this run can be told.
    pub fn board_file(&self) -> Option<BorrowedFd<'_>> {
        let board = |(_, number): &&(OwnedFd, RawFd)| *number == descriptors::BOARD;
        self.descriptors
            .iter()
            .find(board)
            .map(|(file, _)| file.as_fd())
    }

    /// Puts what another launcher's board said in place of a fresh one.
    pub fn take_over(&mut self, board: Vec<u8>) -> io::Result<()> {
        match self.board_file() {
            Some(file) => take_over(&File::from(file.try_clone_to_owned()?), board),
            None => Ok(()),
        }
    }

    /// The environment of the program: its own, with our libraries before those that it preloads
    /// itself.
    pub fn environment(&self, own: &[OsString]) -> Vec<OsString> {
        preloading(own, &self.preload)
    }

    /// Runs in a forked child: only what is safe there.
    fn hand_over(&self) -> io::Result<()> {
        // A descriptor must be below the soft limit when it is made; it may be above it later. The
        // program finds the limit that it would have found without us.
        let mut limit = libc::rlimit {
            rlim_cur: 0,
            rlim_max: 0,
        };
        // SAFETY: plain system calls on values of this function.
        unsafe {
            check(libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit))?;
            let highest = self.opened.files.iter().map(|(_, number)| number + 1).max();
            let needed = descriptors::END.max(highest.unwrap_or(0)) as libc::rlim_t;
            let raised = libc::rlimit {
                rlim_cur: limit.rlim_cur.max(needed),
                rlim_max: limit.rlim_max,
            };
            check(libc::setrlimit(libc::RLIMIT_NOFILE, &raised))?;
            for (file, descriptor) in &self.descriptors {
                if file.as_raw_fd() == *descriptor {
                    check(libc::fcntl(*descriptor, libc::F_SETFD, 0))?;
                } else {
                    check(libc::dup2(file.as_raw_fd(), *descriptor))?;
                }
            }
            self.opened.hand_over()?;
            check(libc::setrlimit(libc::RLIMIT_NOFILE, &limit))?;
            for (resource, limit) in &self.opened.limits {
                check(libc::setrlimit(*resource, limit))?;
            }
        }
        Ok(())
    }
}

impl Opened {
    /// Runs in a forked child: only what is safe there.
    fn hand_over(&self) -> io::Result<()> {
        // SAFETY: plain system calls on values of this function.
        unsafe {
            for (file, number) in &self.files {
                check(libc::dup2(file.as_raw_fd(), *number))?;
            }
            for number in &self.closed {
                libc::close(*number);
            }
            for watch in &self.watches {
                let mut event = libc::epoll_event {
                    events: watch.events,
                    u64: watch.data,
                };
                let (set, add) = (watch.set, libc::EPOLL_CTL_ADD);
                check(libc::epoll_ctl(set, add, watch.member, &mut event))?;
            }
        }
        Ok(())
    }

    /// Another number of what this process needs while it hands these over: none of theirs.
    fn out_of_the_way(&self, file: OwnedFd) -> io::Result<OwnedFd> {
        let Some(highest) = self.files.iter().map(|(_, number)| *number).max() else {
            return Ok(file);
        };
        let above = highest.max(descriptors::END) + 1;
        // SAFETY: numbers; a fresh descriptor, owned from here on.
        unsafe {
            let moved = libc::fcntl(file.as_raw_fd(), libc::F_DUPFD_CLOEXEC, above);
            check(moved)?;
            Ok(OwnedFd::from_raw_fd(moved))
        }
    }
}

/// What `LD_PRELOAD` begins with: the same text in both runs and on every machine. A user's
/// interface comes before the runtime: what it annotates again, it means to have differently.
pub fn preload(interfaces: usize) -> String {
    let mut made = String::new();
    for descriptor in (descriptors::INTERFACES..descriptors::CHECKPOINT).take(interfaces) {
        made.push_str(&format!("/proc/self/fd/{descriptor}:"));
    }
    made.push_str(&format!("/proc/self/fd/{}", descriptors::LIBRARY));
    made
}

/// Clears an inherited board, which an earlier run under the same debugger may have written to.
pub fn clear_board() {
    // SAFETY: plain system calls on an inherited descriptor; one that is not there is an error that
    // changes nothing.
    unsafe {
        let prefix = Board::prefix();
        libc::ftruncate(descriptors::BOARD, 0);
        libc::ftruncate(descriptors::BOARD, Board::bytes() as libc::off_t);
        libc::pwrite(descriptors::BOARD, prefix.as_ptr().cast(), prefix.len(), 0);
    }
}

/// Puts what another launcher's board said on a fresh one, but for what that launcher wanted.
fn take_over(file: &File, mut board: Vec<u8>) -> io::Result<()> {
    for field in [
        std::mem::offset_of!(Board, report.state),
        std::mem::offset_of!(Board, halts),
        std::mem::offset_of!(Board, halted),
    ] {
        if let Some(bytes) = board.get_mut(field..field + size_of::<u32>()) {
            bytes.fill(0);
        }
    }
    // None are taken of a process with children.
    let members = std::mem::offset_of!(Board, first);
    let end = std::mem::offset_of!(Board, unrecorded) + size_of::<u32>();
    if let Some(bytes) = board.get_mut(members..end) {
        bytes.fill(0);
    }
    file.write_all_at(&board, 0)
}

/// In a process that has inherited the descriptors: as [`Stage::hand`] and [`Stage::take_over`].
pub fn take_over_inherited(board: Vec<u8>, file: &File, number: RawFd) -> io::Result<()> {
    // SAFETY: numbers.
    check(unsafe { libc::dup2(file.as_raw_fd(), number) })?;
    take_over(&inherited(descriptors::BOARD), board)
}

/// A file that was inherited from the launcher. It stays open.
pub fn inherited(number: RawFd) -> ManuallyDrop<File> {
    // SAFETY: it is never closed. One that is not there is an error of each use.
    ManuallyDrop::new(unsafe { File::from_raw_fd(number) })
}

/// `own` with `preload` before what `LD_PRELOAD` says there.
pub fn preloading(own: &[OsString], preload: &str) -> Vec<OsString> {
    const NAME: &[u8] = b"LD_PRELOAD=";
    let mut made: Vec<OsString> = own.to_vec();
    match made
        .iter_mut()
        .find(|variable| variable.as_bytes().starts_with(NAME))
    {
        Some(variable) => {
            let theirs = variable.as_bytes()[NAME.len()..].to_vec();
            let mut both = [NAME, preload.as_bytes()].concat();
            if !theirs.is_empty() {
                both.push(b':');
                both.extend(theirs);
            }
            *variable = OsString::from_vec(both);
        }
        None => made.push(format!("LD_PRELOAD={preload}").into()),
    }
    made
}

fn memory_file(name: &str, bytes: &[u8]) -> Result<File, LaunchError> {
    let name = CString::new(name).map_err(|_| LaunchError::Nul)?;
    // SAFETY: a fresh descriptor, owned from here on.
    let mut file = unsafe {
        let fd = libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC);
        if fd < 0 {
            return Err(failed("making a file in memory"));
        }
        File::from_raw_fd(fd)
    };
    file.write_all(bytes)
        .map_err(|source| LaunchError::System {
            what: "writing a file in memory",
            source,
        })?;
    Ok(file)
}

/// `None` where the launcher was started without it.
fn duplicate(descriptor: RawFd) -> Option<OwnedFd> {
    // SAFETY: a fresh descriptor, owned from here on.
    unsafe {
        let copy = libc::fcntl(descriptor, libc::F_DUPFD_CLOEXEC, 3);
        (copy >= 0).then(|| OwnedFd::from_raw_fd(copy))
    }
}

fn check(result: libc::c_int) -> io::Result<()> {
    match result {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Arguments of `execve`, made before the fork so that nothing is allocated after it.
struct Exec {
    path: CString,
    _texts: Vec<CString>,
    arguments: Vec<*const libc::c_char>,
    environment: Vec<*const libc::c_char>,
    folder: Option<CString>,
    stack_limit: u64,
}

impl Exec {
    fn new(image: &Image, environment: &[OsString]) -> Result<Exec, LaunchError> {
        let text = |text: &OsStr| CString::new(text.as_bytes()).map_err(|_| LaunchError::Nul);
        let mut texts = Vec::new();
        let mut list = |from: &[OsString]| -> Result<Vec<_>, LaunchError> {
            let mut pointers = Vec::new();
            for one in from {
                let one = text(one)?;
                // The bytes stay where they are when the `CString` is moved.
                pointers.push(one.as_ptr());
                texts.push(one);
            }
            pointers.push(std::ptr::null());
            Ok(pointers)
        };
        Ok(Exec {
            path: text(image.path.as_os_str())?,
            arguments: list(&image.arguments)?,
            environment: list(environment)?,
            folder: image
                .folder
                .as_ref()
                .map(|folder| text(folder.as_os_str()))
                .transpose()?,
            stack_limit: image.stack_limit,
            _texts: texts,
        })
    }

    /// Becomes the program; returns only when that failed. Safe in a forked child.
    fn become_it(&self) -> io::Error {
        // SAFETY: system calls on values that live for as long as `self`.
        unsafe {
            if let Some(folder) = &self.folder
                && libc::chdir(folder.as_ptr()) < 0
            {
                return io::Error::last_os_error();
            }
            let mut limit = libc::rlimit {
                rlim_cur: 0,
                rlim_max: 0,
            };
            if libc::getrlimit(libc::RLIMIT_STACK, &mut limit) == 0
                && limit.rlim_cur != self.stack_limit
            {
                limit.rlim_cur = self.stack_limit.min(limit.rlim_max);
                libc::setrlimit(libc::RLIMIT_STACK, &limit);
            }
            if libc::personality(0xffff_ffff) & libc::ADDR_NO_RANDOMIZE == 0 {
                libc::personality(
                    (libc::personality(0xffff_ffff) | libc::ADDR_NO_RANDOMIZE) as libc::c_ulong,
                );
            }
            libc::execve(
                self.path.as_ptr(),
                self.arguments.as_ptr(),
                self.environment.as_ptr(),
            );
        }
        io::Error::last_os_error()
    }
}

/// The soft limit of this process' stack.
pub fn stack_limit() -> u64 {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: writes one value.
    match unsafe { libc::getrlimit(libc::RLIMIT_STACK, &mut limit) } {
        0 => limit.rlim_cur,
        _ => 8 << 20,
    }
}

/// How a child is started beside what its image says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// The launcher's death is none of its business.
    Free,
    /// Ends with the launcher, and reads nothing from its standard input.
    Bound,
    /// A debugger: ends with the launcher, and has the terminal.
    Debugger,
}

/// Starts `image` with what `stage` hands over.
pub fn start(image: &Image, stage: &Stage, manner: Manner) -> Result<libc::pid_t, LaunchError> {
    let environment = match manner {
        // The debugger itself runs without the runtime; its inferior gets it.
        Manner::Debugger => image.environment.clone(),
        _ => stage.environment(&image.environment),
    };
    let exec = Exec::new(image, &environment)?;
    let null = File::open("/dev/null").map_err(|source| LaunchError::System {
        what: "opening /dev/null",
        source,
    })?;
    let (mut failure, report) = pipe()?;
    let out_of_the_way = |file: File| {
        let moved = stage.opened.out_of_the_way(file.into());
        moved.map_err(|source| LaunchError::System {
            what: "making room for descriptors",
            source,
        })
    };
    let (null, report) = (out_of_the_way(null)?, out_of_the_way(report)?);
    let launcher = std::process::id() as libc::pid_t;

    let pid = match &stage.numbers {
        Some((numbers, first)) => numbers.fork(*first).unwrap_or(-1),
        // SAFETY: the child makes only system calls until it has become the program.
        None => unsafe { libc::fork() },
    };
    match pid {
        -1 => return Err(failed("fork")),
        0 => {
            // Seen from another namespace the launcher has no number.
            let parent = if stage.numbers.is_some() { 0 } else { launcher };
            let error = in_child(&exec, stage, manner, null.as_raw_fd(), parent);
            let code = error.raw_os_error().unwrap_or(libc::EINVAL).to_ne_bytes();
            // SAFETY: writes from a live array; ends this process without running anything of the
            // parent's.
            unsafe {
                libc::write(report.as_raw_fd(), code.as_ptr().cast(), code.len());
                libc::_exit(127)
            }
        }
        _ => {}
    }
    drop(report);
    let mut code = [0; 4];
    match failure.read_exact(&mut code) {
        // Closed by a successful `execve`.
        Err(_) => Ok(pid),
        Ok(()) => {
            // SAFETY: reaps the child that has just failed.
            unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) };
            let source = io::Error::from_raw_os_error(i32::from_ne_bytes(code));
            Err(LaunchError::Exec {
                path: image.path.clone(),
                source,
            })
        }
    }
}

fn in_child(
    exec: &Exec,
    stage: &Stage,
    manner: Manner,
    null: RawFd,
    launcher: libc::pid_t,
) -> io::Error {
    // SAFETY: plain system calls; nothing is allocated.
    unsafe {
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut none);
        if manner == Manner::Bound {
            // Until somebody listens.
            libc::sigaddset(&mut none, HALT_SIGNAL);
        }
        libc::sigprocmask(libc::SIG_SETMASK, &none, std::ptr::null_mut());
        // Rust's start-up ignores it; programs expect it as it was.
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
        if manner != Manner::Free {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            if libc::getppid() != launcher {
                libc::_exit(127);
            }
        }
        if manner == Manner::Bound && libc::dup2(null, 0) < 0 {
            return io::Error::last_os_error();
        }
    }
    match stage.hand_over() {
        Ok(()) => exec.become_it(),
        Err(error) => error,
    }
}

fn pipe() -> Result<(File, File), LaunchError> {
    let mut ends = [0; 2];
    // SAFETY: two fresh descriptors, owned from here on.
    unsafe {
        match libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) {
            0 => Ok((File::from_raw_fd(ends[0]), File::from_raw_fd(ends[1]))),
            _ => Err(failed("making a pipe")),
        }
    }
}

/// Becomes `image` in place of this process: what a debugger's wrapper does, in a process that has
/// inherited the descriptors.
pub fn become_image(image: &Image, preload: &str) -> LaunchError {
    match Exec::new(image, &preloading(&image.environment, preload)) {
        Ok(exec) => LaunchError::Exec {
            path: image.path.clone(),
            source: exec.become_it(),
        },
        Err(error) => error,
    }
}
