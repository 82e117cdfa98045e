//! The wall clock: functions that read it, and those that wait until it shows some time.
//!
//! What a replayed program reads is the time of the recording. So the deadlines that it computes
//! from that are moved back before libc gets them. Clocks that do not tell the time of day are not
//! touched.

use hindcast_taplog::pins::Reads;
use libc::{
    c_int, c_long, c_uint, c_void, clockid_t, itimerspec, mqd_t, pthread_cond_t, pthread_mutex_t,
    pthread_rwlock_t, pthread_t, sem_t, size_t, ssize_t, time_t, timespec, timeval,
};

use crate::pins;
use crate::real::real;

/// What a runtime's shim reads in the place of a clock that programs measure with.
const STOPWATCH: clockid_t = 0x4849_4e44;

fn is_wall(clock: clockid_t) -> bool {
    matches!(clock, libc::CLOCK_REALTIME | libc::CLOCK_REALTIME_COARSE)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn clock_gettime(clock: clockid_t, time: *mut timespec) -> c_int {
    // SAFETY: what the caller gave; where it succeeded the time is filled in.
    unsafe {
        if clock == STOPWATCH && !time.is_null() {
            *time = pins::timespec(pins::stopwatch());
            return 0;
        }
        let done = real!(fn clock_gettime(clockid_t, *mut timespec) -> c_int)(clock, time);
        if is_wall(clock) && done == 0 && !time.is_null() {
            *time = pins::timespec(pins::wall_clock(Reads::Instant, pins::nanos(&*time)));
        }
        done
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn timespec_get(time: *mut timespec, base: c_int) -> c_int {
    const UTC: c_int = 1;
    // SAFETY: what the caller gave; where it succeeded the time is filled in.
    unsafe {
        let done = real!(fn timespec_get(*mut timespec, c_int) -> c_int)(time, base);
        if done == UTC {
            *time = pins::timespec(pins::wall_clock(Reads::Instant, pins::nanos(&*time)));
        }
        done
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn gettimeofday(time: *mut timeval, zone: *mut c_void) -> c_int {
    // SAFETY: what the caller gave; where it succeeded the time is filled in.
    unsafe {
        let done = real!(fn gettimeofday(*mut timeval, *mut c_void) -> c_int)(time, zone);
        if done == 0 && !time.is_null() {
            let real = nanos_of(&*time);
            set(&mut *time, pins::wall_clock(Reads::Instant, real));
        }
        done
    }
}

/// Of this program or this thread; of children the time is not theirs who ask.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getrusage(who: c_int, usage: *mut libc::rusage) -> c_int {
    // SAFETY: what the caller gave; where it succeeded the times are filled in.
    unsafe {
        let done = real!(fn getrusage(c_int, *mut libc::rusage) -> c_int)(who, usage);
        if done == 0 && who != libc::RUSAGE_CHILDREN && !usage.is_null() {
            for used in [&mut (*usage).ru_utime, &mut (*usage).ru_stime] {
                let real = nanos_of(used);
                set(used, pins::processor_time(real));
            }
        }
        done
    }
}

fn nanos_of(time: &timeval) -> i64 {
    pins::nanos(&timespec {
        tv_sec: time.tv_sec,
        tv_nsec: time.tv_usec.saturating_mul(1000),
    })
}

fn set(time: &mut timeval, nanos: i64) {
    let shown = pins::timespec(nanos);
    time.tv_sec = shown.tv_sec;
    time.tv_usec = shown.tv_nsec / 1000;
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn time(place: *mut time_t) -> time_t {
    // SAFETY: what the caller gave.
    unsafe {
        let real = real!(fn time(*mut time_t) -> time_t)(std::ptr::null_mut());
        let real = timespec {
            tv_sec: real,
            tv_nsec: 0,
        };
        let shown = pins::timespec(pins::wall_clock(Reads::Second, pins::nanos(&real))).tv_sec;
        if !place.is_null() {
            *place = shown;
        }
        shown
    }
}

/// `struct timeb`.
#[repr(C)]
pub struct Moment {
    time: time_t,
    millitm: u16,
    timezone: i16,
    dstflag: i16,
}

/// As libc's, which only programs still find that were linked with an old one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftime(moment: *mut Moment) -> c_int {
    let mut now = timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: what the caller gave; the other memory is ours.
    unsafe {
        clock_gettime(libc::CLOCK_REALTIME, &mut now);
        *moment = Moment {
            time: now.tv_sec,
            millitm: (now.tv_nsec / 1_000_000) as u16,
            timezone: 0,
            dstflag: 0,
        };
    }
    0
}

/// A deadline, and in its place what libc is to wait for.
struct Deadline {
    given: *const timespec,
    moved: Option<timespec>,
}

impl Deadline {
    /// # Safety
    /// As for libc's functions: null, or a time.
    unsafe fn of(given: *const timespec) -> Self {
        // SAFETY: as the caller promises.
        let moved = unsafe { given.as_ref() }.and_then(pins::deadline);
        Self { given, moved }
    }

    fn place(&self) -> *const timespec {
        self.moved.as_ref().map_or(self.given, std::ptr::from_ref)
    }
}

/// Functions whose last argument is a deadline by the wall clock, or by another one that begins
/// with the machine.
macro_rules! until {
    ($($name:ident($($argument:ident: $kind:ty),*) -> $result:ty;)*) => {
        $(
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name(
                $($argument: $kind,)* deadline: *const timespec,
            ) -> $result {
                // SAFETY: what the caller gave.
                unsafe {
                    let deadline = Deadline::of(deadline);
                    real!(fn $name($($kind,)* *const timespec) -> $result)(
                        $($argument,)* deadline.place(),
                    )
                }
            }
        )*
    };
}

until! {
    pthread_cond_timedwait(condition: *mut pthread_cond_t, mutex: *mut pthread_mutex_t) -> c_int;
    pthread_cond_clockwait(
        condition: *mut pthread_cond_t, mutex: *mut pthread_mutex_t, clock: clockid_t
    ) -> c_int;
    pthread_mutex_timedlock(mutex: *mut pthread_mutex_t) -> c_int;
    pthread_mutex_clocklock(mutex: *mut pthread_mutex_t, clock: clockid_t) -> c_int;
    pthread_rwlock_timedrdlock(lock: *mut pthread_rwlock_t) -> c_int;
    pthread_rwlock_timedwrlock(lock: *mut pthread_rwlock_t) -> c_int;
    pthread_rwlock_clockrdlock(lock: *mut pthread_rwlock_t, clock: clockid_t) -> c_int;
    pthread_rwlock_clockwrlock(lock: *mut pthread_rwlock_t, clock: clockid_t) -> c_int;
    pthread_timedjoin_np(thread: pthread_t, result: *mut *mut c_void) -> c_int;
    pthread_clockjoin_np(thread: pthread_t, result: *mut *mut c_void, clock: clockid_t) -> c_int;
    sem_timedwait(semaphore: *mut sem_t) -> c_int;
    sem_clockwait(semaphore: *mut sem_t, clock: clockid_t) -> c_int;
    mq_timedreceive(
        queue: mqd_t, message: *mut c_void, length: size_t, priority: *mut c_uint
    ) -> ssize_t;
    mq_timedsend(
        queue: mqd_t, message: *const c_void, length: size_t, priority: c_uint
    ) -> c_int;
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn clock_nanosleep(
    clock: clockid_t,
    flags: c_int,
    until: *const timespec,
    left: *mut timespec,
) -> c_int {
    // SAFETY: what the caller gave.
    unsafe {
        let mut deadline = Deadline::of(until);
        if flags & libc::TIMER_ABSTIME == 0 {
            deadline.moved = None;
        }
        real!(fn clock_nanosleep(clockid_t, c_int, *const timespec, *mut timespec) -> c_int)(
            clock,
            flags,
            deadline.place(),
            left,
        )
    }
}

/// When a timer is to go off, if it is set to a time of day.
unsafe fn timer(is_absolute: bool, setting: *const itimerspec) -> Option<itimerspec> {
    // SAFETY: what the caller of libc gave.
    let setting = unsafe { setting.as_ref() }.filter(|_| is_absolute)?;
    let it_value = pins::deadline(&setting.it_value)?;
    Some(itimerspec {
        it_value,
        it_interval: setting.it_interval,
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn timer_settime(
    own: *mut c_void,
    flags: c_int,
    setting: *const itimerspec,
    before: *mut itimerspec,
) -> c_int {
    // SAFETY: what the caller gave.
    unsafe {
        let moved = timer(flags & libc::TIMER_ABSTIME != 0, setting);
        let setting = moved.as_ref().map_or(setting, std::ptr::from_ref);
        real!(fn timer_settime(*mut c_void, c_int, *const itimerspec, *mut itimerspec) -> c_int)(
            own, flags, setting, before,
        )
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn timerfd_settime(
    descriptor: c_int,
    flags: c_int,
    setting: *const itimerspec,
    before: *mut itimerspec,
) -> c_int {
    // SAFETY: what the caller gave.
    unsafe {
        let moved = timer(flags & libc::TFD_TIMER_ABSTIME != 0, setting);
        let setting = moved.as_ref().map_or(setting, std::ptr::from_ref);
        real!(fn timerfd_settime(c_int, c_int, *const itimerspec, *mut itimerspec) -> c_int)(
            descriptor, flags, setting, before,
        )
    }
}

/// Of the system call `futex`, made by `syscall`: what its fourth argument is to be.
///
/// # Safety
/// As for the system call.
pub unsafe fn futex<T>(operation: c_long, until: c_long, call: impl FnOnce(c_long) -> T) -> T {
    let waits = operation as c_int & libc::FUTEX_CMD_MASK == libc::FUTEX_WAIT_BITSET;
    let is_wall = operation as c_int & libc::FUTEX_CLOCK_REALTIME != 0;
    let given: *const timespec = std::ptr::with_exposed_provenance(until as usize);
    // SAFETY: this operation's fourth argument is null or a time.
    let moved = match waits && is_wall {
        true => unsafe { Deadline::of(given) }.moved,
        false => None,
    };
    call(moved.as_ref().map_or(until, |moved| {
        std::ptr::from_ref(moved).expose_provenance() as c_long
    }))
}
