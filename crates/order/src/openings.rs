//! Who goes on to begin a transaction next, where there are fewer connections than spans overlap.
//!
//! ```text
//!   pool of one      R1 ├─T1─┤        ├─T1'─┤     T1' saw what T2 wrote
//!                    R2        ├─T2─┤
//! ```
//!
//! No rule for [sending](crate::admission) helps there: R1 takes the connection for T1' as soon as
//! T1 is done, unless R2 stands in line for it by then. So R1 does not hear of T1's end before:
//!
//! > A request goes on (it is sent, or hears how its last transaction ended) only when all
//! > transactions that began before its next one have begun again, or stand in line for a
//! > connection.
//!
//! That one stands in line is not seen. But if nothing moves, the first that has not begun does: it
//! counts as one that has begun ([`Openings::pass`]).
//!
//! That takes a pool in which who waits longest for a connection gets the next one, and any number
//! of requests in flight: those in line take no worker.
//!
//! *What is left*: who hears of an end gives its connection back and stands in line at once, also
//! where it did something else for a while originally. If the connection is to go to a request for
//! two transactions meanwhile, it stands before the second one. Of 3,000 simulated histories 6 get
//! stuck by that, all with one connection; without this rule 672 do.

use crate::Tx;

/// Transactions in the order in which they began, and which of them are there.
#[derive(Clone, Debug, Default)]
pub struct Openings {
    line: Vec<Tx>,
    /// By transaction: where it stands in the line; `None`: nobody waits for it.
    places: Vec<Option<u32>>,
    /// By place.
    is_there: Vec<bool>,
    /// The first that is not there. It only goes forward.
    next: usize,
}

impl Openings {
    /// `line`: those that are waited for, in the order in which they began.
    pub fn new(line: Vec<Tx>) -> Self {
        let count = line.iter().map(|tx| tx.index() + 1).max().unwrap_or(0);
        let mut places = vec![None; count];
        for (tx, place) in line.iter().zip(0..) {
            places[tx.index()] = Some(place);
        }
        Self {
            is_there: vec![false; line.len()],
            line,
            places,
            next: 0,
        }
    }

    /// The transaction has begun, or will not.
    pub fn came(&mut self, tx: Tx) {
        if let Some(place) = self.place(tx) {
            self.is_there[place] = true;
            self.skip();
        }
    }

    /// Nothing moves: the first that is not there stands in line, or does not come. Returns which
    /// one that is; `None`: all are there.
    pub fn pass(&mut self) -> Option<Tx> {
        let passed = *self.line.get(self.next)?;
        self.came(passed);
        Some(passed)
    }

    /// Whether a request whose next transaction this is may go on to begin it.
    pub fn may_begin(&self, tx: Tx) -> bool {
        self.place(tx).is_none_or(|place| place <= self.next)
    }

    /// How many are there, from the first on. As long as this has not changed, no answer of
    /// [`Openings::may_begin`] has.
    pub fn passed(&self) -> usize {
        self.next
    }

    fn place(&self, tx: Tx) -> Option<usize> {
        let place = self.places.get(tx.index()).copied().flatten();
        place.map(|place| place as usize)
    }

    fn skip(&mut self) {
        while self.is_there.get(self.next) == Some(&true) {
            self.next += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_goes_on_when_those_before_it_are_there() {
        let mut openings = Openings::new(vec![Tx(0), Tx(2), Tx(1), Tx(4)]);
        assert!(openings.may_begin(Tx(0)) && openings.may_begin(Tx(3)));
        assert!(!openings.may_begin(Tx(2)));
        openings.came(Tx(2));
        assert!(!openings.may_begin(Tx(1)));
        assert_eq!(openings.pass(), Some(Tx(0)));
        assert!(openings.may_begin(Tx(1)) && !openings.may_begin(Tx(4)));
        // Of one that counted as there nothing changes when it comes.
        openings.came(Tx(0));
        assert_eq!(openings.passed(), 2);
        openings.came(Tx(4));
        assert_eq!(openings.pass(), Some(Tx(1)));
        assert_eq!(openings.pass(), None);
    }
}
