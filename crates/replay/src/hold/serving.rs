//! Serves a transaction that aborted originally from the recording.

use bytes::{BufMut, BytesMut};
use hindcast_order::Tx;
use hindcast_wire::frame::Frame;
use hindcast_wire::message::{backend as server, frontend as client};
use hindcast_wire::{Status, Wires};

use super::plan::Plan;
use super::served::{Progress, Served};
use super::{Advance, Close, Context, Holder, Next, Session};

impl Holder {
    pub(super) fn serve(
        &mut self,
        tx: Tx,
        frames: Vec<Frame>,
        completed: usize,
        cx: &mut impl Context,
    ) -> Result<(), Close> {
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
        let over = match tag {
            client::TERMINATE => {
                out.to_server.put_slice(&frame.0);
                Some(false)
            }
            _ => match served.answer(tag, &mut out.to_client) {
                Progress::Continues => None,
                Progress::Ended { complete } => Some(complete),
                Progress::Exhausted => refuse(tag, out).then_some(false),
            },
        };
        if let Some(complete) = over {
            self.session = Session::Idle;
            cx.served(tx, complete);
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
