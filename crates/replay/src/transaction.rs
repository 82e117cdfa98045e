//! A transaction under replay, as its session and the coordinator speak of it: what it asks, which
//! recorded one it stands for, how it ended.

use std::time::Duration;

use bytes::BytesMut;
use hindcast_order::Tx;
use hindcast_trace::{Digest, ShapeId};
use hindcast_wire::answered::error_text;
use hindcast_wire::frame::{self, Direction};
use hindcast_wire::message::backend;

use crate::learned::Results;
use crate::transcript::Transcript;

/// Something that may have to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ask {
    Snapshot(Tx),
    /// To do this ghost in the place of the recording. It is not waited for where nothing moves.
    Ghost(Tx),
    /// Of a transaction under READ COMMITTED: what a later statement is to see. It is the look with
    /// this number.
    Look(Tx, u32),
    /// The statement with this index within its transaction.
    Lock(Tx, u32),
    /// The statement with this index within its transaction inserts a row; see
    /// [`inserts`](crate::inserts). Nobody waits for this for longer than
    /// [`Ask::INSERT_PATIENCE`], or [`Ask::TAKE_PATIENCE`].
    Insert(Tx, u32),
    /// The statement with this index within its transaction changes rows of a table in which others
    /// found a key taken; see [`losers`](hindcast_order::losers).
    Change(Tx, u32),
    /// To write or lock, for a transaction of changed code that aborted originally.
    Act(Tx),
    Commit(Tx),
    /// To give a client the end of its answer, where its request has asked for other things at
    /// the time.
    Answer(Tx),
    /// That has been written. It is always permitted.
    Given(Tx),
    /// To end for good where it was to be stopped, with what it has written so far; see [`Stop`].
    Stop(Tx),
}

/// Statements that the server works on: all of those that see the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Looking {
    pub tx: Tx,
    /// The look with this number; `None`: what the transaction saw first.
    pub look: Option<u32>,
}

impl Ask {
    /// Whoever is to insert first may wait for a row of another transaction, or may not come.
    pub const INSERT_PATIENCE: Duration = Duration::from_millis(50);

    /// What rows a statement takes depends on who came before it. So it waits for them as long as
    /// something moves within the first of these, and no longer than the second.
    pub const TAKE_PATIENCE: (Duration, Duration) =
        (Duration::from_millis(150), Duration::from_secs(2));

    /// Where nothing has moved for so long, a transaction outside of requests does not wait to do a
    /// ghost: others may wait for its connection.
    pub const GHOST_PATIENCE: Duration = Duration::from_millis(150);

    /// Where nothing has moved for so long, a ghost that the service does and that is held at its
    /// commit is left to the recording: what it waits for may wait for its connection.
    pub const GHOST_COMMIT_PATIENCE: Duration = Duration::from_secs(1);

    /// What an answer waits for and what does not come is not waited for longer.
    pub const ANSWER_PATIENCE: Duration = Duration::from_millis(250);

    /// Where nothing has moved for so long, a transaction that has not begun stands in line for a
    /// connection.
    pub const OPENING_PATIENCE: Duration = Duration::from_millis(15);

    pub fn tx(self) -> Tx {
        match self {
            Self::Snapshot(tx)
            | Self::Ghost(tx)
            | Self::Look(tx, _)
            | Self::Lock(tx, _)
            | Self::Insert(tx, _)
            | Self::Change(tx, _)
            | Self::Act(tx)
            | Self::Commit(tx)
            | Self::Answer(tx)
            | Self::Given(tx)
            | Self::Stop(tx) => tx,
        }
    }
}

/// Where a transaction is stopped, to look at what it saw there. What it has written so far is
/// committed, so that every session sees it, and it does not go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stop {
    pub tx: Tx,
    /// Before the statement with this index. Where the transaction has no `COMMIT` of its own, the
    /// number of its statements stands for its end.
    pub statement: u32,
}

/// What became of a transaction where it was to be stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stopped {
    /// What it has written is committed. `shape`: of the statements so far.
    Committed { shape: ShapeId },
    /// That failed, or something had failed before.
    Failed { error: Option<String> },
    /// The client sent the statement in one text with the one before it, which the server runs as
    /// a whole.
    InOneText,
}

/// Why a statement of changed code was cancelled that waited in the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Yielded {
    /// What it waited for is complete, and has to come after it.
    Order,
    /// Each of them waits for the other, and originally this one was made to fail.
    Deadlock,
}

/// A transaction that no recorded one corresponds to, numbered in the order in which they began.
pub type AddedId = u32;

/// What a transaction of the service turned out to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Claim {
    /// Run it under the schedule: it committed originally, or the code is changed.
    Run(Tx),
    /// It aborted originally: answer from the recording.
    Serve(Tx),
    /// The request had no such transaction: run it without a schedule, or not at all if the replay
    /// has stopped.
    Extra,
    /// The request was broken off before it came to this: it is not run, and its session ends, as
    /// the service did that worked on it.
    CutOff,
    /// The request of changed code had no such transaction: run it as it comes.
    Added(AddedId),
    /// It belongs to no request that is replayed. What it writes is undone.
    Outside,
    /// Likewise. It looks for something to do, and what there is, is for others.
    InVain,
    /// It belongs to no request, and will do this ghost when that can come. It is asked again then,
    /// or when nothing moves.
    Wait(Tx),
    /// Not known yet: what its driver asks for itself comes first, or what is in several. The next
    /// statement tells. It may be this one, and waits until that may look.
    Later(Option<Tx>),
}

/// The statement that makes a transaction take its snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opening<'a> {
    /// Of its fingerprint.
    pub text: &'a str,
    /// Of its fingerprint.
    pub hash: u64,
    /// It is about its connection; see [`sets_up`](crate::setup::sets_up).
    pub sets_up: bool,
    /// It is all of its transaction, and only reads.
    pub reads_alone: bool,
    /// The client has begun its transaction, so more may follow.
    pub begun: bool,
    /// Of what came before it in its transaction, which was answered [`Claim::Later`].
    pub earlier: &'a [u64],
    /// With which values it runs, where they are known: see
    /// [`values_of`](hindcast_wire::values_of).
    pub values: Option<u64>,
    /// See [`each_value`](hindcast_wire::each_value).
    pub each_value: &'a [u64],
    /// It may be answered [`Claim::Wait`].
    pub may_wait: bool,
    /// It was.
    pub waited: bool,
}

/// How a transaction ended in the replay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    pub shape: ShapeId,
    pub digest: u32,
    /// The digest of rows as they were sent.
    pub digest_as_sent: u32,
    pub rows: u64,
    pub fate: EndedAs,
    /// Of its statements' fingerprints.
    pub hashes: Vec<u64>,
    /// Of these, those that [may be aside](crate::shapes::may_be_aside).
    pub aside: Vec<u64>,
    /// Of changed code: these fingerprints.
    pub statements: Vec<String>,
    /// What it was answered.
    pub results: Results,
    /// What it sent and was answered.
    pub transcript: Transcript,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EndedAs {
    Committed,
    /// With the error that made it fail, if there was one.
    RolledBack {
        error: Option<String>,
    },
}

impl Ended {
    /// Whether it was answered what a transaction with this digest was. Recordings that were made
    /// before digests were of the [text form](hindcast_wire::text) have those of rows as sent.
    pub fn is_answered(&self, recorded: Digest) -> bool {
        [self.digest, self.digest_as_sent].contains(&recorded.0)
    }

    /// The session went away in the middle of it, which nobody expected.
    pub fn lost(self) -> Self {
        let error = "the service closed the connection in the middle of it".to_owned();
        let fate = EndedAs::RolledBack { error: Some(error) };
        Self { fate, ..self }
    }
}

/// By which reads a transaction that was served is otherwise than recorded, as hashes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MovedReads {
    /// They came as recorded.
    pub same: Vec<u64>,
    pub gone: Vec<u64>,
    pub new: Vec<u64>,
}

/// The first error among what a server answered, `message (SQLSTATE)`.
pub fn first_error(answers: &[u8]) -> Option<String> {
    let mut bytes = BytesMut::from(answers);
    while let Ok(Some(frame)) = frame::split(Direction::FromServer, &mut bytes) {
        if frame.tag() == backend::ERROR_RESPONSE {
            return Some(error_text(frame.body()));
        }
    }
    None
}
