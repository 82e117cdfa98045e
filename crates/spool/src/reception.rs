//! Where taps get their board that have nothing to tell: in a replay.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::hello::Door;
use crate::shared::SharedBoard;

/// How long its end may take.
const PAUSE: Duration = Duration::from_millis(50);

/// Gives taps their board until it is dropped.
#[derive(Debug)]
pub struct Reception {
    variable: (&'static str, String),
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Reception {
    pub fn open(board: Arc<SharedBoard>) -> io::Result<Self> {
        let mut door = Door::open(Some(board))?;
        let variable = door.variable();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::Builder::new().name("hindcast-reception".to_owned());
        let thread = thread.spawn(move || {
            // A tap that gets no answer goes without a board, and the replay will say so.
            while !stopped.load(Ordering::Relaxed) && door.arrivals().is_ok() {
                door.wait(PAUSE);
            }
        })?;
        Ok(Self {
            variable,
            stop,
            thread: Some(thread),
        })
    }

    /// What a service has to have in its environment, beside the library in `LD_PRELOAD`.
    pub fn variable(&self) -> &(&'static str, String) {
        &self.variable
    }
}

impl Drop for Reception {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
