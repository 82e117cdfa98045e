//! Against a real server: of every id that a session used it is known that it did, or among which
//! few it is.

use std::collections::BTreeSet;
use std::ops::Range;

use hindcast_cluster::{Cluster, Options};
use hindcast_wire::{Event, SequenceColumns};

use crate::support::relay::Relay;

const SCHEMA: &str = "CREATE TABLE t (a int, b int);
    INSERT INTO t SELECT i, i FROM generate_series(1, 100) i;
    CREATE INDEX old ON t (b);
    CREATE PROCEDURE inside() LANGUAGE plpgsql AS $$ BEGIN
        INSERT INTO t VALUES (1); COMMIT; INSERT INTO t VALUES (2); COMMIT; INSERT INTO t VALUES (3);
    END $$;
    CREATE FUNCTION scratch() RETURNS void LANGUAGE plpgsql AS $$ BEGIN
        CREATE TEMP TABLE IF NOT EXISTS hidden (a int); INSERT INTO hidden VALUES (1);
    END $$;";

/// What a session told of its ids.
#[derive(Default)]
struct Known {
    ids: BTreeSet<u64>,
    /// Those that could not be asked for: the statement, and among which ids its own are.
    unasked: Vec<(String, Range<u64>)>,
    inside: Vec<String>,
}

/// Runs statements in one session of `psql` through an observer, each in a message of its own.
/// Returns what was told, and which ids were assigned and committed meanwhile.
fn session(cluster: &Cluster, statements: &[&str]) -> (Known, BTreeSet<u64>) {
    let next = || -> u64 {
        let snapshot = "SELECT pg_snapshot_xmax(pg_current_snapshot())";
        let answer = cluster.sql("postgres", snapshot).unwrap();
        answer.trim().parse().unwrap()
    };
    let relay = Relay::start(cluster.port(), SequenceColumns::default());
    let user = cluster.sql("postgres", "SELECT current_user").unwrap();
    let connection = format!(
        "host=127.0.0.1 port={} user={} dbname=postgres",
        relay.port,
        user.trim()
    );
    let from = next();
    let mut psql = std::process::Command::new("psql");
    psql.args(["-Xq", "-v", "ON_ERROR_STOP=1", "-d", &connection]);
    statements.iter().for_each(|text| {
        psql.args(["-c", text]);
    });
    let output = psql.output().unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let mut known = Known::default();
    for event in relay.finish() {
        match event.unwrap() {
            Event::Transaction(told) => {
                known.ids.extend(told.xid.map(|xid| xid.0));
                known.ids.extend(told.subxids.iter().map(|xid| xid.0));
            }
            Event::OwnXid { xid } => {
                known.ids.insert(xid.0);
            }
            Event::Unasked {
                statement,
                xids,
                commits_inside,
                ..
            } => {
                let text = statement.map_or("end".to_owned(), |of| of.text.clone());
                let xids = xids.expect("both questions were answered");
                if commits_inside {
                    known.inside.push(text.clone());
                }
                known.unasked.push((text, xids.start.0..xids.end.0));
            }
            _ => {}
        }
    }
    let committed = format!(
        "SELECT x FROM generate_series({from}, {}) x WHERE pg_xact_status(x::text::xid8) = 'committed'",
        next() - 1
    );
    let committed = cluster.sql("postgres", &committed).unwrap();
    let committed = committed
        .split_whitespace()
        .map(|xid| xid.parse().unwrap())
        .collect();
    (known, committed)
}

fn cluster() -> Cluster {
    let options = Options::throw_away().set("autovacuum", "off");
    let cluster = Cluster::temporary(options).expect("a private server");
    cluster.sql("postgres", SCHEMA).unwrap();
    cluster
}

#[test]
fn ids_that_cannot_be_asked_for_are_among_those_that_are_told() {
    let cluster = cluster();
    let refusing = [
        "CREATE INDEX CONCURRENTLY young ON t (a)",
        "REINDEX TABLE CONCURRENTLY t",
        "REINDEX TABLE t",
        "VACUUM FULL t",
        "VACUUM ANALYZE t",
        "CLUSTER t USING old",
        "DROP INDEX CONCURRENTLY young",
        "CREATE DATABASE other",
        "DROP DATABASE other",
        "CALL inside()",
        "DO $$ BEGIN INSERT INTO t VALUES (4); COMMIT; INSERT INTO t VALUES (5); END $$",
    ];
    let mut statements = refusing.to_vec();
    statements.insert(4, "INSERT INTO t VALUES (6)");
    let (known, committed) = session(&cluster, &statements);
    assert!(committed.len() >= 20, "{committed:?}");
    for xid in &committed {
        let among = known.unasked.iter().any(|(_, ids)| ids.contains(xid));
        assert!(
            among != known.ids.contains(xid),
            "{xid}: {:?} {:?}",
            known.ids,
            known.unasked
        );
    }
    let told: u64 = known
        .unasked
        .iter()
        .map(|(_, ids)| ids.end - ids.start)
        .sum();
    assert_eq!(
        told as usize + known.ids.len(),
        committed.len(),
        "alone, they are exactly its own: {:?}",
        known.unasked
    );
    assert_eq!(known.unasked.len(), refusing.len(), "{:?}", known.unasked);
    assert_eq!(known.inside.len(), 2, "{:?}", known.inside);
}

#[test]
fn ids_by_which_temporary_tables_go_are_known() {
    let cluster = cluster();
    let (known, committed) = session(
        &cluster,
        &[
            "SELECT scratch()",
            "DISCARD ALL",
            "SELECT scratch()",
            "DISCARD TEMP",
            "CREATE TEMP TABLE seen (a int)",
            "DISCARD SEQUENCES",
            "SELECT scratch()",
        ],
    );
    assert!(committed.len() >= 7, "{committed:?}");
    assert_eq!((known.ids, known.unasked), (committed, Vec::new()));
}
