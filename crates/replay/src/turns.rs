//! Which request a replayed service works on.
//!
//! A service's processes are told a request's number and tell it by their board, whose tables have
//! one place for many numbers. So requests get numbers of their own, one after the other as they
//! are sent: those that a recording has are several recorders', and alike in their last digits.

use std::collections::HashSet;
use std::sync::{Arc, PoisonError, RwLock};

use hindcast_spool::SharedBoard;
use hindcast_taplog::board::Line;
use hindcast_trace::RequestId;
use tokio::sync::Notify;

pub struct Turns {
    pub board: Arc<SharedBoard>,
    /// Number 1 stands first.
    sent: RwLock<Vec<RequestId>>,
    answered: RwLock<HashSet<RequestId>>,
    /// Requests were sent or answered.
    pub moved: Notify,
}

impl Turns {
    pub fn new(board: &Arc<SharedBoard>) -> Self {
        Self {
            board: Arc::clone(board),
            sent: RwLock::default(),
            answered: RwLock::default(),
            moved: Notify::new(),
        }
    }

    /// The number of a request that is about to be sent.
    pub fn sending(&self, request: RequestId) -> u64 {
        let mut sent = self.sent.write().unwrap_or_else(PoisonError::into_inner);
        sent.push(request);
        self.moved.notify_waiters();
        sent.len() as u64
    }

    /// A request is over.
    pub fn answered(&self, request: RequestId) {
        let mut answered = self
            .answered
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        answered.insert(request);
        self.moved.notify_waiters();
    }

    /// How many requests were sent, with those of them that were sent again, and were answered.
    pub fn count(&self) -> (usize, usize) {
        let sent = self
            .sent
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .len();
        let answered = self.answered.read().unwrap_or_else(PoisonError::into_inner);
        (sent, answered.len())
    }

    /// The requests that were sent from the n-th on.
    pub fn sent_from(&self, first: usize) -> Vec<RequestId> {
        let sent = self.sent.read().unwrap_or_else(PoisonError::into_inner);
        sent.get(first..).unwrap_or_default().to_vec()
    }

    pub fn is_answered(&self, request: RequestId) -> bool {
        let answered = self.answered.read().unwrap_or_else(PoisonError::into_inner);
        answered.contains(&request)
    }

    /// The request that what was last written to a connection belongs to; `None`: to none, or it
    /// is not known.
    pub fn whose(&self, line: Line) -> Option<RequestId> {
        let number = self.board.whose_turn(line)?.checked_sub(1)?;
        let sent = self.sent.read().unwrap_or_else(PoisonError::into_inner);
        sent.get(usize::try_from(number).ok()?).copied()
    }
}
