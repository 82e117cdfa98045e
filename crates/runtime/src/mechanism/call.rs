//! One call through the interface. The same body of a stub serves both runs:
//!
//! ```text
//!   let Some(mut call) = Call::enter(functions::READ) else { return pass through };
//!   call.input(fd);                      record: into the check        replay: into the check
//!   call.input(count);
//!   let n = call.run_kernel(|| raw …);   record: does it, logs n       replay: compares function and check, takes n from the log
//!   call.out(buffer, n);                 record: memory → log          replay: log → memory
//!   call.leave();                        record: commits the event     replay: nothing left over?
//! ```
//!
//! Between `enter` and `leave` the thread is in system space. At the end of `leave` it is back in
//! replay space and gets the signals that arrived meanwhile.

mod followed;
mod referring;

use std::ffi::c_char;

use hindcast_execlog::config::optimizations;
use hindcast_execlog::event::{FLAG_ECHO, FLAG_REFERENCE, FLAG_RESULT, Kind, ResultClass};
use hindcast_execlog::reference::{self, REFERRED_FROM};
use hindcast_execlog::{Event, board};

use crate::functions::{self, Function};
use crate::mechanism::divergence::{self, Actual};
use crate::mechanism::flows::{self, Origin};
use crate::mechanism::{
    alone, appended, echo, elsewhere, files, follow, heap, instructions, log, signals, sync,
};
use crate::probe;
use crate::raw::{self, errno, set_errno};
use crate::state::cache::{self, Repeated};
use crate::state::log::WRITTEN_FROM;
use crate::state::mode::{Mode, elsewhere, follows, leads, mode, one_at_a_time, refers};
use crate::state::recording;
use crate::state::thread::{self, Current, Thread};

/// How a function of libc says that it failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// -1, with `errno`.
    Minus1,
    /// NULL, with `errno`.
    Null,
    /// By its result alone, which is not -1 or NULL with `errno`: an error number, say.
    NonZero,
    Never,
}

/// Scalar inputs that are kept for the report of a divergence.
const INPUTS_KEPT: usize = 6;

pub struct Call<'a> {
    pub thread: Current<'a>,
    function: Function,
    /// Hash of all inputs so far.
    check: u64,
    recording: bool,
    /// Recording: the event has a long header. Replay: unused.
    long: bool,
    /// Recording: there is no event for this call, because it is cached or because recording ended
    /// in the middle of it.
    dead: bool,
    flags: u8,
    sync_after: Option<u64>,
    /// Descriptors that the program got from this call; -1: none.
    opened: [i32; 2],
    /// What these stand for.
    stand_for: files::Meaning,
    origin: Origin,
    /// The path that it was opened by; null: none.
    path: *const c_char,
    /// Where that file ended, if it is one to which bytes are appended.
    appends_from: u64,
    /// Who is at the other end of it, and how many bytes that is.
    peer: (*const u8, usize),
    /// The call may end because time has passed; once it has a result: it did.
    timed: bool,
    /// A status that is not logged again while it stays the same.
    cached: bool,
    /// Recording: events in the log when the real function began, where that was before
    /// [`Call::run_calling_back`].
    events_before: Option<u64>,
    /// Replay: what is left of the bytes that the call wrote.
    outs: &'static [u8],
    inputs: [u64; INPUTS_KEPT],
    inputs_used: u8,
    /// Replay: what the check is up to here if it covers only the ends of what is written, and how
    /// many of the inputs came before.
    by_ends: Option<(u64, u8)>,
}

const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

impl<'a> Call<'a> {
    /// `None`: pass through to the real function.
    #[inline(always)]
    pub fn enter(function: Function) -> Option<Call<'static>> {
        thread::enter().map(|thread| Call::within(thread, function))
    }

    /// For a thread that is in system space already because it trapped.
    #[inline(always)]
    pub fn within(thread: Current<'a>, function: Function) -> Call<'a> {
        if leads() {
            thread.writer.enters();
        }
        Call {
            thread,
            function,
            check: function.0.into(),
            recording: mode() == Mode::Record,
            long: false,
            dead: false,
            flags: 0,
            sync_after: None,
            opened: [-1; 2],
            stand_for: files::Meaning::Is(files::Kind::File),
            origin: Origin::Other,
            path: std::ptr::null(),
            appends_from: appended::UNKNOWN,
            peer: (std::ptr::null(), 0),
            timed: false,
            cached: false,
            events_before: None,
            outs: &[],
            inputs: [0; INPUTS_KEPT],
            inputs_used: 0,
            by_ends: None,
        }
    }

    pub fn is_recording(&self) -> bool {
        self.recording
    }

    /// For callers that run the real function themselves before they say what it gave: notes that
    /// it begins.
    pub fn about_to_run(&mut self) {
        self.events_before = Some(self.thread.writer.events());
    }

    #[inline(always)]
    pub fn input(&mut self, value: u64) {
        self.mix(value);
        if (self.inputs_used as usize) < INPUTS_KEPT {
            self.inputs[self.inputs_used as usize] = value;
            self.inputs_used += 1;
        }
    }

    /// What the program passes in a buffer.
    ///
    /// # Safety
    /// Nobody else changes them meanwhile. What cannot be read does no harm: the call itself will
    /// refuse it.
    #[inline]
    pub unsafe fn input_bytes(&mut self, bytes: *const u8, length: usize) {
        let hash = if bytes.is_null() || !probe::readable(bytes, length) {
            0
        } else {
            // SAFETY: it can be read.
            let bytes = unsafe { std::slice::from_raw_parts(bytes, length) };
            if length >= REFERRED_FROM && self.is_plain_write() {
                if self.recording && refers() {
                    self.flags |= FLAG_REFERENCE;
                    return self.mix(reference::ends(bytes));
                }
                if !self.recording {
                    self.by_ends =
                        Some((mixed(self.check, reference::ends(bytes)), self.inputs_used));
                }
            }
            xxhash_rust::xxh3::xxh3_64(bytes)
        };
        self.mix(hash);
    }

    #[inline(always)]
    fn mix(&mut self, value: u64) {
        self.check = mixed(self.check, value);
    }

    /// A string; null is allowed.
    ///
    /// # Safety
    /// Nobody else changes it meanwhile.
    #[inline]
    pub unsafe fn input_str(&mut self, text: *const c_char) {
        let length = probe::string_length(text.cast()).unwrap_or(0);
        // SAFETY: a C string is readable up to its NUL; one that is not is taken for an empty one.
        unsafe { self.input_bytes(text.cast(), length) };
    }

    /// R2's `sync` for what must come after all earlier calls on the resource before it begins: a
    /// write, a post.
    #[inline]
    pub fn sync_before(&mut self, key: u64) {
        sync::object(&mut self.thread, key);
    }

    /// R2's `sync` for what comes after the calls on the resource that it has seen the effect of: a
    /// read, a wait.
    #[inline]
    pub fn sync_after(&mut self, key: u64) {
        self.sync_after = Some(key);
    }

    /// R2's `cache`: a result that is the last one of this function again is counted instead of
    /// logged. For functions that give nothing but a result. Only if the recording was made so.
    #[inline(always)]
    pub fn cache(&mut self) {
        self.cached = recording::config().optimizations & optimizations::CACHE != 0;
    }

    /// Runs a system call, or takes its result from the log. `-errno` when it failed.
    #[inline(always)]
    pub fn run_kernel(&mut self, mut real: impl FnMut(&Thread) -> isize) -> isize {
        self.away();
        if !self.recording {
            match self.next_result() {
                Some(Ok(result)) => {
                    if self.is_followed_in() {
                        real(&self.thread);
                    }
                    return result as isize;
                }
                Some(Err(code)) => return -(code as isize),
                None => return self.run_in_place_of_the_leader(real),
            }
        }
        let mut result = real(&self.thread);
        while result == -(libc::EINTR as isize) && signals::deliver_and_restart(&mut self.thread) {
            result = real(&self.thread);
        }
        match raw::error_of(result) {
            Some(code) => self.log_result(Err(code)),
            None => self.log_result(Ok(result as i64)),
        }
        result
    }

    /// Runs a function of libc or of another library, or takes its result from the log. `errno` is
    /// part of it.
    #[inline]
    pub fn run_libc(&mut self, failure: Failure, real: impl FnOnce() -> i64) -> i64 {
        self.away();
        self.run_calling_back(failure, real, |call, event| call.unexpected(event))
    }

    /// A call of which there may be no event is not one in which threads change.
    #[inline(always)]
    fn away(&mut self) {
        if one_at_a_time() && !self.cached {
            alone::away(&mut self.thread);
        }
    }

    /// As [`Call::run_libc`] for a function that calls the program back: `replay_callback` does
    /// again what the callee did, for each [`Kind::Callback`] event.
    pub fn run_calling_back(
        &mut self,
        failure: Failure,
        real: impl FnOnce() -> i64,
        mut replay_callback: impl FnMut(&mut Call, Event<'static>),
    ) -> i64 {
        let failed = match failure {
            Failure::Minus1 => Some(-1),
            Failure::Null => Some(0),
            Failure::NonZero | Failure::Never => None,
        };
        if !self.recording {
            // A call that is only counted called nobody back: what comes next in the log belongs to
            // a later one.
            let is_counted = self.cached && self.thread.cache.repeats(self.function);
            while let Some(event) = follow::peek(&mut self.thread).filter(|_| !is_counted) {
                match Kind::from_number(event.kind) {
                    Some(Kind::Callback) => replay_callback(self, event),
                    Some(Kind::Signal) => signals::replay_inside(&mut self.thread, event),
                    _ => break,
                }
            }
            match self.next_result() {
                Some(Ok(result)) => {
                    if self.is_followed_in() {
                        real();
                    }
                    return result;
                }
                Some(Err(code)) => {
                    set_errno(code);
                    return failed.unwrap_or(-1);
                }
                None => self.goes_on(),
            }
        }
        let events = self
            .events_before
            .unwrap_or_else(|| self.thread.writer.events());
        let result = signals::interruptible(&mut self.thread, real);
        if self.cached && self.thread.writer.events() != events {
            self.thread.cache.interrupted(self.function);
        }
        if Some(result) == failed {
            self.log_result(Err(errno()));
        } else {
            self.log_result(Ok(result));
        }
        result
    }

    #[inline(always)]
    fn log_result(&mut self, result: Result<i64, i32>) {
        self.timed = self.timed && result == Ok(0);
        if let Some(key) = self.sync_after {
            sync::object(&mut self.thread, key);
        }
        if self.cached {
            match self.thread.cache.recorded(self.function, result) {
                Repeated::Again => {
                    self.dead = true;
                    return;
                }
                Repeated::Changed { hits: 0 } => {}
                Repeated::Changed { hits } => self.thread.writer.append(
                    Kind::Cached,
                    &[&hits.to_ne_bytes(), &self.function.0.to_ne_bytes()],
                ),
            }
        }
        self.long =
            matches!(result, Ok(bytes) if bytes >= WRITTEN_FROM as i64) && !self.leaves_bytes_out();
        let writer = &mut self.thread.writer;
        let check = fold(self.check).to_ne_bytes();
        // A call that was in the kernel when recording ended belongs to what came after.
        let written = mode() != Mode::Off
            && writer.begin(self.long)
            && writer.put(&check)
            && match result {
                Ok(0) => true,
                Ok(value) if i64::from(value as i32) == value => {
                    self.flags |= ResultClass::Small as u8;
                    writer.put(&(value as i32).to_ne_bytes())
                }
                Ok(value) => {
                    self.flags |= ResultClass::Large as u8;
                    writer.put(&value.to_ne_bytes())
                }
                Err(code) => {
                    self.flags |= ResultClass::Failed as u8;
                    writer.put(&code.to_ne_bytes())
                }
            };
        self.dead = !written;
    }

    /// The next event of the log, which must be this call with these inputs. `None`: there is none,
    /// and the call is to be made.
    #[inline]
    fn next_result(&mut self) -> Option<Result<i64, i32>> {
        if mode() == Mode::Replay
            && let Some(key) = self.sync_after
            && sync::is_object_told(&mut self.thread, key)
        {
            self.sync_after = None;
        }
        if mode() != Mode::Replay {
            return None;
        }
        if self.cached
            && let Some(result) = self.thread.cache.replayed(self.function)
        {
            return Some(result);
        }
        let mut event = log::expect_event(&mut self.thread, self.function.0)?;
        while event.kind == Kind::Signal as u16 {
            signals::replay_inside(&mut self.thread, event);
            event = log::expect_event(&mut self.thread, self.function.0)?;
        }
        let Some((check, result, outs)) = event.call().filter(|_| event.kind == self.function.0)
        else {
            self.unexpected(event)
        };
        if !self.is_checked_by(check, event.flags) {
            self.unexpected(event);
        }
        self.thread.reader.advance(&event);
        self.timed = self.timed && result == Ok(0);
        self.flags = event.flags;
        self.outs = outs;
        if self.cached {
            let hits = cache::hits_ahead(&self.thread.reader, self.function);
            self.thread.cache.remember(self.function, result, hits);
        }
        if follows()
            && let Ok(result) = result
        {
            let inputs = &self.inputs[..self.inputs_used as usize];
            flows::told(self.function, inputs, result);
            if elsewhere() {
                elsewhere::told(self.function, inputs, result);
            }
        }
        Some(result)
    }

    #[cold]
    fn unexpected(&self, event: Event<'static>) -> ! {
        let inputs = &self.inputs[..self.inputs_used as usize];
        divergence::diverged(
            &self.thread,
            Some(event),
            Actual::Call {
                function: self.function,
                inputs,
            },
        )
    }

    /// What the call wrote into memory of the program. A null pointer is no memory.
    ///
    /// # Safety
    /// `length` bytes must be readable (recording) and writable (replay).
    #[inline(always)]
    pub unsafe fn out(&mut self, memory: *mut u8, length: usize) {
        if memory.is_null() || length == 0 {
            return;
        }
        if self.recording {
            if !self.dead {
                // SAFETY: the caller's promise.
                self.dead = !unsafe { self.thread.writer.put_memory(memory, length) };
            }
        } else {
            let from = self.take(length);
            // SAFETY: the caller's promise.
            unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), memory, length) };
        }
    }

    /// As [`Call::out`] for bytes that were read from a descriptor: from `offset`, or from where
    /// the descriptor stands. Where the descriptor is of a file that replay reads again, only
    /// their place and checksum are logged.
    ///
    /// # Safety
    /// As [`Call::out`].
    #[inline(always)]
    pub unsafe fn out_read(
        &mut self,
        descriptor: i32,
        offset: Option<i64>,
        memory: *mut u8,
        length: usize,
    ) {
        if refers() && self.recording {
            // SAFETY: the caller's promise.
            return unsafe { self.out_referred(descriptor, offset, memory, length) };
        }
        match files::reproduced(descriptor) {
            // SAFETY: the caller's promise.
            Some(real) if length > 0 => unsafe {
                self.out_reproduced(descriptor, real, offset, memory, length)
            },
            // SAFETY: the caller's promise.
            _ => unsafe { self.out(memory, length) },
        }
        if elsewhere() && !self.recording {
            // SAFETY: the caller's promise.
            unsafe { elsewhere::has_read(descriptor, memory, length) };
        }
    }

    /// As [`Call::out`] for a whole value.
    ///
    /// # Safety
    /// As there.
    #[inline(always)]
    pub unsafe fn out_value<T>(&mut self, memory: *mut T) {
        // SAFETY: the caller's promise.
        unsafe { self.out(memory.cast(), size_of::<T>()) };
    }

    /// The first `total` bytes of a vector of buffers.
    ///
    /// # Safety
    /// `count` valid buffers.
    pub unsafe fn out_iovec(&mut self, buffers: *const libc::iovec, count: usize, total: usize) {
        let mut left = total;
        for index in 0..count {
            // SAFETY: the caller's promise.
            unsafe {
                let buffer = &*buffers.add(index);
                let length = buffer.iov_len.min(left);
                self.out(buffer.iov_base.cast(), length);
                left -= length;
            }
        }
    }

    /// What the program passes in a vector of buffers.
    ///
    /// # Safety
    /// `count` valid buffers.
    pub unsafe fn input_iovec(&mut self, buffers: *const libc::iovec, count: usize) {
        if !probe::readable(
            buffers.cast(),
            count.saturating_mul(size_of::<libc::iovec>()),
        ) {
            return;
        }
        for index in 0..count {
            // SAFETY: the caller's promise.
            unsafe {
                let buffer = &*buffers.add(index);
                self.input_bytes(buffer.iov_base.cast(), buffer.iov_len);
            }
        }
    }

    /// What `recvmsg` wrote: name, buffers, control data, flags.
    ///
    /// # Safety
    /// A valid message.
    pub unsafe fn out_msghdr(&mut self, message: *mut libc::msghdr, result: isize) {
        if result < 0 || message.is_null() {
            return;
        }
        // SAFETY: the caller's promise; lengths are written before what they measure.
        unsafe {
            let room = ((*message).msg_namelen as usize, (*message).msg_controllen);
            self.out_value(&raw mut (*message).msg_namelen);
            self.out_value(&raw mut (*message).msg_controllen);
            self.out_value(&raw mut (*message).msg_flags);
            let name = if self.recording {
                (*message).msg_namelen as usize
            } else {
                room.0.min((*message).msg_namelen as usize)
            };
            self.out((*message).msg_name.cast(), name);
            self.out((*message).msg_control.cast(), (*message).msg_controllen);
            self.out_iovec((*message).msg_iov, (*message).msg_iovlen, result as usize);
        }
    }

    /// R2's `xpointer`: a copy in the replay heap of what the callee allocated for itself, at the
    /// same address in both runs.
    ///
    /// # Safety
    /// Recording: `length` bytes must be readable.
    pub unsafe fn shadow(&mut self, memory: *const u8, length: usize) -> *mut u8 {
        let copy = heap::allocate_for_replay(&mut self.thread, length.max(1));
        if self.recording && !copy.is_null() {
            // SAFETY: the caller's promise, and a block of that size.
            unsafe { std::ptr::copy_nonoverlapping(memory, copy, length) };
        }
        // SAFETY: as above.
        unsafe { self.out(copy, length) };
        copy
    }

    /// The next bytes that the call wrote.
    #[inline(always)]
    fn take(&mut self, length: usize) -> &'static [u8] {
        let Some((taken, rest)) = self.outs.split_at_checked(length) else {
            divergence::diverged(
                &self.thread,
                None,
                Actual::Outputs {
                    function: self.function,
                    wanted: length,
                    left: self.outs.len(),
                },
            )
        };
        self.outs = rest;
        taken
    }

    /// Output that replay writes again, if it went to where the launcher's own output goes. After
    /// `run_*`.
    ///
    /// # Safety
    /// `length` bytes must be readable.
    #[inline]
    pub unsafe fn echo(&mut self, descriptor: i32, bytes: *const u8, length: usize) {
        if elsewhere() && !self.recording {
            // SAFETY: the caller's promise.
            unsafe { elsewhere::wrote(descriptor, bytes, length) };
        }
        if self.recording {
            if files::echo_target(descriptor).is_some() {
                self.flags |= FLAG_ECHO;
                let mut ticket = echo::ticket();
                // SAFETY: a value of ours.
                unsafe { self.out_value(&raw mut ticket) };
            }
        } else if self.flags & FLAG_ECHO != 0 {
            let mut ticket = 0u64;
            // SAFETY: a value of ours.
            unsafe { self.out_value(&raw mut ticket) };
            if follows() {
                // Counted, should this process have to go on with it.
                return echo::written(ticket);
            }
            echo::await_turn(&self.thread, ticket);
            if let Some(target) = files::echo_target(descriptor) {
                // SAFETY: the caller's promise.
                raw::write_all(target, unsafe { std::slice::from_raw_parts(bytes, length) });
            }
            echo::written(ticket);
        }
    }

    /// Makes the event visible and goes back to replay space, where signals that arrived meanwhile
    /// are delivered.
    #[inline(always)]
    pub fn leave(self) {
        signals::leave(&mut self.finish());
    }

    /// The call gives the program a new descriptor.
    #[inline(always)]
    pub fn opened(&mut self, descriptor: i32, kind: files::Kind) {
        flows::opens(descriptor);
        self.opened[0] = descriptor;
        self.they_stand_for(files::Meaning::Is(kind));
        if kind == files::Kind::Socket {
            self.origin = Origin::Made;
        }
    }

    /// As [`Call::opened`] for a connection that somebody else has made, whose address is at `peer`
    /// for as long as the call lasts.
    pub fn accepted(&mut self, descriptor: i32, peer: (*const u8, usize)) {
        self.opened(descriptor, files::Kind::Socket);
        self.origin = Origin::Accepted;
        self.peer = peer;
    }

    /// As [`Call::opened`] for a file, by a path that is there for as long as the call lasts.
    pub fn opened_file(&mut self, descriptor: i32, path: *const c_char) {
        self.opened(descriptor, files::Kind::File);
        self.path = path;
    }

    /// The call gives the program both ends of something inside the process, or twice the same
    /// descriptor where they are one.
    pub fn opened_internal(&mut self, one: i32, other: i32) {
        flows::opens(one);
        flows::opens(other);
        self.opened = [one, other];
        self.they_stand_for(files::Meaning::Inside);
    }

    /// As [`Call::opened`] for another number of what `from` stands for.
    pub fn duplicated(&mut self, from: i32, to: i32) {
        self.opened(to, files::Kind::File);
        self.they_stand_for(files::Meaning::CopyOf(from));
    }

    fn they_stand_for(&mut self, meaning: files::Meaning) {
        self.stand_for = meaning;
        meaning.is_of(self.opened);
    }

    /// The program gives a descriptor back. Before it does: afterwards another thread may be given
    /// the number, and what this one has done with its own table of descriptors must come
    /// before what that one does.
    #[inline(always)]
    pub fn closes(&mut self, descriptor: i32) {
        files::closed(descriptor);
        self.orders(descriptor);
    }

    /// As [`Call::closes`] for a number that may stay in use when the call fails.
    #[inline(always)]
    pub fn orders(&mut self, descriptor: i32) {
        if thread::are_several() {
            sync::object(&mut self.thread, files::number_key(descriptor));
        }
    }

    /// After the event of the call: who had these numbers before has closed them.
    #[cold]
    fn order_numbers(&mut self) {
        let [one, other] = self.opened;
        if thread::are_several() {
            sync::object(&mut self.thread, files::number_key(one));
            if other >= 0 && other != one {
                sync::object(&mut self.thread, files::number_key(other));
            }
        }
        if !self.recording {
            // In a replay who had a number before may have closed it only now.
            self.stand_for.is_of(self.opened);
            if elsewhere() {
                self.make_along();
            }
        }
        for number in [one, other] {
            flows::opened(number, self.origin);
        }
    }

    /// As [`Call::leave`] for the trap, which leaves system space itself.
    #[inline(always)]
    pub fn finish(mut self) -> Current<'a> {
        if self.recording {
            if !self.dead {
                self.thread
                    .writer
                    .finish(self.function.0, self.flags, self.long);
            }
        } else if !self.outs.is_empty() {
            let actual = Actual::Outputs {
                function: self.function,
                wanted: 0,
                left: self.outs.len(),
            };
            divergence::diverged(&self.thread, None, actual);
        }
        if self.opened[0] >= 0 {
            self.order_numbers();
        }
        if self.timed || self.tells_the_time() {
            self.order_time();
        }
        self.thread
    }

    /// Tells the launcher that the thread may now be in the kernel for long.
    ///
    /// What threads do because time has passed is in an order, too: from the end of a sleep or of a
    /// wait that ran out until the next wait. Programs keep a clock in a variable that one
    /// thread moves once in a while, when it has asked what time it is, and others read without a
    /// lock.
    #[inline(always)]
    pub fn blocks(&mut self) {
        self.thread.show(board::State::Blocked, self.function.0);
        self.away();
        alone::waits(&self.thread);
        instructions::waits(&mut self.thread);
        if thread::are_several() {
            if self.thread.woken_by_time {
                self.thread.woken_by_time = false;
                sync::moment(&mut self.thread);
            }
            self.timed = self.waits_for_time();
        }
    }

    #[inline(always)]
    fn waits_for_time(&self) -> bool {
        match self.function {
            functions::EPOLL_WAIT | functions::KERNEL_EPOLL_PWAIT => self.inputs[2] as i32 > 0,
            functions::POLL => self.inputs[1] as i32 > 0,
            functions::KERNEL_PPOLL
            | functions::SELECT
            | functions::KERNEL_PSELECT6
            | functions::KERNEL_EPOLL_PWAIT2 => true,
            functions::NANOSLEEP | functions::KERNEL_CLOCK_NANOSLEEP => true,
            _ => false,
        }
    }

    /// Whether a thread that time has woken knows what time it is now.
    #[inline(always)]
    fn tells_the_time(&self) -> bool {
        self.thread.woken_by_time
            && matches!(
                self.function,
                functions::CLOCK_GETTIME | functions::GETTIMEOFDAY | functions::TIME
            )
    }

    #[cold]
    fn order_time(&mut self) {
        sync::moment(&mut self.thread);
        self.thread.woken_by_time = true;
    }
}

#[inline(always)]
fn mixed(check: u64, value: u64) -> u64 {
    (check.rotate_left(23) ^ value).wrapping_mul(MULTIPLIER)
}

/// The 32 bits of the check that are logged.
#[inline(always)]
fn fold(check: u64) -> u32 {
    (check ^ check >> 32) as u32
}

const _: () = assert!(FLAG_RESULT == ResultClass::Failed as u8);
