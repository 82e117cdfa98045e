//! The integration tests of `hindcast-standby`: one program, a module per subject.

mod backup;
mod backup_differs;
mod backup_progress;
mod backup_support;
mod initial;
mod initial_schema;
mod mark;
mod pair;
mod promote;
mod source;
mod switchover;
