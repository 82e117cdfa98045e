//! What a small recording shows, and that a large one is shown in bounded answers.

mod exports;
mod made;
#[path = "../../../trace/tests/it/common/python.rs"]
mod python;
mod sights;
mod sql;
mod timelines;
