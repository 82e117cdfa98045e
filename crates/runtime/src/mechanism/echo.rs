//! The order of output: of all threads of all processes of a recording.
//!
//! What goes to the launcher's own output is written again in replay. Processes replay side by
//! side, each by itself, so without more their lines would mix differently every time. Each piece
//! of output therefore gets a ticket from a counter on the board, which all processes share, after
//! it was written; in replay it waits for its turn.
//!
//! A ticket may be lost: its thread was killed before the event was complete. Whoever waits for one
//! then goes on after [`PATIENCE`], since output in another order is better than none.

use std::sync::atomic::Ordering;
use std::time::Duration;

use hindcast_execlog::board;

use crate::raw;
use crate::state::recording;
use crate::state::thread::Thread;

/// How long nothing may be written by anybody before a ticket counts as lost.
const PATIENCE: Duration = Duration::from_secs(4);
const STEP: Duration = Duration::from_micros(200);

/// Recording: something was written.
pub fn ticket() -> u64 {
    recording::board().map_or(0, |board| board.outputs.fetch_add(1, Ordering::AcqRel))
}

/// Replay: returns when everything before this ticket was written.
pub fn await_turn(thread: &Thread, ticket: u64) {
    let Some(board) = recording::board() else {
        return;
    };
    let (mut seen, mut waited) = (board.outputs.load(Ordering::Acquire), Duration::ZERO);
    for round in 0u32.. {
        let now = board.outputs.load(Ordering::Acquire);
        if now >= ticket {
            break;
        }
        if now != seen {
            (seen, waited) = (now, Duration::ZERO);
        }
        if waited >= PATIENCE {
            break;
        }
        match round {
            0..100 => std::hint::spin_loop(),
            _ => {
                if round == 100 {
                    thread.show(board::State::Blocked, 0);
                }
                raw::pause(STEP);
                waited += STEP;
            }
        }
    }
    thread.show(board::State::Running, 0);
}

/// Replay: this ticket's output was written.
pub fn written(ticket: u64) {
    if let Some(board) = recording::board() {
        board.outputs.fetch_max(ticket + 1, Ordering::AcqRel);
    }
}
