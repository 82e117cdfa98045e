//! Statements that may commit under ids that cannot be asked for: between which ids, and whether
//! they commit inside.

use std::sync::Arc;

use hindcast_model::{Micros, Outcome};

use super::ask::Standing;
use super::observed::{Event, ObservedTransaction};
use crate::sql::Fingerprint;

/// One such statement, between the answers to two questions of ours.
#[derive(Debug)]
pub(super) struct Bracket {
    /// Where the session stood before it.
    before: Standing,
    /// What is known of it once it is answered.
    ran: Option<Ran>,
}

#[derive(Debug)]
struct Ran {
    statement: Option<Arc<Fingerprint>>,
    began: Micros,
    ended: Micros,
    /// Its id, or that it has none, could be asked for all the same.
    xid_known: bool,
    /// It is a `CALL` or `DO`, and its transaction has no other statement.
    procedure: bool,
    outcome: Outcome,
}

impl Bracket {
    pub fn new(before: Standing) -> Self {
        Self { before, ran: None }
    }

    /// The transaction between the questions was told. `false`: one was already.
    pub fn ran(&mut self, told: &ObservedTransaction) -> bool {
        if self.ran.is_some() {
            return false;
        }
        let statement = told.statements.first().cloned();
        let text = statement.as_ref().map_or("", |statement| &statement.text);
        let keyword = text.split(' ').next().unwrap_or_default();
        let procedure = ["call", "do"]
            .iter()
            .any(|word| keyword.eq_ignore_ascii_case(word));
        self.ran = Some(Ran {
            procedure: procedure && told.statements.len() == 1,
            statement,
            began: told.began,
            ended: told.ended,
            xid_known: told.xid_known,
            outcome: told.outcome.clone(),
        });
        true
    }

    pub fn has_run(&self) -> bool {
        self.ran.is_some()
    }

    /// The second question was answered; or not (`None`), and will not be. What there is to tell.
    pub fn close(self, after: Option<Standing>) -> Option<Event> {
        let ran = self.ran?;
        let transactions =
            after.and_then(|after| after.transaction?.checked_sub(self.before.transaction?));
        // One is the second question's, one the statement's.
        let commits_inside = ran.procedure && transactions.is_some_and(|count| count > 2);
        let one_and_aborted =
            ran.procedure && transactions == Some(2) && ran.outcome == Outcome::Aborted;
        if (ran.xid_known || one_and_aborted) && !commits_inside {
            return None;
        }
        Some(Event::Unasked {
            statement: ran.statement,
            began: ran.began,
            ended: ran.ended,
            xids: after.map(|after| self.before.next_xid..after.next_xid),
            commits_inside,
        })
    }
}

/// What there is to tell of a transaction that committed, or may have, and whose id is not known
/// although nothing was asked around it.
pub(super) fn unasked(told: &ObservedTransaction) -> Option<Event> {
    let unknown = !told.xid_known && told.outcome != Outcome::Aborted;
    unknown.then(|| Event::Unasked {
        statement: told.statements.first().cloned(),
        began: told.began,
        ended: told.ended,
        xids: None,
        commits_inside: false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use hindcast_model::Xid;

    fn standing(next_xid: u64, transaction: u64) -> Standing {
        Standing {
            next_xid: Xid(next_xid),
            transaction: Some(transaction),
        }
    }

    fn bracket(text: &str, xid_known: bool, outcome: Outcome) -> Bracket {
        let fingerprint = Fingerprint {
            hash: 1,
            text: text.to_owned(),
        };
        let mut bracket = Bracket::new(standing(100, 7));
        bracket.ran = Some(Ran {
            procedure: text.starts_with("CALL"),
            statement: Some(Arc::new(fingerprint)),
            began: 1,
            ended: 2,
            xid_known,
            outcome,
        });
        bracket
    }

    fn inside(event: Option<Event>) -> Option<(Option<std::ops::Range<Xid>>, bool)> {
        match event? {
            Event::Unasked {
                xids,
                commits_inside,
                ..
            } => Some((xids, commits_inside)),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_procedure_that_commits_inside_has_more_transactions_than_one() {
        let committed = || Outcome::Committed;
        let ids = || Some(Xid(100)..Xid(103));
        let close =
            |bracket: Bracket, count: u64| inside(bracket.close(Some(standing(103, 7 + count))));
        assert_eq!(close(bracket("CALL p()", true, committed()), 2), None);
        assert_eq!(
            close(bracket("CALL p()", true, committed()), 3),
            Some((ids(), true))
        );
        assert_eq!(
            close(bracket("CALL p()", false, committed()), 2),
            Some((ids(), false))
        );
        assert_eq!(close(bracket("CALL p()", false, Outcome::Aborted), 2), None);
        assert_eq!(
            close(bracket("CALL p()", false, Outcome::Aborted), 4),
            Some((ids(), true)),
            "what it committed before it failed stays"
        );
        assert_eq!(
            close(bracket("VACUUM t", false, committed()), 5),
            Some((ids(), false))
        );
        assert_eq!(
            inside(bracket("VACUUM t", false, committed()).close(None)),
            Some((None, false))
        );
        assert_eq!(inside(Bracket::new(standing(1, 1)).close(None)), None);
    }
}
