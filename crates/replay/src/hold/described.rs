//! What a portal is described as whose rows are recorded, where the recording does not say it.
//!
//! A driver that has run a statement on its connection knows what its rows are, and does not ask.
//! In a replay the connection may be another one. The server says what the rows of the statement
//! are, and the recorded rows tell in which formats they are.

use bytes::{Bytes, BytesMut};
use hindcast_wire::frame::Frame;
use hindcast_wire::message::backend as server;

use super::formats::recorded;

/// The description of a statement's rows as that of a portal with these rows. `answer`: the
/// messages that were recorded for it. `None`: the description is of no rows, or cannot be read.
pub(super) fn of_portal(description: &Frame, answer: &Bytes) -> Option<Frame> {
    if description.tag() != server::ROW_DESCRIPTION {
        return None;
    }
    let formats = recorded(answer, description.body());
    let mut changed = BytesMut::from(&description.0[..]);
    let mut at = 5 + 2;
    for format in formats {
        let name = changed.get(at..)?.iter().position(|&byte| byte == 0)?;
        // Table, column, type, its length and modifier.
        at += name + 1 + 4 + 2 + 4 + 2 + 4;
        let place = changed.get_mut(at..at + 2)?;
        place.copy_from_slice(&format.to_be_bytes());
        at += 2;
    }
    Some(Frame(changed.freeze()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_those_of_the_rows() {
        let columns = [(&b"id"[..], 20), (&b"name"[..], 25)];
        let columns = columns.map(|(name, type_oid)| server::Column {
            name,
            table: 1,
            attribute: 2,
            type_oid,
            format: 0,
        });
        let (mut described, mut row) = (BytesMut::new(), BytesMut::new());
        server::row_description(&mut described, &columns);
        server::data_row(&mut row, &[Some(&7u64.to_be_bytes()), Some(b"one")]);
        let portal = of_portal(&Frame(described.freeze()), &row.freeze()).unwrap();
        let columns = server::parse_row_description(portal.body());
        let formats: Vec<u16> = columns.map(|column| column.unwrap().format).collect();
        assert_eq!(formats, [1, 0]);
    }
}
