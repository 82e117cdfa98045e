//! The functions that the program calls instead of libc's.

mod descriptors;
mod sealing;
pub mod transfers;
