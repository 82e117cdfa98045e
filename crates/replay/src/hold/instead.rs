//! What a service is answered in the place of what the server says.

use bytes::{BufMut, BytesMut};
use hindcast_wire::frame::Frame;
use hindcast_wire::message::backend as server;

use super::Context;
use super::answers::Rows;
use crate::transaction::Yielded;

/// What a service is shown that asks whether it may write.
pub(super) fn as_chosen(frame: &Frame, row: Rows) -> Option<Frame> {
    let shown = row.shown.filter(|_| frame.tag() == server::DATA_ROW)?;
    let mut row = BytesMut::new();
    server::data_row(&mut row, &[Some(shown)]);
    Some(Frame(row.freeze()))
}

/// A statement has completed so.
pub(super) fn completed(command: &[u8]) -> Frame {
    let mut complete = BytesMut::new();
    server::command_complete(&mut complete, command);
    Frame(complete.freeze())
}

/// What who looks for something to do is answered, where what there is, is for others: no rows, and
/// a completion that counts none. `Some(None)`: nothing; `None`: what the server says.
pub(super) fn as_nothing(frame: &Frame) -> Option<Option<Frame>> {
    match frame.tag() {
        server::DATA_ROW => Some(None),
        server::COMMAND_COMPLETE => {
            let command = frame.body().strip_suffix(b"\0").unwrap_or(frame.body());
            let count = command
                .iter()
                .rev()
                .take_while(|byte| byte.is_ascii_digit());
            let words = &command[..command.len() - count.count()];
            let mut complete = BytesMut::new();
            if words.len() < command.len() {
                server::command_complete(&mut complete, &[words, b"0"].concat());
            }
            Some((!complete.is_empty()).then(|| Frame(complete.freeze()))).filter(Option::is_some)
        }
        _ => None,
    }
}

/// A statement that we had cancelled has failed as Postgres would have had it fail, as far as its
/// client is concerned.
pub(super) fn as_yielded(frame: &Frame, cx: &mut impl Context) -> Option<Frame> {
    if frame.tag() != server::ERROR_RESPONSE
        || server::Fields::parse(frame.body()).ok()?.sqlstate() != b"57014"
    {
        return None;
    }
    // The first is what it says to the second writer of a row.
    let (state, text): (&[u8], &[u8]) = match cx.yielded()? {
        Yielded::Order => (
            b"40001",
            b"could not serialize access due to concurrent update",
        ),
        Yielded::Deadlock => (b"40P01", b"deadlock detected"),
    };
    let mut error = BytesMut::new();
    server::error_response(&mut error, b"ERROR", state, text);
    Some(Frame(error.freeze()))
}

/// Drivers that look for a server they can write to must not be put off by the read-only default,
/// which is ours.
pub(super) fn forward(frame: &Frame, to_client: &mut BytesMut) {
    if frame.tag() == server::PARAMETER_STATUS
        && let Ok((b"default_transaction_read_only", _)) =
            server::parse_parameter_status(frame.body())
    {
        server::parameter_status(to_client, b"default_transaction_read_only", b"off");
        return;
    }
    to_client.put_slice(&frame.0);
}
