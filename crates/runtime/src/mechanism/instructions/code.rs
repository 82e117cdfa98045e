//! Code that is new in the process: its instructions are replaced before it runs.
//!
//! Recording looks for them and notes where they are ([`Kind::Replaced`]); replay replaces the very
//! same and looks for nothing.

use std::ffi::CStr;
use std::fmt;

use hindcast_execlog::config::Instructions;
use hindcast_execlog::event::Kind;
use libc::{PROT_EXEC, PROT_READ};

use super::find::{Functions, Image};
use super::settings::way;
use super::{find, replace};
use crate::mechanism::divergence;
use crate::mechanism::follow;
use crate::raw;
use crate::state::recording;
use crate::state::thread::Current;

/// Replaces instructions in an image that was there before us.
pub unsafe extern "C" fn of_image(
    info: *mut libc::dl_phdr_info,
    _size: usize,
    thread: *mut libc::c_void,
) -> i32 {
    // SAFETY: the loader describes an image that is mapped; `start` passes its thread.
    let (info, thread) = unsafe { (&*info, &mut *thread.cast::<Current>()) };
    let bias = info.dlpi_addr as usize;
    // SAFETY: the loader's string; the others read the auxiliary vector.
    let (name, kernels, loader) = unsafe {
        (
            CStr::from_ptr(info.dlpi_name).to_string_lossy(),
            libc::getauxval(libc::AT_SYSINFO_EHDR) as usize,
            libc::getauxval(libc::AT_BASE) as usize,
        )
    };
    // The kernel's library depends on the kernel. The loader has asked already, and asks no more.
    // GCC's came with us: it asks when it is loaded, and nothing reads the answers.
    if bias != 0 && [kernels, loader].contains(&bias) || name.ends_with("/libgcc_s.so.1") {
        return 0;
    }
    // SAFETY: as above.
    let image = unsafe {
        let headers = std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into());
        Image::in_memory(headers, bias)
    };
    let functions = image.functions();
    for (address, code) in image.code() {
        if code.as_ptr() as usize != raw::text_range().0 {
            take_over(
                thread,
                code,
                address,
                functions.as_ref(),
                (PROT_READ | PROT_EXEC) as usize,
                format_args!("{name}"),
            );
        }
    }
    0
}

/// The program mapped a part of a file as code. Recording.
///
/// `file` is the whole of it, elsewhere in memory.
pub fn mapped(thread: &mut Current, file: &[u8], offset: usize, code: &[u8], protection: usize) {
    if way() == Instructions::Free {
        return;
    }
    let image = Image::in_file(file);
    let place = image
        .as_ref()
        .and_then(|image| Some((image.address_of(offset as u64)?, image.functions())));
    let (address, functions) = place.unwrap_or((0, None));
    take_over(
        thread,
        code,
        address,
        functions.as_ref(),
        protection,
        format_args!("a library that is loaded later"),
    );
}

/// The program made memory executable that it has written. Recording.
pub fn made(thread: &mut Current, code: &[u8], protection: usize) {
    if way() != Instructions::Free {
        let name = format_args!("code that the program makes");
        take_over(thread, code, 0, None, protection, name);
    }
}

/// Replaces the instructions in a piece of code, and notes where they are, for replay. `address` is
/// what its tables call it.
fn take_over(
    thread: &mut Current,
    code: &[u8],
    address: u64,
    functions: Option<&Functions<'_>>,
    protection: usize,
    name: fmt::Arguments<'_>,
) {
    let found = find::find(code, address, functions);
    let places: Vec<usize> = found
        .certain
        .iter()
        .map(|place| code.as_ptr() as usize + (place - address) as usize)
        .collect();
    if let Some(place) = found.doubtful {
        recording::warn(format_args!(
            "{name} may draw random numbers of the processor, which are not recorded: what is at {place:#x} cannot be decoded"
        ));
    }
    if places.is_empty() {
        return;
    }
    if replace::replace(&places, protection) {
        let words: Vec<u8> = std::iter::once(protection)
            .chain(places)
            .flat_map(usize::to_ne_bytes)
            .collect();
        thread.writer.append(Kind::Replaced, &[&words]);
    } else {
        recording::warn(format_args!(
            "random numbers of the processor are not recorded: the kernel does not let code be changed"
        ));
    }
}

/// Replaces what was replaced here in the recorded run.
pub fn replace_as_recorded(thread: &mut Current) {
    while let Some(event) = follow::peek(thread)
        && event.kind == Kind::Replaced as u16
    {
        let (words, _) = event.payload.as_chunks::<8>();
        let mut words = words.iter().map(|word| usize::from_ne_bytes(*word));
        let protection = words.next().unwrap_or_default();
        let places: Vec<usize> = words.collect();
        let there = places.iter().all(|place| replace::is_there(*place));
        if !there || !replace::replace(&places, protection) {
            divergence::unusable(
                format_args!(
                    "the code at {:#x?} cannot be changed as it was when recorded",
                    places.first()
                ),
                "Replay with the same program and libraries as recorded.",
            );
        }
        thread.reader.advance(&event);
    }
}
