//! The side towards the primary, against a real one: what is looked at first, publication and slot,
//! and the log.

mod log;
mod preflight;
mod session;
mod slot;
mod support;
