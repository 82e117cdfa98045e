//! The integration tests of `hindcast-gateway`: one program, a module per subject.

mod accounting;
mod asking;
mod catalog;
mod collecting;
mod common;
mod faults;
mod final_state;
mod full_disk;
mod ingress;
mod inside;
mod keeping;
mod pg_host;
mod recording;
mod redaction;
