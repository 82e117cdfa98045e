//! Serves a transaction that aborted originally from the recording.

use std::sync::Arc;

use bytes::{BufMut, BytesMut};
use hindcast_order::Tx;
use hindcast_wire::frame::Frame;
use hindcast_wire::message::{backend as server, frontend as client};
use hindcast_wire::sql::{Dialect, Statement};
use hindcast_wire::{Status, Wires};

use super::answers::{Expect, Owner};
use super::plan::Plan;
use super::served::{Asked, Progress, Served};
use super::{Advance, Context, Holder, Next, Session, Unplanned};
use crate::reading::only_reads;
use crate::setup::asks_aside;

impl Holder {
    pub(super) fn serve(
        &mut self,
        tx: Tx,
        frames: Vec<Frame>,
        completed: usize,
        cx: &mut impl Context,
    ) -> Result<(), Unplanned> {
        let mut served = Served::new(cx.recorded_answers(tx)?.unwrap_or_default());
        // The client has had the answers to what it sent before it turned out which transaction
        // this is.
        let mut had = BytesMut::new();
        if let Some(open) = self.transaction.take() {
            for tag in open.into_sent() {
                served.answer(tag, &mut had);
            }
        }
        served.pass_over(completed);
        self.session = Session::Serving(tx, served, Plan::default());
        self.queue = frames.into_iter().chain(self.queue.drain(..)).collect();
        Ok(())
    }

    /// Answers the client's next message.
    pub(super) fn serve_next(&mut self, out: &mut Wires, cx: &mut impl Context) -> Advance {
        let Session::Serving(tx, served, _) = &mut self.session else {
            unreachable!("a transaction is being served");
        };
        let tx = *tx;
        let Some(frame) = self.queue.pop_front() else {
            return Advance::Stop(Next::Continue);
        };
        self.unsynced = false;
        let tag = frame.tag();
        if served.is_live(tag, frame.body()) && !served.is_skipping() {
            let live = self.plan_live(&frame);
            if let Some(plan) = self.session.plan() {
                *plan = live;
            }
            return Advance::More;
        }
        if !served.is_skipping()
            && let Some(lookup) = self.lookup(&frame)
        {
            return self.look_up(frame, lookup);
        }
        if let Some(live) = self.describes(&frame) {
            if let Some(plan) = self.session.plan() {
                *plan = live;
            }
            return Advance::More;
        }
        let Session::Serving(_, served, _) = &mut self.session else {
            unreachable!("a transaction is being served");
        };
        if tag == client::EXECUTE && !served.is_skipping() {
            served.put_in_format(&self.settings);
        }
        let over = match tag {
            client::TERMINATE => {
                out.to_server.put_slice(&frame.0);
                Some(served.is_through())
            }
            _ => match served.answer(tag, &mut out.to_client) {
                Progress::Continues => None,
                Progress::Ended { complete } => Some(complete),
                Progress::Exhausted => refuse(tag, out).then_some(false),
            },
        };
        if let Some(complete) = over {
            let moved = served.moved();
            self.session = Session::Idle;
            cx.served(tx, complete, moved);
        }
        Advance::More
    }
}

impl Holder {
    /// A message while a transaction is served: notes which statement a portal is of, and what its
    /// rows are. Where the recording does not say that, the server is asked.
    fn describes(&mut self, frame: &Frame) -> Option<Plan> {
        let Session::Serving(_, served, _) = &self.session else {
            return None;
        };
        let is_of_portal = matches!(frame.tag(), client::BIND | client::DESCRIBE);
        if served.is_skipping() || !is_of_portal {
            return None;
        }
        let (description, undescribed) = (served.description(), served.undescribed());
        let batch = self.read(vec![frame.clone()]);
        let message = &batch.messages[0];
        self.names.apply(message);
        let about = message.about.as_ref();
        if let Session::Serving(_, served, _) = &mut self.session {
            served.expects(about.filter(|_| frame.tag() == client::BIND).cloned());
        }
        let about = about.filter(|_| frame.tag() == client::DESCRIBE)?;
        if let Some(description) = description {
            if description[0] == server::ROW_DESCRIPTION {
                about.prepared.describe(&description[5..]);
            }
            return None;
        }
        let bind = Frame(about.bind.clone()?);
        let names = client::BindNames::parse(bind.body()).ok()?;
        let expect = Expect::DescribeServed {
            prepared: Arc::clone(&about.prepared),
            answer: undescribed?,
        };
        let mut plan = Plan::default();
        plan.message([(expect, Owner::Client)], |bytes| {
            client::describe(bytes, client::Target::Statement(names.statement));
        });
        self.sync(&mut plan);
        Some(plan)
    }
}

/// What a driver asks for itself, and the recording has no answer to.
enum Lookup {
    /// These messages, up to the one that runs it.
    Portal(usize),
    Text,
}

impl Holder {
    /// A message while a transaction is served: whether a driver asks the catalog by it for what
    /// it knew on its connection originally, or the service for what it had in a cache. Notes what
    /// comes, if it asks for something else.
    fn lookup(&mut self, frame: &Frame) -> Option<Lookup> {
        let hash = |one: &Statement| {
            let of_driver = asks_aside(one);
            let reads = one.takes_snapshot && only_reads(one);
            (of_driver || reads).then_some(Asked {
                hash: one.fingerprint.hash,
                of_driver,
            })
        };
        let (lookup, how) = match frame.tag() {
            client::QUERY => {
                let text = client::parse_query(frame.body()).unwrap_or_default();
                let script = self.options.scripts.get(text, Dialect::default());
                match &script.statements[..] {
                    [only] => (hash(only), Lookup::Text),
                    _ => (None, Lookup::Text),
                }
            }
            client::BIND => {
                let batch = self.read(vec![frame.clone()]);
                let ends = |frame: &Frame| !matches!(frame.tag(), client::DESCRIBE);
                let end = self.queue.iter().position(ends)?;
                let runs = self.queue[end].tag() == client::EXECUTE;
                let lookup = batch.messages[0].statement().and_then(hash);
                (lookup.filter(|_| runs), Lookup::Portal(end + 1))
            }
            _ => return None,
        };
        let Session::Serving(_, served, _) = &mut self.session else {
            return None;
        };
        served.comes_anew(lookup).then_some(how)
    }

    /// Lets the server answer it, outside of any transaction.
    fn look_up(&mut self, frame: Frame, lookup: Lookup) -> Advance {
        let live = match lookup {
            Lookup::Text => {
                // What the client is told then is where the recorded transaction is.
                let mut sync = BytesMut::new();
                client::sync(&mut sync);
                self.queue.push_front(Frame(sync.freeze()));
                self.plan_live_text(&frame)
            }
            Lookup::Portal(rest) => {
                let mut frames = vec![frame];
                frames.extend(self.queue.drain(..rest));
                self.plan_live_portal(frames)
            }
        };
        if let Some(plan) = self.session.plan() {
            *plan = live;
        }
        Advance::More
    }
}

/// The recording has no answer to a message with this tag. Whether the transaction is over with
/// that.
fn refuse(tag: u8, out: &mut Wires) -> bool {
    server::error_response(
        &mut out.to_client,
        b"ERROR",
        b"40001",
        b"the recording has no answer to this: it aborted here originally",
    );
    let ends = matches!(tag, client::QUERY | client::SYNC | client::FUNCTION_CALL);
    if ends {
        server::ready_for_query(&mut out.to_client, Status::Idle);
    }
    ends
}
