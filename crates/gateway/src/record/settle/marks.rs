//! From where WAL has to be read for an id.

use std::collections::VecDeque;

use hindcast_pg::Lsn;

/// No transaction whose id is `bound` or above wrote anything before `at`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    pub bound: u64,
    pub at: Lsn,
}

/// One mark per tick, oldest first, for as long as ids of its time may be asked about.
#[derive(Debug, Default)]
pub(super) struct Marks(VecDeque<Mark>);

impl Marks {
    pub fn push(&mut self, mark: Mark) {
        // Of two with the same bound the later position says more. A server that was set back to an
        // earlier position is another one.
        while let Some(last) = self.0.back()
            && (last.bound >= mark.bound || last.at > mark.at)
        {
            self.0.pop_back();
        }
        self.0.push_back(mark);
    }

    /// Where to begin so that nothing of `xid` is missed, and whether that is so: the first part of
    /// an id from before the first mark is not to be had.
    pub fn start(&self, xid: u64) -> Option<(Lsn, bool)> {
        let before = self.0.iter().rev().find(|mark| mark.bound <= xid);
        match before {
            Some(mark) => Some((mark.at, true)),
            None => self.0.front().map(|mark| (mark.at, false)),
        }
    }

    /// Ids below will not be asked about.
    pub fn forget_below(&mut self, xid: u64) {
        while self.0.get(1).is_some_and(|mark| mark.bound <= xid) {
            self.0.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marks(marks: &[(u64, u64)]) -> Marks {
        let mut all = Marks::default();
        for &(bound, at) in marks {
            all.push(Mark { bound, at: Lsn(at) });
        }
        all
    }

    #[test]
    fn an_id_is_read_from_the_last_mark_before_it() {
        let mut marks = marks(&[(10, 100), (20, 200), (20, 250), (30, 300)]);
        assert_eq!(marks.start(9), Some((Lsn(100), false)));
        assert_eq!(marks.start(10), Some((Lsn(100), true)));
        assert_eq!(marks.start(29), Some((Lsn(250), true)));
        assert_eq!(marks.start(30), Some((Lsn(300), true)));
        marks.forget_below(29);
        assert_eq!(marks.start(10), Some((Lsn(250), false)));
        assert_eq!(marks.start(29), Some((Lsn(250), true)));
        assert_eq!(Marks::default().start(1), None);
    }

    #[test]
    fn a_server_that_was_set_back_makes_earlier_marks_worthless() {
        let marks = marks(&[(10, 100), (20, 200), (15, 150)]);
        assert_eq!(marks.start(18), Some((Lsn(150), true)));
    }
}
