//! What code in Python asks for the time.

use std::ffi::CStr;
use std::sync::atomic::{AtomicU8, Ordering};

use hindcast_taplog::pins::{Caller, mixed};
use libc::{c_char, c_void};

use super::{Count, RELEASE, STATE_NOW, STATE_OF_THREAD, State, locked};
use crate::symbol::Symbol;

type Of = unsafe extern "C" fn(*mut c_void) -> *mut c_void;
type Attribute = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;
type Chars = unsafe extern "C" fn(*mut c_void, *mut isize) -> *const u8;
type Clear = unsafe extern "C" fn();

/// The frame that runs is borrowed; what the others return is the caller's.
static FRAME: Symbol = Symbol::new(&[c"PyEval_GetFrame"]);
/// Since Python 3.9; before, there are the attributes only, which take longer.
static BACK: Symbol = Symbol::new(&[c"PyFrame_GetBack"]);
static CODE: Symbol = Symbol::new(&[c"PyFrame_GetCode"]);
static ATTRIBUTE: Symbol = Symbol::new(&[c"PyObject_GetAttrString"]);
static CHARS: Symbol = Symbol::new(&[c"PyUnicode_AsUTF8AndSize"]);
static CLEAR: Symbol = Symbol::new(&[c"PyErr_Clear"]);
static RUNS: Symbol = Symbol::new(&[c"Py_IsInitialized"]);

static FOUND: AtomicU8 = AtomicU8::new(NOT_LOOKED);
const NOT_LOOKED: u8 = 0;
const THERE: u8 = 1;
const NOT_THERE: u8 = 2;

/// So many frames are looked at.
const FRAMES: usize = 16;

/// The function that asks, and the innermost function of another file that it works for, but for
/// those of Python's own library: a package that knows the time is called from here and there.
/// [`Caller::UNKNOWN`] without Python, and in a thread that has not got its lock.
///
/// The shim has the same for what is drawn, where Python lets others run.
pub fn caller() -> Caller {
    match FOUND.load(Ordering::Acquire) {
        THERE => {}
        NOT_THERE => return Caller::UNKNOWN,
        _ => {
            if !find() {
                return Caller::UNKNOWN;
            }
        }
    }
    // SAFETY: all functions were found, and are what Python declares them to be. The thread has
    // Python's lock, so its frames stay while they are looked at.
    unsafe {
        if !locked() {
            return Caller::UNKNOWN;
        }
        Caller::of(hash())
    }
}

/// The same where a Python may not be there yet, or not have said so.
pub fn caller_so_far() -> Caller {
    match FOUND.load(Ordering::Acquire) {
        THERE => caller(),
        _ => Caller::UNKNOWN,
    }
}

/// Whether there is a Python, with all that is needed.
pub fn find() -> bool {
    if !RUNS.find() {
        FOUND.store(NOT_THERE, Ordering::Release);
        return false;
    }
    let all = [
        &STATE_OF_THREAD,
        &STATE_NOW,
        &RELEASE,
        &FRAME,
        &ATTRIBUTE,
        &CHARS,
        &CLEAR,
    ];
    let is_there = all.iter().all(|function| function.find());
    BACK.find();
    CODE.find();
    let found = if is_there { THERE } else { NOT_THERE };
    FOUND.store(found, Ordering::Release);
    is_there
}

/// # Safety
/// The functions were found, and the thread has Python's lock.
unsafe fn hash() -> u64 {
    // SAFETY: as the caller promises. Each frame but the first is released when it was looked at.
    unsafe {
        let frame: State = std::mem::transmute(FRAME.address());
        let release: Count = std::mem::transmute(RELEASE.address());
        let first = frame();
        let (mut frame, mut innermost, mut hash) = (first, None, 0);
        for _ in 0..FRAMES {
            let Some(function) = function_of(frame) else {
                break;
            };
            let is_of_it = function.is_of_python || innermost == Some(function.file);
            if !is_of_it {
                hash = mixed(hash, function.whole);
                if innermost.is_some() {
                    break;
                }
                innermost = Some(function.file);
            }
            let next = part_of(frame, &BACK, c"f_back");
            if frame != first {
                release(frame);
            }
            frame = next;
        }
        if frame != first && !frame.is_null() {
            release(frame);
        }
        hash
    }
}

struct Named {
    /// Hashes of its file, and of the file and its name.
    file: u64,
    whole: u64,
    is_of_python: bool,
}

/// The function that a frame runs; `None` if there is no frame.
///
/// # Safety
/// As for [`hash`]; it is a frame, or null.
unsafe fn function_of(frame: *mut c_void) -> Option<Named> {
    if frame.is_null() {
        return None;
    }
    // SAFETY: as the caller promises.
    unsafe {
        let release: Count = std::mem::transmute(RELEASE.address());
        let code = part_of(frame, &CODE, c"f_code");
        if code.is_null() {
            return None;
        }
        let mut is_of_python = false;
        let file = text_of(code, c"co_filename".as_ptr(), 0, |path| {
            is_of_python = is_of_library(path);
            end_of_path(path)
        });
        let whole = text_of(code, c"co_name".as_ptr(), file, |name| name);
        release(code);
        Some(Named {
            file,
            whole,
            is_of_python,
        })
    }
}

/// What a function says of a frame, or else its attribute: null if there is none. It is to be
/// released.
///
/// # Safety
/// As for [`hash`]; it is an object.
unsafe fn part_of(frame: *mut c_void, function: &Symbol, name: &CStr) -> *mut c_void {
    // SAFETY: as the caller promises, and what was found is what Python declares it to be.
    unsafe {
        if !function.address().is_null() {
            return std::mem::transmute::<*mut c_void, Of>(function.address())(frame);
        }
        let attribute: Attribute = std::mem::transmute(ATTRIBUTE.address());
        let part = attribute(frame, name.as_ptr());
        if part.is_null() {
            std::mem::transmute::<*mut c_void, Clear>(CLEAR.address())();
        }
        part
    }
}

/// A file and its folder. What is in front of them may be another one for changed code.
fn end_of_path(path: &[u8]) -> &[u8] {
    let slashes = path.iter().enumerate().rev().filter(|one| *one.1 == b'/');
    let from = slashes.map(|(at, _)| at + 1).nth(1);
    path.get(from.unwrap_or(0)..).unwrap_or(path)
}

/// Whether it is a file of Python's own library, `/usr/lib/python3.11/uuid.py`,
/// `<frozen importlib>`, or the shim, which is in another place each time.
fn is_of_library(path: &[u8]) -> bool {
    let has = |part: &[u8]| path.windows(part.len()).any(|some| some == part);
    path.first() == Some(&b'<')
        || has(b"/hindcast-tap-")
        || has(b"/lib/python3") && !has(b"-packages/")
}

/// Adds what counts of a text that an object has to a hash.
///
/// # Safety
/// As for [`hash`]; it is an object, and a C string.
unsafe fn text_of(
    object: *mut c_void,
    name: *const c_char,
    hash: u64,
    part: impl FnOnce(&[u8]) -> &[u8],
) -> u64 {
    // SAFETY: as the caller promises; the bytes are the text's as long as that is held.
    unsafe {
        let attribute: Attribute = std::mem::transmute(ATTRIBUTE.address());
        let release: Count = std::mem::transmute(RELEASE.address());
        let clear: Clear = std::mem::transmute(CLEAR.address());
        let text = attribute(object, name);
        if text.is_null() {
            clear();
            return hash;
        }
        let chars: Chars = std::mem::transmute(CHARS.address());
        let mut length = 0;
        let bytes = chars(text, &mut length);
        let hash = match usize::try_from(length) {
            Ok(length) if !bytes.is_null() => {
                let bytes = part(std::slice::from_raw_parts(bytes, length));
                bytes
                    .iter()
                    .fold(hash, |hash, &byte| mixed(hash, u64::from(byte)))
            }
            _ => {
                clear();
                hash
            }
        };
        release(text);
        hash
    }
}
