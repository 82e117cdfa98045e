//! How the process ends by itself.

use std::sync::atomic::Ordering;

use hindcast_execlog::event::Kind;
use hindcast_execlog::files::End;

use super::fork;
use crate::mechanism::divergence::{self, Actual};
use crate::mechanism::{log, tree};
use crate::raw;
use crate::state::mode::{Mode, mode};
use crate::state::recording;
use crate::state::thread::Current;

/// `exit_group`: by now the program's own handlers have run and its files are flushed.
pub fn exit(thread: &mut Current, status: i32) -> ! {
    fork::leave_memory();
    match mode() {
        Mode::Record => {
            thread.writer.append(Kind::Exit, &[&status.to_ne_bytes()]);
            recording::ended(End::Exited, (status & 0xff) as u32);
        }
        Mode::Replay => {
            if let Some(event) = log::expect_event(thread, Kind::Exit as u16) {
                if event.kind != Kind::Exit as u16
                    || event.payload.first_chunk() != Some(&status.to_ne_bytes())
                {
                    divergence::diverged(thread, Some(event), Actual::Step("exit"));
                }
                thread.reader.advance(&event);
                thread.at_end.store(true, Ordering::Release);
                divergence::wait_for_the_others(thread);
                tree::ends();
            }
        }
        Mode::Off => {}
    }
    raw::exit_process(status)
}
