//! A call of a program that is followed, or that follows: what a leader leaves so that another can
//! go on in the middle of it, and how that one does.

use hindcast_execlog::event::ResultClass;

use super::{Call, fold};
use crate::functions;
use crate::mechanism::{appended, elsewhere, flows, signals};
use crate::raw;
use crate::state::mode::{Mode, elsewhere, follows, leads, mode};
use crate::state::thread::Thread;

/// Most that one call receives into the log.
const RECEIVED_AT_ONCE: usize = 64 << 10;
/// What lies before that: a long header, the check, the result.
const RECEIVED_BEFORE: usize = 16;

impl Call<'_> {
    /// Whether a follower makes this call as well, which succeeded: it is about nothing but the
    /// process itself, and should it go on it is to be what its leader was.
    #[inline]
    pub(super) fn is_followed_in(&self) -> bool {
        follows()
            && match self.function {
                functions::CHDIR
                | functions::CHROOT
                | functions::UMASK
                | functions::SETUID
                | functions::SETGID
                | functions::SETREUID
                | functions::SETREGID
                | functions::SETRESUID
                | functions::SETRESGID
                | functions::SETEUID
                | functions::SETEGID
                | functions::SETGROUPS
                | functions::SETRLIMIT => true,
                functions::PRLIMIT => self.inputs[0] == 0,
                function => {
                    let inputs = &self.inputs[..self.inputs_used as usize];
                    elsewhere() && elsewhere::runs_along(function, inputs)
                }
            }
    }

    /// Makes here what the call has opened in a leader on another machine.
    #[cold]
    pub(super) fn make_along(&self) {
        let inputs = &self.inputs[..self.inputs_used as usize];
        let [one, other] = self.opened;
        if other >= 0 && other != one {
            return elsewhere::make_pair(self.function, inputs, self.opened);
        }
        elsewhere::make(self.function, inputs, self.path, one);
        appended::opened(one, self.appends_from);
        let (peer, length) = self.peer;
        if length != 0 {
            // SAFETY: the promise of `accepted`.
            unsafe { elsewhere::accepted_from(one, peer, length) };
        }
    }

    /// The call has opened a file with these flags: where that ends is in the log of one that is
    /// followed, if it is to be appended to.
    pub fn opened_with(&mut self, flags: i32) {
        if flags & libc::O_APPEND == 0 {
            return;
        }
        const LENGTH: usize = size_of::<u64>();
        let is_told = match self.recording {
            true => leads(),
            false => self.outs.len() == LENGTH,
        };
        if is_told {
            let mut end = match self.recording {
                true => appended::end_of(self.opened[0]),
                false => appended::UNKNOWN,
            };
            // SAFETY: a value of ours.
            unsafe { self.out_value(&raw mut end) };
            self.appends_from = end;
        }
    }

    /// The call that the log says nothing of, for the leader was lost in it.
    #[cold]
    pub(super) fn run_in_place_of_the_leader(
        &mut self,
        mut real: impl FnMut(&Thread) -> isize,
    ) -> isize {
        self.goes_on();
        let inputs = &self.inputs[..self.inputs_used as usize];
        let result = flows::done(self.function, inputs).unwrap_or_else(|| {
            let mut result = real(&self.thread);
            while result == -(libc::EINTR as isize)
                && mode() == Mode::Record
                && signals::deliver_and_restart(&mut self.thread)
            {
                result = real(&self.thread);
            }
            flows::as_the_first_time(self.function, result)
        });
        self.log_result(raw::error_of(result).map_or(Ok(result as i64), Err));
        result
    }

    /// From here on this is the call of a process that is recorded in its leader's place, or of one
    /// that is not recorded, whose log is closed.
    pub(super) fn goes_on(&mut self) {
        self.recording = true;
        self.dead = mode() != Mode::Record;
    }

    /// As [`Call::run_kernel`] for a call that receives from a connection into one buffer, which is
    /// written to the log as [`Call::out`] would. Where the recording is followed the bytes are
    /// received into the log itself: they are there when the leader is killed in the call.
    ///
    /// # Safety
    /// `memory` has room for `length` bytes.
    pub unsafe fn run_receiving(
        &mut self,
        descriptor: i32,
        memory: *mut u8,
        length: usize,
        mut real: impl FnMut(&Thread, *mut u8, usize) -> isize,
    ) -> isize {
        if self.recording {
            // SAFETY: the caller's promise.
            return unsafe { self.receive_into_log(memory, length, real) };
        }
        let result = match self.next_result() {
            Some(Ok(result)) => result as isize,
            Some(Err(code)) => -(code as isize),
            None => {
                self.goes_on();
                // SAFETY: the caller's promise.
                match unsafe { self.received_by_leader(descriptor, memory, length) } {
                    Some(received) => {
                        self.log_result(Ok(received as i64));
                        received
                    }
                    None if self.dead => real(&self.thread, memory, length),
                    // SAFETY: the caller's promise.
                    None => return unsafe { self.receive_into_log(memory, length, real) },
                }
            }
        };
        if result > 0 {
            // SAFETY: the kernel has written no more than there was room for.
            unsafe { self.out(memory, result as usize) };
        }
        result
    }

    unsafe fn receive_into_log(
        &mut self,
        memory: *mut u8,
        length: usize,
        mut real: impl FnMut(&Thread, *mut u8, usize) -> isize,
    ) -> isize {
        let wanted = length.min(RECEIVED_AT_ONCE);
        loop {
            let writer = &mut self.thread.writer;
            let room = (writer.begin(true) && writer.put(&[0; RECEIVED_BEFORE - 8]))
                .then(|| writer.room(wanted))
                .flatten();
            let Some(room) = room else {
                // Recording has just ended.
                self.dead = true;
                return real(&self.thread, memory, length);
            };
            let result = real(&self.thread, room, wanted);
            if result == -(libc::EINTR as isize) && signals::deliver_and_restart(&mut self.thread) {
                continue;
            }
            if result <= 0 {
                self.log_result(raw::error_of(result).map_or(Ok(result as i64), Err));
                return result;
            }
            // SAFETY: the kernel has written that much, and the caller's promise.
            unsafe { std::ptr::copy_nonoverlapping(room, memory, result as usize) };
            self.long = true;
            self.flags |= ResultClass::Small as u8;
            let check = fold(self.check).to_ne_bytes();
            let writer = &mut self.thread.writer;
            self.dead = mode() == Mode::Off
                || !(writer.begin(true)
                    && writer.put(&check)
                    && writer.put(&(result as i32).to_ne_bytes())
                    && writer.skip(result as usize));
            return result;
        }
    }

    /// What the leader had received when it was killed in this call.
    unsafe fn received_by_leader(
        &mut self,
        descriptor: i32,
        memory: *mut u8,
        length: usize,
    ) -> Option<isize> {
        let bytes = flows::take_received(descriptor)?;
        let found = (bytes <= length)
            .then(|| self.thread.reader.behind(RECEIVED_BEFORE, bytes))
            .flatten();
        let Some(found) = found else {
            flows::lost(descriptor);
            return None;
        };
        // SAFETY: the caller's promise.
        unsafe { std::ptr::copy_nonoverlapping(found.as_ptr(), memory, bytes) };
        Some(bytes as isize)
    }
}
