//! What threads of a recorder have to processors.

/// How much sooner than others who empties rings is to have one, where that may be asked for.
const AHEAD: i32 = -10;
/// How long it runs at a time, in nanoseconds: who asks for less has its turn sooner (Linux 6.12).
const SLICE: u64 = 200_000;

/// As `sched_setattr(2)` has it, in its first version.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
}

/// The calling thread has its turn soon, and for a short time: what it is waited for by is a ring
/// that overflows. What it does in all is the same.
pub(super) fn go_first() {
    let ask = |nice| {
        let attributes = Attributes {
            size: size_of::<Attributes>() as u32,
            nice,
            runtime: SLICE,
            ..Attributes::default()
        };
        // SAFETY: the structure is as long as it says; zero is the calling thread.
        let done = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
        done == 0
    };
    // SAFETY: no memory is involved; zero is the calling thread.
    let now = unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
    if !ask(now + AHEAD) && !ask(now) {
        tracing::debug!("the priority of who empties rings stays as it is");
    }
}

/// The calling thread runs only where a processor has nothing else to do, and so do those that it
/// starts.
pub fn give_way() {
    // SAFETY: all zeroes is what the structure is to hold; zero is the calling thread.
    let done = unsafe {
        let parameters: libc::sched_param = std::mem::zeroed();
        libc::sched_setscheduler(0, libc::SCHED_IDLE, &parameters)
    };
    if done != 0 {
        tracing::debug!("the priority of the recorder's thread stays as it is");
    }
}
