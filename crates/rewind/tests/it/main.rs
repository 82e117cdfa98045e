//! The integration tests of `hindcast-rewind`: one program, a module per subject.

mod backup;
mod pins;
mod pins_made;
mod pins_told;
mod template;
