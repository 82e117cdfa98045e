//! Our own statements: what they ask, how they are sent, what they answer.

use std::sync::LazyLock;

use bytes::{Bytes, BytesMut};

use super::observed::{Isolation, Snapshot};
use crate::message::frontend::{self, Target};

/// The name of the first column of all our results, by which they are told from the client's.
pub(super) const COLUMN: &[u8] = b"hindcast_ask";

/// Our portals; the client's unnamed one stays as it is.
const PORTAL: &[u8] = b"hindcast";

/// What a statement of ours asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Ask {
    /// Snapshot, isolation level, `now()`, and whether the transaction is read-only.
    pub snapshot: bool,
    pub xid: bool,
    /// Have an id assigned if there is none yet: the commit would assign one anyway, when it is too late to ask.
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

    fn index(self) -> usize {
        usize::from(self.snapshot)
            | usize::from(self.xid) << 1
            | usize::from(self.assign) << 2
            | usize::from(self.subxids) << 3
    }

    /// Names are qualified, operators too: whatever the session's `search_path` says, Postgres' own are meant.
    pub fn text(self) -> &'static str {
        static TEXTS: LazyLock<[String; KINDS]> = LazyLock::new(|| {
            std::array::from_fn(|index| {
                let has = |bit: usize| index & 1 << bit != 0;
                let mut columns = Vec::new();
                if has(0) {
                    columns.extend([
                        "pg_catalog.pg_current_snapshot()::pg_catalog.text",
                        "pg_catalog.current_setting('transaction_isolation')",
                        "(extract(epoch from pg_catalog.now()) OPERATOR(pg_catalog.*) 1000000)::pg_catalog.int8",
                        "pg_catalog.current_setting('transaction_read_only')",
                    ]);
                }
                if has(1) {
                    columns.push(match has(2) {
                        true => "pg_catalog.pg_current_xact_id()::pg_catalog.text",
                        false => "pg_catalog.pg_current_xact_id_if_assigned()::pg_catalog.text",
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
            told.snapshot = Some(parse_snapshot(text(values.next()??)?)?);
            told.isolation = match values.next()?? {
                b"read committed" | b"read uncommitted" => Some(Isolation::ReadCommitted),
                b"repeatable read" => Some(Isolation::RepeatableRead),
                b"serializable" => Some(Isolation::Serializable),
                _ => None,
            };
            told.now = text(values.next()??)?.parse().ok();
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
            && let (Some(top), Some(locked)) = (told.xid, values.next()?.and_then(text))
        {
            // Locks are on the low half of an id. A subtransaction's id follows its parent's.
            let low = |xid: &str| xid.parse::<u32>().ok();
            told.subxids = locked
                .split(',')
                .filter_map(low)
                .map(|low| top + u64::from(low.wrapping_sub(top as u32)))
                .filter(|&xid| xid != top)
                .collect();
        }
        Some(told)
    }
}

/// What the server told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Told {
    pub snapshot: Option<Snapshot>,
    pub isolation: Option<Isolation>,
    pub now: Option<i64>,
    pub read_only: Option<bool>,
    pub xid_known: bool,
    pub xid: Option<u64>,
    pub subxids: Vec<u64>,
}

fn text(value: &[u8]) -> Option<&str> {
    std::str::from_utf8(value).ok()
}

/// `xmin:xmax:xip,xip,…`
fn parse_snapshot(text: &str) -> Option<Snapshot> {
    let mut parts = text.split(':');
    let xmin = parts.next()?.parse().ok()?;
    let xmax = parts.next()?.parse().ok()?;
    let in_progress = parts.next()?.split(',').filter(|xid| !xid.is_empty());
    Some(Snapshot {
        xmin,
        xmax,
        in_progress: in_progress
            .map(|xid| xid.parse().ok())
            .collect::<Option<_>>()?,
    })
}

/// Our prepared statements in one session.
///
/// A statement that was not prepared must never be bound: inside a transaction block that error would abort the client's work. So one counts as
/// prepared only if the server said so, or if it was sent in the same batch, in which case both are discarded or neither. Else it is
/// closed, which is no error if it does not exist, and prepared again.
#[derive(Debug)]
pub(super) struct Asks {
    slots: [Slot; KINDS],
    /// Every preparation gets a number, by which its answer is told from that of an earlier one.
    next: u32,
}

#[derive(Debug, Default)]
struct Slot {
    state: State,
    /// It may exist on the server, whatever we think of it.
    sent_before: bool,
    /// Bind, Execute and Close of its portal.
    run: Bytes,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Absent,
    Sent {
        number: u32,
        batch: u64,
    },
    Prepared,
}

/// What was sent to run an ask, besides Bind, Execute and Close.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Preparation {
    None,
    /// `Parse`, with this number.
    Parse(u32),
    /// `Close` of an older one, then `Parse`.
    CloseParse(u32),
}

impl Asks {
    pub fn new() -> Self {
        Self {
            slots: Default::default(),
            next: 1,
        }
    }

    /// Appends what runs an ask.
    pub fn send(&mut self, ask: Ask, batch: u64, out: &mut BytesMut) -> Preparation {
        let slot = &mut self.slots[ask.index()];
        let ready = match slot.state {
            State::Absent => false,
            State::Sent { batch: sent, .. } => sent == batch,
            State::Prepared => true,
        };
        if ready {
            out.extend_from_slice(&slot.run);
            return Preparation::None;
        }
        let name = format!("hindcast_{}", ask.index());
        if slot.run.is_empty() {
            let mut run = BytesMut::new();
            frontend::bind(&mut run, PORTAL, name.as_bytes(), &[]);
            frontend::execute(&mut run, PORTAL, 0);
            frontend::close(&mut run, Target::Portal(PORTAL));
            slot.run = run.freeze();
        }
        let number = self.next;
        self.next += 1;
        slot.state = State::Sent { number, batch };
        let preparation = match std::mem::replace(&mut slot.sent_before, true) {
            true => {
                frontend::close(out, Target::Statement(name.as_bytes()));
                Preparation::CloseParse(number)
            }
            false => Preparation::Parse(number),
        };
        frontend::parse(out, name.as_bytes(), ask.text().as_bytes(), &[]);
        out.extend_from_slice(&slot.run);
        preparation
    }

    /// The server prepared a statement.
    pub fn confirm(&mut self, ask: Ask, number: u32) {
        let state = &mut self.slots[ask.index()].state;
        if matches!(*state, State::Sent { number: sent, .. } if sent == number) {
            *state = State::Prepared;
        }
    }

    /// The server did not prepare a statement.
    pub fn unprepared(&mut self, ask: Ask, number: u32) {
        let state = &mut self.slots[ask.index()].state;
        if matches!(*state, State::Sent { number: sent, .. } if sent == number) {
            *state = State::Absent;
        }
    }

    /// The server does not have a statement that we took to be prepared.
    pub fn missing(&mut self, ask: Ask) {
        self.slots[ask.index()].state = State::Absent;
    }

    /// The session's prepared statements are being deallocated.
    pub fn forget(&mut self) {
        self.slots
            .iter_mut()
            .for_each(|slot| slot.state = State::Absent);
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
            "1700000000000001",
            "off",
            "17",
        ];
        let told = COMBINED
            .read(row.iter().map(|value| Some(value.as_bytes())))
            .unwrap();
        assert_eq!(told.snapshot.unwrap().in_progress, [12, 15]);
        assert_eq!(
            (told.isolation, told.now),
            (Some(Isolation::RepeatableRead), Some(1_700_000_000_000_001))
        );
        assert_eq!(
            (told.read_only, told.xid_known, told.xid),
            (Some(false), true, Some(17))
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
        assert_eq!(told.subxids, [top + 1, top + 3]);
    }

    #[test]
    fn a_statement_is_prepared_again_unless_it_surely_is() {
        let (mut asks, mut out) = (Asks::new(), BytesMut::new());
        assert_eq!(asks.send(COMBINED, 1, &mut out), Preparation::Parse(1));
        assert_eq!(
            asks.send(COMBINED, 1, &mut out),
            Preparation::None,
            "same batch"
        );
        assert_eq!(
            asks.send(COMBINED, 2, &mut out),
            Preparation::CloseParse(2),
            "not confirmed yet"
        );
        asks.confirm(COMBINED, 1);
        assert_eq!(
            asks.send(COMBINED, 3, &mut out),
            Preparation::CloseParse(3),
            "another one is meant by now"
        );
        asks.unprepared(COMBINED, 2);
        asks.confirm(COMBINED, 3);
        assert_eq!(asks.send(COMBINED, 4, &mut out), Preparation::None);
        asks.forget();
        assert_eq!(asks.send(COMBINED, 5, &mut out), Preparation::CloseParse(4));
    }
}
