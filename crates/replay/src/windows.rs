//! A recording in parts that can be replayed by themselves, side by side.
//!
//! A window begins where no request is in flight and where the database can be had: with archived
//! WAL that is any such moment after the backup, otherwise the first one after each base. What
//! comes before the first base is in no window.

use std::num::NonZero;
use std::ops::Range;

use hindcast_trace::{Micros, RequestId, Trace};

use crate::plan::{PlanError, quiet};
use crate::restore::StartError;
use crate::stretches::{Span, spans, stretches};

/// The range of a replay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Window {
    pub from: RequestId,
    pub to: RequestId,
    pub requests: u64,
    /// From the arrival of the first request to the last response.
    pub period: Range<Micros>,
}

/// Windows of `size` requests or as few more as there are until the next moment at which one can
/// begin.
pub fn windows(trace: &Trace, size: NonZero<u64>) -> Result<Vec<Window>, StartError> {
    let spans = spans(trace).map_err(PlanError::from)?;
    if spans.is_empty() {
        return Err(PlanError::Empty.into());
    }
    if trace.bases().is_empty() {
        return Err(StartError::NoBase);
    }
    let archived = trace.bases().iter().find(|base| base.has_archive());
    let bases: Vec<Micros> = trace.bases().iter().map(|base| base.taken).collect();
    let places = places(&spans, &bases, archived.map(|base| base.taken));
    let window = |range: Range<usize>| {
        let spans = &spans[range];
        Window {
            from: spans[0].2,
            to: spans[spans.len() - 1].2,
            requests: spans.len() as u64,
            period: spans[0].0..spans.iter().map(|span| span.1).max().unwrap_or(spans[0].0),
        }
    };
    let size = usize::try_from(size.get()).unwrap_or(usize::MAX);
    let begins: Vec<usize> = stretches(trace, &spans)
        .iter()
        .map(|stretch| stretch.spans.start)
        .collect();
    Ok(divide(&places, &begins, spans.len(), size)
        .map(window)
        .collect())
}

/// Where a window can begin: at requests that arrive when no other one is in flight, all of them
/// from `archived` on, and the first one after each base.
fn places(spans: &[Span], bases: &[Micros], archived: Option<Micros>) -> Vec<usize> {
    let mut bases = bases.iter().peekable();
    let is_place = |&at: &usize| {
        let arrived = spans[at].0;
        let mut is_first = false;
        while bases.next_if(|&&taken| taken <= arrived).is_some() {
            is_first = true;
        }
        is_first || archived.is_some_and(|taken| taken <= arrived)
    };
    quiet(spans).filter(is_place).collect()
}

/// `places` ascend and are below `end`. No window goes on over one of `pauses`.
fn divide(
    places: &[usize],
    pauses: &[usize],
    end: usize,
    size: usize,
) -> impl Iterator<Item = Range<usize>> {
    let mut begins: Vec<usize> = Vec::new();
    for &place in places {
        let is_enough = |begin: &usize| place - begin >= size || pauses.contains(&place);
        if begins.last().is_none_or(is_enough) {
            begins.push(place);
        }
    }
    let ends = begins
        .iter()
        .skip(1)
        .copied()
        .chain([end])
        .collect::<Vec<_>>();
    begins.into_iter().zip(ends).map(|(begin, end)| begin..end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hindcast_trace::Id;

    /// Two in each of three bursts, then one by itself.
    fn bursts() -> Vec<Span> {
        let times = [
            (0, 5),
            (2, 9),
            (10, 15),
            (12, 19),
            (20, 25),
            (25, 29),
            (40, 41),
        ];
        let numbered = times.into_iter().zip(1..);
        numbered
            .map(|((arrived, ended), id)| (arrived, ended, Id(id)))
            .collect()
    }

    #[test]
    fn with_an_archive_each_quiet_moment_after_the_backup_is_a_place() {
        assert_eq!(places(&bursts(), &[1], Some(1)), [2, 4, 6]);
        assert_eq!(places(&bursts(), &[0], Some(0)), [0, 2, 4, 6]);
    }

    #[test]
    fn without_one_the_first_quiet_moment_after_each_base_is() {
        assert_eq!(places(&bursts(), &[0], None), [0]);
        assert_eq!(places(&bursts(), &[0, 11, 21, 24], None), [0, 4, 6]);
        assert!(places(&bursts(), &[50], None).is_empty());
        assert!(places(&bursts(), &[], None).is_empty());
    }

    #[test]
    fn a_window_has_as_many_as_asked_for_or_a_few_more() {
        let divided = |size| divide(&[0, 2, 4, 6], &[], 7, size).collect::<Vec<_>>();
        assert_eq!(divided(1), [0..2, 2..4, 4..6, 6..7]);
        assert_eq!(divided(3), [0..4, 4..7]);
        assert_eq!(divided(100).first(), Some(&(0..7)));
        assert_eq!(divided(100).len(), 1);
        assert_eq!(divide(&[], &[], 7, 3).count(), 0);
        // One was stopped at 4, another at 5, where none can begin.
        let divided = divide(&[0, 2, 4, 6], &[0, 4, 5], 7, 100).collect::<Vec<_>>();
        assert_eq!(divided, [0..4, 4..7]);
    }
}
