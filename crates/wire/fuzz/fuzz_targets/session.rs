//! Any bytes from either side of a session, in any pieces.
#![no_main]

#[path = "../../tests/it/support/abuse.rs"]
mod abuse;

libfuzzer_sys::fuzz_target!(|data: &[u8]| abuse::abuse(data));
