//! Libc's functions, or those of another library in front of it.

use std::ffi::CStr;
use std::sync::atomic::{AtomicPtr, Ordering};

use libc::{c_int, c_void, sockaddr, socklen_t};

/// A function that is looked up when it is first called.
pub struct Real {
    name: &'static CStr,
    found: AtomicPtr<c_void>,
}

impl Real {
    pub const fn new(name: &'static CStr) -> Self {
        Self {
            name,
            found: AtomicPtr::new(std::ptr::null_mut()),
        }
    }

    /// Null if there is none: then the program could not have been linked against it either.
    pub fn address(&self) -> *mut c_void {
        let found = self.found.load(Ordering::Relaxed);
        if !found.is_null() {
            return found;
        }
        // SAFETY: the name is a C string.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        self.found.store(found, Ordering::Relaxed);
        found
    }
}

/// Declares, in the place of a function of libc, what calls it: `real!(fn name(arguments) ->
/// result)`. Evaluates to the function; unsafe, for it trusts that libc declares it so.
macro_rules! real {
    (fn $name:ident($($kind:ty),*) -> $result:ty) => {{
        const NAME: &std::ffi::CStr = match std::ffi::CStr::from_bytes_with_nul(
            concat!(stringify!($name), "\0").as_bytes(),
        ) {
            Ok(name) => name,
            Err(_) => panic!("a function's name has no zero in it"),
        };
        static REAL: $crate::real::Real = $crate::real::Real::new(NAME);
        // Of a function that is not there no program can call ours.
        std::mem::transmute::<*mut libc::c_void, unsafe extern "C" fn($($kind),*) -> $result>(
            REAL.address(),
        )
    }};
}
pub(crate) use real;

/// What the kernel says, past the function of the same name that programs call.
///
/// # Safety
/// As for libc's.
pub unsafe extern "C" fn getsockname(
    socket: c_int,
    address: *mut sockaddr,
    length: *mut socklen_t,
) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { libc::syscall(libc::SYS_getsockname, socket, address, length) as c_int }
}

/// Likewise.
///
/// # Safety
/// As for libc's.
pub unsafe extern "C" fn getpeername(
    socket: c_int,
    address: *mut sockaddr,
    length: *mut socklen_t,
) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { libc::syscall(libc::SYS_getpeername, socket, address, length) as c_int }
}

/// The same of what has come by a connection: how many bytes; negative if nothing has.
pub fn recv(socket: c_int, room: &mut [u8], flags: c_int) -> isize {
    let none = std::ptr::null_mut::<libc::c_void>();
    // SAFETY: the memory is as long as is said.
    unsafe {
        let (to, length) = (room.as_mut_ptr(), room.len());
        libc::syscall(libc::SYS_recvfrom, socket, to, length, flags, none, none) as isize
    }
}
