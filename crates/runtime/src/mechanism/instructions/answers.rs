//! What the instructions answer: in recording what the processor says, in replay what it said then.

use std::arch::asm;
use std::arch::x86_64::{__cpuid_count, __rdtscp, _rdtsc};
use std::sync::atomic::{AtomicU8, Ordering};

use hindcast_execlog::event::Kind;

use super::decode::{Random, Source};
use super::settings::{PR_TSC_ENABLE, PR_TSC_SIGSEGV, cpuid_faults, set_cpuid, set_timestamp};
use crate::mechanism::divergence::Actual;
use crate::mechanism::{divergence, log};
use crate::state::mode::{Mode, mode};
use crate::state::thread::Current;

/// The time stamp counter and the processor's number.
pub fn timestamp(thread: Option<&mut Current>) -> (u64, u32) {
    let Some(thread) = thread else {
        return read_timestamp();
    };
    if let Some(payload) = expect::<12>(thread, Kind::Tsc, "rdtsc") {
        let [a, b, c, d, e, f, g, h, processor @ ..] = payload;
        return (
            u64::from_ne_bytes([a, b, c, d, e, f, g, h]),
            u32::from_ne_bytes(processor),
        );
    }
    let now = read_timestamp();
    thread
        .writer
        .append(Kind::Tsc, &[&now.0.to_ne_bytes(), &now.1.to_ne_bytes()]);
    now
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
    static KNOWN: AtomicU8 = AtomicU8::new(0);
    match KNOWN.load(Ordering::Relaxed) {
        0 => {
            let has = read_cpuid([0x8000_0001, 0])[3] & 1 << 27 != 0;
            KNOWN.store(1 + u8::from(has), Ordering::Relaxed);
            has
        }
        known => known == 2,
    }
}

/// A random number, and whether there was one. Only as many bytes of it as the instruction asks for
/// mean anything.
pub fn random(thread: Option<&mut Current>, source: Source) -> (u64, bool) {
    let Some(thread) = thread else {
        let (value, there) = draw(source);
        return (value, there != 0);
    };
    if let Some(payload) = expect::<9>(thread, Kind::Random, "rdrand") {
        let [a, b, c, d, e, f, g, h, there] = payload;
        return (u64::from_ne_bytes([a, b, c, d, e, f, g, h]), there != 0);
    }
    let (value, there) = draw(source);
    thread
        .writer
        .append(Kind::Random, &[&value.to_ne_bytes(), &[there]]);
    (value, there != 0)
}

fn draw(source: Source) -> (u64, u8) {
    let (value, there): (u64, u8);
    // SAFETY: the program executes it on this very processor.
    unsafe {
        match source {
            Source::Rdrand => {
                asm!("rdrand {}", "setc {}", out(reg) value, out(reg_byte) there, options(nomem, nostack))
            }
            Source::Rdseed => {
                asm!("rdseed {}", "setc {}", out(reg) value, out(reg_byte) there, options(nomem, nostack))
            }
        }
    }
    (value, there)
}

/// What a register holds that held `old`, after a random number was put into it.
pub fn with_random(old: u64, value: u64, random: Random) -> u64 {
    match random.bytes {
        2 => old & !0xffff | value & 0xffff,
        // The upper half becomes zero, as with every instruction that writes 32 bits.
        4 => value & 0xffff_ffff,
        _ => value,
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

/// The answer to a leaf and a subleaf: `eax`, `ebx`, `ecx`, `edx`.
pub fn cpuid(thread: Option<&mut Current>, question: [u32; 2]) -> [u32; 4] {
    let question = if has_subleaves(question[0]) {
        question
    } else {
        [question[0], 0]
    };
    let ask = || without_surprises(question, read_cpuid(question));
    let Some(thread) = thread else {
        return ask();
    };
    if let Some(payload) = expect::<24>(thread, Kind::Cpuid, "cpuid") {
        let word =
            |index: usize| u32::from_ne_bytes([0, 1, 2, 3].map(|byte| payload[index * 4 + byte]));
        if [word(0), word(1)] != question {
            let event = thread.reader.peek();
            divergence::diverged(thread, event, Actual::Step("cpuid of another leaf"));
        }
        return [2, 3, 4, 5].map(word);
    }
    let [a, b, c, d] = ask();
    let words = [question[0], question[1], a, b, c, d].map(u32::to_ne_bytes);
    thread.writer.append(Kind::Cpuid, &[words.as_flattened()]);
    [a, b, c, d]
}

fn read_cpuid([leaf, subleaf]: [u32; 2]) -> [u32; 4] {
    let faults = cpuid_faults();
    if faults {
        set_cpuid(true);
    }
    let answer = __cpuid_count(leaf, subleaf);
    if faults {
        set_cpuid(false);
    }
    [answer.eax, answer.ebx, answer.ecx, answer.edx]
}

/// An answer of `cpuid` without what would differ in replay and cannot be recorded, or not cheaply.
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

/// What the log has for this. `None`: nothing, and the processor is to be asked.
fn expect<const N: usize>(thread: &mut Current, kind: Kind, what: &str) -> Option<[u8; N]> {
    if mode() != Mode::Replay {
        return None;
    }
    let event = log::expect_event(thread, kind as u16)?;
    match event.payload.first_chunk::<N>() {
        Some(payload) if event.kind == kind as u16 => {
            thread.reader.advance(&event);
            Some(*payload)
        }
        _ => divergence::diverged(thread, Some(event), Actual::Step(what)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::disarm;
    use super::super::settings::timestamp_faults;
    use super::*;

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

    #[test]
    fn a_random_number_fills_as_much_of_a_register_as_the_instruction_says() {
        let check = |bytes, expected: u64| {
            let random = Random {
                source: Source::Rdrand,
                register: 0,
                bytes,
            };
            let made = with_random(0x1111_2222_3333_4444, 0xaaaa_bbbb_cccc_dddd, random);
            assert_eq!(made, expected, "{bytes} bytes");
        };
        check(2, 0x1111_2222_3333_dddd);
        check(4, 0xcccc_dddd);
        check(8, 0xaaaa_bbbb_cccc_dddd);
    }

    #[test]
    fn reading_leaves_the_settings_as_they_were() {
        let test = std::thread::spawn(|| {
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
        test.join().expect("the thread returns");
    }
}
