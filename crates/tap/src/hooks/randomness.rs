//! Functions that draw random bytes. The devices are files: see [`super::transfers`].
//!
//! Libc may have no `arc4random`, and a program no libcrypto: what finds ours all the same gets
//! bytes from the kernel.

use libc::{c_int, c_uint, c_void, pid_t, size_t, ssize_t};

use crate::errno::{errno, set_errno};
use crate::real::real;
use crate::{callers, pins, turns};

/// All that there are.
const FLAGS: c_uint = libc::GRND_NONBLOCK | libc::GRND_RANDOM | libc::GRND_INSECURE;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn getrandom(bytes: *mut c_void, length: size_t, flags: c_uint) -> ssize_t {
    // SAFETY: what the caller gave.
    unsafe {
        match asked(bytes, length, flags) {
            Some(done) => done,
            None => {
                real!(fn getrandom(*mut c_void, size_t, c_uint) -> ssize_t)(bytes, length, flags)
            }
        }
    }
}

/// What `getrandom` returns, as the function or as the system call; `None` if the kernel is to be
/// asked.
///
/// # Safety
/// As for libc's.
pub unsafe fn asked(bytes: *mut c_void, length: size_t, flags: c_uint) -> Option<ssize_t> {
    if flags & !FLAGS != 0 {
        return None;
    }
    // SAFETY: what the caller gave. Who does not wait for the kernel draws a seed.
    let drawn = unsafe {
        let bytes = bytes.cast();
        flags == 0 && pins::draw_handed(bytes, length) || pins::draw(bytes, length)
    };
    drawn.then_some(length as ssize_t)
}

/// Ours is called with what calls it.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn getentropy() {
    #[cfg(target_arch = "x86_64")]
    std::arch::naked_asm!("mov rdx, [rsp]", "jmp {}", sym entropy_for);
    #[cfg(target_arch = "aarch64")]
    std::arch::naked_asm!("mov x2, x30", "b {}", sym entropy_for);
}

unsafe extern "C" fn entropy_for(bytes: *mut c_void, length: size_t, caller: usize) -> c_int {
    const LENGTH_MAX: size_t = 256;
    let is_ours = length <= LENGTH_MAX && !seeds_openssl(caller);
    // SAFETY: what the caller gave.
    unsafe {
        match is_ours && pins::draw(bytes.cast(), length) {
            true => 0,
            false => real!(fn getentropy(*mut c_void, size_t) -> c_int)(bytes, length),
        }
    }
}

/// Whether what is drawn there outside of requests is the seed of OpenSSL's generator. The time and
/// an address are mixed into what that gives, so it would be no other by its seed alone; and who
/// has the recording would be near the keys of connections. What Node's code draws is drawn by its
/// shim.
pub fn seeds_openssl(caller: usize) -> bool {
    let is = |file: &[u8]| file.starts_with(b"libcrypto") || file == b"node" || file == b"nodejs";
    !pins::is_of_request() && callers::is_of_file(caller, is)
}

/// # Safety
/// There is room for so many bytes.
unsafe fn fill(bytes: *mut c_void, length: size_t) -> bool {
    // SAFETY: as the caller promises.
    unsafe { pins::draw(bytes.cast(), length) || fill_by_kernel(bytes.cast(), length) }
}

unsafe fn fill_by_kernel(bytes: *mut u8, length: size_t) -> bool {
    let before = errno();
    let mut done = 0;
    while done < length {
        // SAFETY: as the caller promises.
        let more = unsafe {
            let (from, left) = (bytes.add(done), length.wrapping_sub(done));
            libc::getrandom(from.cast(), left, 0)
        };
        match more {
            -1 if errno() == libc::EINTR => {}
            1.. => done = done.saturating_add(more as usize),
            _ => return false,
        }
    }
    set_errno(before);
    true
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn arc4random_buf(bytes: *mut c_void, length: size_t) {
    // SAFETY: what the caller gave. It has no way to fail.
    unsafe {
        if length > 0 && !fill(bytes, length) {
            libc::abort();
        }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn arc4random() -> u32 {
    let mut number = 0u32;
    // SAFETY: the memory is ours.
    unsafe { arc4random_buf((&raw mut number).cast(), size_of::<u32>()) };
    number
}

/// Without a bias: what is above the last multiple is drawn again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn arc4random_uniform(bound: u32) -> u32 {
    if bound < 2 {
        return 0;
    }
    let rest = bound.wrapping_neg().checked_rem(bound).unwrap_or(0);
    loop {
        // SAFETY: it takes nothing.
        let number = unsafe { arc4random() };
        if number >= rest {
            return number.checked_rem(bound).unwrap_or(0);
        }
    }
}

/// PHP seeds a generator with the number of the process: that of `lcg_value`, by which it also
/// decides whether a session's start removes those that have expired. It is called directly within
/// PHP, so what it asks for its seed is where it can be pinned.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn getpid() {
    #[cfg(target_arch = "x86_64")]
    std::arch::naked_asm!("mov rdi, [rsp]", "jmp {}", sym process_for);
    #[cfg(target_arch = "aarch64")]
    std::arch::naked_asm!("mov x0, x30", "b {}", sym process_for);
}

unsafe extern "C" fn process_for(caller: usize) -> pid_t {
    // SAFETY: libc declares it so.
    let real = || unsafe { real!(fn getpid() -> pid_t)() };
    match turns::current() != 0 && callers::is_within(caller, SEEDS) {
        true => pins::process().unwrap_or_else(real),
        false => real(),
    }
}

/// In the name of a function of PHP that seeds the generator.
const SEEDS: &[u8] = b"lcg";

/// Of OpenSSL, where it is a library of its own.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn RAND_bytes(bytes: *mut u8, count: c_int) -> c_int {
    // SAFETY: what the caller gave.
    unsafe {
        match drawn(bytes, count) {
            true => 1,
            false => openssl(c"RAND_bytes", bytes, count),
        }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn RAND_priv_bytes(bytes: *mut u8, count: c_int) -> c_int {
    // SAFETY: what the caller gave.
    unsafe {
        match drawn(bytes, count) {
            true => 1,
            false => openssl(c"RAND_priv_bytes", bytes, count),
        }
    }
}

unsafe fn drawn(bytes: *mut u8, count: c_int) -> bool {
    // SAFETY: what the caller gave.
    usize::try_from(count).is_ok_and(|count| unsafe { pins::draw(bytes, count) })
}

/// OpenSSL's own. A library that was loaded for one other library alone is not found: then the
/// kernel's bytes do as well.
unsafe fn openssl(name: &'static std::ffi::CStr, bytes: *mut u8, count: c_int) -> c_int {
    // SAFETY: the name is a C string, and OpenSSL declares both alike; otherwise what the caller
    // gave.
    unsafe {
        let found = libc::dlsym(libc::RTLD_NEXT, name.as_ptr());
        if !found.is_null() {
            let real: unsafe extern "C" fn(*mut u8, c_int) -> c_int = std::mem::transmute(found);
            return real(bytes, count);
        }
        let count = usize::try_from(count).ok();
        c_int::from(count.is_some_and(|count| fill_by_kernel(bytes, count)))
    }
}
