//! The answers to statements of ours.

use hindcast_model::Micros;

use super::ask::{Ask, Errand, Standing, Told};
use super::bracket::Bracket;
use super::client::ClientSide;
use super::note::{Note, StatementNote, Tracked, Work};
use super::observed::{Event, Problem};
use super::server::{Parts, Passage, ServerSide};
use crate::frame::Piece;
use crate::message::backend::{self, Fields};
use crate::tracker::{Answer, Role, Sent, Tracker};

/// `invalid_sql_statement_name`
const MISSING: &[u8] = b"26000";

type Outstanding = Tracker<Note, StatementNote>;

impl ServerSide {
    /// An answer to a message of ours.
    pub(super) fn ours(
        &mut self,
        piece: Piece<'_>,
        answer: Answer<Note, StatementNote>,
        tracker: &mut Outstanding,
        client: &mut ClientSide,
        events: &mut Vec<Event>,
    ) -> Result<Passage, Problem> {
        self.parts = Parts::Swallow;
        match answer.role {
            Role::Part if piece.tag == backend::DATA_ROW => {
                let Some(note) = tracker.front().map(|front| &front.payload) else {
                    return Ok(Passage::Swallow);
                };
                let mut row = backend::parse_data_row(piece.body());
                match note.work {
                    Work::Ask {
                        ask,
                        transaction,
                        run,
                        ..
                    } => {
                        if let Some(told) = ask.read(&mut row) {
                            self.told(told, transaction, note.at, client);
                        }
                        client.asks.answered(ask, run, self.process_id, row);
                    }
                    Work::Errand(errand) => self.errand_answered(errand, row, events),
                    _ => {}
                }
            }
            Role::Failed => {
                let mut inline = false;
                let done = answer.done.as_ref();
                if done.is_some_and(|done| is_missing(done, piece.body())) {
                    // It is gone by a way that we do not know of.
                    client.asks.kept.forbid();
                }
                for lost in answer.done.into_iter().chain(tracker.discarded()) {
                    client.lost(&lost);
                    inline |= lost.payload.work.is_inline();
                    if matches!(lost.payload.work, Work::Errand(Errand::After)) {
                        let bracket = self.bracket.take();
                        events.extend(bracket.and_then(|bracket| bracket.close(None)));
                    }
                }
                // The session ends with it (`pg_terminate_backend`), whatever it answers.
                let fatal = backend::Fields::parse(piece.body()).is_ok_and(|one| one.is_fatal());
                if inline || fatal {
                    // The client's transaction failed with it: let it know, as the answer to what
                    // it sent next.
                    self.failed_outside(piece.body());
                    self.parts = Parts::Forward;
                    return Ok(Passage::Forward);
                }
            }
            Role::Done => {
                if let Some(Work::Close { number, .. }) = answer.done.map(|done| done.payload.work)
                {
                    client.asks.kept.closed(number);
                }
            }
            _ => {}
        }
        Ok(Passage::Swallow)
    }

    fn errand_answered<'a>(
        &mut self,
        errand: Errand,
        mut row: impl Iterator<Item = Option<&'a [u8]>>,
        events: &mut Vec<Event>,
    ) {
        match errand {
            Errand::DropId => {
                let xid = Ask::XID.read(row).and_then(|told| told.xid);
                events.extend(xid.map(|xid| Event::OwnXid { xid }));
            }
            Errand::Before => self.bracket = Standing::read(&mut row).map(Bracket::new),
            Errand::After => {
                if let Some(bracket) = self.bracket.take() {
                    events.extend(bracket.close(Standing::read(&mut row)));
                }
            }
            Errand::Raise | Errand::Rollback | Errand::DropTemporary => {}
        }
    }

    pub(super) fn told(
        &mut self,
        told: Told,
        transaction: u64,
        at: Micros,
        client: &mut ClientSide,
    ) {
        if let Some(read_only) = told.read_only {
            client.forecast.learn_read_only(transaction, read_only);
        }
        if self.open.is_none() && self.in_block {
            // The block began with `AND CHAIN`, and nothing of the client's has run in it yet.
            self.open(at);
        }
        if let Some(open) = self.open.as_mut().filter(|open| open.ended.is_none()) {
            open.told(told);
        }
    }
}

/// Whether what failed is the binding of a statement that is not there.
fn is_missing(failed: &Tracked, error: &[u8]) -> bool {
    let sqlstate = Fields::parse(error).map_or(&b""[..], |fields| fields.sqlstate());
    failed.sent == Sent::Bind && sqlstate == MISSING
}
