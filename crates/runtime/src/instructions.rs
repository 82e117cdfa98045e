//! Instructions that answer differently on every run: `rdtsc`, `rdtscp`, `cpuid`, and through the latter `rdrand`.
//!
//! The kernel can make the first three fault. The fault's handler executes them and records what they said, or replays that.
//! `rdrand` and `rdseed` cannot be made to fault; but whoever uses them asks `cpuid` first, and is told that there are none. The
//! same goes for transactions in memory, which abort when they like, and for `rdpid`.
//!
//! What it costs, on a virtual machine: 2.5 µs instead of 12 ns for `rdtsc`, 6 to 8 µs instead of 0.8 µs for `cpuid`. Hardly any
//! program notices; one that measures itself by reading the time stamp counter in a hot loop does, and can be recorded without
//! (`trap_instructions` of the configuration).
//!
//! The settings belong to the thread. New threads and forked children inherit them. A new image does not inherit the one for
//! `cpuid`, but the one for `rdtsc`, which its loader executes before anything of ours is there: so it is taken back before
//! `execve` ([`disarm`]).

use std::arch::x86_64::{__cpuid_count, __rdtscp, _rdtsc};

use hindcast_execlog::event::Kind;

use crate::divergence::{self, Actual};
use crate::mode::{Mode, mode};
use crate::thread::{REPLAY, Thread};
use crate::{init, raw, syscall};

const ARCH_GET_CPUID: i32 = 0x1011;
const ARCH_CPUID: i32 = 0x1012;
const PR_GET_TSC: i32 = 25;
const PR_SET_TSC: i32 = 26;
const PR_TSC_ENABLE: usize = 1;
const PR_TSC_SIGSEGV: usize = 2;
/// `si_code` of a fault that the processor raised for a reason the kernel has no code for.
const SI_KERNEL: i32 = 0x80;

fn set_timestamp(setting: usize) -> bool {
    // SAFETY: changes what one instruction does in this thread.
    raw::error_of(unsafe { syscall!(libc::SYS_prctl, PR_SET_TSC, setting) }).is_none()
}

fn set_cpuid(enabled: bool) -> bool {
    // SAFETY: as above.
    raw::error_of(unsafe { syscall!(libc::SYS_arch_prctl, ARCH_CPUID, usize::from(enabled)) })
        .is_none()
}

fn timestamp_faults() -> bool {
    let mut setting = 0i32;
    // SAFETY: writes one number.
    raw::error_of(unsafe { syscall!(libc::SYS_prctl, PR_GET_TSC, &raw mut setting) }).is_none()
        && setting as usize == PR_TSC_SIGSEGV
}

fn cpuid_faults() -> bool {
    // SAFETY: no memory is involved.
    unsafe { syscall!(libc::SYS_arch_prctl, ARCH_GET_CPUID, 0) == 0 }
}

/// Until when `cpuid` faults. Both runs count the same.
#[derive(Default)]
pub struct Asking {
    traps: bool,
    waits: u32,
}

/// Libraries ask which processor they are on when they are loaded, or when they are used first. A thread for which `cpuid` faults
/// costs a virtual machine 1.5 µs more at every switch to and from it, a server's thread a fifth of its time. So it ends once a
/// thread has waited this often.
const WAITS: u32 = 1000;

/// Makes `rdtsc` and `cpuid` fault in the calling thread. What this machine cannot do is noted in the recording.
pub fn arm(thread: &mut Thread) {
    if !set_timestamp(PR_TSC_SIGSEGV) {
        init::warn(format_args!(
            "the time stamp counter is not recorded: the kernel does not let it trap"
        ));
    }
    thread.asking = Asking {
        traps: set_cpuid(false),
        waits: 0,
    };
    if !thread.asking.traps {
        init::warn(format_args!(
            "the program may use random numbers of the processor, which are not recorded: this machine does not let cpuid trap"
        ));
    }
}

/// After [`disarm`] for an image that was not executed: as it was.
pub fn rearm(thread: &Thread) {
    if init::config().trap_instructions != 0 {
        set_timestamp(PR_TSC_SIGSEGV);
        set_cpuid(!thread.asking.traps);
    }
}

/// The thread is about to wait for something outside. In both runs.
#[inline(always)]
pub fn waits(thread: &mut Thread) {
    if thread.asking.traps {
        thread.asking.waits += 1;
        if thread.asking.waits == WAITS {
            thread.asking.traps = false;
            set_cpuid(true);
        }
    }
}

/// The thread maps code: a library is being loaded, which will ask. In both runs.
pub fn loads_code(thread: &mut Thread) {
    if init::config().trap_instructions != 0 {
        thread.asking.waits = 0;
        if !thread.asking.traps {
            thread.asking.traps = set_cpuid(false);
        }
    }
}

/// Lets the instructions run again in the calling thread: before `execve`, and after a detach. A thread that faults after a
/// detach comes here by itself.
pub fn disarm() {
    set_timestamp(PR_TSC_ENABLE);
    set_cpuid(true);
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Instruction {
    Rdtsc,
    Rdtscp,
    Cpuid,
}

/// The instruction at an address, and its length. Reads only as far as it is one of ours so far.
///
/// # Safety
/// An instruction that was just executed is at the address.
unsafe fn decode(address: *const u8) -> Option<(Instruction, usize)> {
    // SAFETY: a byte is read only if those before it say that the instruction goes on.
    unsafe {
        let mut length = 0;
        // Prefixes without a meaning here: operand size, repetition, REX.
        while length < 4 && matches!(*address.add(length), 0x66 | 0xf2 | 0xf3 | 0x40..=0x4f) {
            length += 1;
        }
        if *address.add(length) != 0x0f {
            return None;
        }
        match *address.add(length + 1) {
            0x31 => Some((Instruction::Rdtsc, length + 2)),
            0xa2 => Some((Instruction::Cpuid, length + 2)),
            0x01 if *address.add(length + 2) == 0xf9 => Some((Instruction::Rdtscp, length + 3)),
            _ => None,
        }
    }
}

/// A `SIGSEGV`: executes the instruction if it is one of ours, and says so.
///
/// # Safety
/// The arguments are those of the thread's signal handler.
pub unsafe fn fault(
    thread: Option<&mut Thread>,
    information: *const libc::siginfo_t,
    context: *mut libc::ucontext_t,
) -> bool {
    // SAFETY: the caller's promise; a fault of this kind is the instruction's own, not one of fetching it.
    unsafe {
        if (*information).si_code != SI_KERNEL {
            return false;
        }
        let registers = &mut (*context).uc_mcontext.gregs;
        let Some((instruction, length)) = decode(registers[libc::REG_RIP as usize] as *const u8)
        else {
            return false;
        };
        if mode() == Mode::Off {
            let ours = timestamp_faults() || cpuid_faults();
            if ours {
                // It runs by itself when the handler returns.
                disarm();
            }
            return ours;
        }
        if init::config().trap_instructions == 0 {
            return false;
        }
        let thread = thread
            .filter(|thread| thread.selector.load(std::sync::atomic::Ordering::Relaxed) == REPLAY);
        match instruction {
            Instruction::Rdtsc | Instruction::Rdtscp => {
                let (time, processor) = exchange_timestamp(thread);
                registers[libc::REG_RAX as usize] = i64::from(time as u32);
                registers[libc::REG_RDX as usize] = (time >> 32) as i64;
                if instruction == Instruction::Rdtscp {
                    registers[libc::REG_RCX as usize] = i64::from(processor);
                }
            }
            Instruction::Cpuid => {
                let question = [
                    registers[libc::REG_RAX as usize] as u32,
                    registers[libc::REG_RCX as usize] as u32,
                ];
                let [a, b, c, d] = exchange_cpuid(thread, question);
                for (register, value) in [
                    (libc::REG_RAX, a),
                    (libc::REG_RBX, b),
                    (libc::REG_RCX, c),
                    (libc::REG_RDX, d),
                ] {
                    registers[register as usize] = i64::from(value);
                }
            }
        }
        registers[libc::REG_RIP as usize] += length as i64;
        true
    }
}

/// The time stamp counter and the processor's number.
fn exchange_timestamp(thread: Option<&mut Thread>) -> (u64, u32) {
    match (thread, mode()) {
        (Some(thread), Mode::Replay) => {
            let payload: [u8; 12] = expect(thread, Kind::Tsc, "rdtsc");
            let [a, b, c, d, e, f, g, h, processor @ ..] = payload;
            (
                u64::from_ne_bytes([a, b, c, d, e, f, g, h]),
                u32::from_ne_bytes(processor),
            )
        }
        (thread, _) => {
            let now = read_timestamp();
            if let Some(thread) = thread {
                thread
                    .writer
                    .append(Kind::Tsc, &[&now.0.to_ne_bytes(), &now.1.to_ne_bytes()]);
            }
            now
        }
    }
}

fn read_timestamp() -> (u64, u32) {
    set_timestamp(PR_TSC_ENABLE);
    let mut processor = 0;
    // SAFETY: every processor has one of the two.
    let time = unsafe {
        if has_rdtscp() {
            __rdtscp(&mut processor)
        } else {
            _rdtsc()
        }
    };
    set_timestamp(PR_TSC_SIGSEGV);
    (time, processor)
}

fn has_rdtscp() -> bool {
    static KNOWN: std::sync::atomic::AtomicU8 = std::sync::atomic::AtomicU8::new(0);
    match KNOWN.load(std::sync::atomic::Ordering::Relaxed) {
        0 => {
            let has = read_cpuid([0x8000_0001, 0])[3] & 1 << 27 != 0;
            KNOWN.store(1 + u8::from(has), std::sync::atomic::Ordering::Relaxed);
            has
        }
        known => known == 2,
    }
}

/// Leaves whose answer depends on the second number. For others it is whatever lay in the register.
fn has_subleaves(leaf: u32) -> bool {
    matches!(
        leaf,
        0x4 | 0x7 | 0xb | 0xd | 0xf | 0x10 | 0x12 | 0x14 | 0x17 | 0x18 | 0x1a
            ..=0x24 | 0x8000_001d | 0x8000_0020 | 0x8000_0026
    )
}

fn exchange_cpuid(thread: Option<&mut Thread>, question: [u32; 2]) -> [u32; 4] {
    let question = if has_subleaves(question[0]) {
        question
    } else {
        [question[0], 0]
    };
    match (thread, mode()) {
        (Some(thread), Mode::Replay) => {
            let payload: [u8; 24] = expect(thread, Kind::Cpuid, "cpuid");
            let word = |index: usize| {
                u32::from_ne_bytes([0, 1, 2, 3].map(|byte| payload[index * 4 + byte]))
            };
            if [word(0), word(1)] != question {
                let event = thread.reader.peek();
                divergence::diverged(thread, event, Actual::Step("cpuid of another leaf"));
            }
            [2, 3, 4, 5].map(word)
        }
        (thread, _) => {
            let answer = without_surprises(question, read_cpuid(question));
            if let Some(thread) = thread {
                let words = [
                    question[0],
                    question[1],
                    answer[0],
                    answer[1],
                    answer[2],
                    answer[3],
                ]
                .map(u32::to_ne_bytes);
                thread.writer.append(Kind::Cpuid, &[words.as_flattened()]);
            }
            answer
        }
    }
}

fn read_cpuid([leaf, subleaf]: [u32; 2]) -> [u32; 4] {
    set_cpuid(true);
    let answer = __cpuid_count(leaf, subleaf);
    set_cpuid(false);
    [answer.eax, answer.ebx, answer.ecx, answer.edx]
}

/// An answer of `cpuid` without what would differ in replay and cannot be recorded.
fn without_surprises([leaf, subleaf]: [u32; 2], [a, mut b, mut c, d]: [u32; 4]) -> [u32; 4] {
    match (leaf, subleaf) {
        // rdrand
        (1, _) => c &= !(1 << 30),
        (7, 0) => {
            // Elided locks, rdseed, transactions.
            b &= !(1 << 4 | 1 << 18 | 1 << 11);
            // Waiting for a time, the processor's number.
            c &= !(1 << 5 | 1 << 22);
        }
        _ => {}
    }
    [a, b, c, d]
}

fn expect<const N: usize>(thread: &mut Thread, kind: Kind, what: &str) -> [u8; N] {
    let event = divergence::expect_event(thread, kind as u16);
    match event.payload.first_chunk::<N>() {
        Some(payload) if event.kind == kind as u16 => {
            thread.reader.advance(&event);
            *payload
        }
        _ => divergence::diverged(thread, Some(event), Actual::Step(what)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(code: &[u8], expected: Option<(Instruction, usize)>) {
        let mut code = code.to_vec();
        code.extend([0x90; 4]);
        // SAFETY: bytes enough for every instruction that begins like this.
        assert_eq!(unsafe { decode(code.as_ptr()) }, expected, "{code:x?}");
    }

    #[test]
    fn the_three_instructions_are_known_by_their_bytes() {
        check(&[0x0f, 0x31], Some((Instruction::Rdtsc, 2)));
        check(&[0x0f, 0x01, 0xf9], Some((Instruction::Rdtscp, 3)));
        check(&[0x0f, 0xa2], Some((Instruction::Cpuid, 2)));
        check(&[0x48, 0x0f, 0x31], Some((Instruction::Rdtsc, 3)));
        // syscall, monitor, a load
        check(&[0x0f, 0x05], None);
        check(&[0x0f, 0x01, 0xc8], None);
        check(&[0x8b, 0x00], None);
    }

    #[test]
    fn cpuid_has_no_random_numbers() {
        let all = [u32::MAX; 4];
        assert_eq!(
            without_surprises([1, 0], all),
            [u32::MAX, u32::MAX, !(1 << 30), u32::MAX]
        );
        assert_eq!(without_surprises([7, 0], all)[1] & 1 << 18, 0);
        assert_eq!(without_surprises([7, 1], all), all);
        assert_eq!(without_surprises([0, 0], all), all);
    }

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

    #[test]
    fn reading_leaves_the_settings_as_they_were() {
        in_a_thread(|| {
            set_timestamp(PR_TSC_SIGSEGV);
            let has_cpuid = set_cpuid(false);
            let (first, _) = read_timestamp();
            let (second, _) = read_timestamp();
            assert!(second > first);
            let vendor = read_cpuid([0, 0]);
            assert!(vendor[0] >= 1);
            assert!(timestamp_faults());
            assert_eq!(cpuid_faults(), has_cpuid);
            disarm();
        });
    }
}
