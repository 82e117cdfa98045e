//! The store's own scheduler, workers and snapshotter, stepped in any order on one thread and
//! judged by the laws of `hindcast_order::rows`.
//!
//! The judge knows the log and nothing of how the store works. It says which writes may be applied
//! ([`Schedule`]) and which states readers may see ([`Prefixes`]).

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{channel, sync_channel};
use std::time::Duration;

use hindcast_order::rows::{
    Constraints, Granularity, Log, Prefix, Prefixes, Reader, Row, Schedule, Seq,
};
use proptest::prelude::*;
use proptest::sample::Index;

use crate::modes::Done;
use crate::reader::Snapshot;
use crate::scheduler::Appender;
use crate::shared::{Shared, lock};
use crate::snapshotter::Snapshotter;
use crate::types::{Cell, Mark, Mode, Options, TableId};
use crate::worker::Worker;

const TABLE: TableId = TableId(1);

/// More than any case needs: the appender must never wait for a worker of the same thread.
const SEGMENTS_MAX: usize = 512;

#[derive(Clone, Copy, Debug)]
enum Op {
    /// Writes the row with a number of its own; `keeps` takes the second value from the row as it
    /// was.
    Put {
        row: u8,
        keeps: bool,
        moved_from: Option<u8>,
    },
    Delete {
        row: u8,
    },
    Commit,
}

/// The number of the operation that wrote the row, and that of the one which last wrote all of it.
type Value = (u64, Option<u64>);

/// Few rows, so that most writes conflict.
fn op() -> impl Strategy<Value = Op> {
    let row = || prop_oneof![3 => 0..3u8, 2 => 3..12u8];
    prop_oneof![
        6 => (row(), any::<bool>(), prop::option::weighted(0.3, row()))
            .prop_map(|(row, keeps, moved_from)| Op::Put { row, keeps, moved_from }),
        2 => row().prop_map(|row| Op::Delete { row }),
        3 => Just(Op::Commit),
    ]
}

/// What the laws know: the log, and every state that was committed.
fn judges(ops: &[Op]) -> (Log, Prefixes<u8, Value>) {
    let (mut log, mut history) = (Log::new(), Prefixes::new());
    let mut rows = BTreeMap::<u8, Value>::new();
    for (number, op) in (0..).zip(ops) {
        match *op {
            Op::Put {
                row,
                keeps,
                moved_from,
            } => {
                let from = moved_from.filter(|&from| from != row);
                let base = rows.get(&from.unwrap_or(row)).copied();
                let moved = from.filter(|_| base.is_some());
                let source = moved.filter(|_| keeps).unwrap_or(row);
                log.write_from(Row(row.into()), Row(source.into()));
                let kept = base.and_then(|base| base.1);
                let value = (number, if keeps { kept } else { Some(number) });
                rows.insert(row, value);
                history.put(row, value);
                if let Some(from) = moved {
                    log.write(Row(from.into()));
                    rows.remove(&from);
                    history.delete(from);
                }
            }
            Op::Delete { row } => {
                if rows.remove(&row).is_some() {
                    log.write(Row(row.into()));
                    history.delete(row);
                }
            }
            Op::Commit => {
                log.commit();
                history.commit();
            }
        }
    }
    (log, history)
}

struct Stage {
    shared: Arc<Shared>,
    appender: Appender,
    workers: Vec<Worker>,
    snapshotter: Snapshotter,
    ops: Vec<Op>,
    fed: usize,
    commits: u64,
    /// By worker: the writes that it was given.
    given: Vec<BTreeSet<Seq>>,
    log: Log,
    law: Schedule,
    history: Prefixes<u8, Value>,
    reader: Reader,
}

impl Stage {
    fn new(mut ops: Vec<Op>, options: Options) -> Self {
        if options.mode == Mode::Transaction {
            // An open transaction holds back what is complete in its segment.
            ops.push(Op::Commit);
        }
        let (log, history) = judges(&ops);
        let granularity = match options.mode {
            Mode::Row => Granularity::Row,
            Mode::Transaction => Granularity::Transaction,
            Mode::Single => Granularity::Single,
        };
        let count = match options.mode {
            Mode::Single => 1,
            Mode::Row | Mode::Transaction => options.workers,
        };
        let done = (options.mode == Mode::Transaction).then(|| Arc::new(Done::new()));
        let shared = Arc::new(Shared::new(options, count));
        let (used_sender, used) = channel();
        let (mut queues, mut workers) = (Vec::new(), Vec::new());
        for number in 0..count {
            let (queue, segments) = sync_channel(SEGMENTS_MAX);
            queues.push(queue);
            let (shared, used, done) = (Arc::clone(&shared), used_sender.clone(), done.clone());
            workers.push(Worker::new(shared, number, segments, used, done));
        }
        Self {
            appender: Appender::new(Arc::clone(&shared), queues, used),
            snapshotter: Snapshotter::new(Arc::clone(&shared)),
            given: vec![BTreeSet::new(); count],
            workers,
            shared,
            ops,
            fed: 0,
            commits: 0,
            law: Schedule::new(&Constraints::new(&log, granularity)),
            log,
            history,
            reader: Reader::new(),
        }
    }

    /// The scheduler takes so many operations in.
    fn feed(&mut self, count: usize) {
        for number in self.fed..self.ops.len().min(self.fed + count) {
            let text = number.to_be_bytes();
            match self.ops[number] {
                Op::Put {
                    row,
                    keeps,
                    moved_from,
                } => {
                    let kept = if keeps {
                        Cell::Unchanged
                    } else {
                        Cell::Value(&text)
                    };
                    let cells = [Cell::Value(&text), kept].into_iter();
                    let from = moved_from.map(|from| [from]);
                    let from = from.as_ref().map(|from| &from[..]);
                    self.appender.put(TABLE, &[row], 0, cells, from);
                }
                Op::Delete { row } => self.appender.delete(TABLE, &[row]),
                Op::Commit => {
                    self.commits += 1;
                    let (lsn, time) = (self.commits, self.commits as i64);
                    self.appender.commit(Mark { lsn, time });
                }
            }
            self.fed = number + 1;
        }
    }

    /// A worker looks at what it has put off, after its next segment if it is to take one. All that
    /// it applies was safe, and afterwards nothing that it was given is.
    fn work(&mut self, number: usize, takes: bool) {
        let worker = &mut self.workers[number];
        if takes && let Ok(segment) = worker.segments.try_recv() {
            let writes = segment.first..segment.first + segment.headers.len() as u64;
            self.given[number].extend(writes.map(Seq));
            worker.take(segment);
        }
        while worker.retry() {}
        worker.publish();
        worker.collect();
        for write in lock(&self.shared.installed).drain(..).map(Seq) {
            assert!(self.law.is_safe(write), "write {write} was not safe");
            self.law.done(write);
        }
        let mut ready = self.law.ready();
        let missed = ready.find(|write| self.given[number].contains(write));
        assert_eq!(missed, None, "worker {number} does not apply a safe write");
    }

    /// The snapshotter moves the cut, and a reader looks.
    fn read(&mut self) -> Result<(), TestCaseError> {
        self.snapshotter.step();
        let snapshot = Snapshot::current(&self.shared);
        let cut = Seq(snapshot.seq().0);
        prop_assert_eq!(
            self.log.boundary(cut),
            cut,
            "the cut is where a transaction ends"
        );
        let behind = self.log.writes().take_while(|&(write, _)| write <= cut);
        for (write, _) in behind {
            prop_assert!(
                self.law.is_done(write),
                "{} is below the cut and not applied",
                write
            );
        }
        let number = |bytes: &[u8]| Some(u64::from_be_bytes(bytes.try_into().ok()?));
        let state = snapshot.scan(TABLE, Bound::Unbounded, Bound::Unbounded);
        let state: BTreeMap<u8, Value> = state
            .filter_map(|(key, row)| {
                let kept = row.cell(1).and_then(number);
                Some((key[0], (number(row.cell(0)?)?, kept)))
            })
            .collect();
        let seen = self.history.find_whole(&state);
        let seen = seen.map_err(|torn| TestCaseError::fail(torn.to_string()))?;
        prop_assert!(seen.contains(Prefix(snapshot.mark().lsn)));
        let went_back = self.reader.saw(&seen);
        went_back.map_err(|back| TestCaseError::fail(back.to_string()))?;
        Ok(())
    }

    /// Everybody does what is left.
    fn finish(&mut self) -> Result<(), TestCaseError> {
        self.feed(usize::MAX >> 1);
        self.appender.flush();
        // Of what is left the first write is safe, so each round applies something.
        for _ in 0..=2 * self.ops.len() {
            for worker in 0..self.workers.len() {
                self.work(worker, true);
            }
        }
        self.read()?;
        let open = self.log.boundary(self.log.last());
        let left = self.law.ready().next();
        prop_assert!(left.is_none_or(|write| write > open), "{:?} is left", left);
        prop_assert_eq!(self.shared.visible.load(Ordering::Acquire), open.0);
        prop_assert_eq!(Snapshot::current(&self.shared).mark().lsn, self.commits);
        Ok(())
    }
}

fn modes() -> impl Strategy<Value = Mode> {
    prop_oneof![3 => Just(Mode::Row), 2 => Just(Mode::Transaction), 1 => Just(Mode::Single)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 3 } else { 300 }, ..ProptestConfig::default() })]

    #[test]
    fn the_store_obeys_the_laws_of_its_granularity(
        ops in prop::collection::vec(op(), 0..80),
        mode in modes(),
        workers in 1..5usize,
        segment_bytes in prop_oneof![Just(1usize), 32usize..400],
        keeps_history in any::<bool>(),
        steps in prop::collection::vec((0..10u8, any::<Index>()), 0..200),
    ) {
        let retention = Duration::from_secs(if keeps_history { 3600 } else { 0 });
        let options = Options { workers, mode, segment_bytes, retention, ..Options::default() };
        let mut stage = Stage::new(ops, options);
        for (what, choice) in steps {
            match what {
                0..=2 => stage.feed(1 + choice.index(6)),
                3..=6 => stage.work(choice.index(stage.workers.len()), true),
                7 => stage.work(choice.index(stage.workers.len()), false),
                _ => stage.read()?,
            }
        }
        stage.finish()?;
    }
}
