//! What was sent, and what a message from the server is to it.

use std::sync::Arc;

use super::names::Prepared;
use crate::limits;
use crate::message::Malformed;
use crate::message::backend::Status;
use crate::message::frontend::Formats;

/// Who sent a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    Client,
    Injected,
}

/// The kinds of messages that are answered, or that decide what is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    Query,
    Parse,
    Bind,
    DescribeStatement,
    DescribePortal,
    Execute,
    Close,
    Sync,
    FunctionCall,
    /// `CopyDone` or `CopyFail`. Never answered.
    CopyEnd,
}

impl Sent {
    /// An error makes the server discard what follows up to the next `Sync`.
    pub(super) fn is_extended(self) -> bool {
        !matches!(
            self,
            Self::Query | Self::Sync | Self::FunctionCall | Self::CopyEnd
        )
    }
}

/// A message that was sent and is not yet answered.
#[derive(Debug)]
pub struct Pending<T, S> {
    pub sent: Sent,
    pub owner: Owner,
    /// Counts the messages of a session.
    pub sequence: u64,
    pub payload: T,
    /// What it prepared, describes, binds, executes or closed.
    pub prepared: Option<Arc<Prepared<S>>>,
    /// Result formats of an `Execute`, and of the description of a portal.
    pub formats: Formats,
    /// What a `Parse` replaced.
    pub(super) replaced: Option<Arc<Prepared<S>>>,
    /// `COPY … FROM STDIN` statements in it.
    pub(super) copies: u32,
}

/// What a message from the server is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Something before the session is established; its first `ReadyForQuery` included.
    Startup,
    /// A parameter report, notice or notification: it answers nothing.
    Aside,
    /// An answer that is not complete yet; [`front`](super::Tracker::front) is answered.
    Part,
    /// A statement ended well (`CommandComplete`, `EmptyQueryResponse`, `PortalSuspended`,
    /// `FunctionCallResponse`). It was an `Execute` if [`Answer::done`] is there, else it belongs
    /// to [`front`](super::Tracker::front).
    Statement,
    /// `ParseComplete` and the like: [`Answer::done`] is answered.
    Done,
    /// `ErrorResponse`. To an extended message if [`Answer::done`] is there: see
    /// [`discarded`](super::Tracker::discarded). Else [`front`](super::Tracker::front), if any,
    /// failed and its `ReadyForQuery` follows.
    Failed,
    Ready(Status),
    /// The session turns into a replication stream.
    CopyBoth,
}

/// What a message from the server answers.
#[derive(Debug)]
pub struct Answer<T, S> {
    pub role: Role,
    pub owner: Owner,
    /// The message that is now answered in full, taken off the queue.
    pub done: Option<Pending<T, S>>,
}

/// The server, or the client, did what the protocol does not provide for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unexpected {
    #[error("the server answered although nothing was asked")]
    NothingOutstanding,
    #[error("this does not answer the oldest outstanding message, {0:?}")]
    NotAnAnswer(Sent),
    #[error("this has no place before the session is established")]
    BeforeReady,
    #[error("more than {} messages wait for an answer", limits::OUTSTANDING_MAX)]
    TooManyOutstanding,
    #[error("more than {} statements or portals are open", limits::PREPARED_MAX)]
    TooManyPrepared,
    #[error(transparent)]
    Malformed(#[from] Malformed),
}

impl<T, S> Answer<T, S> {
    /// An answer, or a part of one, to a message that stays on the queue.
    pub(super) fn part(role: Role, owner: Owner) -> Self {
        Self {
            role,
            owner,
            done: None,
        }
    }
}
