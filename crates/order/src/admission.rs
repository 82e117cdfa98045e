//! When a recorded request may be sent again.
//!
//! Workers and database connections are finite. A request that was sent too early holds one while
//! its transaction waits for the schedule, and if all are held like that, the request that
//! everybody waits for gets none. The rule that prevents it:
//!
//! > Requests are sent in the order in which they first used the database, at most `limit` at a
//! > time, where `limit` is at least the largest number of requests that were between their first
//! > and last use of the database at one time.
//!
//! ```text
//!   R1  ├──T1─────────────T1'──┤            first and last use: its span
//!   R2        ├──T2──┤                      three spans overlap here: limit ≥ 3
//!   R3       ·······├──T3──┤                (dots: arrived, did not use the database yet)
//!   R4  ···················├──T4──┤
//! ```
//!
//! *Why nothing gets stuck.* Take the step that came first originally among those not done. By the
//! rules of the schedule it waits for nobody. If its request was sent, it goes on. If not, it is
//! that request's first use of the database, at a time t say. Every request in flight was sent
//! before it, hence first used the database before t; and each has steps left, hence was not
//! through at t. So the spans of all in flight contain t, as does this one's: fewer than `limit`
//! are in flight, it is next in line, and it may be sent.
//!
//! *Why nothing starves.* If the service has at least `limit` workers and connections, everybody in
//! flight can have one. A service that keeps one connection per request from first to last use has
//! that many: it did originally. Where connections are returned between transactions, spans can
//! overlap more than there are connections. Then **no** rule for sending can help, see
//! `docs/design/0002-resending-requests.md`; [`Admission::overlap`] is how many connections are
//! enough, known before the replay begins.

use crate::Request;

/// From a request's first to its last use of the database, in the original run's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// When its first transaction began; when it arrived if it had none.
    pub first: i64,
    /// When its last transaction ended; `None` if it had none.
    pub last: Option<i64>,
}

impl Span {
    /// As much of it as there is at this time; none if it has not begun by then.
    pub fn until(self, time: i64) -> Self {
        let last = self.last.filter(|_| self.first <= time);
        Self {
            last: last.map(|last| last.min(time)),
            ..self
        }
    }
}

/// Which request may be sent now.
#[derive(Clone, Debug)]
pub struct Admission {
    /// In order of first use.
    line: Vec<Request>,
    /// By request.
    state: Vec<Sent>,
    next: usize,
    in_flight: usize,
    limit: usize,
    overlap: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sent {
    Not,
    InFlight,
    Ended,
}

impl Admission {
    /// One span per request. `limit` is how many may be in flight at a time; it is raised to
    /// [`Admission::overlap`] if it is less.
    ///
    /// A good limit is the smaller of the numbers of requests and of database sessions that the
    /// service had at one time: it had workers and connections for as many ([`overlap`] computes
    /// either).
    pub fn new(spans: &[Span], limit: usize) -> Self {
        let uses = spans.iter().filter_map(|s| Some((s.first, s.last?)));
        let overlap = overlap(uses);
        let mut line: Vec<Request> = (0..spans.len() as u32).map(Request).collect();
        line.sort_by_key(|&request| (spans[request.index()].first, request));
        let mut admission = Self {
            line,
            state: vec![Sent::Not; spans.len()],
            next: 0,
            in_flight: 0,
            limit: limit.max(overlap).max(1),
            overlap,
        };
        admission.skip();
        admission
    }

    /// The request that may be sent now, if any.
    pub fn next(&self) -> Option<Request> {
        (self.in_flight < self.limit)
            .then(|| self.line.get(self.next).copied())
            .flatten()
    }

    /// The request was sent.
    ///
    /// # Panics
    /// If it had been already.
    pub fn sent(&mut self, request: Request) {
        assert_eq!(
            self.state[request.index()],
            Sent::Not,
            "request {request} is sent once"
        );
        self.state[request.index()] = Sent::InFlight;
        self.in_flight += 1;
        self.skip();
    }

    /// The request was answered, or will never be: it takes no place any longer, whether it was
    /// sent or not.
    pub fn ended(&mut self, request: Request) {
        match std::mem::replace(&mut self.state[request.index()], Sent::Ended) {
            Sent::InFlight => self.in_flight -= 1,
            Sent::Not => self.skip(),
            Sent::Ended => {}
        }
    }

    fn skip(&mut self) {
        while self
            .line
            .get(self.next)
            .is_some_and(|r| self.state[r.index()] != Sent::Not)
        {
            self.next += 1;
        }
    }

    pub fn in_flight(&self) -> usize {
        self.in_flight
    }

    pub fn limit(&self) -> usize {
        self.limit
    }

    /// The largest number of requests that were between their first and last use of the database at
    /// one time. With as many connections, and a limit of as many requests, the service cannot lock
    /// itself up.
    pub fn overlap(&self) -> usize {
        self.overlap
    }

    /// Whether every request was sent or ended.
    pub fn is_finished(&self) -> bool {
        self.next == self.line.len()
    }
}

/// The largest number of intervals that share a point. Ends that meet a start do not share it.
pub fn overlap(intervals: impl IntoIterator<Item = (i64, i64)>) -> usize {
    let mut edges = Vec::new();
    for (start, end) in intervals {
        // An interval of no length still holds its point.
        edges.push((start, true));
        edges.push((end.max(start.saturating_add(1)), false));
    }
    edges.sort_unstable();
    let (mut open, mut most) = (0usize, 0);
    for (_, starts) in edges {
        if starts {
            open += 1;
            most = most.max(open);
        } else {
            open -= 1;
        }
    }
    most
}
