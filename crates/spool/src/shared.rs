//! The board of a service, made here and given to its taps.

use std::fs::File;
use std::io;
use std::ops::Deref;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::net::UnixStream;

use hindcast_taplog::Board;
use hindcast_taplog::board::{Purpose, Redirect};

/// A [`Board`] that other processes can be given. Its memory stays until this process ends.
#[derive(Debug)]
pub struct SharedBoard {
    memory: File,
    board: &'static Board,
}

impl SharedBoard {
    pub fn make(purpose: Purpose, redirect: &Redirect) -> io::Result<Self> {
        let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
        // SAFETY: the name is a C string; the descriptor is new, and ours.
        let memory = unsafe {
            let descriptor = libc::memfd_create(c"hindcast-board".as_ptr(), flags);
            match descriptor {
                -1 => return Err(io::Error::last_os_error()),
                new => File::from_raw_fd(new),
            }
        };
        memory.set_len(Board::SIZE as u64)?;
        // SAFETY: plain calls on a descriptor that is open, and new memory, which stays.
        let board = unsafe {
            let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
            if libc::fcntl(memory.as_raw_fd(), libc::F_ADD_SEALS, seals) != 0 {
                return Err(io::Error::last_os_error());
            }
            let base = libc::mmap(
                std::ptr::null_mut(),
                Board::SIZE,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_NORESERVE,
                memory.as_raw_fd(),
                0,
            );
            if base == libc::MAP_FAILED {
                return Err(io::Error::last_os_error());
            }
            Board::make(base.cast(), purpose, redirect)
        };
        Ok(Self { memory, board })
    }

    /// Gives a tap the memory. One that does not wait for it goes without.
    pub(crate) fn send(&self, to: &UnixStream) {
        #[repr(C, align(8))]
        struct Control([u8; 64]);
        let mut byte = [0u8];
        let mut control = Control([0; 64]);
        let mut part = libc::iovec {
            iov_base: byte.as_mut_ptr().cast(),
            iov_len: byte.len(),
        };
        // SAFETY: all that the message points to outlives the call; the control's space is that of
        // one descriptor, which fits.
        let sent = unsafe {
            let mut message: libc::msghdr = std::mem::zeroed();
            message.msg_iov = &mut part;
            message.msg_iovlen = 1;
            message.msg_control = control.0.as_mut_ptr().cast();
            message.msg_controllen = libc::CMSG_SPACE(size_of::<i32>() as u32) as usize;
            let head = libc::CMSG_FIRSTHDR(&message);
            (*head).cmsg_level = libc::SOL_SOCKET;
            (*head).cmsg_type = libc::SCM_RIGHTS;
            (*head).cmsg_len = libc::CMSG_LEN(size_of::<i32>() as u32) as usize;
            let place = libc::CMSG_DATA(head).cast::<i32>();
            place.write_unaligned(self.memory.as_raw_fd());
            let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
            libc::sendmsg(to.as_raw_fd(), &message, flags)
        };
        // It has gone: it asks no more.
        let _ = sent;
    }
}

impl Deref for SharedBoard {
    type Target = Board;

    fn deref(&self) -> &Board {
        self.board
    }
}
