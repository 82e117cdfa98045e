//! The real functions behind our symbols, wherever the library is.

use std::ffi::{CStr, CString, c_void};

use crate::mechanism::lookup::Found;

/// Where a real function was found.
pub struct Next {
    name: &'static CStr,
    found: Found,
}

impl Next {
    pub const fn new(name: &'static CStr) -> Self {
        Next {
            name,
            found: Found::new(),
        }
    }

    #[inline(always)]
    pub fn get(&self) -> *mut c_void {
        self.found.get(self.name, || find(self.name))
    }
}

/// The first definition of a symbol that is not this library's own. In system space.
///
/// The next one in the loader's order is not enough: a library that a plugin brought (as
/// `_sqlite3.so` brings SQLite into Python) is in nobody's order but the plugin's, and still the
/// plugin's calls come here first.
pub fn find(name: &CStr) -> *mut c_void {
    find_but(name, 0)
}

/// As [`find`], for the stub at `own` in a library of its own.
pub fn find_but(name: &CStr, own: usize) -> *mut c_void {
    // SAFETY: a C string.
    let next = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
    if !next.is_null() && next as usize != own {
        return next;
    }
    let mut loaded: Vec<CString> = Vec::new();
    // SAFETY: the callback gets the vector it expects, and does not keep what it is shown.
    unsafe { libc::dl_iterate_phdr(Some(collect), (&raw mut loaded).cast()) };
    for library in &loaded {
        // SAFETY: C strings; a library that is loaded stays so while it is held, and it is loaded
        // anyway.
        let found = unsafe {
            let handle = libc::dlopen(library.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD);
            if handle.is_null() {
                continue;
            }
            let found = libc::dlsym(handle, name.as_ptr());
            libc::dlclose(handle);
            found
        };
        if !found.is_null() && !is_ours(found) && found as usize != own {
            return found;
        }
    }
    std::ptr::null_mut()
}

fn is_ours(symbol: *mut c_void) -> bool {
    let (start, length) = crate::raw::text_range();
    (start..start + length).contains(&(symbol as usize))
}

unsafe extern "C" fn collect(
    info: *mut libc::dl_phdr_info,
    _size: usize,
    data: *mut c_void,
) -> i32 {
    // SAFETY: the loader passes a description whose name is a C string, and `find` its vector.
    unsafe {
        let name = (*info).dlpi_name;
        if !name.is_null() && *name != 0 {
            (*data.cast::<Vec<CString>>()).push(CStr::from_ptr(name).to_owned());
        }
    }
    0
}

/// `next!(sqlite3_step: unsafe extern "C" fn(*mut u8) -> i32)`: the library's function of that
/// name.
macro_rules! next {
    ($name:ident: $kind:ty) => {{
        static NEXT: $crate::doors::foreign::Next = $crate::doors::foreign::Next::new(
            match std::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => panic!("a name has no NUL"),
            },
        );
        // SAFETY: the function of this name has this type; the header says so.
        #[allow(unused_unsafe)]
        unsafe {
            std::mem::transmute::<*mut std::ffi::c_void, $kind>(NEXT.get())
        }
    }};
}
pub(crate) use next;
