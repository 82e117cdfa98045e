//! How a process enters recording or replay.

use hindcast_execlog::config::{BeginsAt, Run, descriptors};
use hindcast_execlog::event::Kind;
use hindcast_execlog::{Board, Config};

use crate::doors::{signals, trap, vdso};
use crate::mechanism::{
    checkpoint, divergence, entry, files, flows, folder, instructions, log, table,
};
use crate::state::log::take_room;
use crate::state::mode::{Mode, follows, leads, mode, set_follow, set_mode, set_one_at_a_time};
use crate::state::recording;
use crate::state::thread::{self, Current};
use crate::{raw, syscall};

// The first constructor of all: the library is linked with `-z initfirst`.
#[cfg(not(test))]
#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = start;

#[cfg_attr(test, allow(dead_code))]
extern "C" fn start() {
    raw::in_own_frame(|| {
        begin();
        clear_stack();
    });
}

/// Clears what [`begin`] left on the stack, which is more than a call leaves.
#[inline(never)]
fn clear_stack() {
    let mut below = [0u8; 1 << 15];
    std::hint::black_box(&mut below);
}

#[inline(never)]
fn begin() {
    let Some(config) = read_config() else { return };
    recording::set(config, map_board().unwrap_or(std::ptr::null_mut()));
    let config = recording::config();
    if config.begins_at == BeginsAt::Checkpoint as u32 {
        trap::install();
        checkpoint::restore(config);
    }
    let Some(thread) = &mut thread::create(0) else {
        return;
    };
    let mode = match config.run() {
        Run::Off => return,
        Run::Record => Mode::Record,
        Run::Replay => Mode::Replay,
    };
    set_follow(config.follow);
    set_one_at_a_time(config.one_at_a_time != 0);
    if let Err(reason) = folder::open(mode) {
        // Nothing was recorded yet, so there is no log to say it in: the launcher notices that the
        // folder is empty.
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
    if leads() {
        table::hold();
    }
    if follows() {
        flows::start();
    }
    entry::enter_thread(thread);
    exchange_start_values(thread);
    trap::install();
    if self::mode() == Mode::Replay {
        checkpoint::listen();
    }
    // Signals are let in here.
    signals::start(thread);
    // SAFETY: once, and the process has one thread.
    if let Err(why) = unsafe { vdso::patch() } {
        recording::warn(format_args!("the clock inside libc is not recorded: {why}"));
    }
    instructions::start(thread);
    if self::mode() != Mode::Off {
        thread.enter_replay();
    }
}

/// What differs between two starts of the same program before its first call: random bytes that the
/// kernel put on the stack, and where the standard descriptors lead.
fn exchange_start_values(thread: &mut Current) {
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
            let event = log::expect_first(thread, Kind::Start as u16);
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

fn read_config() -> Option<*mut Config> {
    let address = take_room(size_of::<Config>())?;
    // SAFETY: room taken just now.
    let config =
        unsafe { raw::map_memory(address, size_of::<Config>(), libc::MAP_PRIVATE) }.ok()?;
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
        raw::map_file(
            address,
            Board::bytes(),
            libc::MAP_SHARED,
            descriptors::BOARD,
            0,
        )
    };
    Some(board.ok()?.cast())
}
