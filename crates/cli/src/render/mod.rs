//! How things look on a terminal. Pure: values in, text out.

pub mod bases;
pub mod exec;
pub mod extension;
pub mod format;
pub mod ghosts;
pub mod protect;
pub mod request;
pub mod retro;
pub mod retro_html;
pub mod see;
pub mod sides;
pub mod spooled;
pub mod standby;
mod statement;
pub mod verdict;
