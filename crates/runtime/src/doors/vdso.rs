//! The vDSO's functions, turned into real system calls so that what libc calls through it is seen.
//!
//! libc asks the kernel for the time, and a few other things, by calling into a library that the
//! kernel maps into every process. No system call happens, so nothing traps. The library is private
//! memory like any other: each of its functions is overwritten with a system call, which then traps
//! like every other. A forked child inherits that; a new image gets a library of its own.

use std::ffi::CStr;

use crate::{raw, syscall};

/// The functions and what they are overwritten with.
const FUNCTIONS: [(&CStr, Instead); 6] = [
    (
        c"__vdso_clock_gettime",
        Instead::Call(libc::SYS_clock_gettime),
    ),
    (
        c"__vdso_gettimeofday",
        Instead::Call(libc::SYS_gettimeofday),
    ),
    (c"__vdso_time", Instead::Call(libc::SYS_time)),
    (
        c"__vdso_clock_getres",
        Instead::Call(libc::SYS_clock_getres),
    ),
    (c"__vdso_getcpu", Instead::Call(libc::SYS_getcpu)),
    // It has two more parameters than the system call, and callers that know what to do without
    // it.
    (c"__vdso_getrandom", Instead::Missing),
];

#[derive(Clone, Copy)]
enum Instead {
    Call(i64),
    /// Answers `ENOSYS`.
    Missing,
}

const CODE_BYTES: usize = 8;

impl Instead {
    fn code(self) -> [u8; CODE_BYTES] {
        match self {
            // mov eax, number; syscall; ret
            Instead::Call(number) => {
                let [a, b, c, d] = (number as u32).to_le_bytes();
                [0xb8, a, b, c, d, 0x0f, 0x05, 0xc3]
            }
            // mov rax, -ENOSYS; ret
            Instead::Missing => {
                let [a, b, c, d] = (-libc::ENOSYS).to_le_bytes();
                [0x48, 0xc7, 0xc0, a, b, c, d, 0xc3]
            }
        }
    }
}

/// Overwrites the functions of the vDSO. Says what went wrong where that was not possible.
///
/// # Safety
/// Called while the process has one thread.
pub unsafe fn patch() -> Result<(), &'static str> {
    // SAFETY: reads the auxiliary vector.
    let base = unsafe { libc::getauxval(libc::AT_SYSINFO_EHDR) } as usize;
    if base == 0 {
        // Nothing to call into: libc makes system calls then.
        return Ok(());
    }
    // SAFETY: the kernel's own library, complete and mapped.
    let library = unsafe { Library::at(base) }.ok_or("the kernel's library is not as expected")?;
    let (text, length) = library.text.ok_or("the kernel's library has no code")?;
    let first = text & !4095;
    let length = (text + length).next_multiple_of(4096) - first;
    let writable = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
    // SAFETY: the pages stay executable, for a signal handler that returns through them.
    if raw::error_of(unsafe { syscall!(libc::SYS_mprotect, first, length, writable) }).is_some() {
        return Err("the kernel's library cannot be written to");
    }
    let mut patched = Ok(());
    for (name, instead) in FUNCTIONS {
        // SAFETY: as above.
        let Some((function, bytes)) = (unsafe { library.find(name) }) else {
            continue;
        };
        let inside = function >= text && function + CODE_BYTES <= first + length;
        if bytes < CODE_BYTES || !inside {
            patched = Err("a function of the kernel's library has no room");
            continue;
        }
        // SAFETY: writable, and nobody else runs.
        unsafe { (function as *mut [u8; CODE_BYTES]).write_unaligned(instead.code()) };
    }
    // SAFETY: as they were.
    unsafe {
        syscall!(
            libc::SYS_mprotect,
            first,
            length,
            libc::PROT_READ | libc::PROT_EXEC
        )
    };
    patched
}

/// The kernel's library in memory.
struct Library {
    /// What addresses in the file are relative to.
    bias: usize,
    /// Code: address and length.
    text: Option<(usize, usize)>,
    symbols: *const libc::Elf64_Sym,
    count: usize,
    names: *const u8,
}

#[repr(C)]
struct Dynamic {
    tag: i64,
    value: u64,
}

const DT_HASH: i64 = 4;
const DT_STRTAB: i64 = 5;
const DT_SYMTAB: i64 = 6;
const DT_GNU_HASH: i64 = 0x6fff_fef5;

impl Library {
    /// # Safety
    /// A complete library of this machine's format is mapped at `base`.
    unsafe fn at(base: usize) -> Option<Library> {
        // SAFETY: the caller's promise, for all that follows.
        unsafe {
            let header = &*(base as *const libc::Elf64_Ehdr);
            if header.e_ident[..4] != *b"\x7fELF"
                || header.e_phentsize as usize != size_of::<libc::Elf64_Phdr>()
            {
                return None;
            }
            let segments = std::slice::from_raw_parts(
                (base + header.e_phoff as usize) as *const libc::Elf64_Phdr,
                header.e_phnum.into(),
            );
            let load = segments
                .iter()
                .find(|segment| segment.p_type == libc::PT_LOAD)?;
            let bias = base
                .wrapping_add(load.p_offset as usize)
                .wrapping_sub(load.p_vaddr as usize);
            let text = segments
                .iter()
                .find(|segment| {
                    segment.p_type == libc::PT_LOAD && segment.p_flags & libc::PF_X != 0
                })
                .map(|segment| {
                    (
                        bias.wrapping_add(segment.p_vaddr as usize),
                        segment.p_memsz as usize,
                    )
                });
            let dynamic = segments
                .iter()
                .find(|segment| segment.p_type == libc::PT_DYNAMIC)?;
            let (mut symbols, mut names, mut hash, mut gnu_hash) = (0, 0, 0, 0);
            let mut entry = bias.wrapping_add(dynamic.p_vaddr as usize) as *const Dynamic;
            while (*entry).tag != 0 {
                // Relative to the file, unless a loader has made it absolute.
                let value = (*entry).value as usize;
                let address = if value >= base {
                    value
                } else {
                    bias.wrapping_add(value)
                };
                match (*entry).tag {
                    DT_SYMTAB => symbols = address,
                    DT_STRTAB => names = address,
                    DT_HASH => hash = address,
                    DT_GNU_HASH => gnu_hash = address,
                    _ => {}
                }
                entry = entry.add(1);
            }
            if symbols == 0 || names == 0 {
                return None;
            }
            let count = match (hash, gnu_hash) {
                (0, 0) => return None,
                (0, table) => count_by_gnu_hash(table as *const u32),
                // The number of chains is the number of symbols.
                (table, _) => *(table as *const u32).add(1) as usize,
            };
            Some(Library {
                bias,
                text,
                symbols: symbols as *const libc::Elf64_Sym,
                count,
                names: names as *const u8,
            })
        }
    }

    /// A function's address and length.
    unsafe fn find(&self, name: &CStr) -> Option<(usize, usize)> {
        // SAFETY: as in `at`.
        unsafe {
            let symbols = std::slice::from_raw_parts(self.symbols, self.count);
            let symbol = symbols.iter().find(|symbol| {
                symbol.st_shndx != 0
                    && CStr::from_ptr(self.names.add(symbol.st_name as usize).cast()) == name
            })?;
            Some((
                self.bias.wrapping_add(symbol.st_value as usize),
                symbol.st_size as usize,
            ))
        }
    }
}

/// The table has no count: it is one more than the last symbol of the last chain.
unsafe fn count_by_gnu_hash(table: *const u32) -> usize {
    // SAFETY: the caller's library is complete: four words, the filter's 64-bit words, the buckets,
    // the chains.
    unsafe {
        let (buckets, first, filter) = (
            *table as usize,
            *table.add(1) as usize,
            *table.add(2) as usize,
        );
        let heads = table.add(4 + filter * 2);
        let chains = heads.add(buckets);
        let Some(mut last) = (0..buckets).map(|bucket| *heads.add(bucket) as usize).max() else {
            return first;
        };
        if last < first {
            return first;
        }
        while *chains.add(last - first) & 1 == 0 {
            last += 1;
        }
        last + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_library_has_a_clock() {
        // SAFETY: the kernel's own library.
        unsafe {
            let library =
                Library::at(libc::getauxval(libc::AT_SYSINFO_EHDR) as usize).expect("a library");
            let (text, length) = library.text.expect("code");
            let (clock, bytes) = library.find(c"__vdso_clock_gettime").expect("a clock");
            assert!(clock >= text && clock + bytes <= text + length && bytes >= CODE_BYTES);
            assert_eq!(library.find(c"no_such_function"), None);
        }
    }

    #[test]
    fn all_symbols_that_were_counted_have_names() {
        // SAFETY: as above.
        unsafe {
            let base = libc::getauxval(libc::AT_SYSINFO_EHDR) as usize;
            let library = Library::at(base).expect("a library");
            let last = &*library.symbols.add(library.count - 1);
            assert!(
                CStr::from_ptr(library.names.add(last.st_name as usize).cast())
                    .to_bytes()
                    .len()
                    < 64
            );
        }
    }

    #[test]
    fn the_clock_still_works_when_it_is_a_system_call() {
        // In a child, since other tests run beside this one.
        // SAFETY: the child only calls what is safe after a fork of a process with threads.
        unsafe {
            let child = libc::fork();
            if child == 0 {
                let done = patch().is_ok();
                let mut time = std::mem::zeroed::<libc::timespec>();
                let clock = libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time);
                let library = Library::at(libc::getauxval(libc::AT_SYSINFO_EHDR) as usize);
                let code = library
                    .and_then(|library| library.find(c"__vdso_clock_gettime"))
                    .map(|(address, _)| *(address as *const [u8; 8]));
                let expected = Instead::Call(libc::SYS_clock_gettime).code();
                libc::_exit(
                    if done && clock == 0 && time.tv_sec > 0 && code == Some(expected) {
                        0
                    } else {
                        1
                    },
                );
            }
            let mut status = -1;
            assert_eq!(libc::waitpid(child, &mut status, 0), child);
            assert_eq!(status, 0);
        }
    }
}
