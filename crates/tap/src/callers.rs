//! Functions of which a process may have several: libssl is often loaded more than once, by those
//! who bring their own. Which one is meant depends on who calls.

use std::ffi::CStr;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use libc::{c_char, c_int, c_void};

use crate::errno::{errno, set_errno};

unsafe extern "C" {
    fn dlvsym(handle: *mut c_void, name: *const c_char, version: *const c_char) -> *mut c_void;
}

/// Places in programs and libraries that call one of these functions.
const SITES: usize = 32;

/// What OpenSSL's functions are versioned by.
const VERSIONS: [&CStr; 6] = [
    c"OPENSSL_3.0.0",
    c"OPENSSL_1_1_0",
    c"OPENSSL_1_1_1",
    c"OPENSSL_3.3.0",
    c"OPENSSL_1.0.2",
    c"OPENSSL_1.0.0",
];

/// A function that is looked up for each place that calls it, when it first does.
pub struct Several {
    name: &'static CStr,
    sites: [Site; SITES],
}

struct Site {
    /// The address that the call returns to; 0: none.
    caller: AtomicUsize,
    /// Null until it was found.
    function: AtomicPtr<c_void>,
}

impl Several {
    pub const fn new(name: &'static CStr) -> Self {
        Self {
            name,
            sites: [const {
                Site {
                    caller: AtomicUsize::new(0),
                    function: AtomicPtr::new(std::ptr::null_mut()),
                }
            }; SITES],
        }
    }

    /// The function that the caller would have called without us. Null if there is none: then it
    /// has found ours by asking for the name alone.
    pub fn address(&self, caller: usize) -> *mut c_void {
        for site in &self.sites {
            match site.caller.load(Ordering::Relaxed) {
                known if known == caller => {
                    let function = site.function.load(Ordering::Acquire);
                    return match function.is_null() {
                        true => find(self.name, caller),
                        false => function,
                    };
                }
                0 => {
                    let found = find(self.name, caller);
                    let turn = site.caller.compare_exchange(
                        0,
                        caller,
                        Ordering::Relaxed,
                        Ordering::Relaxed,
                    );
                    if turn.is_ok() {
                        site.function.store(found, Ordering::Release);
                    }
                    return found;
                }
                _ => {}
            }
        }
        find(self.name, caller)
    }
}

/// As the dynamic linker would: in what the program was linked with, then in what the calling
/// library brought along. Locks and allocates, so it is done once for each place that calls.
fn find(name: &CStr, caller: usize) -> *mut c_void {
    let before = errno();
    // SAFETY: the names are C strings.
    let found = unsafe {
        let shared = libc::dlsym(libc::RTLD_NEXT, name.as_ptr());
        match own(name, caller) {
            None => shared,
            Some((_, own)) if shared.is_null() || shared == own => own,
            // Both are there. The shared one is meant if it is of the same version.
            Some((library, own)) => {
                let is_own =
                    |version: &&&CStr| dlvsym(library, name.as_ptr(), version.as_ptr()) == own;
                let version = VERSIONS.iter().find(is_own);
                let same =
                    version.map(|version| dlvsym(libc::RTLD_NEXT, name.as_ptr(), version.as_ptr()));
                same.filter(|same| !same.is_null()).unwrap_or(own)
            }
        }
    };
    set_errno(before);
    found
}

/// The function that the caller's library or what it is linked with has, and that library. It
/// stays loaded from here on, or the next one in its place would call the wrong function.
unsafe fn own(name: &CStr, caller: usize) -> Option<(*mut c_void, *mut c_void)> {
    const FLAGS: c_int = libc::RTLD_LAZY | libc::RTLD_NOLOAD | libc::RTLD_NODELETE;
    // SAFETY: the names are C strings; nothing that is not there is loaded.
    unsafe {
        let library = libc::dlopen(library_of(caller as *const c_void)?.dli_fname, FLAGS);
        if library.is_null() {
            return None;
        }
        let found = libc::dlsym(library, name.as_ptr());
        // To the program itself, ours is the first.
        let ours = library_of(own as *const c_void)?.dli_fbase;
        let is_ours = library_of(found)?.dli_fbase == ours;
        (!is_ours).then_some((library, found))
    }
}

/// Whether the address that a call returns to is in a function with this in its name.
pub fn is_within(caller: usize, part: &[u8]) -> bool {
    /// Who asked last and is in none. Programs ask for the number of their process from few places.
    static OTHER: AtomicUsize = AtomicUsize::new(0);
    if OTHER.load(Ordering::Relaxed) == caller {
        return false;
    }
    let symbol = library_of(caller as *const c_void).map(|info| info.dli_sname);
    let is_within = symbol.filter(|name| !name.is_null()).is_some_and(|name| {
        // SAFETY: a name of a library that is loaded, since it calls us.
        let name = unsafe { CStr::from_ptr(name) };
        name.to_bytes().windows(part.len()).any(|at| at == part)
    });
    if !is_within {
        OTHER.store(caller, Ordering::Relaxed);
    }
    is_within
}

/// Whether the address that a call returns to is in a program or a library whose file is this one.
pub fn is_of_file(caller: usize, is: impl FnOnce(&[u8]) -> bool) -> bool {
    library_of(caller as *const c_void).is_some_and(|info| {
        // SAFETY: the name of what is loaded, since it calls us.
        let path = unsafe { CStr::from_ptr(info.dli_fname) }.to_bytes();
        is(path.rsplit(|&byte| byte == b'/').next().unwrap_or(path))
    })
}

fn library_of(address: *const c_void) -> Option<libc::Dl_info> {
    // SAFETY: zeros are what it fills in; any address may be asked for.
    unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        let known = libc::dladdr(address, &mut info) != 0;
        (known && !info.dli_fname.is_null()).then_some(info)
    }
}
