//! Reads a spool to its end, in the time that nobody else wants.

use std::time::{Duration, Instant};

use hindcast_spool::{Entry, Fill, Meter, Reader, SpoolError};

use super::Converter;
use super::rights::give_way;

/// Between two looks at a spool to which nothing is written.
const PAUSE: Duration = Duration::from_secs(1);
/// And while the trace has no room.
const FULL_PAUSE: Duration = Duration::from_millis(5);
/// And while others want all of the processors.
const CROWDED_PAUSE: Duration = Duration::from_millis(150);

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
                    let over = self.convert(Rights::None(Share::begin()));
                    over.map(|over| (self, over))
                });
                let idle = idle.map_err(SpoolError::Thread)?;
                idle.join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            })?;
            over = over || self.convert(Rights::Ordinary)?;
        }
        self.converter.finish();
        Ok(())
    }

    /// For as long as it may; returns whether nothing is left.
    fn convert(&mut self, mut rights: Rights) -> Result<bool, SpoolError> {
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
                    rights.had_nothing_to_do();
                    true
                }
            };
            if looked {
                while !self.converter.has_room() {
                    std::thread::sleep(FULL_PAUSE);
                    rights.had_nothing_to_do();
                }
                if !rights.may_go_on(self.meter.read()) {
                    return Ok(false);
                }
            }
        }
    }
}

/// What a converting thread has to processors.
enum Rights {
    None(Share),
    Ordinary,
}

impl Rights {
    /// Waits where it is to keep away.
    fn may_go_on(&mut self, fill: Fill) -> bool {
        match self {
            Self::None(_) if fill.is_urgent() => false,
            Self::None(share) => {
                share.keep_away();
                true
            }
            Self::Ordinary => !fill.is_calm(),
        }
    }

    fn had_nothing_to_do(&mut self) {
        if let Self::None(share) = self {
            *share = Share::begin();
        }
    }
}

/// How much of a processor the calling thread has had, of the time in which it had something to do.
///
/// One without any right to a processor slows those that have one all the same: they find their
/// processor taken, and their caches filled by another. So it keeps away from a crowd.
struct Share {
    since: Instant,
    had: Duration,
}

impl Share {
    /// What is told of a shorter time than this is chance.
    const LEAST: Duration = Duration::from_millis(20);
    /// Who gets less than one part of so many is in a crowd.
    const PART: u32 = 2;

    fn begin() -> Self {
        Self {
            since: Instant::now(),
            had: processor_time(),
        }
    }

    /// Waits where others want the processors.
    fn keep_away(&mut self) {
        let (elapsed, had) = (self.since.elapsed(), processor_time() - self.had);
        if elapsed < Self::LEAST {
            return;
        }
        if Self::is_in_a_crowd(elapsed, had) {
            std::thread::sleep(CROWDED_PAUSE);
        }
        *self = Self::begin();
    }

    fn is_in_a_crowd(elapsed: Duration, had: Duration) -> bool {
        had < elapsed / Self::PART
    }
}

/// Of the calling thread.
fn processor_time() -> Duration {
    // SAFETY: all zeroes is a time, and the function writes one there.
    let time = unsafe {
        let mut time: libc::timespec = std::mem::zeroed();
        libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time);
        time
    };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_gets_little_of_a_processor_is_in_a_crowd() {
        let is_in_a_crowd = |elapsed, had| {
            Share::is_in_a_crowd(Duration::from_millis(elapsed), Duration::from_millis(had))
        };
        assert!(!is_in_a_crowd(20, 20));
        assert!(!is_in_a_crowd(20, 10));
        assert!(is_in_a_crowd(20, 9));
    }

    #[test]
    fn a_thread_is_made_to_wait_once_it_had_nothing_for_long_enough() {
        let mut share = Share::begin();
        share.keep_away();
        let begun = share.since;
        std::thread::sleep(Share::LEAST);
        share.keep_away();
        assert!(share.since - begun >= Share::LEAST + CROWDED_PAUSE);
    }
}
