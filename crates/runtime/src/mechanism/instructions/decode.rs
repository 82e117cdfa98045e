//! What the bytes of an instruction say, for those instructions that answer differently on every
//! run.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Instruction {
    Rdtsc,
    Rdtscp,
    Cpuid,
    /// The processor's number, into a register of 64 bits.
    Rdpid {
        register: u8,
    },
    Random(Random),
}

/// `rdrand` or `rdseed`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Random {
    pub source: Source,
    /// As the processor numbers them: 0 is `rax`, 15 is `r15`.
    pub register: u8,
    /// How much of the register is written: 2, 4 or 8.
    pub bytes: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    Rdrand,
    Rdseed,
}

/// The instruction that begins with byte 0, and its length. Asks for a byte only if those before it
/// say that it goes on.
pub fn decode(byte: impl Fn(usize) -> Option<u8>) -> Option<(Instruction, usize)> {
    let mut length = 0;
    let (mut short, mut repeated, mut rex) = (false, None, 0);
    let opcode = loop {
        match byte(length)? {
            0x0f => break byte(length + 1)?,
            0x66 => (short, rex) = (true, 0),
            prefix @ (0xf2 | 0xf3) => (repeated, rex) = (Some(prefix), 0),
            // It counts only directly before the opcode.
            prefix @ 0x40..=0x4f => rex = prefix,
            _ => return None,
        }
        length += 1;
        if length > 4 {
            return None;
        }
    };
    Some(match opcode {
        0x31 => (Instruction::Rdtsc, length + 2),
        0xa2 => (Instruction::Cpuid, length + 2),
        0x01 if byte(length + 2)? == 0xf9 => (Instruction::Rdtscp, length + 3),
        0xc7 => {
            let operand = byte(length + 2)?;
            let register = operand & 7 | (rex & 1) << 3;
            let bytes = match (rex & 8 != 0, short) {
                (true, _) => 8,
                (false, true) => 2,
                (false, false) => 4,
            };
            let random = |source| {
                Instruction::Random(Random {
                    source,
                    register,
                    bytes,
                })
            };
            let instruction = match (operand & 0xf8, repeated) {
                (0xf0, None) => random(Source::Rdrand),
                (0xf8, None) => random(Source::Rdseed),
                (0xf8, Some(0xf3)) => Instruction::Rdpid { register },
                _ => return None,
            };
            (instruction, length + 3)
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(code: &[u8], expected: Option<(Instruction, usize)>) {
        assert_eq!(
            decode(|index| code.get(index).copied()),
            expected,
            "{code:x?}"
        );
    }

    fn random(source: Source, register: u8, bytes: u8) -> Instruction {
        Instruction::Random(Random {
            source,
            register,
            bytes,
        })
    }

    #[test]
    fn the_instructions_are_known_by_their_bytes() {
        use Source::{Rdrand, Rdseed};
        check(&[0x0f, 0x31], Some((Instruction::Rdtsc, 2)));
        check(&[0x0f, 0x01, 0xf9], Some((Instruction::Rdtscp, 3)));
        check(&[0x0f, 0xa2], Some((Instruction::Cpuid, 2)));
        check(&[0x48, 0x0f, 0x31], Some((Instruction::Rdtsc, 3)));
        check(&[0x0f, 0xc7, 0xf0], Some((random(Rdrand, 0, 4), 3)));
        check(&[0x0f, 0xc7, 0xfb], Some((random(Rdseed, 3, 4), 3)));
        check(&[0x66, 0x0f, 0xc7, 0xf1], Some((random(Rdrand, 1, 2), 4)));
        check(&[0x48, 0x0f, 0xc7, 0xf2], Some((random(Rdrand, 2, 8), 4)));
        check(&[0x41, 0x0f, 0xc7, 0xff], Some((random(Rdseed, 15, 4), 4)));
        check(
            &[0x66, 0x49, 0x0f, 0xc7, 0xf0],
            Some((random(Rdrand, 8, 8), 5)),
        );
        // Prefixes behind it take the REX prefix its meaning.
        check(
            &[0x48, 0x66, 0x0f, 0xc7, 0xf0],
            Some((random(Rdrand, 0, 2), 5)),
        );
        check(
            &[0xf3, 0x41, 0x0f, 0xc7, 0xf9],
            Some((Instruction::Rdpid { register: 9 }, 5)),
        );
        // syscall, monitor, a load, cmpxchg8b, senduipi, half an instruction
        check(&[0x0f, 0x05], None);
        check(&[0x0f, 0x01, 0xc8], None);
        check(&[0x8b, 0x00], None);
        check(&[0x0f, 0xc7, 0x0f], None);
        check(&[0xf3, 0x0f, 0xc7, 0xf0], None);
        check(&[0x48, 0x0f], None);
    }

    /// Every encoding with up to two prefixes means what a disassembler says, too.
    #[test]
    fn a_disassembler_agrees() {
        use iced_x86::{Code, Decoder, DecoderOptions, Register};
        let prefixes: Vec<u8> = [0x66, 0xf2, 0xf3].into_iter().chain(0x40..=0x4f).collect();
        let mut beginnings: Vec<Vec<u8>> = vec![Vec::new()];
        for first in &prefixes {
            beginnings.push(vec![*first]);
            beginnings.extend(prefixes.iter().map(|second| vec![*first, *second]));
        }
        for beginning in beginnings {
            for last in 0xf0..=0xff {
                let code = [&beginning[..], &[0x0f, 0xc7, last]].concat();
                let theirs = Decoder::with_ip(64, &code, 0, DecoderOptions::NONE).decode();
                let of = |first: Register| theirs.op0_register() as u8 - first as u8;
                let expected = match theirs.code() {
                    Code::Rdrand_r16 => Some(random(Source::Rdrand, of(Register::AX), 2)),
                    Code::Rdrand_r32 => Some(random(Source::Rdrand, of(Register::EAX), 4)),
                    Code::Rdrand_r64 => Some(random(Source::Rdrand, of(Register::RAX), 8)),
                    Code::Rdseed_r16 => Some(random(Source::Rdseed, of(Register::AX), 2)),
                    Code::Rdseed_r32 => Some(random(Source::Rdseed, of(Register::EAX), 4)),
                    Code::Rdseed_r64 => Some(random(Source::Rdseed, of(Register::RAX), 8)),
                    Code::Rdpid_r64 => Some(Instruction::Rdpid {
                        register: of(Register::RAX),
                    }),
                    _ => None,
                };
                check(&code, expected.map(|instruction| (instruction, code.len())));
            }
        }
    }
}
