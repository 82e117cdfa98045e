//! How things look on a terminal. Pure: values in, text out.

pub mod format;
pub mod request;
#[allow(dead_code)]
pub mod retro;
#[allow(dead_code)]
pub mod retro_html;
pub mod verdict;
