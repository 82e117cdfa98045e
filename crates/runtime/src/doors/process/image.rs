//! Whether a file, executed, can be recorded: it must load our library, and be the program that
//! loads it.

use std::ffi::CStr;

use crate::{raw, syscall};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Image {
    Recordable,
    /// It runs unrecorded, because it …
    Unrecordable(&'static str),
    /// Nothing that the kernel would execute, as far as one can see.
    None,
}

/// How many interpreters may name each other, as in the kernel.
const SCRIPTS_MAX: usize = 5;

/// Follows the first lines of scripts to the program that the kernel would execute. `words` becomes
/// what it would be given before the script's own arguments, innermost first, the script itself as
/// `name`; it stays empty where `path` is no script.
pub fn examine(path: &CStr, name: &CStr, words: &mut Vec<Vec<u8>>) -> Image {
    let mut start = [0u8; 4096];
    let mut interpreter = [0u8; 512];
    let mut path = path;
    for _ in 0..=SCRIPTS_MAX {
        let length = match read_start(path, &mut start) {
            Ok(Start::Text(length)) => length,
            Ok(Start::Privileged) => {
                return Image::Unrecordable("gains rights when it is executed");
            }
            // It may be executed without being read; most such files are ordinary programs.
            Err(libc::EACCES) if may_execute(path) => return Image::Recordable,
            Err(_) => return Image::None,
        };
        let start = &start[..length];
        if let Some((found, argument)) = interpreter_of(start) {
            if words.is_empty() {
                words.push(name.to_bytes_with_nul().to_vec());
            }
            let text = |text: &[u8]| [text, b"\0"].concat();
            words.splice(0..0, std::iter::once(text(found)).chain(argument.map(text)));
            let length = found.len().min(interpreter.len() - 1);
            interpreter[..length].copy_from_slice(&found[..length]);
            interpreter[length] = 0;
            path = CStr::from_bytes_until_nul(&interpreter).unwrap_or_default();
            continue;
        }
        return examine_elf(start);
    }
    Image::None
}

enum Start {
    Text(usize),
    /// Set-uid, set-gid, or with capabilities: the loader ignores `LD_PRELOAD`.
    Privileged,
}

fn may_execute(path: &CStr) -> bool {
    // SAFETY: a C string.
    unsafe { syscall!(libc::SYS_access, path.as_ptr(), libc::X_OK) == 0 }
}

fn read_start(path: &CStr, into: &mut [u8]) -> Result<Start, i32> {
    let file = raw::open_at(libc::AT_FDCWD, path, libc::O_RDONLY | libc::O_NONBLOCK, 0)?;
    let read = read_open(file, into);
    raw::close(file);
    if !may_execute(path) {
        return Err(libc::ENOEXEC);
    }
    read
}

fn read_open(file: i32, into: &mut [u8]) -> Result<Start, i32> {
    let mut found = std::mem::MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: room for one `stat`, for the file's first bytes, and for nothing of an attribute.
    unsafe {
        if let Some(code) = raw::error_of(syscall!(libc::SYS_fstat, file, found.as_mut_ptr())) {
            return Err(code);
        }
        let found = found.assume_init();
        if found.st_mode & libc::S_IFMT != libc::S_IFREG {
            return Err(libc::EACCES + 10_000);
        }
        let (user, group) = (
            syscall!(libc::SYS_geteuid) as u32,
            syscall!(libc::SYS_getegid) as u32,
        );
        let gains_user = found.st_mode & libc::S_ISUID != 0 && found.st_uid != user;
        let gains_group = found.st_mode & libc::S_ISGID != 0
            && found.st_mode & libc::S_IXGRP != 0
            && found.st_gid != group;
        let capabilities = syscall!(
            libc::SYS_fgetxattr,
            file,
            c"security.capability".as_ptr(),
            0,
            0
        );
        if gains_user || gains_group || (capabilities > 0 && user != 0) {
            return Ok(Start::Privileged);
        }
        let read = syscall!(libc::SYS_pread64, file, into.as_mut_ptr(), into.len(), 0);
        raw::error_of(read).map_or(Ok(Start::Text(read as usize)), Err)
    }
}

/// What a script's first line says: its interpreter, and one argument, spaces and all.
fn interpreter_of(start: &[u8]) -> Option<(&[u8], Option<&[u8]>)> {
    let line = start
        .strip_prefix(b"#!")?
        .split(|&byte| byte == b'\n')
        .next()?
        .trim_ascii();
    let end = line
        .iter()
        .position(|&byte| byte == b' ' || byte == b'\t')
        .unwrap_or(line.len());
    let (interpreter, argument) = line.split_at(end);
    let argument = argument.trim_ascii();
    (!interpreter.is_empty()).then_some((interpreter, (!argument.is_empty()).then_some(argument)))
}

fn examine_elf(start: &[u8]) -> Image {
    const HEADER: usize = size_of::<libc::Elf64_Ehdr>();
    const SEGMENT: usize = size_of::<libc::Elf64_Phdr>();
    let Some(header) = start
        .first_chunk::<HEADER>()
        .filter(|header| header.starts_with(b"\x7fELF"))
    else {
        return Image::None;
    };
    let machine = u16::from_le_bytes([header[18], header[19]]);
    if header[4] != 2 || machine != 62 {
        return Image::Unrecordable("is not a program for 64-bit x86");
    }
    // SAFETY: plain data of that size.
    let header = unsafe { header.as_ptr().cast::<libc::Elf64_Ehdr>().read_unaligned() };
    let mut interpreter = None;
    let mut dynamic = false;
    for index in 0..header.e_phnum as usize {
        let Some(bytes) = start
            .get(header.e_phoff as usize + index * SEGMENT..)
            .and_then(|rest| rest.first_chunk::<SEGMENT>())
        else {
            break;
        };
        // SAFETY: as above.
        let segment = unsafe { bytes.as_ptr().cast::<libc::Elf64_Phdr>().read_unaligned() };
        dynamic |= segment.p_type == libc::PT_DYNAMIC;
        if segment.p_type == libc::PT_INTERP {
            let from = segment.p_offset as usize;
            interpreter = start.get(from..from + segment.p_filesz as usize);
        }
    }
    match interpreter {
        Some(path) if path.windows(15).any(|part| part == b"ld-linux-x86-64") => Image::Recordable,
        Some(_) => Image::Unrecordable("uses another libc than glibc"),
        // The loader itself, called as a program, loads what it is told to.
        None if dynamic && header.e_type == libc::ET_DYN && is_loader(start) => Image::Recordable,
        None => Image::Unrecordable("is linked statically"),
    }
}

/// The loader has no interpreter, as a static program has none; but its text begins with its own
/// dynamic symbols.
fn is_loader(start: &[u8]) -> bool {
    start
        .windows(9)
        .any(|part| part == b"_rtld_glo" || part == b"__rtld_ve")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interpreter_of_a_script_is_the_first_word_of_its_first_line() {
        assert_eq!(
            interpreter_of(b"#!/bin/sh\necho"),
            Some((&b"/bin/sh"[..], None))
        );
        assert_eq!(
            interpreter_of(b"#! /usr/bin/env -S python3 -u \n"),
            Some((&b"/usr/bin/env"[..], Some(&b"-S python3 -u"[..])))
        );
        assert_eq!(interpreter_of(b"#!\n"), None);
        assert_eq!(interpreter_of(b"echo"), None);
    }

    #[test]
    fn an_ordinary_program_is_recordable_and_a_text_is_none() {
        let examine = |path| examine(path, path, &mut Vec::new());
        assert_eq!(examine(c"/bin/sh"), Image::Recordable);
        assert_eq!(examine(c"/etc/passwd"), Image::None);
        assert_eq!(examine(c"/nowhere"), Image::None);
    }
}
