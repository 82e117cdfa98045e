//! A program that goes into the background: the process that was started ends, and others go on.
//! What is protected is what was started, so it runs on unprotected, and that is said.

use std::time::{Duration, Instant};

use hindcast_exec::watch::{Ended, Signals};

use super::{ALONE_FOR, Running};
use crate::terms::{Notice, Unprotected};

/// How long processes may take that end with the first.
const GRACE: Duration = Duration::from_secs(1);
const LOOK_EVERY: Duration = Duration::from_millis(500);

impl Running<'_> {
    /// The first process has ended: returns when all have.
    pub(super) fn stay_with_the_others(
        &mut self,
        ended: Ended,
        signals: &Signals,
        say: &mut dyn FnMut(Notice),
    ) {
        if ended != Ended::Exited(0) {
            return;
        }
        let begun = Instant::now();
        let mut others = self.leader.others();
        while !others.is_empty() && begun.elapsed() < GRACE {
            std::thread::sleep(ALONE_FOR);
            others = self.leader.others();
        }
        if others.is_empty() {
            return;
        }
        self.channel = None;
        self.cannot_be_joined("it has gone into the background");
        self.go_alone(Unprotected::Background(others.len()), say);
        let mut looked = Instant::now();
        while !others.is_empty() {
            signals.pass_on_to_all(&others, ALONE_FOR);
            self.look_who_comes();
            self.go_on_alone(say);
            if looked.elapsed() >= LOOK_EVERY {
                looked = Instant::now();
                // Some of them may be children of this process, whose ends it collects.
                self.leader.ended();
                others = self.leader.others();
            }
        }
    }
}
