//! The library that is loaded into a recorded service: it tells what its sockets carried.
//!
//! ```text
//!   the program     read   write   accept   close   …
//!                    │
//!   hooks            │ the function of libc does the work; what it did is told
//!                    ├──────▶ descriptors    is it a stream, and which one?
//!                    ├──────▶ tls            is it encrypted, and by whom?
//!                    ├──────▶ thread         the thread's ring ──▶ the recorder
//!                    ├──────▶ turns          whose turn is it? ──▶ the board
//!   libc            read   write   accept   close   …
//! ```
//!
//! What streams carry is found out later and elsewhere. Decided here is what has to be known at
//! once: where a request begins, which one a thread works on, and whether a connection goes to the
//! service's database and is to go to the recorder instead. All of it is on the board, memory that
//! the recorder and all processes of the service share.
//!
//! # Survival rules
//!
//! This code runs inside somebody else's process, at any moment of its life. So here:
//!
//! - It copies and returns. On the path of a call that carries bytes there is no lock, no
//!   allocation, no system call and no waiting. System calls are made once for each stream and for
//!   each thread (and to find out that a descriptor is no stream).
//! - What cannot be told is counted, and counts as lost. The service does not notice.
//! - `errno` is the program's: who may change it saves it.
//! - Nothing unwinds into the program: exported functions are `extern "C"`, which aborts; so
//!   nothing may panic. There is no arithmetic that overflows and no index that is not checked.
//! - A signal handler may come in at any point, and a child may begin anywhere. A thread that is
//!   telling is `busy`, and what comes in between is lost; a child finds its page of memory wiped
//!   and begins anew.
//! - A program that locks itself in (seccomp) may be killed for a system call of ours. From then on
//!   there are none: what was not known before is lost.
//!
//! **Where to start reading**: [`hooks::transfers`] for what happens on a read, then
//! [`descriptors`] and [`thread`].
//!
//! **What this crate does not do**: it starts no thread, and changes no call but
//! `connect` to the service's database, where the recorder asks for that, `bind` in a replay,
//! those that draw random bytes and read or wait for the wall clock ([`pins`]), and those that
//! execute a program with an environment that does not have us ([`environment`]). Of a Java machine
//! it changes some classes ([`java`]).
//! Of a program in Go it changes the functions that make system calls and goroutines (`go`), and
//! there it reads the program's file; of one on tokio the tables of functions by which tasks run.
//! It does not see what goes by other ways than the functions of libc: system calls made by hand
//! elsewhere, io_uring, stdio on a socket (that is told). What is encrypted it sees only where a
//! shared libssl does that ([`tls`]).
//!
//! **The invariant to keep**: with the library loaded, every function returns what it would have
//! returned without; only the database may be reached by way of the recorder, random bytes may be
//! others, and a replay has the time of its recording.

// What callers must guarantee is what C guarantees.
#![allow(clippy::missing_safety_doc)]

mod ahead;
mod callers;
mod carried;
mod descriptors;
mod environment;
mod errno;
#[cfg(target_arch = "x86_64")]
mod go;
mod hooks;
mod ids;
mod java;
mod listeners;
mod memory;
mod peers;
mod php;
mod pins;
mod process;
mod program;
mod python;
mod real;
mod ruby;
mod said;
mod short;
mod shown;
mod starts;
mod symbol;
mod thread;
mod tls;
mod tokio;
mod turns;
mod vectors;
mod works;

/// Runs before the program's own constructors.
#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn(libc::c_int, *const *const libc::c_char) = {
    // Glibc calls it as it calls `main`.
    extern "C" fn begin(_: libc::c_int, arguments: *const *const libc::c_char) {
        process::begin(|| descriptors::begin() && thread::begin());
        if process::is_enabled() {
            environment::begin();
        }
        // SAFETY: they are the program's, which nobody has changed yet.
        unsafe {
            starts::begin(arguments);
            #[cfg(target_arch = "x86_64")]
            if !arguments.is_null()
                && process::is_enabled()
                && let Some(vectors) = vectors::Vectors::of(arguments)
            {
                go::begin(&vectors);
                tokio::begin(&vectors);
            }
        }
    }
    begin
};
