//! The tables that hold few rows: read whole when a trace is opened.

use super::missing;
use crate::parquet_table::{Column, Kind, Malformed, Packing, RowReader, RowWriter, Table, text};
use crate::{
    Base, BaseKind, FinalState, Gap, GapCause, Id, Isolation, KeptValuesKey, PinsKey, Record,
    Recorder, SequenceName, Shape, ShapeId, Snapshot, TableDigest, Xid,
};

/// `shapes`: what kinds of transactions were made of.
pub(crate) struct Shapes;

impl Table for Shapes {
    type Row = Shape;

    const NAME: &'static str = "shapes";
    const COLUMNS: &'static [Column] = &[
        Column::new("id", Kind::UInt32, Packing::Plain),
        Column::new("statements", Kind::Text, Packing::Dictionary).list(),
    ];

    fn pick(record: Record) -> Option<Shape> {
        match record {
            Record::Shape(row) => Some(row),
            _ => None,
        }
    }

    fn shred(row: &Shape, columns: &mut RowWriter<'_>) {
        columns.int(i64::from(row.id.0));
        columns.byte_strings(row.statements.iter());
    }

    fn assemble(columns: &mut RowReader<'_>) -> Result<Shape, Malformed> {
        let id = ShapeId(columns.int() as u32);
        let statements = texts(columns)?;
        Ok(Shape { id, statements })
    }
}

/// `gaps`: what should be in the recording and is not.
pub(crate) struct Gaps;

impl Table for Gaps {
    type Row = Gap;

    const NAME: &'static str = "gaps";
    const COLUMNS: &'static [Column] = &[
        Column::new("from", Kind::Timestamp, Packing::Plain),
        Column::new("to", Kind::Timestamp, Packing::Plain),
        Column::new("cause", Kind::Text, Packing::Dictionary),
        Column::new("requests", Kind::Int64, Packing::Plain).optional(),
        Column::new("transactions", Kind::Int64, Packing::Plain).optional(),
        Column::new("recorder", Kind::UInt16, Packing::Plain).optional(),
        Column::new("xids", Kind::Int64, Packing::Delta).list(),
        Column::new("session", Kind::Int64, Packing::Plain).optional(),
        Column::new("reason", Kind::Text, Packing::Dictionary).optional(),
    ];

    fn pick(record: Record) -> Option<Gap> {
        match record {
            Record::Gap(row) => Some(row),
            _ => None,
        }
    }

    fn shred(row: &Gap, columns: &mut RowWriter<'_>) {
        columns.int(row.from);
        columns.int(row.to);
        let (cause, requests, transactions, recorder, session, reason) = match &row.cause {
            GapCause::Dropped {
                requests,
                transactions,
                reason,
            } => (
                "dropped",
                Some(*requests),
                Some(*transactions),
                None,
                None,
                Some(reason),
            ),
            GapCause::Crashed { recorder } => ("crashed", None, None, Some(*recorder), None, None),
            GapCause::Unaccounted { wrote, .. } => {
                let wrote = Some(wrote).filter(|wrote| !wrote.is_empty());
                ("unaccounted", None, None, None, None, wrote)
            }
            GapCause::Unobserved { session, reason } => {
                ("unobserved", None, None, None, Some(*session), Some(reason))
            }
            GapCause::Pruned {
                recorder,
                requests,
                transactions,
            } => (
                "pruned",
                Some(*requests),
                Some(*transactions),
                Some(*recorder),
                None,
                None,
            ),
            GapCause::Unexplained { reason, .. } => {
                ("unexplained", None, None, None, None, Some(reason))
            }
        };
        let xids = match &row.cause {
            GapCause::Unaccounted { xids, .. } | GapCause::Unexplained { xids, .. } => {
                xids.as_slice()
            }
            _ => &[],
        };
        columns.bytes(cause.as_bytes());
        columns.optional_int(requests.map(|count| count as i64));
        columns.optional_int(transactions.map(|count| count as i64));
        columns.optional_int(recorder.map(i64::from));
        columns.ints(xids.iter().map(|xid| xid.0 as i64));
        columns.optional_int(session.map(|session| session.0 as i64));
        columns.optional_bytes(reason.map(|reason| reason.as_bytes()));
    }

    fn assemble(columns: &mut RowReader<'_>) -> Result<Gap, Malformed> {
        let (from, to, cause) = (columns.int(), columns.int(), columns.text()?);
        let requests = columns.optional_int().unwrap_or(0) as u64;
        let transactions = columns.optional_int().unwrap_or(0) as u64;
        let recorder = columns.optional_int();
        let xids = columns
            .ints()
            .into_iter()
            .map(|xid| Xid(xid as u64))
            .collect();
        let session = columns.optional_int();
        let reason = columns.optional_text()?.unwrap_or_default();
        let cause = match cause.as_str() {
            "dropped" => GapCause::Dropped {
                requests,
                transactions,
                reason,
            },
            "pruned" => GapCause::Pruned {
                recorder: recorder.ok_or_else(|| missing("a recorder"))? as u16,
                requests,
                transactions,
            },
            "crashed" => GapCause::Crashed {
                recorder: recorder.ok_or_else(|| missing("a recorder"))? as u16,
            },
            "unaccounted" => GapCause::Unaccounted {
                xids,
                wrote: reason,
            },
            "unexplained" => GapCause::Unexplained { xids, reason },
            "unobserved" => GapCause::Unobserved {
                session: Id(session.ok_or_else(|| missing("a session"))? as u64),
                reason,
            },
            other => {
                return Err(Malformed(format!(
                    "{other:?} is not a known cause of a gap"
                )));
            }
        };
        Ok(Gap { from, to, cause })
    }
}

/// `bases`: states of the database from which a replay can start.
pub(crate) struct Bases;

impl Table for Bases {
    type Row = Base;

    const NAME: &'static str = "bases";
    const COLUMNS: &'static [Column] = &[
        Column::new("taken", Kind::Timestamp, Packing::Plain),
        Column::new("xmin", Kind::Int64, Packing::Plain),
        Column::new("xmax", Kind::Int64, Packing::Plain),
        Column::new("in_progress", Kind::Int64, Packing::Delta).list(),
        Column::new("kind", Kind::Text, Packing::Dictionary),
        Column::new("database", Kind::Text, Packing::Plain).optional(),
        Column::new("folder", Kind::Text, Packing::Plain).optional(),
        Column::new("wal_archive", Kind::Text, Packing::Plain).optional(),
    ];

    fn pick(record: Record) -> Option<Base> {
        match record {
            Record::Base(row) => Some(row),
            _ => None,
        }
    }

    fn shred(row: &Base, columns: &mut RowWriter<'_>) {
        columns.int(row.taken);
        columns.int(row.snapshot.xmin.0 as i64);
        columns.int(row.snapshot.xmax.0 as i64);
        columns.ints(row.snapshot.in_progress.iter().map(|xid| xid.0 as i64));
        let (kind, database, folder, wal_archive) = match &row.kind {
            BaseKind::Template { database } => ("template", Some(database), None, None),
            BaseKind::Backup {
                folder,
                wal_archive,
            } => ("backup", None, Some(folder), wal_archive.as_ref()),
            BaseKind::Dump { folder } => ("dump", None, Some(folder), None),
        };
        columns.bytes(kind.as_bytes());
        columns.optional_bytes(database.map(|text| text.as_bytes()));
        columns.optional_bytes(folder.map(|text| text.as_bytes()));
        columns.optional_bytes(wal_archive.map(|text| text.as_bytes()));
    }

    fn assemble(columns: &mut RowReader<'_>) -> Result<Base, Malformed> {
        let taken = columns.int();
        let (xmin, xmax) = (Xid(columns.int() as u64), Xid(columns.int() as u64));
        let in_progress = columns
            .ints()
            .into_iter()
            .map(|xid| Xid(xid as u64))
            .collect();
        let kind = columns.text()?;
        let (database, folder, wal_archive) = (
            columns.optional_text()?,
            columns.optional_text()?,
            columns.optional_text()?,
        );
        let kind = match kind.as_str() {
            "template" => BaseKind::Template {
                database: database.ok_or_else(|| missing("a database"))?,
            },
            "backup" => BaseKind::Backup {
                folder: folder.ok_or_else(|| missing("a folder"))?,
                wal_archive,
            },
            "dump" => BaseKind::Dump {
                folder: folder.ok_or_else(|| missing("a folder"))?,
            },
            other => return Err(Malformed(format!("{other:?} is not a known kind of base"))),
        };
        Ok(Base {
            taken,
            snapshot: Snapshot {
                xmin,
                xmax,
                in_progress,
            },
            kind,
        })
    }
}

fn texts(columns: &mut RowReader<'_>) -> Result<Vec<String>, Malformed> {
    columns.byte_strings().into_iter().map(text).collect()
}

/// `recorders`: who recorded, and what.
pub(crate) struct Recorders;

impl Table for Recorders {
    type Row = Recorder;

    const NAME: &'static str = "recorders";
    const COLUMNS: &'static [Column] = &[
        Column::new("number", Kind::UInt16, Packing::Plain),
        Column::new("started", Kind::Timestamp, Packing::Plain),
        Column::new("trace_id_prefix", Kind::UInt64, Packing::Plain),
        Column::new("listen", Kind::Text, Packing::Plain),
        Column::new("app", Kind::Text, Packing::Plain),
        Column::new("pg_listen", Kind::Text, Packing::Plain),
        Column::new("postgres", Kind::Text, Packing::Plain),
        Column::new("database", Kind::Text, Packing::Plain),
        Column::new("server_version", Kind::Text, Packing::Plain),
        Column::new("system_identifier", Kind::UInt64, Packing::Plain),
        Column::new("raised_isolation", Kind::Text, Packing::Plain).optional(),
        Column::new("hindcast_version", Kind::Text, Packing::Plain),
        Column::new("redacted", Kind::Text, Packing::Plain).list(),
        Column::new("command", Kind::Text, Packing::Plain).list(),
        Column::new("directory", Kind::Text, Packing::Plain),
        Column::new("environment", Kind::Text, Packing::Plain).list(),
        Column::new("pins_key", Kind::Binary, Packing::Plain).optional(),
        Column::new("postgres_tls", Kind::UInt16, Packing::Plain).optional(),
        Column::new("values_key", Kind::Binary, Packing::Plain).optional(),
    ];

    fn pick(record: Record) -> Option<Recorder> {
        match record {
            Record::Recorder(row) => Some(row),
            _ => None,
        }
    }

    fn shred(row: &Recorder, columns: &mut RowWriter<'_>) {
        columns.int(i64::from(row.number));
        columns.int(row.started);
        columns.int(row.trace_id_prefix as i64);
        columns.bytes(row.listen.as_bytes());
        columns.bytes(row.app.as_bytes());
        columns.bytes(row.pg_listen.as_bytes());
        columns.bytes(row.postgres.as_bytes());
        columns.bytes(row.database.as_bytes());
        columns.bytes(row.server_version.as_bytes());
        columns.int(row.system_identifier as i64);
        columns.optional_bytes(
            row.raised_isolation
                .map(|isolation| isolation.name().as_bytes()),
        );
        columns.bytes(row.hindcast_version.as_bytes());
        columns.byte_strings(row.redacted.iter());
        columns.byte_strings(row.command.iter());
        columns.bytes(row.directory.as_bytes());
        columns.byte_strings(row.environment.iter());
        columns.optional_bytes(row.pins_key.as_ref().map(|key| &key.0[..]));
        columns.optional_int(row.postgres_tls.map(i64::from));
        columns.optional_bytes(row.values_key.as_ref().map(|key| &key.0[..]));
    }

    fn assemble(columns: &mut RowReader<'_>) -> Result<Recorder, Malformed> {
        Ok(Recorder {
            number: columns.int() as u16,
            started: columns.int(),
            trace_id_prefix: columns.int() as u64,
            listen: columns.text()?,
            app: columns.text()?,
            pg_listen: columns.text()?,
            postgres: columns.text()?,
            database: columns.text()?,
            server_version: columns.text()?,
            system_identifier: columns.int() as u64,
            raised_isolation: columns.word(Isolation::named)?,
            hindcast_version: columns.text()?,
            redacted: texts(columns)?,
            command: texts(columns)?,
            directory: columns.text()?,
            environment: texts(columns)?,
            pins_key: match columns.optional_bytes() {
                None => None,
                Some(key) => {
                    let key = key.try_into().map_err(|_| missing("a whole key"))?;
                    Some(PinsKey(key))
                }
            },
            postgres_tls: columns.optional_int().map(|offers| offers != 0),
            values_key: columns.optional_bytes().map(KeptValuesKey),
        })
    }
}

/// `final_states`: what the tables held when a recording stopped with nothing in flight.
pub(crate) struct FinalStates;

impl Table for FinalStates {
    type Row = FinalState;

    const NAME: &'static str = "final_states";
    const COLUMNS: &'static [Column] = &[
        Column::new("taken", Kind::Timestamp, Packing::Plain),
        Column::new("table", Kind::Text, Packing::Plain).of("tables"),
        Column::new("rows", Kind::Int64, Packing::Plain).of("tables"),
        Column::new("digest", Kind::UInt64, Packing::Plain).of("tables"),
        Column::new("sequence", Kind::Text, Packing::Plain).of("sequences"),
        Column::new("oid", Kind::UInt32, Packing::Plain).of("sequences"),
    ];

    fn pick(record: Record) -> Option<FinalState> {
        match record {
            Record::FinalState(row) => Some(row),
            _ => None,
        }
    }

    fn shred(row: &FinalState, columns: &mut RowWriter<'_>) {
        columns.int(row.taken);
        columns.byte_strings(row.tables.iter().map(|table| &table.table));
        columns.ints(row.tables.iter().map(|table| table.rows as i64));
        columns.ints(row.tables.iter().map(|table| table.digest as i64));
        columns.byte_strings(row.sequences.iter().map(|one| &one.sequence));
        columns.ints(row.sequences.iter().map(|one| i64::from(one.oid)));
    }

    fn assemble(columns: &mut RowReader<'_>) -> Result<FinalState, Malformed> {
        let taken = columns.int();
        let (names, rows, digests) = (columns.byte_strings(), columns.ints(), columns.ints());
        let tables = names.into_iter().zip(rows).zip(digests);
        let tables = tables.map(|((table, rows), digest)| {
            Ok(TableDigest {
                table: text(table)?,
                rows: rows as u64,
                digest: digest as u64,
            })
        });
        let tables = tables.collect::<Result<_, _>>()?;
        let (names, oids) = (columns.byte_strings(), columns.ints());
        let sequences = names.into_iter().zip(oids).map(|(sequence, oid)| {
            Ok(SequenceName {
                sequence: text(sequence)?,
                oid: oid as u32,
            })
        });
        Ok(FinalState {
            taken,
            tables,
            sequences: sequences.collect::<Result<_, _>>()?,
        })
    }
}
