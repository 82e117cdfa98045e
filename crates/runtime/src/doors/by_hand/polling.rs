//! `poll`: what the program asks for is compared, what it left in `revents` is not.

use super::system_call::SystemCall;
use crate::mechanism::call::Call;
use crate::probe;

/// `poll` and `ppoll`.
pub unsafe fn poll(running: &mut Call, call: SystemCall) -> isize {
    let [fds, count, timeout, ..] = call.arguments;
    let (fds, count) = (fds as *mut libc::pollfd, count as u32 as usize);
    running.input(count as u64);
    // SAFETY: the program's own call.
    unsafe {
        if call.number == libc::SYS_poll {
            running.input(timeout as u64);
        }
        let readable = probe::readable(fds.cast(), count * size_of::<libc::pollfd>());
        for index in 0..if readable { count } else { 0 } {
            let asked = &*fds.add(index);
            running.input((asked.fd as u32 as u64) << 16 | asked.events as u16 as u64);
        }
        running.blocks();
        let result = running.run_kernel(|thread| call.run_blocking(thread));
        if call.number == libc::SYS_ppoll {
            // Written in every case: how much time was left.
            if probe::readable(timeout as *const u8, size_of::<libc::timespec>()) {
                running.out_value(timeout as *mut libc::timespec);
            }
        }
        match result {
            0 => (0..count).for_each(|index| (*fds.add(index)).revents = 0),
            1.. => running.out(fds.cast(), count * size_of::<libc::pollfd>()),
            _ => {}
        }
        result
    }
}
