//! How a ring comes here: its memory as a descriptor, over a connection of its own.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use hindcast_taplog::{Hello, SOCKET_VARIABLE, TOKEN};

use crate::shared::SharedBoard;

/// Rings that may have been sent and not been looked at.
const QUEUE: i32 = 4096;
/// Between its connection and its message a tap may lose the processor.
const PATIENCE: Duration = Duration::from_secs(1);

/// Where taps send their rings.
#[derive(Debug)]
pub(crate) struct Door {
    listener: UnixListener,
    name: String,
    token: [u8; TOKEN],
    /// What taps are sent that ask for it.
    board: Option<Arc<SharedBoard>>,
    /// Connected, and has not said yet what for.
    silent: Vec<(UnixStream, Instant)>,
}

/// A ring that was sent.
#[derive(Debug)]
pub(crate) struct Arrival {
    pub memory: File,
    pub pid: u32,
    pub began: u64,
}

impl Door {
    pub fn open(board: Option<Arc<SharedBoard>>) -> io::Result<Self> {
        let name = format!("hindcast-tap-{}", hex(&random::<8>()?));
        let address = SocketAddr::from_abstract_name(name.as_bytes())?;
        let listener = UnixListener::bind_addr(&address)?;
        listener.set_nonblocking(true)?;
        // A tap that finds the queue full loses what it had to tell: it does not wait.
        // SAFETY: it listens already; this only makes the queue longer.
        if unsafe { libc::listen(listener.as_raw_fd(), QUEUE) } != 0 {
            return Err(io::Error::last_os_error());
        }
        let token = hex(&random::<{ TOKEN / 2 }>()?);
        Ok(Self {
            listener,
            name,
            token: token.as_bytes().try_into().expect("two digits a byte"),
            board,
            silent: Vec::new(),
        })
    }

    /// What a service has in its environment whose rings come here.
    pub fn variable(&self) -> (&'static str, String) {
        let token = String::from_utf8_lossy(&self.token);
        (SOCKET_VARIABLE, format!("{}:{token}", self.name))
    }

    /// Waits until a ring has come, or for as long as this.
    pub fn wait(&self, patience: Duration) {
        let mut poll = libc::pollfd {
            fd: self.listener.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: the memory is ours, one entry long.
        unsafe { libc::poll(&mut poll, 1, patience.as_millis() as i32) };
    }

    /// Rings that have come. What does not prove that it comes from the service is dropped: every
    /// user of the machine can connect.
    pub fn arrivals(&mut self) -> io::Result<Vec<Arrival>> {
        loop {
            match self.listener.accept() {
                Ok((connection, _)) => self.silent.push((connection, Instant::now())),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        let mut arrivals = Vec::new();
        for (connection, since) in std::mem::take(&mut self.silent) {
            match self.receive(&connection) {
                Some(arrival) => arrivals.extend(arrival),
                None if since.elapsed() < PATIENCE => self.silent.push((connection, since)),
                None => {}
            }
        }
        Ok(arrivals)
    }

    /// `None` if nothing was sent yet, and `Some(None)` if that was no ring of the service's. A tap
    /// that asks for the board is sent it.
    fn receive(&self, connection: &UnixStream) -> Option<Option<Arrival>> {
        #[repr(C, align(8))]
        struct Control([u8; 64]);
        let mut bytes = [0u8; Hello::SIZE];
        let mut control = Control([0; 64]);
        let mut part = libc::iovec {
            iov_base: bytes.as_mut_ptr().cast(),
            iov_len: bytes.len(),
        };
        let mut memory = None;
        // SAFETY: zeros are a message; all that it points to outlives the call. Descriptors that
        // come with it are new, and nobody else's.
        let length = unsafe {
            let mut message: libc::msghdr = std::mem::zeroed();
            message.msg_iov = &mut part;
            message.msg_iovlen = 1;
            message.msg_control = control.0.as_mut_ptr().cast();
            message.msg_controllen = size_of::<Control>();
            let flags = libc::MSG_CMSG_CLOEXEC | libc::MSG_DONTWAIT;
            let length = libc::recvmsg(connection.as_raw_fd(), &mut message, flags);
            if length < 0 && io::Error::last_os_error().kind() == io::ErrorKind::WouldBlock {
                return None;
            }
            let mut head = libc::CMSG_FIRSTHDR(&message);
            while length >= 0 && !head.is_null() {
                if (*head).cmsg_level == libc::SOL_SOCKET && (*head).cmsg_type == libc::SCM_RIGHTS {
                    let room = (*head).cmsg_len - libc::CMSG_LEN(0) as usize;
                    let passed = libc::CMSG_DATA(head).cast::<i32>();
                    for at in 0..room / size_of::<i32>() {
                        let one = OwnedFd::from_raw_fd(passed.add(at).read_unaligned());
                        memory = Some(File::from(one));
                    }
                }
                head = libc::CMSG_NXTHDR(&message, head);
            }
            length
        };
        let hello = Hello::from_bytes(&bytes)
            .filter(|hello| length == Hello::SIZE as isize && hello.token == self.token);
        let Some(memory) = memory else {
            if let (Some(_), Some(board)) = (hello, &self.board) {
                board.send(connection);
            }
            return Some(None);
        };
        let arrival = || {
            Some(Arrival {
                began: hello?.began,
                memory,
                pid: sender(connection)?,
            })
        };
        Some(arrival())
    }
}

/// The process that connected.
fn sender(connection: &UnixStream) -> Option<u32> {
    // SAFETY: zeros are credentials; the memory is ours and as long as is said.
    unsafe {
        let mut sender: libc::ucred = std::mem::zeroed();
        let mut length = size_of::<libc::ucred>() as libc::socklen_t;
        let result = libc::getsockopt(
            connection.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut sender).cast(),
            &mut length,
        );
        u32::try_from(sender.pid).ok().filter(|_| result == 0)
    }
}

fn random<const LENGTH: usize>() -> io::Result<[u8; LENGTH]> {
    let mut bytes = [0; LENGTH];
    // SAFETY: the memory is ours and as long as is said.
    let got = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), LENGTH, 0) };
    match usize::try_from(got) {
        Ok(got) if got == LENGTH => Ok(bytes),
        _ => Err(io::Error::last_os_error()),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
