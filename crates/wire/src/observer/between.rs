//! What there is to do between the client's transactions, in transactions of our own.
//!
//! ```text
//!   before the first statement, and the first after RESET ALL      Raise
//!   before DISCARD ALL, and when the client leaves                 DropTemporary, DropId
//!   around VACUUM, CREATE INDEX CONCURRENTLY, CALL …               Before … After
//! ```
//!
//! This decides; `errands.rs` sends.

use super::ask::Errand;
use crate::sql::{Company, Kind, Statement};

/// What there is to do of this kind.
#[derive(Debug)]
pub(super) struct Between {
    /// The session's default isolation is to be raised.
    raises: bool,
    /// It has to be done again: nothing has been sent yet, or the client went back to defaults.
    raise_due: bool,
    /// A statement was sent that may have written since temporary tables were last dropped. They
    /// may also be made by functions, so there is no telling from texts.
    may_have_temporary: bool,
    bracket: Bracket,
}

/// A statement that may commit under ids that cannot be asked for stands between two questions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bracket {
    None,
    /// The first question was sent.
    Open,
    /// And the statement behind it.
    Ran,
}

impl Between {
    pub fn new(raises: bool) -> Self {
        Self {
            raises,
            raise_due: raises,
            may_have_temporary: false,
            bracket: Bracket::None,
        }
    }

    /// A statement was sent.
    pub fn sent(&mut self, statement: &Statement) {
        self.may_have_temporary |= statement.kind.may_write();
        self.raise_due |= self.raises && restores_defaults(statement);
    }

    /// A message was sent that runs a statement.
    pub fn executes(&mut self, statement: &Statement) {
        if self.bracket == Bracket::Open && is_bracketed(statement) {
            self.bracket = Bracket::Ran;
        }
    }

    /// An errand was not run.
    pub fn lost(&mut self, errand: Errand) {
        match errand {
            Errand::Raise => self.raise_due = self.raises,
            Errand::DropTemporary | Errand::DropId => self.may_have_temporary = true,
            Errand::Rollback | Errand::Before | Errand::After => {}
        }
    }

    /// Whether the server, when the session's backend exits, may still drop temporary tables.
    pub fn may_have_temporary(&self) -> bool {
        self.may_have_temporary
    }

    /// Whether the default isolation has to be raised now; then this counts as done.
    pub fn take_raise(&mut self) -> bool {
        std::mem::take(&mut self.raise_due)
    }

    /// Whether temporary tables have to be dropped now; then this counts as done.
    pub fn take_temporary(&mut self) -> bool {
        std::mem::take(&mut self.may_have_temporary)
    }

    /// The first of two questions is sent.
    pub fn open_bracket(&mut self) {
        self.bracket = Bracket::Open;
    }

    /// Whether the second of two questions has to be sent now; then this counts as done.
    pub fn take_bracket(&mut self) -> bool {
        std::mem::replace(&mut self.bracket, Bracket::None) == Bracket::Ran
    }
}

/// Whether a statement may commit under ids that cannot be asked for: it runs in transactions of
/// its own, or its transaction cannot be shared.
pub(super) fn is_bracketed(statement: &Statement) -> bool {
    match statement.kind {
        Kind::Call | Kind::Do => statement.company != Company::Any,
        // The transaction was told with its id when it was prepared.
        Kind::CommitPrepared { .. } | Kind::RollbackPrepared { .. } => false,
        // What it drops has been dropped before it.
        Kind::Discard { .. } => false,
        _ => statement.company == Company::Refused,
    }
}

/// Whether a statement puts `default_transaction_isolation` back to what the session began with.
fn restores_defaults(statement: &Statement) -> bool {
    const SETTING: &str = "default_transaction_isolation";
    match statement.kind {
        Kind::Discard { all } => all,
        Kind::Set => {
            let text = statement.fingerprint.text.to_ascii_lowercase();
            match text.split_once(' ') {
                Some(("reset", name)) => matches!(name, "all" | SETTING),
                Some((_, rest)) => rest.contains(SETTING) && rest.ends_with("default"),
                None => false,
            }
        }
        _ => false,
    }
}
