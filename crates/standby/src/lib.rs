//! A replica that keeps up with its primary and shows only states that the primary had.
//!
//! ```text
//!  source: preflight ─▶ slot ─▶ stream ─▶ follow ─▶ a Target ◀── backup: epochs on a Postgres
//!            initial: copy of what there is ──────▶          ◀── hindcast-memory: in memory
//! ```
//!
//! The follower is one for all targets: it decodes the log ([`pgoutput`]), feeds a
//! [`target::Target`] in commit order ([`follow`]), and acknowledges what the target has made
//! durable. [`backup`] is the target on another Postgres, [`promote`] makes such a backup a
//! database of its own, and [`switchover`] lets the two change places. [`mark`] finds a moment at
//! which both show the same.
//!
//! **What this crate does not do**: it writes nothing to the primary but slot and publication,
//! unless that is to become the backup in a switchover, and it serves no reads: a backup's readers
//! ask that Postgres.
//!
//! **Where to start reading**: [`run::to_backup`] goes through everything once; [`target`] and
//! [`follow`] are the seam between the log and what follows it.
//!
//! **The invariant to keep**: nothing is acknowledged before it is durable in the target, so a
//! standby that is killed at any moment goes on from where its target is.

pub mod backup;
pub mod check;
pub mod fence;
pub mod follow;
pub mod initial;
pub mod mark;
pub mod metrics;
pub mod pgoutput;
pub mod promote;
pub mod run;
pub mod source;
pub mod status;
pub mod switchover;
pub mod target;
