//! How long to wait for a server that is gone.

use std::time::Duration;

use super::StandbyError;
use crate::status::{Control, State};

/// Waits a little longer each time; forgets that when things went well for a while.
#[derive(Debug, Default)]
pub struct Retry {
    attempt: u32,
    /// It was followed at least once.
    has_worked: bool,
}

const FIRST: Duration = Duration::from_millis(200);
/// Together some twelve seconds.
const PREDECESSOR_ATTEMPTS: u32 = 6;
const LONGEST: Duration = Duration::from_secs(15);

impl Retry {
    pub fn worked(&mut self) {
        self.attempt = 0;
        self.has_worked = true;
    }

    /// Whether to try again. Somebody who has just started it wants to know at once that a URL is
    /// wrong; but a predecessor that was killed may be in the way for a moment.
    pub fn may_help(&self, error: &StandbyError) -> bool {
        match self.has_worked {
            true => error.is_transient(),
            false => error.is_about_predecessor() && self.attempt < PREDECESSOR_ATTEMPTS,
        }
    }

    /// Says why, and waits. True when it is time to stop instead.
    pub fn wait(&mut self, control: &Control, reason: String) -> bool {
        self.attempt += 1;
        let attempt = self.attempt;
        control.update(|status| {
            status.state = State::Waiting { reason, attempt };
            status.reconnects += 1;
        });
        control.pause(patience(attempt))
    }
}

fn patience(attempt: u32) -> Duration {
    FIRST
        .saturating_mul(1 << attempt.saturating_sub(1).min(16))
        .min(LONGEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_wait_is_longer_up_to_a_limit() {
        assert_eq!(patience(1), FIRST);
        assert_eq!(patience(2), 2 * FIRST);
        assert_eq!(patience(100), LONGEST);
    }

    #[test]
    fn a_stop_ends_the_wait() {
        let control = Control::default();
        control.stop();
        assert!(
            Retry {
                attempt: 50,
                has_worked: true
            }
            .wait(&control, "gone".to_owned())
        );
        assert_eq!(control.status().reconnects, 1);
    }
}
