//! A reader that is not ours: DuckDB sees the columns, types and rows that the format page
//! promises.

use crate::common::*;
use expect_test::{Expect, expect};
use hindcast_trace::*;
use tempfile::TempDir;

const PRELUDE: &str = r#"
import duckdb, sys
root = sys.argv[1]
duckdb.sql("SET TimeZone = 'UTC'")
def show(query):
    for (row,) in duckdb.sql(f"SELECT to_json(row)::VARCHAR FROM ({query}) AS row").fetchall():
        print(row)
"#;

fn check(script: &str, expected: &Expect) {
    let folder = TempDir::new().unwrap();
    let location = Location::folder(folder.path());
    let (writer, number) = Writer::create(
        &location,
        WriterOptions {
            roll_bytes_max: 1,
            ..hasty()
        },
    )
    .unwrap();
    writer.record(Record::Recorder(recorder(number)));
    writer.record(Record::Shape(Shape {
        id: ShapeId(1),
        statements: vec!["SELECT 1".into(), "SELECT 2".into()],
    }));
    writer.record(Record::Base(Base {
        taken: 1_700_000_000_000_000,
        snapshot: Snapshot {
            xmin: Xid(690),
            xmax: Xid(700),
            in_progress: vec![Xid(690), Xid(695)],
        },
        kind: BaseKind::Template {
            database: "forum_base".into(),
        },
    }));
    for sequence in 1..=1000 {
        writer.record(Record::Request(request(number, sequence)));
        writer.record(Record::Transaction(transaction(number, sequence)));
        if sequence == 500 {
            flush(&writer);
            wait_for("the first of two segments", || {
                writer.status().segments_written == 1
            });
        }
    }
    let mut odd = transaction(number, 1001);
    odd.request = None;
    odd.snapshot = Some(Snapshot {
        xmin: Xid(5_000_000_000),
        xmax: Xid(5_000_000_010),
        in_progress: vec![Xid(5_000_000_003), Xid(5_000_000_007)],
    });
    odd.outcome = Outcome::Aborted;
    odd.locks = vec![
        Lock {
            statement: 0,
            target: u32::MAX,
            completed: 9,
        },
        Lock {
            statement: 2,
            target: 1,
            completed: 11,
        },
    ];
    odd.sequence_values = vec![SequenceValue {
        sequence: 16_402,
        value: -1,
    }];
    odd.drawn_uuids = vec![DrawnUuid {
        place: DrawnAt::Default {
            table: 16_400,
            column: 1,
        },
        value: 10,
    }];
    let first = SequenceValue {
        sequence: 16_402,
        value: 7,
    };
    let values = [
        DrawnValue::Sequence { first, count: 2 },
        DrawnValue::Clock(1_700_000_001_000_200),
        DrawnValue::Random(0.25),
        DrawnValue::Uuid(11),
    ];
    let drawn = |(statement, value)| Drawn {
        statement: Some(statement),
        value,
    };
    odd.drawn = (1..).zip(values).map(drawn).collect();
    odd.drawn[3].statement = None;
    odd.server_bytes = Some(vec![0xde, 0xad]);
    writer.record(Record::Transaction(odd));
    writer.record(Record::Gap(Gap {
        from: 1_700_000_000_000_000,
        to: 1_700_000_001_000_000,
        cause: GapCause::Unaccounted {
            xids: vec![Xid(1), Xid(2)],
            wrote: "public.forum".into(),
        },
    }));
    writer.record(Record::FinalState(FinalState {
        taken: 1_700_000_002_000_000,
        tables: vec![TableDigest {
            table: "forum".into(),
            rows: 3,
            digest: u64::MAX,
        }],
        sequences: vec![SequenceName {
            sequence: "public.forum_id_seq".into(),
            oid: 16_385,
        }],
    }));
    writer.close().unwrap();
    let script = format!("{PRELUDE}{script}");
    expected.assert_eq(&python::print(&script, &location.to_string()));
}

#[test]
fn the_types_are_those_of_the_format_page() {
    check(
        r#"
for table in ["requests", "transactions", "shapes", "gaps", "bases", "recorders", "final_states"]:
    print(table)
    for name, kind, *_ in duckdb.sql(f"DESCRIBE SELECT * FROM '{root}/{table}/*.parquet'").fetchall():
        print("  ", name, kind)
"#,
        &expect![[r#"
            requests
               id BIGINT
               arrived TIMESTAMP WITH TIME ZONE
               duration_us BIGINT
               method VARCHAR
               target VARCHAR
               headers STRUCT("name" VARCHAR, "value" VARCHAR)[]
               body BLOB
               caller_traceparent VARCHAR
               outcome VARCHAR
               status USMALLINT
               response_headers STRUCT("name" VARCHAR, "value" VARCHAR)[]
               response_digest UINTEGER
               response_bytes BIGINT
               response_body BLOB
               reason VARCHAR
               clock BLOB
               secrets BLOB
               calls STRUCT(peer VARCHAR, flags USMALLINT, offset_us BIGINT, duration_us BIGINT, sent BLOB, received BLOB)[]
               user_id VARCHAR
               came_to VARCHAR
               came_from VARCHAR
               came_by UINTEGER
            transactions
               id BIGINT
               session BIGINT
               request BIGINT
               attribution VARCHAR
               began TIMESTAMP WITH TIME ZONE
               duration_us BIGINT
               isolation VARCHAR
               snapshot_xmax BIGINT
               snapshot_xmin_below BIGINT
               snapshot_in_progress_below BIGINT[]
               xid BIGINT
               subxids BIGINT[]
               outcome VARCHAR
               prepared_gid VARCHAR
               now_offset_us BIGINT
               shape UINTEGER
               result_digest UINTEGER
               result_rows BIGINT
               locks STRUCT("statement" UINTEGER, "target" UINTEGER, completed BIGINT)[]
               sequence_values STRUCT("sequence" UINTEGER, "value" BIGINT)[]
               server_bytes BLOB
               client_bytes BLOB
               statement_snapshots STRUCT("statement" UINTEGER, xmax_above BIGINT, xmin_below BIGINT, in_progress UINTEGER)[]
               statement_in_progress_below BIGINT[]
               rechecked UINTEGER[]
               commit_lsn BIGINT
               drawn_uuids STRUCT("table" UINTEGER, "column" BIGINT, "value" VARCHAR)[]
               drawn STRUCT("statement" UINTEGER, "function" VARCHAR, "sequence" UINTEGER, "value" VARCHAR, count BIGINT)[]
               clock BLOB
               secrets BLOB
               values_digest UINTEGER
               row_order BLOB
            shapes
               id UINTEGER
               statements VARCHAR[]
            gaps
               from TIMESTAMP WITH TIME ZONE
               to TIMESTAMP WITH TIME ZONE
               cause VARCHAR
               requests BIGINT
               transactions BIGINT
               recorder USMALLINT
               xids BIGINT[]
               session BIGINT
               reason VARCHAR
            bases
               taken TIMESTAMP WITH TIME ZONE
               xmin BIGINT
               xmax BIGINT
               in_progress BIGINT[]
               kind VARCHAR
               database VARCHAR
               folder VARCHAR
               wal_archive VARCHAR
            recorders
               number USMALLINT
               started TIMESTAMP WITH TIME ZONE
               trace_id_prefix UBIGINT
               listen VARCHAR
               app VARCHAR
               pg_listen VARCHAR
               postgres VARCHAR
               database VARCHAR
               server_version VARCHAR
               system_identifier UBIGINT
               raised_isolation VARCHAR
               hindcast_version VARCHAR
               redacted VARCHAR[]
               command VARCHAR[]
               directory VARCHAR
               environment VARCHAR[]
               pins_key BLOB
               postgres_tls USMALLINT
               values_key BLOB
            final_states
               taken TIMESTAMP WITH TIME ZONE
               tables STRUCT("table" VARCHAR, "rows" BIGINT, digest UBIGINT)[]
               sequences STRUCT("sequence" VARCHAR, oid UINTEGER)[]
        "#]],
    );
}

#[test]
fn requests_and_their_transactions_can_be_joined() {
    check(
        r#"
show(f"""
    SELECT method, count(*) AS transactions, count(DISTINCT t.session) AS sessions, min(r.arrived) AS first,
           max(t.began + to_microseconds(t.duration_us)) AS last, sum(t.result_rows)::INT AS result_rows,
           count(t.xid) AS writers
    FROM '{root}/requests/*.parquet' r JOIN '{root}/transactions/*.parquet' t ON t.request = r.id
    GROUP BY method""")
show(f"""
    SELECT id, target, headers[1] AS header, body, status, decode(response_body) AS response_body, response_bytes
    FROM '{root}/requests/*.parquet' WHERE id IN (1, 1000) ORDER BY id""")
"#,
        &expect![[r#"
            {"method":"GET","transactions":1000,"sessions":8,"first":"2023-11-14 22:13:20.001+00","last":"2023-11-14 22:13:21.0003+00","result_rows":3000,"writers":200}
            {"id":1,"target":"/forum/list?user=2919&forum=729","header":{"name":"host","value":"forum.example"},"body":null,"status":200,"response_body":"{\"answer\":1}","response_bytes":12}
            {"id":1000,"target":"/forum/list?user=4000&forum=0","header":{"name":"host","value":"forum.example"},"body":null,"status":200,"response_body":"{\"answer\":1000}","response_bytes":15}
        "#]],
    );
}

#[test]
fn snapshots_locks_and_sequence_values_read_as_the_format_page_says() {
    check(
        r#"
show(f"""
    SELECT snapshot_xmax, snapshot_xmax - snapshot_xmin_below AS xmin,
           [snapshot_xmax - below for below in snapshot_in_progress_below] AS in_progress, outcome, request, locks, sequence_values, drawn_uuids, drawn, server_bytes, began + to_microseconds(now_offset_us) AS now
    FROM '{root}/transactions/*.parquet' WHERE id = 1001""")
show(f"""
    SELECT count(*) AS visible FROM '{root}/transactions/*.parquet' w, '{root}/transactions/*.parquet' t
    WHERE t.id = 1000 AND w.xid < t.snapshot_xmax
      AND NOT list_contains(t.snapshot_in_progress_below, t.snapshot_xmax - w.xid)""")
for table in ["shapes", "gaps", "bases", "recorders", "final_states"]:
    show(f"SELECT * FROM '{root}/{table}/*.parquet'")
"#,
        &expect![[r#"
            {"snapshot_xmax":5000000010,"xmin":5000000000,"in_progress":[5000000003,5000000007],"outcome":"aborted","request":null,"locks":[{"statement":0,"target":4294967295,"completed":9},{"statement":2,"target":1,"completed":11}],"sequence_values":[{"sequence":16402,"value":-1}],"drawn_uuids":[{"table":16400,"column":1,"value":"00000000-0000-0000-0000-00000000000a"}],"drawn":[{"statement":1,"function":"nextval","sequence":16402,"value":"7","count":2},{"statement":2,"function":"clock_timestamp","sequence":0,"value":"1700000001000200","count":1},{"statement":3,"function":"random","sequence":0,"value":"0.25","count":1},{"statement":4294967295,"function":"gen_random_uuid","sequence":0,"value":"00000000-0000-0000-0000-00000000000b","count":1}],"server_bytes":"\\xDE\\xAD","now":"2023-11-14 22:13:21.00112+00"}
            {"visible":199}
            {"id":1,"statements":["SELECT 1","SELECT 2"]}
            {"from":"2023-11-14 22:13:20+00","to":"2023-11-14 22:13:21+00","cause":"unaccounted","requests":null,"transactions":null,"recorder":null,"xids":[1,2],"session":null,"reason":"public.forum"}
            {"taken":"2023-11-14 22:13:20+00","xmin":690,"xmax":700,"in_progress":[690,695],"kind":"template","database":"forum_base","folder":null,"wal_archive":null}
            {"number":0,"started":"2023-11-14 22:13:20+00","trace_id_prefix":18364758544493064720,"listen":"127.0.0.1:8080","app":"http://127.0.0.1:8000","pg_listen":"127.0.0.1:6432","postgres":"postgres://127.0.0.1/forum","database":"forum","server_version":"15.14","system_identifier":18446744073709551610,"raised_isolation":"repeatable read","hindcast_version":"0.1.0","redacted":["field:password"],"command":["serve","-p 8000"],"directory":"/srv/forum","environment":["LANG=C","API_TOKEN"],"pins_key":"\\x07\\x07\\x07\\x07\\x07\\x07\\x07\\x07\\x07\\x07\\x07\\x07\\x07\\x07\\x07\\x07\\x07\\x07\\x07\\x07\\x07\\x07\\x07\\x07\\x07\\x07\\x07\\x07\\x07\\x07\\x07\\x07","postgres_tls":0,"values_key":null}
            {"taken":"2023-11-14 22:13:22+00","tables":[{"table":"forum","rows":3,"digest":18446744073709551615}],"sequences":[{"sequence":"public.forum_id_seq","oid":16385}]}
        "#]],
    );
}
