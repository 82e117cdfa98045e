//! Sockets: lengths that the kernel updates, and messages with descriptors in them.

use std::ptr;

use super::system_call::SystemCall;
use super::transfers::echo_vector;
use crate::mechanism::call::Call;
use crate::mechanism::files::{self, Kind};
use crate::mechanism::flows;
use crate::mechanism::references;
use crate::probe;

pub unsafe fn socketpair(running: &mut Call, call: SystemCall) -> isize {
    let [domain, kind, protocol, ends, ..] = call.arguments;
    for value in [domain, kind, protocol] {
        running.input(value as u64);
    }
    // SAFETY: the program's own call.
    let result = running.run_kernel(|_| unsafe { call.run() });
    if result == 0 {
        // SAFETY: two numbers that the kernel has written.
        unsafe {
            running.out_value(ends as *mut [i32; 2]);
            let [one, other] = *(ends as *const [i32; 2]);
            running.opened_internal(one, other);
        }
    }
    result
}

/// An address (or option) of which the kernel tells the true length, which may be more than there
/// was room for.
struct Updated {
    memory: *mut u8,
    size: *mut u32,
    /// The length before the call.
    room: u32,
}

impl Updated {
    unsafe fn new(memory: usize, size: usize) -> Self {
        let (memory, size) = (memory as *mut u8, size as *mut u32);
        // SAFETY: the program's own length, which counts only with memory for it, and only where it
        // can be read.
        match !memory.is_null() && probe::readable(size.cast(), 4) {
            true => Updated {
                memory,
                size,
                room: unsafe { *size },
            },
            false => Updated {
                memory: ptr::null_mut(),
                size,
                room: 0,
            },
        }
    }

    /// What there is of it after the call.
    unsafe fn found(&self) -> (*const u8, usize) {
        match self.memory.is_null() || self.size.is_null() {
            true => (ptr::null(), 0),
            // SAFETY: the kernel has written the length, or replay has.
            false => (self.memory, unsafe { *self.size }.min(self.room) as usize),
        }
    }

    /// After the call succeeded.
    unsafe fn out(&self, running: &mut Call) {
        if self.memory.is_null() || self.size.is_null() {
            return;
        }
        // SAFETY: the kernel has written the length, and as much as there was room for.
        unsafe {
            running.out_value(self.size);
            running.out(self.memory, (*self.size).min(self.room) as usize);
        }
    }
}

/// `accept` and `accept4`.
pub unsafe fn accept(running: &mut Call, call: SystemCall) -> isize {
    let [fd, address, size, flags, ..] = call.arguments;
    running.input(fd as u64);
    if call.number == libc::SYS_accept4 {
        running.input(flags as u64);
    }
    // SAFETY: the program's own call.
    unsafe {
        let address = Updated::new(address, size);
        let result = running.run_kernel(|thread| call.run_blocking(thread));
        if result >= 0 {
            address.out(running);
            running.accepted(result as i32, address.found());
        }
        result
    }
}

/// `getsockname` and `getpeername`.
pub unsafe fn name(running: &mut Call, call: SystemCall) -> isize {
    let [fd, address, size, ..] = call.arguments;
    running.input(fd as u64);
    // SAFETY: the program's own call.
    unsafe {
        let address = Updated::new(address, size);
        let result = running.run_kernel(|_| call.run());
        if result == 0 {
            address.out(running);
        }
        result
    }
}

pub unsafe fn getsockopt(running: &mut Call, call: SystemCall) -> isize {
    let [fd, level, option, value, size, _] = call.arguments;
    for value in [fd, level, option] {
        running.input(value as u64);
    }
    // SAFETY: the program's own call.
    unsafe {
        let value = Updated::new(value, size);
        let result = running.run_kernel(|_| call.run());
        if result == 0 {
            value.out(running);
        }
        result
    }
}

pub unsafe fn recvfrom(running: &mut Call, call: SystemCall) -> isize {
    let [fd, buffer, length, flags, address, size] = call.arguments;
    for value in [fd, length, flags] {
        running.input(value as u64);
    }
    if let Some(key) = files::sync_key(fd as i32) {
        running.sync_after(key);
    }
    // SAFETY: the program's own call.
    unsafe {
        if flags as i32 & !libc::MSG_DONTWAIT & !libc::MSG_NOSIGNAL == 0
            && address == 0
            && files::is_followed_connection(fd as i32)
        {
            return running.run_receiving(
                fd as i32,
                buffer as *mut u8,
                length,
                |thread, to, most| {
                    thread.blocking6(call.number, [fd, to as usize, most, flags, 0, 0])
                },
            );
        }
        let address = Updated::new(address, size);
        let result = running.run_kernel(|thread| call.run_blocking(thread));
        if result >= 0 {
            // With MSG_TRUNC the result is the length of the datagram, however much of it fitted.
            running.out(buffer as *mut u8, (result as usize).min(length));
            address.out(running);
        }
        result
    }
}

/// What goes in with a message: where to, and its bytes. Control data has padding and is not
/// compared.
unsafe fn input_message(running: &mut Call, message: *const libc::msghdr) {
    if !probe::readable(message.cast(), size_of::<libc::msghdr>()) {
        return;
    }
    // SAFETY: the program's own message.
    unsafe {
        let message = &*message;
        running.input(message.msg_iovlen as u64);
        running.input(message.msg_controllen as u64);
        if message.msg_controllen != 0 {
            // Another process may be given descriptors with it.
            references::forget_all();
        }
        running.input_bytes(
            message.msg_name.cast(),
            (message.msg_namelen as usize).min(8),
        );
        if message.msg_iovlen <= libc::UIO_MAXIOV as usize {
            running.input_iovec(message.msg_iov, message.msg_iovlen);
        }
    }
}

pub unsafe fn sendmsg(running: &mut Call, call: SystemCall) -> isize {
    let [fd, message, flags, ..] = call.arguments;
    let message = message as *const libc::msghdr;
    running.input(fd as u64);
    running.input(flags as u64);
    // SAFETY: the program's own call.
    unsafe {
        input_message(running, message);
        if let Some(key) = files::sync_key(fd as i32) {
            running.sync_before(key);
        }
        let result = running.run_kernel(|thread| call.run_blocking(thread));
        if result > 0 {
            echo_vector(running, fd as i32, (*message).msg_iov, result);
        }
        result
    }
}

pub unsafe fn sendmmsg(running: &mut Call, call: SystemCall) -> isize {
    let [fd, messages, count, flags, ..] = call.arguments;
    let messages = messages as *mut libc::mmsghdr;
    for value in [fd, count, flags] {
        running.input(value as u64);
    }
    // SAFETY: the program's own call.
    unsafe {
        for index in 0..count.min(libc::UIO_MAXIOV as usize) {
            input_message(running, &raw const (*messages.add(index)).msg_hdr);
        }
        if let Some(key) = files::sync_key(fd as i32) {
            running.sync_before(key);
        }
        let result = running.run_kernel(|thread| call.run_blocking(thread));
        for index in 0..usize::try_from(result).unwrap_or(0) {
            let message = &mut *messages.add(index);
            running.out_value(&raw mut message.msg_len);
            echo_vector(
                running,
                fd as i32,
                message.msg_hdr.msg_iov,
                message.msg_len as isize,
            );
        }
        result
    }
}

/// The room that a message offered before the kernel wrote true lengths over it.
#[derive(Clone, Copy)]
struct Room {
    name: u32,
    control: usize,
}

unsafe fn room(message: *const libc::msghdr) -> Room {
    if !probe::readable(message.cast(), size_of::<libc::msghdr>()) {
        return Room {
            name: 0,
            control: 0,
        };
    }
    // SAFETY: the program's own message.
    unsafe {
        Room {
            name: (*message).msg_namelen,
            control: (*message).msg_controllen,
        }
    }
}

/// What a received message wrote: lengths first, then what they measure. Descriptors that came with
/// it are noted.
unsafe fn out_message(running: &mut Call, message: *mut libc::msghdr, room: Room, total: usize) {
    // SAFETY: the program's own message, filled in by the kernel.
    unsafe {
        let message = &mut *message;
        running.out_value(&raw mut message.msg_namelen);
        running.out_value(&raw mut message.msg_controllen);
        running.out_value(&raw mut message.msg_flags);
        running.out(
            message.msg_name.cast(),
            message.msg_namelen.min(room.name) as usize,
        );
        running.out(
            message.msg_control.cast(),
            message.msg_controllen.min(room.control),
        );
        running.out_iovec(message.msg_iov, message.msg_iovlen, total);
        note_descriptors(message);
    }
}

unsafe fn note_descriptors(message: &libc::msghdr) {
    // SAFETY: control data that the kernel has formed.
    unsafe {
        let mut control = libc::CMSG_FIRSTHDR(message);
        while !control.is_null() {
            if (*control).cmsg_level == libc::SOL_SOCKET && (*control).cmsg_type == libc::SCM_RIGHTS
            {
                let bytes =
                    ((*control).cmsg_len as usize).saturating_sub(libc::CMSG_LEN(0) as usize);
                for index in 0..bytes / 4 {
                    let number = libc::CMSG_DATA(control).cast::<i32>().add(index);
                    files::opened(number.read_unaligned(), Kind::Other);
                    flows::inherited(number.read_unaligned());
                }
            }
            control = libc::CMSG_NXTHDR(message, control);
        }
    }
}

pub unsafe fn recvmsg(running: &mut Call, call: SystemCall) -> isize {
    let [fd, message, flags, ..] = call.arguments;
    let message = message as *mut libc::msghdr;
    running.input(fd as u64);
    running.input(flags as u64);
    if let Some(key) = files::sync_key(fd as i32) {
        running.sync_after(key);
    }
    // SAFETY: the program's own call.
    unsafe {
        let room = room(message);
        let result = running.run_kernel(|thread| call.run_blocking(thread));
        if let Ok(total) = usize::try_from(result) {
            out_message(running, message, room, total);
        }
        result
    }
}

pub unsafe fn recvmmsg(running: &mut Call, call: SystemCall) -> isize {
    let [fd, messages, count, flags, timeout, _] = call.arguments;
    let messages = messages as *mut libc::mmsghdr;
    for value in [fd, count, flags] {
        running.input(value as u64);
    }
    if let Some(key) = files::sync_key(fd as i32) {
        running.sync_after(key);
    }
    let mut rooms = [Room {
        name: 0,
        control: 0,
    }; libc::UIO_MAXIOV as usize];
    // SAFETY: the program's own call.
    unsafe {
        for (index, found) in rooms.iter_mut().enumerate().take(count) {
            *found = room(&raw const (*messages.add(index)).msg_hdr);
        }
        let result = running.run_kernel(|thread| call.run_blocking(thread));
        if result >= 0 {
            running.out_value(timeout as *mut libc::timespec);
        }
        for (index, room) in rooms
            .iter()
            .enumerate()
            .take(usize::try_from(result).unwrap_or(0))
        {
            let message = &mut *messages.add(index);
            running.out_value(&raw mut message.msg_len);
            let total = message.msg_len as usize;
            out_message(running, &raw mut message.msg_hdr, *room, total);
        }
        result
    }
}
