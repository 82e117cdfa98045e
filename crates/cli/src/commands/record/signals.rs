//! What the recorder is sent, and who is meant.

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::error::CliError;

/// Signals that come within so long are one.
const TOGETHER: Duration = Duration::from_secs(1);

/// What a supervisor sends to the process that it started, and a service that is recorded is to
/// get: beside those that end it, what makes servers read their configuration or end gracefully.
pub struct Signals(Vec<(SignalKind, Signal)>);

impl Signals {
    pub fn catch() -> Result<Self, CliError> {
        let ends = [SignalKind::interrupt(), SignalKind::terminate()];
        let others = [
            SignalKind::hangup(),
            SignalKind::quit(),
            SignalKind::user_defined1(),
            SignalKind::user_defined2(),
            SignalKind::window_change(),
        ];
        // What is ignored, as by nohup, the service is to ignore, too.
        let heard = others.into_iter().filter(|kind| !is_ignored(*kind));
        let catch = |kind| signal(kind).map(|signal| (kind, signal));
        let caught: std::io::Result<_> = ends.into_iter().chain(heard).map(catch).collect();
        caught
            .map(Self)
            .map_err(|error| CliError::because("cannot listen for signals", &error))
    }

    pub async fn next(&mut self) -> SignalKind {
        poll_fn(|cx| {
            let mut came = self.0.iter_mut();
            let first = came.find_map(|(kind, signal)| {
                let came = signal.poll_recv(cx).is_ready();
                came.then_some(*kind)
            });
            first.map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }

    /// After the first has been heard that asks for the end. What comes right behind it belongs to
    /// it: some services end by a signal to their whole group, in which we are.
    pub async fn once_more(&mut self) {
        let begun = tokio::time::Instant::now();
        let ignored = async {
            loop {
                self.next().await;
            }
        };
        _ = tokio::time::timeout_at(begun + TOGETHER, ignored).await;
        while !asks_for_the_end(self.next().await) {}
    }
}

fn is_ignored(kind: SignalKind) -> bool {
    // SAFETY: zeros are a `sigaction`, and the memory is ours.
    unsafe {
        let mut now: libc::sigaction = std::mem::zeroed();
        libc::sigaction(kind.as_raw_value(), std::ptr::null(), &mut now);
        now.sa_sigaction == libc::SIG_IGN
    }
}

/// Whether who sends this wants the recording to end, and not only the service to do something.
pub fn asks_for_the_end(kind: SignalKind) -> bool {
    [SignalKind::interrupt(), SignalKind::terminate()].contains(&kind)
}

/// Whether a terminal sends this, to its whole foreground.
pub fn is_of_terminals(kind: SignalKind) -> bool {
    let terminals = [
        SignalKind::interrupt(),
        SignalKind::quit(),
        SignalKind::hangup(),
        SignalKind::window_change(),
    ];
    terminals.contains(&kind)
}
