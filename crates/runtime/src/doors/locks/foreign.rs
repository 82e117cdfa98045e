//! Futexes that a program uses itself.
//!
//! Libc's own locks wait on futexes, and so do a few parts of the C++ library that replay copes
//! with. Any other code that does, with more than one thread, synchronizes past what is recorded;
//! it is named once.

use std::ffi::{CStr, c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use hindcast_execlog::Text;

use crate::mechanism::divergence;
use crate::state::mode::one_at_a_time;
use crate::state::{recording, thread};

/// Code that may: the loader, libc, the C++ libraries. Start and end of each; zero where there are
/// no more.
static KNOWN: [[AtomicUsize; 2]; 12] = [const { [const { AtomicUsize::new(0) }; 2] }; 12];
const NAMES: [&[u8]; 5] = [
    b"/libc.so.",
    b"/ld-linux",
    b"/libpthread.so.",
    b"/libstdc++.so.",
    b"/libc++",
];

/// Finds out where that code is. Called once, by the only thread.
pub fn start() {
    unsafe extern "C" fn each(
        found: *mut libc::dl_phdr_info,
        _: usize,
        next: *mut c_void,
    ) -> c_int {
        // SAFETY: the loader's own description of a library, and our argument.
        let (found, next, name) = unsafe {
            (
                &*found,
                &mut *next.cast::<usize>(),
                CStr::from_ptr((*found).dlpi_name),
            )
        };
        if !NAMES.iter().any(|known| {
            name.to_bytes()
                .windows(known.len())
                .any(|part| part == *known)
        }) {
            return 0;
        }
        for index in 0..found.dlpi_phnum as usize {
            // SAFETY: as many program headers as it says.
            let segment = unsafe { &*found.dlpi_phdr.add(index) };
            if segment.p_type == libc::PT_LOAD
                && segment.p_flags & libc::PF_X != 0
                && *next < KNOWN.len()
            {
                let start = found.dlpi_addr as usize + segment.p_vaddr as usize;
                KNOWN[*next][1].store(start + segment.p_memsz as usize, Ordering::Relaxed);
                KNOWN[*next][0].store(start, Ordering::Relaxed);
                *next += 1;
            }
        }
        0
    }
    let mut next = 0usize;
    // SAFETY: the callback and its argument fit each other.
    unsafe { libc::dl_iterate_phdr(Some(each), (&raw mut next).cast()) };
}

/// Whether the code at `site` may wait on futexes past what is recorded.
pub fn is_known(site: usize) -> bool {
    KNOWN.iter().any(|range| {
        (range[0].load(Ordering::Relaxed)..range[1].load(Ordering::Relaxed)).contains(&site)
    })
}

/// Code at `site` makes a futex call.
pub extern "C" fn futex(site: usize) {
    static NAMED: AtomicBool = AtomicBool::new(false);
    // Where one thread runs at a time such calls are recorded.
    if one_at_a_time()
        || !thread::are_several()
        || is_known(site)
        || NAMED.swap(true, Ordering::Relaxed)
    {
        return;
    }
    let mut place = Text::<1024>::new();
    divergence::describe_address(&mut place, site);
    recording::warn(format_args!(
        "threads synchronize by futex calls of their own, past pthread: their order is not recorded, replay may diverge (from {})",
        place.as_str().trim_end()
    ));
}
