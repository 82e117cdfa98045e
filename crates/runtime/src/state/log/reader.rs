//! Reading a thread's log in replay, which may still be growing.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use hindcast_execlog::event::Kind;
use hindcast_execlog::{Event, LogHeader, VERSION};

use super::{Path, take_room};
use crate::state::numbers;
use crate::state::recording::is_given_back;
use crate::{functions, raw, syscall};
use hindcast_execlog::config::descriptors;

/// The reading end of a log: a part of the file, mapped, and a position in it. Positions are bytes
/// behind the header.
///
/// Of a log that is complete the part is all of it. One that grows is looked at through a window
/// that moves forward, and what is complete in it is known up to the last [`Reader::refresh`].
pub struct Reader {
    /// Complete events.
    log: &'static [u8],
    /// The position of the first byte of `log`.
    base: usize,
    /// Atomic because other threads look at how far this one is; only its own moves it.
    offset: AtomicUsize,
    events: AtomicU64,
    /// Where two events begin, of which the later one is not consumed, or was just now. What is
    /// before the earlier is not looked at again.
    passed: [usize; 2],
    /// How many acquisitions of the run of relaxed ones at `offset` were consumed.
    relaxed: u32,
    /// The debugger stops before this event; `u64::MAX`: before none.
    break_at: u64,
    growing: Option<Growing>,
}

/// What is known of a log that somebody writes.
struct Growing {
    header: &'static LogHeader,
    window: Window,
    /// The one before, of which an event may still be in use.
    before: Option<Window>,
    thread: u32,
}

#[derive(Clone, Copy)]
struct Window {
    address: usize,
    length: usize,
}

impl Growing {
    fn committed(&self) -> usize {
        self.header.committed.load(Ordering::Acquire) as usize
    }
}

impl Window {
    const NONE: Window = Window {
        address: 0,
        length: 0,
    };

    /// In its place there are zeros, of no file.
    fn forget(self) {
        if self.length != 0 {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
            // SAFETY: a mapping of this reader's, in which nothing is looked for any more.
            let _ =
                unsafe { raw::map_at(self.address, self.length, libc::PROT_READ, flags, -1, 0) };
        }
    }

    fn unmap(self) {
        // SAFETY: a mapping of this reader's, of which nothing is used any more.
        unsafe { syscall!(libc::SYS_munmap, self.address, self.length) };
    }
}

const PAGE: usize = 4096;
/// Events this far behind the last one are not in use any more.
const IN_USE: usize = 1 << 20;
/// How much of a growing log is mapped, unless one event is longer.
const WINDOW: usize = 64 << 20;

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
    /// Where the count of events is, for a debugger.
    pub const EVENTS: usize = std::mem::offset_of!(Reader, events);

    pub const fn closed() -> Self {
        Reader {
            log: &[],
            base: 0,
            offset: AtomicUsize::new(0),
            events: AtomicU64::new(0),
            passed: [0; 2],
            relaxed: 0,
            break_at: u64::MAX,
            growing: None,
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
        if !header.is_there() {
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

    /// As [`Reader::open`] for a log that grows. `Ok(false)`: it is not there yet.
    pub fn open_growing(&mut self, thread: u32) -> Result<bool, Unreadable> {
        let mapped = with_log(thread, libc::O_RDONLY, |file| {
            let there = length_of(file).is_ok_and(|length| length >= PAGE);
            there.then(|| map_window(file, 0, PAGE, None)).transpose()
        });
        let page = match mapped {
            Err(libc::ENOENT) | Ok(Ok(None)) => return Ok(false),
            Err(code) | Ok(Err(code)) => return Err(Unreadable::Missing(code)),
            Ok(Ok(Some(page))) => page,
        };
        // SAFETY: the page is mapped for ever, and every bit pattern is a header.
        let header = unsafe { &*(page.address as *const LogHeader) };
        if !header.is_there() {
            page.unmap();
            return Ok(false);
        }
        if header.version != VERSION || header.functions != functions::TABLE_HASH {
            return Err(Unreadable::OtherVersion);
        }
        *self = Reader {
            growing: Some(Growing {
                header,
                window: Window::NONE,
                before: None,
                thread,
            }),
            ..Reader::closed()
        };
        self.refresh();
        Ok(true)
    }

    /// Looks at how far a growing log is complete. Whether there is something to consume.
    pub fn refresh(&mut self) -> bool {
        for longer in [false, true] {
            if let Some(committed) = self.growing.as_ref().map(Growing::committed)
                && committed > self.base + self.log.len()
            {
                self.show_up_to(committed);
                if self.peek().is_none() {
                    self.move_window(longer.then_some(LogHeader::BYTES + committed));
                    self.show_up_to(committed);
                }
            }
            if self.peek().is_some() {
                return true;
            }
        }
        false
    }

    fn show_up_to(&mut self, committed: usize) {
        let Some(Growing { window, .. }) = &self.growing else {
            return;
        };
        let begin = LogHeader::BYTES + self.base;
        let first = begin & !(PAGE - 1);
        let end = (LogHeader::BYTES + committed).min(first + window.length);
        // SAFETY: mapped, and in the file: what is complete lies before its end. Bytes of complete
        // events change in one place alone, which `count_of` reads.
        self.log = unsafe {
            std::slice::from_raw_parts(
                (window.address + begin - first) as *const u8,
                end.saturating_sub(begin),
            )
        };
    }

    /// Maps the log from where the reader stands on, to `end` of the file if that is further than a
    /// window reaches.
    #[cold]
    fn move_window(&mut self, end: Option<usize>) {
        let offset = self.offset.load(Ordering::Relaxed);
        let first = (LogHeader::BYTES + offset) & !(PAGE - 1);
        let Some(growing) = &mut self.growing else {
            return;
        };
        let flags = if is_given_back() {
            libc::O_RDWR
        } else {
            libc::O_RDONLY
        };
        let length = end.map_or(WINDOW, |end| (end - first).max(WINDOW));
        let before = &mut growing.before;
        let mapped = with_log(growing.thread, flags, |file| -> Result<Window, i32> {
            let window = map_window(file, first, length, before.take())?;
            if is_given_back() && first > PAGE {
                discard(file, first);
            }
            Ok(window)
        });
        if let Ok(Ok(window)) = mapped {
            growing.before = (growing.window.length != 0).then_some(growing.window);
            growing.window = window;
            self.base = offset;
            self.log = &[];
        }
    }

    /// Whether the thread that writes a growing log has come past this point without a signal: it
    /// has entered another call, or the log goes on.
    pub fn is_passed(&self) -> bool {
        self.growing
            .as_ref()
            .is_none_or(|growing| growing.header.entered.load(Ordering::Acquire) >= self.events())
    }

    /// What a thread that was killed in a call had written behind the last complete event: `length`
    /// bytes after the first `skipped`.
    pub fn behind(&self, skipped: usize, length: usize) -> Option<&'static [u8]> {
        let growing = self.growing.as_ref()?;
        let start = LogHeader::BYTES + growing.committed() + skipped;
        let first = start & !(PAGE - 1);
        let mapped = with_log(growing.thread, libc::O_RDONLY, |file| {
            let in_file = length_of(file).is_ok_and(|end| end >= start + length);
            in_file
                .then(|| map_window(file, first, start + length - first, None).ok())
                .flatten()
        });
        let mapped = mapped.ok()?;
        // SAFETY: mapped for ever, and nobody writes to it any more.
        Some(unsafe {
            std::slice::from_raw_parts((mapped?.address + start - first) as *const u8, length)
        })
    }

    /// Has the debugger stop just before the event of this number.
    pub fn stop_before(&mut self, event: u64) {
        self.break_at = event;
    }

    /// The thread is over: a growing log is not looked at any more. Other threads may look at how
    /// far it was read just now, and find nothing.
    pub fn let_go(&mut self) {
        let Some(growing) = &mut self.growing else {
            return;
        };
        self.log = &[];
        let header = Window {
            address: std::ptr::from_ref(growing.header) as usize,
            length: PAGE,
        };
        let window = std::mem::replace(&mut growing.window, Window::NONE);
        for unused in [Some(header), Some(window), growing.before.take()] {
            unused.into_iter().for_each(Window::forget);
        }
    }

    /// Whether it stops before the next one.
    #[inline]
    pub fn stops_here(&self) -> bool {
        self.events() == self.break_at
    }

    /// What is before this position is not looked at again: an event that was consumed may still
    /// be in use, and others before it.
    pub fn begins(&self) -> u64 {
        self.passed[0] as u64
    }

    /// Events that were consumed.
    pub fn events(&self) -> u64 {
        self.events.load(Ordering::Relaxed)
    }

    /// Where a growing log ends, all of which was consumed: bytes behind the header, and events.
    /// `None` where there is no log.
    pub fn end(&self) -> Option<(usize, u64)> {
        let growing = self.growing.as_ref()?;
        // A run of acquisitions that a log ends with is consumed when something comes behind it.
        let events = self.events() + u64::from(self.relaxed != 0);
        Some((growing.committed(), events))
    }

    /// For other threads, too.
    pub fn is_at_end(&self) -> bool {
        match &self.growing {
            None => self.peek().is_none(),
            Some(growing) => self.offset.load(Ordering::Relaxed) >= growing.committed(),
        }
    }

    /// The next event, without consuming it.
    #[inline]
    pub fn peek(&self) -> Option<Event<'static>> {
        let event = Event::at(self.log, self.offset.load(Ordering::Relaxed) - self.base)?;
        // The run of a growing log is over when something comes behind it.
        if self.relaxed != 0 && count_of(&event).is_some_and(|count| self.relaxed >= count) {
            return Event::at(self.log, event.end);
        }
        Some(event)
    }

    /// Consumes the event that `peek` gave.
    #[inline]
    pub fn advance(&mut self, event: &Event<'static>) {
        let begins = self.base + event.offset;
        if begins - self.passed[1] >= IN_USE {
            self.passed = [self.passed[1], begins];
        }
        let skipped = begins != self.offset.load(Ordering::Relaxed);
        self.offset.store(self.base + event.end, Ordering::Release);
        *self.events.get_mut() += 1 + u64::from(skipped);
        self.relaxed = 0;
        if self.stops_here() {
            self.stop_before_acquisition();
        }
    }

    /// The events from here on.
    pub fn ahead(&self) -> hindcast_execlog::Events<'static> {
        let offset = self.offset.load(Ordering::Relaxed) - self.base;
        hindcast_execlog::Events::from_offset(self.log, offset)
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
    pub fn bytes(&self, position: usize, length: usize) -> Option<&'static [u8]> {
        self.log
            .get(position.checked_sub(self.base)?..)?
            .get(..length)
    }

    /// Consumes one acquisition of a run of relaxed ones, if that is what comes next.
    #[inline]
    pub fn take_relaxed(&mut self) -> bool {
        let Some(event) = self.peek() else {
            return false;
        };
        let Some(count) = count_of(&event) else {
            return false;
        };
        if self.base + event.offset != self.offset.load(Ordering::Relaxed) {
            // The run before is over, and this is the next one.
            self.offset
                .store(self.base + event.offset, Ordering::Release);
            *self.events.get_mut() += 1;
            self.relaxed = 0;
        }
        self.relaxed += 1;
        if self.relaxed >= count && self.growing.is_none() {
            self.advance(&event);
        }
        true
    }
}

/// How many acquisitions a run of relaxed ones has. The one that a log ends with may be growing.
#[inline]
fn count_of(event: &Event<'static>) -> Option<u32> {
    if event.kind != Kind::Relaxed as u16 || event.payload.len() < 4 {
        return None;
    }
    // SAFETY: four bytes of a mapped log, at a multiple of four.
    Some(unsafe { event.payload.as_ptr().cast::<u32>().read_volatile() })
}

/// Gives the room of a growing log behind its header and before `end` back.
fn discard(file: i32, end: usize) {
    let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    // SAFETY: a descriptor and numbers. Where the file system cannot, the log stays.
    unsafe { syscall!(libc::SYS_fallocate, file, mode, PAGE, end - PAGE) };
}

/// Does something with a growing log of this process, while it is open. The process may be another
/// user by now than the one that may look into the recording.
fn with_log<R>(thread: u32, flags: i32, inner: impl FnOnce(i32) -> R) -> Result<R, i32> {
    let path = Path::new(".", format_args!("t{thread}"));
    numbers::alone(|| {
        let file = raw::open_at(descriptors::PROCESS, path.as_c_str(), flags, 0)?;
        let result = inner(file);
        raw::close(file);
        Ok(result)
    })
}

/// Maps a part of a log, in place of a window that is not used any more if that is as long.
fn map_window(
    file: i32,
    first: usize,
    length: usize,
    unused: Option<Window>,
) -> Result<Window, i32> {
    let length = length.next_multiple_of(PAGE);
    let address = match unused {
        Some(unused) if unused.length == length => unused.address,
        unused => {
            if let Some(unused) = unused {
                unused.unmap();
            }
            take_room(length).ok_or(libc::ENOMEM)?
        }
    };
    // SAFETY: room taken just now, or that of a window of which nothing is used. It may reach
    // beyond the end of the file, where nothing is read.
    unsafe {
        raw::map_at(
            address,
            length,
            libc::PROT_READ,
            libc::MAP_SHARED,
            file,
            first,
        )
    }?;
    Ok(Window { address, length })
}

fn length_of(file: i32) -> Result<usize, i32> {
    let mut found = std::mem::MaybeUninit::<libc::stat>::uninit();
    // SAFETY: room for one `stat`.
    let result = unsafe { syscall!(libc::SYS_fstat, file, found.as_mut_ptr()) };
    match raw::error_of(result) {
        Some(code) => Err(code),
        // SAFETY: filled in.
        None => Ok(unsafe { found.assume_init() }.st_size as usize),
    }
}

fn map(file: i32) -> Result<&'static [u8], i32> {
    let length = length_of(file)?;
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
