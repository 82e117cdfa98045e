//! A trace in stretches, each recorded without a pause.
//!
//! Who stops a recorder and starts another one into the same trace stops the service, too. In
//! between, the database may have changed, or be another one, and nobody knows how. So a replay is
//! of one stretch if nothing else was asked for.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use hindcast_trace::{
    Base, FinalState, Micros, ReadError, Request, RequestFilter, RequestId, Trace,
};

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

/// Requests between two pauses, in order of arrival.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stretch {
    pub spans: Range<usize>,
    /// From the start of its first recorder to that of the next stretch.
    pub period: Range<Micros>,
    /// The database can be had as of its beginning, or as of a moment in it.
    pub has_base: bool,
}

impl Stretch {
    /// What the tables held at its end.
    pub fn final_state<'t>(&self, trace: &'t Trace) -> Option<&'t FinalState> {
        let within = |state: &&FinalState| self.period.contains(&state.taken);
        trace.final_states().iter().rfind(within)
    }
}

/// All of them; the first begins with the first request.
pub(crate) fn stretches(trace: &Trace, spans: &[Span]) -> Vec<Stretch> {
    let started = trace.recorders().iter();
    let started = started.map(|recorder| (recorder.number, recorder.started));
    divide(spans, &started.collect(), trace.bases())
}

/// Those of `spans` that begin when a recorder had started after all earlier requests had ended,
/// and no recorder of these has a later one.
fn divide(spans: &[Span], started: &BTreeMap<u16, Micros>, bases: &[Base]) -> Vec<Stretch> {
    let mut last = BTreeMap::new();
    for (at, &(_, _, id)) in spans.iter().enumerate() {
        last.insert(id.recorder(), at);
    }
    let mut begins = vec![(0, Micros::MIN, Micros::MIN)];
    let (mut busy_until, mut open) = (Micros::MIN, BTreeSet::new());
    for (at, &(_, ended, id)) in spans.iter().enumerate() {
        let start = started.get(&id.recorder()).copied();
        if let Some(start) = start.filter(|&start| start > busy_until)
            && open.is_empty()
            && at > 0
        {
            begins.push((at, start, busy_until));
        }
        busy_until = busy_until.max(ended);
        open.insert(id.recorder());
        open.retain(|recorder| last[recorder] > at);
    }
    let ends = begins.iter().skip(1).map(|&(at, start, _)| (at, start));
    let ends = ends.chain([(spans.len(), Micros::MAX)]).collect::<Vec<_>>();
    let stretch = |(&(first, start, before), (end, until)): (&(usize, _, _), _)| Stretch {
        spans: first..end,
        period: start..until,
        has_base: bases.iter().any(|base| {
            let arrived = spans.get(first).map_or(Micros::MAX, |span| span.0);
            base.taken <= arrived && (base.has_archive() || base.taken > before)
        }),
    };
    begins.iter().zip(ends).map(stretch).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use hindcast_trace::{BaseKind, Id, Snapshot, Xid};

    fn base(taken: Micros, wal_archive: Option<&str>) -> Base {
        Base {
            taken,
            snapshot: Snapshot {
                xmin: Xid(1),
                xmax: Xid(1),
                in_progress: Vec::new(),
            },
            kind: BaseKind::Backup {
                folder: "backup".to_owned(),
                wal_archive: wal_archive.map(ToOwned::to_owned),
            },
        }
    }

    /// Recorder, arrival, end; when each recorder started.
    #[track_caller]
    fn check(
        requests: &[(u16, Micros, Micros)],
        started: &[(u16, Micros)],
        bases: &[Base],
        expected: &[(Range<usize>, Range<Micros>, bool)],
    ) {
        let spans: Vec<_> = requests
            .iter()
            .zip(1..)
            .map(|(&(recorder, arrived, ended), id)| (arrived, ended, Id::new(recorder, id)))
            .collect();
        let divided = divide(&spans, &started.iter().copied().collect(), bases);
        let divided = divided
            .into_iter()
            .map(|one| (one.spans, one.period, one.has_base));
        assert_eq!(divided.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn a_recorder_that_starts_when_the_others_are_done_begins_one() {
        let requests = [(0, 10, 15), (0, 20, 25), (1, 110, 115), (1, 120, 125)];
        check(
            &requests,
            &[(0, 5), (1, 105)],
            &[base(4, None), base(104, None)],
            &[
                (0..2, Micros::MIN..105, true),
                (2..4, 105..Micros::MAX, true),
            ],
        );
        // It has no base of its own, or one that was taken when it was at work.
        for bases in [vec![base(4, None)], vec![base(4, None), base(117, None)]] {
            check(
                &requests,
                &[(0, 5), (1, 105)],
                &bases,
                &[
                    (0..2, Micros::MIN..105, true),
                    (2..4, 105..Micros::MAX, false),
                ],
            );
        }
        check(
            &requests,
            &[(0, 5), (1, 105)],
            &[base(4, Some("wal"))],
            &[
                (0..2, Micros::MIN..105, true),
                (2..4, 105..Micros::MAX, true),
            ],
        );
    }

    #[test]
    fn recorders_that_are_at_work_at_a_time_make_one() {
        let one = |end| [(0..end, Micros::MIN..Micros::MAX, true)];
        let bases = [base(4, None), base(29, None)];
        // The first one goes on.
        let requests = [(0, 10, 15), (1, 40, 45), (0, 50, 55)];
        check(&requests, &[(0, 5), (1, 30)], &bases, &one(3));
        // A request of the first one is in flight when the second one starts.
        check(
            &[(0, 10, 35), (1, 40, 45)],
            &[(0, 5), (1, 30)],
            &bases,
            &one(2),
        );
        // The second one had started before.
        check(
            &[(0, 10, 15), (1, 40, 45)],
            &[(0, 5), (1, 6)],
            &bases,
            &one(2),
        );
        check(&[], &[], &bases, &[(0..0, Micros::MIN..Micros::MAX, true)]);
    }
}
