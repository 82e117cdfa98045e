//! `transactions`: one row per transaction, ordered by id.

use super::missing;
use crate::parquet_table::{Column, Kind, Malformed, Packing, RowReader, RowWriter, Table};
use crate::{
    Attribution, Digest, Drawn, DrawnAt, DrawnBytes, DrawnUuid, DrawnValue, Id, Isolation, Lock,
    Outcome, Record, Secrets, SequenceValue, ShapeId, Snapshot, StatementSnapshot, Transaction,
    Xid, uuid_text,
};

pub(crate) struct Transactions;

const STATEMENT_SNAPSHOTS: &str = "statement_snapshots";
const DRAWN_UUIDS: &str = "drawn_uuids";
const DRAWN: &str = "drawn";

/// Where it is not known which statement drew something.
const SOME_STATEMENT: u32 = u32::MAX;

impl Table for Transactions {
    type Row = Transaction;

    const NAME: &'static str = "transactions";
    const COLUMNS: &'static [Column] = &[
        Column::new("id", Kind::Int64, Packing::Delta).with_statistics(),
        Column::new("session", Kind::Int64, Packing::Dictionary),
        Column::new("request", Kind::Int64, Packing::Delta)
            .optional()
            .with_statistics(),
        Column::new("attribution", Kind::Text, Packing::Dictionary).optional(),
        Column::new("began", Kind::Timestamp, Packing::Delta).with_statistics(),
        Column::new("duration_us", Kind::Int64, Packing::Delta).with_statistics(),
        Column::new("isolation", Kind::Text, Packing::Dictionary),
        Column::new("snapshot_xmax", Kind::Int64, Packing::Delta).optional(),
        Column::new("snapshot_xmin_below", Kind::Int64, Packing::Dictionary).optional(),
        Column::new(
            "snapshot_in_progress_below",
            Kind::Int64,
            Packing::Dictionary,
        )
        .list(),
        Column::new("xid", Kind::Int64, Packing::Delta)
            .optional()
            .with_statistics(),
        Column::new("subxids", Kind::Int64, Packing::Delta).list(),
        Column::new("outcome", Kind::Text, Packing::Dictionary).with_statistics(),
        Column::new("prepared_gid", Kind::Text, Packing::Plain).optional(),
        Column::new("now_offset_us", Kind::Int64, Packing::Delta).optional(),
        Column::new("shape", Kind::UInt32, Packing::Dictionary).with_statistics(),
        Column::new("result_digest", Kind::UInt32, Packing::WhateverIsSmaller),
        Column::new("result_rows", Kind::Int64, Packing::Dictionary),
        Column::new("statement", Kind::UInt32, Packing::Dictionary).of("locks"),
        Column::new("target", Kind::UInt32, Packing::Dictionary).of("locks"),
        Column::new("completed", Kind::Int64, Packing::Delta).of("locks"),
        Column::new("sequence", Kind::UInt32, Packing::Dictionary).of("sequence_values"),
        Column::new("value", Kind::Int64, Packing::Delta).of("sequence_values"),
        Column::new("server_bytes", Kind::Binary, Packing::Plain)
            .optional()
            .bulky(),
        Column::new("client_bytes", Kind::Binary, Packing::Plain)
            .optional()
            .bulky(),
        Column::new("statement", Kind::UInt32, Packing::Dictionary)
            .of(STATEMENT_SNAPSHOTS)
            .bulky(),
        Column::new("xmax_above", Kind::Int64, Packing::Dictionary)
            .of(STATEMENT_SNAPSHOTS)
            .bulky(),
        Column::new("xmin_below", Kind::Int64, Packing::Dictionary)
            .of(STATEMENT_SNAPSHOTS)
            .bulky(),
        Column::new("in_progress", Kind::UInt32, Packing::Dictionary)
            .of(STATEMENT_SNAPSHOTS)
            .bulky(),
        Column::new(
            "statement_in_progress_below",
            Kind::Int64,
            Packing::Dictionary,
        )
        .list()
        .bulky(),
        Column::new("rechecked", Kind::UInt32, Packing::Dictionary).list(),
        Column::new("commit_lsn", Kind::Int64, Packing::Delta).optional(),
        Column::new("table", Kind::UInt32, Packing::Dictionary).of(DRAWN_UUIDS),
        Column::new("column", Kind::Int64, Packing::Dictionary).of(DRAWN_UUIDS),
        Column::new("value", Kind::Text, Packing::Plain).of(DRAWN_UUIDS),
        Column::new("statement", Kind::UInt32, Packing::Dictionary).of(DRAWN),
        Column::new("function", Kind::Text, Packing::Dictionary).of(DRAWN),
        Column::new("sequence", Kind::UInt32, Packing::Dictionary).of(DRAWN),
        Column::new("value", Kind::Text, Packing::Plain).of(DRAWN),
        Column::new("count", Kind::Int64, Packing::Dictionary).of(DRAWN),
        Column::new("clock", Kind::Binary, Packing::Plain)
            .optional()
            .bulky(),
        Column::new("secrets", Kind::Binary, Packing::Plain)
            .optional()
            .bulky(),
        Column::new("values_digest", Kind::UInt32, Packing::Plain).optional(),
        Column::new("row_order", Kind::Binary, Packing::Dictionary)
            .optional()
            .bulky(),
    ];
    const ID: Option<usize> = Some(0);
    const TIME: Option<usize> = Some(4);
    const REQUEST: Option<usize> = Some(2);

    fn id(row: &Transaction) -> u64 {
        row.id.0
    }
    fn time(row: &Transaction) -> i64 {
        row.began
    }
    fn request(row: &Transaction) -> Option<u64> {
        row.request.map(|(request, _)| request.0)
    }
    fn digest(row: &Transaction) -> Option<u32> {
        Some(row.result_digest.0)
    }

    fn pick(record: Record) -> Option<Transaction> {
        match record {
            Record::Transaction(row) => Some(row),
            _ => None,
        }
    }

    fn shred(row: &Transaction, columns: &mut RowWriter<'_>) {
        columns.int(row.id.0 as i64);
        columns.int(row.session.0 as i64);
        columns.optional_int(row.request.map(|(request, _)| request.0 as i64));
        columns.optional_bytes(
            row.request
                .map(|(_, attribution)| attribution_word(attribution).as_bytes()),
        );
        columns.int(row.began);
        columns.int(row.ended.wrapping_sub(row.began));
        columns.bytes(row.isolation.name().as_bytes());
        shred_snapshot(row.snapshot.as_ref(), columns);
        columns.optional_int(row.xid.map(|xid| xid.0 as i64));
        columns.ints(row.subxids.iter().map(|xid| xid.0 as i64));
        let (outcome, gid) = match &row.outcome {
            Outcome::Committed => ("committed", None),
            Outcome::Aborted => ("aborted", None),
            Outcome::Prepared { gid } => ("prepared", Some(gid.as_bytes())),
            Outcome::Unknown => ("unknown", None),
        };
        columns.bytes(outcome.as_bytes());
        columns.optional_bytes(gid);
        columns.optional_int(row.now.map(|now| now.wrapping_sub(row.began)));
        columns.int(i64::from(row.shape.0));
        columns.int(i64::from(row.result_digest.0));
        columns.int(row.result_rows as i64);
        columns.ints(row.locks.iter().map(|lock| i64::from(lock.statement)));
        columns.ints(row.locks.iter().map(|lock| i64::from(lock.target)));
        columns.ints(row.locks.iter().map(|lock| lock.completed as i64));
        columns.ints(
            row.sequence_values
                .iter()
                .map(|pinned| i64::from(pinned.sequence)),
        );
        columns.ints(row.sequence_values.iter().map(|pinned| pinned.value));
        columns.optional_bytes(row.server_bytes.as_deref());
        columns.optional_bytes(row.client_bytes.as_deref());
        shred_statement_snapshots(row, columns);
        columns.ints(row.rechecked.iter().map(|&statement| i64::from(statement)));
        columns.optional_int(row.commit_lsn.map(|lsn| lsn as i64));
        shred_drawn_uuids(&row.drawn_uuids, columns);
        shred_drawn(&row.drawn, columns);
        columns.optional_bytes((!row.clock.is_empty()).then_some(&row.clock[..]));
        columns.optional_bytes(row.secrets.sealed());
        columns.optional_int(row.values.map(i64::from));
        columns.optional_bytes((!row.row_order.is_empty()).then_some(&row.row_order[..]));
    }

    fn assemble(columns: &mut RowReader<'_>) -> Result<Transaction, Malformed> {
        let id = Id(columns.int() as u64);
        let session = Id(columns.int() as u64);
        let request = columns.optional_int().map(|request| Id(request as u64));
        let attribution = columns.word(attribution_of)?;
        let began = columns.int();
        let ended = began.wrapping_add(columns.int());
        let isolation = columns
            .word(Isolation::named)?
            .ok_or_else(|| missing("an isolation"))?;
        let snapshot = assemble_snapshot(columns);
        let first_xmax = snapshot.as_ref().map_or(Xid(0), |snapshot| snapshot.xmax);
        let xid = columns.optional_int().map(|xid| Xid(xid as u64));
        let subxids = columns
            .ints()
            .into_iter()
            .map(|xid| Xid(xid as u64))
            .collect();
        let outcome = columns.word(|word| match word {
            "committed" => Some(Outcome::Committed),
            "aborted" => Some(Outcome::Aborted),
            "prepared" => Some(Outcome::Prepared { gid: String::new() }),
            "unknown" => Some(Outcome::Unknown),
            _ => None,
        })?;
        let gid = columns.optional_text()?;
        let outcome = match outcome.ok_or_else(|| missing("an outcome"))? {
            Outcome::Prepared { .. } => Outcome::Prepared {
                gid: gid.ok_or_else(|| missing("a gid"))?,
            },
            outcome => outcome,
        };
        Ok(Transaction {
            id,
            session,
            request: match (request, attribution) {
                (Some(request), Some(attribution)) => Some((request, attribution)),
                (None, None) => None,
                _ => return Err(missing("either of request and attribution")),
            },
            began,
            ended,
            isolation,
            snapshot,
            xid,
            subxids,
            outcome,
            now: columns
                .optional_int()
                .map(|offset| began.wrapping_add(offset)),
            shape: ShapeId(columns.int() as u32),
            result_digest: Digest(columns.int() as u32),
            result_rows: columns.int() as u64,
            locks: assemble_locks(columns),
            sequence_values: assemble_sequence_values(columns),
            server_bytes: columns.optional_bytes(),
            client_bytes: columns.optional_bytes(),
            statement_snapshots: assemble_statement_snapshots(first_xmax, columns),
            rechecked: columns.ints().into_iter().map(|one| one as u32).collect(),
            commit_lsn: columns.optional_int().map(|lsn| lsn as u64),
            drawn_uuids: assemble_drawn_uuids(columns)?,
            drawn: assemble_drawn(columns)?,
            clock: columns.optional_bytes().unwrap_or_default(),
            secrets: columns
                .optional_bytes()
                .map_or(Secrets::None, Secrets::Sealed),
            values: columns.optional_int().map(|digest| digest as u32),
            row_order: columns.optional_bytes().unwrap_or_default(),
        })
    }
}

/// `xmax` as it is; the ids in progress, and `xmin`, as distances below it: small numbers that
/// repeat. `xmin` is nearly always the lowest id in progress, or `xmax` if there is none, and is
/// then left out.
fn shred_snapshot(snapshot: Option<&Snapshot>, columns: &mut RowWriter<'_>) {
    let below = |xid: Xid, snapshot: &Snapshot| snapshot.xmax.0.wrapping_sub(xid.0) as i64;
    columns.optional_int(snapshot.map(|snapshot| snapshot.xmax.0 as i64));
    columns.optional_int(snapshot.and_then(|snapshot| {
        let usual = *snapshot.in_progress.first().unwrap_or(&snapshot.xmax);
        (snapshot.xmin != usual).then(|| below(snapshot.xmin, snapshot))
    }));
    columns.ints(
        snapshot
            .into_iter()
            .flat_map(|snapshot| snapshot.in_progress.iter().map(|&xid| below(xid, snapshot))),
    );
}

fn assemble_snapshot(columns: &mut RowReader<'_>) -> Option<Snapshot> {
    let xmax = columns.optional_int();
    let xmin_below = columns.optional_int();
    let in_progress_below = columns.ints();
    let xmax = Xid(xmax? as u64);
    let below = |distance: i64| Xid(xmax.0.wrapping_sub(distance as u64));
    let in_progress: Vec<Xid> = in_progress_below.into_iter().map(below).collect();
    let xmin = xmin_below.map_or_else(|| *in_progress.first().unwrap_or(&xmax), below);
    Some(Snapshot {
        xmin,
        xmax,
        in_progress,
    })
}

/// `xmax` as the distance from the one before, the first from that of the transaction's snapshot;
/// the others as distances below `xmax`. How many are in progress stands with each snapshot, and
/// all of them in one list.
fn shred_statement_snapshots(row: &Transaction, columns: &mut RowWriter<'_>) {
    let all = &row.statement_snapshots;
    let snapshots = || all.iter().map(|one| &one.snapshot);
    let below = |xid: Xid, snapshot: &Snapshot| snapshot.xmax.0.wrapping_sub(xid.0) as i64;
    columns.ints(all.iter().map(|one| i64::from(one.statement)));
    let mut previous = row.snapshot.as_ref().map_or(0, |first| first.xmax.0);
    columns.ints(snapshots().map(|one| {
        let before = std::mem::replace(&mut previous, one.xmax.0);
        one.xmax.0.wrapping_sub(before) as i64
    }));
    columns.ints(snapshots().map(|one| below(one.xmin, one)));
    columns.ints(snapshots().map(|one| one.in_progress.len() as i64));
    columns.ints(snapshots().flat_map(|one| one.in_progress.iter().map(|&xid| below(xid, one))));
}

fn assemble_statement_snapshots(
    first_xmax: Xid,
    columns: &mut RowReader<'_>,
) -> Vec<StatementSnapshot> {
    let (statements, above, xmin_below) = (columns.ints(), columns.ints(), columns.ints());
    let (counts, mut in_progress) = (columns.ints(), columns.ints().into_iter());
    let each = statements
        .into_iter()
        .zip(above)
        .zip(xmin_below)
        .zip(counts);
    let mut xmax = first_xmax.0;
    each.map(|(((statement, above), xmin_below), count)| {
        xmax = xmax.wrapping_add(above as u64);
        let below = |distance: i64| Xid(xmax.wrapping_sub(distance as u64));
        StatementSnapshot {
            statement: statement as u32,
            snapshot: Snapshot {
                xmin: below(xmin_below),
                xmax: Xid(xmax),
                in_progress: in_progress
                    .by_ref()
                    .take(count as usize)
                    .map(below)
                    .collect(),
            },
        }
    })
    .collect()
}

fn assemble_locks(columns: &mut RowReader<'_>) -> Vec<Lock> {
    let (statements, targets, completed) = (columns.ints(), columns.ints(), columns.ints());
    let locks = statements.into_iter().zip(targets).zip(completed);
    locks
        .map(|((statement, target), completed)| Lock {
            statement: statement as u32,
            target: target as u32,
            completed: completed as u64,
        })
        .collect()
}

fn assemble_sequence_values(columns: &mut RowReader<'_>) -> Vec<SequenceValue> {
    let (sequences, values) = (columns.ints(), columns.ints());
    let pinned = sequences.into_iter().zip(values);
    pinned
        .map(|(sequence, value)| SequenceValue {
            sequence: sequence as u32,
            value,
        })
        .collect()
}

/// As the server writes them. A call has no table and no column: both are 0.
fn shred_drawn_uuids(all: &[DrawnUuid], columns: &mut RowWriter<'_>) {
    let places = || {
        all.iter().map(|one| match one.place {
            DrawnAt::Default { table, column } => (table, column),
            DrawnAt::Call => (0, 0),
        })
    };
    columns.ints(places().map(|(table, _)| i64::from(table)));
    columns.ints(places().map(|(_, column)| i64::from(column)));
    columns.byte_strings(all.iter().map(DrawnUuid::text));
}

fn assemble_drawn_uuids(columns: &mut RowReader<'_>) -> Result<Vec<DrawnUuid>, Malformed> {
    let (tables, numbers, values) = (columns.ints(), columns.ints(), columns.byte_strings());
    let all = tables.into_iter().zip(numbers).zip(values);
    all.map(|((table, column), value)| {
        let place = match (table as u32, column as i16) {
            (0, _) => DrawnAt::Call,
            (table, column) => DrawnAt::Default { table, column },
        };
        let value = DrawnUuid::number(&value).ok_or_else(|| missing("a UUID"))?;
        Ok(DrawnUuid { place, value })
    })
    .collect()
}

/// Numbers as texts, moments as microseconds. What is from no sequence has 0 there.
fn shred_drawn(all: &[Drawn], columns: &mut RowWriter<'_>) {
    let statement = |one: &Drawn| one.statement.unwrap_or(SOME_STATEMENT);
    let of_sequence = |one: &Drawn| match one.value {
        DrawnValue::Sequence { first, count } => (first.sequence, count),
        _ => (0, 1),
    };
    columns.ints(all.iter().map(|one| i64::from(statement(one))));
    columns.byte_strings(all.iter().map(|one| one.value.function()));
    columns.ints(all.iter().map(|one| i64::from(of_sequence(one).0)));
    columns.byte_strings(all.iter().map(|one| match one.value {
        DrawnValue::Sequence { first, .. } => first.value.to_string(),
        DrawnValue::Clock(moment) => moment.to_string(),
        DrawnValue::Random(number) => number.to_string(),
        DrawnValue::Uuid(uuid) => uuid_text(uuid),
        DrawnValue::Bytes(bytes) => bytes.text(),
        DrawnValue::LargeObject(object) => object.to_string(),
    }));
    columns.ints(all.iter().map(|one| of_sequence(one).1 as i64));
}

fn assemble_drawn(columns: &mut RowReader<'_>) -> Result<Vec<Drawn>, Malformed> {
    let (statements, functions) = (columns.ints(), columns.byte_strings());
    let (sequences, values) = (columns.ints(), columns.byte_strings());
    let counts = columns.ints();
    let whose = statements.into_iter().zip(functions);
    let what = sequences.into_iter().zip(values).zip(counts);
    let mut drawn = Vec::new();
    for ((statement, function), ((sequence, value), count)) in whose.zip(what) {
        let (statement, count) = (statement as u32, count as u64);
        let value = drawn_value(&function, sequence as u32, &value, count);
        drawn.push(Drawn {
            statement: (statement != SOME_STATEMENT).then_some(statement),
            value: value.ok_or_else(|| missing("what was drawn"))?,
        });
    }
    Ok(drawn)
}

fn drawn_value(function: &[u8], sequence: u32, value: &[u8], count: u64) -> Option<DrawnValue> {
    let text = std::str::from_utf8(value).ok()?;
    Some(match function {
        b"nextval" => {
            let value = text.parse().ok()?;
            let first = SequenceValue { sequence, value };
            DrawnValue::Sequence { first, count }
        }
        b"clock_timestamp" => DrawnValue::Clock(text.parse().ok()?),
        b"random" => DrawnValue::Random(text.parse().ok()?),
        b"gen_random_uuid" => DrawnValue::Uuid(DrawnUuid::number(value)?),
        b"gen_random_bytes" => DrawnValue::Bytes(DrawnBytes::of_text(value)?),
        b"lo_creat" => DrawnValue::LargeObject(text.parse().ok()?),
        _ => return None,
    })
}

fn attribution_of(word: &str) -> Option<Attribution> {
    match word {
        "comment" => Some(Attribution::Comment),
        "application_name" => Some(Attribution::ApplicationName),
        "alone" => Some(Attribution::Alone),
        "turn" => Some(Attribution::Turn),
        _ => None,
    }
}

fn attribution_word(attribution: Attribution) -> &'static str {
    match attribution {
        Attribution::Comment => "comment",
        Attribution::ApplicationName => "application_name",
        Attribution::Alone => "alone",
        Attribution::Turn => "turn",
    }
}
