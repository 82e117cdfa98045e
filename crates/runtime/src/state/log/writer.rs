//! Writing a thread's log.
//!
//! The file is mapped through a window that moves forward; the header page stays mapped beside it.
//! An event is written with [`Writer::begin`], any number of [`Writer::put`], and
//! [`Writer::finish`], which makes it visible.

use std::sync::atomic::Ordering;

use hindcast_execlog::LogHeader;
use hindcast_execlog::event::{self, Kind};
use hindcast_execlog::reference::BEHIND_MOST;

use super::{Path, WRITER_BYTES, WRITERS, take_room};
use crate::state::recording;
use crate::{functions, raw, syscall};
use hindcast_execlog::config::descriptors;

const PAGE: usize = 4096;
/// A thread that says little costs little.
const FIRST_WINDOW: usize = 64 << 10;
const WINDOW: usize = 2 << 20;
/// From this size on memory is written to the file instead of through the window: a page of a
/// mapped file costs a fault and a note in the file system's journal, some microseconds for each.
/// The event needs a long header.
pub const WRITTEN_FROM: usize = 2 * PAGE;

/// The writing end of a log. All positions are bytes from the start of the file.
pub struct Writer {
    header: *mut LogHeader,
    /// Address of the byte of the file that the window begins with.
    window: *mut u8,
    /// The part of the file that is mapped.
    window_start: usize,
    window_end: usize,
    /// Up to where the file has pages in the kernel's memory; none are made when that is unknown,
    /// and `usize::MAX`.
    written: usize,
    /// Where the event that is being written begins, and where its next byte goes.
    event_start: usize,
    cursor: usize,
    /// The position of the count of the last event when that is a run of relaxed acquisitions,
    /// else 0.
    relaxed: usize,
    events: u64,
    thread: u32,
    /// The event that is being written has a long header, so nothing of it has to be moved later.
    long: bool,
    /// The descriptor at which the log stays open.
    kept: Option<i32>,
    /// Told the error number when the log cannot grow.
    full: fn(i32),
}

impl Writer {
    pub const fn closed() -> Self {
        Writer {
            header: std::ptr::null_mut(),
            window: std::ptr::null_mut(),
            window_start: 0,
            window_end: 0,
            written: usize::MAX,
            event_start: 0,
            cursor: 0,
            relaxed: 0,
            events: 0,
            thread: 0,
            long: false,
            kept: None,
            full: |_| {},
        }
    }

    /// Creates the log of a thread in the folder of this process. `full` is told the error number
    /// when it cannot grow any more.
    pub fn create(&mut self, thread: u32, full: fn(i32)) -> Result<(), i32> {
        *self = Writer {
            thread,
            full,
            ..Writer::closed()
        };
        let file = self.open(libc::O_CREAT | libc::O_TRUNC)?;
        let room = WRITERS + thread as usize * WRITER_BYTES;
        let mapped = grow(file, PAGE).and_then(|()| {
            // SAFETY: this thread number's room.
            unsafe { raw::map_file(room, PAGE, libc::MAP_SHARED, file, 0) }
        });
        self.keep(file);
        self.header = mapped?.cast();
        // SAFETY: a page was mapped there.
        unsafe { LogHeader::new(thread, functions::TABLE_HASH).write_to(self.header) };
        self.event_start = LogHeader::BYTES;
        self.cursor = LogHeader::BYTES;
        self.map(FIRST_WINDOW)?;
        self.written = self.window_end;
        Ok(())
    }

    /// Opens the log of a thread that another process has written, to go on behind its end: bytes
    /// behind the header, and events.
    pub fn resume(
        &mut self,
        thread: u32,
        (position, events): (usize, u64),
        full: fn(i32),
    ) -> Result<(), i32> {
        *self = Writer {
            thread,
            full,
            events,
            event_start: LogHeader::BYTES + position,
            cursor: LogHeader::BYTES + position,
            ..Writer::closed()
        };
        let file = self.open(0)?;
        let room = WRITERS + thread as usize * WRITER_BYTES;
        // SAFETY: this thread number's room.
        let mapped = unsafe { raw::map_file(room, PAGE, libc::MAP_SHARED, file, 0) };
        self.keep(file);
        self.header = mapped?.cast();
        self.map(FIRST_WINDOW)
    }

    /// Keeps the log open at the number that is set aside for this thread, if there is one below
    /// the program's limit.
    fn keep(&mut self, file: i32) {
        let number = i32::try_from(self.thread).map_or(descriptors::END, |thread| {
            descriptors::LOGS.saturating_add(thread)
        });
        if number < descriptors::END {
            // SAFETY: descriptors of ours.
            let result = unsafe { syscall!(libc::SYS_dup3, file, number, libc::O_CLOEXEC) };
            self.kept = raw::error_of(result).is_none().then_some(number);
        }
        raw::close(file);
    }

    /// Does something with the open log.
    fn with_file<R>(&self, inner: impl FnOnce(i32) -> Result<R, i32>) -> Result<R, i32> {
        if let Some(kept) = self.kept {
            return inner(kept);
        }
        let file = self.open(0)?;
        let result = inner(file);
        raw::close(file);
        result
    }

    fn open(&self, flags: i32) -> Result<i32, i32> {
        let path = Path::new(".", format_args!("t{}", self.thread));
        raw::open_at(
            descriptors::PROCESS,
            path.as_c_str(),
            libc::O_RDWR | flags,
            0o600,
        )
    }

    pub fn events(&self) -> u64 {
        self.events
    }

    /// The thread has ended: cuts the file to what is in it, and forgets it. What is written
    /// afterwards goes nowhere.
    pub fn close(&mut self) {
        if self.header.is_null() {
            return;
        }
        let length = self.committed();
        let _ = self.with_file(|file| {
            // SAFETY: a descriptor and numbers.
            let result = unsafe { syscall!(libc::SYS_ftruncate, file, length) };
            raw::error_of(result).map_or(Ok(()), Err)
        });
        if let Some(kept) = self.kept {
            raw::close(kept);
        }
        // SAFETY: both mappings are this writer's own, and it forgets them.
        unsafe {
            syscall!(
                libc::SYS_munmap,
                self.window,
                self.window_end - self.window_start
            );
            syscall!(libc::SYS_munmap, self.header, PAGE);
        }
        *self = Writer {
            events: self.events,
            thread: self.thread,
            ..Writer::closed()
        };
    }

    /// Moves the window so that it begins in the page of the event being written and has at least
    /// `bytes` from there on.
    fn map(&mut self, bytes: usize) -> Result<(), i32> {
        let start = self.event_start & !(PAGE - 1);
        let length = bytes.next_multiple_of(PAGE);
        let mapped = self.with_file(|file| {
            grow(file, start + length)?;
            clear(file, self.written.max(self.cursor), start + length)?;
            let in_room = length <= WRITER_BYTES - (1 << 20);
            let address = if in_room {
                WRITERS + self.thread as usize * WRITER_BYTES + (1 << 20)
            } else {
                take_room(length).ok_or(libc::ENOMEM)?
            };
            // SAFETY: this thread number's room, or room taken just now. An old window there is
            // replaced.
            unsafe { raw::map_file(address, length, libc::MAP_SHARED, file, start) }
        });
        let mapped = mapped?;
        let old = (self.window as usize, self.window_end - self.window_start);
        let replaced = mapped as usize..mapped as usize + length;
        if old.0 != 0 && !replaced.contains(&old.0) {
            // SAFETY: the old window, which nothing refers to any more.
            unsafe { syscall!(libc::SYS_munmap, old.0, old.1) };
        } else if old.0 != 0 && old.0 + old.1 > replaced.end {
            // SAFETY: the rest of an old window that was larger.
            unsafe { syscall!(libc::SYS_munmap, replaced.end, old.0 + old.1 - replaced.end) };
        }
        self.window = mapped;
        self.window_start = start;
        self.window_end = start + length;
        if self.written != usize::MAX {
            self.written = self.window_end;
        }
        if self.relaxed < start {
            self.relaxed = 0;
        }
        Ok(())
    }

    /// Makes room for `bytes` at the cursor. False when the log cannot grow: recording has ended
    /// then.
    #[cold]
    fn make_room(&mut self, bytes: usize) -> bool {
        let needed = self.cursor - self.event_start + bytes + PAGE;
        let mapped = if recording::is_for_nobody() {
            Err(libc::ECANCELED)
        } else {
            self.map(needed.max(WINDOW))
        };
        match mapped {
            Ok(()) => true,
            Err(code) => {
                (self.full)(code);
                false
            }
        }
    }

    #[inline(always)]
    fn ensure(&mut self, bytes: usize) -> bool {
        self.cursor + bytes <= self.window_end || self.make_room(bytes)
    }

    #[inline(always)]
    fn at(&self, position: usize) -> *mut u8 {
        debug_assert!(position >= self.window_start && position <= self.window_end);
        self.window.wrapping_add(position - self.window_start)
    }

    /// Begins an event whose payload may become longer than a short header can say.
    #[inline(always)]
    pub fn begin(&mut self, long: bool) -> bool {
        if self.header.is_null() {
            return false;
        }
        self.event_start = self.committed();
        self.cursor = self.event_start;
        self.long = long;
        let header = if long { 8 } else { 4 };
        if !self.ensure(header + 64) {
            return false;
        }
        self.cursor += header;
        true
    }

    #[inline(always)]
    fn committed(&self) -> usize {
        // SAFETY: the header page is mapped while the log is open.
        LogHeader::BYTES + unsafe { (*self.header).committed.load(Ordering::Relaxed) } as usize
    }

    #[inline(always)]
    pub fn put(&mut self, bytes: &[u8]) -> bool {
        // SAFETY: a slice is readable for its length.
        unsafe { self.put_memory(bytes.as_ptr(), bytes.len()) }
    }

    /// Appends memory of the program to the event.
    ///
    /// # Safety
    /// `length` bytes must be readable.
    #[inline(always)]
    pub unsafe fn put_memory(&mut self, bytes: *const u8, length: usize) -> bool {
        if length >= WRITTEN_FROM && self.long {
            // SAFETY: the caller's promise.
            return unsafe { self.write_memory(bytes, length) };
        }
        if !self.ensure(length) {
            return false;
        }
        // SAFETY: `ensure` made room; the log and the program's memory do not overlap.
        unsafe { std::ptr::copy_nonoverlapping(bytes, self.at(self.cursor), length) };
        self.cursor += length;
        true
    }

    /// Room for `length` bytes behind what was put, where somebody else may write.
    pub fn room(&mut self, length: usize) -> Option<*mut u8> {
        self.ensure(length).then(|| self.at(self.cursor))
    }

    /// Bytes that are there already belong to the event.
    pub fn skip(&mut self, length: usize) -> bool {
        let there = self.ensure(length);
        self.cursor += length;
        there
    }

    /// Whether an event may refer to so many bytes of a file, and notes that it does. Not where the
    /// follower that reads them is far behind.
    #[inline(always)]
    pub fn refers(&mut self, bytes: usize) -> bool {
        if self.header.is_null() {
            return false;
        }
        // SAFETY: the header page is mapped while the log is open.
        let header = unsafe { &*self.header };
        let referred = header.referred.load(Ordering::Relaxed) + bytes as u64;
        if referred.saturating_sub(header.read.load(Ordering::Relaxed)) > BEHIND_MOST {
            return false;
        }
        header.referred.store(referred, Ordering::Relaxed);
        true
    }

    /// In a recording that is followed: the thread enters a call.
    #[inline]
    pub fn enters(&self) {
        if !self.header.is_null() {
            // SAFETY: the header page is mapped while the log is open.
            unsafe { (*self.header).entered.store(self.events, Ordering::Release) };
        }
    }

    /// As [`Writer::put_memory`], past the window.
    ///
    /// # Safety
    /// As there.
    #[cold]
    unsafe fn write_memory(&mut self, bytes: *const u8, length: usize) -> bool {
        let mut done = 0;
        let written = self.with_file(|file| {
            while done < length {
                // SAFETY: the caller's promise.
                let result = unsafe {
                    syscall!(
                        libc::SYS_pwrite64,
                        file,
                        bytes.add(done),
                        length - done,
                        self.cursor + done
                    )
                };
                match raw::error_of(result) {
                    None => done += result as usize,
                    Some(libc::EINTR) => {}
                    Some(code) => return Err(code),
                }
            }
            Ok(())
        });
        match written {
            Ok(()) => {
                self.cursor += length;
                true
            }
            Err(code) => {
                (self.full)(code);
                false
            }
        }
    }

    /// Completes the event and makes it visible.
    #[inline(always)]
    pub fn finish(&mut self, kind: u16, flags: u8, long: bool) {
        let header = if long { 8 } else { 4 };
        let payload = self.cursor - self.event_start - header;
        if !long && payload >= event::LONG as usize {
            return self.finish_long_after_all(kind, flags, payload);
        }
        let short = if long { event::LONG } else { payload as u16 };
        // SAFETY: the window covers the event.
        unsafe {
            self.at(self.event_start)
                .cast::<u32>()
                .write_unaligned(event::header(kind, flags, short));
            if long {
                self.at(self.event_start + 4)
                    .cast::<u32>()
                    .write_unaligned(payload as u32);
            }
        }
        self.commit(header + event::padded(payload));
        self.relaxed = 0;
    }

    /// A short header was begun and the payload became long: moves it by the four bytes of the long
    /// one.
    #[cold]
    fn finish_long_after_all(&mut self, kind: u16, flags: u8, payload: usize) {
        if !self.ensure(4) {
            return;
        }
        // SAFETY: the window covers the event and four bytes more.
        unsafe {
            std::ptr::copy(
                self.at(self.event_start + 4),
                self.at(self.event_start + 8),
                payload,
            )
        };
        self.cursor += 4;
        self.finish(kind, flags, true);
    }

    #[inline(always)]
    fn commit(&mut self, bytes: usize) {
        let committed = self.event_start + bytes - LogHeader::BYTES;
        // SAFETY: as `committed`.
        unsafe {
            (*self.header)
                .committed
                .store(committed as u64, Ordering::Release)
        };
        self.events += 1;
    }

    /// Where the next byte of the event that is being written goes, in bytes behind the log's
    /// header.
    pub fn position(&self) -> usize {
        self.cursor - LogHeader::BYTES
    }

    /// A whole event at once.
    pub fn append(&mut self, kind: Kind, parts: &[&[u8]]) {
        if self.header.is_null() {
            return;
        }
        let long = parts.iter().map(|part| part.len()).sum::<usize>() >= event::LONG as usize;
        if self.begin(long) && parts.iter().all(|part| self.put(part)) {
            self.finish(kind as u16, 0, long);
        }
    }

    /// One more acquisition that waited for nobody.
    #[inline(always)]
    pub fn bump_relaxed(&mut self) {
        if !self.bump_relaxed_in_place() {
            self.begin_relaxed();
        }
    }

    /// As [`Writer::bump_relaxed`] if that only raises the count of the last event. False: nothing
    /// was done.
    #[inline(always)]
    pub fn bump_relaxed_in_place(&mut self) -> bool {
        if self.relaxed == 0 {
            return false;
        }
        let count = self.at(self.relaxed).cast::<u32>();
        // SAFETY: `relaxed` is the position of a complete event's count inside the window. Every
        // eventual reader reads the file after this process is gone, or sees the count
        // either way.
        unsafe {
            let raised = count.read().wrapping_add(1);
            if raised == 0 {
                return false;
            }
            count.write(raised);
        }
        true
    }

    #[cold]
    fn begin_relaxed(&mut self) {
        if self.header.is_null() || !self.begin(false) {
            return;
        }
        let count = self.cursor;
        if self.put(&1u32.to_ne_bytes()) {
            self.finish(Kind::Relaxed as u16, 0, false);
            self.relaxed = count;
        }
    }
}

/// Writes zeros to a part of a file that has none yet. A page of a mapped file that the kernel has
/// in its memory already costs a quarter of one that it must find room for when it is touched.
fn clear(file: i32, from: usize, to: usize) -> Result<(), i32> {
    static ZEROS: [u8; 64 << 10] = [0; 64 << 10];
    let mut from = from;
    while from < to {
        let length = ZEROS.len().min(to - from);
        // SAFETY: a descriptor, and that many bytes.
        let result = unsafe { syscall!(libc::SYS_pwrite64, file, ZEROS.as_ptr(), length, from) };
        match raw::error_of(result) {
            None => from += result as usize,
            Some(libc::EINTR) => {}
            Some(code) => return Err(code),
        }
    }
    Ok(())
}

/// Makes a file at least this long. Allocated now, so that a full disk is an error here and not a
/// SIGBUS later.
pub fn grow(file: i32, length: usize) -> Result<(), i32> {
    // SAFETY: a descriptor and numbers.
    let result = unsafe { syscall!(libc::SYS_fallocate, file, 0, 0, length) };
    match raw::error_of(result) {
        None => Ok(()),
        Some(libc::EOPNOTSUPP) => {
            // SAFETY: as above.
            let result = unsafe { syscall!(libc::SYS_ftruncate, file, length) };
            raw::error_of(result).map_or(Ok(()), Err)
        }
        Some(code) => Err(code),
    }
}
