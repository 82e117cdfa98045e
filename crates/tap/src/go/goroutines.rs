//! What each goroutine works on, and what code it runs.

use std::sync::atomic::{AtomicPtr, Ordering};

use hindcast_taplog::pins::{Caller, mixed};

use super::image::{Image, Known};
use crate::{pins, turns, works};

static IMAGE: AtomicPtr<Image> = AtomicPtr::new(std::ptr::null_mut());

pub fn begin(image: Image) -> Option<()> {
    works::begin()?;
    IMAGE.store(Box::into_raw(Box::new(image)), Ordering::Relaxed);
    Some(())
}

/// What a goroutine does, with the turn that is the goroutine's.
pub fn for_goroutine<T>(goroutine: usize, what: impl FnOnce() -> T) -> T {
    works::take_up(goroutine);
    // Several goroutines of a request draw while one of them connects.
    let before = works::connects(goroutine);
    turns::set_connecting(Some(before));
    let done = what();
    let now = turns::set_connecting(None).unwrap_or(false);
    works::put_down(goroutine);
    if now != before {
        works::set_connects(goroutine, now);
    }
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

/// Fills it for a goroutine that works for no request, as the main one at the start: whichever
/// thread it runs in, it is known by its code. False if it is not filled.
///
/// # Safety
/// There is room for so many bytes.
pub unsafe fn draw_for_none(goroutine: usize, frame: usize, bytes: *mut u8, length: usize) -> bool {
    // SAFETY: as the caller promises.
    !works::is_at_work(goroutine)
        && unsafe { pins::draw_for_process(caller(goroutine, frame), bytes, length) }
}

/// A goroutine was made by another one, to run a function, and has not begun. It may have the
/// memory of one that has ended.
pub extern "C" fn begins(goroutine: usize, by: usize, function: usize) {
    works::take_up(by);
    let request = turns::in_hand();
    turns::ends();
    // SAFETY: where its code is stands first in a function.
    let code = unsafe { *(function as *const usize) };
    works::begins(goroutine, by, request, code);
}

fn image() -> Option<&'static Image> {
    // SAFETY: it is set once, and stays.
    unsafe { IMAGE.load(Ordering::Relaxed).as_ref() }
}

/// Whether a call of the runtime's generator that returns there draws for the program, and not for
/// the order of a table.
pub fn draws(returns: usize) -> bool {
    let known = image().and_then(|image| image.function_at(returns));
    known.is_some_and(Known::draws)
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
    let mut hash = works::line(goroutine);
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
