//! Reads the messages of `pgoutput`, the logical decoding plugin that every Postgres has.
//!
//! Pure: a message's bytes in, a [`Message`] that borrows from them out. Values are in text form.
//! Versions 1 and 2 of the protocol are understood; version 2 adds transactions that are streamed
//! before they commit, whose messages carry the transaction's id (`streamed`). The format:
//! <https://www.postgresql.org/docs/current/protocol-logicalrep-message-formats.html>.

use hindcast_pg::Lsn;

#[cfg(test)]
mod tests;

/// Microseconds from 1970 to 2000, from where Postgres counts.
pub const POSTGRES_EPOCH: i64 = 946_684_800_000_000;

/// How the primary says which row a change is about (`REPLICA IDENTITY`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Identity {
    /// By primary key.
    Default,
    Nothing,
    /// By the whole old row.
    Full,
    /// By a unique index that somebody chose.
    Index,
}

/// A table as the log describes it. Generated columns are not part of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Relation {
    /// The primary's oid.
    pub id: u32,
    pub schema: String,
    pub name: String,
    pub identity: Identity,
    pub columns: Vec<Column>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    pub name: String,
    /// Part of the replica identity. All columns are with [`Identity::Full`].
    pub key: bool,
    pub type_oid: u32,
    pub type_modifier: i32,
}

impl std::fmt::Display for Relation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.schema, self.name)
    }
}

/// One value of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Datum<'a> {
    Null,
    /// A large value that the update did not touch, and that the log therefore leaves out.
    Unchanged,
    Text(&'a [u8]),
}

/// The values of a row, in the order of [`Relation::columns`]. Was checked to be well formed when
/// it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tuple<'a> {
    columns: usize,
    bytes: &'a [u8],
}

impl<'a> Tuple<'a> {
    /// How many columns there are.
    pub fn len(&self) -> usize {
        self.columns
    }

    pub fn is_empty(&self) -> bool {
        self.columns == 0
    }

    pub fn iter(&self) -> Datums<'a> {
        Datums {
            left: self.columns,
            input: Input(self.bytes),
        }
    }

    /// The bytes as they came, for keeping: [`Tuple::from_raw`] reads them again.
    pub fn raw(&self) -> &'a [u8] {
        self.bytes
    }

    /// # Errors
    /// If the bytes are not those of a tuple of so many columns.
    pub fn from_raw(columns: usize, bytes: &'a [u8]) -> Result<Self, Malformed> {
        let mut input = Input(bytes);
        let tuple = input.values(columns)?;
        input.end()?;
        Ok(tuple)
    }
}

impl<'a> IntoIterator for Tuple<'a> {
    type Item = Datum<'a>;
    type IntoIter = Datums<'a>;

    fn into_iter(self) -> Datums<'a> {
        self.iter()
    }
}

pub struct Datums<'a> {
    left: usize,
    input: Input<'a>,
}

impl<'a> Iterator for Datums<'a> {
    type Item = Datum<'a>;

    #[inline]
    fn next(&mut self) -> Option<Datum<'a>> {
        if self.left == 0 {
            return None;
        }
        self.left -= 1;
        self.input.datum().ok()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for Datums<'_> {}

/// What the log says about a row before its change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Old<'a> {
    /// Nothing: the key is as in the new row.
    None,
    /// The key's columns; all others are null here and mean nothing.
    Key(Tuple<'a>),
    /// The whole row.
    Full(Tuple<'a>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change<'a> {
    Insert {
        new: Tuple<'a>,
    },
    Update {
        old: Old<'a>,
        new: Tuple<'a>,
    },
    /// Never with [`Old::None`].
    Delete {
        old: Old<'a>,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Begin {
    /// Where the commit record will be.
    pub final_lsn: Lsn,
    /// When it was committed, in µs since 1970.
    pub time: i64,
    pub xid: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Commit {
    /// Where the commit record begins.
    pub lsn: Lsn,
    /// Where it ends: following on from here never repeats this transaction.
    pub end_lsn: Lsn,
    /// In µs since 1970, by the primary's clock.
    pub time: i64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Truncate {
    pub cascade: bool,
    pub restart_identity: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message<'a> {
    Begin(Begin),
    Commit(Commit),
    /// The transaction came to the primary from elsewhere.
    Origin,
    Relation(Relation),
    /// Names a type that is not built in. Nobody here needs it: values are text.
    Type,
    Change {
        relation: u32,
        change: Change<'a>,
    },
    Truncate {
        relations: Vec<u32>,
        how: Truncate,
    },
    /// `pg_logical_emit_message`.
    Custom {
        transactional: bool,
        /// Where it begins.
        at: Lsn,
        prefix: &'a [u8],
        content: &'a [u8],
    },
    /// What follows, up to [`Message::StreamStop`], belongs to a transaction that has not ended.
    StreamStart {
        xid: u32,
        first: bool,
    },
    StreamStop,
    StreamCommit {
        xid: u32,
        commit: Commit,
    },
    /// Of a whole transaction, or of one of its subtransactions.
    StreamAbort {
        xid: u32,
        subxid: u32,
    },
}

/// A message, and whose it is if it is part of a transaction that is streamed before it ends: the
/// subtransaction's id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decoded<'a> {
    pub streamed: Option<u32>,
    pub message: Message<'a>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the primary sent a replication message that makes no sense: {what}")]
pub struct Malformed {
    pub what: String,
}

fn malformed<T>(what: impl Into<String>) -> Result<T, Malformed> {
    Err(Malformed { what: what.into() })
}

/// Knows whether it is inside a streamed transaction, which changes the form of messages.
#[derive(Clone, Debug, Default)]
pub struct Decoder {
    streaming: bool,
}

impl Decoder {
    /// For messages that were set aside while their transaction was streamed.
    pub fn inside_a_stream() -> Self {
        Self { streaming: true }
    }

    pub fn decode<'a>(&mut self, bytes: &'a [u8]) -> Result<Decoded<'a>, Malformed> {
        let mut input = Input(bytes);
        let tag = input.u8()?;
        let streamed = match tag {
            b'R' | b'Y' | b'I' | b'U' | b'D' | b'T' | b'M' if self.streaming => Some(input.u32()?),
            _ => None,
        };
        let message = match tag {
            b'B' => Message::Begin(Begin {
                final_lsn: input.lsn()?,
                time: input.time()?,
                xid: input.u32()?,
            }),
            b'C' => {
                input.u8()?;
                Message::Commit(input.commit()?)
            }
            b'O' => {
                return Ok(Decoded {
                    streamed,
                    message: Message::Origin,
                });
            }
            b'R' => Message::Relation(input.relation()?),
            b'Y' => {
                return Ok(Decoded {
                    streamed,
                    message: Message::Type,
                });
            }
            b'I' => input.insert()?,
            b'U' => input.update()?,
            b'D' => input.deletion()?,
            b'T' => input.truncate()?,
            b'M' => input.custom()?,
            b'S' => {
                let xid = input.u32()?;
                let first = input.u8()? == 1;
                self.streaming = true;
                Message::StreamStart { xid, first }
            }
            b'E' => {
                self.streaming = false;
                Message::StreamStop
            }
            b'c' => {
                let xid = input.u32()?;
                input.u8()?;
                Message::StreamCommit {
                    xid,
                    commit: input.commit()?,
                }
            }
            b'A' => Message::StreamAbort {
                xid: input.u32()?,
                subxid: input.u32()?,
            },
            other => return malformed(format!("unknown kind {:?}", char::from(other))),
        };
        input.end()?;
        Ok(Decoded { streamed, message })
    }
}

#[derive(Clone, Copy)]
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn insert(&mut self) -> Result<Message<'a>, Malformed> {
        let relation = self.u32()?;
        let new = match self.u8()? {
            b'N' => self.tuple()?,
            other => return malformed(format!("an insert with a tuple of kind {other}")),
        };
        let change = Change::Insert { new };
        Ok(Message::Change { relation, change })
    }

    fn update(&mut self) -> Result<Message<'a>, Malformed> {
        let relation = self.u32()?;
        let (old, kind) = match self.u8()? {
            b'K' => (Old::Key(self.tuple()?), self.u8()?),
            b'O' => (Old::Full(self.tuple()?), self.u8()?),
            kind => (Old::None, kind),
        };
        if kind != b'N' {
            return malformed(format!("an update with a tuple of kind {kind}"));
        }
        let new = self.tuple()?;
        let change = Change::Update { old, new };
        Ok(Message::Change { relation, change })
    }

    fn deletion(&mut self) -> Result<Message<'a>, Malformed> {
        let relation = self.u32()?;
        let old = match self.u8()? {
            b'K' => Old::Key(self.tuple()?),
            b'O' => Old::Full(self.tuple()?),
            other => return malformed(format!("a deletion with a tuple of kind {other}")),
        };
        let change = Change::Delete { old };
        Ok(Message::Change { relation, change })
    }

    fn truncate(&mut self) -> Result<Message<'a>, Malformed> {
        let count = self.u32()? as usize;
        let options = self.u8()?;
        let relations = (0..count).map(|_| self.u32()).collect::<Result<_, _>>()?;
        let how = Truncate {
            cascade: options & 1 != 0,
            restart_identity: options & 2 != 0,
        };
        Ok(Message::Truncate { relations, how })
    }

    fn custom(&mut self) -> Result<Message<'a>, Malformed> {
        let flags = self.u8()?;
        let at = self.lsn()?;
        let prefix = self.text()?;
        let length = self.u32()? as usize;
        Ok(Message::Custom {
            transactional: flags & 1 != 0,
            at,
            prefix,
            content: self.take(length)?,
        })
    }

    #[inline]
    fn take(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        match self.0.split_at_checked(count) {
            Some((taken, rest)) => {
                self.0 = rest;
                Ok(taken)
            }
            None => malformed("it ends too early"),
        }
    }

    #[inline]
    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        match self.0.split_first_chunk() {
            Some((taken, rest)) => {
                self.0 = rest;
                Ok(*taken)
            }
            None => malformed("it ends too early"),
        }
    }

    #[inline]
    fn u8(&mut self) -> Result<u8, Malformed> {
        self.array::<1>().map(|[byte]| byte)
    }

    fn u16(&mut self) -> Result<u16, Malformed> {
        self.array().map(u16::from_be_bytes)
    }

    #[inline]
    fn u32(&mut self) -> Result<u32, Malformed> {
        self.array().map(u32::from_be_bytes)
    }

    fn i64(&mut self) -> Result<i64, Malformed> {
        self.array().map(i64::from_be_bytes)
    }

    fn lsn(&mut self) -> Result<Lsn, Malformed> {
        self.array().map(u64::from_be_bytes).map(Lsn)
    }

    fn time(&mut self) -> Result<i64, Malformed> {
        Ok(self.i64()?.saturating_add(POSTGRES_EPOCH))
    }

    fn commit(&mut self) -> Result<Commit, Malformed> {
        Ok(Commit {
            lsn: self.lsn()?,
            end_lsn: self.lsn()?,
            time: self.time()?,
        })
    }

    fn text(&mut self) -> Result<&'a [u8], Malformed> {
        let Some(end) = self.0.iter().position(|&byte| byte == 0) else {
            return malformed("a text that does not end");
        };
        let text = self.take(end)?;
        self.u8()?;
        Ok(text)
    }

    fn name(&mut self) -> Result<String, Malformed> {
        match std::str::from_utf8(self.text()?) {
            Ok(name) => Ok(name.to_owned()),
            Err(_) => malformed("a name that is not UTF-8"),
        }
    }

    fn relation(&mut self) -> Result<Relation, Malformed> {
        let id = self.u32()?;
        let schema = match self.name()? {
            // How the protocol abbreviates pg_catalog.
            empty if empty.is_empty() => "pg_catalog".to_owned(),
            schema => schema,
        };
        let name = self.name()?;
        let identity = match self.u8()? {
            b'd' => Identity::Default,
            b'n' => Identity::Nothing,
            b'f' => Identity::Full,
            b'i' => Identity::Index,
            other => return malformed(format!("replica identity {other}")),
        };
        let count = self.u16()?;
        let mut columns = Vec::with_capacity(usize::from(count));
        for _ in 0..count {
            columns.push(Column {
                key: self.u8()? & 1 != 0,
                name: self.name()?,
                type_oid: self.u32()?,
                type_modifier: self.u32()?.cast_signed(),
            });
        }
        Ok(Relation {
            id,
            schema,
            name,
            identity,
            columns,
        })
    }

    #[inline]
    fn tuple(&mut self) -> Result<Tuple<'a>, Malformed> {
        let columns = usize::from(self.u16()?);
        self.values(columns)
    }

    #[inline]
    fn values(&mut self, columns: usize) -> Result<Tuple<'a>, Malformed> {
        let start = self.0;
        for _ in 0..columns {
            self.datum()?;
        }
        let bytes = &start[..start.len() - self.0.len()];
        Ok(Tuple { columns, bytes })
    }

    #[inline]
    fn datum(&mut self) -> Result<Datum<'a>, Malformed> {
        match self.u8()? {
            b'n' => Ok(Datum::Null),
            b'u' => Ok(Datum::Unchanged),
            b't' => {
                let length = self.u32()? as usize;
                self.take(length).map(Datum::Text)
            }
            b'b' => malformed("a binary value, which nobody asked for"),
            other => malformed(format!("a value of kind {other}")),
        }
    }

    fn end(&self) -> Result<(), Malformed> {
        match self.0.is_empty() {
            true => Ok(()),
            false => malformed(format!("{} bytes too many", self.0.len())),
        }
    }
}
