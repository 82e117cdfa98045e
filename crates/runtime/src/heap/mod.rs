//! The memory of the recorded program: `malloc` and its relatives.
//!
//! Addresses must be equal in both runs: programs print them, hash them, sort by them. A log of all
//! of them would be larger than everything else, so instead they are made a function of what each
//! thread does:
//!
//! ```text
//!            program                    libraries below the interface, threads of theirs, before init
//!               │ replay space                         │ system space
//!        ┌──────┴───────┐                       ┌──────┴───────┐
//!        │ replay heap  │  arena per thread     │ system heap  │  16 shards, a lock each
//!        └──────┬───────┘  no lock, no log      └──────┬───────┘
//!               └──────────── arena: small blocks by class, runs of units ──┘
//! ```
//!
//! Which heap gives a block is decided by the space of the caller; which heap takes one back by its
//! address, so blocks may cross. A block of the replay heap that is freed in system space, which
//! happens in the recording only, is never used by the replay heap again.
//!
//! **What this does not do**: give memory of small blocks back to the kernel, or move it to another
//! class. It keeps no header before a block, so overruns damage the neighbour, and are found later
//! or never.
//!
//! **Where to start reading**: [`space`] for what lies where, [`arena`] for a block's life,
//! [`replay`] for what threads share.
//!
//! **The invariant to keep**: nothing an arena of the replay heap does may depend on what another
//! thread did, unless the two were put in order through [`replay::Turns`].

// In tests nothing is exported, so much of it is not called.
#![cfg_attr(test, allow(dead_code))]

pub mod arena;
mod fatal;
pub mod lock;
pub mod own;
pub mod replay;
mod runs;
pub mod sizes;
pub mod space;
pub mod system;

#[cfg(not(test))]
#[global_allocator]
static OWN: own::Own = own::Own::new();
