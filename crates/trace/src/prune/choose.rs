//! Which segments go: times and sizes in, a choice out.

use crate::Micros;

use super::PruneOptions;

/// In order of recorders and, of each recorder, of segments.
pub(super) struct Facts {
    pub segments: Vec<SegmentFacts>,
    /// From where what remains can be replayed. `None`: that is not asked for.
    pub starts: Option<Vec<Start>>,
}

pub(super) struct SegmentFacts {
    pub recorder: u16,
    /// All that is in it had ended by then.
    pub until: Micros,
    pub bytes: u64,
}

/// A base, by its index, and the quiet point at or before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Start {
    pub base: usize,
    pub quiet: Micros,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Choice {
    pub removed: Vec<bool>,
    pub keep_from: Option<Micros>,
    /// The base that keeps more than the limits do, and how many segments it keeps.
    pub held_by: Option<usize>,
    pub held_segments: u64,
}

pub(super) fn choose(facts: &Facts, options: &PruneOptions) -> Choice {
    let Some(free) = limit(facts, options) else {
        return Choice {
            removed: vec![false; facts.segments.len()],
            ..Choice::default()
        };
    };
    let start = match &facts.starts {
        None => None,
        Some(starts) => start_for(facts, starts, options),
    };
    let keep_from = match (&facts.starts, start) {
        (None, _) => free,
        (Some(_), Some(start)) => start.quiet,
        // All bases are later than what may go.
        (Some(_), None) => Micros::MIN,
    };
    let removed = before(&facts.segments, keep_from);
    let allowed = before(&facts.segments, free);
    let held = allowed.iter().zip(&removed);
    let held_segments = held.filter(|(allowed, removed)| **allowed && !**removed);
    let held_segments = held_segments.count() as u64;
    let earliest = || facts.starts.as_ref()?.first().copied();
    Choice {
        removed,
        keep_from: Some(keep_from),
        held_by: (held_segments > 0)
            .then(|| start.or_else(earliest).map(|start| start.base))
            .flatten(),
        held_segments,
    }
}

/// Up to where the limits let go.
fn limit(facts: &Facts, options: &PruneOptions) -> Option<Micros> {
    let by_size = options.keep_bytes.map(|keep| {
        let mut ends: Vec<Micros> = facts.segments.iter().map(|segment| segment.until).collect();
        ends.sort_unstable();
        let moments = ends.into_iter().map(|end| end.saturating_add(1));
        let enough = |moment: &Micros| remaining(&facts.segments, *moment) <= keep;
        std::iter::once(Micros::MIN)
            .chain(moments)
            .find(enough)
            .unwrap_or(Micros::MAX)
    });
    options.older_than.max(by_size)
}

/// The base from which on everything is kept: by age the last one whose past is old enough; by size
/// the first one from which on little enough remains, or else the last one of all.
fn start_for(facts: &Facts, starts: &[Start], options: &PruneOptions) -> Option<Start> {
    let by_age = options.older_than.and_then(|older| {
        let old_enough = |start: &&Start| start.quiet <= older;
        starts.iter().rfind(old_enough).copied()
    });
    let too_large = options
        .keep_bytes
        .is_some_and(|keep| remaining(&facts.segments, Micros::MIN) > keep);
    let by_size = options.keep_bytes.filter(|_| too_large).and_then(|keep| {
        let small_enough = |start: &&Start| remaining(&facts.segments, start.quiet) <= keep;
        starts.iter().find(small_enough).or(starts.last()).copied()
    });
    [by_age, by_size]
        .into_iter()
        .flatten()
        .max_by_key(|start| start.quiet)
}

fn remaining(segments: &[SegmentFacts], keep_from: Micros) -> u64 {
    let removed = before(segments, keep_from);
    let kept = segments.iter().zip(removed);
    kept.filter(|(_, removed)| !removed)
        .map(|(segment, _)| segment.bytes)
        .sum()
}

/// Of each recorder the segments up to the first one that reaches beyond this moment.
fn before(segments: &[SegmentFacts], keep_from: Micros) -> Vec<bool> {
    let mut stopped_at = None;
    let ends_before = |segment: &SegmentFacts| {
        if stopped_at != Some(segment.recorder) && segment.until < keep_from {
            return true;
        }
        stopped_at = Some(segment.recorder);
        false
    };
    segments.iter().map(ends_before).collect()
}

/// The quiet point of each base, given the moments at which bases were taken, ascending, and the
/// requests from arrival to end, in order of arrival.
pub(super) fn starts<E>(
    taken: &[Micros],
    spans: impl Iterator<Item = Result<(Micros, Micros), E>>,
) -> Result<Vec<Start>, E> {
    let mut found = Vec::with_capacity(taken.len());
    let (mut quiet, mut busy_until) = (Micros::MIN, Micros::MIN);
    let mut left = taken.iter().copied().enumerate().peekable();
    let mut note = |base: usize, taken: Micros, quiet: Micros, busy_until: Micros| {
        let quiet = if busy_until < taken { taken } else { quiet };
        found.push(Start { base, quiet });
    };
    for span in spans {
        let (arrived, ended) = span?;
        while let Some((base, taken)) = left.next_if(|(_, taken)| *taken <= arrived) {
            note(base, taken, quiet, busy_until);
        }
        if left.peek().is_none() {
            break;
        }
        if arrived > busy_until {
            quiet = arrived;
        }
        busy_until = busy_until.max(ended);
    }
    for (base, taken) in left {
        note(base, taken, quiet, busy_until);
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `recorder until bytes`, one per segment.
    fn segments(text: &str) -> Vec<SegmentFacts> {
        let segment = |line: &str| {
            let numbers: Vec<i64> = line.split(' ').map(|word| word.parse().unwrap()).collect();
            SegmentFacts {
                recorder: numbers[0] as u16,
                until: numbers[1],
                bytes: numbers[2] as u64,
            }
        };
        text.split(", ").map(segment).collect()
    }

    fn bases(quiet: &[Micros]) -> Option<Vec<Start>> {
        let starts = quiet.iter().enumerate();
        Some(starts.map(|(base, &quiet)| Start { base, quiet }).collect())
    }

    fn by(older_than: Option<Micros>, keep_bytes: Option<u64>) -> PruneOptions {
        PruneOptions {
            older_than,
            keep_bytes,
            ignore_bases: false,
        }
    }

    /// Which segments go, as `x` and `.`.
    #[track_caller]
    fn check(facts: &Facts, options: PruneOptions, expected: &str, held: Option<(usize, u64)>) {
        let choice = choose(facts, &options);
        let removed: String = choice
            .removed
            .iter()
            .map(|gone| if *gone { 'x' } else { '.' })
            .collect();
        assert_eq!(removed, expected, "{options:?}");
        assert_eq!(
            choice.held_by.map(|base| (base, choice.held_segments)),
            held
        );
    }

    #[test]
    fn without_bases_the_limits_decide() {
        let facts = Facts {
            segments: segments("0 10 5, 0 20 5, 0 30 5, 0 40 5"),
            starts: None,
        };
        check(&facts, by(None, None), "....", None);
        check(&facts, by(Some(10), None), "....", None);
        check(&facts, by(Some(11), None), "x...", None);
        check(&facts, by(Some(1000), None), "xxxx", None);
        check(&facts, by(None, Some(20)), "....", None);
        check(&facts, by(None, Some(19)), "x...", None);
        check(&facts, by(None, Some(10)), "xx..", None);
        check(&facts, by(None, Some(0)), "xxxx", None);
        // What any limit lets go.
        check(&facts, by(Some(11), Some(10)), "xx..", None);
        check(&facts, by(Some(31), Some(10)), "xxx.", None);
    }

    #[test]
    fn what_remains_begins_at_a_base() {
        let facts = Facts {
            segments: segments("0 10 5, 0 20 5, 0 30 5, 0 40 5"),
            starts: bases(&[5, 25]),
        };
        // Nothing is before the first base, so it holds what is old enough.
        check(&facts, by(Some(21), None), "....", Some((0, 2)));
        check(&facts, by(Some(24), None), "....", Some((0, 2)));
        check(&facts, by(Some(25), None), "xx..", None);
        check(&facts, by(Some(35), None), "xx..", Some((1, 1)));
        // By size the next base is taken even if it lies a little further on.
        check(&facts, by(None, Some(15)), "xx..", None);
        check(&facts, by(None, Some(4)), "xx..", Some((1, 2)));
        check(&facts, by(None, Some(20)), "....", None);
        // All bases are later than the limit.
        let late = Facts {
            segments: segments("0 10 5, 0 20 5"),
            starts: bases(&[15]),
        };
        check(&late, by(Some(12), None), "..", Some((0, 1)));
    }

    #[test]
    fn a_recorder_loses_its_first_segments_only() {
        // The second segment's end reaches beyond, so the third stays whatever it says.
        let facts = Facts {
            segments: segments("0 10 5, 0 50 5, 0 20 5, 3 15 5, 3 25 5"),
            starts: None,
        };
        check(&facts, by(Some(30), None), "x..xx", None);
    }

    #[test]
    fn a_base_needs_what_was_in_flight_when_it_was_taken() {
        let check = |taken: &[Micros], spans: &[(Micros, Micros)], expected: &[Micros]| {
            let spans = spans.iter().map(|span| Ok::<_, ()>(*span));
            let found = starts(taken, spans).unwrap();
            let quiet: Vec<Micros> = found.iter().map(|start| start.quiet).collect();
            assert_eq!(quiet, expected);
        };
        // Nothing in flight.
        check(&[10], &[(0, 5), (12, 15)], &[10]);
        // One was, and when that began another was.
        check(&[10], &[(0, 2), (4, 7), (6, 12), (13, 20)], &[4]);
        // Two bases, and one after all requests.
        check(&[10, 30, 99], &[(0, 5), (8, 12), (20, 29)], &[8, 30, 99]);
        // None were recorded yet.
        check(&[10], &[], &[10]);
    }
}
