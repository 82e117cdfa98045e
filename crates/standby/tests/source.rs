//! The side towards the primary, against a real one: what is looked at first, publication and slot, and the log.

#[path = "source_support/mod.rs"]
mod support;

#[path = "source_support/log.rs"]
mod log;
#[path = "source_support/preflight.rs"]
mod preflight;
#[path = "source_support/session.rs"]
mod session;
#[path = "source_support/slot.rs"]
mod slot;
