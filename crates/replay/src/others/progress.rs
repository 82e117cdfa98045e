//! How far the requests of a replay have got, in recorded time.
//!
//! ```text
//!   recorded   R1 ──LPUSH───────┤      R2 ──────┤
//!              worker  BRPOP ..........job
//!   replay     R1 has asked its LPUSH, and what ended before the job came is over: it is given
//! ```
//!
//! Whatever a worker was answered, it was behind all that requests had got until then. What a
//! request does not ask in a replay, since a cache has it, is not waited for once it is over.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::{Duration, Instant};

use hindcast_model::Id;
use hindcast_trace::{Micros, Request, RequestId};

use crate::turns::Turns;

/// If nothing moved for so long, what is asked in the background may be what is waited for.
const PATIENCE: Duration = Duration::from_secs(1);

#[derive(Default)]
pub struct Progress {
    /// By arrival, once all were added.
    requests: Vec<Times>,
    places: HashMap<RequestId, usize>,
    /// Of the n-th and all behind it, the first moment at which one was over or was answered.
    first: Vec<Micros>,
    in_flight: BTreeSet<usize>,
    /// So many of them are sent, or were passed over.
    sent: usize,
    /// As it was found last, what was counted then, and when that changed last.
    last: Option<(Micros, (usize, usize), Instant)>,
    seen: usize,
}

struct Times {
    id: RequestId,
    arrived: Micros,
    ended: Micros,
    /// When its calls were answered; so many each time are to be given yet.
    calls: BTreeMap<Micros, usize>,
}

impl Progress {
    pub fn add(&mut self, request: &Request) {
        self.places.insert(request.id, self.requests.len());
        self.requests.push(Times {
            id: request.id,
            arrived: request.arrived,
            ended: request.ended,
            calls: BTreeMap::new(),
        });
    }

    /// A call of the request that was added was answered.
    pub fn calls(&mut self, request: RequestId, ended: Micros) {
        if let Some(&place) = self.places.get(&request) {
            *self.requests[place].calls.entry(ended).or_default() += 1;
        }
    }

    /// All were added.
    pub fn whole(&mut self) {
        self.requests.sort_by_key(|times| times.arrived);
        let places = self.requests.iter().enumerate();
        self.places = places.map(|(at, times)| (times.id, at)).collect();
        let mut first = Micros::MAX;
        let firsts = self.requests.iter().rev().map(|times| {
            first = first.min(times.next());
            first
        });
        self.first = firsts.collect();
        self.first.reverse();
    }

    /// A call of a request was given its answer.
    pub fn given(&mut self, request: u64, ended: Micros) {
        let Some(&place) = self.places.get(&Id(request)) else {
            return;
        };
        let calls = &mut self.requests[place].calls;
        if let Some(left) = calls.get_mut(&ended) {
            *left -= 1;
            if *left == 0 {
                calls.remove(&ended);
            }
        }
    }

    /// Looks which requests were sent and answered.
    pub fn look(&mut self, turns: &Turns, now: Instant) {
        let new = turns.sent_from(self.seen);
        self.seen += new.len();
        new.into_iter().for_each(|request| self.sent(request));
        let requests = &self.requests;
        self.in_flight
            .retain(|&place| !turns.is_answered(requests[place].id));
        let horizon = self.reached();
        let count = turns.count();
        match self.last {
            Some((last, counted, _)) if last == horizon && counted == count => {}
            _ => self.last = Some((horizon, count, now)),
        }
    }

    /// What was answered by this moment may be answered now.
    pub fn horizon(&self, now: Instant) -> Micros {
        match self.last {
            Some((.., since)) if now.saturating_duration_since(since) > PATIENCE => Micros::MAX,
            _ => self.reached(),
        }
    }

    pub fn sent(&mut self, request: RequestId) {
        if let Some(&place) = self.places.get(&request) {
            self.in_flight.insert(place);
            self.sent = self.sent.max(place + 1);
        }
    }

    fn reached(&self) -> Micros {
        let in_flight = self.in_flight.iter();
        let in_flight = in_flight.map(|&place| self.requests[place].next());
        let rest = self.first.get(self.sent).copied();
        in_flight.chain(rest).min().unwrap_or(Micros::MAX)
    }
}

impl Times {
    /// The next moment at which it does not need to have got yet.
    fn next(&self) -> Micros {
        let call = self.calls.keys().next().copied();
        call.map_or(self.ended, |call| call.min(self.ended))
    }
}
