//! How a process enters recording or replay, and how its threads and children do.

use std::sync::atomic::{AtomicPtr, Ordering};

use hindcast_execlog::board::State;
use hindcast_execlog::config::{Run, descriptors};
use hindcast_execlog::event::Kind;
use hindcast_execlog::files::End;
use hindcast_execlog::{Board, Config, ProcessHeader};

use crate::detach::{self, Reason};
use crate::log::{Path, Unreadable, take_room};
use crate::mode::{Mode, mode, set_mode};
use crate::thread::{self, Thread};
use crate::{divergence, files, heap, instructions, raw, signals, syscall, trap, vdso};

static CONFIG: AtomicPtr<Config> = AtomicPtr::new(std::ptr::null_mut());
static BOARD: AtomicPtr<Board> = AtomicPtr::new(std::ptr::null_mut());
static HEADER: AtomicPtr<ProcessHeader> = AtomicPtr::new(std::ptr::null_mut());

// The first constructor of all: the library is linked with `-z initfirst`.
#[cfg(not(test))]
#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = start;

#[cfg_attr(test, allow(dead_code))]
extern "C" fn start() {
    let Some(config) = read_config() else { return };
    CONFIG.store(config, Ordering::Release);
    // SAFETY: just read, private to this process.
    let config = unsafe { &*config };
    BOARD.store(
        map_board().unwrap_or(std::ptr::null_mut()),
        Ordering::Release,
    );
    let Some(thread) = thread::create(0) else {
        return;
    };
    let mode = match config.run() {
        Run::Off => return,
        Run::Record => Mode::Record,
        Run::Replay => Mode::Replay,
    };
    if let Err(reason) = open_header(mode) {
        // Nothing was recorded yet, so there is no log to say it in: the launcher notices that the folder is empty.
        if mode == Mode::Replay {
            divergence::unusable(
                format_args!(
                    "the folder {} of the recording: {reason}",
                    config.process.as_str()
                ),
                "",
            );
        }
        return;
    }
    set_mode(mode);
    enter_thread(thread);
    let Some(thread) = thread::current() else {
        return;
    };
    exchange_start_values(thread);
    trap::install();
    signals::start();
    // SAFETY: once, and the process has one thread.
    if let Err(why) = unsafe { vdso::patch() } {
        warn(format_args!("the clock inside libc is not recorded: {why}"));
    }
    thread.enter_replay();
}

/// Sets up the calling thread with its state: its log, its line on the board, its traps. Leaves it in system space.
pub fn enter_thread(thread: &'static mut Thread) {
    thread::set_current(thread);
    // SAFETY: no arguments.
    thread.kernel_id.store(
        unsafe { syscall!(libc::SYS_gettid) } as u32,
        Ordering::Relaxed,
    );
    open_log(thread);
    take_slot(thread);
    arm(thread);
    heap::thread_starting(thread);
}

fn open_log(thread: &mut Thread) {
    let process = config().process;
    match mode() {
        Mode::Record => {
            if let Err(code) = thread.writer.create(thread.number) {
                detach::detach(Reason::LogCannotGrow { code });
            }
            with_header(|header| {
                header
                    .threads
                    .fetch_max(thread.number + 1, Ordering::AcqRel)
            });
        }
        Mode::Replay => {
            match thread.reader.open(process.as_str(), thread.number) {
                // The process ended between the creation of the thread and its first step: an empty log.
                Err(Unreadable::Missing(libc::ENOENT)) if thread.number != 0 => {}
                Err(why) => divergence::unusable(
                    format_args!("{}/t{}: {why}", process.as_str(), thread.number),
                    why.hint(),
                ),
                Ok(()) => {}
            }
            if config().break_thread == u64::from(thread.number) {
                thread.reader.stop_before(config().break_event);
            }
        }
        Mode::Off => {}
    }
}

fn take_slot(thread: &mut Thread) {
    if mode() != Mode::Replay {
        return;
    }
    thread.slot = board().and_then(Board::take_slot);
    if let Some(slot) = thread.slot {
        // SAFETY: no arguments.
        slot.pid.store(
            unsafe { syscall!(libc::SYS_getpid) } as u32,
            Ordering::Relaxed,
        );
        slot.thread.store(thread.number, Ordering::Relaxed);
        let name = (&raw const slot.process).cast_mut();
        // SAFETY: the slot is this thread's alone; the launcher reads it after `state` says that it is in use.
        unsafe { (*name).set(config().process.as_str()) };
    }
    thread.show(State::Running, 0);
}

/// Makes system calls from replay space of the calling thread trap, and the instructions that say what time or which processor it is.
pub fn arm(thread: &mut Thread) {
    const PR_SET_SYSCALL_USER_DISPATCH: i32 = 59;
    const PR_SYS_DISPATCH_ON: usize = 1;
    if mode() == Mode::Off {
        return;
    }
    let (text, length) = raw::text_range();
    // SAFETY: the selector byte lives as long as the process.
    let result = unsafe {
        syscall!(
            libc::SYS_prctl,
            PR_SET_SYSCALL_USER_DISPATCH,
            PR_SYS_DISPATCH_ON,
            text,
            length,
            thread.selector.as_ptr()
        )
    };
    if raw::error_of(result).is_some() {
        detach::detach(Reason::Other("this kernel has no Syscall User Dispatch"));
    }
    if config().trap_instructions != 0 {
        instructions::arm(thread);
    }
}

/// What differs between two starts of the same program before its first call: random bytes that the kernel put on the stack,
/// and where the standard descriptors lead.
fn exchange_start_values(thread: &mut Thread) {
    files::start();
    // SAFETY: reads the auxiliary vector.
    let random = unsafe { libc::getauxval(libc::AT_RANDOM) } as *mut [u8; 16];
    match mode() {
        Mode::Record => {
            // SAFETY: the kernel put 16 bytes there, or there are none.
            let bytes = if random.is_null() {
                [0; 16]
            } else {
                unsafe { *random }
            };
            thread
                .writer
                .append(Kind::Start, &[&bytes, &files::standard_flags()]);
        }
        Mode::Replay => {
            let event = divergence::expect_event(thread, Kind::Start as u16);
            let (Kind::Start, Some((bytes, flags))) = (
                Kind::from_number(event.kind).unwrap_or(Kind::None),
                event.payload.split_first_chunk::<16>(),
            ) else {
                divergence::unusable(
                    format_args!("the log does not begin with the start of a process"),
                    "Record again.",
                );
            };
            thread.reader.advance(&event);
            if !random.is_null() {
                // SAFETY: as above; the stack is writable.
                unsafe { *random = *bytes };
            }
            if let Some(flags) = flags.first_chunk::<3>() {
                files::set_standard_flags(*flags);
            }
        }
        Mode::Off => {}
    }
}

/// In the child of a fork, on its only thread, which is in system space: the child's own folder and log.
pub fn after_fork(process: &str) {
    let Some(thread) = thread::current() else {
        return;
    };
    thread::forget_others(thread);
    let config = CONFIG.load(Ordering::Acquire);
    // SAFETY: only this thread exists, and it holds no reference to the configuration.
    unsafe {
        (*config).parent = (*config).process;
        (*config).process.set(process);
    }
    if let Err(reason) = open_header(mode()) {
        if mode() == Mode::Replay {
            divergence::unusable(
                format_args!("the folder {process} of the recording: {reason}"),
                "",
            );
        }
        set_mode(Mode::Off);
        thread.enter_system();
        return;
    }
    thread.writer = crate::log::Writer::closed();
    thread.reader = crate::log::Reader::closed();
    thread.at_end.store(false, Ordering::Relaxed);
    enter_thread(thread);
}

fn read_config() -> Option<*mut Config> {
    let address = take_room(size_of::<Config>())?;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: room taken just now.
    let config = unsafe {
        raw::map_at(
            address,
            size_of::<Config>(),
            libc::PROT_READ | libc::PROT_WRITE,
            flags,
            -1,
            0,
        )
    }
    .ok()?;
    // SAFETY: room for a configuration.
    let read = unsafe {
        syscall!(
            libc::SYS_pread64,
            descriptors::CONFIG,
            config,
            size_of::<Config>(),
            0
        )
    };
    let config = config.cast::<Config>();
    // SAFETY: plain data, fully read if the length says so.
    (read == size_of::<Config>() as isize && unsafe { &*config }.is_valid()).then_some(config)
}

fn map_board() -> Option<*mut Board> {
    let address = take_room(Board::bytes())?;
    // SAFETY: room taken just now.
    let board = unsafe {
        raw::map_at(
            address,
            Board::bytes(),
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED,
            descriptors::BOARD,
            0,
        )
    };
    Some(board.ok()?.cast())
}

/// Maps the file `process` of this process's folder: recording makes it, replay reads it.
fn open_header(mode: Mode) -> Result<(), ErrorNumber> {
    let process = config().process;
    let length = size_of::<ProcessHeader>();
    let (open_flags, map_flags) = match mode {
        Mode::Record => (
            libc::O_RDWR | libc::O_CREAT | libc::O_EXCL,
            libc::MAP_SHARED,
        ),
        _ => (libc::O_RDONLY, libc::MAP_PRIVATE),
    };
    if mode == Mode::Record {
        let folder = Path::new(process.as_str(), format_args!(""));
        // SAFETY: a C string.
        unsafe {
            syscall!(
                libc::SYS_mkdirat,
                descriptors::FOLDER,
                folder.as_c_str().as_ptr(),
                0o755
            )
        };
    }
    let path = Path::new(process.as_str(), format_args!("process"));
    let file = raw::open_at(descriptors::FOLDER, path.as_c_str(), open_flags, 0o644)
        .map_err(ErrorNumber)?;
    if mode == Mode::Record {
        let folder = Path::new(process.as_str(), format_args!(""));
        let folder = raw::open_at(descriptors::FOLDER, folder.as_c_str(), libc::O_DIRECTORY, 0)
            .map_err(ErrorNumber)?;
        files::allowing_ours(|| {
            files::put_at(folder, descriptors::PROCESS, libc::O_CLOEXEC);
            // What is said of all numbers of ours must be true of each: none of them can become the program's.
            for number in descriptors::LIBRARY..descriptors::END {
                if files::identity(number).is_none() {
                    files::put_at(folder, number, libc::O_CLOEXEC);
                }
            }
        });
        raw::close(folder);
        // SAFETY: a descriptor and numbers.
        unsafe { syscall!(libc::SYS_ftruncate, file, length) };
    }
    let address = take_room(length).ok_or(ErrorNumber(libc::ENOMEM))?;
    // SAFETY: room taken just now.
    let mapped = unsafe {
        raw::map_at(
            address,
            length,
            libc::PROT_READ | libc::PROT_WRITE,
            map_flags,
            file,
            0,
        )
    };
    raw::close(file);
    let header = mapped.map_err(ErrorNumber)?.cast::<ProcessHeader>();
    if mode == Mode::Record {
        // SAFETY: no arguments.
        let pid = unsafe { syscall!(libc::SYS_getpid) } as u32;
        // SAFETY: room for one.
        unsafe { header.write(ProcessHeader::new(pid, config().parent.as_str())) };
    }
    HEADER.store(header, Ordering::Release);
    Ok(())
}

struct ErrorNumber(i32);

impl std::fmt::Display for ErrorNumber {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            libc::ENOENT => write!(formatter, "is not there"),
            libc::EEXIST => write!(formatter, "is there already"),
            code => write!(formatter, "error {code}"),
        }
    }
}

/// The process is about to become another user: the logs become that user's, so that they can grow and new ones be made.
pub fn hand_over(user: u32) {
    if mode() != Mode::Record {
        return;
    }
    let give = |file: &std::ffi::CStr| {
        // SAFETY: a C string. Where it is not allowed the process was not privileged to begin with.
        unsafe {
            syscall!(
                libc::SYS_fchownat,
                descriptors::PROCESS,
                file.as_ptr(),
                user,
                -1i32,
                libc::AT_SYMLINK_NOFOLLOW
            )
        }
    };
    give(c".");
    give(c"process");
    for thread in thread::all() {
        give(Path::new(".", format_args!("t{}", thread.number)).as_c_str());
    }
}

/// What the launcher wants. A default that says `Off` before init.
pub fn config() -> &'static Config {
    static NONE: std::sync::LazyLock<Config> = std::sync::LazyLock::new(|| Config::new(Run::Off));
    // SAFETY: set once, changed only in a forked child before it has a second thread.
    unsafe { CONFIG.load(Ordering::Acquire).as_ref() }.unwrap_or(&NONE)
}

pub fn replaying() -> bool {
    mode() == Mode::Replay
}

pub fn board() -> Option<&'static Board> {
    // SAFETY: mapped for ever; all of it that changes is atomic or has one writer.
    unsafe { BOARD.load(Ordering::Acquire).as_ref() }
}

/// The process's file, if it is open. Texts in it are written rarely and one at a time.
pub fn with_header<R>(change: impl FnOnce(&mut ProcessHeader) -> R) -> Option<R> {
    static BUSY: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);
    let header = HEADER.load(Ordering::Acquire);
    if header.is_null() {
        return None;
    }
    while BUSY.swap(true, Ordering::Acquire) {
        std::hint::spin_loop();
    }
    // SAFETY: mapped for ever, and `BUSY` admits one.
    let result = change(unsafe { &mut *header });
    BUSY.store(false, Ordering::Release);
    Some(result)
}

/// Notes how the process ended.
pub fn ended(end: End, code: u32) {
    if mode() == Mode::Record {
        with_header(|header| {
            header.code.store(code, Ordering::Release);
            header.end.store(end as u32, Ordering::Release);
        });
    }
}

/// Whether the recording has a folder of this name.
pub fn is_recorded(process: &str) -> bool {
    let path = Path::new(process, format_args!("process"));
    // SAFETY: a C string.
    unsafe {
        syscall!(
            libc::SYS_faccessat,
            descriptors::FOLDER,
            path.as_c_str().as_ptr(),
            libc::R_OK
        ) == 0
    }
}

/// In replay, why recording of this process ended before the process did.
pub fn recorded_reason() -> &'static str {
    // SAFETY: the mapping is private and nobody writes texts in replay.
    unsafe { HEADER.load(Ordering::Acquire).as_ref() }.map_or("", |header| header.reason.as_str())
}

/// In replay, whether the recorded process came to its end by itself.
pub fn ended_by_itself() -> bool {
    // SAFETY: as above.
    let end = unsafe { HEADER.load(Ordering::Acquire).as_ref() }.map(|header| header.end().0);
    matches!(end, Some(End::Exited | End::Signalled | End::Executed))
}

/// Something that a person should know about this recording. Each text is kept once.
pub fn warn(text: std::fmt::Arguments<'_>) {
    if mode() != Mode::Record {
        return;
    }
    let mut line = hindcast_execlog::Text::<400>::new();
    let _ = std::fmt::Write::write_fmt(&mut line, text);
    with_header(|header| {
        if !header
            .warnings
            .as_str()
            .lines()
            .any(|known| known == line.as_str())
        {
            let _ = std::fmt::Write::write_fmt(
                &mut header.warnings,
                format_args!("{}\n", line.as_str()),
            );
        }
    });
}
