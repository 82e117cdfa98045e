//! System calls that a goroutine makes: each is made by the function that a program in C would have
//! called, so what becomes of it is the same.

use libc::{c_int, c_long};

use super::goroutines::{draw_for_none, for_code, for_goroutine};
use crate::errno::errno;
use crate::hooks::{descriptors, randomness, transfers};

/// Numbers below this may be wanted.
pub const COUNT: usize = 512;

/// Those that are.
pub static WANTED: [u8; COUNT] = {
    const ALL: [c_long; 24] = [
        libc::SYS_read,
        libc::SYS_readv,
        libc::SYS_recvfrom,
        libc::SYS_recvmsg,
        libc::SYS_recvmmsg,
        libc::SYS_write,
        libc::SYS_writev,
        libc::SYS_sendto,
        libc::SYS_sendmsg,
        libc::SYS_sendmmsg,
        libc::SYS_sendfile,
        libc::SYS_splice,
        libc::SYS_socket,
        libc::SYS_accept,
        libc::SYS_accept4,
        libc::SYS_connect,
        libc::SYS_bind,
        libc::SYS_setsockopt,
        libc::SYS_getsockname,
        libc::SYS_getpeername,
        libc::SYS_shutdown,
        libc::SYS_close,
        libc::SYS_fcntl,
        libc::SYS_getrandom,
    ];
    let mut wanted = [0; COUNT];
    let mut at = 0;
    while at < ALL.len() {
        wanted[ALL[at] as usize] = 1;
        at += 1;
    }
    wanted
};

/// What the kernel would give: below zero, an error.
#[allow(clippy::too_many_arguments)] // Those of a system call, and of whom it is.
pub unsafe extern "C" fn call(
    number: c_long,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
    goroutine: usize,
    frame: usize,
) -> isize {
    let draws = number == libc::SYS_getrandom;
    // SAFETY: what the program gave to the kernel.
    if draws && unsafe { draw_for_none(goroutine, frame, a as *mut u8, b) } {
        return b as isize;
    }
    // SAFETY: as above.
    let call = || match unsafe { made(number, [a, b, c, d, e, f]) } {
        -1 => -(errno() as isize),
        done => done,
    };
    match draws {
        true => for_code(goroutine, frame, call),
        false => for_goroutine(goroutine, call),
    }
}

unsafe fn made(number: c_long, of: [usize; 6]) -> isize {
    let [a, b, c, d, e, f] = of;
    let (at, to) = (a as c_int, b as *mut libc::c_void);
    // SAFETY: as the caller promises: the kernel takes the same arguments as libc's function.
    unsafe {
        let done = match number {
            libc::SYS_read => return transfers::read(at, to, c),
            libc::SYS_readv => return transfers::readv(at, to.cast(), c as c_int),
            libc::SYS_recvfrom => {
                let (address, length) = (e as *mut _, f as *mut _);
                return transfers::recvfrom(at, to, c, d as c_int, address, length);
            }
            libc::SYS_recvmsg => return transfers::recvmsg(at, to.cast(), c as c_int),
            libc::SYS_write => return transfers::write(at, to, c),
            libc::SYS_writev => return transfers::writev(at, to.cast(), c as c_int),
            libc::SYS_sendto => {
                return transfers::sendto(at, to, c, d as c_int, e as *const _, f as u32);
            }
            libc::SYS_sendmsg => return transfers::sendmsg(at, to.cast(), c as c_int),
            libc::SYS_sendfile => return transfers::sendfile(at, b as c_int, c as *mut _, d),
            libc::SYS_splice => {
                let (from, to) = (b as *mut _, d as *mut _);
                return transfers::splice(at, from, c as c_int, to, e, f as u32);
            }
            libc::SYS_getrandom => return randomness::getrandom(a as *mut _, b, c as u32),
            libc::SYS_recvmmsg => {
                transfers::recvmmsg(at, to.cast(), c as u32, d as c_int, e as *mut _)
            }
            libc::SYS_sendmmsg => transfers::sendmmsg(at, to.cast(), c as u32, d as c_int),
            libc::SYS_socket => descriptors::socket(at, b as c_int, c as c_int),
            libc::SYS_accept => descriptors::accept(at, to.cast(), c as *mut _),
            libc::SYS_accept4 => descriptors::accept4(at, to.cast(), c as *mut _, d as c_int),
            libc::SYS_connect => descriptors::connect(at, to.cast(), c as u32),
            libc::SYS_bind => descriptors::bind(at, to.cast(), c as u32),
            libc::SYS_setsockopt => {
                descriptors::setsockopt(at, b as c_int, c as c_int, d as *const _, e as u32)
            }
            libc::SYS_getsockname => descriptors::getsockname(at, to.cast(), c as *mut _),
            libc::SYS_getpeername => descriptors::getpeername(at, to.cast(), c as *mut _),
            libc::SYS_shutdown => descriptors::shutdown(at, b as c_int),
            libc::SYS_close => descriptors::close(at),
            libc::SYS_fcntl => descriptors::fcntl(at, b as c_int, c),
            _ => return libc::syscall(number, a, b, c, d, e, f) as isize,
        };
        done as isize
    }
}
