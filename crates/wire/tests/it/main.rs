//! The integration tests of `hindcast-wire`: one program, a module per subject.

mod abuse;
mod between;
mod drawn;
mod kept;
mod past;
mod scenarios;
mod server;
mod support;
mod text;
mod unasked;
