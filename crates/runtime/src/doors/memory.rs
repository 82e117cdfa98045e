//! Memory that the program maps. Both runs map it, at the same addresses; what came from a file is
//! in the log.

use std::sync::Mutex;

use hindcast_execlog::config::FileId;
use hindcast_execlog::event::Kind;

use crate::mechanism::divergence::{self, Actual};
use crate::mechanism::{files, instructions, log};
use crate::state::log::{Path, take_room};
use crate::state::mode::{Mode, leads, mode};
use crate::state::recording;
use crate::state::thread::Current;
use crate::{probe, raw, syscall};

/// Payload of a [`Kind::Mapping`] event:
/// `i64` result │ `u64` where in this log the bytes are, or [`HERE`] │ `u64` bytes │ the bytes.
/// Of a file with holes: `i64` result │ [`PARTS`] │ `u64` parts │ the [`Part`]s │ the bytes of all.
const HERE: u64 = u64::MAX;
const PARTS: u64 = u64::MAX - 1;

/// So many parts of a file are told apart; what lies between the last ones is logged with them.
const PARTS_MAX: usize = 128;

/// What lies between two holes of a file: its place in the mapping, and its length.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Part {
    start: u64,
    length: u64,
}

/// What a mapping has of its file. Everything else in it is zero.
struct Contents {
    /// [`Part`]s as bytes; empty where there is one from the beginning on.
    parts: &'static [u8],
    bytes: &'static [u8],
}

impl Contents {
    /// # Safety
    /// `room` bytes can be written, and are zero.
    unsafe fn copy_to(&self, target: *mut u8, room: usize) {
        let whole = Part {
            start: 0,
            length: self.bytes.len() as u64,
        };
        let parts = self.parts.chunks_exact(size_of::<Part>());
        // SAFETY: plain data of that size.
        let parts = parts.map(|part| unsafe { part.as_ptr().cast::<Part>().read_unaligned() });
        let mut bytes = self.bytes;
        for Part { start, length } in parts.chain(self.parts.is_empty().then_some(whole)) {
            let (start, length) = (start as usize, length as usize);
            let Some((these, rest)) = bytes.split_at_checked(length) else {
                return;
            };
            bytes = rest;
            let fitting = length.min(room.saturating_sub(start));
            // SAFETY: inside the room, by the caller's promise.
            unsafe {
                std::ptr::copy_nonoverlapping(these.as_ptr(), target.wrapping_add(start), fitting)
            };
        }
    }
}

/// The system calls of this module, for the trap. `None`: not one of them.
pub fn by_number(thread: &mut Current, number: i64, arguments: [usize; 6]) -> Option<isize> {
    match number {
        libc::SYS_mmap => Some(map(thread, arguments)),
        libc::SYS_mremap => Some(remap(thread, arguments)),
        _ => None,
    }
}

fn map(thread: &mut Current, arguments: [usize; 6]) -> isize {
    let [_, _, protection, flags, ..] = arguments;
    let from_file = flags as i32 & libc::MAP_ANONYMOUS == 0;
    if from_file && protection as i32 & libc::PROT_EXEC != 0 {
        instructions::loads_code(thread);
    }
    if mode() == Mode::Replay
        && let Some(result) = map_again(thread, arguments, from_file)
    {
        return result;
    }
    match mode() {
        Mode::Record => record_map(thread, arguments, from_file),
        // SAFETY: the program's own call.
        _ => unsafe { unlogged(libc::SYS_mmap, arguments) },
    }
}

fn record_map(thread: &mut Current, arguments: [usize; 6], from_file: bool) -> isize {
    let [address, length, protection, flags, descriptor, offset] = arguments;
    // SAFETY: the program's own call.
    let result = unsafe {
        raw::syscall6(
            libc::SYS_mmap,
            address,
            length,
            protection,
            flags,
            descriptor,
            offset,
        )
    };
    if from_file && raw::error_of(result).is_none() {
        warn_if_shared(flags, protection);
        log_file(thread, result, descriptor as i32, offset, length);
        let private = flags as i32 & libc::MAP_SHARED == 0;
        if private && protection as i32 & libc::PROT_EXEC != 0 {
            take_over_code(
                thread,
                result,
                descriptor as i32,
                offset,
                length,
                protection,
            );
        }
    } else {
        log_empty(thread, result);
    }
    result
}

/// `None`: the log says nothing of it.
fn map_again(thread: &mut Current, arguments: [usize; 6], from_file: bool) -> Option<isize> {
    let [_, length, protection, flags, ..] = arguments;
    let (result, contents) = next_mapping(thread, "mmap")?;
    if raw::error_of(result).is_some() {
        return Some(result);
    }
    let fixed = if flags as i32 & libc::MAP_FIXED != 0 {
        libc::MAP_FIXED
    } else {
        libc::MAP_FIXED_NOREPLACE
    };
    let kept = flags as i32
        & !(libc::MAP_SHARED_VALIDATE
            | libc::MAP_SYNC
            | libc::MAP_FIXED
            | libc::MAP_FIXED_NOREPLACE
            | libc::MAP_32BIT);
    let (share, protection_first) = if from_file {
        (
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            libc::PROT_READ | libc::PROT_WRITE,
        )
    } else {
        (
            flags as i32 & (libc::MAP_SHARED | libc::MAP_PRIVATE),
            protection as i32,
        )
    };
    // SAFETY: where the recorded run had it. What the program put under a fixed address it wants to
    // be replaced.
    let mapped = unsafe {
        syscall!(
            libc::SYS_mmap,
            result,
            length,
            protection_first,
            kept | share | fixed,
            -1isize,
            0
        )
    };
    if mapped != result {
        divergence::unusable(
            format_args!(
                "memory at {result:#x} ({length} bytes) is not free here as it was when recorded (error {})",
                -mapped
            ),
            "Replay on the same kernel and libraries as recorded, without a larger stack limit or other preloaded libraries.",
        );
    }
    if from_file {
        // SAFETY: mapped just now, and not written to.
        unsafe {
            contents.copy_to(result as *mut u8, length);
            syscall!(libc::SYS_mprotect, result, length, protection);
        }
        if protection as i32 & libc::PROT_EXEC != 0 {
            instructions::replace_as_recorded(thread);
        }
    }
    Some(result)
}

/// A part of a file was mapped as code. What is looked for needs the whole of the file.
fn take_over_code(
    thread: &mut Current,
    mapped: isize,
    descriptor: i32,
    offset: usize,
    length: usize,
    protection: usize,
) {
    let Some(found) = regular_file(descriptor) else {
        return;
    };
    let size = found.st_size as usize;
    let Some(file) = map_contents(descriptor, 0, size) else {
        return;
    };
    // SAFETY: as much of the mapping as the file has.
    let code = unsafe {
        let length = length.min(size.saturating_sub(offset));
        std::slice::from_raw_parts(mapped as *const u8, length)
    };
    instructions::mapped(thread, file, offset, code, protection);
    // SAFETY: mapped for this.
    unsafe { syscall!(libc::SYS_munmap, file.as_ptr(), size) };
}

/// Memory got another protection. In both runs; code that was written before may run from now on.
pub fn protected(thread: &mut Current, address: usize, length: usize, protection: usize) {
    let fixed = libc::PROT_READ | libc::PROT_EXEC;
    if protection as i32 & (fixed | libc::PROT_WRITE) != fixed {
        return;
    }
    match mode() {
        Mode::Record if probe::readable(address as *const u8, length) => {
            // SAFETY: it can be read.
            let code = unsafe { std::slice::from_raw_parts(address as *const u8, length) };
            instructions::made(thread, code, protection);
        }
        Mode::Replay => instructions::replace_as_recorded(thread),
        _ => {}
    }
}

fn warn_if_shared(flags: usize, protection: usize) {
    if flags as i32 & libc::MAP_SHARED != 0 && protection as i32 & libc::PROT_WRITE != 0 {
        recording::warn(format_args!(
            "the program shares writable memory through a file: what others write there is not recorded"
        ));
    }
}

fn remap(thread: &mut Current, arguments: [usize; 6]) -> isize {
    let [address, old_length, new_length, flags, target, _] = arguments;
    let told = match mode() {
        Mode::Replay => next_mapping(thread, "mremap"),
        _ => None,
    };
    if mode() == Mode::Record {
        // SAFETY: the program's own call.
        let result = unsafe {
            raw::syscall6(
                libc::SYS_mremap,
                address,
                old_length,
                new_length,
                flags,
                target,
                0,
            )
        };
        log_empty(thread, result);
        return result;
    }
    let Some((result, _)) = told else {
        // SAFETY: the program's own call.
        return unsafe { unlogged(libc::SYS_mremap, arguments) };
    };
    if raw::error_of(result).is_some() {
        return result;
    }
    let moved = if result as usize == address {
        flags as i32
    } else {
        flags as i32 | libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED
    };
    // SAFETY: where the recorded run had it.
    unsafe {
        syscall!(
            libc::SYS_mremap,
            address,
            old_length,
            new_length,
            moved,
            result
        )
    }
}

/// A call that the log says nothing of, or nothing that makes sense.
unsafe fn unlogged(number: i64, arguments: [usize; 6]) -> isize {
    if mode() == Mode::Replay {
        return -(libc::ENOMEM as isize);
    }
    let [a, b, c, d, e, f] = arguments;
    // SAFETY: the caller's promise.
    unsafe { raw::syscall6(number, a, b, c, d, e, f) }
}

/// A mapping without contents.
fn log_empty(thread: &mut Current, result: isize) {
    log_mapping(thread, result, HERE, 0, false);
    thread.writer.finish(Kind::Mapping as u16, 0, false);
}

/// Begins a mapping event.
fn log_mapping(thread: &mut Current, result: isize, place: u64, bytes: u64, long: bool) -> bool {
    let writer = &mut thread.writer;
    writer.begin(long)
        && writer.put(&(result as i64).to_ne_bytes())
        && writer.put(&place.to_ne_bytes())
        && writer.put(&bytes.to_ne_bytes())
}

/// The result and the contents that the next event has.
fn next_mapping(thread: &mut Current, what: &'static str) -> Option<(isize, Contents)> {
    let event = log::expect_event(thread, Kind::Mapping as u16)?;
    if event.kind != Kind::Mapping as u16 {
        divergence::diverged(thread, Some(event), Actual::Step(what));
    }
    let word = |index: usize| {
        event
            .payload
            .get(index * 8..)?
            .first_chunk::<8>()
            .map(|word| u64::from_ne_bytes(*word))
    };
    let (result, place, bytes) = (word(0)?, word(1)?, word(2)? as usize);
    let behind = event.payload.get(24..)?;
    let (parts, bytes) = match place {
        HERE => (&[][..], behind.get(..bytes)?),
        PARTS => behind.split_at_checked(bytes.checked_mul(size_of::<Part>())?)?,
        place => (&[][..], thread.reader.bytes(place as usize, bytes)?),
    };
    let contents = Contents { parts, bytes };
    thread.reader.advance(&event);
    Some((result as isize, contents))
}

/// A part of a file that is in this thread's log already. A loader maps the whole of a library,
/// then each segment over it.
#[derive(Clone, Copy)]
struct Known {
    thread: u32,
    file: FileId,
    changed: (i64, i64),
    offset: usize,
    length: usize,
    place: u64,
}

impl Known {
    /// What this part lies in and was logged before. A follower has forgotten what lies far back.
    fn known_as(&self) -> Option<Known> {
        let contains = |known: &&Known| {
            !leads()
                && known.thread == self.thread
                && known.file == self.file
                && known.changed == self.changed
                && known.offset <= self.offset
                && self.offset + self.length <= known.offset + known.length
        };
        let all = KNOWN
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        all.0.iter().flatten().find(contains).copied()
    }
}

const KNOWN_MAX: usize = 64;
static KNOWN: Mutex<([Option<Known>; KNOWN_MAX], usize)> = Mutex::new(([None; KNOWN_MAX], 0));

fn log_file(thread: &mut Current, result: isize, descriptor: i32, offset: usize, length: usize) {
    let Some(found) = regular_file(descriptor) else {
        if files::kind(descriptor) == files::Kind::Other {
            recording::warn(format_args!(
                "a device is mapped into memory: what it holds is not recorded"
            ));
        }
        log_empty(thread, result);
        return;
    };
    let wanted = length.min((found.st_size as usize).saturating_sub(offset));
    let (file, changed) = (
        FileId {
            device: found.st_dev,
            inode: found.st_ino,
        },
        (found.st_mtime, found.st_mtime_nsec),
    );
    let wanted_part = Known {
        thread: thread.number,
        file,
        changed,
        offset,
        length: wanted,
        place: 0,
    };
    let known = wanted_part.known_as();
    if let Some(known) = known {
        log_mapping(
            thread,
            result,
            known.place + (offset - known.offset) as u64,
            wanted as u64,
            false,
        );
        thread.writer.finish(Kind::Mapping as u16, 0, false);
        return;
    }
    let long = wanted > 0x7000;
    let contents = (wanted > 0)
        .then(|| map_contents(descriptor, offset, wanted))
        .flatten();
    let Some(contents) = contents else {
        log_empty(thread, result);
        return;
    };
    if is_sparse(&found) && log_parts(thread, result, descriptor, offset, contents) {
        // What is known of a file is one piece.
    } else if log_mapping(thread, result, HERE, wanted as u64, long) {
        let place = thread.writer.position() as u64;
        if thread.writer.put(contents) {
            thread.writer.finish(Kind::Mapping as u16, 0, long);
            let mut known = KNOWN
                .lock()
                .unwrap_or_else(|poisoned| poisoned.into_inner());
            let next = known.1;
            known.0[next % KNOWN_MAX] = Some(Known {
                place,
                ..wanted_part
            });
            known.1 = next + 1;
        }
    }
    // SAFETY: mapped for this.
    unsafe { syscall!(libc::SYS_munmap, contents.as_ptr(), wanted) };
}

/// Whether the file has holes.
fn is_sparse(found: &libc::stat) -> bool {
    const BLOCK: i64 = 512;
    found.st_blocks.saturating_mul(BLOCK) < found.st_size
}

/// Logs what lies between the holes of a file. `false`: where they are cannot be told.
fn log_parts(
    thread: &mut Current,
    result: isize,
    descriptor: i32,
    offset: usize,
    contents: &[u8],
) -> bool {
    let mut parts = [Part::default(); PARTS_MAX];
    let Some(count) = find_parts(descriptor, offset, contents.len(), &mut parts) else {
        return false;
    };
    let parts = &parts[..count];
    let bytes: u64 = parts.iter().map(|part| part.length).sum();
    let long = bytes > 0x7000;
    // SAFETY: plain data.
    let table = unsafe {
        std::slice::from_raw_parts(parts.as_ptr().cast::<u8>(), std::mem::size_of_val(parts))
    };
    let pieces = parts
        .iter()
        .map(|part| &contents[part.start as usize..(part.start + part.length) as usize]);
    if log_mapping(thread, result, PARTS, count as u64, long)
        && thread.writer.put(table)
        && pieces.into_iter().all(|piece| thread.writer.put(piece))
    {
        thread.writer.finish(Kind::Mapping as u16, 0, long);
    }
    true
}

/// The parts between the holes of a file, from `offset` on. Asked of a file that is opened for
/// this: the program's stands where it stands.
fn find_parts(
    descriptor: i32,
    offset: usize,
    length: usize,
    parts: &mut [Part; PARTS_MAX],
) -> Option<usize> {
    let path = Path::new("/proc/self/fd", format_args!("{descriptor}"));
    let file = raw::open_at(libc::AT_FDCWD, path.as_c_str(), libc::O_RDONLY, 0).ok()?;
    let end = offset + length;
    let seek = |from: usize, what: i32| {
        // SAFETY: numbers only.
        let found = unsafe { syscall!(libc::SYS_lseek, file, from, what) };
        match raw::error_of(found) {
            None => Some((found as usize).min(end)),
            // Nothing but a hole behind it.
            Some(libc::ENXIO) => Some(end),
            Some(_) => None,
        }
    };
    let mut at = offset;
    let mut count = 0;
    let told = loop {
        let Some(start) = seek(at, libc::SEEK_DATA) else {
            break false;
        };
        if start >= end {
            break true;
        }
        let Some(behind) = seek(start, libc::SEEK_HOLE) else {
            break false;
        };
        let last = count == PARTS_MAX - 1;
        let behind = if last { end } else { behind };
        parts[count] = Part {
            start: (start - offset) as u64,
            length: (behind - start) as u64,
        };
        (at, count) = (behind, count + 1);
    };
    raw::close(file);
    told.then_some(count)
}

fn regular_file(descriptor: i32) -> Option<libc::stat> {
    let mut found = std::mem::MaybeUninit::<libc::stat>::uninit();
    // SAFETY: room for one `stat`.
    let status = unsafe { syscall!(libc::SYS_fstat, descriptor, found.as_mut_ptr()) };
    // SAFETY: filled in if that succeeded.
    let found = raw::error_of(status)
        .is_none()
        .then(|| unsafe { found.assume_init() });
    found.filter(|found| found.st_mode & libc::S_IFMT == libc::S_IFREG)
}

/// A second, readable view of what the program mapped: its own may not be readable.
fn map_contents(descriptor: i32, offset: usize, length: usize) -> Option<&'static [u8]> {
    let address = take_room(length)?;
    // SAFETY: room taken just now.
    let mapped = unsafe {
        raw::map_at(
            address,
            length,
            libc::PROT_READ,
            libc::MAP_PRIVATE,
            descriptor,
            offset,
        )
    }
    .ok()?;
    // SAFETY: stays mapped until the caller removes it.
    Some(unsafe { std::slice::from_raw_parts(mapped, length) })
}
