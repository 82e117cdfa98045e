//! A replayed database holds exactly what a transaction saw, among writers that ran beside it.

use futures::future::BoxFuture;
use hindcast_replay::see::{Moment, SeeError, SeeOptions, View, ViewError, see};
use hindcast_rewind::Rewound;
use hindcast_trace::{Location, Outcome, RequestFilter, Trace, Transaction, TransactionFilter};

use crate::common::*;

/// The transactions of a request, by its path; of `None`, those of no request.
fn transactions(recorded: &Recorded, path: Option<&str>) -> (Trace, Vec<Transaction>) {
    let trace = Trace::open(&Location::folder(recorded.folder.path().join("trace"))).unwrap();
    let requests: Vec<_> = trace
        .requests(RequestFilter::default())
        .map(Result::unwrap)
        .collect();
    let target = |transaction: &Transaction| {
        let (id, _) = transaction.request?;
        let request = requests.iter().find(|request| request.id == id).unwrap();
        Some(request.target.as_str())
    };
    let all = trace.transactions(TransactionFilter::default());
    let found = all
        .map(Result::unwrap)
        .filter(|transaction| target(transaction) == path)
        .collect();
    (trace, found)
}

fn view_of(recorded: &Recorded, path: &str, moment: Moment) -> (Trace, Result<View, ViewError>) {
    let (trace, found) = transactions(recorded, Some(path));
    let view = View::of(&trace, &found[0], moment);
    (trace, view)
}

async fn shown(recorded: &Recorded, trace: &Trace, view: &View) -> Result<Rewound, SeeError> {
    let range = view.range(trace).unwrap().expect("there are requests");
    let mut prepared = recorded
        .prepare(Some(*range.start()), Some(*range.end()))
        .await;
    assert!(view.narrow(&mut prepared.plan));
    let options = SeeOptions {
        setting: prepared.options.setting,
        keep_going: false,
    };
    let seeing = see(
        prepared.trace,
        prepared.plan,
        view,
        options,
        &mut prepared.hooks,
    );
    let divergences = tokio::time::timeout(PATIENCE, seeing)
        .await
        .expect("it comes to an end")?;
    assert_eq!(divergences, []);
    Ok(prepared.rewound)
}

/// What a query yields in the database as the first transaction of a request saw it.
async fn seen(recorded: &Recorded, path: &str, moment: Moment, query: &str) -> String {
    let (trace, view) = view_of(recorded, path, moment);
    let rewound = shown(recorded, &trace, &view.unwrap()).await.unwrap();
    let rows = recorded.cluster.sql(rewound.database(), query).unwrap();
    rewound.discard().await.unwrap();
    rows.replace('\n', " ")
}

const WHO: &str = "SELECT who FROM claim ORDER BY who";

/// `/long` writes before `/look` takes its snapshot and commits before `/look` does.
fn beside(call: Call) -> BoxFuture<'static, Result<String, tokio_postgres::Error>> {
    Box::pin(async move {
        let session = call.session().await?;
        let insert = |who: &str| format!("INSERT INTO claim VALUES (1, '{who}')");
        match call.path.as_str() {
            "/long" => {
                session.run("BEGIN").await?;
                session.run(&insert("long")).await?;
                call.world.next();
                call.turn(4).await;
                session.run("COMMIT").await?;
                call.world.next();
            }
            "/look" => {
                session.run("BEGIN").await?;
                session.run("SELECT count(*) FROM claim").await?;
                call.world.next();
                call.turn(3).await;
                session.run(&insert("own 1")).await?;
                session
                    .prepared("UPDATE counter SET n = n + 1 WHERE k = 1 RETURNING n::text")
                    .await?;
                call.world.next();
                call.turn(5).await;
                session.run(&insert("own 2")).await?;
                session.run("COMMIT").await?;
            }
            path => {
                session.run(&insert(path)).await?;
                session
                    .run("UPDATE counter SET n = n + 10 WHERE k = 2")
                    .await?;
            }
        }
        Ok(String::new())
    })
}

async fn recorded_beside() -> Recorded {
    let stage = Stage::new(beside).await;
    stage.request("/before").await;
    let long = stage.begin("/long", 1).await;
    let look = stage.begin("/look", 2).await;
    stage.request("/during").await;
    stage.world.next();
    for request in [long, look] {
        assert_eq!(request.await.unwrap(), "200 ");
    }
    stage.request("/after").await;
    stage.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn neither_more_nor_less_is_seen_than_was() {
    let recorded = recorded_beside().await;
    let saw = async |path, moment| seen(&recorded, path, moment, WHO).await;
    // `/long` had its id before, and was not committed; `/during` committed before `/look` ended.
    assert_eq!(saw("/look", Moment::Snapshot).await, "/before");
    assert_eq!(saw("/long", Moment::Snapshot).await, "/before");
    assert_eq!(saw("/during", Moment::Snapshot).await, "/before");
    assert_eq!(saw("/before", Moment::Snapshot).await, "");
    assert_eq!(
        saw("/after", Moment::Snapshot).await,
        "/before /during long own 1 own 2"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn its_own_writes_are_seen_up_to_the_statement() {
    let recorded = recorded_beside().await;
    let query = "SELECT (SELECT string_agg(who, ' ' ORDER BY who) FROM claim), n FROM counter \
                  WHERE k = 1";
    let saw = async |moment| seen(&recorded, "/look", moment, query).await;
    // BEGIN, SELECT, INSERT, UPDATE, INSERT, COMMIT
    for statement in 1..=3 {
        assert_eq!(saw(Moment::Statement(statement)).await, "/before|0");
    }
    assert_eq!(saw(Moment::Statement(4)).await, "/before own 1|0");
    assert_eq!(saw(Moment::Statement(5)).await, "/before own 1|1");
    let all = "/before own 1 own 2|1";
    assert_eq!(saw(Moment::Statement(6)).await, all);
    assert_eq!(saw(Moment::End).await, all);
    let (_, view) = view_of(&recorded, "/look", Moment::Statement(7));
    let message = view.unwrap_err().to_string();
    assert!(
        message.ends_with("has 6 statements, and no statement 7"),
        "{message}"
    );
    // One that has no COMMIT of its own.
    assert_eq!(
        seen(&recorded, "/before", Moment::Statement(1), WHO).await,
        ""
    );
    assert_eq!(
        seen(&recorded, "/before", Moment::End, WHO).await,
        "/before"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_snapshot_or_its_statements_nothing_can_be_told() {
    let recorded = recorded_beside().await;
    let (trace, mut found) = transactions(&recorded, Some("/look"));
    let mut look = found.remove(0);
    look.shape = hindcast_trace::ShapeId(7);
    assert!(View::of(&trace, &look, Moment::Snapshot).is_ok());
    let view = View::of(&trace, &look, Moment::End);
    assert!(matches!(view, Err(ViewError::NoStatements(_))), "{view:?}");
    look.snapshot = None;
    let view = View::of(&trace, &look, Moment::Snapshot);
    assert!(matches!(view, Err(ViewError::NoSnapshot(_))), "{view:?}");
}

/// Both read, both insert the same key, and the second one fails.
fn take(call: Call) -> BoxFuture<'static, Result<String, tokio_postgres::Error>> {
    Box::pin(async move {
        let session = call.session().await?;
        session.run("BEGIN").await?;
        session.run("SELECT count(*) FROM taken").await?;
        call.world.meet(2).await;
        session.run("INSERT INTO serial (who) VALUES ('x')").await?;
        session
            .run(&format!("INSERT INTO taken VALUES (1, '{}')", call.path))
            .await?;
        session.run("COMMIT").await?;
        Ok(String::new())
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_one_saw_that_aborted_is_seen_without_its_own_writes() {
    let stage = Stage::new(take).await;
    let mut answers = stage.at_once(&["/a", "/b"]).await;
    answers.sort();
    assert_eq!(answers, ["200 ", "409 23505"]);
    let recorded = stage.stop().await;
    let both = ["/a", "/b"].map(|path| transactions(&recorded, Some(path)).1.remove(0));
    let lost = both.iter().position(|one| one.outcome == Outcome::Aborted);
    let path = ["/a", "/b"][lost.expect("one aborted")];
    let query = "SELECT count(*) FROM taken";
    assert_eq!(seen(&recorded, path, Moment::Snapshot, query).await, "0");
    assert_eq!(
        seen(&recorded, path, Moment::Statement(3), query).await,
        "0"
    );
    let (_, view) = view_of(&recorded, path, Moment::Statement(4));
    assert!(matches!(view, Err(ViewError::Aborted(_))), "{view:?}");
}

/// Texts of several statements; the key of `/later` is checked when it commits.
fn odd(call: Call) -> BoxFuture<'static, Result<String, tokio_postgres::Error>> {
    Box::pin(async move {
        let session = call.session().await?;
        let text = match call.path.as_str() {
            "/one-text" => "INSERT INTO claim VALUES (1, 'a'); INSERT INTO claim VALUES (2, 'b')",
            "/split" => {
                "BEGIN; INSERT INTO claim VALUES (3, 'c'); INSERT INTO claim VALUES (4, 'd'); COMMIT"
            }
            _ => {
                "BEGIN; INSERT INTO later VALUES (1, 7); INSERT INTO later VALUES (7, NULL); COMMIT"
            }
        };
        session.run(text).await
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_moment_that_cannot_be_shown_is_refused() {
    let stage = Stage::new(odd).await;
    for path in ["/one-text", "/split", "/later"] {
        assert!(stage.request(path).await.starts_with("200"));
    }
    let recorded = stage.stop().await;
    let query = "SELECT string_agg(who, ' ' ORDER BY who) FROM claim";
    let (trace, view) = view_of(&recorded, "/one-text", Moment::Statement(2));
    let refused = shown(&recorded, &trace, &view.unwrap()).await;
    assert!(matches!(refused, Err(SeeError::InOneText)), "{refused:?}");
    assert_eq!(
        seen(&recorded, "/one-text", Moment::End, query).await,
        "a b"
    );
    assert_eq!(
        seen(&recorded, "/split", Moment::Statement(3), query).await,
        "a b c"
    );
    assert_eq!(
        seen(&recorded, "/split", Moment::End, query).await,
        "a b c d"
    );
    let (trace, view) = view_of(&recorded, "/later", Moment::Statement(3));
    let refused = shown(&recorded, &trace, &view.unwrap()).await.unwrap_err();
    let message = refused.to_string();
    assert!(
        message.contains("cannot be committed") && message.contains("(23503)"),
        "{message}"
    );
    let query = "SELECT count(*) FROM later";
    assert_eq!(seen(&recorded, "/later", Moment::End, query).await, "2");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_ghost_can_be_looked_at_as_well() {
    let stage = Stage::new(beside).await;
    stage.request("/before").await;
    let stranger = stage.stranger().await;
    stranger
        .batch_execute(
            "BEGIN; INSERT INTO claim VALUES (1, 'ghost'); UPDATE counter SET n = 5; COMMIT",
        )
        .await
        .unwrap();
    drop(stranger);
    stage.request("/after").await;
    let recorded = stage.stop().await;
    let (trace, ghosts) = transactions(&recorded, None);
    let ghost = ghosts
        .iter()
        .find(|one| one.xid.is_some())
        .expect("a writer");
    for (moment, expected) in [
        (Moment::Snapshot, "/before"),
        (Moment::Statement(3), "/before ghost"),
    ] {
        let view = View::of(&trace, ghost, moment).unwrap();
        let rewound = shown(&recorded, &trace, &view).await.unwrap();
        let rows = recorded.cluster.sql(rewound.database(), WHO).unwrap();
        assert_eq!(rows.replace('\n', " "), expected);
    }
}
