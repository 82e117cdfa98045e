//! The views of `export --sql`, as DuckDB answers them: of two recorders, several segments and a
//! pruned part.

use std::time::{Duration, Instant};

use expect_test::{Expect, expect};
use hindcast_trace::*;
use hindcast_view::export;
use tempfile::TempDir;

use crate::made::{Made, Own};
use crate::python;

const READS: &str = "SELECT balance FROM account WHERE id = $1";
const WRITES: &str = "UPDATE account SET balance = $1 WHERE id = $2";
const LOGS: &str = "INSERT INTO log (entry) VALUES ('it''s')";

/// One recorder, each of whose requests is a segment of its own.
struct Recorder {
    writer: Writer,
    number: u16,
}

impl Recorder {
    fn new(location: &Location) -> Self {
        let options = WriterOptions {
            flush_interval: Duration::from_millis(10),
            roll_bytes_max: 1,
            ..WriterOptions::default()
        };
        let (writer, number) = Writer::create(location, options).unwrap();
        let mut made = Made::new();
        made.shape(1, &[READS, WRITES]).shape(2, &[READS]);
        made.shape(3, &[LOGS])
            .take()
            .into_iter()
            .for_each(|record| writer.record(record));
        Self { writer, number }
    }

    /// A request with one transaction.
    fn gives(&self, own: Own<'_>, change: impl Fn(&mut Transaction)) {
        let mut made = Made::new();
        made.request(own.number, own.began - 1, 12, "POST /move?n=1", 0);
        for mut record in made.transaction(own).take() {
            match &mut record {
                Record::Request(request) => request.id = Id::new(self.number, own.number),
                Record::Transaction(transaction) => {
                    let id = Id::new(self.number, own.number);
                    transaction.id = id;
                    transaction.request = Some((id, Attribution::Comment));
                    change(transaction);
                }
                _ => {}
            }
            self.writer.record(record);
        }
        let (segments, deadline) = (own.number, Instant::now() + Duration::from_secs(60));
        while self.writer.status().segments_written < segments {
            assert!(Instant::now() < deadline, "no segment is written");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// 1 and 1.1 race, by two recorders; 2 aborts; 3 sees 1, and in its second statement 1.1 as well,
/// under READ COMMITTED; 4 logs.
fn recorded(location: &Location) {
    let (first, second) = (Recorder::new(location), Recorder::new(location));
    let own = |number, began, shape, xid, snapshot| Own {
        number,
        began,
        ended: began + 10,
        shape,
        xid: Some(xid),
        snapshot,
        ..Own::default()
    };
    first.gives(own(1, 100, 1, 700, "700:700:"), |_| ());
    second.gives(own(1, 100, 1, 701, "700:701:700"), |_| ());
    let aborts = Own {
        aborted: true,
        ..own(2, 120, 1, 702, "702:702:")
    };
    first.gives(aborts, |_| ());
    first.gives(own(3, 200, 1, 703, "701:703:701"), |own| {
        own.isolation = Isolation::ReadCommitted;
        own.statement_snapshots = [(0, "701:703:701"), (1, "704:704:")]
            .map(|(statement, saw)| StatementSnapshot {
                statement,
                snapshot: saw.parse().unwrap(),
            })
            .to_vec();
    });
    first.gives(own(4, 300, 3, 704, "704:704:"), |_| ());
    first.writer.close().unwrap();
    second.writer.close().unwrap();
}

#[track_caller]
fn check(location: &Location, folder: &TempDir, queries: &str, expected: &Expect) {
    let trace = Trace::open(location).unwrap();
    let mut script = Vec::new();
    export::sql(&trace, &folder.path().join("trace"), &mut script).unwrap();
    std::fs::write(folder.path().join("views.sql"), script).unwrap();
    let program = format!(
        r#"
import duckdb, sys
connection = duckdb.connect()
connection.execute("SET TimeZone = 'UTC'")
# Twice: what is there is replaced.
for _ in range(2):
    connection.execute(open(sys.argv[1]).read())
for query in '''{queries}'''.strip().split(";"):
    for row in connection.execute(query).fetchall():
        print(*row)
    print("--")
"#
    );
    let script = folder.path().join("views.sql").display().to_string();
    expected.assert_eq(&python::print(&program, &script));
}

#[test]
fn who_saw_whom_is_told_across_recorders_and_segments() {
    let folder = TempDir::new().unwrap();
    let location = Location::folder(folder.path().join("trace"));
    recorded(&location);
    check(
        &location,
        &folder,
        r#"
SELECT name, strftime(arrived, '%H:%M:%S.%f'), path, outcome FROM requests ORDER BY arrived, id;
SELECT name, request, xid, snapshot_xmin, snapshot_xmax, snapshot_in_progress, outcome FROM transactions ORDER BY began, id;
SELECT * FROM snapshots ORDER BY 1, 2;
SELECT name_of(transaction), name_of(request), xid, statement, "table", text FROM wrote ORDER BY 3, 4;
SELECT name_of(transaction) AS t, statement, "table", name_of(writer) AS w, overlapped FROM saw ORDER BY ALL;
SELECT name_of(transaction) AS t, statement, "table", name_of(writer) AS w FROM unseen ORDER BY ALL;
SELECT name_of(s.transaction), any_value(w.text) FROM saw s JOIN wrote w ON w.transaction = s.writer AND w."table" = s."table" GROUP BY s.transaction ORDER BY 1;
SELECT count(*) FROM raw.recorders;
SELECT count(*) FROM raw.gaps"#,
        &expect![[r#"
            1 04:00:00.000099 /move broken
            1.1 04:00:00.000099 /move broken
            2 04:00:00.000119 /move broken
            3 04:00:00.000199 /move broken
            4 04:00:00.000299 /move broken
            --
            t1 1 700 700 700 [] committed
            t1.1 281474976710657 701 700 701 [700] committed
            t2 2 702 702 702 [] aborted
            t3 3 703 701 703 [701] committed
            t4 4 704 704 704 [] committed
            --
            1 1 None 700 []
            2 1 None 702 []
            3 1 2 703 [701]
            3 2 None 704 []
            4 1 None 704 []
            281474976710657 1 None 701 [700]
            --
            1 1 700 2 account UPDATE account SET balance = $1 WHERE id = $2
            1.1 1.1 701 2 account UPDATE account SET balance = $1 WHERE id = $2
            3 3 703 2 account UPDATE account SET balance = $1 WHERE id = $2
            4 4 704 1 log INSERT INTO log (entry) VALUES ('it''s')
            --
            2 1 account 1 False
            2 1 account 1.1 False
            2 2 account 1 False
            2 2 account 1.1 False
            3 1 account 1 False
            3 2 account 1 False
            3 2 account 1.1 False
            --
            1 1 account 1.1
            1 2 account 1.1
            1.1 1 account 1
            1.1 2 account 1
            --
            2 UPDATE account SET balance = $1 WHERE id = $2
            3 UPDATE account SET balance = $1 WHERE id = $2
            --
            0
            --
            0
            --
        "#]],
    );
}

#[test]
fn what_was_pruned_is_gone_and_what_it_left_is_there_once() {
    let folder = TempDir::new().unwrap();
    let location = Location::folder(folder.path().join("trace"));
    recorded(&location);
    let options = PruneOptions {
        older_than: None,
        keep_bytes: Some(1),
        ignore_bases: true,
    };
    let plan = plan_prune(&location, None, &options).unwrap();
    prune(&location, None, &plan, |_| ()).unwrap();
    check(
        &location,
        &folder,
        r#"
SELECT name FROM requests ORDER BY id;
SELECT recorder, through > '000000' FROM raw.pruned ORDER BY 1;
SELECT id, len(statements) FROM raw.shapes ORDER BY ALL;
SELECT count(*) FROM statements"#,
        &expect![[r#"
            --
            r0 True
            r1 True
            --
            1 2
            2 1
            3 1
            --
            4
            --
        "#]],
    );
}
