//! A thread per connection that writes what it is given, and the barrier before they commit.

use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;

use hindcast_pg::{Connection, Interrupter};

use super::epoch::{End, Part};
use super::error::BackupError;
use super::writer::{Committed, Writer, Written};

/// What a worker is to write.
pub struct Job {
    pub part: Part,
    /// Others write other rows of the same epoch.
    pub barrier: Option<Arc<Barrier>>,
    /// Whose progress the end of the epoch is.
    pub workers: Vec<usize>,
    pub workers_total: usize,
}

#[derive(Debug)]
pub enum Report {
    /// A part that is not the last of its epoch.
    Part(Written),
    Epoch(End, Written, Committed),
    Failed(BackupError),
}

/// Nobody commits before all can.
pub struct Barrier {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    missing: usize,
    failed: bool,
}

impl Barrier {
    pub fn new(workers: usize) -> Self {
        Self {
            state: Mutex::new(State {
                missing: workers,
                failed: false,
            }),
            changed: Condvar::new(),
        }
    }

    /// Waits for all others. Whether all can commit.
    ///
    /// It ends because every worker votes: after its statements, which end with an answer, an
    /// error, or the connection's interruption.
    fn vote(&self, can_commit: bool) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.missing -= 1;
        state.failed |= !can_commit;
        self.changed.notify_all();
        while state.missing > 0 && !state.failed {
            state = self
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
        !state.failed
    }
}

/// Votes against, should its owner not come to vote.
struct Vote<'a>(Option<&'a Barrier>);

impl Vote<'_> {
    fn cast(mut self, can_commit: bool) -> bool {
        match self.0.take() {
            Some(barrier) => barrier.vote(can_commit),
            None => can_commit,
        }
    }
}

impl Drop for Vote<'_> {
    fn drop(&mut self) {
        if let Some(barrier) = self.0 {
            barrier.vote(false);
        }
    }
}

/// The owner's end of a worker. Dropping it interrupts what the worker is doing, and waits for its
/// end.
pub struct Worker {
    jobs: Option<Sender<Job>>,
    interrupter: Interrupter,
    thread: Option<JoinHandle<()>>,
}

impl Worker {
    /// # Errors
    /// If the system has no thread left.
    pub fn start(
        number: usize,
        connection: Connection,
        slot: &str,
        copy_rows_min: usize,
        reports: Sender<Report>,
    ) -> std::io::Result<Self> {
        let (jobs, queue) = std::sync::mpsc::channel();
        let interrupter = connection.interrupter();
        let writer = Writer::new(connection, slot, copy_rows_min);
        let thread = std::thread::Builder::new()
            .name(format!("backup-{number}"))
            .spawn(move || run(writer, &queue, &reports))?;
        Ok(Self {
            jobs: Some(jobs),
            interrupter,
            thread: Some(thread),
        })
    }

    pub fn interrupter(&self) -> Interrupter {
        self.interrupter.clone()
    }

    /// # Errors
    /// If the worker has ended.
    pub fn give(&self, job: Job) -> Result<(), BackupError> {
        let jobs = self.jobs.as_ref().ok_or(BackupError::Stopped)?;
        jobs.send(job).map_err(|_| BackupError::Stopped)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.jobs = None;
        self.interrupter.interrupt();
        if let Some(thread) = self.thread.take() {
            // A panic has been reported by its hook, and shows as a missing report.
            let _ = thread.join();
        }
    }
}

fn run(mut writer: Writer, queue: &Receiver<Job>, reports: &Sender<Report>) {
    while let Ok(job) = queue.recv() {
        let report = perform(&mut writer, &job).unwrap_or_else(Report::Failed);
        // What was written is freed here, and not where the next batch is waited for.
        drop(job);
        let failed = matches!(report, Report::Failed(_));
        if reports.send(report).is_err() || failed {
            return;
        }
    }
}

fn perform(writer: &mut Writer, job: &Job) -> Result<Report, BackupError> {
    let vote = Vote(job.barrier.as_deref());
    let result = writer.write(&job.part, &job.workers, job.workers_total);
    let all = vote.cast(result.is_ok());
    let written = result?;
    let Some(end) = job.part.end else {
        return Ok(Report::Part(written));
    };
    if !all {
        writer.roll_back();
        return Err(BackupError::Stopped);
    }
    let committed = writer.commit(job.part.lsn)?;
    Ok(Report::Epoch(end, written, committed))
}
