//! Functions and variables of a runtime, which a program may have in it or not.

use std::ffi::CStr;
use std::sync::atomic::{AtomicPtr, Ordering};

use libc::c_void;

/// One that is found when it is first needed.
pub struct Symbol {
    /// What it is called, in whichever version.
    names: &'static [&'static CStr],
    found: AtomicPtr<c_void>,
}

impl Symbol {
    pub const fn new(names: &'static [&'static CStr]) -> Self {
        Self {
            names,
            found: AtomicPtr::new(std::ptr::null_mut()),
        }
    }

    pub fn find(&self) -> bool {
        let find = |name: &&CStr| {
            // SAFETY: the name is a C string.
            let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
            self.found.store(found, Ordering::Relaxed);
            !found.is_null()
        };
        self.names.iter().any(find)
    }

    /// Null if it was not found.
    pub fn address(&self) -> *mut c_void {
        self.found.load(Ordering::Relaxed)
    }
}
