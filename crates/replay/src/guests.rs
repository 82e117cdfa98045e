//! Sees to it that each connection is accepted by the process of a service that accepted it
//! originally: what it keeps in its memory was put there by what came to it.
//!
//! Processes have other numbers in a replay. Which of them stands for which is found out as they
//! accept: the first connection of one goes to any that stands for none.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use hindcast_spool::SharedBoard;
use hindcast_taplog::board::{Guests as Wanted, Line};
use tokio::net::TcpStream;
use tokio::sync::Mutex;
use tokio::time::Instant;

/// How often it is looked who has accepted, and for how long the one that is to is waited for: one
/// that has accepted before, one that may not have started yet, and that one from the second time
/// on.
const LOOK: Duration = Duration::from_micros(300);
const PATIENCE: Duration = Duration::from_secs(1);
const START: Duration = Duration::from_secs(5);
const LATE: Duration = Duration::from_millis(50);

/// How long after another process' listener has got a connection another one is made. Listeners of
/// several processes can be one.
const ELSEWHERE: Duration = Duration::from_millis(3);

/// For how many connections in a row a process is waited for in vain: one that has accepted before,
/// and one that has not, of which the service may have fewer than it had.
const MISSES_MAX: u8 = 3;
const UNSEEN_MAX: u8 = 40;

/// Which processes stand for those of the recording.
#[derive(Default)]
pub struct Guests(Mutex<HashMap<u64, Guest>>);

/// A connection that was made for a process.
pub enum Made {
    Settled(TcpStream),
    /// The kernel has given it to the listener of another one. A connection from another port may
    /// come to the right one.
    Elsewhere(TcpStream),
}

/// What is known of a process of the recording.
#[derive(Clone, Copy, Default)]
struct Guest {
    /// Its number in this replay.
    now: Option<u32>,
    /// How many of its connections in a row others have accepted.
    misses: u8,
}

impl Guest {
    /// For how long it is waited for; `None`: not any more.
    fn patience(self) -> Option<Duration> {
        match (self.now, self.misses) {
            (Some(_), misses) => (misses < MISSES_MAX).then_some(PATIENCE),
            (None, 0) => Some(START),
            (None, misses) => (misses < UNSEEN_MAX).then_some(LATE),
        }
    }
}

/// Lets all accept again when it is dropped: a connection may be given up while it is made.
struct Invitation<'a>(&'a SharedBoard);

impl Drop for Invitation<'_> {
    fn drop(&mut self) {
        self.0.welcome_all();
    }
}

impl Guests {
    /// Connects by the line, which is to be accepted by the process with this number in the
    /// recording. One connection at a time is made so.
    pub async fn connect(
        &self,
        board: &Arc<SharedBoard>,
        line: Line,
        process: u64,
        connected: impl Future<Output = io::Result<TcpStream>>,
    ) -> io::Result<Made> {
        let mut known = self.0.lock().await;
        let guest = known.get(&process).copied().unwrap_or_default();
        let Some(patience) = guest.patience() else {
            return connected.await.map(Made::Settled);
        };
        let others: Vec<_> = known.values().filter_map(|guest| guest.now).collect();
        let wanted = match guest.now {
            Some(now) => Wanted::Only(now),
            None => Wanted::AllBut(&others),
        };
        board.invite(line, wanted);
        let invitation = Invitation(board);
        let stream = connected.await?;
        let since = Instant::now();
        let mut by = board.accepted_by();
        while by.is_none() && since.elapsed() < patience {
            tokio::time::sleep(LOOK).await;
            by = board.accepted_by();
            if by.is_none() && board.is_elsewhere() && since.elapsed() > ELSEWHERE {
                return Ok(Made::Elsewhere(stream));
            }
        }
        drop(invitation);
        let guest = known.entry(process).or_default();
        let is_new = by.filter(|by| !others.contains(by));
        guest.now = guest.now.or(is_new);
        guest.misses = match by.is_some() && by == guest.now {
            true => 0,
            false => guest.misses + 1,
        };
        Ok(Made::Settled(stream))
    }
}
