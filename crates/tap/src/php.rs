//! What code in PHP asks for the time: its frames say so.
//!
//! PHP exports a variable that has the innermost frame, but not where in it, which differs from one
//! version to the next. So that place is looked for, once, where it can be told by what PHP's own
//! functions say of the innermost frame. What is looked at for this is read by the kernel, which
//! refuses what is no memory.
//!
//! ```text
//!   executor_globals   … top  end  stack  size  frame …      zend_get_executed_filename_ex()
//!                             │    │            │                          ║ the same
//!                             └─ = stack.end    ▼                          ║
//!                                 frame { func, prev } ─▶ func { name, …, filename }
//!                                                                 ║ get_active_function_name()
//! ```

use std::ffi::CStr;
use std::sync::atomic::{AtomicU32, Ordering};

use hindcast_taplog::pins::{Caller, mixed, mixed_text};
use libc::{c_char, c_void};

use crate::symbol::Symbol;

type FileOf = unsafe extern "C" fn() -> *const PhpString;
type NameOf = unsafe extern "C" fn() -> *const c_char;
type OfThread = unsafe extern "C" fn() -> *mut c_void;

/// PHP's variables are a structure of its own in each thread, in builds for several threads.
static ALL: Symbol = Symbol::new(&[c"executor_globals"]);
static OF_THREAD: Symbol = Symbol::new(&[c"tsrm_get_ls_cache"]);
static OFFSET: Symbol = Symbol::new(&[c"executor_globals_offset"]);
static FILE: Symbol = Symbol::new(&[c"zend_get_executed_filename_ex"]);
static NAME: Symbol = Symbol::new(&[c"get_active_function_name"]);

static SERVER: Symbol = Symbol::new(&[c"sapi_module"]);

/// Whether this is PHP's own server: [`serves_one_at_a_time`].
static SERVES: AtomicU32 = AtomicU32::new(NOT_LOOKED);

/// What is known: [`Places`], or one of these.
static FOUND: AtomicU32 = AtomicU32::new(NOT_LOOKED);
const NOT_LOOKED: u32 = 0;
const NOT_THERE: u32 = 1;
/// There is a PHP, and it is not known where it has its frames. From here on tries are counted.
const UNPLACED: u32 = 2;
const TRIES: u32 = 64;
const PLACED: u32 = 1 << 31;

/// So much of PHP's variables is looked at, and of a function.
const VARIABLES: usize = 256;
const FUNCTION: usize = 32;
/// So many frames are looked at, and bytes of a text.
const FRAMES: usize = 48;
const TEXT_MAX: usize = 1024;

/// A frame, as far as it is the same in all versions since PHP 7.1.
#[repr(C)]
#[derive(Clone, Copy)]
struct Frame {
    before: [usize; 3],
    function: *const Function,
    this: [usize; 2],
    previous: *const Frame,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Function {
    kind: u8,
    name: *const PhpString,
}

#[repr(C)]
struct PhpString {
    before: [usize; 2],
    length: usize,
    text: [u8; 0],
}

/// Where PHP has its innermost frame, and its functions their file; in words.
#[derive(Clone, Copy)]
struct Places {
    frame: usize,
    file: usize,
}

impl Places {
    fn packed(self) -> u32 {
        PLACED | (self.frame as u32) << 8 | self.file as u32
    }

    fn of(packed: u32) -> Option<Self> {
        let (frame, file) = (packed >> 8 & 0xffff, packed & 0xff);
        (packed & PLACED != 0).then_some(Self {
            frame: frame as usize,
            file: file as usize,
        })
    }
}

/// The function that asks, and the innermost one of another file that it works for, but for those
/// of libraries that know the time. [`Caller::UNKNOWN`] without PHP, and outside of its code.
pub fn caller() -> Caller {
    let known = FOUND.load(Ordering::Acquire);
    match known {
        NOT_THERE => return Caller::UNKNOWN,
        NOT_LOOKED => {
            let is_there = FILE.find() && NAME.find();
            let is_one = is_there && (ALL.find() || OF_THREAD.find() && OFFSET.find());
            let found = if is_one { UNPLACED } else { NOT_THERE };
            FOUND.store(found, Ordering::Release);
            return match is_one {
                true => caller(),
                false => Caller::UNKNOWN,
            };
        }
        _ => {}
    }
    let Some(variables) = variables() else {
        return Caller::UNKNOWN;
    };
    // SAFETY: the functions were found, and look only; the thread is one of PHP's.
    let file = unsafe { std::mem::transmute::<*mut c_void, FileOf>(FILE.address())() };
    if file.is_null() {
        return Caller::UNKNOWN;
    }
    let Some(places) = Places::of(known).or_else(|| look(variables, file)) else {
        return Caller::UNKNOWN;
    };
    // SAFETY: the places were found by what they have; the thread is one of PHP's, and its frames
    // stay while it looks.
    Caller::of(unsafe { hash(variables, places, file) })
}

/// Whether the program is PHP, or has it in it.
pub fn is_there() -> bool {
    SERVER.find()
}

/// Whether the process is PHP's own server (`php -S`): it reads from several connections as they
/// come, and begins with a request when it has read all of it, which it did last.
pub fn serves_one_at_a_time() -> bool {
    const YES: u32 = UNPLACED;
    if SERVES.load(Ordering::Relaxed) == NOT_LOOKED {
        // SAFETY: where there is PHP, the variable is a structure that begins with the name of what
        // PHP serves as, which is there before anything is read.
        let is_it = SERVER.find()
            && unsafe {
                let name = *(SERVER.address() as *const *const c_char);
                !name.is_null() && CStr::from_ptr(name) == c"cli-server"
            };
        SERVES.store(if is_it { YES } else { NOT_THERE }, Ordering::Relaxed);
    }
    SERVES.load(Ordering::Relaxed) == YES
}

/// Where the thread has PHP's variables; `None` in one that is not PHP's.
fn variables() -> Option<*const usize> {
    if !ALL.address().is_null() {
        // SAFETY: both only tell numbers.
        let is_main = unsafe { libc::gettid() == libc::getpid() };
        return is_main.then_some(ALL.address() as *const usize);
    }
    // SAFETY: the function and the variable were found, and are what PHP declares them to be.
    let (own, offset) = unsafe {
        let own = std::mem::transmute::<*mut c_void, OfThread>(OF_THREAD.address())();
        (own as usize, *(OFFSET.address() as *const usize))
    };
    (own != 0 && offset != 0).then_some(own.wrapping_add(offset) as *const usize)
}

/// Looks for the places, where code in this file runs. Gives up when it has looked often in vain.
fn look(variables: *const usize, file: *const PhpString) -> Option<Places> {
    // SAFETY: as in [`caller`].
    let name = unsafe { std::mem::transmute::<*mut c_void, NameOf>(NAME.address())() };
    let found = find(variables, file, name);
    match found {
        Some(places) => FOUND.store(places.packed(), Ordering::Release),
        None => {
            let tries = FOUND.fetch_add(1, Ordering::AcqRel).saturating_add(1);
            if (TRIES..PLACED).contains(&tries) {
                FOUND.store(NOT_THERE, Ordering::Release);
            }
        }
    }
    found
}

fn find(variables: *const usize, file: *const PhpString, name: *const c_char) -> Option<Places> {
    let mut words = [0; VARIABLES];
    let count = copy_some(variables, &mut words);
    let of = |(at, five): (usize, &[usize])| {
        let &[top, end, stack, size, frame] = five else {
            return None;
        };
        // The pages of frames: each begins with where it ends.
        let is_page =
            stack <= frame && frame < top && top <= end && (1 << 12..1 << 24).contains(&size);
        let mut page = [0; 2];
        if !is_page || copy_some(stack as *const usize, &mut page) < 2 || page[1] != end {
            return None;
        }
        let file = file_in(frame as *const Frame, file, name)?;
        let frame = at.saturating_add(4);
        Some(Places { frame, file })
    };
    words.get(..count)?.windows(5).enumerate().find_map(of)
}

/// Where a function of this file has it, if the innermost frame is of a function with this name and
/// works for one of the file.
fn file_in(mut at: *const Frame, file: *const PhpString, name: *const c_char) -> Option<usize> {
    let mut is_named = false;
    for _ in 0..FRAMES {
        let frame = copy(at)?;
        if let Some(function) = copy(frame.function) {
            let text = (function.name as usize).wrapping_add(size_of::<PhpString>());
            is_named = is_named || text == name as usize;
            if !is_named {
                return None;
            }
            if is_of_program(&function) {
                let mut words = [0; FUNCTION];
                let count = copy_some(frame.function.cast::<usize>(), &mut words);
                return words
                    .get(..count)?
                    .iter()
                    .position(|&word| word == file as usize);
            }
        }
        at = frame.previous;
    }
    None
}

/// Functions of PHP itself and of its extensions are odd.
fn is_of_program(function: &Function) -> bool {
    function.kind & 1 == 0
}

/// What is there, if that can be read.
fn copy<T: Copy>(from: *const T) -> Option<T> {
    let mut into = std::mem::MaybeUninit::<T>::uninit();
    let length = read(from.cast(), into.as_mut_ptr().cast(), size_of::<T>());
    // SAFETY: all of it was read; these are numbers and addresses, of which any bits are some.
    (length == size_of::<T>()).then(|| unsafe { into.assume_init() })
}

/// As many words as can be read.
fn copy_some(from: *const usize, into: &mut [usize]) -> usize {
    let length = size_of_val(into);
    read(from.cast(), into.as_mut_ptr().cast(), length) / size_of::<usize>()
}

/// Bytes of our own memory, through the kernel.
fn read(from: *const c_void, into: *mut c_void, length: usize) -> usize {
    let part = |base: *mut c_void| libc::iovec {
        iov_base: base,
        iov_len: length,
    };
    let (ours, theirs) = (part(into), part(from.cast_mut()));
    // SAFETY: there is room for so many bytes; what is no memory is refused.
    let read = unsafe { libc::process_vm_readv(libc::getpid(), &ours, 1, &theirs, 1, 0) };
    usize::try_from(read).unwrap_or(0)
}

/// # Safety
/// The places are those of this PHP, in a thread of its own, in which code of this file runs.
unsafe fn hash(variables: *const usize, places: Places, file: *const PhpString) -> u64 {
    let (mut innermost, mut hash) = (None, 0);
    // SAFETY: as the caller promises.
    let mut at = unsafe { *variables.add(places.frame) } as *const Frame;
    let mut is_first = true;
    for _ in 0..FRAMES {
        if at.is_null() {
            break;
        }
        // SAFETY: frames of code that runs, and its functions.
        let (frame, function) = unsafe { ((*at), (*at).function.as_ref()) };
        at = frame.previous;
        let Some(function) = function.filter(|one| is_of_program(one)) else {
            continue;
        };
        // SAFETY: a function of the program has its file there, which stays as long as it runs.
        let own = unsafe { *frame.function.cast::<*const PhpString>().add(places.file) };
        if std::mem::take(&mut is_first) && own != file {
            return 0;
        }
        // SAFETY: texts of PHP, which stay as long as the function.
        let (path, name) = unsafe { (text_of(own), text_of(function.name)) };
        if is_of_library(path) || innermost == Some(own) {
            continue;
        }
        let file = mixed_text(0, end_of_path(path));
        hash = mixed(hash, mixed_text(file, known_name(name)));
        if innermost.is_some() {
            break;
        }
        innermost = Some(own);
    }
    hash
}

/// # Safety
/// It is null, or a text of PHP that stays as it is.
unsafe fn text_of<'a>(text: *const PhpString) -> &'a [u8] {
    if text.is_null() {
        return &[];
    }
    // SAFETY: as the caller promises.
    unsafe {
        let length = (*text).length.min(TEXT_MAX);
        std::slice::from_raw_parts((&raw const (*text).text).cast(), length)
    }
}

/// A function without a name is called by its file and line since PHP 8.4.
fn known_name(name: &[u8]) -> &[u8] {
    const CLOSURE: &[u8] = b"{closure";
    match name.starts_with(CLOSURE) {
        true => CLOSURE,
        false => name,
    }
}

/// A file and its folder. What is in front of them may be another one for changed code, and what
/// is behind them, `(12) : eval()'d code`, has a line.
fn end_of_path(path: &[u8]) -> &[u8] {
    let end = path.iter().position(|&byte| byte == b'(');
    let path = path.get(..end.unwrap_or(path.len())).unwrap_or(path);
    let slashes = path.iter().enumerate().rev().filter(|one| *one.1 == b'/');
    let from = slashes.map(|(at, _)| at.saturating_add(1)).nth(1);
    path.get(from.unwrap_or(0)..).unwrap_or(path)
}

/// Whether it is a file of a library that knows the time for all others: Carbon with the ways by
/// which Laravel gets to it, and Symfony's clock.
fn is_of_library(path: &[u8]) -> bool {
    const LIBRARIES: [&[u8]; 6] = [
        b"/Carbon/",
        b"/Support/Facades/",
        b"/Support/DateFactory.php",
        b"/Foundation/helpers.php",
        b"/Component/Clock/",
        b"/symfony/clock/",
    ];
    let has = |part: &&[u8]| path.windows(part.len()).any(|some| some == *part);
    LIBRARIES.iter().any(has)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_the_same_in_changed_code_is_known() {
        let end = |path: &'static str| end_of_path(path.as_bytes());
        assert_eq!(end("/srv/app/src/Note.php"), b"src/Note.php");
        assert_eq!(end("/a/b/t.php(12) : eval()'d code"), b"b/t.php");
        assert_eq!(end("x.php"), b"x.php");
        assert_eq!(
            known_name(b"{closure:/srv/a.php:12}"),
            known_name(b"{closure}")
        );
        assert_eq!(known_name(b"save"), b"save");
        for path in [
            "/usr/share/php/Carbon/Traits/Creator.php",
            "/app/vendor/nesbot/carbon/src/Carbon/Carbon.php",
            "/vendor/laravel/framework/src/Illuminate/Support/Facades/Facade.php",
            "/app/vendor/symfony/clock/NativeClock.php",
        ] {
            assert!(is_of_library(path.as_bytes()), "{path}");
        }
        assert!(!is_of_library(b"/app/Models/Carbonated.php"));
    }

    #[test]
    fn places_are_kept_in_one_number() {
        let places = Places {
            frame: 200,
            file: 16,
        };
        let same = Places::of(places.packed()).unwrap();
        assert_eq!((same.frame, same.file), (200, 16));
        for none in [NOT_LOOKED, NOT_THERE, UNPLACED, TRIES] {
            assert!(Places::of(none).is_none());
        }
    }

    #[test]
    fn what_is_no_memory_is_not_read() {
        assert!(copy(std::ptr::null::<Frame>()).is_none());
        assert_eq!(copy(&7_usize), Some(7));
        assert_eq!(copy_some(64 as *const usize, &mut [0; 2]), 0);
    }
}
