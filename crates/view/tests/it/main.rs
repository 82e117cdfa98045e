//! What a small recording shows, and that a large one is shown in bounded answers.

mod exports;
mod made;
mod sights;
mod timelines;
