//! Functions that carry bytes.
//!
//! What is read has the moment when it was there, what is written the moment before: so whatever
//! was read because of it is later.

use hindcast_taplog::Direction;
use libc::{
    c_int, c_uint, c_void, iovec, loff_t, mmsghdr, msghdr, off_t, size_t, sockaddr, socklen_t,
    ssize_t, timespec,
};

use super::reserved;
use crate::carried::{Write, about_to_write, part, parts, was_read, was_written, went_unseen};
use crate::real::real;
use crate::{descriptors, java, pins, process, starts, turns};

/// Bytes that are looked at and stay, or are none of the stream's.
fn stays(flags: c_int) -> bool {
    flags & (libc::MSG_PEEK | libc::MSG_ERRQUEUE | libc::MSG_OOB) != 0
}

/// Whether the bytes were drawn for the request that the thread works on, or for the thread.
unsafe fn draws(descriptor: c_int, bytes: *mut c_void, length: size_t) -> bool {
    // SAFETY: what the caller gave.
    (turns::of_code() != 0 || starts::are_pinned())
        && descriptors::is_random(descriptor)
        && !java::is_pinned()
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
        return unsafe { reserved::told_of_thread(bytes, length) };
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
    let stream = unsafe { about_to_write(to, &[]) }.map(Write::stream);
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
    let stream = unsafe { about_to_write(to, &[]) }.map(Write::stream);
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
    let target = unsafe { about_to_write(to, &[]) }.map(Write::stream);
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
