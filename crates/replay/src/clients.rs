//! Which requests one client sent, one after the other.
//!
//! Services keep sessions in their memory: what a client's request sees there, the client's earlier
//! requests have put there, and no transaction says so. So a request is sent after those that were
//! answered, before it arrived, to the same client. A client is known by its cookies: by those that
//! it sent, and those that it was given. Also by values that look drawn (`learned`).
//!
//! Likewise what a request sees in a cache another one has put there: it gives
//! that, and who sees it carries it.
//!
//! That makes no request wait for one behind it in the line: what was answered before another
//! arrived has first used the database before the other did. Who puts something into a cache
//! stands before those who see it there ([`begin_before_who_sees`]).

use std::collections::{HashMap, HashSet};

use hindcast_model::Micros;
use hindcast_order::{Request, Span};
use hindcast_taplog::pins::{Number, mixed};

/// Shorter values are settings, which many clients have in common.
const IDENTITY: usize = 12;

/// By so much a recorder may note the end of an answer later than its client has it.
const NOTED_LATER: Micros = 1_000;

/// Of each request in flight.
#[derive(Default)]
pub struct Clients {
    in_flight: HashMap<Request, InFlight>,
    /// What was given by those that were sent: who carries it has it from the first of them.
    given: HashSet<u64>,
}

struct InFlight {
    answered: Micros,
    identities: Vec<Vec<u8>>,
    /// What the answer gives that a later request may carry; hashes.
    given: Vec<u64>,
    /// What it has put into caches; hashes.
    put: Vec<u64>,
}

type Headers = [(String, Vec<u8>)];

impl Clients {
    /// Whether a request with these headers, which arrived then and carries that, is to wait for
    /// another. Who carries what another was given has its answer, even if the recorder noted its
    /// end a little later. What ended much later was not where it had that from, and may wait for
    /// this one. What it saw in a cache may be of one that was in flight, which may see what this
    /// one puts there: then neither is sent after the other.
    pub fn must_wait(&self, arrived: Micros, headers: &Headers, carried: &HashSet<u64>) -> bool {
        let own: Vec<_> = identities(headers).collect();
        let is_own = |identity: &Vec<u8>| own.contains(&identity.as_slice());
        self.in_flight.values().any(|one| {
            let was_given = one.given.iter().any(|value| carried.contains(value));
            let is_seen = one.put.iter().any(|object| carried.contains(object));
            was_given && one.answered <= arrived + NOTED_LATER
                || one.answered <= arrived && (is_seen || one.identities.iter().any(is_own))
        })
    }

    /// It is sent again. `answered`: when it was answered, by a response with these headers that
    /// gives this.
    pub fn sent(
        &mut self,
        request: Request,
        headers: &Headers,
        answered: Micros,
        (by, mut given): (&Headers, Vec<u64>),
    ) {
        given.retain(|&value| self.given.insert(value));
        let both = identities(headers).chain(identities(by));
        let one = InFlight {
            answered,
            identities: both.map(<[u8]>::to_vec).collect(),
            given,
            put: Vec::new(),
        };
        self.in_flight.insert(request, one);
    }

    /// What a request that was sent has put into caches.
    pub fn has_put(&mut self, request: Request, objects: impl Iterator<Item = u64>) {
        if let Some(one) = self.in_flight.get_mut(&request) {
            one.put.extend(objects);
        }
    }

    pub fn ended(&mut self, request: Request) {
        self.in_flight.remove(&request);
    }
}

/// Hashes of what a request has put into caches, or has seen there.
pub fn cached(numbers: &[Number], is_seen: bool) -> impl Iterator<Item = u64> + '_ {
    /// No hash of a text begins so.
    const OBJECT: u64 = 0x63ac_6865;
    let own = numbers.iter().filter(move |one| one.is_seen() == is_seen);
    own.filter_map(|one| Some(mixed(OBJECT, one.object()? as u64)))
}

/// Has requests begin when they arrived that put something into a cache which one sees that would
/// be sent before them: they may do so before they first use the database. That one waits for it,
/// and others may have to wait for that one. `cached`: what a request has put there, or has seen.
pub fn begin_before_who_sees(
    spans: &mut [Span],
    arrived: &[Micros],
    cached: impl Fn(usize, bool) -> Vec<u64>,
) {
    let put = |by: usize| {
        cached(by, false)
            .into_iter()
            .map(move |object| (object, by))
    };
    let put: HashMap<u64, usize> = (0..spans.len()).flat_map(put).collect();
    if put.is_empty() {
        return;
    }
    let mut seers: Vec<usize> = (0..spans.len()).collect();
    while let Some(seer) = seers.pop() {
        for object in cached(seer, true) {
            let Some(&by) = put.get(&object).filter(|&&by| by != seer) else {
                continue;
            };
            if spans[by].first > spans[seer].first && spans[by].first > arrived[by] {
                spans[by].first = arrived[by];
                seers.push(by);
            }
        }
    }
}

/// Cookies, each with its name, that say who a client is.
pub(crate) fn identities(headers: &Headers) -> impl Iterator<Item = &[u8]> {
    headers.iter().flat_map(|(name, value)| {
        let cookies = match () {
            () if name.eq_ignore_ascii_case("cookie") => usize::MAX,
            // Behind it stands how long it is valid, and where.
            () if name.eq_ignore_ascii_case("set-cookie") => 1,
            () => 0,
        };
        let cookies = value.split(|&byte| byte == b';').take(cookies);
        cookies.map(<[u8]>::trim_ascii).filter(|cookie| {
            let value = cookie.iter().position(|&byte| byte == b'=');
            value.is_some_and(|at| cookie.len() - at > IDENTITY)
        })
    })
}

#[cfg(test)]
mod tests {
    use hindcast_taplog::pins::{Caller, Place, Series};

    use super::*;

    fn headers(name: &str, value: &str) -> Vec<(String, Vec<u8>)> {
        vec![(name.to_owned(), value.as_bytes().to_vec())]
    }

    /// A request is in flight that was answered at 10. Whether another waits for it.
    fn waits(sent: &str, given: &str, arrived: i64, other: &str) -> bool {
        let mut clients = Clients::default();
        let given = headers("Set-Cookie", given);
        let given = (&given[..], Vec::new());
        clients.sent(Request(0), &headers("cookie", sent), 10, given);
        clients.must_wait(arrived, &headers("cookie", other), &HashSet::new())
    }

    /// The second sees what the third has put, which had seen what the fourth has put. The first
    /// is none of them.
    #[test]
    fn who_puts_what_another_sees_is_sent_before_it() {
        let firsts = [11, 12, 30, 40];
        let span = |first| Span { first, last: None };
        let mut spans = firsts.map(span);
        let cached = |number: usize, is_seen| match (number, is_seen) {
            (1, true) | (2, false) => vec![71],
            (2, true) | (3, false) => vec![72],
            (3, true) => vec![72, 73],
            _ => Vec::new(),
        };
        begin_before_who_sees(&mut spans, &[9, 10, 8, 7], cached);
        assert_eq!(spans.map(|one| one.first), [11, 12, 8, 7]);
    }

    #[test]
    fn who_was_given_a_session_waits_for_that() {
        let given = "SESSION=0123456789abcdef; Path=/; HttpOnly";
        assert!(waits("", given, 10, "lang=de; SESSION=0123456789abcdef"));
        assert!(!waits("", given, 9, "SESSION=0123456789abcdef"));
        assert!(!waits("", given, 10, "SESSION=another-0123456789"));
        assert!(!waits("", given, 10, ""));
    }

    #[test]
    fn who_has_a_session_waits_for_what_was_answered_in_it() {
        let session = "SESSION=0123456789abcdef";
        assert!(waits(session, "", 10, session));
        assert!(!waits("theme=dark", "", 10, "theme=dark"));
    }

    #[test]
    fn who_saw_what_another_put_into_a_cache_waits_for_that() {
        let number = |value, asks| Number {
            series: Series {
                of: Caller(1),
                numbers: Place(2),
            },
            value,
            asks,
        };
        let mut clients = Clients::default();
        clients.sent(Request(0), &[], 10, (&[], Vec::new()));
        let numbers = [number(4711, 0), number(7, Number::SEEN)];
        clients.has_put(Request(0), cached(&numbers, false));
        let waits = |arrived, value| {
            let seen = cached(&[number(value, Number::SEEN)], true).collect();
            clients.must_wait(arrived, &[], &seen)
        };
        assert!(waits(10, 4711));
        // Beside that it was told that it was stale.
        assert!(waits(10, 1 << 58 | 4711));
        // It was put there by one that was not answered yet, or by nobody who is known.
        assert!(!waits(9, 4711));
        assert!(!waits(10, 7));
        assert!(!waits(10, 0));
    }

    #[test]
    fn who_carries_what_was_given_waits_for_that() {
        let mut clients = Clients::default();
        clients.sent(Request(0), &[], 10, (&[], vec![7, 8]));
        let waits =
            |carried: &[u64]| clients.must_wait(10, &[], &carried.iter().copied().collect());
        assert!(waits(&[1, 8]));
        assert!(!waits(&[1, 2]));
        let carried = HashSet::from([8]);
        assert!(!clients.must_wait(9 - NOTED_LATER, &[], &carried));
    }

    #[test]
    fn what_was_given_again_is_not_waited_for() {
        let mut clients = Clients::default();
        clients.sent(Request(0), &[], 10, (&[], vec![7]));
        clients.sent(Request(1), &[], 10, (&[], vec![7, 8]));
        clients.ended(Request(0));
        let waits = |carried| clients.must_wait(10, &[], &HashSet::from([carried]));
        assert!(waits(8));
        assert!(!waits(7));
    }

    #[test]
    fn nobody_waits_for_what_has_ended() {
        let session = headers("cookie", "SESSION=0123456789abcdef");
        let mut clients = Clients::default();
        clients.sent(Request(0), &session, 10, (&[], Vec::new()));
        clients.ended(Request(0));
        assert!(!clients.must_wait(10, &session, &HashSet::new()));
    }
}
