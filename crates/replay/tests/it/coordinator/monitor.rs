//! What the monitor says to those that watch a run, who are not woken by its steps.

use std::io;

use futures::FutureExt;
use hindcast_order::{Request, Tx};
use hindcast_replay::monitor::Monitor;

use super::{How, Replay};

const RECORDING: &str = "request 1 0..100
    tx 1 10..20 xid 100 sees 100: UPDATE t SET a = $1";

fn monitor() -> Monitor {
    Monitor::new(Replay::new(RECORDING, How::Recorded { sequential: false }).coordinator)
}

#[test]
fn the_end_is_told_once_to_all_that_wait_for_it_or_come_later() {
    let monitor = monitor();
    let mut waiting = Box::pin(monitor.over());
    assert!(waiting.as_mut().now_or_never().is_none());
    monitor.with(|coordinator| coordinator.took_snapshot(Tx(0)));
    assert!(waiting.as_mut().now_or_never().is_none());
    monitor.with(|coordinator| coordinator.fail(io::Error::other("gone")));
    assert!(waiting.now_or_never().is_some());
    assert!(monitor.over().now_or_never().is_some());
}

#[test]
fn a_run_that_has_taken_no_step_has_not_moved() {
    let monitor = monitor();
    let began = monitor.moved_at();
    monitor.with(|coordinator| coordinator.may(hindcast_replay::transaction::Ask::Snapshot(Tx(0))));
    assert_eq!(monitor.moved_at(), began);
    monitor.with(|coordinator| coordinator.request_sent(Request(0)));
    assert!(monitor.moved_at() > began);
}
