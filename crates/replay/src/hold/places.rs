//! Which recorded statements those of changed code stand for.

/// ```text
///   recorded   BEGIN   SELECT a   SELECT b              UPDATE c   COMMIT
///   changed    BEGIN   SELECT a   SELECT b, d           UPDATE c   COMMIT
///                                 perhaps SELECT b
/// ```
///
/// A statement stands for the next recorded one with its text. One whose text is new may stand for
/// the next recorded one or come before it: it sees what that saw, and is not taken for it.
#[derive(Debug, Default)]
pub(super) struct Places {
    /// The hashes of the recorded statements. Empty: they are certainly those that come.
    recorded: Vec<u64>,
    /// By statement that came.
    of: Vec<Place>,
    next: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    at: u32,
    /// It is the recorded one.
    same: bool,
}

impl Places {
    /// `came`: the statements up to here.
    pub fn new(recorded: Vec<u64>, came: &[u64]) -> Self {
        let mut new = Self {
            recorded,
            ..Self::default()
        };
        came.iter().for_each(|&hash| new.note(hash));
        new
    }

    fn place(&self, hash: u64) -> Place {
        let rest = self.recorded.iter().skip(self.next as usize);
        let ahead = rest.clone().position(|&one| one == hash);
        Place {
            at: self.next + ahead.unwrap_or(0) as u32,
            same: ahead.is_some(),
        }
    }

    /// The statement comes.
    pub fn note(&mut self, hash: u64) {
        if self.recorded.is_empty() {
            return;
        }
        let place = self.place(hash);
        self.of.push(place);
        if place.same {
            self.next = place.at + 1;
        }
    }

    /// The recorded statement that the next one, which is the `nth` and has this hash, stands for.
    pub fn next(&self, nth: u32, hash: u64) -> u32 {
        match self.recorded.is_empty() {
            true => nth,
            false => self.place(hash).at,
        }
    }

    /// Whether a statement with this hash is to come, as far as is known.
    pub fn is_ahead(&self, hash: u64) -> bool {
        self.recorded.is_empty() || self.place(hash).same
    }

    /// The recorded statement that the `nth` one is.
    pub fn same(&self, nth: u32) -> Option<u32> {
        match self.of.get(nth as usize) {
            Some(place) => place.same.then_some(place.at),
            None => self.recorded.is_empty().then_some(nth),
        }
    }

    /// Whether the `nth` statement may stand for this recorded one or one behind it.
    pub fn reaches(&self, nth: u32, recorded: u32) -> bool {
        match self.of.get(nth as usize) {
            Some(place) => place.at >= recorded,
            None => self.recorded.is_empty() && nth >= recorded,
        }
    }

    /// Whether the recorded one has come, or will not, when the `nth` statement is through.
    pub fn is_past(&self, nth: u32, recorded: u32) -> bool {
        match self.of.get(nth as usize) {
            Some(place) => place.at > recorded || place.same && place.at == recorded,
            None => self.recorded.is_empty() && nth >= recorded,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_changed_is_where_it_was() {
        let same = Places::default();
        assert_eq!(same.next(3, 77), 3);
        assert_eq!(same.same(3), Some(3));
        assert!(same.reaches(3, 3) && !same.reaches(3, 4));
        assert!(same.is_past(3, 3) && !same.is_past(3, 4));
    }

    #[test]
    fn a_new_statement_is_beside_the_next_recorded_one() {
        let mut places = Places::new(vec![1, 2, 3, 4], &[1]);
        assert_eq!(places.next(1, 2), 1);
        // In the place of 2, or before it.
        assert_eq!(places.next(1, 9), 1);
        places.note(9);
        assert!(places.reaches(1, 1) && !places.is_past(1, 1));
        // 2 is gone.
        assert_eq!(places.next(2, 3), 2);
        places.note(3);
        assert_eq!((places.same(1), places.same(2)), (None, Some(2)));
        assert!(places.is_past(2, 1) && places.is_past(2, 2) && !places.is_past(2, 3));
        places.note(8);
        places.note(8);
        places.note(4);
        assert!(!places.is_past(4, 3) && places.is_past(5, 3));
        // Nothing is left.
        assert_eq!(places.next(6, 5), 4);
    }

    #[test]
    fn what_has_come_as_often_as_recorded_is_not_to_come() {
        assert!(Places::default().is_ahead(77));
        let mut places = Places::new(vec![1, 2, 1, 3], &[1]);
        assert!(places.is_ahead(1) && places.is_ahead(3) && !places.is_ahead(9));
        places.note(1);
        // 2 is behind it.
        assert!(!places.is_ahead(1) && !places.is_ahead(2) && places.is_ahead(3));
    }
}
