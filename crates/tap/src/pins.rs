//! What a thread draws and which time it reads while it works on a request: the same in a replay as
//! in the recording.
//!
//! Bytes come from a generator that is keyed by the recording, so nothing of them is told. Times
//! are told by the thread's ring. Who works on no request draws by who it is ([`starts`]), and
//! reads the real time; in a replay, the real time moved to that of the recording.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use chacha20::ChaCha20Rng;
use chacha20::rand_core::{Rng, SeedableRng};
use hindcast_taplog::pins::{Asks, Caller, Draw, Number, Reading, Reads, Series};
use hindcast_taplog::{Board, Told};

use crate::{php, process, python, ruby, starts, thread, tls, tokio, turns};

/// Fills it as it was, or will be, for the request that the thread works on, or for the thread if
/// it works on none. False if it is not filled: then it is the kernel's to do.
///
/// # Safety
/// There is room for so many bytes.
pub unsafe fn draw(bytes: *mut u8, length: usize) -> bool {
    // What encryption draws is for the connection, which may be made for another request next time.
    // SAFETY: as the caller promises.
    unsafe {
        !tls::is_inside()
            && match (turns::is_apart(), turns::of_code()) {
                (true, _) => turns::draw_apart().is_some_and(|draw| fill(draw, bytes, length)),
                // It has stepped aside from its request.
                (false, 0) if turns::current() != 0 => false,
                (false, 0) => draw_for_thread(caller_so_far(), bytes, length),
                (false, request) => draw_for(request, caller(), bytes, length),
            }
    }
}

/// The request for which a thread that works on none draws next, since a runtime has handed it work
/// that draws once; 0: for none. And who handed it over.
static HANDED: AtomicU64 = AtomicU64::new(0);
static HANDED_BY: AtomicU64 = AtomicU64::new(0);

fn this_thread() -> u64 {
    // SAFETY: it takes nothing.
    unsafe { libc::pthread_self() }
}

/// The calling thread hands work to another one, which draws for this request.
pub fn hand_draw(request: u64) {
    HANDED_BY.store(this_thread(), Ordering::Relaxed);
    HANDED.store(request, Ordering::Release);
}

/// Whose draw was handed over and has not been drawn.
pub fn handed_draw() -> u64 {
    HANDED.load(Ordering::Acquire)
}

/// Draws what was handed over, if the thread works on no request and has not handed it over itself.
///
/// # Safety
/// As for [`draw`].
pub unsafe fn draw_handed(bytes: *mut u8, length: usize) -> bool {
    // Who asks for nothing looks whether it could.
    if length == 0
        || handed_draw() == 0
        || HANDED_BY.load(Ordering::Relaxed) == this_thread()
        || turns::is_apart()
        || turns::current() != 0
    {
        return false;
    }
    let request = HANDED.swap(0, Ordering::AcqRel);
    // SAFETY: as the caller promises.
    unsafe { draw_for(request, Caller::default(), bytes, length) }
}

/// The same by this code, in a runtime that knows it, and only for a request.
///
/// # Safety
/// As for [`draw`].
pub unsafe fn draw_by(caller: Caller, bytes: *mut u8, length: usize) -> bool {
    let request = turns::of_code();
    // SAFETY: as the caller promises.
    request != 0 && unsafe { draw_for(request, caller, bytes, length) }
}

/// Whether the thread draws for a request.
pub fn is_of_request() -> bool {
    turns::is_apart() || turns::of_code() != 0
}

/// The same outside of requests, where it is known what code asks.
///
/// # Safety
/// As for [`draw`].
pub unsafe fn draw_for_thread(caller: Caller, bytes: *mut u8, length: usize) -> bool {
    let draw = || match turns::draws_for_session() {
        true => None,
        false => starts::draw(caller),
    };
    // SAFETY: as the caller promises.
    unsafe { fill_outside(draw, bytes, length) }
}

/// The same in a process whose threads draw together.
///
/// # Safety
/// As for [`draw`].
pub unsafe fn draw_for_process(caller: Caller, bytes: *mut u8, length: usize) -> bool {
    // SAFETY: as the caller promises.
    unsafe { fill_outside(|| starts::draw_together(caller), bytes, length) }
}

/// # Safety
/// As for [`draw`].
unsafe fn fill_outside(draw: impl FnOnce() -> Option<Draw>, bytes: *mut u8, length: usize) -> bool {
    // Who asks for nothing draws nothing.
    let draw = (!bytes.is_null() && length > 0).then(draw).flatten();
    // SAFETY: as the caller promises.
    draw.is_some_and(|draw| unsafe { fill(draw, bytes, length) })
}

/// What code asks, where a Python may not have begun yet.
fn caller_so_far() -> Caller {
    turns::caller().unwrap_or_else(python::caller_so_far)
}

/// What code asks, in a thread that works on a request.
fn caller() -> Caller {
    let told = turns::caller().or_else(tokio::caller);
    told.unwrap_or_else(python::caller)
}

/// The same for another request than the thread's, and what code asks as somebody else knows it.
///
/// # Safety
/// As for [`draw`].
pub unsafe fn draw_for(request: u64, caller: Caller, bytes: *mut u8, length: usize) -> bool {
    let Some(board) = process::board().filter(|_| !bytes.is_null()) else {
        return false;
    };
    // What proves a password to the database is for the connection, too.
    if request == 0 || length == 0 || turns::is_connecting(board, request) {
        return false;
    }
    let draw = match board.replays() {
        false => board.pins().draw(request, caller),
        true => board.pins().draw_again(request, caller),
    };
    // SAFETY: as the caller promises.
    draw.is_some_and(|draw| unsafe { fill(draw, bytes, length) })
}

/// What a runtime draws for itself in this code, if the thread works on a request.
pub fn order(caller: Caller) -> Option<u64> {
    let request = turns::of_code();
    let board = process::board().filter(|_| request != 0 && !turns::is_apart())?;
    let draw = board.pins().order(request, caller, board.replays())?;
    // SAFETY: there is room.
    number(|bytes, length| unsafe { fill(draw, bytes, length) })
}

/// A number of what fills its bytes, if that does.
pub fn number(fill: impl FnOnce(*mut u8, usize) -> bool) -> Option<u64> {
    let mut number = 0u64;
    fill((&raw mut number).cast(), size_of::<u64>()).then_some(number)
}

/// What stands for the process' number in a generator's seed, if the thread works on a request.
pub fn process() -> Option<i32> {
    let request = turns::current();
    let board = process::board().filter(|_| request != 0 && !turns::is_apart())?;
    let draw = board.pins().process(request, board.replays())?;
    let mut number = 0u32;
    // SAFETY: the memory is ours.
    let filled = unsafe { fill(draw, (&raw mut number).cast(), size_of::<u32>()) };
    filled.then_some((number >> 1) as i32)
}

/// # Safety
/// There is room for so many bytes.
unsafe fn fill(draw: Draw, bytes: *mut u8, length: usize) -> bool {
    if bytes.is_null() {
        return false;
    }
    let mut generator = ChaCha20Rng::from_seed(draw.key);
    generator.set_stream(draw.request);
    generator.set_block_pos(draw.block);
    // SAFETY: as the caller promises. What is there already is overwritten, not read.
    let place = unsafe {
        std::ptr::write_bytes(bytes, 0, length);
        std::slice::from_raw_parts_mut(bytes, length)
    };
    generator.fill_bytes(place);
    true
}

/// What the wall clock shows to the program, where libc says `real`; in nanoseconds since 1970.
pub fn wall_clock(reads: Reads, real: i64) -> i64 {
    for_all(read_here(reads, real), real)
}

/// The same for another request than the thread's, and what code asks as somebody else knows it.
pub fn wall_clock_of(request: u64, caller: Caller, reads: Reads, real: i64) -> i64 {
    for_all(read(request, Some(caller), reads, real), real)
}

/// What the clock shows to this code, in a runtime that knows it; `None`: to who works on no
/// request.
pub fn wall_clock_by(caller: Option<Caller>, reads: Reads) -> i64 {
    let real = process::real_time();
    let request = match caller {
        Some(_) => turns::of_code(),
        None => 0,
    };
    let caller = caller.filter(|_| !turns::reads_apart());
    let own = match request {
        0 => None,
        _ => read(request, caller, reads, real),
    };
    for_all(own, real)
}

/// What a program measures with; in nanoseconds. A request gets what is as far from its wall clock
/// each time, so that what it measures is what it measured.
pub fn stopwatch() -> i64 {
    /// How far the wall clock is from the monotonic one; 0: no request has measured yet.
    static APART: AtomicI64 = AtomicI64::new(0);
    /// By more than this the wall clock was set, or the thread lost its processor in between.
    const SET: i64 = 1_000_000;
    let real = || process::now() as i64;
    if turns::of_code() == 0 {
        return real();
    }
    let apart = || APART.load(Ordering::Relaxed);
    let mut wall = process::real_time();
    if process::board().is_some_and(Board::replays) {
        let shown = read_here(Reads::Instant, wall).unwrap_or(wall);
        if apart() == 0 {
            APART.store(shown.saturating_sub(real()), Ordering::Relaxed);
        }
        return shown.saturating_sub(apart());
    }
    let is_off = |wall: i64| {
        let by = wall.saturating_sub(apart()).saturating_sub(real());
        by.saturating_abs() > SET
    };
    for _ in 0..2 {
        if is_off(wall) {
            wall = process::real_time();
        }
    }
    if is_off(wall) {
        APART.store(wall.saturating_sub(real()), Ordering::Relaxed);
    }
    read_here(Reads::Instant, wall);
    wall.saturating_sub(apart())
}

/// How much time of a processor was used, where the kernel says `real`; in nanoseconds.
pub fn processor_time(real: i64) -> i64 {
    read_here(Reads::Processor, real).unwrap_or(real)
}

fn for_all(own: Option<i64>, real: i64) -> i64 {
    own.unwrap_or_else(|| real.saturating_add(ahead_of_all(real)))
}

/// What the clock shows for the request that the thread works on.
fn read_here(reads: Reads, real: i64) -> Option<i64> {
    let request = turns::of_code();
    let code = || match request {
        0 => Caller::UNKNOWN,
        _ => {
            let others = [caller, ruby::caller, php::caller];
            let mut known = others.iter().map(|of| of());
            let is_known = |one: &Caller| *one != Caller::UNKNOWN;
            known.find(is_known).unwrap_or_default()
        }
    };
    let caller = (!turns::reads_apart()).then(code);
    read(request, caller, reads, real)
}

/// What the clock shows for a request; `None`: nothing of its own. Without a caller it is read
/// apart from the request.
fn read(request: u64, caller: Option<Caller>, reads: Reads, real: i64) -> Option<i64> {
    let board = process::board()?;
    if board.replays() {
        let now = process::now() as i64;
        let pins = board.pins();
        let again = match caller {
            None => turns::read_apart(|walk| pins.read_apart(request, walk, reads, real, now)),
            Some(caller) => Some(pins.read_again(request, caller, reads, real, now)),
        };
        return again.flatten();
    }
    if request != 0 {
        let own = || Asks {
            place: board.pins().place(request),
            caller: caller.unwrap_or_default(),
        };
        let apart = || caller.is_none().then(turns::asks_apart).flatten();
        tell(request, || {
            let Asks { place, caller } = apart().unwrap_or_else(own);
            Reading {
                time: reads.kept(real),
                place,
                caller,
            }
        });
    }
    Some(real)
}

/// Tells what a recorded request has read, if that is to be told.
fn tell(request: u64, reading: impl FnOnce() -> Reading) {
    let n = process::board().and_then(|board| board.pins().note_reading(request));
    if let Some(n) = n {
        let told = Told::Reading {
            request,
            n,
            reading: reading(),
        };
        // It has the moment of what the thread told before.
        thread::tell(0, 0, |ring| ring.tell(&told, 0));
    }
}

/// What the request that the thread works on was given next of this series, in a replay.
pub fn number_again(series: Series) -> Option<Number> {
    number_again_of(turns::of_code(), series)
}

/// The same of another request than the thread's.
pub fn number_again_of(request: u64, series: Series) -> Option<Number> {
    let board = process::board().filter(|board| board.replays())?;
    board.pins().number_again(request, series)
}

/// In a replay, whether some request of the recording was given this number of the series.
pub fn is_given_away(series: Series, value: i64) -> bool {
    let board = process::board().filter(|board| board.replays());
    board.is_some_and(|board| board.pins().is_given_away(series, value))
}

/// While recording: the request that the thread works on is given this number.
pub fn tell_number(number: Number) {
    tell_number_of(turns::of_code(), number);
}

/// The same of another request than the thread's.
pub fn tell_number_of(request: u64, number: Number) {
    let is_told = request != 0 && !process::board().is_none_or(Board::replays);
    if let Some(reading) = number.reading().filter(|_| is_told) {
        tell(request, || reading);
    }
}

/// How far the wall clock of a replayed service is from the real one.
fn ahead_of_all(real: i64) -> i64 {
    process::board().map_or(0, |board| board.pins().ahead(0, real))
}

/// Moments of the wall clock are later than this, those of clocks that begin with the machine are
/// earlier. It is in the year 2001.
const WALL_CLOCK_FROM: i64 = 1_000_000_000;
/// Later than this is never. It is in the year 2255.
const WALL_CLOCK_TO: i64 = 9_000_000_000;
const NANOS: i64 = 1_000_000_000;

/// When a deadline of the program is by the real wall clock; `None` if it is the same. A deadline
/// that may be by another clock is looked at: what is before 2001 is none of the wall clock's, or
/// is over by either.
pub fn deadline(of: &libc::timespec) -> Option<libc::timespec> {
    let board = process::board().filter(|board| board.replays())?;
    if !(WALL_CLOCK_FROM..WALL_CLOCK_TO).contains(&of.tv_sec) || !(0..NANOS).contains(&of.tv_nsec) {
        return None;
    }
    let now = process::real_time();
    let ahead = board.pins().ahead(turns::of_code(), now);
    let real = nanos(of).saturating_sub(ahead).max(1);
    Some(timespec(real))
}

pub fn nanos(time: &libc::timespec) -> i64 {
    time.tv_sec
        .saturating_mul(NANOS)
        .saturating_add(time.tv_nsec)
}

pub fn timespec(nanos: i64) -> libc::timespec {
    libc::timespec {
        tv_sec: nanos.div_euclid(NANOS),
        tv_nsec: nanos.rem_euclid(NANOS),
    }
}
