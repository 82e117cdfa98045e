//! Where the program, the loader and the kernel come in.

pub mod by_hand;
pub mod foreign;
#[rustfmt::skip]
#[allow(clippy::all, dead_code, unused_imports, unused_parens)]
pub mod generated;
pub mod init;
pub mod locks;
pub mod malloc;
pub mod memory;
pub mod process;
pub mod signals;
pub mod stdio;
pub mod threads;
pub mod trap;
pub mod user_interface;
pub mod vdso;
