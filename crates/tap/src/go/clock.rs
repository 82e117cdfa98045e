//! The clock, which Go reads by the vDSO.
//!
//! Go finds the functions of the vDSO by their names, in the image that the auxiliary vector names.
//! It is given a copy, in which the clock's function is ours. The others are where they were. The
//! one that draws random bytes is not there: then Go makes the system call, which is seen.

use std::cell::Cell;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};

use hindcast_taplog::Board;
use libc::{c_int, timespec};

use super::goroutines::for_code;
use crate::hooks::clocks;
use crate::vectors::{Segment, Vectors};
use crate::{pins, process, works};

/// The clock's function of the vDSO.
pub static REAL: AtomicUsize = AtomicUsize::new(0);

/// Puts the copy in the place of the vDSO. Where that cannot be done Go reads the real clock.
/// `ours`: the function that it calls.
pub fn replace(vectors: &Vectors, ours: *const ()) -> Option<()> {
    let entry = vectors.entry(libc::AT_SYSINFO_EHDR)?;
    let real = vectors.value(libc::AT_SYSINFO_EHDR)?;
    // SAFETY: the vDSO is mapped, all of its one segment; a copy is as long.
    unsafe {
        let copy = copied(real)?;
        let image = Vdso::of(copy)?;
        for symbol in image.symbols() {
            let address = real.wrapping_add(symbol.value);
            let is = |name: &[u8]| image.name(symbol) == name;
            if is(b"__vdso_clock_gettime") {
                REAL.store(address, Ordering::Relaxed);
                symbol.value = (ours as usize).wrapping_sub(copy);
            } else if is(b"__vdso_getrandom") {
                symbol.section = 0;
            } else if symbol.section != 0 {
                symbol.value = address.wrapping_sub(copy);
            }
        }
        if REAL.load(Ordering::Relaxed) == 0 {
            return None;
        }
        (*entry)[1] = copy as u64;
    }
    Some(())
}

#[repr(C)]
struct Symbol {
    name: u32,
    info: u8,
    other: u8,
    section: u16,
    value: usize,
    size: usize,
}

struct Vdso {
    symbols: *mut Symbol,
    count: usize,
    names: *const u8,
}

const HEADER: usize = 64;

/// # Safety
/// An image is mapped there.
unsafe fn segments(image: usize) -> Option<&'static [Segment]> {
    // SAFETY: as the caller promises; where they are and how many its header says.
    unsafe {
        let head = std::slice::from_raw_parts(image as *const u8, HEADER);
        let at = usize::from_le_bytes(*head.get(32..)?.first_chunk()?);
        let count = u16::from_le_bytes(*head.get(56..)?.first_chunk()?);
        let first = image.checked_add(at)? as *const Segment;
        Some(std::slice::from_raw_parts(first, usize::from(count)))
    }
}

/// # Safety
/// The vDSO is mapped there.
unsafe fn copied(real: usize) -> Option<usize> {
    // SAFETY: as the caller promises. The memory is new.
    unsafe {
        let is_loaded = |one: &&Segment| one.kind == libc::PT_LOAD;
        let load = segments(real)?.iter().find(is_loaded)?;
        if (load.offset, load.address) != (0, 0) {
            return None;
        }
        let copy = libc::mmap(
            std::ptr::null_mut(),
            load.memory,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        );
        if copy == libc::MAP_FAILED {
            return None;
        }
        (real as *const u8).copy_to_nonoverlapping(copy.cast(), load.memory);
        Some(copy as usize)
    }
}

impl Vdso {
    /// # Safety
    /// A copy of it is there.
    unsafe fn of(image: usize) -> Option<Self> {
        const STRINGS: usize = 5;
        const SYMBOLS: usize = 6;
        // SAFETY: as the caller promises; the kernel's image is a valid one.
        unsafe {
            let is_dynamic = |one: &&Segment| one.kind == libc::PT_DYNAMIC;
            let dynamic = segments(image)?.iter().find(is_dynamic)?;
            let first = image.checked_add(dynamic.offset)? as *const [usize; 2];
            let all = std::slice::from_raw_parts(first, dynamic.size / size_of::<[usize; 2]>());
            let at = |tag| {
                let entry = all.iter().find(|entry| entry[0] == tag)?;
                image.checked_add(entry[1])
            };
            let (names, symbols) = (at(STRINGS)?, at(SYMBOLS)?);
            // The linker puts the names behind the symbols.
            let length = names.checked_sub(symbols)?;
            Some(Self {
                symbols: symbols as *mut Symbol,
                count: length / size_of::<Symbol>(),
                names: names as *const u8,
            })
        }
    }

    fn symbols(&self) -> &'static mut [Symbol] {
        // SAFETY: as for `of`; nobody else has the copy.
        unsafe { std::slice::from_raw_parts_mut(self.symbols, self.count) }
    }

    fn name(&self, symbol: &Symbol) -> &'static [u8] {
        // SAFETY: names end with a zero.
        unsafe { std::ffi::CStr::from_ptr(self.names.add(symbol.name as usize).cast()) }.to_bytes()
    }
}

thread_local! {
    /// How far what the wall clock has shown last was from what it would have shown, had it gone on
    /// evenly since the beginning.
    static APART: Cell<i64> = const { Cell::new(0) };
}

/// What a replay shows first, less what the real clock does; the lowest number: nothing yet.
static SHIFT: AtomicI64 = AtomicI64::new(i64::MIN);

fn replays() -> bool {
    process::board().is_some_and(Board::replays)
}

/// The machine's own.
fn real(clock: c_int, time: *mut timespec) -> c_int {
    let real: extern "C" fn(c_int, *mut timespec) -> c_int =
        // SAFETY: the vDSO's function, which was found before anything could call this.
        unsafe { std::mem::transmute(REAL.load(Ordering::Relaxed)) };
    real(clock, time)
}

/// Go's `time.Now` reads the wall clock, and then the one that only measures, by which times are
/// compared.
///
/// The wall clock is read by what a goroutine runs, or by the runtime. `frame`: that of Go's
/// function, on the goroutine's stack.
pub unsafe extern "C" fn read(
    clock: c_int,
    time: *mut timespec,
    goroutine: usize,
    frame: usize,
) -> c_int {
    let replays = replays();
    if !replays && !works::is_at_work(goroutine) {
        return real(clock, time);
    }
    // SAFETY: what the caller gave; where it succeeded the time is filled in.
    unsafe {
        let done = for_code(goroutine, frame, || clocks::clock_gettime(clock, time));
        if done == 0 && replays {
            note_apart(pins::nanos(&*time).saturating_sub(process::real_time()));
        }
        done
    }
}

/// What a goroutine was shown is ahead of the real clock by so much.
fn note_apart(ahead: i64) {
    let turn = (Ordering::Relaxed, Ordering::Relaxed);
    let first = SHIFT.compare_exchange(i64::MIN, ahead, turn.0, turn.1);
    let shift = first.err().unwrap_or(ahead);
    APART.set(ahead.saturating_sub(shift));
}

/// What [`read`] showed lies as far from other times as it did, by the clock that measures, too: a
/// cache that was too old for a request in the recording is too old for it again.
pub unsafe extern "C" fn measure(clock: c_int, time: *mut timespec) -> c_int {
    let done = real(clock, time);
    let apart = APART.get();
    if done == 0 && apart != 0 {
        // SAFETY: the time is filled in.
        unsafe { *time = pins::timespec(pins::nanos(&*time).saturating_add(apart)) };
    }
    done
}

/// The clock that measures is read to compare a time with it, by `time.Since` or `time.Until`: that
/// is a reading of the wall clock as any other.
pub unsafe extern "C" fn compare(
    clock: c_int,
    time: *mut timespec,
    goroutine: usize,
    frame: usize,
) -> c_int {
    let mut wall = pins::timespec(0);
    // SAFETY: the memory is ours, and what the caller gave.
    unsafe {
        read(libc::CLOCK_REALTIME, &mut wall, goroutine, frame);
        measure(clock, time)
    }
}
