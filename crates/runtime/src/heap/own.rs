//! The runtime's own memory: never libc's, never the program's.

pub struct Own;
