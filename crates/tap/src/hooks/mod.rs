//! The functions that the program calls instead of libc's.

mod clocks;
mod descriptors;
mod loading;
mod paths;
mod randomness;
mod reserved;
mod sealing;
mod threads;
mod tls;
pub mod transfers;
