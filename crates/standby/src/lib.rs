//! A replica that keeps up with its primary and only ever shows states that the primary had.

pub mod pgoutput;
pub mod target;
