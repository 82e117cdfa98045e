//! Messages of ours that carry a descriptor to another process.

use std::ffi::c_void;

use crate::syscall;

/// Room for the control data of one descriptor.
#[repr(C, align(8))]
struct Control([u8; 24]);

const CONTROL_LENGTH: usize = size_of::<libc::cmsghdr>() + 4;

/// Does something with a message of these bytes that has room for one descriptor.
fn with_message<R>(bytes: &mut [u8], inner: impl FnOnce(&mut libc::msghdr) -> R) -> R {
    let mut control = Control([0; 24]);
    let mut vector = libc::iovec {
        iov_base: bytes.as_mut_ptr().cast::<c_void>(),
        iov_len: bytes.len(),
    };
    // SAFETY: plain data.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut vector;
    message.msg_iovlen = 1;
    message.msg_control = control.0.as_mut_ptr().cast();
    message.msg_controllen = size_of::<Control>();
    inner(&mut message)
}

/// Sends a copy of `descriptor` with these bytes: whether all went.
pub fn send(socket: i32, bytes: &mut [u8], descriptor: i32, flags: i32) -> bool {
    let length = bytes.len();
    let sent = with_message(bytes, |message| {
        let header = message.msg_control.cast::<libc::cmsghdr>();
        // SAFETY: the control data has room for its header and one number; the message's parts live
        // as long as it.
        unsafe {
            (*header).cmsg_len = CONTROL_LENGTH;
            (*header).cmsg_level = libc::SOL_SOCKET;
            (*header).cmsg_type = libc::SCM_RIGHTS;
            header.add(1).cast::<i32>().write(descriptor);
            syscall!(
                libc::SYS_sendmsg,
                socket,
                &raw const *message,
                libc::MSG_NOSIGNAL | flags
            )
        }
    });
    sent == length as isize
}

/// Receives the next message: whether it had as many bytes, and the descriptor that came along.
pub fn receive(socket: i32, bytes: &mut [u8]) -> (bool, Option<i32>) {
    let length = bytes.len();
    with_message(bytes, |message| {
        // SAFETY: a message of parts that live as long as it, with their lengths.
        unsafe {
            let received = syscall!(libc::SYS_recvmsg, socket, &raw mut *message, 0);
            let header = message.msg_control.cast::<libc::cmsghdr>();
            let has_one = message.msg_controllen >= CONTROL_LENGTH
                && (*header).cmsg_type == libc::SCM_RIGHTS
                && (*header).cmsg_level == libc::SOL_SOCKET;
            (
                received == length as isize,
                has_one.then(|| header.add(1).cast::<i32>().read()),
            )
        }
    })
}
