//! Any record whatsoever.

use hindcast_trace::*;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

fn id() -> impl Strategy<Value = Id> {
    // Recorder numbers stop at 2^15 - 1.
    (0u16..=0x7fff, 0u64..1 << 48).prop_map(|(recorder, sequence)| Id::new(recorder, sequence))
}

fn xid() -> impl Strategy<Value = Xid> {
    any::<u64>().prop_map(Xid)
}

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    vec(any::<u8>(), 0..40)
}

fn headers() -> impl Strategy<Value = Vec<(String, Vec<u8>)>> {
    vec((any::<String>(), bytes()), 0..4)
}

fn isolation() -> impl Strategy<Value = Isolation> {
    prop_oneof![
        Just(Isolation::ReadCommitted),
        Just(Isolation::RepeatableRead),
        Just(Isolation::Serializable)
    ]
}

fn snapshot() -> impl Strategy<Value = Snapshot> {
    let in_progress = vec(xid(), 0..5);
    (xid(), xid(), in_progress, any::<bool>()).prop_map(|(xmin, xmax, mut in_progress, usual)| {
        in_progress.sort_unstable();
        let xmin = if usual {
            *in_progress.first().unwrap_or(&xmax)
        } else {
            xmin
        };
        Snapshot {
            xmin,
            xmax,
            in_progress,
        }
    })
}

fn response() -> impl Strategy<Value = Response> {
    prop_oneof![
        (
            any::<u16>(),
            headers(),
            any::<u32>(),
            any::<u64>(),
            option::of(bytes())
        )
            .prop_map(
                |(status, headers, digest, body_bytes, body)| Response::Answered {
                    status,
                    headers,
                    body_digest: Digest(digest),
                    body_bytes,
                    body,
                }
            ),
        any::<String>().prop_map(|reason| Response::Broken { reason }),
        any::<String>().prop_map(|reason| Response::Unrecorded { reason }),
    ]
}

pub fn request() -> impl Strategy<Value = Request> {
    let line = (
        any::<String>(),
        any::<String>(),
        option::of(any::<String>()),
    );
    (
        id(),
        any::<i64>(),
        any::<i64>(),
        line,
        headers(),
        bytes(),
        (
            response(),
            bytes(),
            option::of(bytes()),
            vec(call(), 0..3),
            option::of(any::<String>()),
            option::of(any::<String>()),
            option::of(any::<String>()),
            option::of(any::<u32>()),
        ),
    )
        .prop_map(
            |(
                id,
                arrived,
                ended,
                (method, target, caller_traceparent),
                headers,
                body,
                (response, clock, secrets, calls, user_id, came_to, came_from, came_by),
            )| Request {
                id,
                arrived,
                ended,
                method,
                target,
                headers,
                body,
                caller_traceparent,
                response,
                clock,
                secrets: secrets.map_or(Secrets::None, Secrets::Sealed),
                calls,
                user_id,
                came_to,
                came_from,
                came_by,
            },
        )
}

fn call() -> impl Strategy<Value = Call> {
    let times = (any::<i64>(), any::<i64>());
    let flags = (any::<bool>(), any::<bool>(), any::<bool>());
    (any::<String>(), flags, times, bytes(), bytes()).prop_map(
        |(peer, (within, encrypted, closed), (began, ended), sent, received)| Call {
            peer,
            within,
            encrypted,
            began,
            ended,
            sent,
            received,
            closed,
        },
    )
}

pub fn transaction() -> impl Strategy<Value = Transaction> {
    let attribution = prop_oneof![
        Just(Attribution::Comment),
        Just(Attribution::ApplicationName),
        Just(Attribution::Alone),
        Just(Attribution::Turn)
    ];
    let outcome = prop_oneof![
        Just(Outcome::Committed),
        Just(Outcome::Aborted),
        any::<String>().prop_map(|gid| Outcome::Prepared { gid }),
        Just(Outcome::Unknown),
    ];
    let lock =
        (any::<u32>(), any::<u32>(), any::<u64>()).prop_map(|(statement, target, completed)| {
            Lock {
                statement,
                target,
                completed,
            }
        });
    let value = (any::<u32>(), any::<i64>())
        .prop_map(|(sequence, value)| SequenceValue { sequence, value });
    let who = (id(), id(), option::of((id(), attribution)));
    let when = (any::<i64>(), any::<i64>(), option::of(any::<i64>()));
    let what = (
        isolation(),
        option::of(snapshot()),
        option::of(xid()),
        vec(xid(), 0..3),
        outcome,
    );
    let result = (any::<u32>(), any::<u32>(), any::<u64>());
    let statement_snapshot =
        (any::<u32>(), snapshot()).prop_map(|(statement, snapshot)| StatementSnapshot {
            statement,
            snapshot,
        });
    let place = prop_oneof![
        Just(DrawnAt::Call),
        (1..=u32::MAX, any::<i16>()).prop_map(|(table, column)| DrawnAt::Default { table, column }),
    ];
    let drawn_uuid = (place, any::<u128>()).prop_map(|(place, value)| DrawnUuid { place, value });
    let rest = (
        vec(lock, 0..3),
        vec(value, 0..3),
        option::of(bytes()),
        option::of(bytes()),
        vec(statement_snapshot, 0..3),
        vec(any::<u32>(), 0..3),
        option::of(any::<u64>()),
        vec(drawn_uuid, 0..3),
        vec(drawn(), 0..4),
        (
            bytes(),
            option::of(bytes()),
            option::of(any::<u32>()),
            bytes(),
        ),
    );
    (who, when, what, result, rest).prop_map(|(who, when, what, result, rest)| Transaction {
        id: who.0,
        session: who.1,
        request: who.2,
        began: when.0,
        ended: when.1,
        now: when.2,
        isolation: what.0,
        snapshot: what.1,
        xid: what.2,
        subxids: what.3,
        outcome: what.4,
        shape: ShapeId(result.0),
        result_digest: Digest(result.1),
        result_rows: result.2,
        locks: rest.0,
        sequence_values: rest.1,
        server_bytes: rest.2,
        client_bytes: rest.3,
        statement_snapshots: rest.4,
        rechecked: rest.5,
        commit_lsn: rest.6,
        drawn_uuids: rest.7,
        drawn: rest.8,
        clock: rest.9.0,
        secrets: rest.9.1.map_or(Secrets::None, Secrets::Sealed),
        values: rest.9.2,
        row_order: rest.9.3,
    })
}

fn drawn() -> impl Strategy<Value = Drawn> {
    let first = (any::<u32>(), any::<i64>())
        .prop_map(|(sequence, value)| SequenceValue { sequence, value });
    let value = prop_oneof![
        (first, any::<u64>()).prop_map(|(first, count)| DrawnValue::Sequence { first, count }),
        any::<i64>().prop_map(DrawnValue::Clock),
        any::<f64>().prop_map(DrawnValue::Random),
        any::<u128>().prop_map(DrawnValue::Uuid),
        vec(any::<u8>(), 0..=DrawnBytes::MAX)
            .prop_map(|bytes| DrawnValue::Bytes(DrawnBytes::new(&bytes).expect("not too many"))),
    ];
    (option::of(0..u32::MAX), value).prop_map(|(statement, value)| Drawn { statement, value })
}

pub fn shape() -> impl Strategy<Value = Shape> {
    (any::<u32>(), vec(any::<String>(), 0..4)).prop_map(|(id, statements)| Shape {
        id: ShapeId(id),
        statements,
    })
}

pub fn gap() -> impl Strategy<Value = Gap> {
    let cause = prop_oneof![
        (any::<u64>(), any::<u64>(), any::<String>()).prop_map(
            |(requests, transactions, reason)| GapCause::Dropped {
                requests,
                transactions,
                reason
            }
        ),
        any::<u16>().prop_map(|recorder| GapCause::Crashed { recorder }),
        (vec(xid(), 0..4), any::<String>())
            .prop_map(|(xids, wrote)| GapCause::Unaccounted { xids, wrote }),
        (vec(xid(), 0..4), any::<String>())
            .prop_map(|(xids, reason)| GapCause::Unexplained { xids, reason }),
        (id(), any::<String>())
            .prop_map(|(session, reason)| GapCause::Unobserved { session, reason }),
    ];
    (any::<i64>(), any::<i64>(), cause).prop_map(|(from, to, cause)| Gap { from, to, cause })
}

pub fn base() -> impl Strategy<Value = Base> {
    let kind = prop_oneof![
        any::<String>().prop_map(|database| BaseKind::Template { database }),
        (any::<String>(), option::of(any::<String>())).prop_map(|(folder, wal_archive)| {
            BaseKind::Backup {
                folder,
                wal_archive,
            }
        }),
    ];
    (any::<i64>(), snapshot(), kind).prop_map(|(taken, snapshot, kind)| Base {
        taken,
        snapshot,
        kind,
    })
}

pub fn recorder() -> impl Strategy<Value = Recorder> {
    let numbers = (any::<u16>(), any::<i64>(), any::<u64>(), any::<u64>());
    let texts = vec(any::<String>(), 7);
    let rules = vec(any::<String>(), 0..3);
    let rest = (option::of(isolation()), rules);
    (numbers, texts, rest).prop_map(|(numbers, mut texts, (raised_isolation, redacted))| {
        let mut text = || texts.pop().unwrap();
        Recorder {
            number: numbers.0,
            started: numbers.1,
            trace_id_prefix: numbers.2,
            system_identifier: numbers.3,
            listen: text(),
            app: text(),
            pg_listen: text(),
            postgres: text(),
            database: text(),
            server_version: text(),
            hindcast_version: text(),
            raised_isolation,
            command: redacted.clone(),
            directory: redacted.concat(),
            environment: redacted.clone(),
            pins_key: (numbers.0 % 2 == 0).then_some(PinsKey([numbers.0 as u8; 32])),
            postgres_tls: (numbers.0 % 3 > 0).then_some(numbers.0 % 3 > 1),
            values_key: (numbers.0 % 5 > 0)
                .then(|| KeptValuesKey(vec![7; numbers.0 as usize % 90])),
            redacted,
        }
    })
}

pub fn final_state() -> impl Strategy<Value = FinalState> {
    let table = (any::<String>(), any::<u64>(), any::<u64>()).prop_map(|(table, rows, digest)| {
        TableDigest {
            table,
            rows,
            digest,
        }
    });
    let sequence =
        (any::<String>(), any::<u32>()).prop_map(|(sequence, oid)| SequenceName { sequence, oid });
    (any::<i64>(), vec(table, 0..4), vec(sequence, 0..4)).prop_map(|(taken, tables, sequences)| {
        FinalState {
            taken,
            tables,
            sequences,
        }
    })
}
