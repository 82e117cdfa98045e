//! Data of a `COPY … FROM STDIN`.

use bytes::BufMut;
use hindcast_wire::Wires;
use hindcast_wire::message::frontend as client;

use super::{Holder, Session};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Copying {
    Data,
    /// The data has ended, or the server wants no more of it. The `Sync` that was sent before the
    /// data was taken for part of it, so the server waits for another one.
    UpToSync,
}

impl Holder {
    /// While the server takes in a `COPY`, the client's messages are data and go on at once.
    pub(super) fn forward_data(&mut self, out: &mut Wires) {
        while let Session::Copying(copying, _) = self.session {
            let Some(frame) = self.queue.pop_front() else {
                return;
            };
            out.to_server.put_slice(&frame.0);
            match (copying, frame.tag()) {
                (Copying::Data, client::COPY_DONE | client::COPY_FAIL) => {
                    if !self.answers.has_sync() {
                        // In the extended protocol the answer would otherwise stay in the server's
                        // buffer; a Query's does not mind.
                        client::flush(&mut out.to_server);
                    }
                    self.end_data();
                }
                (Copying::UpToSync, client::SYNC) => self.session.with_plan(Session::Running),
                _ => {}
            }
        }
    }

    /// What the client sends of a `COPY` is over, or not wanted any more.
    pub(super) fn end_data(&mut self) {
        let up_to_sync = self.answers.has_sync();
        self.session.with_plan(|plan| match up_to_sync {
            true => Session::Copying(Copying::UpToSync, plan),
            false => Session::Running(plan),
        });
    }
}
