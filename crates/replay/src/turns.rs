//! Which request a replayed service works on.
//!
//! A service's processes are told a request's number and tell it by their board, whose tables have
//! one place for many numbers. So requests get numbers of their own, one after the other as they
//! are sent: those that a recording has are several recorders', and alike in their last digits.

use std::sync::{Arc, PoisonError, RwLock};

use hindcast_spool::SharedBoard;
use hindcast_taplog::board::Line;
use hindcast_trace::RequestId;

pub struct Turns {
    pub board: Arc<SharedBoard>,
    /// Number 1 stands first.
    sent: RwLock<Vec<RequestId>>,
}

impl Turns {
    pub fn new(board: &Arc<SharedBoard>) -> Self {
        Self {
            board: Arc::clone(board),
            sent: RwLock::default(),
        }
    }

    /// The number of a request that is about to be sent.
    pub fn sending(&self, request: RequestId) -> u64 {
        let mut sent = self.sent.write().unwrap_or_else(PoisonError::into_inner);
        sent.push(request);
        sent.len() as u64
    }

    /// The request that what was last written to a connection belongs to; `None`: to none, or it
    /// is not known.
    pub fn whose(&self, line: Line) -> Option<RequestId> {
        let number = self.board.whose_turn(line)?.checked_sub(1)?;
        let sent = self.sent.read().unwrap_or_else(PoisonError::into_inner);
        sent.get(usize::try_from(number).ok()?).copied()
    }
}
