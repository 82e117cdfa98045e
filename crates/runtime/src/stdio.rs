//! Streams of libc in processes with several threads.
