//! Which message the server answers next, and for whom.
//!
//! The holder has at most one batch of the client outstanding, so this needs none of an observer's
//! care for pipelines: it is a queue.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use hindcast_wire::message::backend as server;
use hindcast_wire::text::{Settings, TextForm};

use super::names::{Bound, Prepared};

/// What a message makes the server answer.
#[derive(Clone, Debug)]
pub(super) enum Expect {
    /// Each statement ends with `CommandComplete` or `EmptyQueryResponse`, all of them with
    /// `ReadyForQuery`.
    Query {
        rows: Vec<Rows>,
    },
    Parse,
    Bind,
    Close,
    /// Of this statement, of it itself or of a portal of it.
    Describe(Option<Arc<Prepared>>),
    /// Of a portal of this statement, by what the server says of the statement. The rows that
    /// follow are in these recorded messages.
    DescribeServed {
        prepared: Arc<Prepared>,
        answer: Bytes,
    },
    Execute {
        rows: Rows,
        of: Option<Bound>,
    },
    Sync,
    FunctionCall,
    /// Of a `Close` in the place of an `Execute`, which is answered this completion instead.
    Nothing(&'static [u8]),
}

/// What is known of the rows that a statement is answered.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rows {
    /// They come in an order that counts.
    pub ordered: bool,
    /// What is in them instead; see [`Access`](super::access::Access).
    pub shown: Option<&'static [u8]>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    Client,
    /// A statement of ours; its answers go no further.
    Own,
    /// The client's, but its `ReadyForQuery` is kept back, because the client's transaction is not
    /// over yet.
    Withheld,
}

impl Expect {
    /// How many statements are answered.
    pub fn statements(&self) -> u32 {
        match self {
            Self::Query { rows } => rows.len() as u32,
            Self::Execute { .. } | Self::Nothing(_) | Self::FunctionCall => 1,
            _ => 0,
        }
    }

    /// What is known of the rows of this statement of it.
    fn rows(&self, statement: usize) -> Rows {
        match self {
            Self::Query { rows } => rows.get(statement).copied().unwrap_or_default(),
            Self::Execute { rows, .. } => *rows,
            _ => Rows::default(),
        }
    }

    /// Rows are described.
    fn note_description(&self, body: &[u8]) {
        if let Self::Describe(Some(prepared)) | Self::DescribeServed { prepared, .. } = self {
            prepared.describe(body);
        }
    }

    /// The recorded messages with the rows that follow.
    fn served(&self) -> Option<Bytes> {
        match self {
            Self::DescribeServed { answer, .. } => Some(answer.clone()),
            _ => None,
        }
    }

    /// The completion that an answer stands for.
    fn nothing(&self, tag: u8) -> Option<&'static [u8]> {
        match self {
            Self::Nothing(completion) if tag == server::CLOSE_COMPLETE => Some(completion),
            _ => None,
        }
    }
}

/// What a message of the server is.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    pub owner: Owner,
    /// What is known of it, if it is a row.
    pub row: Rows,
    /// The completion that the client is answered instead.
    pub empty: Option<&'static [u8]>,
    /// It is about a statement, and the client has asked for a portal with these recorded rows.
    pub served: Option<Bytes>,
}

#[derive(Debug, Default)]
pub(super) struct Answers {
    outstanding: VecDeque<(Expect, Owner)>,
    /// The server ignores what it gets up to the next `Sync`, and none was sent yet.
    skipping: bool,
    /// Which statement of the `Query` in front is being answered.
    statement: usize,
    /// How the rows that come become text, once the first has come.
    text_form: TextForm,
    has_rows: bool,
}

impl Answers {
    pub fn expect(&mut self, expect: Expect, owner: Owner) {
        if let Expect::Sync = expect {
            self.skipping = false;
        }
        if !self.skipping {
            self.outstanding.push_back((expect, owner));
        }
    }

    /// Whether what is sent now is ignored, because something before it in its batch failed.
    pub fn is_skipping(&self) -> bool {
        self.skipping
    }

    pub fn is_empty(&self) -> bool {
        self.outstanding.is_empty()
    }

    /// Whether a `Sync` was sent that is not answered.
    pub fn has_sync(&self) -> bool {
        self.outstanding
            .iter()
            .any(|(expect, _)| matches!(expect, Expect::Sync))
    }

    /// How the rows of the prepared statement that is being answered were described.
    pub fn description(&self) -> Option<Bytes> {
        match self.outstanding.front()? {
            (Expect::Execute { of: Some(of), .. }, _) => of.prepared.description().cloned(),
            _ => None,
        }
    }

    /// The text form of the body of a row that was just taken.
    pub fn row<'a>(&'a mut self, body: &'a [u8], settings: &Settings) -> &'a [u8] {
        self.text_form.row(body, settings)
    }

    /// The server sent this message. `None`: it answers no message in particular.
    pub fn take(&mut self, tag: u8, body: &[u8]) -> Option<Answer> {
        if matches!(
            tag,
            server::PARAMETER_STATUS | server::NOTICE_RESPONSE | server::NOTIFICATION_RESPONSE
        ) {
            return None;
        }
        let (expect, owner) = self.outstanding.front()?;
        let row = expect.rows(self.statement);
        if tag == server::DATA_ROW && !std::mem::replace(&mut self.has_rows, true) {
            self.text_form.clear();
            if let Expect::Execute { of: Some(of), .. } = expect
                && let Some(description) = of.prepared.description()
            {
                self.text_form.begin(description, &of.formats);
            }
        }
        if tag == server::ROW_DESCRIPTION {
            expect.note_description(body);
        }
        let answer = Answer {
            owner: *owner,
            row,
            empty: expect.nothing(tag),
            served: expect.served(),
        };
        let done = match (expect, tag) {
            (Expect::Query { .. }, server::COMMAND_COMPLETE | server::EMPTY_QUERY_RESPONSE) => {
                self.statement += 1;
                false
            }
            (
                Expect::Query { .. } | Expect::Sync | Expect::FunctionCall,
                server::READY_FOR_QUERY,
            ) => true,
            (Expect::Query { .. } | Expect::FunctionCall, _) => false,
            (Expect::Sync, server::ERROR_RESPONSE) => false,
            (_, server::ERROR_RESPONSE) => {
                // The server ignores everything up to the next Sync.
                while self
                    .outstanding
                    .front()
                    .is_some_and(|(expect, _)| !matches!(expect, Expect::Sync))
                {
                    self.outstanding.pop_front();
                }
                self.skipping = self.outstanding.is_empty();
                false
            }
            (Expect::Parse, server::PARSE_COMPLETE)
            | (Expect::Bind, server::BIND_COMPLETE)
            | (Expect::Close | Expect::Nothing(_), server::CLOSE_COMPLETE)
            | (
                Expect::Describe(_) | Expect::DescribeServed { .. },
                server::ROW_DESCRIPTION | server::NO_DATA,
            )
            | (
                Expect::Execute { .. },
                server::COMMAND_COMPLETE | server::EMPTY_QUERY_RESPONSE | server::PORTAL_SUSPENDED,
            ) => true,
            _ => false,
        };
        if done {
            self.outstanding.pop_front();
            self.statement = 0;
            self.has_rows = false;
        }
        Some(answer)
    }
}
