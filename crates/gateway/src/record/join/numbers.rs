//! Which statement of the wire's each one is that the server has counted.

use hindcast_wire::Failure;

use super::{Record, Seen};

/// SQLSTATE of a statement in a block that has failed.
const REFUSED: &[u8; 5] = b"25P02";

/// Whether a statement fails so when it runs, and not when it is parsed.
fn is_of_running(failure: &Failure) -> bool {
    !failure.sqlstate.starts_with(b"42")
}

/// What the wire calls the statements that the server has counted.
pub(super) enum Numbers {
    Same,
    Of {
        of: Vec<u32>,
        /// What comes behind the last one.
        end: u32,
    },
}

impl Seen {
    /// What the wire calls each statement that the server has counted; `None` if that is not known.
    ///
    /// ```text
    ///   wire     0 BEGIN  1 SAVEPOINT  2 INSERT fails  3 SELECT fails  4 ROLLBACK TO  5 COMMIT
    ///   server   0        1            2               refused: none   3              4
    /// ```
    ///
    /// The server counts what begins to run. It refuses what comes in a block that has failed, and
    /// ends such a block without counting that.
    pub(super) fn numbers(&self, record: &Record) -> Option<Numbers> {
        let all_told = self.completed as usize + self.failures.len() == self.statements as usize;
        if !all_told || record.left_out > 0 {
            return None;
        }
        self.ways_to_count()
            .find_map(|calls_count| self.numbered(record, calls_count))
    }

    /// Calls by the protocol go past what counts statements, but for those of large objects.
    pub(super) fn ways_to_count(&self) -> impl Iterator<Item = bool> {
        [true, false]
            .into_iter()
            .take(1 + usize::from(!self.calls.is_empty()))
    }

    fn numbered(&self, record: &Record, calls_count: bool) -> Option<Numbers> {
        let passes_by = |at: &u32| !calls_count && self.calls.contains(at);
        if self.failures.is_empty() {
            let of: Vec<u32> = (0..self.statements).filter(|at| !passes_by(at)).collect();
            if record.statements as usize != of.len() {
                return None;
            }
            return Some(match of.len() == self.statements as usize {
                true => Numbers::Same,
                false => Numbers::Of {
                    of,
                    end: self.statements,
                },
            });
        }
        let failed_before = |next: u32| self.failures.iter().any(|one| one.statement + 1 == next);
        let last = self.statements - 1;
        let ends_failed = failed_before(last) && !failed_before(last + 1);
        // Whether the others ran is seen by their number, or else by their errors.
        let ways: [fn(&Failure) -> bool; 3] = [|_| true, |_| false, is_of_running];
        ways.into_iter().find_map(|ran| {
            let counts = |one: &Failure| one.sqlstate != *REFUSED && ran(one);
            let mut failures = self.failures.iter().peekable();
            let counted = (0..self.statements).filter(|&at| {
                let ran = match failures.next_if(|one| one.statement == at) {
                    Some(failure) => counts(failure),
                    None => at != last || !ends_failed,
                };
                ran && !passes_by(&at)
            });
            let of: Vec<u32> = counted.collect();
            (of.len() == record.statements as usize).then_some(Numbers::Of {
                of,
                end: self.statements,
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use hindcast_trace::Outcome;

    use super::super::Ended;
    use super::super::tests::{record, seen};
    use super::*;

    /// What the wire calls the statements that the server has counted, if that is known.
    #[track_caller]
    fn check(
        statements: u32,
        failures: &[(u32, &[u8; 5])],
        counted: u32,
        expected: Option<&[u32]>,
    ) {
        let failure = |&(statement, sqlstate): &(u32, &[u8; 5])| Failure {
            statement,
            sqlstate: *sqlstate,
        };
        let failures: Vec<Failure> = failures.iter().map(failure).collect();
        let seen = Seen {
            statements,
            completed: statements - failures.len() as u32,
            failures,
            ..seen(0, 0, Outcome::Committed)
        };
        let numbers = seen.numbers(&record(1, 0, counted, Ended::Committed));
        let numbers = numbers.map(|numbers| match numbers {
            Numbers::Same => (0..counted).collect(),
            Numbers::Of { of, .. } => of,
        });
        assert_eq!(numbers.as_deref(), expected);
    }

    #[test]
    fn statements_are_numbered_as_on_the_wire_though_some_of_them_fail() {
        const DUPLICATE: &[u8; 5] = b"23505";
        const UNKNOWN_TABLE: &[u8; 5] = b"42P01";
        check(3, &[], 3, Some(&[0, 1, 2]));
        check(3, &[], 2, None);
        // BEGIN, SAVEPOINT, INSERT fails, ROLLBACK TO, SELECT, COMMIT.
        check(6, &[(2, DUPLICATE)], 6, Some(&[0, 1, 2, 3, 4, 5]));
        // The same of a table that there is not, and with a statement before ROLLBACK TO.
        check(6, &[(2, UNKNOWN_TABLE)], 5, Some(&[0, 1, 3, 4, 5]));
        let refused = [(2, DUPLICATE), (3, REFUSED)];
        check(7, &refused, 6, Some(&[0, 1, 2, 4, 5, 6]));
        // One of each.
        let both = [(2, UNKNOWN_TABLE), (5, DUPLICATE)];
        check(8, &both, 7, Some(&[0, 1, 3, 4, 5, 6, 7]));
        // BEGIN, INSERT fails, ROLLBACK.
        check(3, &[(1, DUPLICATE)], 2, Some(&[0, 1]));
        check(3, &[(1, UNKNOWN_TABLE)], 1, Some(&[0]));
        check(1, &[(0, DUPLICATE)], 1, Some(&[0]));
        check(6, &[(2, DUPLICATE)], 4, None);
    }

    #[test]
    fn calls_by_the_protocol_may_be_counted_or_not() {
        let of = |statements, failures: &[Failure], counted| {
            let seen = Seen {
                completed: statements - failures.len() as u32,
                statements,
                calls: vec![1, 2],
                failures: failures.to_vec(),
                ..seen(0, 0, Outcome::Committed)
            };
            match seen.numbers(&record(1, 0, counted, Ended::Committed))? {
                Numbers::Same => Some((0..counted).collect()),
                Numbers::Of { of, .. } => Some(of),
            }
        };
        // BEGIN, two calls, INSERT, COMMIT.
        assert_eq!(of(5, &[], 5), Some(vec![0, 1, 2, 3, 4]));
        assert_eq!(of(5, &[], 3), Some(vec![0, 3, 4]));
        assert_eq!(of(5, &[], 4), None);
        // The same with an INSERT that fails and ROLLBACK.
        let failed = Failure {
            statement: 3,
            sqlstate: *b"23505",
        };
        let failures = std::slice::from_ref(&failed);
        assert_eq!(of(5, failures, 4), Some(vec![0, 1, 2, 3]));
        assert_eq!(of(5, failures, 2), Some(vec![0, 3]));
    }
}
