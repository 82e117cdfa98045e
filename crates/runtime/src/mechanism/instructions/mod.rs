//! Instructions that answer differently on every run: `rdtsc`, `rdtscp`, `cpuid`, `rdrand`,
//! `rdseed`, `rdpid`.
//!
//! ```text
//!   rdtsc, rdtscp                    the kernel lets them fault                  ┐
//!   cpuid, rdrand, rdseed, rdpid     found in code as it is mapped (find),       ├─ fault ──▶ answers: recorded, or replayed
//!                                    a trap in their place (replace)             │
//!   cpuid, where the processor can   the kernel lets it fault, too               ┘
//! ```
//!
//! The fault's handler executes the instruction and records what it said, or replays that. `cpuid`
//! says that there are no random numbers of the processor, no transactions in memory, which abort
//! when they like, and no `rdpid`: so most programs do not use them. What is not found (code that
//! the program makes itself and never protects, code that cannot be decoded) still meets a
//! `cpuid` that faults on processors that can do that ([why
//! both](../../../../../docs/design/0024-instructions.md)).
//!
//! What it costs, on a virtual machine: 2.5 µs instead of 12 ns for `rdtsc`, 6 to 8 µs instead of
//! 0.8 µs for `cpuid`. Hardly any program notices; one that measures itself by reading the time
//! stamp counter in a hot loop does, and can be recorded without (`instructions` of the
//! configuration).
//!
//! The settings belong to the thread. New threads and forked children inherit them. A new image
//! does not inherit the one for `cpuid`, but the one for `rdtsc`, which its loader executes before
//! anything of ours is there: so it is taken back before `execve` ([`disarm`]).

mod answers;
mod code;
mod decode;
mod find;
pub mod replace;
pub mod settings;

use std::sync::atomic::Ordering;

use hindcast_execlog::config::Instructions;
use hindcast_execlog::event::Kind;

pub use self::code::{made, mapped, replace_as_recorded};
use self::decode::Instruction;
pub use self::settings::disarm;
use self::settings::{
    PR_TSC_SIGSEGV, cpuid_faults, set_cpuid, set_timestamp, set_way, timestamp_faults, way,
};
use crate::mechanism::{divergence, log};
use crate::state::mode::{Mode, mode};
use crate::state::recording;
use crate::state::thread::{Asking, Current, REPLAY, Thread};

/// `si_code` of a fault that the processor raised for a reason the kernel has no code for.
const SI_KERNEL: i32 = 0x80;

/// Libraries ask which processor they are on when they are loaded, or when they are used first. A
/// thread for which `cpuid` faults costs a virtual machine 1.5 µs more at every switch to and from
/// it, a server's thread a fifth of its time. So it ends once a thread has waited this often.
const WAITS: u32 = 1000;

/// Takes the instructions over in a new image, before the program runs.
pub fn start(thread: &mut Current) {
    let way = match mode() {
        Mode::Record => {
            let mut way = recording::config().instructions();
            if way == Instructions::Faulting && !set_cpuid(false) {
                way = Instructions::Replaced;
            }
            let number = way as u32;
            thread.writer.append(Kind::Start, &[&number.to_ne_bytes()]);
            way
        }
        Mode::Off => return,
        Mode::Replay => {
            let event = log::expect_first(thread, Kind::Start as u16);
            let number = event
                .payload
                .first_chunk::<4>()
                .filter(|_| event.kind == Kind::Start as u16);
            let Some(number) = number else {
                divergence::unusable(
                    format_args!("the log lacks how instructions were recorded"),
                    "Record again.",
                )
            };
            thread.reader.advance(&event);
            Instructions::from_number(u32::from_ne_bytes(*number))
        }
    };
    if mode() == Mode::Off {
        // There was no room for that.
        return disarm();
    }
    set_way(way);
    arm(thread);
    match mode() {
        _ if way == Instructions::Free => {}
        Mode::Record => {
            // SAFETY: the callback gets the thread it expects.
            unsafe { libc::dl_iterate_phdr(Some(code::of_image), (&raw mut *thread).cast()) };
        }
        _ => replace_as_recorded(thread),
    }
}

/// Makes `rdtsc` fault in the calling thread, and `cpuid` where the recording has that.
pub fn arm(thread: &mut Current) {
    if way() == Instructions::Free {
        return;
    }
    if !set_timestamp(PR_TSC_SIGSEGV) {
        recording::warn(format_args!(
            "the time stamp counter is not recorded: the kernel does not let it trap"
        ));
    }
    thread.asking = Asking {
        traps: way() == Instructions::Faulting && set_cpuid(false),
        waits: 0,
    };
}

/// After [`disarm`] for an image that was not executed: as it was.
pub fn rearm(thread: &Thread) {
    if way() != Instructions::Free {
        set_timestamp(PR_TSC_SIGSEGV);
        if thread.asking.traps {
            set_cpuid(false);
        }
    }
}

/// The thread is about to wait for something outside. In both runs.
#[inline(always)]
pub fn waits(thread: &mut Current) {
    if thread.asking.traps {
        thread.asking.waits += 1;
        if thread.asking.waits == WAITS {
            thread.asking.traps = false;
            set_cpuid(true);
        }
    }
}

/// The thread maps code: a library is being loaded, which will ask. In both runs.
pub fn loads_code(thread: &mut Current) {
    if way() == Instructions::Faulting {
        thread.asking.waits = 0;
        if !thread.asking.traps {
            thread.asking.traps = set_cpuid(false);
        }
    }
}

/// As the processor numbers them.
const REGISTERS: [i32; 16] = [
    libc::REG_RAX,
    libc::REG_RCX,
    libc::REG_RDX,
    libc::REG_RBX,
    libc::REG_RSP,
    libc::REG_RBP,
    libc::REG_RSI,
    libc::REG_RDI,
    libc::REG_R8,
    libc::REG_R9,
    libc::REG_R10,
    libc::REG_R11,
    libc::REG_R12,
    libc::REG_R13,
    libc::REG_R14,
    libc::REG_R15,
];
/// The flags that `rdrand` sets to zero, and carry, which says whether there was a number.
const ARITHMETIC_FLAGS: i64 = 0x8d5;
const CARRY: i64 = 1;

/// A `SIGSEGV`: executes the instruction if it is one of ours, and says so.
///
/// # Safety
/// The arguments are those of the thread's signal handler.
pub unsafe fn fault(
    thread: Option<&mut Current>,
    information: *const libc::siginfo_t,
    context: *mut libc::ucontext_t,
) -> bool {
    // SAFETY: the caller's promise.
    let (code, registers) = unsafe { ((*information).si_code, &mut (*context).uc_mcontext.gregs) };
    if code != SI_KERNEL {
        return false;
    }
    let address = registers[libc::REG_RIP as usize] as usize;
    // SAFETY: a fault of this kind is the instruction's own, not one of fetching it.
    let Some((instruction, length, replaced)) = (unsafe { replace::instruction_at(address) })
    else {
        return false;
    };
    if mode() == Mode::Off && !replaced {
        let ours = timestamp_faults() || cpuid_faults() || replace::first_byte(address).is_some();
        if ours {
            // It runs by itself when the handler returns.
            disarm();
        }
        return ours;
    }
    if way() == Instructions::Free {
        return false;
    }
    let thread = thread.filter(|thread| thread.selector.load(Ordering::Relaxed) == REPLAY);
    execute(thread, instruction, registers);
    registers[libc::REG_RIP as usize] += length as i64;
    if mode() == Mode::Off {
        disarm();
    }
    true
}

fn execute(thread: Option<&mut Current>, instruction: Instruction, registers: &mut [i64; 23]) {
    let mut set = |register: i32, value: u64| registers[register as usize] = value as i64;
    match instruction {
        Instruction::Rdtsc | Instruction::Rdtscp => {
            let (time, processor) = answers::timestamp(thread);
            set(libc::REG_RAX, time & 0xffff_ffff);
            set(libc::REG_RDX, time >> 32);
            if instruction == Instruction::Rdtscp {
                set(libc::REG_RCX, processor.into());
            }
        }
        Instruction::Rdpid { register } => {
            let (_, processor) = answers::timestamp(thread);
            set(REGISTERS[usize::from(register)], processor.into());
        }
        Instruction::Cpuid => {
            let question =
                [libc::REG_RAX, libc::REG_RCX].map(|register| registers[register as usize] as u32);
            let answer = answers::cpuid(thread, question);
            let into = [libc::REG_RAX, libc::REG_RBX, libc::REG_RCX, libc::REG_RDX];
            for (register, value) in into.into_iter().zip(answer) {
                registers[register as usize] = value.into();
            }
        }
        Instruction::Random(random) => {
            let (value, there) = answers::random(thread, random.source);
            let register = &mut registers[REGISTERS[usize::from(random.register)] as usize];
            *register = answers::with_random(*register as u64, value, random) as i64;
            let flags = &mut registers[libc::REG_EFL as usize];
            *flags = *flags & !ARITHMETIC_FLAGS | if there { CARRY } else { 0 };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs in a thread of its own, which the settings end with.
    fn in_a_thread<R: Send + 'static>(inner: impl FnOnce() -> R + Send + 'static) -> R {
        std::thread::spawn(inner)
            .join()
            .expect("the thread returns")
    }

    #[test]
    fn threads_and_forked_children_inherit_the_settings() {
        in_a_thread(|| {
            assert!(set_timestamp(PR_TSC_SIGSEGV));
            let has_cpuid = set_cpuid(false);
            assert!(timestamp_faults());
            assert_eq!(cpuid_faults(), has_cpuid);
            assert!(in_a_thread(
                move || timestamp_faults() && cpuid_faults() == has_cpuid
            ));
            // SAFETY: the child makes two system calls and ends.
            unsafe {
                let child = libc::fork();
                if child == 0 {
                    libc::_exit(i32::from(
                        !(timestamp_faults() && cpuid_faults() == has_cpuid),
                    ));
                }
                let mut status = -1;
                assert_eq!(libc::waitpid(child, &mut status, 0), child);
                assert_eq!(status, 0);
            }
            disarm();
            assert!(!timestamp_faults() && !cpuid_faults());
        });
    }
}
