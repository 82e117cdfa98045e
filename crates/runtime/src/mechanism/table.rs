//! The leader's table of descriptors, and how a follower gets it.
//!
//! A process of our own shares the table with the leader (`CLONE_FILES`). It does nothing; but
//! when the leader is killed the table is still there, with every file, socket and connection as
//! the leader left it: numbers, flags, offsets, what lies in buffers. The follower that goes on
//! asks for all of it over a socket.
//!
//! While the leader runs, this process makes no descriptor: that would be one of the leader's.

use hindcast_execlog::config::{addresses, descriptors};

use super::{files, messages};
use crate::state::recording;
use crate::{raw, syscall};

/// What comes with each descriptor. The last message has the number -1, and the end of the socket
/// that the process which holds a leader's table has: the follower may lead in its turn.
#[repr(C)]
#[derive(Clone, Copy)]
struct Entry {
    number: i32,
    flags: i32,
}

impl Entry {
    fn as_bytes(&mut self) -> &mut [u8] {
        // SAFETY: two integers, for which every bit pattern is a value.
        unsafe { std::slice::from_raw_parts_mut((&raw mut *self).cast(), size_of::<Entry>()) }
    }
}

const ASK: u8 = b'?';

/// In a leader, before the program opens anything or while it waits: makes the process that holds
/// the table. That of an image before this one has another table, and ends.
pub fn hold() {
    let Some(board) = recording::board().filter(|_| recording::is_first_process()) else {
        return;
    };
    let before = board.table.load(std::sync::atomic::Ordering::Acquire);
    // A sibling of the leader: not a child that the program could wait for.
    let flags = libc::CLONE_FILES | libc::CLONE_PARENT;
    // SAFETY: as a fork; the child makes system calls only.
    let pid = unsafe { syscall!(libc::SYS_clone, flags, 0, 0, 0, 0) };
    if pid == 0 {
        serve();
    }
    if before != 0 {
        // SAFETY: numbers only. It was made by an earlier image of this process.
        unsafe { syscall!(libc::SYS_kill, before, libc::SIGKILL) };
    }
    if pid > 0 {
        board
            .table
            .store(pid as u32, std::sync::atomic::Ordering::Release);
    } else {
        recording::warn(format_args!(
            "no process can be made that holds the descriptors: a follower cannot take over"
        ));
    }
}

fn serve() -> ! {
    // SAFETY: settings of this process. It ends with the launcher, and signals are for others. It
    // has a group of its own, not the terminal's; a session of its own would be a group of its own
    // for the kernel's scheduler, too (autogroup), and those are made to wait for seconds where
    // others are busy: clients would, with what is to go on.
    unsafe {
        syscall!(libc::SYS_prctl, libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        syscall!(
            libc::SYS_prctl,
            libc::PR_SET_NAME,
            c"hindcast-table".as_ptr()
        );
        syscall!(libc::SYS_setpgid, 0, 0);
    }
    crate::mechanism::signals::kernel::set_mask(u64::MAX);
    forget_memory();
    let mut asked = 0u8;
    // SAFETY: room for one byte.
    let received = unsafe { syscall!(libc::SYS_read, descriptors::TABLE, &raw mut asked, 1) };
    if received == 1 && asked == ASK {
        give_all();
    }
    raw::exit_process(0)
}

/// Gives back the blocks of the program: as long as they are shared with it, each page that the
/// program writes to would be there twice.
fn forget_memory() {
    let blocks = addresses::HEAPS..addresses::SYSTEM_HEAP_END;
    // SAFETY: this process uses none of them. What is not mapped in between is passed over.
    unsafe {
        syscall!(
            libc::SYS_madvise,
            blocks.start,
            blocks.len(),
            libc::MADV_DONTNEED
        )
    };
}

/// Sends every descriptor of the program's that there is.
fn give_all() {
    let folder = raw::open_at(libc::AT_FDCWD, c"/proc/self/fd", libc::O_DIRECTORY, 0);
    let Ok(folder) = folder else {
        return;
    };
    let mut buffer = [0u64; 1024];
    loop {
        // SAFETY: the kernel writes at most as much as there is room for.
        let read = unsafe {
            syscall!(
                libc::SYS_getdents64,
                folder,
                buffer.as_mut_ptr(),
                size_of_val(&buffer)
            )
        };
        if read <= 0 {
            break;
        }
        let mut at = 0;
        while at < read as usize {
            // SAFETY: entries as the kernel has formed them, each with its length.
            let (length, name) = unsafe {
                let entry = buffer.as_ptr().cast::<u8>().add(at);
                let length = entry.add(16).cast::<u16>().read_unaligned();
                (length, std::ffi::CStr::from_ptr(entry.add(19).cast()))
            };
            at += usize::from(length);
            let number = name.to_str().ok().and_then(|name| name.parse::<i32>().ok());
            if let Some(number) = number
                && number != folder
                && !files::is_protected(number)
            {
                give(number);
            }
        }
    }
    raw::close(folder);
    let last = Entry {
        number: -1,
        flags: 0,
    };
    send(last, descriptors::TABLE);
}

fn give(number: i32) {
    // SAFETY: numbers only.
    let flags = unsafe { syscall!(libc::SYS_fcntl, number, libc::F_GETFD) };
    if raw::error_of(flags).is_none() {
        let entry = Entry {
            number,
            flags: flags as i32,
        };
        send(entry, number);
    }
}

fn send(mut entry: Entry, descriptor: i32) {
    messages::send(descriptors::TABLE, entry.as_bytes(), descriptor, 0);
}

/// The next descriptor, and what it is to become.
fn receive() -> Result<(Entry, i32), &'static str> {
    let mut entry = Entry {
        number: -1,
        flags: 0,
    };
    let (received, descriptor) = messages::receive(descriptors::TABLE, entry.as_bytes());
    match (received, descriptor) {
        (false, _) => Err("the process that held them is gone"),
        (true, Some(descriptor)) => Ok((entry, descriptor)),
        (true, None) => Err("there is no room for more open files"),
    }
}

/// In a follower that goes on: makes the leader's descriptors its own. What was opened by a call
/// that no log tells is shown to `unknown`. Afterwards [`descriptors::TABLE`] is what it is in a
/// leader.
pub fn take_over(unknown: impl FnMut(i32)) -> Result<(), &'static str> {
    files::allowing(u64::MAX, || take_each(unknown))
}

fn take_each(mut unknown: impl FnMut(i32)) -> Result<(), &'static str> {
    let ask = ASK;
    // SAFETY: one byte of this function.
    let asked = unsafe { syscall!(libc::SYS_write, descriptors::TABLE, &raw const ask, 1) };
    if asked != 1 {
        return Err("the process that held them is gone");
    }
    loop {
        let (entry, descriptor) = receive()?;
        if entry.number < 0 {
            files::put_at(descriptor, descriptors::TABLE, libc::O_CLOEXEC);
            raw::close(descriptor);
            return Ok(());
        }
        let flags = if entry.flags & libc::FD_CLOEXEC != 0 {
            libc::O_CLOEXEC
        } else {
            0
        };
        if descriptor == entry.number {
            // SAFETY: numbers only.
            unsafe { syscall!(libc::SYS_fcntl, descriptor, libc::F_SETFD, entry.flags) };
        } else {
            // SAFETY: in this process the number was nothing but a number until now.
            let result = unsafe { syscall!(libc::SYS_dup3, descriptor, entry.number, flags) };
            raw::close(descriptor);
            if raw::error_of(result).is_some() {
                return Err("the limit on open files is lower than the leader's");
            }
        }
        unknown(entry.number);
    }
}
