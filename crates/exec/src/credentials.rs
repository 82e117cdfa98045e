//! Who has sent a message: its number as this process sees it.

use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};

/// From here on messages that come to this socket say who has sent them.
pub(crate) fn ask_for(socket: &OwnedFd) -> io::Result<()> {
    let on = 1i32;
    // SAFETY: one number, with its length.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PASSCRED,
            (&raw const on).cast(),
            size_of::<i32>() as libc::socklen_t,
        )
    };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The next message, without waiting: its length, and who has sent it.
pub(crate) fn receive(socket: &OwnedFd, room: &mut [u8]) -> io::Result<(usize, libc::pid_t)> {
    let mut part = libc::iovec {
        iov_base: room.as_mut_ptr().cast(),
        iov_len: room.len(),
    };
    let mut control = [0u64; 16];
    // SAFETY: zero is a good value for each field.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(&control);
    // SAFETY: room for a message and what comes with it; the kernel writes no more.
    unsafe {
        let received = libc::recvmsg(socket.as_raw_fd(), &mut message, libc::MSG_DONTWAIT);
        if received < 0 {
            return Err(io::Error::last_os_error());
        }
        let mut header = libc::CMSG_FIRSTHDR(&message);
        while !header.is_null() {
            if (*header).cmsg_type == libc::SCM_CREDENTIALS {
                let sender = libc::CMSG_DATA(header).cast::<libc::ucred>();
                return Ok((received as usize, sender.read_unaligned().pid));
            }
            header = libc::CMSG_NXTHDR(&message, header);
        }
    }
    Err(io::ErrorKind::UnexpectedEof.into())
}
