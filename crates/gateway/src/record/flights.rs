//! Which requests were in flight when. Pure.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use hindcast_trace::{Micros, Request, RequestId};

/// Which requests are in flight, and since when; kept only if somebody asks for moments.
#[derive(Debug, Default)]
pub(super) struct Flights {
    is_on: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    in_flight: BTreeMap<RequestId, Micros>,
    /// The latest arrival that is known.
    arrived: Option<Micros>,
    /// Since when what ends is looked at, and what has ended since: when it arrived and ended.
    watched: Option<(Micros, Vec<(Micros, Micros)>)>,
}

impl Flights {
    pub fn turn_on(&self) {
        self.is_on.store(true, Ordering::Relaxed);
    }

    fn state(&self) -> Option<MutexGuard<'_, State>> {
        let is_on = self.is_on.load(Ordering::Relaxed);
        is_on.then(|| self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub fn arrived(&self, id: RequestId, at: Micros) {
        if let Some(mut state) = self.state() {
            state.in_flight.insert(id, at);
            state.arrived = state.arrived.max(Some(at));
        }
    }

    pub fn ended(&self, request: &Request) {
        if let Some(mut state) = self.state() {
            state.in_flight.remove(&request.id);
            if let Some((since, ended)) = &mut state.watched
                && request.ended >= *since
            {
                ended.push((request.arrived, request.ended));
            }
        }
    }

    pub fn watch(&self, since: Micros) {
        if let Some(mut state) = self.state() {
            state.watched = Some((since, Vec::new()));
        }
    }

    pub fn watch_no_more(&self) {
        if let Some(mut state) = self.state() {
            state.watched = None;
        }
    }

    /// Whether none was in flight in a moment since it is watched.
    pub fn was_quiet(&self, moment: &RangeInclusive<Micros>) -> bool {
        let Some(state) = self.state() else {
            return false;
        };
        let Some((since, ended)) = &state.watched else {
            return false;
        };
        let (from, to) = (*moment.start(), *moment.end());
        from >= *since
            && state.in_flight.values().all(|&arrived| arrived > to)
            && ended
                .iter()
                .all(|&(arrived, ended)| arrived > to || ended < from)
    }

    pub fn has_passed(&self, to: Micros) -> bool {
        self.state().is_some_and(|state| state.arrived > Some(to))
    }
}

#[cfg(test)]
mod tests {
    use hindcast_trace::{Id, Response, Secrets};

    use super::*;

    fn request(id: u64, arrived: Micros, ended: Micros) -> Request {
        Request {
            id: Id(id),
            arrived,
            ended,
            method: "GET".to_owned(),
            target: "/".to_owned(),
            headers: Vec::new(),
            body: Vec::new(),
            caller_traceparent: None,
            user_id: None,
            came_to: None,
            came_from: None,
            came_by: None,
            response: Response::Broken {
                reason: String::new(),
            },
            clock: Vec::new(),
            secrets: Secrets::None,
            calls: Vec::new(),
        }
    }

    /// Requests are `(arrived, ended)`; those without an end are in flight. Is it quiet from 10 to
    /// 20?
    #[track_caller]
    fn check(requests: &[(Micros, Option<Micros>)], expected: bool) {
        let flights = Flights::default();
        flights.turn_on();
        let tell = |times: std::ops::Range<Micros>| {
            for (&(arrived, ended), id) in requests.iter().zip(1..) {
                if times.contains(&arrived) {
                    flights.arrived(Id(id), arrived);
                }
                if let Some(ended) = ended.filter(|ended| times.contains(ended)) {
                    flights.ended(&request(id, arrived, ended));
                }
            }
        };
        tell(0..10);
        flights.watch(10);
        tell(10..100);
        assert_eq!(flights.was_quiet(&(10..=20)), expected, "{requests:?}");
    }

    #[test]
    fn a_moment_is_quiet_if_nothing_was_in_flight_in_any_part_of_it() {
        check(&[], true);
        check(&[(1, Some(9)), (21, Some(30))], true);
        check(&[(1, Some(10))], false);
        check(&[(1, Some(30))], false);
        check(&[(12, Some(15))], false);
        check(&[(20, Some(25))], false);
        check(&[(1, None)], false);
    }

    #[test]
    fn what_nobody_watched_is_not_known() {
        let flights = Flights::default();
        flights.turn_on();
        flights.watch(10);
        assert!(!flights.was_quiet(&(5..=20)));
        assert!(!Flights::default().was_quiet(&(1..=2)));
    }
}
