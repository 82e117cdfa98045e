//! A worker: installs the writes of its segments, each as soon as its predecessor is in (paper,
//! section 7.2).
//!
//! It takes no lock. What is not safe yet goes into the worker's own queue of deferred writes,
//! looked at again after every segment and while there is nothing else to do. That always ends: of
//! all the writes that are not installed the oldest is safe, and its worker comes to it, because
//! both the segments and the deferred writes of a worker are in log order.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError};
use std::time::Duration;

use crate::deferred::{Deferred, Write};
use crate::log::{Header, Kind, NO_ROW, Place, Segment};
use crate::modes::Done;
use crate::rows::{Draft, Overwritten};
use crate::shared::{Progress, Shared};
use crate::spare::Spare;

/// With so many writes waiting, a worker takes no new segment: they would only make it longer.
const DEFERRED_MAX: usize = 1 << 16;

/// Behind so many transactions that have to wait, a worker does not look for one that has not. To
/// look at all of them over and over would make transaction granularity look worse than it is.
const LOOK_AHEAD: usize = 256;

/// How far ahead memory is asked for. A row of a large table is in no cache, and waiting for each
/// in turn is most of what there is to do.
const PREFETCH_AHEAD: usize = 12;

/// So often, in writes, a worker says how far it is.
const PUBLISH_EVERY: usize = 512;

/// How long an idle worker sleeps at most, before it looks whether there is something to free or
/// the store ends; and how long when it waits for other workers.
const NAP: Duration = Duration::from_millis(10);
const NAP_DEFERRED: Duration = Duration::from_micros(50);

pub(crate) struct Worker {
    pub shared: Arc<Shared>,
    pub number: usize,
    pub segments: Receiver<Box<Segment>>,
    pub used: Sender<Box<Segment>>,
    /// The last write of the log that this worker has met.
    reached: u64,
    deferred: Deferred,
    /// Replaced versions, about in the order in which they can be freed.
    overwritten: VecDeque<Overwritten>,
    spare: Spare,
    /// See `measure`.
    write_cost: Option<Duration>,
    /// In Transaction mode.
    units: Option<Units>,
    counts: Counts,
}

/// What happened since it was last told to everybody.
#[derive(Default)]
struct Counts {
    bytes: i64,
    versions: i64,
    applied: u64,
    deferred: u64,
    unresolved: u64,
}

/// Transactions that wait for others, with their segments.
struct Units {
    done: Arc<Done>,
    waiting: VecDeque<Waiting>,
}

struct Waiting {
    segment: Box<Segment>,
    units: VecDeque<usize>,
}

impl Worker {
    pub fn new(
        shared: Arc<Shared>,
        number: usize,
        segments: Receiver<Box<Segment>>,
        used: Sender<Box<Segment>>,
        done: Option<Arc<Done>>,
    ) -> Worker {
        Worker {
            shared,
            number,
            segments,
            used,
            reached: 0,
            deferred: Deferred::default(),
            overwritten: VecDeque::new(),
            spare: Spare::default(),
            write_cost: crate::measure::write_cost(),
            units: done.map(|done| Units {
                done,
                waiting: VecDeque::new(),
            }),
            counts: Counts::default(),
        }
    }

    /// Runs until the appender is gone and everything is applied, or the store ends.
    pub fn run(&mut self) {
        let mut idle_rounds = 0;
        let mut appender_gone = false;
        while !self.shared.ending() {
            let mut got_one = false;
            if !appender_gone && self.deferred.len() < DEFERRED_MAX {
                match self.receive(idle_rounds) {
                    Ok(segment) => {
                        got_one = true;
                        self.take(segment);
                    }
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => appender_gone = true,
                }
            }
            let progressed = self.retry();
            if got_one || progressed {
                idle_rounds = 0;
                self.publish();
            } else {
                idle_rounds += 1;
            }
            self.collect();
            if !got_one && !progressed && self.has_deferred() {
                if idle_rounds < 10 {
                    (0..32).for_each(|_| std::hint::spin_loop());
                } else {
                    std::thread::yield_now();
                }
            }
            if appender_gone && !self.has_deferred() {
                if self.overwritten.is_empty() {
                    return;
                }
                // There is history to free as readers leave. It cannot grow any more, so this need
                // not be quick.
                std::thread::park_timeout(NAP);
            }
        }
    }

    /// The next segment; with deferred writes the wait for it is short, or none.
    fn receive(&self, idle_rounds: u32) -> Result<Box<Segment>, RecvTimeoutError> {
        let busy = self.has_deferred();
        if busy && idle_rounds < 50 {
            return self.segments.try_recv().map_err(|error| match error {
                TryRecvError::Empty => RecvTimeoutError::Timeout,
                TryRecvError::Disconnected => RecvTimeoutError::Disconnected,
            });
        }
        let nap = if busy { NAP_DEFERRED } else { NAP };
        self.segments.recv_timeout(nap)
    }

    /// Installs what is safe of a segment, and puts off the rest.
    pub fn take(&mut self, segment: Box<Segment>) {
        match self.units {
            Some(_) => self.start_units(segment),
            None => self.apply(segment),
        }
    }

    /// Looks again at what was put off. Says whether something could be installed.
    pub fn retry(&mut self) -> bool {
        if self.units.is_some() {
            return self.retry_units_from(0);
        }
        let mut deferred = std::mem::take(&mut self.deferred);
        let progressed = deferred.retry(|write| self.try_install(write));
        self.deferred = deferred;
        progressed
    }

    fn has_deferred(&self) -> bool {
        !self.deferred.is_empty()
            || self
                .units
                .as_ref()
                .is_some_and(|units| !units.waiting.is_empty())
    }

    fn progress(&self) -> &Progress {
        &self.shared.progress[self.number]
    }

    fn apply(&mut self, mut segment: Box<Segment>) {
        let mut at = Place::default();
        while at.header < segment.headers.len() {
            let end = (at.header + PUBLISH_EVERY).min(segment.headers.len());
            while at.header < end {
                if let Some(header) = segment.headers.get(at.header + PREFETCH_AHEAD) {
                    self.shared.rows.prefetch(header.row);
                }
                let Some(write) = next_write(&segment, &mut at, &mut self.spare) else {
                    continue;
                };
                // Behind a deferred write to its row it cannot be next; no need to look at what
                // another worker writes just now.
                let write = match self.deferred.push_behind(write) {
                    Ok(()) => Err(()),
                    Err(write) => self
                        .try_install(write)
                        .map_err(|write| self.deferred.push(write)),
                };
                if write.is_err() {
                    self.counts.deferred += 1;
                }
            }
            self.reached = segment.first + end as u64 - 1;
            self.publish();
        }
        segment.clear();
        // The scheduler may be gone; then nobody needs it.
        let _ = self.used.send(segment);
    }

    /// Installs a write if it is next in its row; else gives it back.
    fn try_install(&mut self, mut write: Write) -> Result<(), Write> {
        let rows = &self.shared.rows;
        if rows.installed(write.row) != write.prev {
            return Err(write);
        }
        if let Some(base) = write.base {
            let found = if base.row == NO_ROW {
                None
            } else if rows.installed(base.row) < base.seq {
                return Err(write);
            } else {
                // SAFETY: this write takes values from there and is not installed; what comes after
                // that version in its row is this write or the tombstone that the scheduler put
                // behind it.
                unsafe { rows.base(base.row, base.seq) }
            };
            let (draft, unresolved) = write.draft.resolve(&mut self.spare, found);
            self.counts.unresolved += unresolved;
            write.draft = draft;
        }
        if let Some(cost) = self.write_cost {
            std::thread::sleep(cost);
        }
        self.counts.bytes += write.draft.bytes() as i64;
        self.counts.versions += 1;
        self.counts.applied += 1;
        #[cfg(test)]
        crate::shared::lock(&self.shared.installed).push(write.draft.seq());
        // SAFETY: this write's predecessor is the newest installed one, as just seen.
        self.overwritten
            .extend(unsafe { rows.install(write.row, write.draft) });
        Ok(())
    }

    fn start_units(&mut self, segment: Box<Segment>) {
        let Some(units) = &mut self.units else { return };
        self.reached = segment.first + segment.headers.len() as u64 - 1;
        let all = (0..segment.units.len()).collect();
        // Counted once: what cannot begin at once.
        let behind = units.waiting.len();
        units.waiting.push_back(Waiting {
            segment,
            units: all,
        });
        self.retry_units_from(behind);
        if let Some(units) = &self.units
            && let Some(waiting) = units.waiting.get(behind)
        {
            self.counts.deferred += waiting.units.len() as u64;
        }
    }

    /// Runs every waiting transaction whose dependencies are done, from the nth waiting segment on.
    fn retry_units_from(&mut self, from: usize) -> bool {
        let Some(mut units) = self.units.take() else {
            return false;
        };
        let mut progressed = false;
        let mut index = from;
        let mut blocked = 0;
        while let Some(waiting) = units.waiting.get_mut(index) {
            let segment = &waiting.segment;
            let before = waiting.units.len();
            waiting.units.retain(|&unit| {
                if blocked >= LOOK_AHEAD {
                    return true;
                }
                let start = segment.begin_of(unit);
                let Some(own) = segment.units.get(unit) else {
                    return false;
                };
                let dependencies = &segment.dependencies[start.dependency..own.end.dependency];
                if !dependencies
                    .iter()
                    .all(|&number| units.done.is_done(number))
                {
                    blocked += 1;
                    return true;
                }
                blocked = 0;
                self.run_unit(segment, start, own.end);
                units.done.set(own.number);
                false
            });
            progressed |= waiting.units.len() < before;
            if waiting.units.is_empty() {
                if let Some(mut waiting) = units.waiting.remove(index) {
                    waiting.segment.clear();
                    let _ = self.used.send(waiting.segment);
                }
            } else {
                index += 1;
            }
            if blocked >= LOOK_AHEAD {
                break;
            }
        }
        self.units = Some(units);
        progressed
    }

    fn run_unit(&mut self, segment: &Segment, mut at: Place, end: Place) {
        while at.header < end.header {
            if let Some(write) = next_write(segment, &mut at, &mut self.spare)
                && let Err(write) = self.try_install(write)
            {
                panic!(
                    "write {} follows {}, which no earlier transaction installed",
                    write.draft.seq(),
                    write.prev
                );
            }
        }
    }
}

impl Worker {
    /// Says how far this worker is, and what it did.
    pub fn publish(&mut self) {
        let first_waiting = match &self.units {
            Some(units) => units.waiting.front().and_then(|waiting| {
                let unit = *waiting.units.front()?;
                Some(waiting.segment.first + waiting.segment.begin_of(unit).header as u64)
            }),
            None => self.deferred.oldest(),
        };
        let done = first_waiting.map_or(self.reached, |first| first - 1);
        let counts = std::mem::take(&mut self.counts);
        self.shared.account(counts.bytes, counts.versions);
        let progress = self.progress();
        // One writer, so reading and writing back is enough.
        let add = |counter: &AtomicU64, count: u64| {
            if count > 0 {
                counter.store(counter.load(Ordering::Relaxed) + count, Ordering::Relaxed);
            }
        };
        add(&progress.applied, counts.applied);
        add(&progress.deferred, counts.deferred);
        add(&progress.unresolved, counts.unresolved);
        // After the installations that it speaks of.
        progress.done.store(done, Ordering::Release);
        if self.shared.waiting.load(Ordering::Relaxed) > 0 {
            self.shared.wake_snapshotter();
        }
    }

    /// Frees the versions that no reader can reach any more.
    pub fn collect(&mut self) {
        let horizon = self.shared.horizon.load(Ordering::Acquire);
        let mut bytes = 0;
        let mut count = 0;
        while self
            .overwritten
            .front()
            .is_some_and(|overwritten| overwritten.by() <= horizon)
            && let Some(overwritten) = self.overwritten.pop_front()
        {
            if let Some(soon) = self.overwritten.get(PREFETCH_AHEAD) {
                soon.prefetch();
            }
            // SAFETY: the horizon was acquired and is not below the write that replaced this
            // version.
            bytes += unsafe { overwritten.free(&mut self.spare) } as i64;
            count += 1;
        }
        if count > 0 {
            self.shared.account(-bytes, -count);
            let collected = &self.progress().collected;
            collected.store(
                collected.load(Ordering::Relaxed) + count as u64,
                Ordering::Relaxed,
            );
        }
        self.progress()
            .collected_to
            .store(horizon, Ordering::Relaxed);
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.shared.rows.leave(self.overwritten.drain(..));
    }
}

/// The write at this place of a segment, ready to be installed; the place moves behind it. `None`
/// for what only takes a number.
fn next_write(segment: &Segment, at: &mut Place, spare: &mut Spare) -> Option<Write> {
    let Header {
        prev,
        row,
        len,
        layout,
        cells,
        kind,
    } = segment.headers[at.header];
    let seq = segment.first + at.header as u64;
    let body = &segment.data[at.data..at.data + len as usize];
    at.header += 1;
    at.data += len as usize;
    let (draft, base) = match kind {
        Kind::Put => (Draft::row(spare, seq, layout, cells, body), None),
        Kind::PutOver => {
            at.base += 1;
            (
                Draft::row(spare, seq, layout, cells, body),
                Some(segment.bases[at.base - 1]),
            )
        }
        Kind::Delete => (Draft::tombstone(spare, seq), None),
        Kind::Nothing => return None,
    };
    Some(Write {
        row,
        prev,
        draft,
        base,
    })
}
