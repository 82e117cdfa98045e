//! The functions that the program calls instead of libc's.

mod descriptors;
mod reserved;
mod sealing;
pub mod transfers;
