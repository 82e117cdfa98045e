//! A monitor in Hoare's sense: the coordinator behind a lock, and the sessions that wait for its
//! permission.

use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hindcast_order::Tx;
use tokio::sync::{oneshot, watch};

use crate::coordinator::{Awaited, Coordinator};
use crate::rules::Frontier;
use crate::transaction::Ask;

/// The coordinator, shared by sessions, ghosts and the re-sender.
#[derive(Clone)]
pub struct Monitor {
    inner: Arc<Inner>,
}

struct Inner {
    state: Mutex<State>,
    /// Something happened: who waits for a fact looks again.
    changed: watch::Sender<u64>,
    /// The replay is to stop. Apart from the rest, since that is waited for all the time.
    over: watch::Sender<bool>,
}

struct State {
    coordinator: Coordinator,
    /// How far the coordinator was when it was last asked for those that wait.
    asked_at: (Frontier, u64),
    /// When the last step of the recording was taken.
    moved_at: Instant,
    waiting: Vec<(Ask, oneshot::Sender<()>)>,
    /// Nothing is held any longer: the replay is over and sessions are to come to an end.
    open: bool,
}

impl Monitor {
    pub fn new(coordinator: Coordinator) -> Self {
        let over = coordinator.is_over();
        let state = State {
            asked_at: coordinator.frontier(),
            moved_at: Instant::now(),
            coordinator,
            waiting: Vec::new(),
            open: false,
        };
        Self {
            inner: Arc::new(Inner {
                state: Mutex::new(state),
                changed: watch::Sender::new(0),
                over: watch::Sender::new(over),
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
        let now = seen(&state.coordinator);
        if now != before {
            if now.0 != before.0 {
                state.moved_at = Instant::now();
            }
            state.wake();
            drop(state);
            self.inner.changed.send_modify(|version| *version += 1);
            if now.3 {
                self.inner.over.send_replace(true);
            }
        }
        answer
    }

    /// Resolves when something is true of the coordinator.
    pub async fn until(&self, fact: impl Fn(&Coordinator) -> bool) {
        let mut changes = self.changes();
        loop {
            changes.borrow_and_update();
            if self.with(|coordinator| fact(coordinator)) {
                return;
            }
            if changes.changed().await.is_err() {
                return;
            }
        }
    }

    /// When the last step of the recording was taken.
    pub fn moved_at(&self) -> Instant {
        self.state().moved_at
    }

    /// Resolves when the replay is to stop.
    pub async fn over(&self) {
        // The sender is there as long as this is.
        let _ = self.inner.over.subscribe().wait_for(|&over| over).await;
    }

    /// Resolves when the step is permitted, or is not waited for any longer.
    pub fn permission(&self, ask: Ask) -> impl Future<Output = ()> + Send + 'static {
        let mut state = self.state();
        let takes = state.coordinator.takes_rows(ask);
        let by_service = matches!(ask, Ask::Commit(tx) if state.coordinator.is_by_service(tx));
        let waiting = if state.open || state.coordinator.may(ask) {
            None
        } else {
            let (sender, receiver) = oneshot::channel();
            state.waiting.push((ask, sender));
            Some(receiver)
        };
        drop(state);
        let monitor = self.clone();
        async move {
            let Some(receiver) = waiting else { return };
            // The sender is dropped only with the monitor, when nothing is left that waits.
            match ask {
                Ask::Insert(..) if takes => {
                    let (quiet, longest) = Ask::TAKE_PATIENCE;
                    tokio::select! {
                        _ = receiver => {}
                        () = monitor.quiet(quiet) => {}
                        () = tokio::time::sleep(longest) => {}
                    }
                }
                Ask::Insert(..) => {
                    let _ = tokio::time::timeout(Ask::INSERT_PATIENCE, receiver).await;
                }
                Ask::Ghost(_) => tokio::select! {
                    _ = receiver => {}
                    () = monitor.quiet(Ask::GHOST_PATIENCE) => {}
                },
                Ask::Commit(_) if by_service => tokio::select! {
                    _ = receiver => {}
                    () = monitor.quiet(Ask::GHOST_COMMIT_PATIENCE) => {}
                },
                Ask::Answer(tx) => tokio::select! {
                    _ = receiver => {}
                    awaited = monitor.missing(tx) => {
                        monitor.with(|coordinator| coordinator.waited_in_vain(awaited));
                    }
                },
                _ => {
                    let _ = receiver.await;
                }
            }
        }
    }

    /// Resolves when no step of the recording has been taken for so long, from now on.
    async fn quiet(&self, quiet: Duration) {
        let since = Instant::now();
        loop {
            let moved = since.max(self.moved_at());
            match quiet.checked_sub(moved.elapsed()) {
                Some(rest) => tokio::time::sleep(rest).await,
                None => return,
            }
        }
    }

    /// Resolves when what an answer waits for is not begun for so long, or nothing moves.
    async fn missing(&self, tx: Tx) -> Awaited {
        let (mut last, mut since) = (None, Instant::now());
        loop {
            tokio::time::sleep(Ask::ANSWER_PATIENCE / 10).await;
            let now = self.with(|coordinator| coordinator.answer_awaits(tx));
            if now != last {
                (last, since) = (now, Instant::now());
            }
            let from = match now {
                Some(Awaited::Begin(_)) => since,
                _ => since.max(self.moved_at()),
            };
            // Whose turn it is does not depend on this one.
            if let Some(now) = now.filter(|now| *now != Awaited::Turn)
                && from.elapsed() >= Ask::ANSWER_PATIENCE
            {
                return now;
            }
        }
    }

    /// Whether the step is permitted right now.
    pub fn permits(&self, ask: Ask) -> bool {
        let state = self.state();
        state.open || state.coordinator.may(ask)
    }

    /// Whether the transaction need not be held at its commit.
    pub fn commits_freely(&self, tx: Tx) -> bool {
        let state = self.state();
        state.open || state.coordinator.commits_freely(tx)
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

    /// What is being waited for, by what is not over.
    pub fn waiting(&self) -> Vec<Ask> {
        let state = self.state();
        let is_over = |ask: &Ask| matches!(ask, Ask::Answer(_));
        let all = state.waiting.iter();
        let alive = all.filter(|(ask, who)| !who.is_closed() && !is_over(ask));
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
