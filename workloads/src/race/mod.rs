//! Drives a service until its bug has struck.
//!
//! While the usual mix runs, two clients do, at the same time, what the bug needs two requests for,
//! again and again until the answers show it: the database itself is not asked. Nothing but HTTP is
//! used, so it works as well through a recorder.

mod moodle;
mod wp_comments;
mod wp_options;

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::drive::{
    Client, DriveError, DriveOptions, HttpCall, HttpError, HttpReply, Limit, Report, Requests,
    Target, drive,
};
use crate::random::Random;
use crate::{Scale, Workload};

pub use moodle::SubscribedTwice;
pub use wp_comments::CommentLost;
pub use wp_options::OptionRefused;

#[derive(Clone, Debug)]
pub struct RaceOptions {
    pub target: Target,
    pub scale: Scale,
    pub seed: u64,
    /// Clients that run the usual mix meanwhile.
    pub clients: usize,
    pub time_max: Duration,
    /// So long the usual mix runs alone, before the first try and again after the bug has struck.
    pub around: Duration,
}

#[derive(Debug, thiserror::Error)]
pub enum RaceError {
    #[error("{0} has no bug that a race provokes")]
    NoBug(Workload),
    #[error(transparent)]
    Drive(#[from] DriveError),
    #[error("the bug did not strike in {attempts} {tries} within {} s", .seconds.round())]
    NotFound {
        attempts: u64,
        tries: &'static str,
        seconds: f64,
    },
    #[error("a request of a race went wrong")]
    Request(#[source] HttpError),
    #[error("the service answered {status} to {path}: {body}")]
    Answer {
        path: String,
        status: u16,
        body: String,
    },
}

/// What was found.
#[derive(Clone, Debug, Serialize)]
pub struct Race {
    #[serde(flatten)]
    pub struck: Struck,
    /// Tries it took, and how long they took.
    pub attempts: u64,
    pub seconds: f64,
    /// What a try is: `double clicks`.
    #[serde(skip)]
    pub tries: &'static str,
    /// Of the usual mix.
    pub load: Report,
}

/// The damage, as clients see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Struck {
    SubscribedTwice(SubscribedTwice),
    OptionRefused(OptionRefused),
    CommentLost(CommentLost),
}

impl fmt::Display for Struck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SubscribedTwice(struck) => struck.fmt(f),
            Self::OptionRefused(struck) => struck.fmt(f),
            Self::CommentLost(struck) => struck.fmt(f),
        }
    }
}

/// One bug and how to provoke it.
trait Scenario {
    /// What a try is called, in the plural.
    const TRIES: &'static str;

    /// Tries once. `None`: it did not strike.
    fn provoke(
        &mut self,
        clients: &mut [Client; 2],
        random: &mut Random,
    ) -> Result<Option<Struck>, RaceError>;
}

/// Provokes the bug of a workload.
pub fn race(workload: Workload, options: &RaceOptions) -> Result<Race, RaceError> {
    match workload {
        Workload::Moodle => run(workload, options, moodle::DoubleClick::new(options.scale)),
        Workload::WpOptions => run(workload, options, wp_options::AddTogether::default()),
        Workload::WpComments => run(
            workload,
            options,
            wp_comments::CommentWhileTrashing::new(options.scale),
        ),
        Workload::Tpcc | Workload::Wordpress => Err(RaceError::NoBug(workload)),
    }
}

fn run<S: Scenario>(
    workload: Workload,
    options: &RaceOptions,
    scenario: S,
) -> Result<Race, RaceError> {
    let stop = Arc::new(AtomicBool::new(false));
    let load = DriveOptions {
        clients: options.clients,
        stop: stop.clone(),
        ..DriveOptions::new(
            options.target.clone(),
            Limit::duration(options.time_max + 2 * options.around),
        )
    };
    let mix =
        Requests::new(workload, options.scale, options.seed, None).expect("the usual mix is one");
    thread::scope(|scope| {
        let load = scope.spawn(|| drive(mix, &load));
        thread::sleep(options.around);
        let found = provoke(options, scenario, Instant::now());
        if found.is_ok() {
            thread::sleep(options.around);
        }
        stop.store(true, Ordering::Relaxed);
        let load = load
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        let Found {
            struck,
            attempts,
            seconds,
        } = found?;
        Ok(Race {
            struck,
            attempts,
            seconds,
            tries: S::TRIES,
            load,
        })
    })
}

struct Found {
    struck: Struck,
    attempts: u64,
    seconds: f64,
}

fn provoke<S: Scenario>(
    options: &RaceOptions,
    mut scenario: S,
    started: Instant,
) -> Result<Found, RaceError> {
    // Another sequence than the load's, which would only meet what exists by now.
    let mut random = Random::new(!options.seed);
    let mut clients = [0, 1].map(|_| Client::new(options.target.clone(), Duration::from_secs(30)));
    let mut attempts = 0;
    while started.elapsed() < options.time_max {
        attempts += 1;
        if let Some(struck) = scenario.provoke(&mut clients, &mut random)? {
            return Ok(Found {
                struck,
                attempts,
                seconds: started.elapsed().as_secs_f64(),
            });
        }
    }
    Err(RaceError::NotFound {
        attempts,
        tries: S::TRIES,
        seconds: started.elapsed().as_secs_f64(),
    })
}

/// Sends one request from each client at the same time.
fn together(clients: &mut [Client; 2], calls: [&HttpCall; 2]) -> Result<[HttpReply; 2], RaceError> {
    let start = Barrier::new(2);
    let send = |client: &mut Client, call: &HttpCall| {
        start.wait();
        client.send(call).map_err(RaceError::Request)
    };
    let ([one, other], [first, second]) = (clients, calls);
    thread::scope(|scope| {
        let other = scope.spawn(|| send(other, second));
        let one = send(one, first);
        let other = other
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        Ok([one?, other?])
    })
}

/// `None` for a request that lost against another one, as it may in a fixed variant or beside other
/// clients.
fn unless_lost<T: DeserializeOwned>(
    call: &HttpCall,
    reply: HttpReply,
) -> Result<Option<T>, RaceError> {
    match reply.status {
        409 => Ok(None),
        _ => success(call, reply).map(Some),
    }
}

/// The answer of a request that must succeed.
fn success<T: DeserializeOwned>(call: &HttpCall, reply: HttpReply) -> Result<T, RaceError> {
    match reply.status {
        200 | 201 => serde_json::from_slice(&reply.body).map_err(|_| unexpected(call, &reply)),
        _ => Err(unexpected(call, &reply)),
    }
}

fn unexpected(call: &HttpCall, reply: &HttpReply) -> RaceError {
    RaceError::Answer {
        path: call.path.clone(),
        status: reply.status,
        body: String::from_utf8_lossy(&reply.body).into_owned(),
    }
}
