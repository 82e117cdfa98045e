//! What code in Ruby asks for the time: its frames say so.
//!
//! Ruby's functions are found by name. They are those for profilers, which run in the middle of a
//! program: they allocate nothing and call no code of it. A thread asks that has Ruby's lock, so
//! the frames stay while they are looked at.

use std::sync::atomic::{AtomicU8, Ordering};

use hindcast_taplog::pins::{Caller, mixed, mixed_text};
use libc::{c_char, c_int};

use crate::symbol::Symbol;

/// An object, or what stands for one.
type Value = usize;
type HasLock = unsafe extern "C" fn() -> c_int;
type Frames = unsafe extern "C" fn(c_int, c_int, *mut Value, *mut c_int) -> c_int;
type Part = unsafe extern "C" fn(Value) -> Value;
type Text = unsafe extern "C" fn(*mut Value) -> *const c_char;

static HAS_LOCK: Symbol = Symbol::new(&[c"ruby_thread_has_gvl_p"]);
static FRAMES_OF: Symbol = Symbol::new(&[c"rb_profile_frames"]);
static PATH: Symbol = Symbol::new(&[c"rb_profile_frame_path"]);
static NAME: Symbol = Symbol::new(&[c"rb_profile_frame_base_label"]);
static TEXT: Symbol = Symbol::new(&[c"rb_string_value_ptr"]);

static FOUND: AtomicU8 = AtomicU8::new(NOT_LOOKED);
const NOT_LOOKED: u8 = 0;
const THERE: u8 = 1;
const NOT_THERE: u8 = 2;

/// So many frames are looked at.
const FRAMES: usize = 16;
/// So many bytes of a text.
const TEXT_MAX: usize = 512;
/// `nil`, which was 8 before Ruby 3.2; as a special constant it is no text in either.
const NILS: [Value; 2] = [4, 8];

/// The method that asks, and the innermost one of another file that it works for, but for those of
/// Ruby's own library and of what extends its times: a gem that knows the time is called from here
/// and there. [`Caller::UNKNOWN`] without Ruby, and in a thread that has not got its lock.
pub fn caller() -> Caller {
    match FOUND.load(Ordering::Acquire) {
        THERE => {}
        NOT_THERE => return Caller::UNKNOWN,
        _ => {
            let all = [&HAS_LOCK, &FRAMES_OF, &PATH, &NAME, &TEXT];
            let is_there = all.iter().all(|function| function.find());
            let found = if is_there { THERE } else { NOT_THERE };
            FOUND.store(found, Ordering::Release);
            if !is_there {
                return Caller::UNKNOWN;
            }
        }
    }
    // SAFETY: all functions were found, and are what Ruby declares them to be.
    unsafe {
        let has_lock: HasLock = std::mem::transmute(HAS_LOCK.address());
        match has_lock() {
            0 => Caller::UNKNOWN,
            _ => Caller::of(hash()),
        }
    }
}

/// # Safety
/// The functions were found, and the thread has Ruby's lock.
unsafe fn hash() -> u64 {
    let (mut frames, mut lines) = ([0; FRAMES], [0; FRAMES]);
    // SAFETY: as the caller promises; there is room for so many.
    let count = unsafe {
        let of: Frames = std::mem::transmute(FRAMES_OF.address());
        of(0, FRAMES as c_int, frames.as_mut_ptr(), lines.as_mut_ptr())
    };
    let (mut innermost, mut hash) = (None, 0);
    for &frame in frames.iter().take(usize::try_from(count).unwrap_or(0)) {
        // SAFETY: as the caller promises; it is a frame.
        let Some(method) = (unsafe { method_of(frame) }) else {
            continue;
        };
        if method.is_of_ruby || innermost == Some(method.file) {
            continue;
        }
        hash = mixed(hash, method.whole);
        if innermost.is_some() {
            break;
        }
        innermost = Some(method.file);
    }
    hash
}

struct Method {
    /// Hashes of its file, and of the file and its name.
    file: u64,
    whole: u64,
    is_of_ruby: bool,
}

/// The method that a frame runs; `None` if it is written in C.
///
/// # Safety
/// As for [`hash`]; it is a frame.
unsafe fn method_of(frame: Value) -> Option<Method> {
    // SAFETY: as the caller promises. The texts are those of code that runs.
    unsafe {
        let path: Part = std::mem::transmute(PATH.address());
        let name: Part = std::mem::transmute(NAME.address());
        let path = text_of(path(frame))?;
        let file = mixed_text(0, end_of_path(path));
        Some(Method {
            file,
            whole: text_of(name(frame)).map_or(file, |name| mixed_text(file, name)),
            is_of_ruby: is_of_library(path),
        })
    }
}

/// The bytes of a text; `None` if there is none.
///
/// # Safety
/// As for [`hash`]; it is a text of Ruby that stays as it is, or `nil`.
unsafe fn text_of<'a>(mut text: Value) -> Option<&'a [u8]> {
    if text == 0 || NILS.contains(&text) {
        return None;
    }
    // SAFETY: as the caller promises. Behind a text of Ruby there is a zero.
    unsafe {
        let start: Text = std::mem::transmute(TEXT.address());
        let start = start(&mut text);
        if start.is_null() {
            return None;
        }
        let length = libc::strnlen(start, TEXT_MAX);
        Some(std::slice::from_raw_parts(start.cast(), length))
    }
}

/// A file and its folder. What is in front of them may be another one for changed code.
fn end_of_path(path: &[u8]) -> &[u8] {
    let slashes = path.iter().enumerate().rev().filter(|one| *one.1 == b'/');
    let from = slashes.map(|(at, _)| at.saturating_add(1)).nth(1);
    path.get(from.unwrap_or(0)..).unwrap_or(path)
}

/// Whether it is a file of Ruby's own library, `/usr/lib/ruby/3.1.0/time.rb`, `<internal:timev>`,
/// of the shim, or one by which Rails extends Ruby's times.
fn is_of_library(path: &[u8]) -> bool {
    let has = |part: &[u8]| path.windows(part.len()).any(|some| some == part);
    let own = || {
        let part = b"/lib/ruby/";
        let mut places = path.windows(part.len().saturating_add(1));
        places.any(|some| some.starts_with(part) && some.last().is_some_and(u8::is_ascii_digit))
    };
    path.first() == Some(&b'<')
        || has(b"/hindcast-tap-")
        || has(b"/active_support/core_ext/")
        || has(b"/active_support/values/")
        || own() && !has(b"/gems/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_ruby_itself_are_known() {
        for path in [
            "<internal:timev>",
            "/usr/lib/ruby/3.1.0/time.rb",
            "/usr/local/lib/ruby/3.3.0/logger.rb",
            "/gems/activesupport-7.1.2/lib/active_support/core_ext/time/calculations.rb",
        ] {
            assert!(is_of_library(path.as_bytes()), "{path}");
        }
        for path in [
            "/usr/lib/ruby/vendor_ruby/active_record/timestamp.rb",
            "/usr/local/lib/ruby/gems/3.3.0/gems/rack-3.0/lib/rack/session.rb",
            "/usr/local/lib/ruby/3.3.0/bundled_gems/gems/a/b.rb",
            "/app/models/note.rb",
            "(erb)",
        ] {
            assert!(!is_of_library(path.as_bytes()), "{path}");
        }
        assert_eq!(end_of_path(b"/app/models/note.rb"), b"models/note.rb");
    }
}
