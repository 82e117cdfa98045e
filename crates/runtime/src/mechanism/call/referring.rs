//! What is left out of the event of a call: bytes that were read from a file, and that a follower
//! or a replay reads from it again.

use hindcast_execlog::event::FLAG_REFERENCE;

use super::{Call, fold, mixed};
use crate::functions;
use crate::mechanism::divergence::{self, Actual};
use crate::mechanism::references;
use crate::state::mode::refers;
use crate::syscall;

impl Call<'_> {
    /// Whether it writes one buffer, and all that comes in beside it are numbers.
    #[inline(always)]
    pub(super) fn is_plain_write(&self) -> bool {
        matches!(self.function, functions::WRITE | functions::PWRITE)
    }

    /// Whether the event of this call is short, however much it has moved.
    #[inline]
    pub(super) fn leaves_bytes_out(&self) -> bool {
        self.is_plain_write()
            || refers()
                && matches!(self.function, functions::READ | functions::PREAD)
                && references::refer(self.inputs[0] as i32)
    }

    /// Whether an event has the check of this call. That of a write may cover the ends of its bytes
    /// alone.
    #[inline(always)]
    pub(super) fn is_checked_by(&self, check: u32, flags: u8) -> bool {
        check == fold(self.check)
            || flags & FLAG_REFERENCE != 0
                && self.by_ends.is_some_and(|(sum, used)| {
                    let later = self.inputs[..self.inputs_used as usize].iter();
                    let sum = later
                        .skip(used as usize)
                        .fold(sum, |sum, input| mixed(sum, *input));
                    check == fold(sum)
                })
    }

    #[inline(always)]
    pub(super) unsafe fn out_referred(
        &mut self,
        descriptor: i32,
        offset: Option<i64>,
        memory: *mut u8,
        length: usize,
    ) {
        // SAFETY: the caller's promise.
        unsafe {
            match references::of_read(&mut self.thread, descriptor, offset, memory, length) {
                Some(reference) => {
                    self.flags |= FLAG_REFERENCE;
                    self.dead = self.dead || !self.thread.writer.put(&reference.to_bytes());
                }
                None => self.out(memory, length),
            }
        }
    }

    #[cold]
    pub(super) unsafe fn out_reproduced(
        &mut self,
        descriptor: i32,
        real: i32,
        offset: Option<i64>,
        memory: *mut u8,
        length: usize,
    ) {
        if self.recording {
            let offset = offset.unwrap_or_else(|| {
                // SAFETY: numbers only.
                let after = unsafe { syscall!(libc::SYS_lseek, descriptor, 0, libc::SEEK_CUR) };
                after as i64 - length as i64
            });
            // SAFETY: the caller's promise.
            let sum =
                xxhash_rust::xxh3::xxh3_64(unsafe { std::slice::from_raw_parts(memory, length) });
            self.flags |= FLAG_REFERENCE;
            let writer = &mut self.thread.writer;
            self.dead =
                self.dead || !(writer.put(&offset.to_ne_bytes()) && writer.put(&sum.to_ne_bytes()));
            return;
        }
        let place = self.take(16);
        let word = |at: usize| u64::from_ne_bytes(std::array::from_fn(|index| place[at + index]));
        let mut done = 0;
        while done < length {
            // SAFETY: the caller's promise.
            let read = unsafe {
                syscall!(
                    libc::SYS_pread64,
                    real,
                    memory.add(done),
                    length - done,
                    word(0) as usize + done
                )
            };
            if read <= 0 {
                break;
            }
            done += read as usize;
        }
        // SAFETY: the caller's promise.
        let found = unsafe { std::slice::from_raw_parts(memory, length) };
        if done < length || xxhash_rust::xxh3::xxh3_64(found) != word(8) {
            divergence::diverged(
                &self.thread,
                None,
                Actual::FileChanged {
                    descriptor,
                    offset: word(0),
                    length,
                },
            );
        }
    }
}
