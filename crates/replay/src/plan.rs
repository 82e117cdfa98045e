//! Which requests are sent again, and which of them count.
//!
//! ```text
//!           rewound to here
//!                 ▼
//!   ──────────────┬────────────┬──────────────────────────┬──────────┬───▶ time
//!    quiet point  │  lead-in   │     the asked-for range  │ trail    │
//!                 └────────────┴──────────────────────────┴──────────┘
//!                         sent again and compared            sent again only
//! ```
//!
//! The *lead-in* holds the requests that were in flight when the range began, those that were in
//! flight when they began, and so on back to a quiet point; or back to the base, where nothing can
//! bring the database nearer. The *trail* holds what arrived while the range was still running: the
//! range may have seen what it wrote.

use std::ops::{Range, RangeInclusive};

use hindcast_trace::{Gap, Micros, ReadError, Request, RequestFilter, RequestId, Trace};

/// The requests and the stretch of time that a replay covers.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// What was asked for.
    pub range: RangeInclusive<RequestId>,
    /// First request of the lead-in, or of the range if there is none.
    pub first: RequestId,
    /// From the quiet point to the end of the last response of the range.
    pub period: Range<Micros>,
    /// When the last request of the range arrived.
    pub until: Micros,
    /// Sent again and compared: the lead-in and the range.
    pub compared: u64,
    pub lead_in: u64,
    pub trail: u64,
    /// Gaps that touch the period.
    pub gaps: Vec<Gap>,
    /// Nothing was recorded after the range, so the recorded final state is the one to end in.
    pub reaches_end: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    #[error("the recording has no requests")]
    Empty,
    #[error("request {asked} is not in the recording, which has requests {first} to {last}")]
    NoSuchRequest {
        asked: RequestId,
        first: RequestId,
        last: RequestId,
    },
    #[error("request {asked} was pruned; the recording has requests {first} to {last}")]
    Pruned {
        asked: RequestId,
        first: RequestId,
        last: RequestId,
    },
    #[error("the range ends with request {to}, before it begins with request {from}")]
    Backwards { from: RequestId, to: RequestId },
    #[error("the recording cannot be read")]
    Read(#[from] ReadError),
}

impl Plan {
    /// The requests of its period, without headers and bodies.
    pub fn requests(&self, trace: &Trace) -> impl Iterator<Item = Result<Request, ReadError>> {
        trace.requests(RequestFilter {
            arrived: Some(self.period.clone()),
            lean: true,
            ..Default::default()
        })
    }

    /// `base`: the moment before which the database cannot be had, if it can only be had as of that
    /// moment.
    pub fn new(
        trace: &Trace,
        from: Option<RequestId>,
        to: Option<RequestId>,
        base: Option<Micros>,
    ) -> Result<Self, PlanError> {
        let spans = spans(trace)?;
        let Some(&(_, _, earliest)) = spans.first() else {
            return Err(PlanError::Empty);
        };
        let latest = spans.last().expect("there is a first").2;
        let position = |asked: Option<RequestId>, otherwise: usize| match asked {
            None => Ok(otherwise),
            Some(asked) => {
                let found = spans.iter().position(|&(_, _, id)| id == asked);
                found.ok_or_else(|| missing(trace, asked, earliest, latest))
            }
        };
        let (from_at, to_at) = (position(from, 0)?, position(to, spans.len() - 1)?);
        if from_at > to_at {
            return Err(PlanError::Backwards {
                from: spans[from_at].2,
                to: spans[to_at].2,
            });
        }

        let start = match base {
            Some(base) => spans
                .partition_point(|&(arrived, ..)| arrived < base)
                .min(from_at),
            None => quiet_before(&spans, from_at),
        };
        let ends = spans[start..=to_at]
            .iter()
            .map(|&(_, ended, _)| ended)
            .max()
            .expect("the range is not empty");
        let period = base.unwrap_or(spans[start].0)..ends + 1;
        let trail = spans[to_at + 1..]
            .iter()
            .take_while(|&&(arrived, ..)| arrived <= ends)
            .count() as u64;
        let gaps = trace
            .gaps()
            .iter()
            .filter(|gap| gap.from < period.end && gap.to >= period.start)
            .cloned()
            .collect();
        Ok(Self {
            range: spans[from_at].2..=spans[to_at].2,
            first: spans[start].2,
            until: spans[to_at].0,
            compared: (to_at - start + 1) as u64,
            lead_in: (from_at - start) as u64,
            trail,
            gaps,
            reaches_end: to_at + 1 == spans.len(),
            // Ghosts run on after the last request.
            period: if to_at + 1 == spans.len() {
                period.start..Micros::MAX
            } else {
                period
            },
        })
    }

    /// Whether a request is sent again.
    pub fn sends(&self, arrived: Micros) -> bool {
        self.period.contains(&arrived)
    }

    /// Whether a request's response and transactions are compared. Ids of several recorders are in
    /// no order; times are.
    pub fn compares(&self, id: RequestId, arrived: Micros) -> bool {
        (arrived, id) <= (self.until, *self.range.end())
    }
}

fn missing(trace: &Trace, asked: RequestId, first: RequestId, last: RequestId) -> PlanError {
    let pruned = trace.pruned().iter().flat_map(|pruned| &pruned.ids);
    match pruned.into_iter().any(|ids| ids.contains(&asked)) {
        true => PlanError::Pruned { asked, first, last },
        false => PlanError::NoSuchRequest { asked, first, last },
    }
}

/// Arrival, end and number of a request.
pub(crate) type Span = (Micros, Micros, RequestId);

/// All requests in order of arrival. Only what a plan needs of them is kept.
pub(crate) fn spans(trace: &Trace) -> Result<Vec<Span>, ReadError> {
    let filter = RequestFilter {
        lean: true,
        ..Default::default()
    };
    let span = |request: Request| {
        let ended = request.ended.max(request.arrived);
        (request.arrived, ended, request.id)
    };
    let requests = trace.requests(filter).map(|request| request.map(span));
    let mut spans = requests.collect::<Result<Vec<_>, _>>()?;
    spans.sort_unstable();
    Ok(spans)
}

/// The positions at which no earlier request is in flight.
pub(crate) fn quiet(spans: &[Span]) -> impl Iterator<Item = usize> {
    let mut busy_until = Micros::MIN;
    let is_quiet = move |(at, &(arrived, ended, _)): (usize, &Span)| {
        let quiet = arrived > busy_until;
        busy_until = busy_until.max(ended);
        quiet.then_some(at)
    };
    spans.iter().enumerate().filter_map(is_quiet)
}

/// The latest of them at or before `from`.
fn quiet_before(spans: &[Span], from: usize) -> usize {
    quiet(&spans[..=from]).last().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hindcast_trace::Id;

    #[track_caller]
    fn check(spans: &[(Micros, Micros)], from: usize, expected: usize) {
        let spans: Vec<_> = spans
            .iter()
            .zip(1..)
            .map(|(&(arrived, ended), id)| (arrived, ended, Id(id)))
            .collect();
        assert_eq!(quiet_before(&spans, from), expected);
    }

    #[test]
    fn the_lead_in_goes_back_to_where_nothing_was_in_flight() {
        // Nothing was in flight when the range began: no lead-in.
        check(&[(0, 5), (10, 15), (20, 25)], 2, 2);
        // One was, and when that began another was.
        check(&[(0, 5), (10, 22), (15, 18), (20, 25)], 3, 1);
        // A request that ends in the very moment in which another arrives is still in flight.
        check(&[(0, 10), (10, 20)], 1, 0);
        // Never quiet: back to the first.
        check(&[(0, 100), (10, 20), (30, 40)], 2, 0);
    }
}
