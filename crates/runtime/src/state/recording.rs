//! The recording that this process is part of: what the launcher asked for, the board on which the
//! launcher looks, and the file `process` of the process's folder.

use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use hindcast_execlog::board::Leader;
use hindcast_execlog::config::{Run, descriptors, follow};
use hindcast_execlog::files::{End, is_first};
use hindcast_execlog::{Board, Config, ProcessHeader};

use super::mode::{Mode, discards, mode};
use crate::syscall;

/// Where the three lie that the launcher sees. They are mapped for ever.
struct Recording {
    config: AtomicPtr<Config>,
    board: AtomicPtr<Board>,
    header: AtomicPtr<ProcessHeader>,
    /// Somebody writes a text into the header.
    busy: AtomicBool,
}

static RECORDING: Recording = Recording {
    config: AtomicPtr::new(std::ptr::null_mut()),
    board: AtomicPtr::new(std::ptr::null_mut()),
    header: AtomicPtr::new(std::ptr::null_mut()),
    busy: AtomicBool::new(false),
};

/// At init: what the launcher left for this process.
pub fn set(config: *mut Config, board: *mut Board) {
    RECORDING.config.store(config, Ordering::Release);
    RECORDING.board.store(board, Ordering::Release);
}

/// The process has a folder, and this is its file.
pub fn set_header(header: *mut ProcessHeader) {
    RECORDING.header.store(header, Ordering::Release);
}

/// In a forked child, on its only thread: its folder is this one.
pub fn set_process(process: &str) {
    let config = RECORDING.config.load(Ordering::Acquire);
    // SAFETY: set before anything was recorded. Only this thread exists, and it holds no reference
    // to the configuration.
    unsafe {
        (*config).parent = (*config).process;
        (*config).process.set(process);
    }
}

/// What the launcher wants. A default that says `Off` before init.
pub fn config() -> &'static Config {
    static NONE: std::sync::LazyLock<Config> = std::sync::LazyLock::new(|| Config::new(Run::Off));
    // SAFETY: set once, changed only in a forked child before it has a second thread, and while all
    // threads wait but the one that changes it.
    unsafe { RECORDING.config.load(Ordering::Acquire).as_ref() }.unwrap_or(&NONE)
}

/// The replay of a checkpoint stops elsewhere than the one from which that was taken.
pub fn stop_at(thread: u64, event: u64) {
    let config = RECORDING.config.load(Ordering::Acquire);
    // SAFETY: set before the checkpoint was taken, and the process has one thread.
    unsafe {
        (*config).break_thread = thread;
        (*config).break_event = event;
    }
}

/// Whether nobody will read what this process records: it was for followers, and there are none.
pub fn is_for_nobody() -> bool {
    let Some(board) = board() else {
        return false;
    };
    let launcher = board.launcher.load(Ordering::Relaxed);
    // SAFETY: numbers only; signal zero is none.
    launcher != 0
        && (board.leader() == Leader::Ended
            || unsafe { syscall!(libc::SYS_kill, launcher, 0) } == -(libc::ESRCH as isize))
}

/// Whether nobody else reads the log that this process replays: it was so from the beginning, or
/// the log has become too large to be kept.
pub fn is_given_back() -> bool {
    discards() || board().is_some_and(|board| board.discards.load(Ordering::Relaxed) != 0)
}

/// Whether this is the process that the launcher started, in any of its images.
pub fn is_first_process() -> bool {
    is_first(config().process.as_str())
}

/// In replay, whether the process that was recorded here still runs.
pub fn is_recorded_process_alive() -> bool {
    // SAFETY: mapped for ever; the number is written before the file is known to anybody.
    let pid = unsafe { RECORDING.header.load(Ordering::Acquire).as_ref() }.map(|header| header.pid);
    // SAFETY: numbers only; signal zero is none.
    pid.is_some_and(|pid| unsafe { syscall!(libc::SYS_kill, pid, 0) } == 0)
}

pub fn replaying() -> bool {
    mode() == Mode::Replay
}

pub fn board() -> Option<&'static Board> {
    // SAFETY: mapped for ever; all of it that changes is atomic or has one writer.
    unsafe { RECORDING.board.load(Ordering::Acquire).as_ref() }
}

/// The process's file, if it is open. Texts in it are written rarely and one at a time.
pub fn with_header<R>(change: impl FnOnce(&mut ProcessHeader) -> R) -> Option<R> {
    let header = RECORDING.header.load(Ordering::Acquire);
    if header.is_null() {
        return None;
    }
    while RECORDING.busy.swap(true, Ordering::Acquire) {
        std::hint::spin_loop();
    }
    // SAFETY: mapped for ever, and `busy` admits one.
    let result = change(unsafe { &mut *header });
    RECORDING.busy.store(false, Ordering::Release);
    Some(result)
}

/// What the runtime finds that is loaded into an image that this process executes: nothing to do.
pub fn switch_off() {
    tell_next_image(std::mem::offset_of!(Config, run), Run::Off as u32);
}

/// This process is recorded from here on, and so are images that it executes: it leads.
pub fn succeed() {
    let config = RECORDING.config.load(Ordering::Acquire);
    // SAFETY: set before anything was replayed, and every other thread waits.
    let config = unsafe { &mut *config };
    (config.run, config.follow) = (Run::Record as u32, follow::LEADS);
    for (place, value) in [
        (std::mem::offset_of!(Config, run), config.run),
        (std::mem::offset_of!(Config, follow), config.follow),
    ] {
        tell_next_image(place, value);
    }
}

/// Changes a number of the configuration that images find which this process executes.
fn tell_next_image(place: usize, value: u32) {
    // SAFETY: a value of this function.
    unsafe {
        syscall!(
            libc::SYS_pwrite64,
            descriptors::CONFIG,
            &raw const value,
            size_of::<u32>(),
            place
        )
    };
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

/// In replay, why recording of this process ended before the process did.
pub fn recorded_reason() -> &'static str {
    // SAFETY: the mapping is private and nobody writes texts in replay.
    unsafe { RECORDING.header.load(Ordering::Acquire).as_ref() }
        .map_or("", |header| header.reason.as_str())
}

/// In replay, whether the recorded process came to its end by itself.
pub fn ended_by_itself() -> bool {
    // SAFETY: as above.
    let end =
        unsafe { RECORDING.header.load(Ordering::Acquire).as_ref() }.map(|header| header.end().0);
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
