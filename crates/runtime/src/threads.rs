//! Creation and end of threads.
