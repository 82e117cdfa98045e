//! A replay that ends where something can be looked at, instead of where the recording does.

use hindcast_order::Tx;

use super::Coordinator;
use super::answers::InOrder;
use crate::transaction::{Stop, Stopped};

/// What a replay is run to look at, instead of to its end.
#[derive(Clone, Debug, Default)]
pub struct Look {
    /// The transaction whose own writes are to be seen, and up to where.
    pub stop: Option<Stop>,
    stopped: Option<Stopped>,
}

impl Look {
    pub fn new(stop: Option<Stop>) -> Self {
        Self {
            stop,
            stopped: None,
        }
    }
}

impl Coordinator {
    /// Has the replay end where the database holds what [`Recording::look`] sees, and nothing else.
    /// The recording was loaded with such a snapshot.
    pub fn look(&mut self, look: Look) {
        // What is not seen never commits, so what is waited for may not come.
        self.in_order = InOrder::default();
        self.look = Some(look);
    }

    /// The transaction that does not go on to its end.
    pub fn stop_at(&self) -> Option<Stop> {
        self.look.as_ref().and_then(|look| look.stop)
    }

    /// The transaction is where it was to be stopped.
    pub fn stopped(&mut self, stopped: Stopped) {
        self.steps += 1;
        if let Some(look) = &mut self.look {
            look.stopped.get_or_insert(stopped);
        }
    }

    /// What became of the transaction that was to be stopped, if it is there.
    pub fn how_stopped(&self) -> Option<&Stopped> {
        self.look.as_ref().and_then(|look| look.stopped.as_ref())
    }

    /// Whether the database holds what was to be looked at. All that is seen has committed, and
    /// nothing else commits, since the snapshot is never taken.
    pub fn is_seen(&self) -> bool {
        self.look.as_ref().is_some_and(|look| match look.stop {
            None => self.may_look(),
            Some(_) => look.stopped.is_some(),
        })
    }

    pub(super) fn may_look(&self) -> bool {
        let look = self.recording.look();
        self.rules.schedule().may_take_snapshot(look)
    }

    /// Whether what a transaction does matters to what is to be looked at.
    pub(super) fn matters(&self, tx: Tx) -> bool {
        let levels = self.rules.schedule().levels();
        self.look.as_ref().is_none_or(|look| {
            let own = look.stop.is_some_and(|stop| stop.tx == tx);
            own || levels.sees(self.recording.look(), tx)
        })
    }
}
