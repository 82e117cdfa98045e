//! Statements as the server is to see them.

use bytes::BytesMut;
use hindcast_trace::RequestId;
use hindcast_wire::frame::Frame;
use hindcast_wire::message::frontend as client;
use hindcast_wire::sql::trace::trace_comment;
use hindcast_wire::sql::{self, Dialect, Edits};

use super::answers::{Expect, Owner};
use super::names::Message;
use super::plan::Plan;
use super::{Code, Holder};

/// A statement that is prepared with its row locks, for the portal that comes next.
const LOCKING: &[u8] = b"hindcast_locking";

impl Holder {
    /// The request that a comment in the text names.
    pub(super) fn request_in(&self, text: &[u8]) -> Option<RequestId> {
        let found = trace_comment(text, Dialect::default())?;
        self.options.request_of(found.trace)
    }

    /// As the server is to see it: without the trace comment, which it did not see originally
    /// either, without row and table locks, and with a clock and a name of the database that can be
    /// pinned.
    ///
    /// A transaction that is replayed has committed, with the rows of its snapshot, so a lock adds
    /// nothing. But it would be taken in another order than originally, since writes lock rows too
    /// and do not wait for their turn: foreign keys lock the rows that they refer to. Changed code
    /// keeps its locks: they may be the change.
    ///
    /// `goes_on`: see [`look_early`](Holder::look_early). It waited for a row and comes where it
    /// had it; only if it asks for the lock is it given the row as it has become.
    pub(super) fn rewritten(&self, text: &[u8], goes_on: bool) -> Vec<u8> {
        let mut text = text.to_vec();
        if let Some(found) = trace_comment(&text, Dialect::default()) {
            let mut edits = Edits::new();
            edits.replace(
                found.range.start,
                found.range.len(),
                if found.separates { b" " } else { b"" },
            );
            text = edited(text, &edits);
        }
        if self.options.code == Code::Recorded && !goes_on {
            let edits = sql::lock_edits(&text, Dialect::default());
            text = edited(text, &edits);
        }
        if self.options.pinned {
            let edits = sql::keyword_edits(&text, Dialect::default());
            text = edited(text, &edits);
        }
        text
    }

    pub(super) fn put_parse(&self, frame: &Frame, out: &mut BytesMut) {
        match client::Parse::parse(frame.body()) {
            Ok(parse) => {
                let text = self.rewritten(parse.text, false);
                client::Parse {
                    text: &text,
                    ..parse
                }
                .build(out);
            }
            Err(_) => out.extend_from_slice(&frame.0),
        }
    }

    /// Plans a `Bind` of a statement that goes on, if that asks for row locks: it is prepared again
    /// with them.
    pub(super) fn bind_locking(&self, bind: &Message, plan: &mut Plan) -> bool {
        let prepared = bind.about.as_ref().map(|about| about.prepared.parse());
        let body = prepared
            .and_then(|whole| whole.get(5..))
            .unwrap_or_default();
        let Ok(parse) = client::Parse::parse(body) else {
            return false;
        };
        let locks = !sql::lock_edits(parse.text, Dialect::default()).is_empty();
        if self.options.code != Code::Recorded || !locks {
            return false;
        }
        let of_ghost = self.bind_of_ghost(bind);
        let bind = of_ghost.as_ref().unwrap_or(&bind.frame);
        let mut bound = BytesMut::new();
        if client::bind_of(bind.body(), LOCKING, &mut bound).is_err() {
            return false;
        }
        let own = [Expect::Close, Expect::Parse].map(|expect| (expect, Owner::Own));
        let client = (Expect::Bind, Owner::Client);
        plan.message(own.into_iter().chain([client]), |bytes| {
            client::close(bytes, client::Target::Statement(LOCKING));
            let locking = client::Parse {
                name: LOCKING,
                text: &self.rewritten(parse.text, true),
                ..parse
            };
            locking.build(bytes);
            bytes.extend_from_slice(&bound);
        });
        true
    }
}

fn edited(text: Vec<u8>, edits: &Edits) -> Vec<u8> {
    if edits.is_empty() {
        return text;
    }
    let mut edited = BytesMut::new();
    edits.apply(&text, &mut edited);
    edited.to_vec()
}
