//! `dlsym`: libraries that look a function of libc up instead of importing it get ours as well.
//!
//! jemalloc creates its background thread with a function that it finds so, and a process whose
//! threads are not all known cannot be recorded.
//!
//! `dlopen` with `RTLD_DEEPBIND`, as PHP loads its extensions: what they call would be looked up in
//! libc first, and memory of our `malloc` would come to libc's `free`. So that flag is taken away.

use std::arch::naked_asm;
use std::ffi::{CStr, c_char, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::raw;
use crate::state::thread;

/// A function that is looked up once.
pub struct Found {
    function: AtomicPtr<c_void>,
}

impl Found {
    pub const fn new() -> Self {
        Found {
            function: AtomicPtr::new(std::ptr::null_mut()),
        }
    }

    /// `look` runs in system space: what the loader does to find it is not the program's doing.
    #[inline(always)]
    pub fn get(&self, name: &CStr, look: impl FnOnce() -> *mut c_void) -> *mut c_void {
        let function = self.function.load(Ordering::Relaxed);
        if function.is_null() {
            self.find(name, look)
        } else {
            function
        }
    }

    /// Looks now, if that was not done yet. What is not there may never be asked for.
    pub fn find_now(&self, look: impl FnOnce() -> *mut c_void) {
        if self.function.load(Ordering::Relaxed).is_null() {
            let function = thread::in_system_space(look);
            self.function.store(function, Ordering::Relaxed);
        }
    }

    #[cold]
    fn find(&self, name: &CStr, look: impl FnOnce() -> *mut c_void) -> *mut c_void {
        self.find_now(look);
        let function = self.function.load(Ordering::Relaxed);
        assert!(
            !function.is_null(),
            "no loaded library has {}",
            name.to_str().unwrap_or("it")
        );
        function
    }
}

type Lookup = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;

/// The real `dlsym`, once it is known.
static REAL: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

// What `dlsym(RTLD_NEXT, …)` finds depends on who calls it, so where we have nothing to say the
// real one must see the caller's return address: a jump, not a call.
#[unsafe(naked)]
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    naked_asm!(
        "push rdi",
        "push rsi",
        "sub rsp, 8",
        "call {ours}",
        "add rsp, 8",
        "pop rsi",
        "pop rdi",
        "test rax, rax",
        "jz 2f",
        "ret",
        "2:",
        "jmp qword ptr [rip + {real}]",
        ours = sym ours,
        real = sym REAL,
    )
}

/// Our function of this name, if the answer would be libc's; null for the real answer. Makes sure
/// that there is a real `dlsym`.
unsafe extern "C" fn ours(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    let real = real();
    if handle == libc::RTLD_DEFAULT {
        return std::ptr::null_mut();
    }
    if !thread::is_in_replay_space() {
        return std::ptr::null_mut();
    }
    thread::in_system_space(|| {
        // SAFETY: the caller's own handle and name, and handles of libraries that are never
        // unloaded.
        unsafe {
            let libcs = real(libc_handle(), name);
            let asked = if handle == libc::RTLD_NEXT {
                libcs
            } else {
                real(handle, name)
            };
            if libcs.is_null() || asked != libcs {
                return std::ptr::null_mut();
            }
            let own = real(own_handle(), name);
            let (start, length) = raw::text_range();
            if (start..start + length).contains(&(own as usize)) {
                own
            } else {
                std::ptr::null_mut()
            }
        }
    })
}

fn real() -> Lookup {
    // SAFETY: the function of this name has this type.
    unsafe { std::mem::transmute::<*mut c_void, Lookup>(libcs(&REAL, c"dlsym")) }
}

/// A function of the loader's, as libc has it.
fn libcs(known: &AtomicPtr<c_void>, name: &CStr) -> *mut c_void {
    let mut real = known.load(Ordering::Acquire);
    if real.is_null() {
        // SAFETY: C strings. `dlvsym` is not ours, so this finds libc's. Its version is that of
        // glibc 2.34, where the loader's functions moved into libc, or the first one.
        real = unsafe {
            let moved = libc::dlvsym(libc::RTLD_NEXT, name.as_ptr(), c"GLIBC_2.34".as_ptr());
            if moved.is_null() {
                libc::dlvsym(libc::RTLD_NEXT, name.as_ptr(), c"GLIBC_2.2.5".as_ptr())
            } else {
                moved
            }
        };
        known.store(real, Ordering::Release);
    }
    real
}

// Where libc looks for a library depends on who calls it, too.
#[unsafe(naked)]
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn dlopen(path: *const c_char, flags: i32) -> *mut c_void {
    naked_asm!(
        "push rdi",
        "push rsi",
        "sub rsp, 8",
        "call {real}",
        "add rsp, 8",
        "pop rsi",
        "pop rdi",
        "and esi, {keep}",
        "jmp rax",
        real = sym real_dlopen,
        keep = const !libc::RTLD_DEEPBIND,
    )
}

extern "C" fn real_dlopen() -> *mut c_void {
    static REAL: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
    libcs(&REAL, c"dlopen")
}

/// Libc as the loader has it. In system space.
pub fn libc_handle() -> *mut c_void {
    static HANDLE: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
    remembered(&HANDLE, || c"libc.so.6".as_ptr())
}

fn own_handle() -> *mut c_void {
    static HANDLE: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
    remembered(&HANDLE, || {
        let mut found = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
        // SAFETY: an address of this library; zeroed where it is not found.
        unsafe {
            libc::dladdr(ours as *const () as *const c_void, found.as_mut_ptr());
            found.assume_init().dli_fname
        }
    })
}

unsafe extern "C" {
    static environ: *const *const c_char;
}

fn remembered(handle: &AtomicPtr<c_void>, path: impl FnOnce() -> *const c_char) -> *mut c_void {
    let known = handle.load(Ordering::Acquire);
    if !known.is_null() {
        return known;
    }
    // Before libc's constructors have run, `dlopen` would run them, without the environment. Until
    // then the next definition must do.
    // SAFETY: reads a pointer.
    if unsafe { environ }.is_null() {
        return libc::RTLD_NEXT;
    }
    // SAFETY: a C string of the loader's; nothing is loaded that is not.
    let opened = unsafe { libc::dlopen(path(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
    handle.store(opened, Ordering::Release);
    opened
}
