//! What was taken from the server's extension, turned into records.
//!
//! ```text
//!   a note     asked │ answered │ offset │ doubt │ epoch │ is_all │ records, as bytea's text
//!   records    layout u32 │ length u32 │ is_ours u32 │ record │ length u32 │ …
//!   record     head │ notes │ what was drawn │ subtransactions │ name of a prepared transaction
//! ```
//!
//! The numbers of a note are i64s. Records, and what they consist of, are as the extension keeps
//! them in memory: see `hindcast.h`.
//! It has neither clock nor connection.

use std::ops::RangeInclusive;
use std::sync::Arc;

use hindcast_trace::{
    Drawn, DrawnBytes, DrawnValue, Gap, GapCause, Isolation, Micros, SequenceValue, Snapshot,
    StatementSnapshot, Xid,
};

use super::super::join::{Draw, Ended, Record};
use super::super::server_side::ServerSide;
use super::super::sink::Sink;

/// Each has a kind of draw more than the one before.
const LAYOUTS: RangeInclusive<u32> = 2..=4;
/// Of a record without what follows its head, and of a subtransaction.
const RECORD_HEAD: usize = 88;
const SUBXID: usize = 12;
/// Of what was drawn.
const DRAW: usize = 32;
/// Of a note about a statement; one with a snapshot goes on.
const STATEMENT_NOTE: usize = 8;
/// Microseconds from 1970 to where Postgres begins to count.
const EPOCH_2000: Micros = 946_684_800_000_000;

/// The moments that taps tell agree with the clock as well as this, in microseconds.
const SLACK: Micros = 1000;

const FULL: &str = "the extension's ring was full: raise hindcast.ring_size in postgresql.conf, and restart the server";
const RESTARTED: &str =
    "the server was restarted, and what its extension had noted and was not read yet is gone";
const GARBLED: &str = "what the extension told of transactions could not be read";

/// The server's clock against that of the recording.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Clock {
    /// What to add to the server's.
    pub offset: Micros,
    /// How far from the truth that may be.
    pub doubt: Micros,
}

impl Clock {
    /// The server showed `there` at some time between two readings here.
    pub fn of(before: Micros, there: Micros, after: Micros) -> Self {
        let doubt = (after - before) / 2 + 1;
        let offset = before + (after - before) / 2 - there;
        // As close as can be told, it is the same clock.
        match offset.abs() <= doubt {
            true => Self { offset: 0, doubt },
            false => Self { offset, doubt },
        }
    }

    fn slack(self) -> Micros {
        self.doubt + SLACK
    }
}

/// How records were asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Look {
    pub asked: Micros,
    pub answered: Micros,
    pub clock: Clock,
    /// Of the ring: another one, and the server was restarted.
    pub epoch: i64,
    /// Nothing was left, not even what is being written.
    pub is_all: bool,
}

impl Look {
    /// A note that there are no more.
    pub const OVER: [u8; 0] = [];
    const LENGTH: usize = 6 * 8;

    /// A note.
    pub fn with(&self, records: &str) -> Vec<u8> {
        let Clock { offset, doubt } = self.clock;
        let numbers = [
            self.asked,
            self.answered,
            offset,
            doubt,
            self.epoch,
            i64::from(self.is_all),
        ];
        let mut note = Vec::with_capacity(Self::LENGTH + records.len());
        for number in numbers {
            note.extend_from_slice(&number.to_le_bytes());
        }
        note.extend_from_slice(records.as_bytes());
        note
    }

    fn of(note: &[u8]) -> Option<(Self, &[u8])> {
        let (numbers, records) = note.split_at_checked(Self::LENGTH)?;
        let mut numbers = Fields(numbers);
        let look = Self {
            asked: numbers.i64()?,
            answered: numbers.i64()?,
            clock: Clock {
                offset: numbers.i64()?,
                doubt: numbers.i64()?,
            },
            epoch: numbers.i64()?,
            is_all: numbers.i64()? != 0,
        };
        Some((look, records))
    }
}

/// Whether records look as they are expected to.
pub(super) fn is_of_this_layout(records: &str) -> bool {
    let bytes = unescaped(records.as_bytes()).unwrap_or_default();
    let layout = Fields(&bytes).u32();
    layout.is_some_and(|layout| LAYOUTS.contains(&layout))
}

/// Goes through notes in their order.
pub(in crate::record) struct Telling {
    sink: Arc<Sink>,
    server: Arc<ServerSide>,
    /// When the recording began.
    began: Micros,
    /// The last record was of this ring, and so many had been lost then. Those that are older than
    /// the recording do not count: nobody may have read the ring for long.
    epoch: Option<i64>,
    lost: u64,
    /// When the server was asked last, and how well its clock was known.
    asked: Micros,
    clock: Clock,
}

impl Telling {
    /// Of what is told from now on.
    pub fn new(sink: &Arc<Sink>, server: &Arc<ServerSide>, now: Micros) -> Self {
        Self {
            sink: Arc::clone(sink),
            server: Arc::clone(server),
            began: now,
            epoch: None,
            lost: 0,
            asked: now,
            clock: Clock::default(),
        }
    }

    pub fn told(&mut self, note: &[u8]) {
        if note == Look::OVER {
            self.server
                .told(Vec::new(), Micros::MAX, self.clock.slack());
            return;
        }
        let Some((look, records)) = Look::of(note) else {
            return self.missing(self.asked, 0, GARBLED);
        };
        self.clock = look.clock;
        let mut until = Micros::MIN;
        let records = self.records(&look, records, &mut until);
        let records = records.unwrap_or_else(|| {
            self.missing(look.answered, 0, GARBLED);
            Vec::new()
        });
        if look.is_all {
            until = look.asked;
        }
        self.server.told(records, until, look.clock.slack());
        self.asked = look.asked;
    }

    fn records(&mut self, look: &Look, text: &[u8], until: &mut Micros) -> Option<Vec<Record>> {
        let bytes = unescaped(text)?;
        let mut rest = Fields(&bytes);
        if !LAYOUTS.contains(&rest.u32()?) {
            return None;
        }
        let mut records = Vec::new();
        while !rest.0.is_empty() {
            let (length, is_ours) = (rest.u32()? as usize, rest.u32()? != 0);
            let read = record(rest.take(length)?, look.clock.offset)?;
            if read.record.ended_at >= self.began {
                self.count(look, read.lost);
            }
            // Records come in the order in which room was reserved for them, after the end.
            *until = (*until).max(read.record.ended_at - look.clock.slack());
            if is_ours && read.is_end {
                records.push(read.record);
            }
        }
        Some(records)
    }

    /// Says what was lost before a record.
    fn count(&mut self, look: &Look, lost: u64) {
        let another = self.epoch.is_some_and(|before| before != look.epoch);
        let before = match another {
            true => 0,
            false => self.lost,
        };
        if another {
            self.missing(look.answered, 0, RESTARTED);
        }
        // Before this recording was there, the ring was full as it should be.
        if lost > before && self.epoch.is_some() {
            self.missing(look.answered, lost - before, FULL);
        }
        (self.epoch, self.lost) = (Some(look.epoch), lost);
    }

    fn missing(&self, to: Micros, transactions: u64, reason: &str) {
        let reason = reason.to_owned();
        self.sink.gap(Gap {
            from: self.asked,
            to,
            cause: GapCause::Dropped {
                requests: 0,
                transactions,
                reason,
            },
        });
    }
}

/// A record, and what is of no interest once it was looked at.
#[derive(Debug, PartialEq)]
struct Read {
    record: Record,
    /// Records that were lost before it.
    lost: u64,
    /// It tells how a transaction ended.
    is_end: bool,
}

fn record(bytes: &[u8], offset: Micros) -> Option<Read> {
    let mut head = Fields(bytes.get(..RECORD_HEAD)?);
    let mut rest = Fields(&bytes[RECORD_HEAD..]);
    let (xid, ordinal, lost) = (head.u64()?, head.u64()?, head.u64()?);
    let mut moment = || Some(head.i64()?.wrapping_add(EPOCH_2000));
    let (backend_start, now, ended_at) = (moment()?, moment()?, moment()?);
    let here = |moment: Micros| moment.wrapping_add(offset);
    let (end_lsn, _database, process) = (head.u64()?, head.u32()?, head.u32()?);
    let (statements, left_out) = (head.u32()?, head.u32()?);
    let (notes, draws) = (head.u32()? as usize, head.u32()? as usize);
    let subtransactions = head.u32()?;
    let &[_backend_type, isolation, ended, _gid] = head.take(4)? else {
        return None;
    };
    let notes = rest.take(notes)?;
    let mut noted = snapshots(notes)?;
    let mut rechecked = rechecked(notes)?;
    let draws = rest.take(draws.checked_mul(DRAW)?)?.chunks_exact(DRAW);
    let drawn = draws.map(draw).collect::<Option<_>>()?;
    let (mut subxids, mut aborted_subxids) = (Vec::new(), Vec::new());
    for _ in 0..subtransactions {
        match subtransaction(xid, rest.take(SUBXID)?)? {
            (id, false) => subxids.push(id),
            (id, true) => aborted_subxids.push(id),
        }
    }
    // ENDED_COMMIT to ENDED_ROLLBACK_PREPARED.
    let ended = match ended {
        0 | 4 | 5 => Some(Ended::Committed),
        1 | 2 => Some(Ended::Aborted),
        3 => Some(Ended::Prepared),
        _ => None,
    };
    let isolation = isolation_of(isolation);
    let snapshot = first_snapshot(notes)?;
    rechecked.retain(|&statement| statement < statements);
    // One that waited and wrote nothing saw more than its snapshot: what is noted behind it.
    let waited_last = xid == 0 && rechecked.last().is_some_and(|&last| last + 1 == statements);
    let noted_max = statements.saturating_add(u32::from(waited_last));
    // Otherwise all saw what the first one did.
    let says_more = noted_max >= 2 || noted.first().map(|one| &one.snapshot) != snapshot.as_ref();
    let tells = isolation == Some(Isolation::ReadCommitted) && says_more;
    noted.retain(|one| tells && one.statement < noted_max);
    let commit_lsn = (end_lsn > 0 && ended == Some(Ended::Committed)).then_some(end_lsn);
    Some(Read {
        lost,
        is_end: ended.is_some(),
        record: Record {
            process,
            backend_start: here(backend_start),
            ordinal,
            xid: (xid > 0).then_some(Xid(xid)),
            subxids,
            aborted_subxids,
            isolation,
            now,
            started: here(now),
            statements,
            snapshot,
            statement_snapshots: noted,
            rechecked,
            drawn,
            commit_lsn,
            ended: ended.unwrap_or(Ended::Aborted),
            ended_at: here(ended_at),
            left_out,
        },
    })
}

fn isolation_of(level: u8) -> Option<Isolation> {
    // XACT_READ_UNCOMMITTED to XACT_SERIALIZABLE.
    match level {
        0 | 1 => Some(Isolation::ReadCommitted),
        2 => Some(Isolation::RepeatableRead),
        3 => Some(Isolation::Serializable),
        _ => None,
    }
}

/// A subtransaction, and whether it was rolled back by itself.
fn subtransaction(xid: u64, bytes: &[u8]) -> Option<(Xid, bool)> {
    let mut one = Fields(bytes);
    // Its id is assigned after its parent's.
    let id = Xid(xid.wrapping_add(u64::from(one.u32()?.wrapping_sub(xid as u32))));
    let _level = one.u32()?;
    Some((id, one.u32()? != 0))
}

/// `PLACE_BEHIND`: of a snapshot that shows what made a statement fail, or insert nothing.
const BEHIND: u8 = 2;

/// What the first statement saw, whether it failed or not.
fn first_snapshot(notes: &[u8]) -> Option<Option<Snapshot>> {
    let mut rest = Fields(notes);
    while !rest.0.is_empty() {
        let &[.., kind, _, _, _] = rest.take(STATEMENT_NOTE)? else {
            return None;
        };
        if kind == 0 {
            return Some(Some(snapshot(&mut rest)?));
        }
    }
    Some(None)
}

/// What statements saw, of what is noted about them; each that saw something else than the one
/// before. One that failed because of another transaction, or inserted nothing, saw that. `None`
/// if they cannot be read.
fn snapshots(notes: &[u8]) -> Option<Vec<StatementSnapshot>> {
    let mut noted: Vec<StatementSnapshot> = Vec::new();
    // The statement of the last note. What is noted first of a statement is what it saw itself.
    let mut last = None;
    let mut rest = Fields(notes);
    while !rest.0.is_empty() {
        let statement = rest.u32()?;
        let &[kind, place, ..] = rest.take(STATEMENT_NOTE - 4)? else {
            return None;
        };
        // NOTE_SNAPSHOT; the others have nothing but their heads.
        if kind != 0 {
            continue;
        }
        let snapshot = snapshot(&mut rest)?;
        // What a function within a statement saw is what the next one saw, if nothing else is
        // noted of that.
        let is_first = noted.is_empty() || place == 0 && last != Some(statement);
        last = Some(statement);
        let statement = match is_first || place == BEHIND {
            true => statement.saturating_sub(1),
            false => statement,
        };
        // Nothing that was noted within a statement that failed is later than this.
        noted.retain(|one| one.statement < statement);
        noted.push(StatementSnapshot {
            statement,
            snapshot,
        });
    }
    Some(noted)
}

/// The statements that waited for another transaction, or went on with a newer row.
fn rechecked(notes: &[u8]) -> Option<Vec<u32>> {
    let mut found = Vec::new();
    let mut rest = Fields(notes);
    while !rest.0.is_empty() {
        let statement = rest.u32()?;
        match rest.take(STATEMENT_NOTE - 4)?[0] {
            0 => _ = snapshot(&mut rest)?,
            _ => found.push(statement.saturating_sub(1)),
        }
    }
    found.dedup();
    Some(found)
}

/// What a statement drew. Moments that a result showed are as the server's clock had them.
fn draw(bytes: &[u8]) -> Option<Draw> {
    let mut fields = Fields(bytes);
    let statement = fields.u32()?;
    let &[kind, undone, length, _] = fields.take(4)? else {
        return None;
    };
    let (sequence, _subtransaction) = (fields.u32()?, fields.u32()?);
    let number = fields.i64()?;
    let rest = fields.u64()?;
    let last = &bytes[DRAW - 16..];
    // DRAW_NEXTVAL to DRAW_OBJECT.
    let value = match kind {
        0 => DrawnValue::Sequence {
            first: SequenceValue {
                sequence,
                value: number,
            },
            count: rest,
        },
        1 => DrawnValue::Clock(number.wrapping_add(EPOCH_2000)),
        2 => DrawnValue::Random(f64::from_bits(number as u64)),
        3 => DrawnValue::Uuid(u128::from_be_bytes(last.try_into().ok()?)),
        4 => DrawnValue::Bytes(DrawnBytes::new(last.get(..usize::from(length))?)?),
        5 => DrawnValue::LargeObject(number as u32),
        _ => return None,
    };
    Some(Draw {
        drawn: Drawn {
            statement: Some(statement.saturating_sub(1)),
            value,
        },
        undone: undone != 0,
    })
}

fn snapshot(note: &mut Fields<'_>) -> Option<Snapshot> {
    let (xmin, xmax, count) = (note.u64()?, note.u64()?, note.u64()?);
    let count = usize::try_from(count).ok()?;
    let ids = note.take(count.checked_mul(4)?)?;
    // Notes begin at multiples of eight.
    note.take(count % 2 * 4)?;
    let ids = ids.chunks_exact(4).map(|id| Fields(id).u32());
    let mut in_progress = Vec::with_capacity(ids.len());
    for id in ids {
        in_progress.push(Xid(xmin + u64::from(id?.wrapping_sub(xmin as u32))));
    }
    in_progress.sort_unstable();
    Some(Snapshot {
        xmin: Xid(xmin),
        xmax: Xid(xmax),
        in_progress,
    })
}

/// Bytes, out of `\x0123…`.
fn unescaped(text: &[u8]) -> Option<Vec<u8>> {
    let digits = text.strip_prefix(b"\\x")?;
    let value = |digit: u8| char::from(digit).to_digit(16);
    let mut bytes = Vec::with_capacity(digits.len() / 2);
    for pair in digits.chunks(2) {
        let &[high, low] = pair else {
            return None;
        };
        bytes.push((value(high)? << 4 | value(low)?) as u8);
    }
    Some(bytes)
}

/// Little-endian numbers, one after the other.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    fn u32(&mut self) -> Option<u32> {
        let bytes = self.take(4)?;
        Some(u32::from_le_bytes(bytes.try_into().ok()?))
    }

    fn u64(&mut self) -> Option<u64> {
        let bytes = self.take(8)?;
        Some(u64::from_le_bytes(bytes.try_into().ok()?))
    }

    fn i64(&mut self) -> Option<i64> {
        self.u64().map(|number| number as i64)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn one_clock_is_taken_for_one_and_two_for_two() {
        assert_eq!(
            Clock::of(1000, 1150, 1400),
            Clock {
                offset: 0,
                doubt: 201
            }
        );
        assert_eq!(
            Clock::of(1000, 5000, 1400),
            Clock {
                offset: -3800,
                doubt: 201
            }
        );
    }

    /// As a server writes it: an id that has come round in 32 bits, notes of both kinds,
    /// subtransactions.
    fn written() -> Vec<u8> {
        let xid = (5u64 << 32) | 0xffff_fff0;
        let mut notes = Vec::new();
        notes.extend([2, 0, 0, 0, 1, 0, 0, 0]);
        notes.extend([3, 0, 0, 0, 0, 0, 0, 0]);
        for number in [xid - 1, xid + 20, 2] {
            notes.extend(number.to_le_bytes());
        }
        for id in [(xid + 18) as u32, xid as u32] {
            notes.extend(id.to_le_bytes());
        }
        let mut record = Vec::new();
        for number in [xid, 7, 3, 11, 12, 13, 99] {
            record.extend(number.to_le_bytes());
        }
        for number in [16384, 4711, 3, 1, notes.len() as u32, 2, 2] {
            record.extend(number.to_le_bytes());
        }
        record.extend([3, 1, 0, 0]);
        record.extend(notes);
        record.extend([2, 0, 0, 0, 0, 1, 0, 0, 9, 0, 0, 0, 1, 0, 0, 0]);
        for number in [41u64, 2] {
            record.extend(number.to_le_bytes());
        }
        record.extend([3, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0]);
        record.extend(1u128.to_be_bytes());
        for (id, aborted) in [(xid + 1, 0), (xid + 0x11, 1)] {
            for number in [id as u32, 2, aborted] {
                record.extend(number.to_le_bytes());
            }
        }
        record
    }

    #[test]
    fn a_record_is_read_as_the_server_writes_it() {
        let read = record(&written(), 1000).unwrap();
        let xid = (5u64 << 32) | 0xffff_fff0;
        let expected = Record {
            process: 4711,
            backend_start: EPOCH_2000 + 1011,
            ordinal: 7,
            xid: Some(Xid(xid)),
            subxids: vec![Xid(xid + 1)],
            aborted_subxids: vec![Xid(xid + 0x11)],
            isolation: Some(Isolation::ReadCommitted),
            now: EPOCH_2000 + 12,
            started: EPOCH_2000 + 1012,
            statements: 3,
            snapshot: Some(snapshot_of(xid - 1, xid + 20, &[xid, xid + 18])),
            statement_snapshots: vec![StatementSnapshot {
                statement: 2,
                snapshot: snapshot_of(xid - 1, xid + 20, &[xid, xid + 18]),
            }],
            rechecked: vec![1],
            drawn: vec![
                Draw {
                    drawn: Drawn {
                        statement: Some(1),
                        value: DrawnValue::Sequence {
                            first: SequenceValue {
                                sequence: 9,
                                value: 41,
                            },
                            count: 2,
                        },
                    },
                    undone: true,
                },
                Draw {
                    drawn: Drawn {
                        statement: Some(2),
                        value: DrawnValue::Uuid(1),
                    },
                    undone: false,
                },
            ],
            commit_lsn: Some(99),
            ended: Ended::Committed,
            ended_at: EPOCH_2000 + 1013,
            left_out: 1,
        };
        assert_eq!((read.record, read.lost, read.is_end), (expected, 3, true));
    }

    fn snapshot_of(xmin: u64, xmax: u64, in_progress: &[u64]) -> Snapshot {
        Snapshot {
            xmin: Xid(xmin),
            xmax: Xid(xmax),
            in_progress: in_progress.iter().copied().map(Xid).collect(),
        }
    }

    const OWN: u8 = 0;
    const NESTED: u8 = 1;

    /// Notes of snapshots that are told apart by their xmax: statement, place, xmax.
    #[track_caller]
    fn check(noted: &[(u32, u8, u64)], expected: &[(u32, u64)]) {
        let mut notes = Vec::new();
        for &(statement, place, xmax) in noted {
            notes.extend(statement.to_le_bytes());
            notes.extend([0, place, 0, 0]);
            for number in [10, xmax, 1] {
                notes.extend(number.to_le_bytes());
            }
            // And up to a multiple of eight.
            notes.extend(10u64.to_le_bytes());
        }
        let read = snapshots(&notes).expect("they can be read");
        let saw = |one: &StatementSnapshot| (one.statement, one.snapshot.xmax.0);
        assert_eq!(read.iter().map(saw).collect::<Vec<_>>(), expected);
        assert!(read.iter().all(|one| one.snapshot.in_progress == [Xid(10)]));
    }

    #[test]
    fn each_statement_saw_what_was_noted_last_before_it_or_of_it() {
        check(&[], &[]);
        check(&[(2, OWN, 20), (5, OWN, 30)], &[(1, 20), (4, 30)]);
        // A function within the second statement saw more, and the third one no more than that.
        check(&[(2, OWN, 20), (2, NESTED, 30)], &[(1, 20), (2, 30)]);
        check(
            &[(2, OWN, 20), (2, NESTED, 30), (2, NESTED, 40)],
            &[(1, 20), (2, 40)],
        );
        check(
            &[(2, OWN, 20), (2, NESTED, 30), (3, OWN, 40)],
            &[(1, 20), (2, 40)],
        );
        // A procedure has none of its own.
        check(&[(1, NESTED, 20), (1, NESTED, 30)], &[(0, 20), (1, 30)]);
        // A statement that a rule makes several of.
        check(&[(1, OWN, 20), (1, OWN, 30)], &[(0, 20), (1, 30)]);
    }

    /// The first insert of two fails, in a savepoint, since another transaction's came before.
    #[test]
    fn a_statement_that_failed_saw_what_made_it_fail() {
        check(&[(3, OWN, 20), (3, BEHIND, 30)], &[(2, 30)]);
        check(
            &[(1, OWN, 10), (3, OWN, 20), (3, BEHIND, 30), (5, OWN, 40)],
            &[(0, 10), (2, 30), (4, 40)],
        );
        // In a function, which goes on and looks again.
        check(
            &[
                (2, OWN, 20),
                (2, NESTED, 25),
                (2, BEHIND, 30),
                (2, NESTED, 35),
            ],
            &[(1, 30), (2, 35)],
        );
    }

    #[test]
    fn of_what_is_cut_off_nothing_is_read() {
        let whole = written();
        for length in 0..whole.len() {
            assert_eq!(record(&whole[..length], 0), None, "{length}");
        }
    }

    proptest! {
        #[test]
        fn a_note_is_read_as_it_was_written(numbers: [i64; 5], is_all: bool, records in "[0-9a-f]*") {
            let look = Look {
                asked: numbers[0],
                answered: numbers[1],
                clock: Clock { offset: numbers[2], doubt: numbers[3] },
                epoch: numbers[4],
                is_all,
            };
            let note = look.with(&records);
            prop_assert_eq!(Look::of(&note), Some((look, records.as_bytes())));
        }

        #[test]
        fn nothing_makes_it_stumble(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = (record(&bytes, 0), snapshots(&bytes), unescaped(&bytes), Look::of(&bytes));
        }
    }
}
