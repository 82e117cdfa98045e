//! Our own statements: what they ask, how they are sent, what they answer.

use std::sync::{Arc, LazyLock};

use bytes::{Bytes, BytesMut};
use hindcast_model::{Isolation, Micros, Snapshot, Xid};

use super::keeping::{Keeping, Run, Statements};
use crate::message::frontend::{self, Target};
use crate::tracker::Sent;

/// Microseconds from 1970, from which we count, to 2000, from which Postgres does.
const POSTGRES_EPOCH: Micros = 946_684_800_000_000;

/// What a statement of ours asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Ask {
    /// Snapshot, isolation level, `now()`, and whether the transaction is read-only.
    pub snapshot: bool,
    pub xid: bool,
    /// Have an id assigned if there is none yet: the commit would assign one anyway, when it is
    /// too late to ask.
    pub assign: bool,
    /// The ids of open subtransactions too.
    pub subxids: bool,
}

const KINDS: usize = 16;

impl Ask {
    pub const SNAPSHOT: Self = Self {
        snapshot: true,
        xid: false,
        assign: false,
        subxids: false,
    };

    pub const XID: Self = Self {
        snapshot: false,
        xid: true,
        assign: false,
        subxids: false,
    };

    fn index(self) -> usize {
        usize::from(self.snapshot)
            | usize::from(self.xid) << 1
            | usize::from(self.assign) << 2
            | usize::from(self.subxids) << 3
    }

    /// Names are qualified, operators too: whatever the session's `search_path` says, Postgres' own
    /// are meant. The server parses it often, so it has no cast and no operator that it can do
    /// without. The column's name is for those who find it in a log; answers are known by their
    /// place.
    pub fn text(self) -> &'static str {
        static TEXTS: LazyLock<[String; KINDS]> = LazyLock::new(|| {
            std::array::from_fn(|index| {
                let has = |bit: usize| index & 1 << bit != 0;
                let mut columns = Vec::new();
                if has(0) {
                    columns.extend([
                        "pg_catalog.pg_current_snapshot()",
                        "pg_catalog.current_setting('transaction_isolation')",
                        "pg_catalog.timestamptz_send(pg_catalog.now())",
                        "pg_catalog.current_setting('transaction_read_only')",
                    ]);
                }
                if has(1) {
                    columns.push(match has(2) {
                        true => "pg_catalog.pg_current_xact_id()",
                        false => "pg_catalog.pg_current_xact_id_if_assigned()",
                    });
                }
                if has(3) {
                    columns.push(
                        "(SELECT pg_catalog.string_agg(transactionid::pg_catalog.text, ',') FROM pg_catalog.pg_locks \
                         WHERE pid OPERATOR(pg_catalog.=) pg_catalog.pg_backend_pid() AND locktype OPERATOR(pg_catalog.=) 'transactionid' \
                         AND mode OPERATOR(pg_catalog.=) 'ExclusiveLock' AND granted)",
                    );
                }
                let first = columns.first().copied().unwrap_or("NULL");
                let rest = columns
                    .iter()
                    .skip(1)
                    .fold(String::new(), |rest, column| rest + ", " + column);
                format!("SELECT {first} AS hindcast_ask{rest}")
            })
        });
        &TEXTS[self.index()]
    }

    /// Reads the row that answers it; `None` if it is not what we asked for.
    pub fn read<'a>(self, mut values: impl Iterator<Item = Option<&'a [u8]>>) -> Option<Told> {
        let mut told = Told::default();
        if self.snapshot {
            told.snapshot = Some(text(values.next()??)?.parse().ok()?);
            told.isolation = Isolation::named(text(values.next()??)?);
            told.now = moment(values.next()??);
            told.read_only = Some(values.next()?? == b"on");
        }
        if self.xid {
            told.xid_known = true;
            told.xid = values
                .next()?
                .and_then(text)
                .and_then(|xid| xid.parse().ok());
        }
        if self.subxids
            && let (Some(Xid(top)), Some(locked)) = (told.xid, values.next()?.and_then(text))
        {
            // Locks are on the low half of an id. A subtransaction's id follows its parent's.
            let low = |xid: &str| xid.parse::<u32>().ok();
            told.subxids = locked
                .split(',')
                .filter_map(low)
                .map(|low| top + u64::from(low.wrapping_sub(top as u32)))
                .filter(|&xid| xid != top)
                .map(Xid)
                .collect();
        }
        Some(told)
    }
}

/// Statements of ours that are not about the client's transaction. Each runs in a transaction of
/// its own, between the client's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Errand {
    /// Makes REPEATABLE READ the session's default, if that is weaker.
    Raise,
    /// Ends a block that the client has left open.
    Rollback,
    /// Drops the session's temporary tables, as the server is about to do where its id cannot be
    /// asked for.
    DropTemporary,
    /// The id that this took.
    DropId,
    /// Which ids were assigned and how many transactions the session has had, before a statement
    /// that may commit under ids that cannot be asked for.
    Before,
    /// And after it.
    After,
}

impl Errand {
    pub fn text(self) -> &'static str {
        match self {
            Self::Raise => {
                "SELECT pg_catalog.set_config('default_transaction_isolation', 'repeatable read', false) AS hindcast_ask \
                 WHERE pg_catalog.current_setting('default_transaction_isolation') OPERATOR(pg_catalog.~) '^read '"
            }
            Self::Rollback => "ROLLBACK",
            Self::DropTemporary => "DISCARD TEMP",
            Self::DropId => Ask::XID.text(),
            Self::Before | Self::After => {
                "SELECT pg_catalog.pg_snapshot_xmax(pg_catalog.pg_current_snapshot()) AS hindcast_ask, \
                 (SELECT l.virtualtransaction FROM pg_catalog.pg_locks l \
                 WHERE l.pid OPERATOR(pg_catalog.=) pg_catalog.pg_backend_pid() \
                 AND l.locktype OPERATOR(pg_catalog.=) 'virtualxid' LIMIT 1)"
            }
        }
    }
}

/// Where a session stands: the answer to [`Errand::Before`] and [`Errand::After`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Standing {
    /// The least id that may be assigned from here on.
    pub next_xid: Xid,
    /// Counts the transactions of the session's backend, those that write nothing included.
    pub transaction: Option<u64>,
}

impl Standing {
    pub fn read<'a>(mut values: impl Iterator<Item = Option<&'a [u8]>>) -> Option<Self> {
        let next_xid = text(values.next()??)?.parse().ok()?;
        // As in `3/1234`: the backend's place, and its transaction's number.
        let number = |virtual_id: &str| virtual_id.split_once('/')?.1.parse().ok();
        let transaction = values.next()?.and_then(text).and_then(number);
        Some(Self {
            next_xid,
            transaction,
        })
    }
}

/// What the server told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Told {
    pub snapshot: Option<Snapshot>,
    pub isolation: Option<Isolation>,
    pub now: Option<Micros>,
    pub read_only: Option<bool>,
    pub xid_known: bool,
    pub xid: Option<Xid>,
    pub subxids: Vec<Xid>,
}

fn text(value: &[u8]) -> Option<&str> {
    std::str::from_utf8(value).ok()
}

/// Reads eight bytes as the session's `bytea_output` writes them: `\x00ff…`, or `\000\377…` with
/// printable characters as they are.
fn moment(value: &[u8]) -> Option<Micros> {
    let mut bytes = Vec::with_capacity(8);
    if let Some(hex) = value.strip_prefix(b"\\x") {
        for pair in hex.chunks(2) {
            bytes.push(u8::from_str_radix(text(pair)?, 16).ok()?);
        }
    } else {
        let mut rest = value;
        while let Some((&byte, behind)) = rest.split_first() {
            (bytes, rest) = match (byte, behind) {
                (b'\\', [b'\\', behind @ ..]) => (with(bytes, b'\\'), behind),
                (b'\\', _) => {
                    let octal = u8::from_str_radix(text(behind.get(..3)?)?, 8).ok()?;
                    (with(bytes, octal), &behind[3..])
                }
                _ => (with(bytes, byte), behind),
            };
        }
    }
    let since = Micros::from_be_bytes(bytes.try_into().ok()?);
    since.checked_add(POSTGRES_EPOCH)
}

fn with(mut bytes: Vec<u8>, byte: u8) -> Vec<u8> {
    bytes.push(byte);
    bytes
}

/// How statements of ours are sent.
///
/// Most are prepared, run and closed in one flight. Those that ask stay prepared where
/// [`Statements`] says so, and are then only run: to parse them takes the server about as long as
/// to answer them.
#[derive(Debug)]
pub(super) struct Asks {
    /// Of our portal, and of a statement that does not outlive its flight. Those that the client
    /// leaves unnamed stay as they are.
    name: Box<[u8]>,
    /// Per kind of ask, all that is sent for one that is not kept.
    once: [Bytes; KINDS],
    /// And for one that is, with its number.
    again: [(u32, Bytes); KINDS],
    pub kept: Statements<KINDS>,
    /// A flight failed in the middle, perhaps between its `Parse` and its `Close`: a cancel of the
    /// client's may hit ours.
    broken: bool,
}

/// The messages that [`Asks`] sends for one statement that does not outlive its flight, in order.
pub(super) const MESSAGES: [Sent; 5] = [
    Sent::Parse,
    Sent::Bind,
    Sent::Execute,
    Sent::Close,
    Sent::Close,
];

impl Run {
    /// The messages that are sent, in order.
    pub fn messages(self) -> &'static [Sent] {
        match self {
            Self::Once | Self::Probe => &MESSAGES,
            Self::First(_) => &MESSAGES[..4],
            Self::Again(_) => &MESSAGES[1..4],
        }
    }
}

impl Asks {
    /// `token` tells our names from all that a client could think of.
    pub fn new(token: u64, keeping: Arc<Keeping>) -> Self {
        Self {
            name: format!("hindcast_{token:016x}").into_bytes().into(),
            once: Default::default(),
            again: Default::default(),
            kept: Statements::new(keeping),
            broken: false,
        }
    }

    /// A flight did not run to its end.
    pub fn broke(&mut self) {
        self.broken = true;
    }

    /// Before a flight: closes what a broken one left, or its name would be taken. Whether there
    /// was one; to close what is not there is no failure.
    pub fn close_broken(&mut self, out: &mut BytesMut) -> bool {
        let broken = std::mem::take(&mut self.broken);
        if broken {
            frontend::close(out, Target::Statement(&self.name));
        }
        broken
    }

    /// How an ask is to be sent now.
    pub fn choose(&mut self, ask: Ask) -> Run {
        self.kept.choose(ask.index())
    }

    /// Appends what runs an ask.
    pub fn send(&mut self, ask: Ask, run: Run, out: &mut BytesMut) {
        let index = ask.index();
        match run {
            Run::Once => {
                if self.once[index].is_empty() {
                    let mut flight = BytesMut::new();
                    self.send_text(ask.text(), &mut flight);
                    self.once[index] = flight.freeze();
                }
                out.extend_from_slice(&self.once[index]);
            }
            Run::Probe => {
                let text = format!("{}, pg_catalog.pg_backend_pid()", ask.text());
                self.send_text(&text, out);
            }
            Run::First(number) => {
                let name = self.numbered(number);
                frontend::parse(out, &name, ask.text().as_bytes(), &[]);
                self.send_prepared(&name, out);
            }
            Run::Again(number) => {
                if self.again[index].0 != number {
                    let mut flight = BytesMut::new();
                    self.send_prepared(&self.numbered(number), &mut flight);
                    self.again[index] = (number, flight.freeze());
                }
                out.extend_from_slice(&self.again[index].1);
            }
        }
    }

    /// Appends what closes what is not to be used any more; returns the numbers, one for each
    /// message. See [`Statements::take_closing`].
    pub fn close_left(&mut self, surely: bool, out: &mut BytesMut) -> Vec<u32> {
        let numbers = self.kept.take_closing(surely);
        for number in &numbers {
            frontend::close(out, Target::Statement(&self.numbered(*number)));
        }
        numbers
    }

    /// The row of an ask has come. `backend`: the process that the server named when the session
    /// began; the rest of the row says which it was.
    pub fn answered<'a>(
        &mut self,
        ask: Ask,
        run: Run,
        backend: u32,
        mut rest: impl Iterator<Item = Option<&'a [u8]>>,
    ) {
        if run == Run::Probe {
            let ran = rest.next().flatten().and_then(text);
            self.kept
                .probed(ran.and_then(|ran| ran.parse().ok()) == Some(backend));
        }
        self.kept.answered(ask.index(), run);
    }

    /// An ask was not run.
    pub fn lost(&mut self, ask: Ask, run: Run) {
        self.broken |= matches!(run, Run::Once | Run::Probe);
        self.kept.lost(ask.index(), run);
    }

    /// Appends what runs a statement that does not outlive its flight.
    pub fn send_text(&self, text: &str, out: &mut BytesMut) {
        frontend::parse(out, &self.name, text.as_bytes(), &[]);
        self.send_prepared(&self.name, out);
        frontend::close(out, Target::Statement(&self.name));
    }

    fn send_prepared(&self, statement: &[u8], out: &mut BytesMut) {
        frontend::bind(out, &self.name, statement, &[]);
        frontend::execute(out, &self.name, 0);
        frontend::close(out, Target::Portal(&self.name));
    }

    fn numbered(&self, number: u32) -> Vec<u8> {
        [&self.name, format!("_{number}").as_bytes()].concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMBINED: Ask = Ask {
        snapshot: true,
        xid: true,
        assign: false,
        subxids: false,
    };

    #[test]
    fn an_answer_is_read_column_by_column() {
        let row = [
            "10:20:12,15",
            "repeatable read",
            "\\x0002ad22dce66001",
            "off",
            "17",
        ];
        let told = COMBINED
            .read(row.iter().map(|value| Some(value.as_bytes())))
            .unwrap();
        assert_eq!(told.snapshot.unwrap().in_progress, [Xid(12), Xid(15)]);
        assert_eq!(
            (told.isolation, told.now),
            (Some(Isolation::RepeatableRead), Some(1_700_000_000_000_001))
        );
        assert_eq!(
            (told.read_only, told.xid_known, told.xid),
            (Some(false), true, Some(Xid(17)))
        );
        assert_eq!(
            COMBINED.read(row[..3].iter().map(|value| Some(value.as_bytes()))),
            None
        );
    }

    #[test]
    fn ids_of_subtransactions_get_their_epoch_back() {
        let ask = Ask {
            xid: true,
            subxids: true,
            ..Ask::default()
        };
        let top = (3u64 << 32) | 0xffff_fffe;
        let row = [top.to_string(), format!("{},{},1", u32::MAX, top as u32)];
        let told = ask
            .read(row.iter().map(|value| Some(value.as_bytes())))
            .unwrap();
        assert_eq!(told.subxids, [Xid(top + 1), Xid(top + 3)]);
    }

    #[test]
    fn a_moment_is_read_however_the_session_writes_bytes() {
        // 2023-11-14 22:13:20.000001 UTC
        let since = 1_700_000_000_000_001 - POSTGRES_EPOCH;
        let hex: String = since
            .to_be_bytes()
            .map(|byte| format!("{byte:02x}"))
            .concat();
        let written = |byte: u8| match byte {
            b'\\' => "\\\\".to_owned(),
            0x20..=0x7e => char::from(byte).to_string(),
            _ => format!("\\{byte:03o}"),
        };
        let escaped = |value: i64| value.to_be_bytes().map(written).concat();
        for value in [format!("\\x{hex}"), escaped(since)] {
            assert_eq!(
                moment(value.as_bytes()),
                Some(1_700_000_000_000_001),
                "{value}"
            );
        }
        let odd = 0x0002_5c5c_41ff_5c20;
        assert_eq!(moment(escaped(odd).as_bytes()), Some(odd + POSTGRES_EPOCH));
        for broken in ["", "\\x00", "\\xzz", "\\1", "2023-11-14"] {
            assert_eq!(moment(broken.as_bytes()), None, "{broken}");
        }
    }

    #[test]
    fn where_a_session_stands() {
        let read = |row: [Option<&[u8]>; 2]| Standing::read(row.into_iter());
        let standing = read([Some(b"812"), Some(b"3/1234")]).unwrap();
        assert_eq!(
            (standing.next_xid, standing.transaction),
            (Xid(812), Some(1234))
        );
        assert_eq!(read([Some(b"812"), None]).unwrap().transaction, None);
        assert_eq!(read([None, None]), None);
    }
}
