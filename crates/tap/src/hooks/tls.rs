//! Functions of OpenSSL's libssl that carry bytes, for programs that encrypt by it.
//!
//! A program may have libssl more than once, so each function passes on who has called it: see
//! [`callers`]. Statically linked copies (Node's) and other libraries are not seen.

use libc::{c_int, c_void, off_t, size_t, ssize_t};

use crate::callers::Several;
use crate::carried::{Write, about_to_write_plain, part, plain_was_read, was_written, went_unseen};
use crate::{process, tls};

use hindcast_taplog::Direction;

/// Exports functions under the names of libssl's. Each calls the one of ours that is named, with
/// the address that it returns to as the sixth argument; none of libssl's has as many.
macro_rules! exported {
    ($($name:ident => $ours:ident,)*) => {$(
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name() {
            #[cfg(target_arch = "x86_64")]
            std::arch::naked_asm!("mov r9, [rsp]", "jmp {}", sym $ours);
            #[cfg(target_arch = "aarch64")]
            std::arch::naked_asm!("mov x5, x30", "b {}", sym $ours);
        }
    )*};
}

exported! {
    SSL_accept => accept,
    SSL_connect => connect,
    SSL_do_handshake => do_handshake,
    SSL_peek => peek,
    SSL_peek_ex => peek_ex,
    SSL_read => read,
    SSL_read_early_data => read_early_data,
    SSL_read_ex => read_ex,
    SSL_sendfile => sendfile,
    SSL_shutdown => shutdown,
    SSL_write => write,
    SSL_write_early_data => write_early_data,
    SSL_write_ex => write_ex,
    SSL_write_ex2 => write_ex2,
}

/// An `SSL`.
type Object = *mut c_void;

/// What an argument is that the function does not have.
type Other = usize;

/// Calls libssl's function of this name, the thread being inside the object; or returns from the
/// caller if there is none.
macro_rules! libssl {
    ($name:literal, $caller:expr, $missing:expr, fn($($kind:ty),*) -> $result:ty, ($ssl:expr $(, $argument:expr)*)) => {{
        static SEVERAL: Several = Several::new($name);
        let address = SEVERAL.address($caller);
        if address.is_null() {
            return $missing;
        }
        // SAFETY: OpenSSL declares it so.
        let function = unsafe {
            std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($kind),*) -> $result>(address)
        };
        // SAFETY: what the caller gave.
        tls::inside($ssl as usize, || unsafe { function($ssl $(, $argument)*) })
    }};
}

/// What is told of a call by one of another. Functions of libssl may call each other by ours.
fn is_outermost() -> bool {
    process::is_enabled() && !tls::is_inside()
}

/// So many bytes were decrypted. Returns how many the caller is to get.
///
/// # Safety
/// They are there.
unsafe fn was_read(told: bool, ssl: Object, bytes: *const c_void, length: size_t) -> size_t {
    match tls::carrier(ssl as usize).filter(|_| told && length > 0) {
        Some((descriptor, stream)) => {
            // SAFETY: as the caller promises.
            let left = unsafe { plain_was_read(descriptor, stream, &part(bytes, length), length) };
            left.max(0) as size_t
        }
        None => length,
    }
}

/// So many bytes are about to be encrypted.
///
/// # Safety
/// They are there.
unsafe fn begins(ssl: Object, bytes: *const c_void, length: size_t) -> Option<Write> {
    let told = is_outermost() && !bytes.is_null();
    let (descriptor, stream) = tls::carrier(ssl as usize).filter(|_| told)?;
    // SAFETY: as the caller promises.
    unsafe { about_to_write_plain(descriptor, stream, &part(bytes, length)) }
}

unsafe extern "C" fn read(
    ssl: Object,
    bytes: *mut c_void,
    length: c_int,
    _: Other,
    _: Other,
    caller: usize,
) -> c_int {
    let told = is_outermost();
    let done = libssl!(
        c"SSL_read",
        caller,
        -1,
        fn(Object, *mut c_void, c_int) -> c_int,
        (ssl, bytes, length)
    );
    match usize::try_from(done) {
        // SAFETY: so many were read.
        Ok(length) => unsafe { was_read(told, ssl, bytes, length) as c_int },
        Err(_) => done,
    }
}

/// # Safety
/// If the function was successful, so many bytes were read.
unsafe fn was_read_ex(
    told: bool,
    ssl: Object,
    bytes: *const c_void,
    length: *mut size_t,
    done: c_int,
) -> c_int {
    if done != 1 || length.is_null() {
        return done;
    }
    // SAFETY: as the caller promises.
    unsafe {
        let before = *length;
        *length = was_read(told, ssl, bytes, before);
        match before > 0 && *length == 0 {
            true => 0,
            false => done,
        }
    }
}

unsafe extern "C" fn read_ex(
    ssl: Object,
    bytes: *mut c_void,
    room: size_t,
    length: *mut size_t,
    _: Other,
    caller: usize,
) -> c_int {
    let told = is_outermost();
    let done = libssl!(
        c"SSL_read_ex",
        caller,
        0,
        fn(Object, *mut c_void, size_t, *mut size_t) -> c_int,
        (ssl, bytes, room, length)
    );
    // SAFETY: what libssl says.
    unsafe { was_read_ex(told, ssl, bytes, length, done) }
}

unsafe extern "C" fn read_early_data(
    ssl: Object,
    bytes: *mut c_void,
    room: size_t,
    length: *mut size_t,
    _: Other,
    caller: usize,
) -> c_int {
    let told = is_outermost();
    let done = libssl!(
        c"SSL_read_early_data",
        caller,
        0,
        fn(Object, *mut c_void, size_t, *mut size_t) -> c_int,
        (ssl, bytes, room, length)
    );
    // SAFETY: what libssl says.
    unsafe { was_read_ex(told, ssl, bytes, length, done) }
}

unsafe extern "C" fn write(
    ssl: Object,
    bytes: *const c_void,
    length: c_int,
    _: Other,
    _: Other,
    caller: usize,
) -> c_int {
    let all = length.max(0) as size_t;
    // SAFETY: what the caller gave.
    let begun = unsafe { begins(ssl, bytes, all) };
    let done = libssl!(
        c"SSL_write",
        caller,
        -1,
        fn(Object, *const c_void, c_int) -> c_int,
        (ssl, bytes, length)
    );
    if done > 0 {
        // SAFETY: what the caller gave.
        unsafe { was_written(begun, &part(bytes, all), done as ssize_t) };
    }
    done
}

/// # Safety
/// If the function was successful, so many bytes were written.
unsafe fn was_written_ex(
    begun: Option<Write>,
    bytes: *const c_void,
    all: size_t,
    length: *const size_t,
    done: c_int,
) -> c_int {
    if done == 1 && !length.is_null() {
        // SAFETY: as the caller promises.
        unsafe { was_written(begun, &part(bytes, all), *length as ssize_t) };
    }
    done
}

unsafe extern "C" fn write_ex(
    ssl: Object,
    bytes: *const c_void,
    all: size_t,
    length: *mut size_t,
    _: Other,
    caller: usize,
) -> c_int {
    // SAFETY: what the caller gave.
    let begun = unsafe { begins(ssl, bytes, all) };
    let done = libssl!(
        c"SSL_write_ex",
        caller,
        0,
        fn(Object, *const c_void, size_t, *mut size_t) -> c_int,
        (ssl, bytes, all, length)
    );
    // SAFETY: what libssl says.
    unsafe { was_written_ex(begun, bytes, all, length, done) }
}

unsafe extern "C" fn write_ex2(
    ssl: Object,
    bytes: *const c_void,
    all: size_t,
    flags: u64,
    length: *mut size_t,
    caller: usize,
) -> c_int {
    // SAFETY: what the caller gave.
    let begun = unsafe { begins(ssl, bytes, all) };
    let done = libssl!(
        c"SSL_write_ex2",
        caller,
        0,
        fn(Object, *const c_void, size_t, u64, *mut size_t) -> c_int,
        (ssl, bytes, all, flags, length)
    );
    // SAFETY: what libssl says.
    unsafe { was_written_ex(begun, bytes, all, length, done) }
}

unsafe extern "C" fn write_early_data(
    ssl: Object,
    bytes: *const c_void,
    all: size_t,
    length: *mut size_t,
    _: Other,
    caller: usize,
) -> c_int {
    // SAFETY: what the caller gave.
    let begun = unsafe { begins(ssl, bytes, all) };
    let done = libssl!(
        c"SSL_write_early_data",
        caller,
        0,
        fn(Object, *const c_void, size_t, *mut size_t) -> c_int,
        (ssl, bytes, all, length)
    );
    // SAFETY: what libssl says.
    unsafe { was_written_ex(begun, bytes, all, length, done) }
}

/// By the kernel, which encrypts as well.
unsafe extern "C" fn sendfile(
    ssl: Object,
    file: c_int,
    offset: off_t,
    length: size_t,
    flags: c_int,
    caller: usize,
) -> ssize_t {
    // SAFETY: there are no bytes.
    let begun = unsafe { begins(ssl, (&raw const offset).cast(), 0) };
    let done = libssl!(
        c"SSL_sendfile",
        caller,
        -1,
        fn(Object, c_int, off_t, size_t, c_int) -> ssize_t,
        (ssl, file, offset, length, flags)
    );
    went_unseen(begun.map(Write::stream), Direction::Out, done);
    done
}

/// Functions that carry nothing of the program's.
macro_rules! inside {
    ($($ours:ident $name:literal ($($argument:ident: $kind:ty),*) ($($other:ident),*);)*) => {$(
        unsafe extern "C" fn $ours(ssl: Object, $($argument: $kind,)* $($other: Other,)* caller: usize) -> c_int {
            $(let _ = $other;)*
            libssl!($name, caller, -1, fn(Object $(, $kind)*) -> c_int, (ssl $(, $argument)*))
        }
    )*};
}

inside! {
    accept c"SSL_accept" () (a, b, c, d);
    connect c"SSL_connect" () (a, b, c, d);
    do_handshake c"SSL_do_handshake" () (a, b, c, d);
    shutdown c"SSL_shutdown" () (a, b, c, d);
    peek c"SSL_peek" (bytes: *mut c_void, room: c_int) (a, b);
    peek_ex c"SSL_peek_ex" (bytes: *mut c_void, room: size_t, length: *mut size_t) (a);
}
