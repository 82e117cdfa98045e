//! What a recording says about its request types.

use std::collections::BTreeSet;
use std::time::Duration;

use expect_test::{Expect, expect};
use hindcast_cluster::{Cluster, Options};
use hindcast_select::{Catalog, Facts, Patterns, STATEMENTS_KEPT};
use hindcast_trace::*;
use tempfile::TempDir;

const START: Micros = 1_700_000_000_000_000;

/// Records requests and transactions one after the other, a millisecond apart.
struct Recording {
    folder: TempDir,
    writer: Writer,
    requests: u64,
    transactions: u64,
}

impl Recording {
    fn new<'a>(shapes: &[(u32, &'a [&'a str])]) -> Self {
        let folder = TempDir::new().unwrap();
        let options = WriterOptions {
            flush_interval: Duration::from_millis(20),
            ..WriterOptions::default()
        };
        let location = Location::folder(folder.path());
        let (writer, _) = Writer::create(&location, options).unwrap();
        for (id, statements) in shapes {
            writer.record(Record::Shape(Shape {
                id: ShapeId(*id),
                statements: statements.iter().map(|text| (*text).to_owned()).collect(),
            }));
        }
        Self {
            folder,
            writer,
            requests: 0,
            transactions: 0,
        }
    }

    /// A request with transactions of these shapes.
    fn request(&mut self, target: &str, status: u16, shapes: &[u32]) {
        self.request_as(Id::new(0, self.requests + 1), target, status, shapes);
    }

    fn request_as(&mut self, id: RequestId, target: &str, status: u16, shapes: &[u32]) {
        let (method, target) = target.split_once(' ').unwrap();
        self.requests += 1;
        let arrived = START + self.requests as Micros * 1000;
        for shape in shapes {
            self.transaction(Some(id), arrived + 100, *shape);
        }
        self.writer.record(Record::Request(Request {
            id,
            arrived,
            ended: arrived + 500,
            method: method.into(),
            target: target.into(),
            headers: Vec::new(),
            body: Vec::new(),
            caller_traceparent: None,
            user_id: None,
            came_to: None,
            came_from: None,
            came_by: None,
            clock: Vec::new(),
            secrets: Default::default(),
            calls: Vec::new(),
            response: Response::Answered {
                status,
                headers: Vec::new(),
                body_digest: Digest(0),
                body_bytes: 0,
                body: None,
            },
        }));
    }

    fn ghost(&mut self, shape: u32) {
        self.transaction(None, START + self.requests as Micros * 1000 + 900, shape);
    }

    fn transaction(&mut self, request: Option<RequestId>, began: Micros, shape: u32) {
        self.transactions += 1;
        self.writer.record(Record::Transaction(Transaction {
            id: Id::new(0, self.transactions),
            session: Id::new(0, 1),
            request: request.map(|id| (id, Attribution::Comment)),
            began,
            ended: began + 10,
            isolation: Isolation::ReadCommitted,
            snapshot: None,
            xid: None,
            subxids: Vec::new(),
            outcome: Outcome::Committed,
            now: None,
            shape: ShapeId(shape),
            result_digest: Digest(0),
            result_rows: 0,
            locks: Vec::new(),
            sequence_values: Vec::new(),
            drawn_uuids: Vec::new(),
            drawn: Vec::new(),
            clock: Vec::new(),
            server_bytes: None,
            secrets: Default::default(),
            client_bytes: None,
            statement_snapshots: Vec::new(),
            rechecked: Vec::new(),
            commit_lsn: None,
            values: None,
            row_order: Vec::new(),
        }));
    }

    fn close(self) -> (TempDir, Trace) {
        self.writer.close().unwrap();
        let trace = Trace::open(&Location::folder(self.folder.path())).unwrap();
        (self.folder, trace)
    }
}

fn shown(facts: &Facts) -> String {
    let join = |tables: &BTreeSet<String>| match tables.len() {
        0 => "nothing".to_owned(),
        _ => tables.iter().cloned().collect::<Vec<_>>().join(" "),
    };
    let mut shown = String::new();
    for (each, shapes) in facts.types.iter().zip(&facts.shapes) {
        let shapes: Vec<String> = shapes.iter().map(|it| it.0.to_string()).collect();
        let (name, requests) = (&each.name, each.requests);
        shown += &format!(
            "{name}: {requests}, shapes [{}], reads {}, writes {}\n",
            shapes.join(" "),
            join(&each.reads),
            join(&each.writes)
        );
        for (statement, reason) in &each.undetermined {
            shown += &format!("    {statement}: {reason}\n");
        }
    }
    shown
}

fn check(facts: &Facts, expected: Expect) {
    expected.assert_eq(&shown(facts));
}

fn forum() -> Recording {
    let mut recording = Recording::new(&[
        (
            1,
            &["BEGIN", "SELECT * FROM subs WHERE forum = $1", "COMMIT"],
        ),
        (2, &["INSERT INTO subs VALUES ($1, $2)"]),
        (3, &["SET application_name = $1"]),
        (
            4,
            &["CREATE TEMP TABLE x AS SELECT * FROM subs", "DELETE FROM x"],
        ),
        (5, &["BEGIN", "UPDATE subs SET a = $1", "COMMIT"]),
        (6, &["UPDATE subs SET a = $1"]),
        (7, &["DO $1"]),
    ]);
    recording.ghost(3);
    recording.request("POST /forums/1/subscribe", 200, &[1, 2]);
    recording.request("POST /forums/2/subscribe", 404, &[1]);
    recording.request("GET /forums/2?page=3", 200, &[1]);
    for hole in 0..100 {
        recording.request(&format!("GET /hole-{hole}.php"), 404, &[]);
    }
    recording.request("GET /report", 200, &[4, 99]);
    recording.request("GET /odd", 200, &[7, 7]);
    recording.ghost(5);
    recording.ghost(6);
    recording.ghost(5);
    recording
}

#[tokio::test]
async fn types_have_the_tables_of_their_statements() {
    let cluster = Cluster::temporary_async(Options::throw_away())
        .await
        .unwrap();
    let client = cluster.connect("postgres").await.unwrap();
    let tables = "CREATE TABLE forums (id int PRIMARY KEY); CREATE TABLE subs (forum int REFERENCES forums, a int)";
    client.batch_execute(tables).await.unwrap();
    let catalog = Catalog::load(&client).await.unwrap();
    let (_folder, trace) = forum().close();
    let facts = Facts::of(&trace, 0..Micros::MAX, &Patterns::default(), &catalog).unwrap();
    check(
        &facts,
        expect![[r#"
            (no request) SET application_name = $1: 1, shapes [3], reads nothing, writes nothing
            (no request) UPDATE subs SET a = $1: 3, shapes [5 6], reads public.subs, writes public.subs
            GET (not found): 100, shapes [], reads nothing, writes nothing
            GET /forums/{id}: 1, shapes [1], reads public.subs, writes nothing
            GET /odd: 1, shapes [7], reads nothing, writes nothing
                DO $1: DO runs code that is not part of its recorded text
            GET /report: 1, shapes [4 99], reads public.subs, writes nothing
                (a transaction): the recording does not say what it was made of
            POST /forums/{id}/subscribe: 2, shapes [1 2], reads public.forums public.subs, writes public.subs
        "#]],
    );
    let name_of = |sequence| {
        let number = facts.type_of(Id::new(0, sequence))?;
        Some(facts.types[number].name.as_str())
    };
    assert_eq!(name_of(1), Some("POST /forums/{id}/subscribe"));
    assert_eq!(name_of(3), Some("GET /forums/{id}"));
    assert_eq!(name_of(1000), None);
    let ghost = |shape| facts.ghost_type(ShapeId(shape));
    assert_eq!(ghost(5), ghost(6));
    assert_eq!(
        facts.types[ghost(3).unwrap()].name,
        "(no request) SET application_name = $1"
    );
    assert_eq!(ghost(1), None);
    assert!(facts.touches_nothing(ShapeId(3)));
    assert!(!facts.touches_nothing(ShapeId(99)));
}

#[test]
fn types_can_be_named_without_a_database_and_within_a_range() {
    let (_folder, trace) = forum().close();
    let patterns = Patterns::parse(&["/forums/{forum}/{action}".to_owned()]).unwrap();
    let first_three = START..START + 3500;
    let facts = Facts::named(&trace, first_three, &patterns).unwrap();
    check(
        &facts,
        expect![[r#"
            (no request) SET application_name = $1: 1, shapes [3], reads nothing, writes nothing
            GET /forums/{id}: 1, shapes [1], reads nothing, writes nothing
            POST /forums/{forum}/{action}: 2, shapes [1 2], reads nothing, writes nothing
        "#]],
    );
}

#[tokio::test]
async fn transactions_of_which_statements_were_left_out_touch_anything() {
    let cluster = Cluster::temporary_async(Options::throw_away())
        .await
        .unwrap();
    let client = cluster.connect("postgres").await.unwrap();
    client
        .batch_execute("CREATE TABLE t (a int)")
        .await
        .unwrap();
    let catalog = Catalog::load(&client).await.unwrap();
    let all = ["INSERT INTO t VALUES ($1)"; STATEMENTS_KEPT];
    let mut recording = Recording::new(&[(1, &all[1..]), (2, &all)]);
    recording.request("POST /some", 200, &[1]);
    recording.request("POST /many", 200, &[2]);
    let (_folder, trace) = recording.close();
    let facts = Facts::of(&trace, 0..Micros::MAX, &Patterns::default(), &catalog).unwrap();
    check(
        &facts,
        expect![[r#"
            POST /many: 1, shapes [2], reads nothing, writes public.t
                (a transaction): only its first 4096 statements were kept
            POST /some: 1, shapes [1], reads nothing, writes public.t
        "#]],
    );
}

#[test]
fn requests_keep_their_types_whoever_recorded_them() {
    let mut recording = Recording::new(&[]);
    for (recorder, sequence, target) in [
        (0, 7, "/a"),
        (3, 1, "/b"),
        (0, 8, "/b"),
        (3, 2, "/a"),
        (0, 5000, "/a"),
    ] {
        recording.request_as(
            Id::new(recorder, sequence),
            &format!("GET {target}"),
            200,
            &[],
        );
    }
    let (_folder, trace) = recording.close();
    let facts = Facts::named(&trace, 0..Micros::MAX, &Patterns::default()).unwrap();
    let name_of = |recorder, sequence| {
        let number = facts.type_of(Id::new(recorder, sequence))?;
        Some(facts.types[number].name.as_str())
    };
    assert_eq!(name_of(0, 7), Some("GET /a"));
    assert_eq!(name_of(3, 1), Some("GET /b"));
    assert_eq!(name_of(0, 8), Some("GET /b"));
    assert_eq!(name_of(3, 2), Some("GET /a"));
    assert_eq!(name_of(0, 5000), Some("GET /a"));
    for (recorder, sequence) in [(0, 6), (0, 9), (0, 4999), (0, 5001), (1, 7), (3, 0), (3, 3)] {
        assert_eq!(name_of(recorder, sequence), None, "{recorder}.{sequence}");
    }
}
