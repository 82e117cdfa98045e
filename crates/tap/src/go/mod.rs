//! Programs in Go, which make their system calls themselves and have threads of their own.
//!
//! ```text
//!   a goroutine     read   write   …        time.Now        rand             go f()
//!                    │                         │              │                │
//!   Go's runtime    Syscall6               the vDSO         rand           newproc1
//!                    │ changed                │ another one  │ changed        │ changed
//!   entries          ▼ on the thread's own stack, as C code of the program runs
//!   calls, clock    the functions that a program in C would have called
//!                    │
//!   goroutines      whose turn it is goes with the goroutine
//! ```
//!
//! A goroutine runs now in this thread and now in that one, so what [`turns`] knows of a thread is
//! taken up before a call of the goroutine and put down behind it ([`goroutines`]). One that is
//! started works for the request that its starter works on.
//!
//! What is changed is found by the names of functions, which Go leaves in each program, stripped or
//! not ([`image`]); where a function is not as expected, nothing is changed, and nothing is seen.
//! That is done before the program begins, so nobody runs what is being changed ([`code`]).
//!
//! It needs a program that the dynamic linker loads: one with cgo, as `go build` makes it where
//! there is a C compiler.

mod calls;
mod clock;
mod code;
mod entries;
mod goroutines;
mod ids;
mod image;
mod pools;

use hindcast_taplog::pins::{Caller, mixed_text};

use crate::vectors::{RANDOM, Vectors};
use crate::{pins, starts};
use image::Image;

/// If the program is one in Go, its calls are seen from here on.
///
/// # Safety
/// The program has not begun. These are what the kernel gave it.
pub unsafe fn begin(vectors: &Vectors) {
    if change(vectors).is_some() {
        starts::begin_together();
        pin_start(vectors);
        clock::replace(vectors, entries::clock as *const ());
    }
}

fn change(vectors: &Vectors) -> Option<()> {
    let image = Image::of_program(vectors)?;
    let changes = code::Changes::of(&image)?;
    goroutines::begin(image)?;
    changes.make()
}

/// What the runtime's generator begins with, by which maps that are made at the start are ordered.
fn pin_start(vectors: &Vectors) {
    const SEED: &[u8] = b"seed of a program in Go";
    let caller = Caller::of(mixed_text(0, SEED));
    if let Some(seed) = vectors.random() {
        // SAFETY: the kernel has put so many random bytes there, and the program has not looked.
        unsafe { pins::draw_for_thread(caller, seed, RANDOM) };
    }
}
