//! Reads a spool to its end, in the time that nobody else wants.

use std::time::Duration;

use hindcast_spool::{Entry, Fill, Meter, Reader, SpoolError};

use super::Converter;

/// Between two looks at a spool to which nothing is written.
const PAUSE: Duration = Duration::from_secs(1);
/// And while the trace has no room.
const FULL_PAUSE: Duration = Duration::from_millis(5);

pub(super) struct Conversion {
    pub reader: Reader,
    pub meter: Meter,
    pub converter: Converter,
}

impl Conversion {
    /// A thread without any right to a processor does it while there is room for what is told
    /// meanwhile; once there is little, or nothing more will be told, one with the same rights as
    /// all others. A thread that gave up its rights cannot have them back, so there are two.
    pub fn run(mut self) -> Result<(), SpoolError> {
        let mut over = false;
        while !over {
            (self, over) = std::thread::scope(|scope| {
                let idle = std::thread::Builder::new().name("hindcast-idle".to_owned());
                let idle = idle.spawn_scoped(scope, || {
                    give_way();
                    let over = self.convert(|fill| !fill.is_urgent());
                    over.map(|over| (self, over))
                });
                let idle = idle.map_err(SpoolError::Thread)?;
                idle.join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            })?;
            over = over || self.convert(|fill| !fill.is_calm())?;
        }
        self.converter.finish();
        Ok(())
    }

    /// For as long as it may; returns whether nothing is left.
    fn convert(&mut self, may_go_on: impl Fn(Fill) -> bool) -> Result<bool, SpoolError> {
        loop {
            // Before looking, so that what was written last is found.
            let is_closed = self.meter.read().is_closed;
            let looked = match self.reader.read()? {
                Some(entry) => {
                    let looked = matches!(entry, Entry::Looked { .. });
                    self.converter.take(entry);
                    looked
                }
                None if is_closed => return Ok(true),
                None => {
                    self.reader.wait(PAUSE);
                    true
                }
            };
            if looked {
                while !self.converter.has_room() {
                    std::thread::sleep(FULL_PAUSE);
                }
                if !may_go_on(self.meter.read()) {
                    return Ok(false);
                }
            }
        }
    }
}

/// The calling thread runs only where a processor has nothing else to do, and so do those that it
/// starts.
pub fn give_way() {
    // SAFETY: all zeroes is what the structure is to hold; zero is the calling thread.
    let done = unsafe {
        let parameters: libc::sched_param = std::mem::zeroed();
        libc::sched_setscheduler(0, libc::SCHED_IDLE, &parameters)
    };
    if done != 0 {
        tracing::debug!("the priority of the recorder's thread stays as it is");
    }
}
