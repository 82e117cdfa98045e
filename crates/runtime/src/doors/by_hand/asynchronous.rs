//! POSIX asynchronous input and output: R2's `prepare` and `commit` (section 3.1).
//!
//! Libc makes the transfers in threads of its own, which are no threads of the program's and stay
//! out of the recording. A request is logged when it is made; what it read is logged when the
//! program is first told that it is complete, because only from then on may the program look at the
//! buffer.

use std::ffi::c_int;

use crate::functions;
use crate::mechanism::call::{Call, Failure};
use crate::mechanism::detach::{self, Reason};
use crate::mechanism::sync::real;

/// A request of the program's. Null where libc allows that.
type Request = *mut libc::aiocb;

/// Bytes of a request that libc leaves unused. The first says that what was read is in the log
/// already.
const COMMITTED_AT: usize = size_of::<libc::aiocb>() - 32;

/// Inputs of a request, and the bytes that it writes.
unsafe fn prepare(call: &mut Call, request: Request, writes: bool) {
    // SAFETY: a valid request, as libc demands.
    unsafe {
        request.cast::<u8>().add(COMMITTED_AT).write(0);
        call.input((*request).aio_fildes as u64);
        call.input((*request).aio_nbytes as u64);
        call.input((*request).aio_offset as u64);
        if writes {
            call.input_bytes((*request).aio_buf.cast(), (*request).aio_nbytes);
        }
        notification(&(*request).aio_sigevent);
    }
}

/// Notification by a function that libc calls in a thread of its own would be the program's code in
/// nobody's thread.
fn notification(wanted: &libc::sigevent) {
    if wanted.sigev_notify == libc::SIGEV_THREAD {
        detach::detach(Reason::Other(
            "the program asked to be told of asynchronous transfers in a thread that libc makes for it",
        ));
    }
}

/// The request is known to be complete: what it read becomes the program's.
unsafe fn commit(call: &mut Call, request: Request) {
    let aio_return = real!(aio_return: fn(Request) -> isize);
    // SAFETY: a complete request.
    unsafe {
        call.out_value(&raw mut (*request).aio_lio_opcode);
        let committed = request.cast::<u8>().add(COMMITTED_AT);
        if committed.read() != 0 || (*request).aio_lio_opcode & !128 != libc::LIO_READ {
            return;
        }
        committed.write(1);
        // Libc's function only reads the result, as often as one likes.
        let mut bytes = if call.is_recording() {
            aio_return(request)
        } else {
            0
        };
        call.out_value(&raw mut bytes);
        call.out((*request).aio_buf.cast(), bytes.max(0) as usize);
    }
}

/// Waits, or is about to, in system space: a detach meanwhile is libc's affair.
macro_rules! passing {
    ($function:ident, $real:expr) => {
        match Call::enter(functions::$function) {
            Some(call) => call,
            // SAFETY: the program's own call.
            None => return unsafe { $real },
        }
    };
}

macro_rules! requests {
    ($($name:ident, $name64:ident = $function:ident, $writes:expr;)*) => { $(
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub unsafe extern "C" fn $name(request: Request) -> c_int {
            let real = real!($name: fn(Request) -> c_int);
            let mut call = passing!($function, real(request));
            // SAFETY: the program's own request.
            unsafe { prepare(&mut call, request, $writes) };
            // SAFETY: as above.
            let result = call.run_libc(Failure::Minus1, || unsafe { real(request) }.into());
            call.leave();
            result as c_int
        }

        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub unsafe extern "C" fn $name64(request: Request) -> c_int {
            // SAFETY: the same function on this machine.
            unsafe { $name(request) }
        }
    )* };
}

requests! {
    aio_read, aio_read64 = AIO_READ, false;
    aio_write, aio_write64 = AIO_WRITE, true;
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn aio_fsync(operation: c_int, request: Request) -> c_int {
    let real = real!(aio_fsync: fn(c_int, Request) -> c_int);
    let mut call = passing!(AIO_FSYNC, real(operation, request));
    call.input(operation as u64);
    // SAFETY: the program's own request.
    unsafe {
        call.input((*request).aio_fildes as u64);
        notification(&(*request).aio_sigevent);
    }
    // SAFETY: as above.
    let result = call.run_libc(Failure::Minus1, || {
        unsafe { real(operation, request) }.into()
    });
    call.leave();
    result as c_int
}

/// Answers with the error itself; 0 says that the transfer is complete.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn aio_error(request: Request) -> c_int {
    let real = real!(aio_error: fn(Request) -> c_int);
    let mut call = passing!(AIO_ERROR, real(request));
    // SAFETY: the program's own request.
    let result = call.run_libc(Failure::NonZero, || unsafe { real(request) }.into());
    if result == 0 {
        // SAFETY: complete, says libc.
        unsafe { commit(&mut call, request) };
    }
    call.leave();
    result as c_int
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn aio_return(request: Request) -> isize {
    let real = real!(aio_return: fn(Request) -> isize);
    let mut call = passing!(AIO_RETURN, real(request));
    // SAFETY: the program's own request.
    let result = call.run_libc(Failure::Never, || unsafe { real(request) } as i64);
    if result >= 0 {
        // SAFETY: a program may ask only once the transfer is complete.
        unsafe { commit(&mut call, request) };
    }
    call.leave();
    result as isize
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn aio_suspend(
    requests: *const Request,
    count: c_int,
    timeout: *const libc::timespec,
) -> c_int {
    let real = real!(aio_suspend: fn(*const Request, c_int, *const libc::timespec) -> c_int);
    let mut call = passing!(AIO_SUSPEND, real(requests, count, timeout));
    call.input(count as u64);
    // SAFETY: the program's own call.
    let result = call.run_libc(Failure::Minus1, || {
        unsafe { real(requests, count, timeout) }.into()
    });
    call.leave();
    result as c_int
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn aio_cancel(fd: c_int, request: Request) -> c_int {
    let real = real!(aio_cancel: fn(c_int, Request) -> c_int);
    let mut call = passing!(AIO_CANCEL, real(fd, request));
    call.input(fd as u64);
    // SAFETY: the program's own call.
    let result = call.run_libc(Failure::Minus1, || unsafe { real(fd, request) }.into());
    call.leave();
    result as c_int
}

/// With `LIO_WAIT` all transfers are complete when it returns, and the program need not ask.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn lio_listio(
    mode: c_int,
    requests: *const Request,
    count: c_int,
    wanted: *mut libc::sigevent,
) -> c_int {
    let real = real!(lio_listio: fn(c_int, *const Request, c_int, *mut libc::sigevent) -> c_int);
    let mut call = passing!(LIO_LISTIO, real(mode, requests, count, wanted));
    call.input(mode as u64);
    call.input(count as u64);
    // SAFETY: the program's own list, in which null pointers are allowed.
    let each = || {
        unsafe { std::slice::from_raw_parts(requests, count.max(0) as usize) }
            .iter()
            .filter(|request| !request.is_null())
    };
    for &request in each() {
        // SAFETY: as above.
        unsafe {
            let writes = (*request).aio_lio_opcode & !128 == libc::LIO_WRITE;
            prepare(&mut call, request, writes);
        }
    }
    if mode == libc::LIO_NOWAIT && !wanted.is_null() {
        // SAFETY: the program's own.
        notification(unsafe { &*wanted });
    }
    // SAFETY: as above.
    let result = call.run_libc(Failure::Minus1, || {
        unsafe { real(mode, requests, count, wanted) }.into()
    });
    if mode == libc::LIO_WAIT && result == 0 {
        for &request in each() {
            // SAFETY: complete, says libc.
            unsafe { commit(&mut call, request) };
        }
    }
    call.leave();
    result as c_int
}

/// The same functions on this machine.
macro_rules! wide {
    ($($wide:ident = $name:ident($($parameter:ident: $type:ty),*) -> $result:ty;)*) => { $(
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub unsafe extern "C" fn $wide($($parameter: $type),*) -> $result {
            // SAFETY: the program's own call.
            unsafe { $name($($parameter),*) }
        }
    )* };
}

wide! {
    aio_fsync64 = aio_fsync(operation: c_int, request: Request) -> c_int;
    aio_error64 = aio_error(request: Request) -> c_int;
    aio_return64 = aio_return(request: Request) -> isize;
    aio_suspend64 = aio_suspend(requests: *const Request, count: c_int, timeout: *const libc::timespec) -> c_int;
    aio_cancel64 = aio_cancel(fd: c_int, request: Request) -> c_int;
    lio_listio64 = lio_listio(mode: c_int, requests: *const Request, count: c_int, wanted: *mut libc::sigevent) -> c_int;
}
