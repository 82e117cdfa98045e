//! What the runtime knows: data, and how it is read and changed. Nothing here decides anything.

pub mod cache;
pub mod heap;
pub mod log;
pub mod mode;
pub mod names;
pub mod numbers;
pub mod recording;
pub mod signals;
pub mod sync;
pub mod thread;
