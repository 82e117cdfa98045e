//! Drives the Moodle service until MDL-59854 has struck: a user who is subscribed to one forum twice.
//!
//! While the usual mix runs, two clients play one impatient user: both send the same subscription at the same time, as a double click
//! does, until both are told that they created it. Nothing but HTTP is used, so it works as well through a recorder.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::drive::{
    Client, DriveError, DriveOptions, HttpCall, HttpError, Limit, Report, Requests, Target, drive,
};
use crate::moodle::{self, Subscribe, Subscribed, Subscribers};
use crate::random::Random;
use crate::{Scale, Workload};

#[derive(Clone, Debug)]
pub struct RaceOptions {
    pub target: Target,
    pub scale: Scale,
    pub seed: u64,
    /// Clients that run the usual mix meanwhile.
    pub clients: usize,
    pub time_max: Duration,
    /// So long the usual mix runs alone, before the first double click and again after the duplicate.
    pub around: Duration,
}

#[derive(Debug, thiserror::Error)]
pub enum RaceError {
    #[error(transparent)]
    Drive(#[from] DriveError),
    #[error("no duplicate in {attempts} double clicks within {} s", .seconds.round())]
    NotFound { attempts: u64, seconds: f64 },
    #[error("a double click went wrong")]
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
    pub userid: i64,
    pub forum: i64,
    /// The two rows of `mdl_forum_subscriptions`.
    pub subscriptions: [i64; 2],
    /// Double clicks it took, and how long they took.
    pub attempts: u64,
    pub seconds: f64,
    /// Of the usual mix.
    pub load: Report,
}

pub fn race_moodle(options: &RaceOptions) -> Result<Race, RaceError> {
    let stop = Arc::new(AtomicBool::new(false));
    let load = DriveOptions {
        clients: options.clients,
        stop: stop.clone(),
        ..DriveOptions::new(
            options.target.clone(),
            Limit::duration(options.time_max + 2 * options.around),
        )
    };
    let mix = Requests::new(Workload::Moodle, options.scale, options.seed, None)
        .expect("the usual mix is one");
    thread::scope(|scope| {
        let load = scope.spawn(|| drive(mix, &load));
        thread::sleep(options.around);
        let found = double_click(options, Instant::now());
        if found.is_ok() {
            thread::sleep(options.around);
        }
        stop.store(true, Ordering::Relaxed);
        let load = load
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        let Found {
            attempts,
            seconds,
            subscriptions: [first, second],
        } = found?;
        Ok(Race {
            userid: first.userid,
            forum: first.forum,
            subscriptions: [first.subscription, second.subscription],
            attempts,
            seconds,
            load,
        })
    })
}

struct Found {
    attempts: u64,
    seconds: f64,
    subscriptions: [Subscribed; 2],
}

fn double_click(options: &RaceOptions, started: Instant) -> Result<Found, RaceError> {
    // Another sequence than the load's, which would only meet subscriptions that exist by now.
    let mut random = Random::new(!options.seed);
    let requests = moodle::Requests::new(options.scale);
    let mut clients = [0, 1].map(|_| Client::new(options.target.clone(), Duration::from_secs(30)));
    let mut attempts = 0;
    while started.elapsed() < options.time_max {
        attempts += 1;
        let wish = requests.subscription(&mut random);
        if let [Some(first), Some(second)] = subscribe_twice(&mut clients, wish)?
            && first.created
            && second.created
            && is_listed_twice(&mut clients[0], wish)?
        {
            let mut both = [first, second];
            both.sort_by_key(|subscribed| subscribed.subscription);
            let seconds = started.elapsed().as_secs_f64();
            return Ok(Found {
                attempts,
                seconds,
                subscriptions: both,
            });
        }
    }
    Err(RaceError::NotFound {
        attempts,
        seconds: started.elapsed().as_secs_f64(),
    })
}

/// `None` for a request that lost against the other one, as it may in a fixed variant.
fn subscribe_twice(
    clients: &mut [Client; 2],
    wish: Subscribe,
) -> Result<[Option<Subscribed>; 2], RaceError> {
    let call = HttpCall::post("/subscribe".to_owned(), &wish);
    let together = Barrier::new(2);
    let [one, other] = clients;
    let click = |client: &mut Client| {
        together.wait();
        let reply = client.send(&call).map_err(RaceError::Request)?;
        match reply.status {
            409 => Ok(None),
            200 | 201 => parse(&call, reply.status, reply.body).map(Some),
            status => Err(answer(&call, status, &reply.body)),
        }
    };
    thread::scope(|scope| {
        let other = scope.spawn(|| click(other));
        let one = click(one);
        let other = other
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        Ok([one?, other?])
    })
}

/// The answers said so; this asks the list that users see.
fn is_listed_twice(client: &mut Client, wish: Subscribe) -> Result<bool, RaceError> {
    let call = HttpCall::get(format!("/forums/{}/subscribers", wish.forum));
    let reply = client.send(&call).map_err(RaceError::Request)?;
    if reply.status != 200 {
        return Err(answer(&call, reply.status, &reply.body));
    }
    let list: Subscribers = parse(&call, reply.status, reply.body)?;
    Ok(list
        .subscribers
        .iter()
        .filter(|subscriber| subscriber.id == wish.userid)
        .count()
        > 1)
}

fn parse<T: serde::de::DeserializeOwned>(
    call: &HttpCall,
    status: u16,
    body: Vec<u8>,
) -> Result<T, RaceError> {
    serde_json::from_slice(&body).map_err(|_| answer(call, status, &body))
}

fn answer(call: &HttpCall, status: u16, body: &[u8]) -> RaceError {
    RaceError::Answer {
        path: call.path.clone(),
        status,
        body: String::from_utf8_lossy(body).into_owned(),
    }
}
