//! The integration tests of `hindcast-sim`: one program, a module per subject.

mod histories;
mod mutations;
mod resending;
mod retroaction;
