//! A process that survives its machine.
//!
//! ```text
//!   clients ──▶ the address ──▶ primary ───────── log, packets ────────▶ backup
//!                    ▲            │ program, recorded                     │ the same, in replay
//!                    └── answers ─┘ held until ◀──── acknowledged ────────┘
//!
//!   the primary dies:  the backup replays what is left, connects its sockets to the clients where
//!                      the primary's were, takes the address, and goes on
//! ```
//!
//! Clients talk to an address that is the service's own. What the primary's kernel would send from
//! it waits in a queue (`NFQUEUE`) until the backup has the log that explains it, and every packet
//! that came before. So no client has seen anything that the backup does not know, and a primary
//! that has lost its backup cannot answer while the backup may have taken over.
//!
//! **Where to start reading**: [`running`] and [`backup`], the two ends; [`message`], what they
//! say; [`book`], what the backup knows of each connection; [`join`], a backup that comes later.
//! `docs/design/0055-two-machines.md` and `0102-a-new-backup.md` have the reasons.
//!
//! **What this crate does not do**: it neither records nor replays, which `exec` and the runtime
//! do. It prints nothing.
//!
//! **The invariant to keep**: a packet leaves the primary only when everything that was in the log
//! and everything that had arrived before it is on the backup.

pub mod accept;
pub mod backup;
pub mod book;
pub mod channel;
pub mod checkpoints;
pub mod connections;
pub mod doors;
pub mod error;
pub mod hole;
pub mod introduce;
pub mod join;
pub mod key;
mod lag;
pub mod message;
pub mod network;
pub mod packet;
pub mod primary;
pub mod queue;
pub mod repair;
pub mod running;
pub mod ship;
pub mod status;
pub mod store;
pub mod terms;
pub mod unread;
pub mod wire;

pub use error::ProtectError;
