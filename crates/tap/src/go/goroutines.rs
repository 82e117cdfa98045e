//! What each goroutine works on, and what code it runs.
//!
//! A goroutine is known by the address of what the runtime has of it. The runtime never gives that
//! memory back: it is used for the next goroutine, which is told when it begins.

use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};

use hindcast_taplog::pins::{Caller, mixed};

use super::image::{Image, Known};
use crate::turns;

/// Goroutines at a time of which something is known; a power of two.
const PLACES: usize = 1 << 18;
/// So far is looked for one's place.
const STEPS: usize = 64;

struct Place {
    goroutine: AtomicUsize,
    /// As [`turns::packed`] has it.
    work: AtomicU64,
    /// Which one it is of those that work for a request at a time; 0: the one that has read it.
    line: AtomicU64,
    /// What it has started for its request: a hash of each function, and how often.
    started: [AtomicU64; FUNCTIONS],
}

/// Functions of which a goroutine knows how often it has started them.
const FUNCTIONS: usize = 4;

static PLACE: AtomicPtr<Place> = AtomicPtr::new(std::ptr::null_mut());
static IMAGE: AtomicPtr<Image> = AtomicPtr::new(std::ptr::null_mut());

pub fn begin(image: Image) -> Option<()> {
    let length = PLACES.saturating_mul(size_of::<Place>());
    // SAFETY: new memory, of which only what is used is made.
    let places = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            length,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        )
    };
    if places == libc::MAP_FAILED {
        return None;
    }
    IMAGE.store(Box::into_raw(Box::new(image)), Ordering::Relaxed);
    PLACE.store(places.cast(), Ordering::Release);
    Some(())
}

fn places() -> &'static [Place] {
    let first = PLACE.load(Ordering::Acquire);
    match first.is_null() {
        true => &[],
        // SAFETY: there is room for so many, and zeros are one.
        false => unsafe { std::slice::from_raw_parts(first, PLACES) },
    }
}

/// `None` if there are too many.
fn place_of(goroutine: usize, makes: bool) -> Option<&'static Place> {
    let places = places();
    let first = mixed(0, goroutine as u64) as usize;
    for step in 0..STEPS {
        let place = places.get(first.wrapping_add(step) & (PLACES - 1))?;
        match place.goroutine.load(Ordering::Relaxed) {
            known if known == goroutine => return Some(place),
            0 if !makes => return None,
            0 => {
                let turn = (Ordering::Relaxed, Ordering::Relaxed);
                match place
                    .goroutine
                    .compare_exchange(0, goroutine, turn.0, turn.1)
                {
                    Ok(_) => return Some(place),
                    Err(other) if other == goroutine => return Some(place),
                    Err(_) => {}
                }
            }
            _ => {}
        }
    }
    None
}

/// From here on the thread does what the goroutine does.
fn take_up(goroutine: usize) {
    let work = place_of(goroutine, false).map_or(0, |place| place.work.load(Ordering::Relaxed));
    turns::unpack(work);
}

/// And from here on something else.
fn put_down(goroutine: usize) {
    let work = turns::packed();
    // One that works on nothing, and has not been told of, needs no place.
    if let Some(place) = place_of(goroutine, turns::is_packed(work)) {
        place.work.store(work, Ordering::Relaxed);
    }
    turns::ends();
}

/// What a goroutine does, with the turn that is the goroutine's.
pub fn for_goroutine<T>(goroutine: usize, what: impl FnOnce() -> T) -> T {
    take_up(goroutine);
    let done = what();
    put_down(goroutine);
    done
}

/// The same of what draws or reads the clock: it matters which code does. `frame`: the frame
/// pointer of that.
pub fn for_code<T>(goroutine: usize, frame: usize, what: impl FnOnce() -> T) -> T {
    for_goroutine(goroutine, || {
        let is_needed = turns::current() != 0;
        turns::set_caller(is_needed.then(|| caller(goroutine, frame)));
        let done = what();
        turns::set_caller(None);
        done
    })
}

impl Place {
    /// How often it has started this before. The one it started last stands first.
    fn count(&self, function: u32) -> u32 {
        let own = u64::from(function) << 32;
        let mut before = own;
        for place in &self.started {
            let known = place.swap(before, Ordering::Relaxed);
            before = known;
            if (known >> 32) as u32 == function {
                break;
            }
        }
        let is_known = (before >> 32) as u32 == function;
        let count = if is_known { before as u32 } else { 0 };
        let next = own | u64::from(count.wrapping_add(1));
        self.started[0].store(next, Ordering::Relaxed);
        count
    }

    /// What a goroutine is known by that this one starts.
    ///
    /// Several that do the same draw in whichever order they run, but they are started in one. How
    /// often others are started in between, as a pool's that opens a connection, does not count.
    fn next_line(&self, request: u64, function: usize) -> u64 {
        let nth = self.count(mixed(request, function as u64) as u32);
        let line = self.line.load(Ordering::Relaxed);
        mixed(mixed(1, line), u64::from(nth))
    }
}

/// A goroutine was made by another one, to run a function, and has not begun. It may have the
/// memory of one that has ended.
pub extern "C" fn begins(goroutine: usize, by: usize, function: usize) {
    take_up(by);
    let request = turns::in_hand();
    turns::ends();
    let (work, line) = match request {
        0 => (0, 0),
        _ => {
            // SAFETY: where its code is stands first in a function.
            let code = unsafe { *(function as *const usize) };
            let starter = place_of(by, true);
            let line = starter.map_or(0, |starter| starter.next_line(request, code));
            (turns::packed_work(request), line)
        }
    };
    if let Some(place) = place_of(goroutine, work != 0) {
        place.work.store(work, Ordering::Relaxed);
        place.line.store(line, Ordering::Relaxed);
    }
}

/// Whether it works on a request, as far as can be seen at a glance.
pub fn is_at_work(goroutine: usize) -> bool {
    place_of(goroutine, false)
        .is_some_and(|place| turns::is_packed(place.work.load(Ordering::Relaxed)))
}

fn image() -> Option<&'static Image> {
    // SAFETY: it is set once, and stays.
    unsafe { IMAGE.load(Ordering::Relaxed).as_ref() }
}

/// Whether a call that returns there was made by the runtime.
pub fn is_runtime(returns: usize) -> bool {
    let known = image().and_then(|image| image.function_at(returns));
    known.is_some_and(Known::is_runtime)
}

/// Frames that tell what code asks for something.
const FRAMES: usize = 8;

/// What code asks that a goroutine runs, by the names of the functions that it is in.
fn caller(goroutine: usize, frame: usize) -> Caller {
    let Some(image) = image() else {
        return Caller::UNKNOWN;
    };
    // SAFETY: what the runtime has of a goroutine begins with the bounds of its stack.
    let [low, high] = unsafe { *(goroutine as *const [usize; 2]) };
    let line = place_of(goroutine, false).map(|place| place.line.load(Ordering::Relaxed));
    let mut hash = line.unwrap_or(0);
    let mut at = frame;
    for _ in 0..FRAMES {
        // A frame pointer, and where the call returns to.
        let is_inside = at >= low && at.saturating_add(16) <= high && at.is_multiple_of(8);
        if !is_inside {
            break;
        }
        // SAFETY: it is within the stack, which nobody moves while the goroutine is in here.
        let [next, returns] = unsafe { *(at as *const [usize; 2]) };
        let Some(function) = image.function_at(returns) else {
            break;
        };
        hash = mixed(hash, function.hash());
        if next <= at {
            break;
        }
        at = next;
    }
    Caller::of(hash)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place() -> Place {
        Place {
            goroutine: AtomicUsize::new(1),
            work: AtomicU64::new(0),
            line: AtomicU64::new(0),
            started: [const { AtomicU64::new(0) }; FUNCTIONS],
        }
    }

    #[test]
    fn what_a_goroutine_starts_is_known_by_its_turn_among_its_like() {
        let (one, other) = (place(), place());
        let lines = [one.next_line(7, 0x1000), one.next_line(7, 0x1000)];
        assert_ne!(lines[0], lines[1]);
        // Another function in between, and a request before.
        other.next_line(6, 0x1000);
        let first = other.next_line(7, 0x1000);
        other.next_line(7, 0x2000);
        assert_eq!([first, other.next_line(7, 0x1000)], lines);
        // What these start themselves is something else again.
        one.line.store(lines[0], Ordering::Relaxed);
        assert!(!lines.contains(&one.next_line(8, 0x1000)));
    }
}
