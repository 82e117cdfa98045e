//! The functions that the program calls instead of libc's.

pub mod clocks;
pub mod descriptors;
mod loading;
mod memory;
mod paths;
mod programs;
pub mod randomness;
mod reserved;
mod sealing;
mod sessions;
mod threads;
mod tls;
pub mod transfers;
