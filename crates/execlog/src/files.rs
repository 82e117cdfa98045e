//! The two files of a process folder, as far as they are not events.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::{Text, VERSION};

/// What a header that others may look at while it is written begins with: zero until the rest of it
/// is there.
#[repr(transparent)]
struct Magic(AtomicU64);

impl Magic {
    const fn new(bytes: [u8; 8]) -> Self {
        Magic(AtomicU64::new(u64::from_ne_bytes(bytes)))
    }

    fn is(&self, bytes: [u8; 8]) -> bool {
        self.0.load(Ordering::Acquire) == u64::from_ne_bytes(bytes)
    }
}

/// Writes a header, which begins with its magic number, where others may look already.
///
/// # Safety
/// As for [`std::ptr::write`].
unsafe fn write_header<T>(header: T, magic: impl Fn(&T) -> &Magic, place: *mut T) {
    let number = magic(&header).0.swap(0, Ordering::Relaxed);
    // SAFETY: the caller's promise.
    let written = unsafe {
        place.write(header);
        &*place
    };
    magic(written).0.store(number, Ordering::Release);
}

/// The first 64 bytes of a thread log.
#[repr(C)]
pub struct LogHeader {
    magic: Magic,
    pub version: u32,
    /// The thread's number in its process.
    pub thread: u32,
    /// Identifies the table of functions with which the events were written.
    pub functions: u64,
    /// Bytes of complete events behind this header. Moves only forward, by the thread that writes,
    /// after an event is complete.
    pub committed: AtomicU64,
    /// In a recording that is followed: how many events there were when the thread last entered a
    /// call. So many, and no signal was delivered since the last of them.
    pub entered: AtomicU64,
    /// Bytes of files that events of this log refer to, and of what names these files. Zero in a
    /// log that is whole by itself.
    pub referred: AtomicU64,
    /// So many of them has the follower read. Written by that one alone.
    pub read: AtomicU64,
    pub reserved: u64,
}

impl LogHeader {
    pub const MAGIC: [u8; 8] = *b"HCTHREAD";
    pub const BYTES: usize = 64;

    pub fn new(thread: u32, functions: u64) -> Self {
        LogHeader {
            magic: Magic::new(Self::MAGIC),
            version: VERSION,
            thread,
            functions,
            committed: AtomicU64::new(0),
            entered: AtomicU64::new(0),
            referred: AtomicU64::new(0),
            read: AtomicU64::new(0),
            reserved: 0,
        }
    }

    /// Writes it where others may look already.
    ///
    /// # Safety
    /// As for [`std::ptr::write`].
    pub unsafe fn write_to(self, place: *mut Self) {
        // SAFETY: the caller's promise.
        unsafe { write_header(self, |header| &header.magic, place) };
    }

    /// Whether this is the header of a log, and all of it is there.
    pub fn is_there(&self) -> bool {
        self.magic.is(Self::MAGIC)
    }
}

/// How a process image ended. Written by the process itself, so a kill leaves [`End::Running`].
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It never said: killed, or still running.
    Running = 0,
    /// `code` is the exit status.
    Exited = 1,
    /// `code` is the signal, sent by the process to itself or fatal by default.
    Signalled = 2,
    /// It became another image, whose folder has this one's name and a `+`.
    Executed = 3,
    /// Recording ended before the process did; `reason` says why.
    Detached = 4,
}

/// Whether a folder's name is that of the process that was started first, in any of its images.
pub fn is_first(name: &str) -> bool {
    name.strip_prefix("p0")
        .is_some_and(|rest| rest.bytes().all(|byte| byte == b'+'))
}

/// What a warning says when a replay does the same from some event on, but not at the same
/// instructions.
pub const INEXACT: &str = "a replay is not exact from";

/// The file `process` of a process folder.
#[repr(C)]
pub struct ProcessHeader {
    magic: Magic,
    pub version: u32,
    pub pid: u32,
    pub parent: Text<256>,
    /// Threads so far; their logs are `t0` to `t{threads - 1}`.
    pub threads: AtomicU32,
    /// Children forked so far; their folders end in `.1` to `.{children}`.
    pub children: AtomicU32,
    pub end: AtomicU32,
    pub code: AtomicU32,
    pub reason: Text<512>,
    /// What a person should know about this recording, a line each.
    pub warnings: Text<4096>,
    /// Interfaces of the user's own, a name per line, in the order in which their function numbers
    /// were given out.
    pub interfaces: Text<1024>,
}

impl ProcessHeader {
    pub const MAGIC: [u8; 8] = *b"HCPROCES";

    pub fn new(pid: u32, parent: &str) -> Self {
        ProcessHeader {
            magic: Magic::new(Self::MAGIC),
            version: VERSION,
            pid,
            parent: Text::from_text(parent),
            threads: AtomicU32::new(0),
            children: AtomicU32::new(0),
            end: AtomicU32::new(End::Running as u32),
            code: AtomicU32::new(0),
            reason: Text::new(),
            warnings: Text::new(),
            interfaces: Text::new(),
        }
    }

    /// Writes it where others may look already.
    ///
    /// # Safety
    /// As for [`std::ptr::write`].
    pub unsafe fn write_to(self, place: *mut Self) {
        // SAFETY: the caller's promise.
        unsafe { write_header(self, |header| &header.magic, place) };
    }

    /// Whether this is the header of a process, and all of it is there.
    pub fn is_there(&self) -> bool {
        self.magic.is(Self::MAGIC)
    }

    pub fn end(&self) -> (End, u32) {
        let end = match self.end.load(Ordering::Acquire) {
            1 => End::Exited,
            2 => End::Signalled,
            3 => End::Executed,
            4 => End::Detached,
            _ => End::Running,
        };
        (end, self.code.load(Ordering::Acquire))
    }

    /// Reads the header from the bytes of the file; `None` when they are not one of this version.
    pub fn from_bytes(bytes: &[u8]) -> Option<Box<Self>> {
        if bytes.len() < size_of::<Self>()
            || bytes[..8] != Self::MAGIC
            || bytes[8..12] != VERSION.to_ne_bytes()
        {
            return None;
        }
        let mut header = Box::new(Self::new(0, ""));
        // SAFETY: the struct is plain data, valid for every bit pattern, and there are enough
        // bytes.
        unsafe {
            std::ptr::copy_nonoverlapping(
                bytes.as_ptr(),
                (&raw mut *header).cast::<u8>(),
                size_of::<Self>(),
            )
        };
        Some(header)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::mem::MaybeUninit;

    use super::*;

    /// Writes a header; says what is seen of it at `place` just before its magic number is there.
    fn seen_before<T, S>(header: T, magic: fn(&T) -> &Magic, see: impl Fn(&T) -> S) -> (S, T) {
        let mut place = MaybeUninit::<T>::zeroed();
        let at = place.as_ptr();
        let seen = RefCell::new(None);
        let looked_at = |header: &T| -> *const Magic {
            if std::ptr::eq(header, at) {
                *seen.borrow_mut() = Some(see(header));
            }
            magic(header)
        };
        // SAFETY: there is room for one, and a header's magic number lives as long as it.
        unsafe {
            write_header(header, |header| &*looked_at(header), place.as_mut_ptr());
            let seen = seen.into_inner();
            (seen.expect("it was looked at"), place.assume_init())
        }
    }

    #[test]
    fn the_magic_number_of_a_threads_header_comes_last() {
        let see = |header: &LogHeader| (header.is_there(), header.version, header.thread);
        let (seen, written) = seen_before(LogHeader::new(3, 7), |header| &header.magic, see);
        assert_eq!(seen, (false, VERSION, 3));
        assert!(written.is_there() && written.functions == 7);
    }

    #[test]
    fn the_magic_number_of_a_processs_header_comes_last() {
        let see = |header: &ProcessHeader| (header.is_there(), header.version, header.pid);
        let header = ProcessHeader::new(5, "p0");
        let (seen, written) = seen_before(header, |header| &header.magic, see);
        assert_eq!(seen, (false, VERSION, 5));
        assert!(written.is_there() && written.parent.as_str() == "p0");
    }
}
