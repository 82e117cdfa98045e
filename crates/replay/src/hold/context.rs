//! Who a holder asks, and what it is told once.

use std::sync::Arc;

use hindcast_model::Traceparent;
use hindcast_order::Tx;
use hindcast_trace::RequestId;
use hindcast_wire::frame::Frame;
use hindcast_wire::row_order::RowOrder;
use hindcast_wire::sql::ScriptCache;

use super::Unreadable;
use super::pins::Pins;
use super::sent::{Inserted, SentAll};
use super::served::Answered;
use crate::transaction::{Ask, Claim, Ended, Looking, MovedReads, Opening, Stop, Stopped, Yielded};

/// Who knows the recording and the schedule.
pub trait Context {
    /// A transaction takes its first snapshot, for this statement.
    fn claim(&mut self, request: Option<RequestId>, opening: Opening<'_>) -> Claim;
    fn pins(&self, tx: Tx) -> Result<Pins, Unreadable>;
    /// What the server answered originally; `None` if that was not kept.
    fn recorded_answers(&self, tx: Tx) -> Result<Option<Answered>, Unreadable>;
    /// In which orders rows came that were read behind this transaction, from a cursor that it had
    /// declared.
    fn fetched(&self, _tx: Tx) -> Result<Vec<RowOrder>, Unreadable> {
        Ok(Vec::new())
    }
    /// The request on whose behalf the service has sent what it sent, if its tap tells.
    fn turn(&self) -> Option<RequestId>;
    /// The request in flight, if there is exactly one.
    fn alone(&self) -> Option<RequestId>;
    /// The transaction, which is one batch, need not be held at its commit.
    fn commits_freely(&self, _tx: Tx) -> bool {
        false
    }
    /// A statement that only reads, and takes a snapshot of its own, asks for this, and is the only
    /// one that is sent when it is permitted.
    fn asks_to_see(&mut self, _ask: Ask) {}
    /// It is permitted: whether the statement sees the present instead of what it saw.
    fn sees_present(&mut self, _ask: Ask) -> bool {
        false
    }
    /// The statement with this index, which changes rows, is about to wait for
    /// [`Ask::Change`](crate::transaction::Ask::Change).
    fn asks_to_change(&mut self, _tx: Tx, _statement: u32) {}
    fn took_snapshot(&mut self, tx: Tx);
    /// The statements of its look with this number were answered.
    fn looked(&mut self, tx: Tx, nth: u32);
    fn locked(&mut self, tx: Tx, statement: u32);
    /// All but the commit is done, or what is done next may wait for another transaction's commit.
    fn ran(&mut self, tx: Tx);
    fn ended(&mut self, claim: Claim, ended: Ended);
    /// The same of one that stands for none, or of which it was not known which it is: these
    /// statements have come.
    fn came(&mut self, _claim: Option<Claim>, _statements: &[u64]) {}
    fn served(&mut self, tx: Tx, complete: bool, moved: MovedReads);
    fn lost(&mut self, claim: Claim, ended: Ended);
    /// The transaction of [`HoldOptions::stop`] is there, and goes no further.
    fn stopped(&mut self, stopped: Stopped);
    /// The server refused a write outside any request.
    fn outside_write_refused(&mut self, statement: &str);
    /// A write outside any request was made, and undone.
    fn outside_write_undone(&mut self, _statement: &str) {}
    /// What the client of a ghost sent that the service does itself. `None`: it does not.
    fn sent_by(&self, _tx: Tx) -> Result<Option<SentAll>, Unreadable> {
        Ok(None)
    }
    /// A ghost that the recording has done, where the service does its like outside of requests,
    /// with other values.
    fn done_like(&self, _claim: Claim, _opening: Opening<'_>) -> Option<Tx> {
        None
    }
    /// Whether a ghost has laid this row, which the service lays outside of requests.
    fn is_laid(&self, _row: &Inserted) -> bool {
        false
    }
    /// The service did not do a ghost as it was done: what it did of it is undone.
    fn gave_back(&mut self, _tx: Tx) {}
    /// What held a ghost of the service at its commit is over: whether it may not commit, and the
    /// recording does it.
    fn gives_back(&mut self, _tx: Tx) -> bool {
        false
    }
    /// A transaction that waited to do this ghost has gone away.
    fn waits_no_more(&mut self, _tx: Tx) {}

    /// The transaction is answered: whether its client is to hear of it in its turn; see
    /// [`Ask::Answer`](crate::transaction::Ask::Answer).
    fn withholds(&mut self, _tx: Tx) -> bool {
        false
    }
    /// And now it has heard.
    fn gave_answer(&mut self, _tx: Tx) {}

    /// What the server works on from here on, and has the snapshot for if it waits for a row.
    fn looking(&mut self, _looking: Option<Looking>) {}
    /// The service gives its database what this message holds.
    fn given(&mut self, _message: &Frame) {}
    /// The session's transaction is this one from here on; `None`: it has none.
    fn entered(&mut self, _claim: Option<Claim>) {}

    // What only changed code needs.

    /// The server process of this session.
    fn backend(&mut self, _pid: i32) {}
    /// Before its commit the transaction turned out to have written, with these ids: its own, and
    /// those of its subtransactions.
    fn wrote(&mut self, _claim: Claim, _ids: Vec<u64>, _statements: &[String]) {}
    /// A statement was cancelled: why, if we had it cancelled.
    fn yielded(&mut self) -> Option<Yielded> {
        None
    }
}

/// What runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// The service as it was recorded.
    Recorded,
    /// The service with changes.
    Changed {
        /// Whether it may write outside any request.
        outside_writes: bool,
    },
}

#[derive(Clone, Debug)]
pub struct HoldOptions {
    /// The high halves of the recorders' trace-ids.
    pub trace_id_prefixes: Vec<u64>,
    pub scripts: Arc<ScriptCache>,
    /// The rewound database has the functions that honour pins.
    pub pinned: bool,
    /// And its server gives a statement another snapshot than its own.
    pub imposes: bool,
    pub code: Code,
    /// The transaction that does not go on to its end.
    pub stop: Option<Stop>,
}

impl HoldOptions {
    pub(super) fn request_of(&self, trace: Traceparent) -> Option<RequestId> {
        self.trace_id_prefixes
            .contains(&trace.prefix)
            .then_some(trace.request)
    }
}
