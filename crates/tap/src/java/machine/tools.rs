//! The way of tools into a machine: JVMTI.

use std::ffi::CStr;
use std::sync::atomic::{AtomicPtr, Ordering};

use libc::{c_char, c_int, c_void};

use super::{OK, Reference};

/// The way of tools into a machine.
#[derive(Clone, Copy)]
pub struct Tools(*mut c_void);

/// The machine's tools, for who runs in one of its threads.
static TOOLS: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

pub fn set_tools(tools: Tools) {
    TOOLS.store(tools.0, Ordering::Relaxed);
}

pub fn tools() -> Tools {
    // SAFETY: a machine gave it before it could call anything here.
    unsafe { Tools::given(TOOLS.load(Ordering::Relaxed)) }
}

/// Events that the machine tells of, the first of which is its beginning.
const FIRST: c_int = 50;
const READS: c_int = 54;
const LOADS: c_int = 55;

const DEALLOCATE: usize = 46;

/// What is called when a class is read: the class as bytes, and where other ones can be put.
pub type Reads = unsafe extern "C" fn(
    tools: *mut c_void,
    thread: *mut c_void,
    redefined: Reference,
    loader: Reference,
    name: *const c_char,
    domain: Reference,
    length: c_int,
    bytes: *const u8,
    new_length: *mut c_int,
    new_bytes: *mut *mut u8,
);

/// What is called when there is a class: the class, of which nobody knows yet.
pub type Loads =
    unsafe extern "C" fn(tools: *mut c_void, thread: *mut c_void, of: Reference, class: Reference);

impl Tools {
    pub(super) fn of(tools: *mut c_void) -> Self {
        Self(tools)
    }

    /// # Safety
    /// It is what a machine gave.
    pub unsafe fn given(tools: *mut c_void) -> Self {
        Self(tools)
    }

    /// Whether the machine has begun to run its program, and not ended.
    pub fn is_live(self) -> bool {
        const GET_PHASE: usize = 132;
        const LIVE: c_int = 4;
        let mut phase = 0;
        // SAFETY: as JVMTI declares it.
        let done =
            unsafe { function!(self.0, GET_PHASE, fn(*mut c_int) -> c_int)(self.0, &mut phase) };
        done == OK && phase == LIVE
    }

    /// Reads classes once more, with a function that is called for each, and from then on for each
    /// class that is loaded.
    pub fn read_again(self, classes: &[Reference]) -> Option<()> {
        const ADD_CAPABILITIES: usize = 141;
        const RETRANSFORM: usize = 151;
        /// Bits: objects can have tags, and classes can be read again.
        const CAPABILITIES: [u32; 4] = [1, 1 << (37 - 32), 0, 0];
        let count = c_int::try_from(classes.len()).ok()?;
        // SAFETY: as JVMTI declares them. It copies what it is given.
        unsafe {
            let add = function!(self.0, ADD_CAPABILITIES, fn(*const u32) -> c_int);
            let again = function!(self.0, RETRANSFORM, fn(c_int, *const Reference) -> c_int);
            let is_ready = add(self.0, CAPABILITIES.as_ptr()) == OK && self.tells(READS).is_some();
            (is_ready && again(self.0, count, classes.as_ptr()) == OK).then_some(())
        }
    }

    /// Functions that are called when something happens, before any of it is told.
    pub fn call(self, reads: Reads, loads: Loads) -> Option<()> {
        const SET_CALLBACKS: usize = 121;
        let mut callbacks = [std::ptr::null_mut::<c_void>(); 40];
        *callbacks.get_mut((READS - FIRST) as usize)? = reads as *mut c_void;
        *callbacks.get_mut((LOADS - FIRST) as usize)? = loads as *mut c_void;
        // SAFETY: as JVMTI declares it. It copies what it is given.
        let done = unsafe {
            let set = function!(
                self.0,
                SET_CALLBACKS,
                fn(*const *mut c_void, c_int) -> c_int
            );
            set(self.0, callbacks.as_ptr(), size_of_val(&callbacks) as c_int)
        };
        (done == OK).then_some(())
    }

    fn tells(self, event: c_int) -> Option<()> {
        const SET_MODE: usize = 1;
        const ON: c_int = 1;
        // SAFETY: as JVMTI declares it; of all threads.
        let done = unsafe {
            let mode = function!(self.0, SET_MODE, fn(c_int, c_int, Reference) -> c_int);
            mode(self.0, ON, event, std::ptr::null_mut())
        };
        (done == OK).then_some(())
    }

    /// Tells of each class that there is from now on, as soon as it is one, and calls this with all
    /// that there are.
    pub fn tell_classes(self, each: impl Fn(Reference)) -> Option<()> {
        const LOADED: usize = 77;
        let (mut count, mut classes) = (0, std::ptr::null_mut::<Reference>());
        self.tells(LOADS)?;
        // SAFETY: as JVMTI declares them; there are so many, and the memory is given back.
        unsafe {
            let loaded = function!(self.0, LOADED, fn(*mut c_int, *mut *mut Reference) -> c_int);
            if loaded(self.0, &mut count, &mut classes) != OK || classes.is_null() {
                return None;
            }
            for &class in std::slice::from_raw_parts(classes, usize::try_from(count).unwrap_or(0)) {
                each(class);
            }
            function!(self.0, DEALLOCATE, fn(*mut c_void) -> c_int)(self.0, classes.cast());
        }
        Some(())
    }

    /// The number by which the machine tells an object from others, which it has from here on.
    pub fn hash_of(self, object: Reference) -> Option<c_int> {
        const HASH: usize = 57;
        let mut hash = 0;
        // SAFETY: as JVMTI declares it.
        let done = unsafe {
            function!(self.0, HASH, fn(Reference, *mut c_int) -> c_int)(self.0, object, &mut hash)
        };
        (done == OK).then_some(hash)
    }

    /// Memory that the machine gives back.
    pub fn copy(self, bytes: &[u8]) -> Option<*mut u8> {
        const ALLOCATE: usize = 45;
        let size = i64::try_from(bytes.len()).ok()?;
        let mut memory = std::ptr::null_mut::<u8>();
        // SAFETY: as JVMTI declares it; there is room for so many bytes.
        unsafe {
            let done = function!(self.0, ALLOCATE, fn(i64, *mut *mut u8) -> c_int)(
                self.0,
                size,
                &mut memory,
            );
            if done != OK || memory.is_null() {
                return None;
            }
            memory.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
        }
        Some(memory)
    }

    /// The methods that the thread is in, the innermost first, as far as there is room.
    pub fn methods<const N: usize>(self) -> ([usize; N], usize) {
        const GET_STACK_TRACE: usize = 103;
        // A method, and where in it.
        let mut frames = [[0usize; 2]; N];
        let mut count = 0;
        // SAFETY: as JVMTI declares it; no thread is the one that calls.
        let done = unsafe {
            function!(
                self.0,
                GET_STACK_TRACE,
                fn(Reference, c_int, c_int, *mut [usize; 2], *mut c_int) -> c_int
            )(
                self.0,
                std::ptr::null_mut(),
                0,
                N as c_int,
                frames.as_mut_ptr(),
                &mut count,
            )
        };
        let count = if done == OK {
            usize::try_from(count).unwrap_or(0)
        } else {
            0
        };
        (frames.map(|[method, _]| method), count)
    }

    /// What a method and its class are called.
    ///
    /// # Safety
    /// It is a method of a class that is loaded.
    pub unsafe fn names<T>(self, method: usize, name: impl FnOnce(&[u8], &[u8]) -> T) -> Option<T> {
        const CLASS_OF: usize = 64;
        const METHOD_NAME: usize = 63;
        const CLASS_NAME: usize = 47;
        let none = std::ptr::null_mut::<*mut c_char>();
        let (mut class, mut own, mut of_class) = (
            none.cast::<c_void>(),
            std::ptr::null_mut(),
            std::ptr::null_mut(),
        );
        // SAFETY: as JVMTI declares them; the texts are freed, or null.
        unsafe {
            let class_of = function!(self.0, CLASS_OF, fn(usize, *mut Reference) -> c_int);
            let text = function!(
                self.0,
                CLASS_NAME,
                fn(Reference, *mut *mut c_char, *mut *mut c_char) -> c_int
            );
            let own_text = function!(
                self.0,
                METHOD_NAME,
                fn(usize, *mut *mut c_char, *mut *mut c_char, *mut *mut c_char) -> c_int
            );
            let free = function!(self.0, DEALLOCATE, fn(*mut c_char) -> c_int);
            let found = class_of(self.0, method, &mut class) == OK
                && own_text(self.0, method, &mut own, none, none) == OK
                && text(self.0, class, &mut of_class, none) == OK;
            let named = found.then(|| {
                name(
                    CStr::from_ptr(of_class).to_bytes(),
                    CStr::from_ptr(own).to_bytes(),
                )
            });
            free(self.0, own);
            free(self.0, of_class);
            named
        }
    }

    /// What a class is called.
    ///
    /// # Safety
    /// It is a class.
    pub unsafe fn name_of<T>(self, class: Reference, of: impl FnOnce(&[u8]) -> T) -> Option<T> {
        const CLASS_NAME: usize = 47;
        let mut name = std::ptr::null_mut();
        // SAFETY: as JVMTI declares them; the text is freed.
        unsafe {
            let text = function!(
                self.0,
                CLASS_NAME,
                fn(Reference, *mut *mut c_char, *mut *mut c_char) -> c_int
            );
            let found = text(self.0, class, &mut name, std::ptr::null_mut()) == OK;
            let named = found.then(|| of(CStr::from_ptr(name).to_bytes()));
            function!(self.0, DEALLOCATE, fn(*mut c_char) -> c_int)(self.0, name);
            named
        }
    }

    /// What an object is marked with; 0: nothing.
    pub fn mark(self, object: Reference) -> i64 {
        const GET_TAG: usize = 105;
        let mut mark = 0;
        // SAFETY: as JVMTI declares it.
        unsafe {
            function!(self.0, GET_TAG, fn(Reference, *mut i64) -> c_int)(self.0, object, &mut mark)
        };
        mark
    }

    pub fn set_mark(self, object: Reference, mark: i64) {
        const SET_TAG: usize = 106;
        // SAFETY: as JVMTI declares it.
        unsafe { function!(self.0, SET_TAG, fn(Reference, i64) -> c_int)(self.0, object, mark) };
    }

    pub fn end(self) {
        const DISPOSE: usize = 126;
        // SAFETY: as JVMTI declares it. It is not used from here on.
        unsafe { function!(self.0, DISPOSE, fn() -> c_int)(self.0) };
    }
}
