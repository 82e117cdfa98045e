//! A replica that keeps up with its primary and only ever shows states that the primary had.

pub mod backup;
pub mod follow;
pub mod initial;
pub mod memory;
pub mod metrics;
pub mod pgoutput;
pub mod promote;
pub mod run;
pub mod serve;
pub mod source;
pub mod status;
pub mod target;
