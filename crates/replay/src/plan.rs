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

use hindcast_trace::{
    FinalState, Gap, Micros, ReadError, Request, RequestFilter, RequestId, Trace,
};

use serde::Serialize;

use crate::stretches::{Span, Stretch, spans, stretches};

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
    /// Nothing was recorded after the range before the recorders stopped, so the final state of
    /// then is the one to end in.
    pub reaches_end: bool,
    /// What the tables held when they stopped.
    pub final_state: Option<FinalState>,
    /// The last requests of the stretches before the range, if nobody chose where it begins.
    pub left_out: Vec<RequestId>,
    /// In the range.
    pub pauses: Vec<Pause>,
}

/// The recorders stopped, and others were started: the requests before and after that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Pause {
    pub after: RequestId,
    pub before: RequestId,
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
        let position = |asked: RequestId| {
            let found = spans.iter().position(|&(_, _, id)| id == asked);
            found.ok_or_else(|| missing(trace, asked, earliest, latest))
        };
        let stretches = stretches(trace, &spans);
        let (from, to) = (
            from.map(position).transpose()?,
            to.map(position).transpose()?,
        );
        let (from_at, to_at) = range(&stretches, from, to);
        let earlier = stretches
            .iter()
            .take_while(|stretch| stretch.spans.end <= from_at);
        let left_out = match from {
            None => earlier
                .map(|stretch| spans[stretch.spans.end - 1].2)
                .collect(),
            Some(_) => Vec::new(),
        };
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
        let stretch = of(&stretches, to_at);
        let reaches_end = to_at + 1 == stretches[stretch].spans.end;
        Ok(Self {
            range: spans[from_at].2..=spans[to_at].2,
            first: spans[start].2,
            until: spans[to_at].0,
            compared: (to_at - start + 1) as u64,
            lead_in: (from_at - start) as u64,
            trail,
            gaps: gaps(trace, &period),
            reaches_end,
            final_state: stretches[stretch].final_state(trace).cloned(),
            left_out,
            pauses: pauses(&stretches, &spans, from_at..=to_at),
            // Ghosts run on after the last request.
            period: if reaches_end {
                period.start..stretches[stretch].period.end
            } else {
                period
            },
        })
    }

    /// [`Plan::left_out`], if there is anything.
    pub fn left_out(&self) -> Option<Vec<RequestId>> {
        (!self.left_out.is_empty()).then(|| self.left_out.clone())
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

fn gaps(trace: &Trace, period: &Range<Micros>) -> Vec<Gap> {
    let touches = |gap: &&Gap| gap.from < period.end && gap.to >= period.start;
    trace.gaps().iter().filter(touches).cloned().collect()
}

fn pauses(stretches: &[Stretch], spans: &[Span], range: RangeInclusive<usize>) -> Vec<Pause> {
    let begins = stretches.iter().map(|stretch| stretch.spans.start);
    let within = begins.filter(|begin| begin > range.start() && begin <= range.end());
    let pause = |begin: usize| Pause {
        after: spans[begin - 1].2,
        before: spans[begin].2,
    };
    within.map(pause).collect()
}

/// The stretch that has this request.
fn of(stretches: &[Stretch], at: usize) -> usize {
    let begun = stretches.partition_point(|stretch| stretch.spans.start <= at);
    begun.saturating_sub(1)
}

/// From where to where, by positions. What is not given is an end of the stretch of what is; or of
/// the last one. Where that begins, the database has to be there.
fn range(stretches: &[Stretch], from: Option<usize>, to: Option<usize>) -> (usize, usize) {
    let end = |at: usize| stretches[at..].iter().skip(1).find(|next| next.has_base);
    let to = to.unwrap_or_else(|| match from.and_then(|from| end(of(stretches, from))) {
        Some(next) => next.spans.start - 1,
        None => stretches[stretches.len() - 1].spans.end - 1,
    });
    let from = from.unwrap_or_else(|| {
        let until = &stretches[..=of(stretches, to)];
        let with_base = until.iter().rfind(|stretch| stretch.has_base);
        with_base.map_or(0, |stretch| stretch.spans.start)
    });
    (from, to)
}

fn missing(trace: &Trace, asked: RequestId, first: RequestId, last: RequestId) -> PlanError {
    let pruned = trace.pruned().iter().flat_map(|pruned| &pruned.ids);
    match pruned.into_iter().any(|ids| ids.contains(&asked)) {
        true => PlanError::Pruned { asked, first, last },
        false => PlanError::NoSuchRequest { asked, first, last },
    }
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

    #[test]
    fn what_is_not_given_is_an_end_of_the_stretch_with_a_base() {
        let stretch = |spans, has_base| Stretch {
            spans,
            period: 0..1,
            has_base,
        };
        let each = [
            stretch(0..2, true),
            stretch(2..4, true),
            stretch(4..6, false),
        ];
        assert_eq!(range(&each, None, None), (2, 5));
        assert_eq!(range(&each, None, Some(3)), (2, 3));
        assert_eq!(range(&each, None, Some(1)), (0, 1));
        assert_eq!(range(&each, Some(1), None), (1, 1));
        assert_eq!(range(&each, Some(3), None), (3, 5));
        assert_eq!(range(&each, Some(1), Some(4)), (1, 4));
        assert_eq!(range(&[stretch(0..2, false)], None, None), (0, 1));
    }
}
