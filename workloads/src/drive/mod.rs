//! The load driver: many clients, closed or open loop, latency from the moment a request was due.
//!
//! In a *closed* loop each client sends its next request when it has the answer to the last. In an
//! *open* loop requests are due at times of their own, at a fixed distance or as a Poisson process,
//! whether or not the service keeps up; the clients are then only connections, and a request that
//! finds all of them busy waits. Its latency counts from when it was due, so a stall of the service
//! shows in full ("coordinated omission" is what hiding it is called).
//!
//! The sequence of requests is a function of the seed: one generator feeds all clients. Which
//! client sends which request is not.
//!
//! Clients are threads with blocking sockets. That costs two system calls per request and nothing
//! else, so that the driver takes as little as possible of the machine it shares with what it
//! measures, and a sleeping client wakes within tens of microseconds of when its request is due,
//! where an event loop's timers have a granularity of a millisecond.

mod client;
mod generator;
mod report;
mod schedule;

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

pub use client::{Client, HttpError, HttpReply, Target, TargetError};
pub use generator::{Generator, HttpCall, Mix, MixError, Operation, Requests};
pub use report::{Latency, OperationReport, Report};
pub use schedule::{Arrivals, Limit};

use report::Tally;
use schedule::{Due, Schedule};

/// An open loop gives up on requests that are this late after its end, and says how many there
/// were.
const OVERTIME_MAX: Duration = Duration::from_secs(10);

#[derive(Clone, Debug)]
pub struct DriveOptions {
    pub target: Target,
    /// Clients of a closed loop, connections of an open one.
    pub clients: usize,
    pub arrivals: Arrivals,
    pub limit: Limit,
    /// Requests due in this first part are sent but not counted.
    pub warmup: Duration,
    /// Send a `traceparent` of the driver's own with each request.
    pub traceparent: bool,
    pub timeout: Duration,
    /// Ends the run early once true.
    pub stop: Arc<AtomicBool>,
}

impl DriveOptions {
    pub fn new(target: Target, limit: Limit) -> Self {
        Self {
            target,
            clients: 16,
            arrivals: Arrivals::Closed,
            limit,
            warmup: Duration::ZERO,
            traceparent: false,
            timeout: Duration::from_secs(30),
            stop: Arc::default(),
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum DriveError {
    #[error("cannot reach the service at {target}")]
    Unreachable { target: Target, source: io::Error },
    #[error("cannot start client {client} of {clients}")]
    Thread {
        client: usize,
        clients: usize,
        source: io::Error,
    },
}

/// Sends requests until the limit and reports. Blocks; refuses to start if nobody listens at the
/// target.
pub fn drive(requests: Requests, options: &DriveOptions) -> Result<Report, DriveError> {
    let target = &options.target;
    Client::new(target.clone(), options.timeout)
        .connect()
        .map_err(|source| DriveError::Unreachable {
            target: target.clone(),
            source,
        })?;

    let started = Instant::now();
    let operations = requests.operations();
    let schedule = Schedule::new(
        requests,
        options.arrivals,
        options.limit,
        options.traceparent,
        started,
    );
    let shared = Shared {
        schedule: Mutex::new(schedule),
        tally: Mutex::new(Tally::new(operations.len())),
        measured_from: started + options.warmup,
        options,
    };
    let clients = options.clients.max(1);
    thread::scope(|scope| {
        for number in 0..clients {
            let client = thread::Builder::new()
                .name(format!("client-{number}"))
                .stack_size(256 << 10);
            if let Err(source) = client.spawn_scoped(scope, || shared.run_client()) {
                options.stop.store(true, Ordering::Relaxed);
                return Err(DriveError::Thread {
                    client: number,
                    clients,
                    source,
                });
            }
        }
        Ok(())
    })?;
    let tally = lock(&shared.tally);
    Ok(tally.report(operations, options.arrivals, clients, shared.measured_from))
}

/// A client that panicked takes the run down with it when its scope ends; until then the others go
/// on.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Shared<'a> {
    schedule: Mutex<Schedule>,
    tally: Mutex<Tally>,
    measured_from: Instant,
    options: &'a DriveOptions,
}

impl Shared<'_> {
    fn run_client(&self) {
        let mut client = Client::new(self.options.target.clone(), self.options.timeout);
        while !self.options.stop.load(Ordering::Relaxed) {
            let (due, ends) = {
                let mut schedule = lock(&self.schedule);
                (schedule.next(Instant::now()), schedule.ends())
            };
            let Some(Due {
                at,
                operation,
                call,
            }) = due
            else {
                break;
            };
            if ends.is_some_and(|end| Instant::now() > end + OVERTIME_MAX) {
                lock(&self.tally).abandon();
                continue;
            }
            if !self.sleep_until(at) {
                break;
            }
            let sent = Instant::now();
            let outcome = client.send(&call);
            let answered = Instant::now();
            if at >= self.measured_from {
                lock(&self.tally).count(operation, outcome, at, sent, answered);
            }
        }
    }

    /// False if the run was stopped meanwhile.
    fn sleep_until(&self, at: Instant) -> bool {
        const NAP: Duration = Duration::from_millis(100);
        loop {
            let left = at.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return true;
            }
            if self.options.stop.load(Ordering::Relaxed) {
                return false;
            }
            thread::sleep(left.min(NAP));
        }
    }
}
