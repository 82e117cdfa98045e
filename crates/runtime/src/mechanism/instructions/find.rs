//! Where code has instructions that must be replaced: `cpuid`, `rdrand`, `rdseed`, `rdpid`.
//!
//! Their bytes also occur inside other instructions and in data. So each place where they occur is
//! decoded from the nearest boundary before it that is known for certain: the beginning of the
//! function there, or the end of the one before, which tables for unwinding name (`.eh_frame_hdr`).
//! It counts if an instruction begins exactly there and all before it are valid.

use std::arch::x86_64::{
    _mm_and_si128, _mm_cmpeq_epi8, _mm_loadu_si128, _mm_movemask_epi8, _mm_or_si128, _mm_set1_epi8,
};

use gimli::{
    BaseAddresses, EhFrame, EhFrameHdr, EndianSlice, LittleEndian, ParsedEhFrameHdr, UnwindSection,
};
use iced_x86::{Decoder, DecoderOptions};
use libc::{Elf64_Ehdr, Elf64_Phdr};

use super::decode::{Instruction, decode};

/// A program or a library: its file, or itself in memory.
pub struct Image<'a> {
    headers: &'a [Elf64_Phdr],
    bytes: Bytes<'a>,
}

enum Bytes<'a> {
    File(&'a [u8]),
    /// What addresses in the headers are relative to.
    Memory(usize),
}

impl<'a> Image<'a> {
    /// `None`: the file is none of this machine's format.
    pub fn in_file(file: &'a [u8]) -> Option<Image<'a>> {
        let header = file.get(..size_of::<Elf64_Ehdr>())?;
        // SAFETY: plain data of that many bytes.
        let header = unsafe { header.as_ptr().cast::<Elf64_Ehdr>().read_unaligned() };
        let count = usize::from(header.e_phnum);
        let headers = file
            .get(usize::try_from(header.e_phoff).ok()?..)?
            .get(..count * size_of::<Elf64_Phdr>())?
            .as_ptr()
            .cast::<Elf64_Phdr>();
        let known = header.e_ident[..5] == *b"\x7fELF\x02"
            && usize::from(header.e_phentsize) == size_of::<Elf64_Phdr>()
            && headers.is_aligned();
        known.then(|| Image {
            // SAFETY: within the file, aligned, and plain data.
            headers: unsafe { std::slice::from_raw_parts(headers, count) },
            bytes: Bytes::File(file),
        })
    }

    /// # Safety
    /// The image is mapped as its headers say, and stays so.
    pub unsafe fn in_memory(headers: &'a [Elf64_Phdr], bias: usize) -> Image<'a> {
        Image {
            headers,
            bytes: Bytes::Memory(bias),
        }
    }

    /// What is mapped and can be read: each part's header and its bytes.
    fn loaded(&self) -> impl Iterator<Item = (&'a Elf64_Phdr, &'a [u8])> + '_ {
        let readable = |header: &&Elf64_Phdr| {
            header.p_type == libc::PT_LOAD && header.p_flags & libc::PF_R != 0
        };
        self.headers.iter().filter(readable).filter_map(|header| {
            let length = header.p_filesz as usize;
            let bytes = match self.bytes {
                Bytes::File(file) => file.get(header.p_offset as usize..)?.get(..length)?,
                // SAFETY: the promise of `in_memory`.
                Bytes::Memory(bias) => unsafe {
                    std::slice::from_raw_parts(
                        bias.wrapping_add(header.p_vaddr as usize) as *const u8,
                        length,
                    )
                },
            };
            Some((header, bytes))
        })
    }

    /// Its code: the address that the headers give it, and the bytes.
    pub fn code(&self) -> impl Iterator<Item = (u64, &'a [u8])> + '_ {
        self.loaded()
            .filter(|(header, _)| header.p_flags & libc::PF_X != 0)
            .map(|(header, bytes)| (header.p_vaddr, bytes))
    }

    /// The address that the headers give a place in the file.
    pub fn address_of(&self, offset: u64) -> Option<u64> {
        let (header, _) = self.loaded().find(|(header, bytes)| {
            (header.p_offset..header.p_offset + bytes.len() as u64).contains(&offset)
        })?;
        Some(offset - header.p_offset + header.p_vaddr)
    }

    /// From an address to the end of the part that holds it.
    fn from(&self, address: u64) -> Option<&'a [u8]> {
        self.loaded().find_map(|(header, bytes)| {
            bytes.get(usize::try_from(address.checked_sub(header.p_vaddr)?).ok()?..)
        })
    }

    /// Where its functions are, if it says so.
    pub fn functions(&self) -> Option<Functions<'a>> {
        let header = self
            .headers
            .iter()
            .find(|header| header.p_type == libc::PT_GNU_EH_FRAME)?
            .p_vaddr;
        let bases = BaseAddresses::default().set_eh_frame_hdr(header);
        let parsed = EhFrameHdr::new(self.from(header)?, LittleEndian)
            .parse(&bases, 8)
            .ok()?;
        let gimli::Pointer::Direct(frames) = parsed.eh_frame_ptr() else {
            return None;
        };
        Some(Functions {
            index: parsed,
            frames: EhFrame::new(self.from(frames)?, LittleEndian),
            bases: bases.set_eh_frame(frames),
        })
    }
}

type Slice<'a> = EndianSlice<'a, LittleEndian>;

/// The functions of an image, as its tables for unwinding have them.
pub struct Functions<'a> {
    index: ParsedEhFrameHdr<Slice<'a>>,
    frames: EhFrame<Slice<'a>>,
    bases: BaseAddresses,
}

impl Functions<'_> {
    /// The last address not behind `address` at which an instruction begins for certain, and
    /// whether it is the beginning of the function that `address` is in. Between functions
    /// there may be data.
    fn boundary_before(&self, address: u64) -> Option<(u64, bool)> {
        let table = self.index.table()?;
        let entry = table.lookup(address, &self.bases).ok()?;
        let offset = table.pointer_to_offset(entry).ok()?;
        let function = self
            .frames
            .fde_from_offset(&self.bases, offset, EhFrame::cie_from_offset)
            .ok()?;
        let start = function.initial_address();
        let end = start + function.len();
        [(end, false), (start, true)]
            .into_iter()
            .find(|(place, _)| *place <= address)
    }
}

/// What was found in a piece of code.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// The addresses of instructions that are for certain.
    pub certain: Vec<u64>,
    /// Random numbers, perhaps: something before it in the same function cannot be decoded.
    pub doubtful: Option<u64>,
}

/// Looks for instructions in `code`, which begins at `address`, at a boundary.
pub fn find(code: &[u8], address: u64, functions: Option<&Functions<'_>>) -> Found {
    let mut found = Found::default();
    let Some(mut next) = next_candidate(code, 0) else {
        return found;
    };
    // The first of a process takes 0.5 ms and makes tables of as many kilobytes.
    let mut walk = Walk {
        decoder: Decoder::with_ip(64, code, address, DecoderOptions::NONE),
        lost: false,
    };
    while let Some(position) = next_candidate(code, next) {
        next = position + 1;
        let (boundary, in_function) = functions
            .and_then(|functions| functions.boundary_before(address + position as u64))
            .filter(|(boundary, _)| *boundary >= address)
            .unwrap_or((address, functions.is_none()));
        match walk.reach(position, (boundary - address) as usize) {
            Some(begin) if decode(|index| code.get(begin + index).copied()).is_some() => {
                found.certain.push(address + begin as u64);
            }
            None if in_function && is_random(&code[position..]) => {
                found.doubtful.get_or_insert(address + position as u64);
            }
            _ => {}
        }
    }
    found
}

fn is_random(code: &[u8]) -> bool {
    let decoded = decode(|index| code.get(index).copied());
    matches!(decoded, Some((Instruction::Random(_), _)))
}

/// A disassembler that goes forward.
struct Walk<'a> {
    decoder: Decoder<'a>,
    /// Something since the last boundary was no instruction.
    lost: bool,
}

impl Walk<'_> {
    /// The beginning of the instruction that holds a position, decoding from a boundary, or from
    /// further on if it was there.
    fn reach(&mut self, position: usize, boundary: usize) -> Option<usize> {
        let mut begin = self.decoder.position();
        if begin <= boundary || begin > position {
            self.decoder.set_position(boundary).ok()?;
            (begin, self.lost) = (boundary, false);
        }
        while !self.lost {
            self.lost = self.decoder.decode().is_invalid();
            let end = self.decoder.position();
            if end > position && !self.lost {
                // The next candidate may be in this instruction, too.
                self.decoder.set_position(begin).ok()?;
                return Some(begin);
            }
            begin = end;
        }
        None
    }
}

/// The first position from `from` on with the bytes of `cpuid`, or of something that looks like
/// `rdrand`.
fn next_candidate(code: &[u8], from: usize) -> Option<usize> {
    let mut from = from;
    loop {
        let position = next_pair(code, from)?;
        let last = code.get(position + 2).copied().unwrap_or(0);
        if code[position + 1] == 0xa2 || last >= 0xf0 {
            return Some(position);
        }
        from = position + 1;
    }
}

/// The first position from `from` on with `0f a2` or `0f c7`.
fn next_pair(code: &[u8], from: usize) -> Option<usize> {
    const STEP: usize = 16;
    let mut at = from;
    while at + STEP < code.len() {
        // SAFETY: both loads end within the code; every processor of this architecture has the
        // instructions.
        let hits = unsafe {
            let load = |at: usize| _mm_loadu_si128(code.as_ptr().add(at).cast());
            let is = |bytes, wanted: u8| _mm_cmpeq_epi8(bytes, _mm_set1_epi8(wanted as i8));
            let (first, second) = (load(at), load(at + 1));
            _mm_movemask_epi8(_mm_and_si128(
                is(first, 0x0f),
                _mm_or_si128(is(second, 0xa2), is(second, 0xc7)),
            ))
        };
        if hits != 0 {
            return Some(at + hits.trailing_zeros() as usize);
        }
        at += STEP;
    }
    code.get(at..)?
        .windows(2)
        .position(|pair| matches!(pair, [0x0f, 0xa2 | 0xc7]))
        .map(|position| at + position)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(code: &[u8], certain: &[u64], doubtful: Option<u64>) {
        let expected = Found {
            certain: certain.to_vec(),
            doubtful,
        };
        assert_eq!(find(code, 0x1000, None), expected, "{code:x?}");
    }

    #[test]
    fn an_instruction_counts_and_its_bytes_elsewhere_do_not() {
        // cpuid; mov eax, 0xa20f; rdrand rbx; ret
        let code = [
            0x0f, 0xa2, 0xb8, 0x0f, 0xa2, 0, 0, 0x48, 0x0f, 0xc7, 0xf3, 0xc3,
        ];
        check(&code, &[0x1000, 0x1007], None);
        // A jump over a byte that begins no instruction: what follows is not known.
        check(&[0xeb, 0x01, 0x06, 0x0f, 0xc7, 0xf0], &[], Some(0x1003));
        check(&[0xeb, 0x01, 0x06, 0x0f, 0xa2], &[], None);
        check(&[0x0f], &[], None);
    }

    #[test]
    fn nothing_is_overlooked_wherever_it_lies() {
        for before in 0..70 {
            for behind in 0..20 {
                let mut code = vec![0x90; before];
                code.extend([0x66, 0x0f, 0xc7, 0xfa]);
                code.resize(code.len() + behind, 0x90);
                check(&code, &[0x1000 + before as u64], None);
            }
        }
    }

    /// This program has functions that draw random numbers: they are found in its file and in
    /// memory, at the same places.
    #[test]
    fn a_program_is_read_from_its_file_as_from_memory() {
        unsafe extern "C" fn of_this_program(
            info: *mut libc::dl_phdr_info,
            _size: usize,
            found: *mut libc::c_void,
        ) -> i32 {
            // SAFETY: the loader describes the program first, which stays mapped; `found` is the
            // test's.
            unsafe {
                let headers =
                    std::slice::from_raw_parts((*info).dlpi_phdr, (*info).dlpi_phnum.into());
                let image = Image::in_memory(headers, (*info).dlpi_addr as usize);
                *found.cast::<Vec<u64>>() = all_in(&image);
            }
            1
        }
        fn all_in(image: &Image<'_>) -> Vec<u64> {
            let functions = image.functions();
            assert!(functions.is_some());
            let find = |(address, code)| find(code, address, functions.as_ref()).certain;
            image.code().flat_map(find).collect()
        }
        let mut in_memory: Vec<u64> = Vec::new();
        // SAFETY: the callback gets the vector it expects.
        unsafe {
            libc::dl_iterate_phdr(Some(of_this_program), (&raw mut in_memory).cast());
        }
        let file = std::fs::read("/proc/self/exe").expect("the file of the test");
        let in_file = all_in(&Image::in_file(&file).expect("a program"));
        assert_eq!(in_file, in_memory);
        // At least `rdrand` and `rdseed` of `answers`.
        assert!(in_file.len() >= 2, "{in_file:x?}");
    }
}
