//! Creation and end of threads.
//!
//! A thread has a number, which its creator logs together with where the stack is; with equal
//! stacks, all that libc keeps at the upper end of a stack (`pthread_self`, thread-local variables)
//! is at equal addresses, too. A new thread opens its log, arms its traps, and calls the program's
//! routine in replay space. It stays there to the very end: the destructors of thread-local objects
//! run after the routine, and the system call that ends the thread traps, which is where its log
//! ends.
//!
//! A thread that is created comes after its creation, and a join after the thread's end, by
//! themselves in both runs. Joins are acquisitions in the log all the same, since they can fail,
//! and since a recording may end in one.
//!
//! Threads that libraries create in system space have no state: every stub passes them through.
//!
//! **Cancellation** is not recorded. A thread that is cancelled ends at the next of some seventy
//! functions, in whatever state that is; `pthread_cancel` therefore ends recording, and the program
//! runs on as it would.

// SAFETY, of each `unsafe` here that has no reason of its own: a function has the contract of
// libc's function of the same name, the caller keeps it, and `real` is that function.

mod stacks;

use std::ffi::{c_int, c_void};
use std::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering,
};

use hindcast_execlog::THREADS_MAX;
use hindcast_execlog::board::State;
use hindcast_execlog::event::Kind;
use libc::{clockid_t, pthread_attr_t, pthread_t, timespec};

use crate::doors::locks;
use crate::mechanism::detach::{self, Reason};
use crate::mechanism::divergence::{self, Actual};
use crate::mechanism::sync::{self, Step, real};
use crate::mechanism::{alone, entry, heap, signals};
use crate::state::mode::{Mode, mode};
use crate::state::thread::{self, Current, Thread};
use crate::syscall;

use stacks::Stack;

type Routine = extern "C-unwind" fn(*mut c_void) -> *mut c_void;
type StandardRoutine = extern "C-unwind" fn(*mut c_void) -> c_int;

/// What a thread runs, and what becomes of its stack. Written by the creator before the thread
/// starts, but for what is said below.
struct Life {
    routine: AtomicUsize,
    /// The routine is one of C11's, which returns an `int`.
    standard: AtomicBool,
    argument: AtomicPtr<c_void>,
    /// What `pthread_self` says. Written by the thread before it runs anything of the program's.
    handle: AtomicU64,
    stack_base: AtomicUsize,
    /// Zero when the stack is the program's own.
    stack_length: AtomicUsize,
    guard: AtomicUsize,
    /// [`DETACHED`] and [`EXITED`]; whoever sets the second of them buries the thread.
    state: AtomicU8,
    /// The next in the graveyard.
    next: AtomicU32,
    /// Recording: the creator has logged the creation. Until then the thread waits: if it ended
    /// the process first, its creation would be in no log.
    logged: AtomicU32,
}

const DETACHED: u8 = 1;
const EXITED: u8 = 2;

static LIVES: [Life; THREADS_MAX] = [const {
    Life {
        routine: AtomicUsize::new(0),
        standard: AtomicBool::new(false),
        argument: AtomicPtr::new(std::ptr::null_mut()),
        handle: AtomicU64::new(0),
        stack_base: AtomicUsize::new(0),
        stack_length: AtomicUsize::new(0),
        guard: AtomicUsize::new(0),
        state: AtomicU8::new(0),
        next: AtomicU32::new(0),
        logged: AtomicU32::new(0),
    }
}; THREADS_MAX];

/// Detached threads that have left the program but may still be on their way out of the kernel:
/// number + 1, or zero.
static GRAVEYARD: AtomicU32 = AtomicU32::new(0);
impl Life {
    fn of(number: u32) -> &'static Life {
        &LIVES[number as usize]
    }

    fn creation_is_logged(&self) {
        self.logged.store(1, Ordering::Release);
        // SAFETY: wakes whoever waits at this word.
        unsafe {
            syscall!(
                libc::SYS_futex,
                self.logged.as_ptr(),
                libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG,
                1
            )
        };
    }

    fn wait_until_creation_is_logged(&self) {
        while self.logged.load(Ordering::Acquire) == 0 {
            // SAFETY: waits while the word is zero.
            unsafe {
                syscall!(
                    libc::SYS_futex,
                    self.logged.as_ptr(),
                    libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG,
                    0,
                    0
                )
            };
        }
    }

    fn set_stack(&self, stack: Stack) {
        self.stack_base.store(stack.base, Ordering::Relaxed);
        self.guard.store(stack.guard, Ordering::Relaxed);
        self.stack_length.store(stack.length, Ordering::Release);
    }

    /// Gives the stack back if it was ours.
    ///
    /// # Safety
    /// The thread is gone.
    unsafe fn release_stack(&self) {
        let length = self.stack_length.swap(0, Ordering::AcqRel);
        if length != 0 {
            let stack = Stack {
                base: self.stack_base.load(Ordering::Relaxed),
                length,
                guard: self.guard.load(Ordering::Relaxed),
            };
            // SAFETY: the caller's promise.
            unsafe { stack.unmap() };
        }
    }
}

/// What the caller of `pthread_create` asked for.
struct Wish {
    /// The program brings the stack.
    own_stack: bool,
    stack_size: usize,
    guard: usize,
    detached: bool,
}

impl Wish {
    unsafe fn read(attributes: *const pthread_attr_t) -> Wish {
        let mut defaults = std::mem::MaybeUninit::<pthread_attr_t>::uninit();
        let (mut address, mut size, mut guard, mut detached) =
            (std::ptr::null_mut::<c_void>(), 0usize, 0usize, 0);
        // SAFETY: attributes of the program, or fresh ones that are destroyed again.
        unsafe {
            let given = if attributes.is_null() {
                real!(pthread_attr_init: fn(*mut pthread_attr_t) -> c_int)(defaults.as_mut_ptr());
                defaults.as_ptr()
            } else {
                attributes
            };
            real!(pthread_attr_getstackaddr: fn(*const pthread_attr_t, *mut *mut c_void) -> c_int)(
                given,
                &raw mut address,
            );
            real!(pthread_attr_getstacksize: fn(*const pthread_attr_t, *mut usize) -> c_int)(
                given,
                &raw mut size,
            );
            real!(pthread_attr_getguardsize: fn(*const pthread_attr_t, *mut usize) -> c_int)(
                given,
                &raw mut guard,
            );
            real!(pthread_attr_getdetachstate: fn(*const pthread_attr_t, *mut c_int) -> c_int)(
                given,
                &raw mut detached,
            );
            if attributes.is_null() {
                real!(pthread_attr_destroy: fn(*mut pthread_attr_t) -> c_int)(
                    defaults.as_mut_ptr(),
                );
            }
        }
        Wish {
            own_stack: !address.is_null(),
            stack_size: size,
            guard,
            detached: detached == libc::PTHREAD_CREATE_DETACHED,
        }
    }
}

/// Creates the thread for real, on `stack` unless the program brings one.
unsafe fn create_real(
    handle: *mut pthread_t,
    attributes: *const pthread_attr_t,
    stack: Option<Stack>,
    state: *mut Thread,
) -> c_int {
    let real = real!(pthread_create: fn(*mut pthread_t, *const pthread_attr_t, Routine, *mut c_void) -> c_int);
    let mut changed = std::mem::MaybeUninit::<pthread_attr_t>::uninit();
    // SAFETY: a copy of the attributes lives for the call; what it points to is the original's and
    // is not freed here.
    unsafe {
        let Some(stack) = stack else {
            return real(handle, attributes, run, state.cast());
        };
        if attributes.is_null() {
            real!(pthread_attr_init: fn(*mut pthread_attr_t) -> c_int)(changed.as_mut_ptr());
        } else {
            std::ptr::copy_nonoverlapping(attributes, changed.as_mut_ptr(), 1);
        }
        let set =
            real!(pthread_attr_setstack: fn(*mut pthread_attr_t, *mut c_void, usize) -> c_int);
        match set(
            changed.as_mut_ptr(),
            stack.base as *mut c_void,
            stack.length,
        ) {
            0 => real(handle, changed.as_ptr(), run, state.cast()),
            code => code,
        }
    }
}

/// The first function of each thread.
extern "C-unwind" fn run(state: *mut c_void) -> *mut c_void {
    // SAFETY: the creator passes the state of this thread, which nobody else uses.
    let thread = &mut unsafe { Current::of(state.cast()) };
    let life = Life::of(thread.number);
    // SAFETY: no arguments.
    life.handle
        .store(unsafe { libc::pthread_self() }, Ordering::Release);
    let (routine, argument) = (
        life.routine.load(Ordering::Acquire),
        life.argument.load(Ordering::Relaxed),
    );
    entry::enter_thread(thread);
    if mode() == Mode::Record {
        life.wait_until_creation_is_logged();
    }
    alone::begins(thread);
    thread.enter_replay();
    // SAFETY: what the program passed to the function that takes routines of this type.
    unsafe {
        if life.standard.load(Ordering::Relaxed) {
            std::mem::transmute::<usize, StandardRoutine>(routine)(argument) as isize as *mut c_void
        } else {
            std::mem::transmute::<usize, Routine>(routine)(argument)
        }
    }
}

/// Payload of a [`Kind::Thread`] event: number, then base, length and guard of the stack; the
/// length is zero when the program brought it.
fn log_creation(thread: &mut Current, number: u32, stack: Option<Stack>) {
    let words = stack
        .map_or([0; 3], |stack| [stack.base, stack.length, stack.guard])
        .map(|word| (word as u64).to_ne_bytes());
    thread.writer.append(
        Kind::Thread,
        &[&number.to_ne_bytes(), &words[0], &words[1], &words[2]],
    );
}

fn read_creation(payload: &[u8]) -> Option<(u32, Option<Stack>)> {
    let (number, rest) = payload.split_first_chunk::<4>()?;
    let word = |index: usize| {
        rest.get(index * 8..)?
            .first_chunk::<8>()
            .map(|word| u64::from_ne_bytes(*word) as usize)
    };
    let stack = Stack {
        base: word(0)?,
        length: word(1)?,
        guard: word(2)?,
    };
    Some((
        u32::from_ne_bytes(*number),
        (stack.length != 0).then_some(stack),
    ))
}

fn prepare(
    thread: &mut Current,
    number: u32,
    routine: usize,
    standard: bool,
    argument: *mut c_void,
    wish: &Wish,
) -> Option<*mut Thread> {
    let mut state = thread::create(number)?;
    state.signals.inherit(&thread.signals);
    state.sync.known.learn(thread.number, thread.acquired());
    let life = Life::of(number);
    life.standard.store(standard, Ordering::Relaxed);
    life.argument.store(argument, Ordering::Relaxed);
    life.state
        .store(if wish.detached { DETACHED } else { 0 }, Ordering::Relaxed);
    life.stack_length.store(0, Ordering::Relaxed);
    life.logged.store(0, Ordering::Relaxed);
    life.routine.store(routine, Ordering::Release);
    Some(state.as_ptr())
}

fn create(
    thread: &mut Current,
    handle: *mut pthread_t,
    attributes: *const pthread_attr_t,
    routine: usize,
    standard: bool,
    argument: *mut c_void,
) -> c_int {
    if !thread::SEVERAL.swap(true, Ordering::AcqRel) {
        heap::second_thread();
        locks::second_thread(thread);
    }
    bury();
    // SAFETY: the program's attributes.
    let wish = unsafe { Wish::read(attributes) };
    if mode() == Mode::Replay {
        return create_again(
            thread, handle, attributes, routine, standard, argument, &wish,
        )
        .unwrap_or_else(|| create_unrecorded(handle, attributes, routine, argument));
    }
    locks::interpreter::find();
    let failed = |thread: &mut Current, code| {
        sync::record_failure(thread, code);
        code
    };
    let Some(number) = thread::next_number() else {
        detach::detach(Reason::TooManyThreads);
        return create_unrecorded(handle, attributes, routine, argument);
    };
    let stack = if wish.own_stack {
        None
    } else {
        Stack::place(number, wish.stack_size, wish.guard)
    };
    if stack.is_none() != wish.own_stack || stack.is_some_and(|stack| stack.map().is_err()) {
        return failed(thread, libc::EAGAIN);
    }
    let Some(state) = prepare(thread, number, routine, standard, argument, &wish) else {
        return failed(thread, libc::EAGAIN);
    };
    if let Some(stack) = stack {
        Life::of(number).set_stack(stack);
    }
    // SAFETY: the program's arguments, and a state of the new thread's own.
    match unsafe { create_real(handle, attributes, stack, state) } {
        0 => {
            log_creation(thread, number, stack);
            Life::of(number).creation_is_logged();
            0
        }
        code => {
            // SAFETY: it never ran.
            unsafe { Life::of(number).release_stack() };
            if let Some(state) = thread::by_number(number) {
                state.ended.store(true, Ordering::Release);
            }
            failed(thread, code)
        }
    }
}

fn create_unrecorded(
    handle: *mut pthread_t,
    attributes: *const pthread_attr_t,
    routine: usize,
    argument: *mut c_void,
) -> c_int {
    // SAFETY: the program's own call.
    unsafe {
        let routine = std::mem::transmute::<usize, Routine>(routine);
        real!(pthread_create: fn(*mut pthread_t, *const pthread_attr_t, Routine, *mut c_void) -> c_int)(
            handle, attributes, routine, argument,
        )
    }
}

fn create_again(
    thread: &mut Current,
    handle: *mut pthread_t,
    attributes: *const pthread_attr_t,
    routine: usize,
    standard: bool,
    argument: *mut c_void,
    wish: &Wish,
) -> Option<c_int> {
    let step = Step {
        function: "pthread_create",
        object: routine,
        is_recorded_after: false,
    };
    let event = sync::next_event(thread, Kind::Thread)?;
    if event.kind == Kind::Busy as u16 {
        return Some(sync::failure(thread, step).unwrap_or(libc::EAGAIN));
    }
    let created = (event.kind == Kind::Thread as u16)
        .then(|| read_creation(event.payload))
        .flatten();
    let Some((number, stack)) = created.filter(|(number, _)| (*number as usize) < THREADS_MAX)
    else {
        sync::unexpected(thread, step)
    };
    thread.reader.advance(&event);
    let result = match stack.map_or(Ok(()), |stack| stack.map()) {
        Err(code) => code,
        Ok(()) => match prepare(thread, number, routine, standard, argument, wish) {
            None => libc::ENOMEM,
            Some(state) => {
                if let Some(stack) = stack {
                    Life::of(number).set_stack(stack);
                }
                // SAFETY: as when it was recorded.
                unsafe { create_real(handle, attributes, stack, state) }
            }
        },
    };
    if result != 0 {
        divergence::unusable(
            format_args!("thread {number} cannot be created here (error {result})"),
            "Replay with at least the memory and the process limits of the recording.",
        );
    }
    Some(0)
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn pthread_create(
    handle: *mut pthread_t,
    attributes: *const pthread_attr_t,
    routine: Routine,
    argument: *mut c_void,
) -> c_int {
    let Some(thread) = &mut thread::enter() else {
        return create_unrecorded(handle, attributes, routine as usize, argument);
    };
    let result = create(
        thread,
        handle,
        attributes,
        routine as usize,
        false,
        argument,
    );
    signals::leave(thread);
    result
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn thrd_create(
    handle: *mut pthread_t,
    routine: StandardRoutine,
    argument: *mut c_void,
) -> c_int {
    let Some(thread) = &mut thread::enter() else {
        // SAFETY: the program's own call.
        return unsafe {
            real!(thrd_create: fn(*mut pthread_t, StandardRoutine, *mut c_void) -> c_int)(
                handle, routine, argument,
            )
        };
    };
    let result = create(
        thread,
        handle,
        std::ptr::null(),
        routine as usize,
        true,
        argument,
    );
    signals::leave(thread);
    locks::standard::result(result)
}

/// The number of a thread that has not been joined, by its handle.
fn number_of(handle: pthread_t) -> Option<u32> {
    let has = |number: u32| Life::of(number).handle.load(Ordering::Acquire) == handle;
    Stack::number_of(handle as usize)
        .filter(|number| has(*number))
        .or_else(|| (0..thread::count()).rev().find(|number| has(*number)))
}

fn join(
    handle: pthread_t,
    result: *mut *mut c_void,
    function: &'static str,
    thread: &mut Current,
    real: impl FnOnce() -> c_int,
) -> c_int {
    let number = number_of(handle);
    let step = Step {
        function,
        object: handle as usize,
        is_recorded_after: true,
    };
    let code = sync::attempt(
        thread,
        step,
        |thread| {
            alone::waits(thread);
            sync::waiting(thread, real)
        },
        |thread| sync::record_joined(thread, number),
        // What was a try when it was recorded waits for the thread to end.
        |thread| {
            let join = real!(pthread_join: fn(pthread_t, *mut *mut c_void) -> c_int);
            sync::blocked(thread, || unsafe { join(handle, result) })
        },
    );
    if let Some(number) = number.filter(|_| code == 0) {
        let life = Life::of(number);
        life.handle.store(0, Ordering::Release);
        // SAFETY: joined.
        unsafe { life.release_stack() };
    }
    signals::leave(thread);
    code
}

locks::takers! { join:
    pthread_join(handle: pthread_t, result: *mut *mut c_void), result;
    pthread_tryjoin_np(handle: pthread_t, result: *mut *mut c_void), result;
    pthread_timedjoin_np(handle: pthread_t, result: *mut *mut c_void, until: *const timespec), result;
    pthread_clockjoin_np(handle: pthread_t, result: *mut *mut c_void, clock: clockid_t, until: *const timespec), result;
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn thrd_join(handle: pthread_t, result: *mut c_int) -> c_int {
    let mut value = std::ptr::null_mut();
    let code = unsafe { pthread_join(handle, &raw mut value) };
    if code == 0 && !result.is_null() {
        unsafe { *result = value as isize as c_int };
    }
    locks::standard::result(code)
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn pthread_detach(handle: pthread_t) -> c_int {
    let real = real!(pthread_detach: fn(pthread_t) -> c_int);
    let Some(thread) = thread::enter() else {
        return unsafe { real(handle) };
    };
    let number = number_of(handle);
    let result = unsafe { real(handle) };
    if let Some(number) = number.filter(|_| result == 0) {
        let life = Life::of(number);
        life.handle.store(0, Ordering::Release);
        if life.state.fetch_or(DETACHED, Ordering::AcqRel) & EXITED != 0 {
            push_grave(number);
        }
    }
    thread.enter_replay();
    result
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn thrd_detach(handle: pthread_t) -> c_int {
    locks::standard::result(unsafe { pthread_detach(handle) })
}

/// Ends recording: see the top of this module.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn pthread_cancel(handle: pthread_t) -> c_int {
    let real = real!(pthread_cancel: fn(pthread_t) -> c_int);
    let Some(thread) = &mut thread::enter() else {
        return unsafe { real(handle) };
    };
    if mode() == Mode::Replay {
        // Says that the recording ends here, or that it has something else.
        sync::next_event(thread, Kind::Edge);
        divergence::diverged(thread, thread.reader.peek(), Actual::Step("pthread_cancel"));
    }
    let target = number_of(handle)
        .and_then(thread::by_number)
        .map(|target| target.kernel_id.load(Ordering::Acquire));
    detach::detach(Reason::Other(
        "the program cancels a thread, which may then end inside any call",
    ));
    let result = unsafe { real(handle) };
    if let Some(target) = target.filter(|_| result == 0) {
        // A target that waits in a system call of ours is not where libc would end it. Libc's own
        // signal wakes it up, and its next call is libc's.
        const SIGCANCEL: i32 = 32;
        // SAFETY: numbers only.
        unsafe {
            syscall!(
                libc::SYS_tgkill,
                syscall!(libc::SYS_getpid),
                target,
                SIGCANCEL
            )
        };
    }
    thread.enter_replay();
    result
}

/// The system call that ends a thread, for the trap. Its log ends here.
pub fn by_number(thread: &mut Current, number: i64, arguments: [usize; 6]) -> Option<isize> {
    if number != libc::SYS_exit {
        return None;
    }
    end(thread);
    thread::set_current(std::ptr::null_mut());
    loop {
        // SAFETY: nothing of this thread is used any more.
        unsafe { syscall!(libc::SYS_exit, arguments[0]) };
    }
}

fn end(thread: &mut Current) {
    // Takes its place in the order, so it comes before the end in the log.
    heap::thread_exiting(thread);
    match mode() {
        Mode::Record => thread.writer.append(Kind::ThreadEnd, &[]),
        Mode::Replay => {
            if let Some(event) = sync::next_event(thread, Kind::ThreadEnd) {
                if event.kind != Kind::ThreadEnd as u16 {
                    let actual = Actual::Step("the end of the thread");
                    divergence::diverged(thread, Some(event), actual);
                }
                thread.reader.advance(&event);
            }
        }
        Mode::Off => {}
    }
    // Before others are told: a checkpoint that knows of the end does without the log.
    thread.reader.let_go();
    thread.show(State::Ended, Kind::ThreadEnd as u16);
    thread.writer.close();
    thread.ended.store(true, Ordering::Release);
    alone::ends(thread);
    if Life::of(thread.number)
        .state
        .fetch_or(EXITED, Ordering::AcqRel)
        & DETACHED
        != 0
    {
        push_grave(thread.number);
    }
}

fn push_grave(number: u32) {
    let life = Life::of(number);
    let _ = GRAVEYARD.fetch_update(Ordering::AcqRel, Ordering::Acquire, |first| {
        life.next.store(first, Ordering::Relaxed);
        Some(number + 1)
    });
}

/// Gives back the stacks of detached threads that are gone.
fn bury() {
    let mut next = GRAVEYARD.swap(0, Ordering::AcqRel);
    while let Some(number) = next.checked_sub(1) {
        let life = Life::of(number);
        next = life.next.load(Ordering::Relaxed);
        let Some(state) = thread::by_number(number) else {
            continue;
        };
        let kernel_id = state.kernel_id.load(Ordering::Acquire);
        // SAFETY: numbers only; signal zero is none.
        let gone = unsafe { syscall!(libc::SYS_tgkill, syscall!(libc::SYS_getpid), kernel_id, 0) }
            == -(libc::ESRCH as isize);
        if gone {
            // SAFETY: the kernel knows no such thread. Should another have its identity by now,
            // this one waits a little longer.
            unsafe { life.release_stack() };
        } else {
            push_grave(number);
        }
    }
}

/// In a forked child: the other threads are the parent's, and so are their graves.
pub fn after_fork_in_child() {
    GRAVEYARD.store(0, Ordering::Relaxed);
}
