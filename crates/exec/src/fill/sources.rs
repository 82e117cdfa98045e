//! The files that events refer to: which there are, and what is read from them.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::PathBuf;

use hindcast_execlog::reference::{FileState, Given, Reference, Stat, ends};

/// The files that the program has opened, as it sends them.
pub struct Sent {
    /// `None`: it has ended.
    socket: Option<OwnedFd>,
    files: HashMap<u32, OwnedFd>,
}

impl Sent {
    pub fn new(socket: Option<OwnedFd>) -> Sent {
        Sent {
            socket,
            files: HashMap::new(),
        }
    }

    /// Files that no log has named so far.
    pub fn files(&self) -> usize {
        self.files.len()
    }

    /// Whether the program may still be running that sends them.
    pub fn may_come(&self) -> bool {
        self.socket.is_some()
    }

    /// Takes what is there. Whether there is nobody left who could send more.
    pub fn receive(&mut self) -> bool {
        let Some(socket) = &self.socket else {
            return true;
        };
        loop {
            match receive(socket) {
                Ok(Some((number, Some(file)))) => drop(self.files.insert(number, file)),
                Ok(Some((_, None))) => {}
                Ok(None) => return true,
                Err(_) => return false,
            }
        }
    }

    /// A file is sent before the log names it.
    pub fn take(&mut self, number: u32) -> Option<OwnedFd> {
        self.files.remove(&number).or_else(|| {
            self.receive();
            self.files.remove(&number)
        })
    }
}

/// What a number stands for.
pub struct Source {
    state: FileState,
    path: PathBuf,
    /// `None`: zeros. Or why it cannot be read.
    file: Result<Option<File>, String>,
}

impl Source {
    pub fn new(given: &Given, path: &[u8], sent: Option<OwnedFd>) -> Source {
        let path = PathBuf::from(std::ffi::OsStr::from_bytes(path));
        let mut source = Source {
            state: given.state,
            file: Ok(None),
            path,
        };
        if given.zeros == 0 {
            source.file = match sent {
                Some(sent) => Ok(Some(File::from(sent))),
                // It was lost with a follower that was killed.
                None => File::open(&source.path).map(Some).map_err(|error| {
                    format!(
                        "{}, which it refers to, cannot be opened: {error}",
                        source.path.display()
                    )
                }),
            };
        }
        source
    }

    pub fn read(&self, reference: &Reference, into: &mut [u8]) -> Result<(), String> {
        match &self.file {
            Err(why) => return Err(why.clone()),
            Ok(None) => into.fill(0),
            Ok(Some(file)) => file
                .read_exact_at(into, reference.offset)
                .map_err(|_| self.changed())?,
        }
        match ends(into) as u32 == reference.ends {
            true => Ok(()),
            false => Err(self.changed()),
        }
    }

    /// Whether the file is what it was: so is what was read from it before.
    pub fn is_as_it_was(&self) -> bool {
        let Ok(Some(file)) = &self.file else {
            return true;
        };
        file.metadata().is_ok_and(|found| {
            let stat = Stat {
                device: found.dev(),
                inode: found.ino(),
                size: found.size(),
                modified: (found.mtime(), found.mtime_nsec()),
                changed: (found.ctime(), found.ctime_nsec()),
            };
            same_content(&FileState::of(&stat), &self.state)
        })
    }

    pub fn changed(&self) -> String {
        format!(
            "{} was changed before the follower had read what the program read from it",
            self.path.display()
        )
    }
}

/// A file that was renamed or removed has another time of change, and the same bytes.
fn same_content(found: &FileState, then: &FileState) -> bool {
    FileState {
        changed: then.changed,
        ..*found
    } == *then
}

/// The next file that was sent, with its number. `None`: nobody is there to send one. An error:
/// there is none now.
fn receive(socket: &OwnedFd) -> io::Result<Option<(u32, Option<OwnedFd>)>> {
    #[repr(C, align(8))]
    struct Control([u8; 64]);
    let mut number = 0u32;
    let mut control = Control([0; 64]);
    let mut vector = libc::iovec {
        iov_base: (&raw mut number).cast(),
        iov_len: size_of::<u32>(),
    };
    // SAFETY: a message of values of this function, with their lengths. A descriptor that came
    // along is owned from here on.
    unsafe {
        let mut message: libc::msghdr = std::mem::zeroed();
        message.msg_iov = &raw mut vector;
        message.msg_iovlen = 1;
        message.msg_control = (&raw mut control).cast();
        message.msg_controllen = size_of::<Control>();
        let flags = libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC;
        match libc::recvmsg(socket.as_fd().as_raw_fd(), &raw mut message, flags) {
            -1 => return Err(io::Error::last_os_error()),
            0 => return Ok(None),
            _ => {}
        }
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        let has_one = !header.is_null()
            && (*header).cmsg_level == libc::SOL_SOCKET
            && (*header).cmsg_type == libc::SCM_RIGHTS;
        let file = has_one
            .then(|| OwnedFd::from_raw_fd(libc::CMSG_DATA(header).cast::<i32>().read_unaligned()));
        Ok(Some((number, file)))
    }
}
