//! Reading a thread's log in replay.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use hindcast_execlog::event::Kind;
use hindcast_execlog::{Event, LogHeader, VERSION};

use super::{Path, take_room};
use crate::{functions, raw, syscall};
use hindcast_execlog::config::descriptors;

/// The reading end of a log: the whole file, mapped, and a position in it.
pub struct Reader {
    log: &'static [u8],
    /// Atomic because other threads look at how far this one is; only its own moves it.
    offset: AtomicUsize,
    events: AtomicU64,
    /// How many acquisitions of the run of relaxed ones at `offset` were consumed.
    relaxed: u32,
    /// The debugger stops before this event; `u64::MAX`: before none.
    break_at: u64,
}

/// Why a log cannot be replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unreadable {
    /// The thread's log is not there, or not to be opened: the error number.
    Missing(i32),
    /// Not the log of a thread, or cut off within its header.
    NotALog,
    /// Written by another version of the runtime, or with another table of functions.
    OtherVersion,
}

impl Unreadable {
    pub fn hint(self) -> &'static str {
        match self {
            Unreadable::Missing(_) => {
                "The thread was recorded as created and left no log: the recording is incomplete."
            }
            Unreadable::NotALog => "The file is damaged or cut off. Record again.",
            Unreadable::OtherVersion => "Replay with the version that recorded, or record again.",
        }
    }
}

impl std::fmt::Display for Unreadable {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Unreadable::Missing(code) => write!(formatter, "cannot be opened (error {code})"),
            Unreadable::NotALog => write!(formatter, "is not the log of a thread"),
            Unreadable::OtherVersion => {
                write!(formatter, "was written by another version of hindcast")
            }
        }
    }
}

impl Reader {
    pub const fn closed() -> Self {
        Reader {
            log: &[],
            offset: AtomicUsize::new(0),
            events: AtomicU64::new(0),
            relaxed: 0,
            break_at: u64::MAX,
        }
    }

    pub fn open(&mut self, process: &str, thread: u32) -> Result<(), Unreadable> {
        let path = Path::new(process, format_args!("t{thread}"));
        let file = raw::open_at(descriptors::FOLDER, path.as_c_str(), libc::O_RDONLY, 0)
            .map_err(Unreadable::Missing)?;
        let mapped = map(file);
        raw::close(file);
        let bytes = mapped.map_err(Unreadable::Missing)?;
        if bytes.len() < LogHeader::BYTES {
            return Err(Unreadable::NotALog);
        }
        // SAFETY: the mapping is page aligned and long enough, and every bit pattern is a header.
        let header = unsafe { &*bytes.as_ptr().cast::<LogHeader>() };
        if header.magic != LogHeader::MAGIC {
            return Err(Unreadable::NotALog);
        }
        if header.version != VERSION || header.functions != functions::TABLE_HASH {
            return Err(Unreadable::OtherVersion);
        }
        let committed = header.committed.load(Ordering::Acquire) as usize;
        // A file that was cut off ends with its last complete event: `Event::at` does not read past
        // the end.
        let end = (LogHeader::BYTES + committed).min(bytes.len());
        *self = Reader {
            log: &bytes[LogHeader::BYTES..end],
            ..Reader::closed()
        };
        Ok(())
    }

    /// Has the debugger stop just before the event of this number.
    pub fn stop_before(&mut self, event: u64) {
        self.break_at = event;
    }

    /// Whether it stops before the next one.
    #[inline]
    pub fn stops_here(&self) -> bool {
        self.events() == self.break_at
    }

    /// Events that were consumed.
    pub fn events(&self) -> u64 {
        self.events.load(Ordering::Relaxed)
    }

    pub fn is_at_end(&self) -> bool {
        self.peek().is_none()
    }

    /// The next event, without consuming it.
    #[inline]
    pub fn peek(&self) -> Option<Event<'static>> {
        Event::at(self.log, self.offset.load(Ordering::Relaxed))
    }

    /// Consumes the event that `peek` gave.
    #[inline]
    pub fn advance(&mut self, event: &Event<'static>) {
        self.offset.store(event.end, Ordering::Release);
        *self.events.get_mut() += 1;
        self.relaxed = 0;
        if self.stops_here() {
            self.stop_before_acquisition();
        }
    }

    /// The events from here on.
    pub fn ahead(&self) -> hindcast_execlog::Events<'static> {
        hindcast_execlog::Events::from_offset(self.log, self.offset.load(Ordering::Relaxed))
    }

    /// A call stops when it asks for its event, with the program's stack above it. An acquisition
    /// may find in the log that there is nothing to wait for and ask no more, so it stops where
    /// the event before it ends.
    #[cold]
    fn stop_before_acquisition(&self) {
        let next = self.peek().and_then(|event| Kind::from_number(event.kind));
        if let Some(Kind::Relaxed | Kind::Edge | Kind::Ticket | Kind::Clock | Kind::Busy) = next {
            hindcast_breakpoint();
        }
    }

    /// Bytes of the log by their position.
    pub fn bytes(&self, offset: usize, length: usize) -> Option<&'static [u8]> {
        self.log.get(offset..)?.get(..length)
    }

    /// Consumes one acquisition of a run of relaxed ones, if that is what comes next.
    #[inline]
    pub fn take_relaxed(&mut self) -> bool {
        let Some(event) = self.peek() else {
            return false;
        };
        if event.kind != Kind::Relaxed as u16 {
            return false;
        }
        let Some(count) = event.payload.first_chunk::<4>() else {
            return false;
        };
        self.relaxed += 1;
        if self.relaxed >= u32::from_ne_bytes(*count) {
            self.advance(&event);
        }
        true
    }
}

fn map(file: i32) -> Result<&'static [u8], i32> {
    let mut found = std::mem::MaybeUninit::<libc::stat>::uninit();
    // SAFETY: room for one `stat`.
    let result = unsafe { syscall!(libc::SYS_fstat, file, found.as_mut_ptr()) };
    if let Some(code) = raw::error_of(result) {
        return Err(code);
    }
    // SAFETY: filled in.
    let length = unsafe { found.assume_init() }.st_size as usize;
    if length == 0 {
        return Ok(&[]);
    }
    let address = take_room(length).ok_or(libc::ENOMEM)?;
    // SAFETY: room taken just now. The mapping is never removed, and the file is not written in
    // replay.
    let mapped =
        unsafe { raw::map_at(address, length, libc::PROT_READ, libc::MAP_PRIVATE, file, 0) }?;
    // SAFETY: as just said.
    Ok(unsafe { std::slice::from_raw_parts(mapped, length) })
}

/// Called when replay reaches the logical time that the launcher was asked to stop at: a debugger
/// breaks here.
#[cfg_attr(not(test), unsafe(no_mangle))]
#[inline(never)]
pub extern "C" fn hindcast_breakpoint() {
    std::hint::black_box(());
}
