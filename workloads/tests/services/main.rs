//! The services on a real Postgres: what they answer, what they send, and that their bugs can be
//! provoked on purpose.

mod common;
mod driving;
mod loading;
mod moodle;
mod sessions;
mod tpcc;
mod wordpress;
