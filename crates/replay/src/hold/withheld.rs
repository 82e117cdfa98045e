//! An answer is kept back until its request may hear of it.
//!
//! It is kept as a whole. Were its rows to go out as they come, its connection would be the first
//! that a loop finds to be readable, and the end may be there by then as well.

use bytes::BytesMut;
use hindcast_order::Tx;
use hindcast_wire::Wires;
use hindcast_wire::frame::Frame;
use hindcast_wire::message::backend as server;

use super::plan::Plan;
use super::transaction::Kind;
use super::{Context, Holder, Next, Session, forward};
use crate::transaction::Ask;

/// What an answer has beyond that goes out as it comes.
const KEPT_MAX: usize = 256 << 10;

#[derive(Debug, Default)]
pub(super) struct Withheld {
    bytes: BytesMut,
    of: Option<(Tx, Stage)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Kept,
    /// It may go when that is permitted.
    Asked,
    /// It is on the wire.
    Given,
}

impl Withheld {
    pub fn is_empty(&self) -> bool {
        self.of.is_none()
    }

    /// An answer of this transaction is kept from here on, if it is to be.
    pub fn begin(&mut self, tx: Tx, cx: &mut impl Context) {
        if self.is_empty() && cx.withholds(tx) {
            self.of = Some((tx, Stage::Kept));
        }
    }

    /// Where what the client is told goes.
    pub fn wire<'a>(&'a mut self, out: &'a mut Wires) -> &'a mut BytesMut {
        match self.of {
            Some((_, Stage::Kept | Stage::Asked)) => &mut self.bytes,
            _ => &mut out.to_client,
        }
    }
}

impl Holder {
    /// The client is told this, in its turn.
    pub(super) fn tell(&mut self, frame: &Frame, out: &mut Wires, cx: &mut impl Context) {
        let tag = frame.tag();
        if let Some(tx) = self.ends_with(frame) {
            self.withheld.begin(tx, cx);
        }
        forward(frame, self.withheld.wire(out));
        // The client is to say more.
        let is_asked = matches!(tag, server::COPY_IN_RESPONSE | server::PORTAL_SUSPENDED);
        if is_asked || self.withheld.bytes.len() > KEPT_MAX {
            out.to_client.unsplit(self.withheld.bytes.split());
        }
    }

    /// The transaction whose end this answer is, or is a part of.
    fn ends_with(&self, frame: &Frame) -> Option<Tx> {
        let open = self.transaction.as_ref()?;
        let ends = match open.kind {
            Kind::Direct | Kind::Wrapped => true,
            Kind::Explicit => {
                let commits = [&b"COMMIT\0"[..], b"PREPARE TRANSACTION\0"];
                frame.tag() == server::COMMAND_COMPLETE && commits.contains(&frame.body())
            }
        };
        open.run().filter(|_| ends)
    }

    /// Nothing more comes of an answer: gives it to the client when that may be.
    pub(super) fn give_answer(&mut self, out: &mut Wires, cx: &mut impl Context) -> Option<Next> {
        let (tx, stage) = self.withheld.of?;
        let (next, ask) = match stage {
            // The client has more to say.
            Stage::Kept if self.transaction.is_some() => {
                out.to_client.unsplit(self.withheld.bytes.split());
                self.drop_answer(cx);
                return None;
            }
            Stage::Kept => (Stage::Asked, Ask::Answer(tx)),
            Stage::Asked => {
                out.to_client.unsplit(self.withheld.bytes.split());
                // Others go when it has been written.
                (Stage::Given, Ask::Given(tx))
            }
            Stage::Given => {
                self.drop_answer(cx);
                return None;
            }
        };
        self.withheld.of = Some((tx, next));
        self.session = Session::Waiting(Plan::default());
        Some(Next::Wait(ask))
    }

    /// The client has heard, or is gone.
    pub(super) fn drop_answer(&mut self, cx: &mut impl Context) {
        if let Some((tx, _)) = std::mem::take(&mut self.withheld).of {
            cx.gave_answer(tx);
        }
    }
}
