//! A thread's log: written while recording, read in replay. The bytes are `hindcast_execlog`'s.

mod reader;
mod writer;

pub use reader::{Reader, Unreadable, hindcast_breakpoint};
pub use writer::{WRITTEN_FROM, Writer, grow};

use std::sync::atomic::{AtomicUsize, Ordering};

use hindcast_execlog::config::addresses;

/// Where a log's header page and window are mapped while it is written: room of its own for each
/// thread number.
const WRITERS: usize = addresses::RUNTIME + (1 << 32);
const WRITER_BYTES: usize = 64 << 20;
/// Where whole logs are mapped to be read, and windows that are too large for the room of a thread.
const READERS: usize = WRITERS + hindcast_execlog::THREADS_MAX * WRITER_BYTES;

static NEXT_ROOM: AtomicUsize = AtomicUsize::new(READERS);

/// Address space for `length` bytes that nothing else uses.
pub fn take_room(length: usize) -> Option<usize> {
    let length = length.next_multiple_of(1 << 16);
    let room = NEXT_ROOM.fetch_add(length, Ordering::Relaxed);
    (room + length <= addresses::RESTORING).then_some(room)
}

/// The path of a file of a process folder, with the NUL that the kernel wants.
pub struct Path {
    bytes: [u8; 320],
    length: usize,
}

impl Path {
    pub fn new(process: &str, file: std::fmt::Arguments<'_>) -> Self {
        let mut path = Path {
            bytes: [0; 320],
            length: 0,
        };
        let _ = std::fmt::Write::write_fmt(&mut path, format_args!("{process}/{file}"));
        path
    }

    pub fn as_c_str(&self) -> &std::ffi::CStr {
        std::ffi::CStr::from_bytes_until_nul(&self.bytes).expect("the last byte is never written")
    }
}

impl std::fmt::Write for Path {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        let room = self.bytes.len() - 1 - self.length;
        if text.len() > room {
            return Err(std::fmt::Error);
        }
        self.bytes[self.length..self.length + text.len()].copy_from_slice(text.as_bytes());
        self.length += text.len();
        Ok(())
    }
}
