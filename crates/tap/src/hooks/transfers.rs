//! Functions that carry bytes.
//!
//! What is read has the moment when it was there, what is written the moment before: so whatever
//! was read because of it is later.

use hindcast_taplog::{Direction, Told};
use libc::{
    c_int, c_uint, c_void, iovec, loff_t, mmsghdr, msghdr, off_t, size_t, sockaddr, socklen_t,
    ssize_t, timespec,
};

use super::reserved;
use crate::descriptors::Entry;
use crate::real::real;
use crate::turns::Begins;
use crate::{descriptors, pins, process, thread, turns};

/// Parts of a message that are looked at; more than the kernel takes.
const PARTS_MAX: usize = 1024;

/// `length` bytes of a stream were read; none where there was room: it has ended. Returns what the
/// caller is to be told: that it has ended, too, if another worker is at what was read.
unsafe fn was_read(descriptor: c_int, parts: &[iovec], done: ssize_t) -> ssize_t {
    let Ok(length) = usize::try_from(done) else {
        return done;
    };
    let Some(stream) = descriptors::stream(descriptor) else {
        return done;
    };
    let entry = descriptors::entry(descriptor);
    if entry.is_some_and(Entry::is_gated) {
        return done;
    }
    let entry = entry.filter(|entry| entry.is_accepted());
    // SAFETY: what was read is in the parts, in order.
    let begins =
        entry.and_then(|entry| unsafe { turns::was_read(descriptor, entry, first(parts, length)) });
    let turn = match begins {
        Some(Begins::Elsewhere) => return 0,
        Some(Begins::Here(number)) => Some(number),
        None => None,
    };
    let at = process::now();
    let direction = Direction::In;
    thread::tell(length as u64, at, |ring| match length {
        0 if parts.iter().any(|part| part.iov_len > 0) => {
            ring.tell(&Told::Ended { stream, direction }, at);
        }
        _ => {
            if let Some(request) = turn {
                ring.tell(&Told::Turn { stream, request }, at);
            }
            // SAFETY: as above.
            ring.tell_bytes(stream, direction, unsafe { places(parts) }, length, at);
        }
    });
    done
}

/// A write to a descriptor that is about to be made; `None` if nobody wants to know. `parts`: what
/// of, or nothing if that cannot be seen.
unsafe fn about_to_write(descriptor: c_int, parts: &[iovec]) -> Option<Write> {
    let stream = descriptors::stream(descriptor)?;
    let mut turn = None;
    if let Some(entry) = descriptors::entry(descriptor) {
        match entry.is_accepted() {
            // SAFETY: what is to be written is in the parts.
            true => turns::writes(entry, unsafe { first(parts, usize::MAX) }),
            false => turns::put_on_board(entry),
        }
        if entry.is_gated() {
            return None;
        }
        if entry.is_database() {
            turn = Some(turns::of(entry)).filter(|&turn| turn != 0);
        }
    }
    let at = process::now();
    Some(Write { stream, at, turn })
}

/// A write that is being made.
#[derive(Clone, Copy)]
struct Write {
    stream: u64,
    at: u64,
    /// Whose turn it is, if it goes to the database.
    turn: Option<u64>,
}

/// The first bytes of so many that are in the parts.
///
/// # Safety
/// Each part's memory may be read.
unsafe fn first(parts: &[iovec], length: usize) -> &[u8] {
    // SAFETY: as the caller promises.
    let part = unsafe { places(parts) }.next().unwrap_or_default();
    part.get(..length).unwrap_or(part)
}

unsafe fn was_written(begun: Option<Write>, parts: &[iovec], length: ssize_t) {
    let (Some(Write { stream, at, turn }), Ok(length)) = (begun, usize::try_from(length)) else {
        return;
    };
    thread::tell(length as u64, at, |ring| {
        if let Some(request) = turn {
            ring.tell(&Told::Turn { stream, request }, at);
        }
        // SAFETY: what was written is in the parts, in order.
        ring.tell_bytes(stream, Direction::Out, unsafe { places(parts) }, length, at);
    });
}

fn went_unseen(stream: Option<u64>, direction: Direction, length: ssize_t) {
    let (Some(stream), Ok(length)) = (stream, u64::try_from(length)) else {
        return;
    };
    let told = Told::Unseen {
        stream,
        direction,
        length,
    };
    let at = process::now();
    thread::tell(length, at, |ring| ring.tell(&told, at));
}

/// # Safety
/// Each part's memory may be read.
unsafe fn places(parts: &[iovec]) -> impl Iterator<Item = &[u8]> {
    let full = parts.iter().filter(|part| part.iov_len > 0);
    // SAFETY: as the caller promises.
    full.map(|part| unsafe { std::slice::from_raw_parts(part.iov_base.cast(), part.iov_len) })
}

fn part(bytes: *const c_void, length: size_t) -> [iovec; 1] {
    [iovec {
        iov_base: bytes.cast_mut(),
        iov_len: length,
    }]
}

unsafe fn parts<'a>(parts: *const iovec, count: usize) -> &'a [iovec] {
    match parts.is_null() || count > PARTS_MAX {
        true => &[],
        // SAFETY: the caller of libc gave as many.
        false => unsafe { std::slice::from_raw_parts(parts, count) },
    }
}

/// Bytes that are looked at and stay, or are none of the stream's.
fn stays(flags: c_int) -> bool {
    flags & (libc::MSG_PEEK | libc::MSG_ERRQUEUE | libc::MSG_OOB) != 0
}

/// Whether the bytes were drawn for the request that the thread works on.
unsafe fn draws(descriptor: c_int, bytes: *mut c_void, length: size_t) -> bool {
    // SAFETY: what the caller gave.
    turns::current() != 0
        && descriptors::is_random(descriptor)
        && unsafe { pins::draw(bytes.cast(), length) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn read(descriptor: c_int, bytes: *mut c_void, length: size_t) -> ssize_t {
    if descriptor == turns::RESERVED {
        // SAFETY: what the caller gave.
        return unsafe { reserved::answer(turns::last_read(), bytes, length) };
    }
    // SAFETY: what the caller gave.
    unsafe {
        if draws(descriptor, bytes, length) {
            return length as ssize_t;
        }
        let done = real!(fn read(c_int, *mut c_void, size_t) -> ssize_t)(descriptor, bytes, length);
        was_read(descriptor, &part(bytes, length), done)
    }
}

/// As compiled programs call it that were built with `_FORTIFY_SOURCE`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __read_chk(
    descriptor: c_int,
    bytes: *mut c_void,
    length: size_t,
    room: size_t,
) -> ssize_t {
    // SAFETY: what the caller gave.
    unsafe {
        if length <= room && draws(descriptor, bytes, length) {
            return length as ssize_t;
        }
        let done = real!(fn __read_chk(c_int, *mut c_void, size_t, size_t) -> ssize_t)(
            descriptor, bytes, length, room,
        );
        was_read(descriptor, &part(bytes, length), done)
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn readv(descriptor: c_int, to: *const iovec, count: c_int) -> ssize_t {
    // SAFETY: what the caller gave.
    unsafe {
        let done = real!(fn readv(c_int, *const iovec, c_int) -> ssize_t)(descriptor, to, count);
        was_read(descriptor, parts(to, count.max(0) as usize), done)
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn recv(
    socket: c_int,
    bytes: *mut c_void,
    length: size_t,
    flags: c_int,
) -> ssize_t {
    // SAFETY: what the caller gave.
    unsafe {
        let done = real!(fn recv(c_int, *mut c_void, size_t, c_int) -> ssize_t)(
            socket, bytes, length, flags,
        );
        match stays(flags) {
            true => done,
            false => was_read(socket, &part(bytes, length), done),
        }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn __recv_chk(
    socket: c_int,
    bytes: *mut c_void,
    length: size_t,
    room: size_t,
    flags: c_int,
) -> ssize_t {
    // SAFETY: what the caller gave.
    unsafe {
        let done = real!(fn __recv_chk(c_int, *mut c_void, size_t, size_t, c_int) -> ssize_t)(
            socket, bytes, length, room, flags,
        );
        match stays(flags) {
            true => done,
            false => was_read(socket, &part(bytes, length), done),
        }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn recvfrom(
    socket: c_int,
    bytes: *mut c_void,
    length: size_t,
    flags: c_int,
    address: *mut sockaddr,
    address_length: *mut socklen_t,
) -> ssize_t {
    // SAFETY: what the caller gave.
    unsafe {
        let done = real!(
            fn recvfrom(c_int, *mut c_void, size_t, c_int, *mut sockaddr, *mut socklen_t) -> ssize_t
        )(socket, bytes, length, flags, address, address_length);
        match stays(flags) {
            true => done,
            false => was_read(socket, &part(bytes, length), done),
        }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn __recvfrom_chk(
    socket: c_int,
    bytes: *mut c_void,
    length: size_t,
    room: size_t,
    flags: c_int,
    address: *mut sockaddr,
    address_length: *mut socklen_t,
) -> ssize_t {
    // SAFETY: what the caller gave.
    unsafe {
        let done = real!(
            fn __recvfrom_chk(c_int, *mut c_void, size_t, size_t, c_int, *mut sockaddr, *mut socklen_t) -> ssize_t
        )(socket, bytes, length, room, flags, address, address_length);
        match stays(flags) {
            true => done,
            false => was_read(socket, &part(bytes, length), done),
        }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn recvmsg(socket: c_int, message: *mut msghdr, flags: c_int) -> ssize_t {
    // SAFETY: what the caller gave; where it succeeded the message is filled in.
    unsafe {
        let done = real!(fn recvmsg(c_int, *mut msghdr, c_int) -> ssize_t)(socket, message, flags);
        match done {
            0.. => was_received(socket, &*message, flags, done),
            _ => done,
        }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn recvmmsg(
    socket: c_int,
    messages: *mut mmsghdr,
    count: c_uint,
    flags: c_int,
    patience: *mut timespec,
) -> c_int {
    // SAFETY: what the caller gave; so many messages as it says are filled in.
    unsafe {
        let done = real!(fn recvmmsg(c_int, *mut mmsghdr, c_uint, c_int, *mut timespec) -> c_int)(
            socket, messages, count, flags, patience,
        );
        for at in 0..done.max(0) as usize {
            let message = &*messages.add(at);
            was_received(socket, &message.msg_hdr, flags, message.msg_len as ssize_t);
        }
        done
    }
}

unsafe fn was_received(socket: c_int, message: &msghdr, flags: c_int, done: ssize_t) -> ssize_t {
    // SAFETY: libc has filled in the message.
    unsafe {
        if process::is_enabled() {
            forget_passed(message);
        }
        match stays(flags) {
            true => done,
            false => was_read(socket, parts(message.msg_iov, message.msg_iovlen), done),
        }
    }
}

/// Descriptors that came with a message are new.
unsafe fn forget_passed(message: &msghdr) {
    if message.msg_control.is_null() {
        return;
    }
    // SAFETY: libc has filled in the message; the macros stay within its length.
    unsafe {
        let mut head = libc::CMSG_FIRSTHDR(message);
        while !head.is_null() {
            if (*head).cmsg_level == libc::SOL_SOCKET && (*head).cmsg_type == libc::SCM_RIGHTS {
                let length = (*head).cmsg_len as usize;
                let count = length.saturating_sub(libc::CMSG_LEN(0) as usize) / size_of::<c_int>();
                let passed = libc::CMSG_DATA(head).cast::<c_int>();
                for at in 0..count {
                    descriptors::forget(passed.add(at).read_unaligned());
                }
            }
            head = libc::CMSG_NXTHDR(message, head);
        }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn write(descriptor: c_int, bytes: *const c_void, length: size_t) -> ssize_t {
    if descriptor == turns::RESERVED {
        // SAFETY: what the caller gave.
        return unsafe { reserved::told(bytes, length, turns::set) };
    }
    // SAFETY: what the caller gave.
    unsafe {
        let begun = about_to_write(descriptor, &part(bytes, length));
        let done =
            real!(fn write(c_int, *const c_void, size_t) -> ssize_t)(descriptor, bytes, length);
        was_written(begun, &part(bytes, length), done);
        done
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn writev(descriptor: c_int, from: *const iovec, count: c_int) -> ssize_t {
    // SAFETY: what the caller gave.
    unsafe {
        let begun = about_to_write(descriptor, parts(from, count.max(0) as usize));
        let done = real!(fn writev(c_int, *const iovec, c_int) -> ssize_t)(descriptor, from, count);
        was_written(begun, parts(from, count.max(0) as usize), done);
        done
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn send(
    socket: c_int,
    bytes: *const c_void,
    length: size_t,
    flags: c_int,
) -> ssize_t {
    // SAFETY: what the caller gave.
    unsafe {
        let begun = about_to_write(socket, &part(bytes, length));
        let done = real!(fn send(c_int, *const c_void, size_t, c_int) -> ssize_t)(
            socket, bytes, length, flags,
        );
        if !stays(flags) {
            was_written(begun, &part(bytes, length), done);
        }
        done
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendto(
    socket: c_int,
    bytes: *const c_void,
    length: size_t,
    flags: c_int,
    address: *const sockaddr,
    address_length: socklen_t,
) -> ssize_t {
    // SAFETY: what the caller gave.
    unsafe {
        let begun = about_to_write(socket, &part(bytes, length));
        let done = real!(
            fn sendto(c_int, *const c_void, size_t, c_int, *const sockaddr, socklen_t) -> ssize_t
        )(socket, bytes, length, flags, address, address_length);
        if !stays(flags) {
            was_written(begun, &part(bytes, length), done);
        }
        done
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendmsg(socket: c_int, message: *const msghdr, flags: c_int) -> ssize_t {
    // SAFETY: what the caller gave: a message, or null, which libc refuses.
    unsafe {
        let of = message
            .as_ref()
            .map(|message| parts(message.msg_iov, message.msg_iovlen));
        let begun = about_to_write(socket, of.unwrap_or_default());
        let done =
            real!(fn sendmsg(c_int, *const msghdr, c_int) -> ssize_t)(socket, message, flags);
        if done >= 0 && !stays(flags) {
            let of = parts((*message).msg_iov, (*message).msg_iovlen);
            was_written(begun, of, done);
        }
        done
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendmmsg(
    socket: c_int,
    messages: *mut mmsghdr,
    count: c_uint,
    flags: c_int,
) -> c_int {
    // SAFETY: what the caller gave; so many messages as it says were sent.
    unsafe {
        let begun = about_to_write(socket, &[]);
        let done = real!(fn sendmmsg(c_int, *mut mmsghdr, c_uint, c_int) -> c_int)(
            socket, messages, count, flags,
        );
        for at in 0..done.max(0) as usize {
            let message = &*messages.add(at);
            let of = parts(message.msg_hdr.msg_iov, message.msg_hdr.msg_iovlen);
            was_written(begun, of, message.msg_len as ssize_t);
        }
        done
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendfile(
    to: c_int,
    from: c_int,
    offset: *mut off_t,
    count: size_t,
) -> ssize_t {
    // SAFETY: there are no parts.
    let stream = unsafe { about_to_write(to, &[]) }.map(|write| write.stream);
    // SAFETY: what the caller gave.
    let done = unsafe {
        real!(fn sendfile(c_int, c_int, *mut off_t, size_t) -> ssize_t)(to, from, offset, count)
    };
    went_unseen(stream, Direction::Out, done);
    done
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendfile64(
    to: c_int,
    from: c_int,
    offset: *mut off_t,
    count: size_t,
) -> ssize_t {
    // SAFETY: there are no parts.
    let stream = unsafe { about_to_write(to, &[]) }.map(|write| write.stream);
    // SAFETY: what the caller gave.
    let done = unsafe {
        real!(fn sendfile64(c_int, c_int, *mut off_t, size_t) -> ssize_t)(to, from, offset, count)
    };
    went_unseen(stream, Direction::Out, done);
    done
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn splice(
    from: c_int,
    from_offset: *mut loff_t,
    to: c_int,
    to_offset: *mut loff_t,
    length: size_t,
    flags: c_uint,
) -> ssize_t {
    let source = descriptors::stream(from);
    // SAFETY: there are no parts.
    let target = unsafe { about_to_write(to, &[]) }.map(|write| write.stream);
    // SAFETY: what the caller gave.
    let done = unsafe {
        real!(fn splice(c_int, *mut loff_t, c_int, *mut loff_t, size_t, c_uint) -> ssize_t)(
            from,
            from_offset,
            to,
            to_offset,
            length,
            flags,
        )
    };
    went_unseen(source, Direction::In, done);
    went_unseen(target, Direction::Out, done);
    done
}
