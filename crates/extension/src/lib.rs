//! The Postgres extension `hindcast`: brings it into a server, and tells whether it records.
//!
//! ```text
//!   extension/ (C) ──▶ source ──▶ install ──▶ PGXS ──▶ the server's folders
//!                                 check ───▶ status() ─▶ findings, each with a next step
//! ```
//!
//! The source of the extension is in this crate's binary, and is built with the headers of the
//! server that is to load it: an extension fits one major version.
//!
//! **What this crate does not do**: it changes no setting of a server and creates nothing in a
//! database. That is for the user, who is told how. It reads no records.
//!
//! **Where to start reading**: [`install`], then [`check`].
//!
//! **The invariant to keep**: what is installed is what was tested with this version of hindcast,
//! so nothing is downloaded and nothing that lies around is taken.

mod check;
mod install;
mod source;

pub use check::{CheckError, Finding, check};
pub use install::{InstallError, Installed, install};
pub use source::{FILES, VERSION};
