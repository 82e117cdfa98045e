//! Which request Python works on, where a loop serves several: a context variable says so. And what
//! code asks for the time: its frames say so ([`caller`]).
//!
//! The shim tells where the variable is. It is read when something is drawn, the clock is read, or
//! a driver in C writes to the database, which is seldom; to be told at each switch of a task would
//! cost every switch something.
//!
//! Python's functions are found by name, once there is a Python. They are called by a thread that
//! has Python's lock only, which [`locked`] finds out as Python itself does, and which
//! [`request_of_writer`] takes.

mod frames;

use std::sync::atomic::{AtomicPtr, Ordering};

use libc::{c_char, c_int, c_void};

use crate::symbol::Symbol;

type State = unsafe extern "C" fn() -> *mut c_void;
type Get = unsafe extern "C" fn(*mut c_void, *mut c_void, *mut *mut c_void) -> c_int;
type Size = unsafe extern "C" fn(*mut c_void) -> isize;
type Text = unsafe extern "C" fn(*mut c_void) -> *mut c_char;
type Count = unsafe extern "C" fn(*mut c_void);
type Lock = unsafe extern "C" fn() -> c_int;
type Unlock = unsafe extern "C" fn(c_int);
type Ends = unsafe extern "C" fn() -> c_int;

/// The variable; its values are bytes, a number of a request, or `None`.
static VARIABLE: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

static STATE_OF_THREAD: Symbol = Symbol::new(&[c"PyGILState_GetThisThreadState"]);
/// Its name is another one since Python 3.13.
static STATE_NOW: Symbol = Symbol::new(&[
    c"PyThreadState_GetUnchecked",
    c"_PyThreadState_UncheckedGet",
]);
static GET: Symbol = Symbol::new(&[c"PyContextVar_Get"]);
static SIZE: Symbol = Symbol::new(&[c"PyBytes_Size"]);
static TEXT: Symbol = Symbol::new(&[c"PyBytes_AsString"]);
static NONE: Symbol = Symbol::new(&[c"_Py_NoneStruct"]);
static KEEP: Symbol = Symbol::new(&[c"Py_IncRef"]);
static RELEASE: Symbol = Symbol::new(&[c"Py_DecRef"]);
static LOCK: Symbol = Symbol::new(&[c"PyGILState_Ensure"]);
static UNLOCK: Symbol = Symbol::new(&[c"PyGILState_Release"]);
/// Its first name is of Python 3.13.
static ENDS: Symbol = Symbol::new(&[c"Py_IsFinalizing", c"_Py_IsFinalizing"]);

pub use frames::{caller, caller_so_far};

/// The shim says where the variable is; 0: there is none yet, but a Python.
///
/// # Safety
/// It is the address of a variable of this process's Python, and the thread has Python's lock.
pub unsafe fn set(variable: usize) {
    let all = [
        &STATE_OF_THREAD,
        &STATE_NOW,
        &GET,
        &SIZE,
        &TEXT,
        &NONE,
        &KEEP,
        &RELEASE,
        &LOCK,
        &UNLOCK,
        &ENDS,
    ];
    if variable == 0 {
        frames::find();
        return;
    }
    if !all.iter().all(|function| function.find()) {
        return;
    }
    let variable = variable as *mut c_void;
    // SAFETY: it is Python's, as the caller promises, and stays from here on.
    unsafe { std::mem::transmute::<*mut c_void, Count>(KEEP.address())(variable) };
    VARIABLE.store(variable, Ordering::Release);
}

/// Whether the shim has said where the variable is.
pub fn has_variable() -> bool {
    !VARIABLE.load(Ordering::Acquire).is_null()
}

/// The request that the thread's context says; 0: none.
pub fn request() -> u64 {
    let variable = VARIABLE.load(Ordering::Acquire);
    if variable.is_null() {
        return 0;
    }
    // SAFETY: all functions were found before the variable was stored, and are what Python declares
    // them to be. The thread has Python's lock, so the value stays while it is looked at.
    unsafe {
        if !locked() {
            return 0;
        }
        let mut value = std::ptr::null_mut();
        let get: Get = std::mem::transmute(GET.address());
        let default = NONE.address();
        if get(variable, default, &mut value) != 0 || value.is_null() {
            return 0;
        }
        let number = number(value);
        std::mem::transmute::<*mut c_void, Count>(RELEASE.address())(value);
        number
    }
}

/// The same for a thread that may have given Python's lock away: a driver in C does that before it
/// writes to the database. It takes the lock for as long as it looks.
///
/// The thread may hold a lock of the driver's meanwhile. Drivers take theirs without Python's, so
/// no thread waits for the one with the other in its hands. A Python that ends gives its lock to
/// nobody any more.
pub fn request_of_writer() -> u64 {
    if !has_variable() {
        return 0;
    }
    // SAFETY: as in `request`. A thread that Python knows may take its lock where it has not got
    // it, and gives it back as it was.
    unsafe {
        let own: State = std::mem::transmute(STATE_OF_THREAD.address());
        if own().is_null() || locked() {
            return request();
        }
        if std::mem::transmute::<*mut c_void, Ends>(ENDS.address())() != 0 {
            return 0;
        }
        let before = std::mem::transmute::<*mut c_void, Lock>(LOCK.address())();
        let request = request();
        std::mem::transmute::<*mut c_void, Unlock>(UNLOCK.address())(before);
        request
    }
}

/// Whether the thread has Python's lock: then the state that is its own is the one that runs.
unsafe fn locked() -> bool {
    // SAFETY: as in `request`. Both only look.
    unsafe {
        let own: State = std::mem::transmute(STATE_OF_THREAD.address());
        let now: State = std::mem::transmute(STATE_NOW.address());
        let own = own();
        !own.is_null() && own == now()
    }
}

unsafe fn number(value: *mut c_void) -> u64 {
    if value == NONE.address() {
        return 0;
    }
    // SAFETY: as in `request`. The shim stores bytes or nothing in the variable.
    unsafe {
        let size: Size = std::mem::transmute(SIZE.address());
        let text: Text = std::mem::transmute(TEXT.address());
        match size(value) {
            8 => u64::from_le(text(value).cast::<u64>().read_unaligned()),
            _ => 0,
        }
    }
}
