//! Where transactions end, and what is told about them then.

use hindcast_model::Outcome;

use super::bracket::unasked;
use super::client::client_position;
use super::kept::Kept;
use super::note::{Note, StatementNote, Tracked, Work};
use super::observed::{Context, Event};
use super::server::ServerSide;
use super::transaction::{End, Open, Tail};
use crate::frame::Piece;
use crate::message::backend;
use crate::sql::Kind;
use crate::tracker::{Owner, Sent, Tracker};

type Outstanding = Tracker<Note, StatementNote>;

/// What is kept of the client's stream, and of what went to the client.
pub(super) struct Streams<'a> {
    pub client: &'a mut Kept,
    pub server: &'a mut Kept,
}

impl ServerSide {
    /// Whether the open transaction has ended, and this piece does not belong to it any more.
    pub fn ends_before(&self, piece: &Piece<'_>, tracker: &Outstanding) -> bool {
        use backend::*;
        let ended = self.open.as_ref().is_some_and(|open| open.ended.is_some());
        let aside = matches!(
            piece.tag,
            NOTICE_RESPONSE | NOTIFICATION_RESPONSE | PARAMETER_STATUS | READY_FOR_QUERY
        );
        // What is swallowed answers nothing, but a failure is passed on.
        let seen = |front: &Tracked| front.owner == Owner::Client || piece.tag == ERROR_RESPONSE;
        ended && piece.first && !aside && tracker.front().is_some_and(seen)
    }

    /// Tells about the transaction that ended before the piece at hand.
    pub fn tell_before(
        &mut self,
        tracker: &Outstanding,
        streams: Streams<'_>,
        cx: &Context<'_>,
        events: &mut Vec<Event>,
    ) {
        let Some(open) = self.open.take() else { return };
        let tail = match tracker.front().map(|front| &front.payload.work) {
            Some(Work::Query(query)) if self.index > 0 => Some(Tail {
                text: query.text.as_deref(),
                script: &query.script,
                last: self.index - 1,
            }),
            _ => None,
        };
        let sent_behind = client_position(tracker, streams.client.end());
        self.tell(open, tail, sent_behind, streams, cx, events);
    }

    /// After the piece at hand, a `ReadyForQuery`: tells about the transaction that it ended, and
    /// forgets what is not needed any more.
    pub fn tell_ended(
        &mut self,
        tracker: &Outstanding,
        streams: Streams<'_>,
        cx: &Context<'_>,
        events: &mut Vec<Event>,
    ) {
        self.ends_here = false;
        let sent_behind = client_position(tracker, streams.client.end());
        match self.open.take_if(|open| open.ended.is_some()) {
            Some(open) => self.tell(open, None, sent_behind, streams, cx, events),
            None if self.open.is_none() => self.mark(sent_behind, streams),
            None => {}
        }
        // What stood behind the first question has not run.
        self.bracket.take_if(|bracket| !bracket.has_run());
    }

    fn tell(
        &mut self,
        mut open: Box<Open>,
        tail: Option<Tail<'_>>,
        sent_behind: u64,
        streams: Streams<'_>,
        cx: &Context<'_>,
        events: &mut Vec<Event>,
    ) {
        if open.announce() {
            events.push(Event::TransactionBegan {
                began: open.began(),
            });
        }
        let end = End {
            outcome: open.ended.take().unwrap_or(Outcome::Unknown),
            at: cx.now,
            client_to: sent_behind,
            tail,
        };
        // Whatever comes next, it answers a statement of another transaction.
        self.within_statement = false;
        if let Some(told) = open.finish(end, streams.client, streams.server) {
            let asked_around = self.bracket.as_mut().is_some_and(|one| one.ran(&told));
            if !asked_around {
                events.extend(unasked(&told));
            }
            let id_at_commit = self.empties_on_commit && told.xid_known && told.xid.is_none();
            if id_at_commit && !told.passive && told.outcome != Outcome::Aborted {
                events.push(Event::EmptiedOnCommit {
                    began: told.began,
                    ended: told.ended,
                });
            }
            events.push(match told.outcome {
                Outcome::Unknown => Event::CommitUncertain(told),
                _ => Event::Transaction(told),
            });
        }
        self.mark(sent_behind, streams);
    }

    /// The next transaction's bytes begin here.
    fn mark(&mut self, sent_behind: u64, streams: Streams<'_>) {
        self.client_mark = sent_behind;
        self.server_mark = streams.server.end();
        streams.client.release(self.client_mark);
        streams.server.release(self.server_mark);
    }

    /// The server is gone. What it was still asked for may have happened or not.
    pub fn gone(
        &mut self,
        tracker: &Outstanding,
        streams: Streams<'_>,
        cx: &Context<'_>,
        events: &mut Vec<Event>,
    ) {
        let Streams { client, server } = streams;
        let client_end = client.end();
        let mut tell = |this: &mut Self, outcome, sent_behind, events: &mut Vec<Event>| {
            let Some(mut open) = this.open.take() else {
                return;
            };
            let failed = open.failed;
            open.ended
                .get_or_insert(if failed { Outcome::Aborted } else { outcome });
            let streams = Streams {
                client: &mut *client,
                server: &mut *server,
            };
            this.tell(open, None, sent_behind, streams, cx, events);
        };
        self.held = None;
        let mut explicit = self.in_block || self.open.as_ref().is_some_and(|open| open.explicit);
        if self.open.as_ref().is_some_and(|open| open.ended.is_some()) {
            let sent_behind = client_position(tracker, client_end);
            tell(self, Outcome::Unknown, sent_behind, events);
        }
        let mut pending = tracker
            .pending()
            .filter(|pending| pending.owner == Owner::Client)
            .peekable();
        while let Some(sent) = pending.next() {
            let sent_behind = pending.peek().map_or(client_end, |next| next.payload.start);
            while let Some(kind) = self.kind_of_next(sent) {
                self.begin_statement(sent, cx, events);
                self.within_statement = false;
                self.index += 1;
                match kind {
                    Kind::Begin { .. } => explicit = true,
                    Kind::Commit { chain } => {
                        tell(self, Outcome::Unknown, sent_behind, events);
                        explicit = chain;
                    }
                    Kind::Rollback { chain } => {
                        tell(self, Outcome::Aborted, sent_behind, events);
                        explicit = chain;
                    }
                    Kind::PrepareTransaction { .. } => {
                        tell(self, Outcome::Unknown, sent_behind, events);
                        explicit = false;
                    }
                    _ => {}
                }
            }
            self.index = 0;
            if matches!(sent.sent, Sent::Query | Sent::Sync | Sent::FunctionCall) && !explicit {
                tell(self, Outcome::Unknown, sent_behind, events);
            }
        }
        tell(self, Outcome::Aborted, client_end, events);
        let bracket = self.bracket.take();
        events.extend(bracket.and_then(|bracket| bracket.close(None)));
    }

    /// The kind of the next statement that a message runs; [`ServerSide::index`] counts those
    /// before it.
    fn kind_of_next(&self, pending: &Tracked) -> Option<Kind> {
        match &pending.payload.work {
            Work::Query(query) => query
                .script
                .statements
                .get(self.index)
                .map(|statement| statement.kind.clone()),
            _ if self.index > 0 => None,
            Work::Execute { .. } => match &pending.prepared {
                Some(prepared) => prepared.statement().map(|statement| statement.kind.clone()),
                None => Some(Kind::Utility),
            },
            _ if pending.sent == Sent::FunctionCall => Some(Kind::Utility),
            _ => None,
        }
    }
}
