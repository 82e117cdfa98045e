//! Statements of ours that stay prepared, against a real server: the client never notices, whatever
//! it deallocates or lists.

use std::sync::Arc;

use expect_test::expect;
use hindcast_wire::{Event, Keeping, ObserverOptions, SequenceColumns};

use crate::server::{CLUSTER, Wire, databases, shown};
use crate::support::relay::Relay;
use crate::support::script::{STARTUP, Session};

/// Each is sent in one write, in one session; the number of `ReadyForQuery`s that come back stands
/// in front.
const CORPUS: &[(usize, &[&str])] = &[
    (
        2,
        &[
            "P mine SELECT a FROM t ORDER BY a",
            "S",
            "B - mine",
            "E -",
            "S",
        ],
    ),
    (1, &["B - mine", "E -", "S"]),
    (1, &["B - mine", "E -", "S"]),
    (1, &["Q BEGIN"]),
    (1, &["B - mine", "E -", "S"]),
    (1, &["Q INSERT INTO guarded_log VALUES (1)"]),
    (1, &["Q SELECT 1/0"]),
    (1, &["Q COMMIT"]),
    (1, &["Q ROLLBACK"]),
    (
        1,
        &[
            "P - INSERT INTO guarded_log VALUES (2)",
            "B - -",
            "E -",
            "S",
        ],
    ),
    (1, &["P - SELECT 1/0", "B - -", "E -", "S"]),
    (1, &["P - SELECT nope", "B - -", "E -", "S"]),
    (
        3,
        &[
            "P - BEGIN",
            "B - -",
            "E -",
            "S",
            "P - SELECT count(*) FROM t",
            "B - -",
            "E -",
            "S",
            "P - COMMIT",
            "B - -",
            "E -",
            "S",
        ],
    ),
    (
        1,
        &[
            "P - BEGIN",
            "B - -",
            "E -",
            "P - SELECT count(*) FROM t",
            "B - -",
            "E -",
            "P - COMMIT",
            "B - -",
            "E -",
            "S",
        ],
    ),
    (1, &["Q DEALLOCATE ALL"]),
    (1, &["Q DEALLOCATE mine"]),
    (1, &["Q DEALLOCATE nobodys"]),
    (1, &["Q DISCARD ALL"]),
    (1, &["Q DISCARD PLANS"]),
    (1, &["Q SELECT 1; DEALLOCATE ALL; SELECT 2"]),
    (1, &["Q BEGIN; DEALLOCATE ALL; COMMIT"]),
    (1, &["P - DEALLOCATE ALL", "B - -", "E -", "S"]),
    (1, &["P - DISCARD ALL", "B - -", "E -", "S"]),
    (
        1,
        &["B - mine", "E -", "P - DEALLOCATE ALL", "B - -", "E -", "S"],
    ),
    (
        1,
        &[
            "P - DEALLOCATE ALL",
            "B - -",
            "B other mine",
            "E -",
            "E other",
            "S",
        ],
    ),
    (
        1,
        &[
            "P - SELECT 1/0",
            "B - -",
            "E -",
            "P - DEALLOCATE ALL",
            "B - -",
            "E -",
            "S",
        ],
    ),
    // What there is to be seen.
    (
        1,
        &["Q SELECT name, from_sql FROM pg_prepared_statements ORDER BY 1"],
    ),
    (
        1,
        &["Q SELECT name FROM pg_prepared_statement() AS p(name, a, b, c, d, e, f) ORDER BY 1"],
    ),
    (
        1,
        &[
            "P - SELECT name FROM pg_prepared_statements ORDER BY 1",
            "B - -",
            "E - 1",
            "E -",
            "S",
        ],
    ),
    (
        3,
        &[
            "Q SELECT count(*) FROM pg_prepared_statements",
            "Q SELECT a FROM t WHERE a = 1",
            "Q SELECT count(*) FROM pg_prepared_statements",
        ],
    ),
    (
        1,
        &["Q COPY (SELECT name FROM pg_prepared_statements ORDER BY 1) TO STDOUT"],
    ),
    (1, &["Q SELECT name FROM pg_cursors"]),
    // By ways around the text.
    (1, &["Q DO $$ BEGIN EXECUTE 'DEALL' || 'OCATE ALL'; END $$"]),
    (
        1,
        &["Q DO $$ BEGIN RAISE NOTICE '%', (SELECT count(*) FROM pg_prepared_statements); END $$"],
    ),
    (
        1,
        &[
            "P - DO $$ BEGIN EXECUTE 'DEALL' || 'OCATE ALL'; END $$",
            "B - -",
            "E -",
            "S",
        ],
    ),
    (1, &["Q SELECT run('DEALLOCATE ALL')"]),
    (1, &["Q SELECT run('DISCARD ' || 'PLANS')"]),
];

/// Those behind which a session keeps nothing.
const LAST: &[(usize, &[&str])] = &[
    (
        1,
        &["Q PREPARE p AS SELECT name FROM pg_prepared_statements ORDER BY 1"],
    ),
    (1, &["Q EXECUTE p"]),
    (
        1,
        &["Q PREPARE q(int) AS SELECT count(*) FROM pg_prepared_statements WHERE $1 = 1"],
    ),
    (1, &["Q EXECUTE q(1)"]),
    (
        1,
        &["Q DECLARE c CURSOR WITH HOLD FOR SELECT name FROM pg_prepared_statements ORDER BY 1"],
    ),
    (1, &["Q FETCH ALL FROM c"]),
    (1, &["Q CLOSE c"]),
    (
        1,
        &[
            "P view SELECT name FROM pg_prepared_statements ORDER BY 1",
            "S",
        ],
    ),
    (1, &["Q EXECUTE view"]),
    (1, &["P all DEALLOCATE ALL", "S"]),
    (1, &["B - all", "E -", "S"]),
];

/// SplitMix64
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut value = self.0;
        value = (value ^ value >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        value = (value ^ value >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((value ^ value >> 31) % end as u64) as usize
    }
}

fn with_run(names: &[&str]) {
    databases(names);
    for name in names {
        CLUSTER
            .sql(
                name,
                "CREATE FUNCTION run(text) RETURNS void LANGUAGE plpgsql AS $$ BEGIN EXECUTE $1; END $$",
            )
            .unwrap();
    }
}

/// Groups of the corpus in random order; in every third there is also, from the middle on, what
/// ends the keeping.
fn groups(seed: u64) -> Vec<(usize, Vec<&'static str>)> {
    let mut random = Random(seed);
    let ends_at = match seed % 3 {
        0 => 40,
        _ => usize::MAX,
    };
    let group = |at: usize| {
        let mut group = (0, Vec::new());
        for _ in 0..1 + random.below(4) {
            let among = match at >= ends_at && random.below(2) == 0 {
                true => LAST,
                false => CORPUS,
            };
            let (ready, lines) = among[random.below(among.len())];
            group.0 += ready;
            group.1.extend_from_slice(lines);
        }
        group
    };
    (0..80).map(group).collect()
}

/// `SEED=n cargo test -p hindcast-wire --test it kept::` runs one seed, `SEEDS=n` runs more.
fn seeds() -> std::ops::Range<u64> {
    let number = |name: &str| std::env::var(name).ok()?.parse::<u64>().ok();
    match number("SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("SEEDS").unwrap_or(8),
    }
}

#[test]
fn whatever_a_client_deallocates_and_lists_it_sees_the_same() {
    for seed in seeds() {
        let names = [
            format!("kept_direct_{seed}"),
            format!("kept_observed_{seed}"),
        ];
        with_run(&[&names[0], &names[1]]);
        let relay = Relay::start(CLUSTER.port(), SequenceColumns::default());
        let groups = groups(seed);
        let play = |port, database: &str| {
            let mut wire = Wire::connect(port, database);
            let answers = |(ready, lines): &(usize, Vec<&str>)| {
                wire.send(lines);
                shown(&wire.until_ready(*ready))
            };
            groups.iter().map(answers).collect::<Vec<_>>()
        };
        let direct = play(CLUSTER.port(), &names[0]);
        let observed = play(relay.port, &names[1]);
        for ((direct, observed), (at, (_, lines))) in
            direct.iter().zip(&observed).zip(groups.iter().enumerate())
        {
            assert_eq!(direct, observed, "seed {seed}, group {at}: {lines:#?}");
        }
        for told in relay.finish() {
            told.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        }
        assert!(relay.keeping.is_permitted(), "seed {seed}: one was missing");
    }
}

/// All of it in one write, so that nothing is answered when most is sent.
#[test]
fn a_client_that_waits_for_nothing_deallocates_and_sees_the_same() {
    for seed in seeds() {
        let names = [
            format!("rush_direct_{seed}"),
            format!("rush_observed_{seed}"),
        ];
        with_run(&[&names[0], &names[1]]);
        let relay = Relay::start(CLUSTER.port(), SequenceColumns::default());
        let groups = groups(seed);
        let play = |port, database: &str| {
            let mut wire = Wire::connect(port, database);
            groups.iter().for_each(|(_, lines)| wire.send(lines));
            shown(&wire.until_ready(groups.iter().map(|(ready, _)| ready).sum()))
        };
        let direct = play(CLUSTER.port(), &names[0]);
        let observed = play(relay.port, &names[1]);
        let differ = direct
            .iter()
            .zip(&observed)
            .position(|(direct, observed)| direct != observed);
        let around =
            |answers: &[String], at: usize| answers[at.saturating_sub(6)..at + 2].join("\n");
        if let Some(at) = differ {
            let (direct, observed) = (around(&direct, at), around(&observed, at));
            panic!("seed {seed}\ndirect:\n{direct}\nobserved:\n{observed}");
        }
        assert_eq!(direct.len(), observed.len());
        for told in relay.finish() {
            told.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        }
        assert!(relay.keeping.is_permitted(), "seed {seed}: one was missing");
    }
}

/// Statements of ours that the server has, seen from within by a function that we take for
/// harmless.
fn kept(wire: &mut Wire) -> String {
    wire.value("SELECT seen()")
}

fn observed(database: &str) -> (Relay, Wire) {
    databases(&[database]);
    CLUSTER
        .sql(
            database,
            "CREATE FUNCTION seen() RETURNS bigint LANGUAGE sql AS \
             $$ SELECT count(*) FROM pg_prepared_statements WHERE name LIKE 'hindcast%' $$; \
             CREATE FUNCTION clear() RETURNS void LANGUAGE plpgsql AS $$ BEGIN DEALLOCATE ALL; END $$",
        )
        .unwrap();
    let relay = Relay::start(CLUSTER.port(), SequenceColumns::default());
    let wire = Wire::connect(relay.port, database);
    (relay, wire)
}

fn read(wire: &mut Wire) {
    wire.send(&["P - SELECT a FROM t", "B - -", "E -", "S"]);
    wire.until_ready(1);
}

fn block(wire: &mut Wire) -> Vec<String> {
    let mut answers = Vec::new();
    for text in ["BEGIN", "INSERT INTO guarded_log VALUES (1)", "COMMIT"] {
        wire.send(&[&format!("Q {text}")]);
        answers.extend(shown(&wire.until_ready(1)));
    }
    answers
}

#[test]
fn they_stay_prepared_from_flight_to_flight_and_no_longer_than_permitted() {
    let (relay, mut wire) = observed("kept_stay");
    // The first asks who runs it.
    read(&mut wire);
    assert_eq!(kept(&mut wire), "0");
    read(&mut wire);
    assert_eq!(kept(&mut wire), "1");
    read(&mut wire);
    assert_eq!(kept(&mut wire), "1");
    block(&mut wire);
    assert_eq!(kept(&mut wire), "3", "snapshot, id, and both");
    relay.keeping.doubt();
    read(&mut wire);
    assert_eq!(kept(&mut wire), "0");
    let look = relay.keeping.look();
    relay.keeping.found(look, true);
    read(&mut wire);
    assert_eq!(kept(&mut wire), "1");
    wire.send(&["Q SELECT 'DEALLOCATE'"]);
    wire.until_ready(1);
    assert_eq!(kept(&mut wire), "0");
    read(&mut wire);
    assert_eq!(kept(&mut wire), "1");
    // SQL's EXECUTE may run it later.
    wire.send(&["P named DEALLOCATE ALL", "S"]);
    wire.until_ready(1);
    assert_eq!(kept(&mut wire), "0");
    read(&mut wire);
    assert_eq!(kept(&mut wire), "0");
    assert!(relay.keeping.is_permitted());
    // And this by anyone.
    wire.send(&["Q CREATE VIEW listed AS SELECT * FROM pg_prepared_statements"]);
    wire.until_ready(1);
    assert!(!relay.keeping.is_permitted());
}

/// A function that we should have known of takes them away within a block. One transaction is lost
/// to that, and no other.
#[test]
fn where_one_is_missing_none_is_kept_any_more() {
    let (relay, mut wire) = observed("kept_missing");
    read(&mut wire);
    block(&mut wire);
    block(&mut wire);
    for text in [
        "BEGIN",
        "INSERT INTO guarded_log VALUES (1)",
        "SELECT clear()",
    ] {
        wire.send(&[&format!("Q {text}")]);
        wire.until_ready(1);
    }
    wire.send(&["Q COMMIT"]);
    assert_eq!(shown(&wire.until_ready(1)), ["C ROLLBACK", "Z I"]);
    assert!(!relay.keeping.is_permitted());
    assert!(block(&mut wire).contains(&"C COMMIT".to_owned()));
    read(&mut wire);
    assert_eq!(kept(&mut wire), "0");
    drop(wire);
    let aborted = relay.finish().into_iter().filter(|told| match told {
        Ok(Event::Transaction(told)) => told.outcome == hindcast_model::Outcome::Aborted,
        _ => false,
    });
    assert_eq!(aborted.count(), 1);
}

/// In between there is a pooler that gives sessions other backends than it names: here one that
/// names no true backend.
#[test]
fn nothing_is_kept_where_another_backend_runs_it() {
    let mut session = Session::new(keeping);
    session.run(STARTUP);
    session.shown.clear();
    session.backend = 8;
    for _ in 0..3 {
        session.run(READ);
    }
    let asked = session
        .shown
        .lines()
        .filter(|line| line.starts_with("» P ours"));
    let closed = session
        .shown
        .lines()
        .filter(|line| line.starts_with("» C S ours"));
    assert_eq!((asked.count(), closed.count()), (3, 3), "{}", session.shown);
}

fn keeping(options: &mut ObserverOptions) {
    let keeping = Arc::new(Keeping::default());
    keeping.found(keeping.look(), true);
    options.keeping = keeping;
}

const READ: &str = "> P - SELECT 1
    > B - -
    > E -
    > S
    < 1
    < 2
    < D 1
    < C SELECT 1
    < Z I
";

#[test]
fn one_is_asked_who_it_is_then_prepared_then_run() {
    let mut session = Session::new(keeping);
    session.run(STARTUP);
    session.shown.clear();
    for _ in 0..3 {
        session.run(READ);
    }
    session.run("> Q DISCARD ALL");
    let ours = session.shown.lines().filter(|line| line.contains("ours"));
    expect![[r#"
        » P ours <snapshot xid backend>
        » B ours ours
        » E ours
        » C P ours
        » C S ours
        » P ours_1 <snapshot xid>
        » B ours ours_1
        » E ours
        » C P ours
        » B ours ours_1
        » E ours
        » C P ours
        » P ours DISCARD TEMP
        » B ours ours
        » E ours
        » C P ours
        » C S ours
        » P ours <xid>
        » B ours ours
        » E ours
        » C P ours
        » C S ours
        » C S ours_1"#]]
    .assert_eq(&ours.collect::<Vec<_>>().join("\n"));
}

/// The client does not wait, and its batch fails before the server gets to ours.
#[test]
fn one_whose_batch_failed_was_not_prepared() {
    let mut session = Session::new(keeping);
    session.run(STARTUP);
    session.run(READ);
    session.shown.clear();
    session.run(
        "> P - SELECT nope
         > B - -
         > E -
         > S
         > P - SELECT 1
         > B - -
         > E -
         > S
         < E 42703 no column
         < Z I
         < 1
         < 2
         < D 1
         < C SELECT 1
         < Z I",
    );
    session.run(READ);
    let ours = session.shown.lines().filter(|line| line.contains("ours"));
    expect![[r#"
        » P ours_1 <snapshot xid>
        » B ours ours_1
        » E ours
        » C P ours
        » P ours <snapshot xid>
        » B ours ours
        » E ours
        » C P ours
        » C S ours
        » C S ours_1
        » P ours_2 <snapshot xid>
        » B ours ours_2
        » E ours
        » C P ours"#]]
    .assert_eq(&ours.collect::<Vec<_>>().join("\n"));
}
