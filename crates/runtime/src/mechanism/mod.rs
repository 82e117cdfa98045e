//! How a step of the program is recorded or replayed, wherever it came in.

pub mod alone;
pub mod appended;
pub mod call;
pub mod checkpoint;
pub mod detach;
pub mod divergence;
pub mod echo;
pub mod elsewhere;
pub mod entry;
pub mod files;
pub mod flows;
pub mod folder;
pub mod follow;
pub mod going_on;
pub mod heap;
pub mod instructions;
pub mod log;
pub mod lookup;
pub mod messages;
pub mod references;
pub mod signals;
pub mod succession;
pub mod sync;
pub mod table;
pub mod tree;
