//! A monitor in Hoare's sense: the coordinator behind a lock, and the sessions that wait for its
//! permission.

use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{oneshot, watch};

use crate::coordinator::Coordinator;
use crate::rules::Frontier;
use crate::transaction::Ask;

/// The coordinator, shared by sessions, ghosts and the re-sender.
#[derive(Clone)]
pub struct Monitor {
    inner: Arc<Inner>,
}

struct Inner {
    state: Mutex<State>,
    /// Something happened: the re-sender and those that watch for the end look again.
    changed: watch::Sender<u64>,
}

struct State {
    coordinator: Coordinator,
    /// How far the coordinator was when it was last asked for those that wait.
    asked_at: (Frontier, u64),
    waiting: Vec<(Ask, oneshot::Sender<()>)>,
    /// Nothing is held any longer: the replay is over and sessions are to come to an end.
    open: bool,
}

impl Monitor {
    pub fn new(coordinator: Coordinator) -> Self {
        let state = State {
            asked_at: coordinator.frontier(),
            coordinator,
            waiting: Vec::new(),
            open: false,
        };
        Self {
            inner: Arc::new(Inner {
                state: Mutex::new(state),
                changed: watch::Sender::new(0),
            }),
        }
    }

    /// Tells the coordinator something, or asks it, and wakes those that may go on because of that.
    pub fn with<T>(&self, tell: impl FnOnce(&mut Coordinator) -> T) -> T {
        let mut state = self.state();
        let seen = |coordinator: &Coordinator| {
            let divergences = coordinator.counts().divergences;
            let frontier = coordinator.frontier();
            (
                coordinator.steps(),
                divergences,
                frontier,
                coordinator.is_over(),
            )
        };
        let before = seen(&state.coordinator);
        let answer = tell(&mut state.coordinator);
        if seen(&state.coordinator) != before {
            state.wake();
            drop(state);
            self.inner.changed.send_modify(|version| *version += 1);
        }
        answer
    }

    /// Resolves when the step is permitted, or is not waited for any longer.
    pub fn permission(&self, ask: Ask) -> impl Future<Output = ()> + Send + 'static {
        let mut state = self.state();
        let waiting = if state.open || state.coordinator.may(ask) {
            None
        } else {
            let (sender, receiver) = oneshot::channel();
            state.waiting.push((ask, sender));
            Some(receiver)
        };
        async move {
            let Some(receiver) = waiting else { return };
            // The sender is dropped only with the monitor, when nothing is left that waits.
            if let Ask::Insert(..) = ask {
                let _ = tokio::time::timeout(Ask::INSERT_PATIENCE, receiver).await;
            } else {
                let _ = receiver.await;
            }
        }
    }

    /// Whether the step is permitted right now.
    pub fn permits(&self, ask: Ask) -> bool {
        let state = self.state();
        state.open || state.coordinator.may(ask)
    }

    /// The replay has ended: lets all sessions go on, and what they do then is not compared any
    /// more.
    pub fn open(&self) {
        let mut state = self.state();
        state.open = true;
        state.coordinator.stop();
        state.waiting.clear();
        drop(state);
        self.inner.changed.send_modify(|version| *version += 1);
    }

    /// Learns of every change from now on.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.inner.changed.subscribe()
    }

    /// What is being waited for.
    pub fn waiting(&self) -> Vec<Ask> {
        let state = self.state();
        let alive = state.waiting.iter().filter(|(_, who)| !who.is_closed());
        alive.map(|(ask, _)| *ask).collect()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A panic elsewhere has been reported where it happened; the state itself is changed in
        // single steps.
        self.inner
            .state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Lets those go on that may now. That depends on a few counters. Only if one of them moved are
    /// all that wait looked at, and there are only as many as there are sessions.
    fn wake(&mut self) {
        let coordinator = &self.coordinator;
        if coordinator.frontier() == self.asked_at {
            return;
        }
        self.asked_at = coordinator.frontier();
        let over = coordinator.is_over();
        let mut still = Vec::new();
        for (ask, sender) in self.waiting.drain(..) {
            if !over && coordinator.may(ask) {
                // A session that closed meanwhile does not listen any more.
                let _ = sender.send(());
            } else {
                still.push((ask, sender));
            }
        }
        self.waiting = still;
    }
}
