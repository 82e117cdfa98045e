//! The functions behind ours: libc's own, found once. Not the next in the loader's order: that may
//! be a wrapper which looks libc's up in its turn and finds ours ([`crate::mechanism::lookup`]).

use std::ffi::{CStr, c_void};

use crate::mechanism::lookup::{self, Found};

/// Where a real function was found.
pub struct Slot {
    name: &'static CStr,
    /// The version of the symbol, where the one that the loader takes by itself is the wrong one.
    version: Option<&'static CStr>,
    found: Found,
}

impl Slot {
    pub const fn new(name: &'static CStr, version: Option<&'static CStr>) -> Self {
        Slot {
            name,
            version,
            found: Found::new(),
        }
    }

    #[inline(always)]
    pub fn get(&self) -> *mut c_void {
        self.found.get(self.name, || self.look())
    }

    /// Looks now, if it was not looked for yet. Not every libc has every function.
    fn find(&self) {
        self.found.find_now(|| self.look());
    }

    fn look(&self) -> *mut c_void {
        // SAFETY: C strings.
        unsafe {
            let handle = lookup::libc_handle();
            let versioned = self
                .version
                .map(|version| libc::dlvsym(handle, self.name.as_ptr(), version.as_ptr()));
            let found = versioned
                .filter(|found| !found.is_null())
                .unwrap_or_else(|| libc::dlsym(handle, self.name.as_ptr()));
            // Before glibc 2.34 it is in a library beside libc.
            if found.is_null() {
                libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr())
            } else {
                found
            }
        }
    }
}

unsafe extern "C" {
    /// The section into which [`real!`] puts every slot there is: its begin and its end.
    static __start_hindcast_functions_of_libc: usize;
    static __stop_hindcast_functions_of_libc: usize;
}

/// Finds all of them, before the process has a second thread. To look one up takes the loader's
/// lock, which a thread that loads a library holds while it waits for its turn, maybe for the one
/// that looks.
pub fn find_all() {
    let (first, end) = (
        (&raw const __start_hindcast_functions_of_libc).cast::<&Slot>(),
        (&raw const __stop_hindcast_functions_of_libc).cast::<&Slot>(),
    );
    // SAFETY: the linker has put them one behind the other.
    let count = unsafe { end.offset_from_unsigned(first) };
    for index in 0..count {
        // SAFETY: as above.
        unsafe { *first.add(index) }.find();
    }
}

/// `real!(pthread_join: fn(pthread_t, *mut *mut c_void) -> c_int)`: libc's function of the name.
/// `real!(pthread_cond_wait @ c"GLIBC_2.3.2": fn(…) -> …)`: that of a version.
macro_rules! real {
    ($name:ident: fn($($argument:ty),* $(,)?) $(-> $result:ty)?) => {
        $crate::mechanism::sync::real!(@ $name None fn($($argument),*) $(-> $result)?)
    };
    ($name:ident @ $version:literal: fn($($argument:ty),* $(,)?) $(-> $result:ty)?) => {
        $crate::mechanism::sync::real!(@ $name (Some($version)) fn($($argument),*) $(-> $result)?)
    };
    (@ $name:ident $version:tt fn($($argument:ty),*) $(-> $result:ty)?) => {{
        static SLOT: $crate::mechanism::sync::RealSlot = $crate::mechanism::sync::RealSlot::new(
            match std::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => panic!("a name has no NUL"),
            },
            $version,
        );
        #[used]
        #[unsafe(link_section = "hindcast_functions_of_libc")]
        static LISTED: &$crate::mechanism::sync::RealSlot = &SLOT;
        // SAFETY: the function of this name has this type.
        #[allow(unused_unsafe)]
        let function = unsafe {
            std::mem::transmute::<*mut std::ffi::c_void, unsafe extern "C-unwind" fn($($argument),*) $(-> $result)?>(SLOT.get())
        };
        function
    }};
}
pub(crate) use real;
