//! Serves a transaction that aborted originally from the recording.

use bytes::BufMut;
use bytes::BytesMut;
use hindcast_gateway::pg::Wires;
use hindcast_order::Tx;
use hindcast_wire::Status;
use hindcast_wire::frame::Frame;
use hindcast_wire::message::{backend as server, frontend as client};

use super::served::{Progress, Served};
use super::{Desk, Holder};

impl Holder {
    pub(super) fn serve(
        &mut self,
        tx: Tx,
        frames: Vec<Frame>,
        completed: usize,
        desk: &mut impl Desk,
    ) {
        let mut served = Served::new(desk.recorded_answers(tx).unwrap_or_default());
        // The client has had the answers to what it sent before it turned out which transaction this is.
        let mut had = BytesMut::new();
        if let Some(open) = self.transaction.take() {
            for tag in open.before_claim {
                served.answer(tag, &mut had);
            }
        }
        served.pass_over(completed);
        self.served = Some((tx, served));
        self.queue = frames.into_iter().chain(self.queue.drain(..)).collect();
    }

    pub(super) fn serve_one(&mut self, frame: &Frame, out: &mut Wires, desk: &mut impl Desk) {
        let Some(&(tx, _)) = self.served.as_ref() else {
            return;
        };
        self.unsynced = false;
        if frame.tag() == client::TERMINATE {
            desk.served(tx, false);
            self.served = None;
            out.to_server.put_slice(&frame.0);
            return;
        }
        if Served::is_live(frame.tag(), frame.body())
            && !self
                .served
                .as_ref()
                .is_some_and(|(_, served)| served.is_skipping())
        {
            self.prepare_live(frame);
            return;
        }
        let Some((_, served)) = &mut self.served else {
            return;
        };
        match served.answer(frame.tag(), &mut out.to_client) {
            Progress::Continues => {}
            Progress::Ended { complete } => {
                self.served = None;
                desk.served(tx, complete);
            }
            Progress::Exhausted => {
                server::error_response(
                    &mut out.to_client,
                    b"ERROR",
                    b"40001",
                    b"the recording has no answer to this: it aborted here originally",
                );
                if matches!(
                    frame.tag(),
                    client::QUERY | client::SYNC | client::FUNCTION_CALL
                ) {
                    server::ready_for_query(&mut out.to_client, Status::Idle);
                    self.served = None;
                    desk.served(tx, false);
                }
            }
        }
    }
}
