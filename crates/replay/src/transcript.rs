//! What a transaction of the service sent and was answered, as far as it is kept to be shown.
//!
//! Nearly all transactions are as recorded, and what is kept of them is thrown away at their end.
//! So this copies little, and [`Transcript::said`] brings it into a form that can be read.

use bytes::{BufMut, Bytes, BytesMut};
use hindcast_wire::message::{backend as server, frontend as client};

/// So much is kept of what one transaction sent, and of what it was answered.
const BYTES_MAX: usize = 16 << 10;
/// So many rows are kept of what one statement was answered.
pub const ROWS_MAX: usize = 5;

#[derive(Clone, Default, PartialEq, Eq)]
pub struct Transcript {
    sent: Vec<Sent>,
    sent_bytes: usize,
    answered: BytesMut,
    /// Of the statement that is being answered.
    rows: usize,
}

#[derive(Clone, PartialEq, Eq)]
enum Sent {
    Text(Bytes),
    /// Whole messages.
    Bound {
        parse: Bytes,
        bind: Bytes,
    },
}

/// The messages of one transaction, of both sides.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Said {
    pub sent: Vec<u8>,
    /// Rows are in their text form.
    pub answered: Vec<u8>,
}

/// They may hold secrets.
impl std::fmt::Debug for Transcript {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Transcript").finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Said {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Said").finish_non_exhaustive()
    }
}

impl Transcript {
    /// The client sends these statements.
    pub fn text(&mut self, text: &[u8]) {
        if self.has_room(text.len()) {
            self.sent.push(Sent::Text(Bytes::copy_from_slice(text)));
        }
    }

    /// The client runs what this `Parse` prepared and this `Bind` bound.
    pub fn executed(&mut self, parse: &Bytes, bind: &Bytes) {
        if self.has_room(parse.len() + bind.len()) {
            self.sent.push(Sent::Bound {
                parse: parse.clone(),
                bind: bind.clone(),
            });
        }
    }

    /// Once something did not fit nothing more is kept: what is kept has no holes.
    fn has_room(&mut self, bytes: usize) -> bool {
        self.sent_bytes += bytes;
        self.sent_bytes <= BYTES_MAX
    }

    /// Whether the next row is the first that its statement is answered.
    pub fn is_at_first_row(&self) -> bool {
        self.rows == 0
    }

    /// The body of a `DataRow` in its text form. The first row of a prepared statement comes with
    /// the body of its description.
    pub fn row(&mut self, description: Option<&[u8]>, body: &[u8]) {
        self.rows += 1;
        if self.rows > ROWS_MAX {
            return;
        }
        if let Some(description) = description {
            self.answer(server::ROW_DESCRIPTION, description);
        }
        self.answer(server::DATA_ROW, body);
    }

    /// The server sends this, and it is no row.
    pub fn answer(&mut self, tag: u8, body: &[u8]) {
        match tag {
            server::ROW_DESCRIPTION | server::NO_DATA | server::DATA_ROW => {}
            server::COMMAND_COMPLETE
            | server::EMPTY_QUERY_RESPONSE
            | server::PORTAL_SUSPENDED
            | server::ERROR_RESPONSE => self.rows = 0,
            _ => return,
        }
        if self.answered.len() + body.len() <= BYTES_MAX {
            self.answered.put_u8(tag);
            self.answered.put_u32(body.len() as u32 + 4);
            self.answered.put_slice(body);
        }
    }

    /// As a recording would have it.
    pub fn said(&self) -> Said {
        let mut sent = BytesMut::new();
        for one in &self.sent {
            match one {
                Sent::Text(text) => client::query(&mut sent, text),
                Sent::Bound { parse, bind } => {
                    sent.put_slice(parse);
                    sent.put_slice(bind);
                    let names = bind.get(5..).map(client::BindNames::parse);
                    let portal = names.and_then(Result::ok).map_or(&b""[..], |it| it.portal);
                    client::execute(&mut sent, portal, 0);
                }
            }
        }
        Said {
            sent: sent.to_vec(),
            answered: self.answered.to_vec(),
        }
    }
}

#[cfg(test)]
mod tests {
    use hindcast_wire::answered::{RowForm, answers};
    use hindcast_wire::sent;

    use super::*;

    #[test]
    fn what_is_kept_is_read_as_what_a_recording_has() {
        let mut transcript = Transcript::default();
        transcript.text(b"BEGIN");
        transcript.answer(server::COMMAND_COMPLETE, b"BEGIN\0");
        let (mut parse, mut bind) = (BytesMut::new(), BytesMut::new());
        client::parse(&mut parse, b"s", b"SELECT $1", &[25]);
        client::bind(&mut bind, b"", b"s", &[Some(b"ann")]);
        transcript.executed(&parse.freeze(), &bind.freeze());
        let mut description = BytesMut::new();
        let column = server::Column {
            name: b"name",
            table: 0,
            attribute: 0,
            type_oid: 25,
            format: 0,
        };
        server::row_description(&mut description, &[column]);
        for _ in 0..ROWS_MAX + 2 {
            let mut row = BytesMut::new();
            server::data_row(&mut row, &[Some(b"ann")]);
            let first = transcript.is_at_first_row();
            transcript.row(first.then_some(&description[5..]), &row[5..]);
        }
        transcript.answer(server::COMMAND_COMPLETE, b"SELECT 7\0");

        let said = transcript.said();
        let statements = sent::statements(&said.sent);
        let texts: Vec<&str> = statements.iter().map(|one| one.text.as_str()).collect();
        assert_eq!(texts, ["BEGIN", "SELECT $1"]);
        let value = sent::Parameter::Text("ann".to_owned());
        assert_eq!(statements[1].parameters, [value]);
        let told = answers(&said.answered, RowForm::Text, ROWS_MAX);
        assert_eq!((told[1].rows.len(), told[1].more), (ROWS_MAX, 2));
        assert_eq!(told[1].columns, ["name"]);
    }

    #[test]
    fn what_is_kept_has_no_holes() {
        let mut transcript = Transcript::default();
        transcript.text(b"SELECT 1");
        transcript.text(&[b'x'; BYTES_MAX]);
        transcript.text(b"SELECT 2");
        assert_eq!(sent::statements(&transcript.said().sent).len(), 1);
    }
}
