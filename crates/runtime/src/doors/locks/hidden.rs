//! Functions of libc with state that threads share and libc locks where nobody sees it.
//!
//! `rand` gives the next number to whoever comes next; the first thread that asks for the time zone
//! reads the file. So in processes with several threads each such function is an acquisition of the
//! state it shares, and holds a lock of ours meanwhile, in the same order in both runs.
//!
//! What reads its files at its first use and has calls that last (names of hosts, users, services)
//! holds the lock until it was used once, and after that is ordered by nothing: each call makes its
//! own system calls.
//!
//! Not here: functions that are documented as unsafe with threads (`strtok`, `setenv` beside
//! `getenv`, `setlocale` beside anything that prints); `strerror` and messages of libc in other
//! languages, which read their catalogue at first use; `dlopen`, whose result depends on who calls
//! it, so that it cannot be called from here.

use std::ffi::{c_char, c_double, c_int, c_long, c_uint, c_void};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crate::mechanism::signals;
use crate::mechanism::sync::{Step, pass_or_record, real, record_exclusive};
use crate::state::mode::{Mode, mode};
use crate::state::thread::{self, Current, Thread};
use crate::syscall;

/// A state inside libc: its key in the order, and a lock that one thread may take several times.
struct State {
    key: u64,
    /// 0 free, 1 held, 2 held and waited for.
    word: AtomicU32,
    /// The thread that holds it, by number + 1.
    owner: AtomicU32,
    depth: AtomicU32,
    /// It was used to the end once.
    used: AtomicBool,
}

impl State {
    const fn new(number: u64) -> Self {
        State {
            key: 1 << 63 | number << 8,
            word: AtomicU32::new(0),
            owner: AtomicU32::new(0),
            depth: AtomicU32::new(0),
            used: AtomicBool::new(false),
        }
    }

    fn lock(&self, thread: &Thread) {
        if self.owner.load(Ordering::Relaxed) == thread.number + 1 {
            self.depth.fetch_add(1, Ordering::Relaxed);
            return;
        }
        if self
            .word
            .compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed)
            .is_err()
        {
            while self.word.swap(2, Ordering::Acquire) != 0 {
                let operation = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
                // SAFETY: a word of this process.
                unsafe { syscall!(libc::SYS_futex, self.word.as_ptr(), operation, 2, 0) };
            }
        }
        self.owner.store(thread.number + 1, Ordering::Relaxed);
    }

    fn unlock(&self) {
        if self.depth.load(Ordering::Relaxed) != 0 {
            self.depth.fetch_sub(1, Ordering::Relaxed);
            return;
        }
        self.owner.store(0, Ordering::Relaxed);
        if self.word.swap(0, Ordering::Release) == 2 {
            let operation = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
            // SAFETY: as above.
            unsafe { syscall!(libc::SYS_futex, self.word.as_ptr(), operation, 1) };
        }
    }

    /// Unlocks if the thread of this number still has it.
    fn unlock_of(&self, number: u32) {
        if self.owner.load(Ordering::Relaxed) == number + 1 {
            self.unlock();
        }
    }

    /// Locks when it is this thread's turn.
    fn acquire(&self, thread: &mut Current) {
        if mode() == Mode::Record {
            self.lock(thread);
            record_exclusive(thread, self.key);
            return;
        }
        let step = Step {
            function: "a function of libc with a state inside",
            object: self.key as usize,
            is_recorded_after: true,
        };
        let note = |thread: &mut Current| record_exclusive(thread, self.key);
        pass_or_record(thread, step, |thread| self.lock(thread), note);
    }
}

struct Hidden {
    random: State,
    zone: State,
    names: State,
    /// The list of what `popen` has open: a child closes those of all others.
    commands: State,
}

static HIDDEN: Hidden = Hidden {
    random: State::new(1),
    zone: State::new(2),
    names: State::new(3),
    commands: State::new(4),
};

/// In a forked child, which has none of the threads that may hold one.
pub fn after_fork_in_child(thread: &Thread) {
    let Hidden {
        random,
        zone,
        names,
        commands,
    } = &HIDDEN;
    for state in [random, zone, names, commands] {
        if state.owner.load(Ordering::Relaxed) != thread.number + 1 {
            state.word.store(0, Ordering::Relaxed);
            state.owner.store(0, Ordering::Relaxed);
            state.depth.store(0, Ordering::Relaxed);
        }
    }
}

#[inline(always)]
fn in_order<R>(state: &State, inner: impl FnOnce() -> R) -> R {
    if thread::are_several() {
        held(state, inner)
    } else {
        inner()
    }
}

#[inline(never)]
fn held<R>(state: &State, inner: impl FnOnce() -> R) -> R {
    let Some(thread) = &mut thread::enter() else {
        return inner();
    };
    state.acquire(thread);
    signals::leave(thread);
    let result = inner();
    state.unlock();
    result
}

/// As [`in_order`] until it was used once.
fn in_order_at_first<R>(state: &State, inner: impl FnOnce() -> R) -> R {
    let Some(thread) = &mut thread::enter_if(thread::are_several()) else {
        let result = inner();
        state.used.store(true, Ordering::Release);
        return result;
    };
    state.acquire(thread);
    signals::leave(thread);
    let used = state.used.load(Ordering::Acquire);
    if used {
        state.unlock();
        return inner();
    }
    let result = inner();
    state.used.store(true, Ordering::Release);
    state.unlock();
    result
}

macro_rules! functions {
    ($order:ident $state:ident: $($name:ident($($argument:ident: $type:ty),* $(,)?) $(-> $result:ty)?;)*) => {$(
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub unsafe extern "C-unwind" fn $name($($argument: $type),*) $(-> $result)? {
            let real = real!($name: fn($($type),*) $(-> $result)?);
            // SAFETY: the program's arguments.
            $order(&HIDDEN.$state, || unsafe { real($($argument),*) })
        }
    )*};
}

functions! { in_order random:
    rand() -> c_int;
    srand(seed: c_uint);
    random() -> c_long;
    srandom(seed: c_uint);
    initstate(seed: c_uint, state: *mut c_char, size: usize) -> *mut c_char;
    setstate(state: *mut c_char) -> *mut c_char;
    drand48() -> c_double;
    lrand48() -> c_long;
    mrand48() -> c_long;
    srand48(seed: c_long);
}

functions! { in_order zone:
    tzset();
    localtime(time: *const i64) -> *mut c_void;
    localtime_r(time: *const i64, result: *mut c_void) -> *mut c_void;
    mktime(broken: *mut c_void) -> i64;
    timelocal(broken: *mut c_void) -> i64;
    ctime(time: *const i64) -> *mut c_char;
    ctime_r(time: *const i64, result: *mut c_char) -> *mut c_char;
    strftime(text: *mut c_char, size: usize, format: *const c_char, broken: *const c_void) -> usize;
}

/// As [`in_order`], up to where the thread waits for a child ([`release_commands`]): that may take
/// as long as it wants.
#[inline(always)]
fn in_order_until_wait<R>(state: &State, inner: impl FnOnce() -> R) -> R {
    let Some(thread) = &mut thread::enter_if(thread::are_several()) else {
        return inner();
    };
    let number = thread.number;
    state.acquire(thread);
    signals::leave(thread);
    let result = inner();
    state.unlock_of(number);
    result
}

/// The thread is about to wait for a child.
pub fn release_commands(thread: &Thread) {
    HIDDEN.commands.unlock_of(thread.number);
}

functions! { in_order_until_wait commands:
    popen(command: *const c_char, kind: *const c_char) -> *mut c_void;
    pclose(stream: *mut c_void) -> c_int;
}

functions! { in_order_at_first names:
    getaddrinfo(node: *const c_char, service: *const c_char, hints: *const c_void, result: *mut *mut c_void) -> c_int;
    getnameinfo(
        address: *const c_void, length: u32, host: *mut c_char, host_size: u32, service: *mut c_char, service_size: u32, flags: c_int
    ) -> c_int;
    gethostbyname(name: *const c_char) -> *mut c_void;
    gethostbyname_r(
        name: *const c_char, result: *mut c_void, buffer: *mut c_char, size: usize, found: *mut *mut c_void, error: *mut c_int
    ) -> c_int;
    getpwnam(name: *const c_char) -> *mut c_void;
    getpwuid(user: c_uint) -> *mut c_void;
    getgrnam(name: *const c_char) -> *mut c_void;
    getgrgid(group: c_uint) -> *mut c_void;
    getpwnam_r(name: *const c_char, result: *mut c_void, buffer: *mut c_char, size: usize, found: *mut *mut c_void) -> c_int;
    getpwuid_r(user: c_uint, result: *mut c_void, buffer: *mut c_char, size: usize, found: *mut *mut c_void) -> c_int;
    getgrnam_r(name: *const c_char, result: *mut c_void, buffer: *mut c_char, size: usize, found: *mut *mut c_void) -> c_int;
    getgrgid_r(group: c_uint, result: *mut c_void, buffer: *mut c_char, size: usize, found: *mut *mut c_void) -> c_int;
}
