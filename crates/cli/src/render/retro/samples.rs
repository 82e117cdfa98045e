//! Reports to render in tests, modelled on real ones.

use hindcast_retro::report::*;
use hindcast_trace::{Gap, GapCause, Id, Xid};

/// Request or transaction `n` of the only recorder.
pub fn id(n: u64) -> Id {
    Id::new(0, n)
}

pub fn strings(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

pub fn values(texts: &[&str]) -> RowText {
    texts.iter().map(|text| Some((*text).to_owned())).collect()
}

fn change(name: &str, before: Option<&str>, after: Option<&str>) -> ValueChange {
    ValueChange {
        name: name.to_owned(),
        before: before.map(str::to_owned),
        after: after.map(str::to_owned),
    }
}

fn group(what: &str, count: u64, first: u64, last: u64) -> Group<Id> {
    Group {
        what: what.to_owned(),
        count,
        first: id(first),
        last: id(last),
    }
}

fn by(of: &str, request: u64, statement: Option<&str>) -> Option<Cause> {
    Some(Cause::Transaction {
        request: Some(id(request)),
        transaction: Some(id(request * 2)),
        of: of.to_owned(),
        statement: statement.map(str::to_owned),
    })
}

fn table(name: &str, columns: &[&str], key: &[&str]) -> TableChange {
    TableChange {
        table: name.to_owned(),
        columns: strings(columns),
        key: strings(key),
        columns_changed: Vec::new(),
        added: 0,
        removed: 0,
        changed: 0,
        noise: 0,
        noise_columns: Vec::new(),
        not_paired: 0,
        rows: Vec::new(),
    }
}

fn kind(name: &str, requests: u64, responses: u64, transactions: u64) -> TypeSummary {
    TypeSummary {
        name: name.to_owned(),
        requests,
        executed: requests,
        responses_changed: responses,
        transactions_changed: transactions,
    }
}

const DUPLICATES: &str = "SELECT userid, forum, count(*) FROM mdl_forum_subscriptions\n  GROUP BY userid, forum HAVING count(*) > 1";
const INSERT: &str =
    "INSERT INTO mdl_forum_subscriptions (userid, forum) VALUES ($1, $2) RETURNING id";
const EXISTS: &str =
    "SELECT id FROM mdl_forum_subscriptions WHERE userid = $1 AND forum = $2 ORDER BY id LIMIT $3";
const UPSERT: &str = "INSERT INTO mdl_forum_subscriptions (userid, forum) VALUES ($1, $2) ON CONFLICT (userid, forum) DO UPDATE SET userid = excluded.userid RETURNING id";

/// What finds duplicate subscriptions, with as many as each run left behind.
fn duplicates(before: u64, after: u64) -> Check {
    let answer = |count: u64| Answer::Rows {
        columns: strings(&["userid", "forum", "count"]),
        rows: (0..count)
            .map(|n| values(&[&(5 + n).to_string(), "7", "2"]))
            .collect(),
        count,
    };
    Check {
        sql: DUPLICATES.to_owned(),
        before: answer(before),
        after: answer(after),
    }
}

/// Nothing but analysis was added to the forum.
pub fn faithful() -> Report {
    Report {
        from: id(10),
        to: id(69),
        change: Change {
            app: "./forum --statistics".to_owned(),
            ..Change::default()
        },
        outcome: Outcome::Faithful,
        counts: Counts {
            requests: 60,
            requests_executed: 60,
            transactions: 118,
            same: 117,
            same_failure: 1,
            ghosts: 2,
            ..Counts::default()
        },
        types: vec![
            kind("GET /forums/{id}/subscribers", 40, 0, 0),
            kind("POST /subscribe", 20, 0, 0),
        ],
        selection: None,
        responses: Responses::default(),
        transactions: Transactions::default(),
        state: State {
            against: Baseline::RecordedDatabase,
            tables: Vec::new(),
            tables_same: 3,
            incomparable: Vec::new(),
        },
        checks: Vec::new(),
        timing: Timing {
            prepare_us: 2_100_000,
            run_us: 1_240_000,
            compare_us: 300_000,
            original_us: 3_400_000,
            runs_given_up: 0,
            given_up_us: 0,
        },
        remarks: Vec::new(),
    }
}

/// Moodle's first attempt: check and insert in one transaction. Under snapshot isolation it races.
pub fn moodle_merge() -> Report {
    let mut report = faithful();
    report.change.app = "./forum --variant merged".to_owned();
    report.outcome = Outcome::Different;
    report.counts = Counts {
        requests: 60,
        requests_executed: 60,
        transactions: 118,
        same: 82,
        changed: 18,
        deleted: 18,
        ..Counts::default()
    };
    report.types = vec![
        kind("POST /subscribe", 20, 0, 36),
        kind("GET /forums/{id}/subscribers", 40, 0, 0),
    ];
    report.transactions = Transactions {
        changed: vec![
            TransactionChange {
                transaction: Some(id(20)),
                request: Some(id(10)),
                of: "POST /subscribe".to_owned(),
                kind: TransactionChangeKind::Statements {
                    before: strings(&[EXISTS]),
                    after: strings(&[EXISTS, INSERT]),
                },
            },
            TransactionChange {
                transaction: Some(id(22)),
                request: Some(id(10)),
                of: "POST /subscribe".to_owned(),
                kind: TransactionChangeKind::Deleted { into: Some(id(20)) },
            },
        ],
        groups: vec![
            group("POST /subscribe: other statements", 18, 20, 130),
            group("POST /subscribe: moved into another", 18, 22, 132),
        ],
    };
    report.checks = vec![duplicates(3, 3)];
    report
}

/// Moodle's second attempt: a unique index and an upsert.
pub fn moodle_upsert() -> Report {
    let mut report = moodle_merge();
    report.change = Change {
        app: "./forum --variant upsert".to_owned(),
        migrations: strings(&["unique-subscriptions.sql"]),
        ..Change::default()
    };
    report.counts = Counts {
        requests: 60,
        requests_executed: 60,
        responses_changed: 6,
        transactions: 118,
        same: 97,
        changed: 16,
        newly_failing: 2,
        added: 2,
        retries: 2,
        yielded: 1,
        newly_succeeding: 3,
        ..Counts::default()
    };
    report.types = vec![
        kind("POST /subscribe", 20, 3, 21),
        kind("GET /forums/{id}/subscribers", 40, 3, 0),
    ];
    report.responses = Responses {
        changed: vec![
            ResponseChange {
                request: id(12),
                of: "POST /subscribe".to_owned(),
                status: (Some(201), Some(200)),
                headers: Vec::new(),
                body: Some(BodyChange::Json {
                    changes: vec![
                        change("/created", Some("true"), Some("false")),
                        change("/subscription", Some("1003"), Some("1002")),
                    ],
                    more: 0,
                }),
                error: None,
            },
            ResponseChange {
                request: id(14),
                of: "GET /forums/{id}/subscribers".to_owned(),
                status: (Some(200), Some(200)),
                headers: vec![change("content-length", Some("412"), Some("301"))],
                body: Some(BodyChange::Json {
                    changes: vec![change(
                        "/subscribers/3",
                        Some(r#"{"subscription":1003,"id":5,"username":"user5"}"#),
                        None,
                    )],
                    more: 0,
                }),
                error: None,
            },
        ],
        groups: vec![
            group("POST /subscribe: 201 → 200", 3, 12, 61),
            group(
                "GET /forums/{id}/subscribers: header content-length changed, /subscribers/… is gone",
                3,
                14,
                68,
            ),
        ],
        noise: vec![group(
            "POST /subscribe: /subscription: a sequence value",
            5,
            30,
            66,
        )],
    };
    report.transactions.changed = [(21, 10), (23, 11), (27, 13)]
        .map(|(transaction, request)| TransactionChange {
            transaction: Some(id(transaction)),
            request: Some(id(request)),
            of: "POST /subscribe".to_owned(),
            kind: TransactionChangeKind::Statements {
                before: strings(&[INSERT]),
                after: strings(&[UPSERT]),
            },
        })
        .into();
    report.transactions.changed.push(TransactionChange {
        transaction: Some(id(24)),
        request: Some(id(12)),
        of: "POST /subscribe".to_owned(),
        kind: TransactionChangeKind::NewlyFailing {
            error: "could not serialize access due to concurrent update (40001)".to_owned(),
        },
    });
    report.transactions.changed.push(TransactionChange {
        transaction: None,
        request: Some(id(12)),
        of: "POST /subscribe".to_owned(),
        kind: TransactionChangeKind::Added {
            statements: strings(&[UPSERT]),
            error: None,
            retry: true,
        },
    });
    report.transactions.groups = vec![
        group("POST /subscribe: other statements", 16, 21, 130),
        group(
            "POST /subscribe: fails now: could not serialize access due to concurrent update (40001)",
            2,
            24,
            86,
        ),
        group("POST /subscribe: tried again", 2, 0, 0),
    ];
    let mut subscriptions = table(
        "mdl_forum_subscriptions",
        &["id", "userid", "forum"],
        &["id"],
    );
    subscriptions.removed = 3;
    subscriptions.noise = 5;
    subscriptions.changed = 5;
    subscriptions.noise_columns = strings(&["id: a sequence value"]);
    subscriptions.rows = [(1003, 5, 12), (1017, 6, 33), (1030, 7, 61)]
        .map(|(row, user, request): (u64, u64, u64)| RowChange {
            kind: RowChangeKind::Removed {
                row: values(&[&row.to_string(), &user.to_string(), "7"]),
            },
            before_by: by("POST /subscribe", request, Some(INSERT)),
            after_by: None,
        })
        .into();
    report.state.tables = vec![subscriptions];
    report.state.tables_same = 2;
    report.checks = vec![
        duplicates(3, 0),
        Check {
            sql: "SELECT count(*) FROM mdl_forum_subscriptions".to_owned(),
            before: Answer::Rows {
                columns: strings(&["count"]),
                rows: vec![values(&["1031"])],
                count: 1,
            },
            after: Answer::Rows {
                columns: strings(&["count"]),
                rows: vec![values(&["1028"])],
                count: 1,
            },
        },
    ];
    report
}

/// More of everything than is shown.
pub fn ten_thousand() -> Report {
    let mut report = moodle_upsert();
    report.counts = Counts {
        requests: 50_000,
        requests_executed: 30_000,
        requests_not_selected: 19_990,
        requests_skipped: 10,
        responses_changed: 11_220,
        transactions: 60_000,
        same: 41_000,
        same_failure: 120,
        changed: 9_000,
        deleted: 9_000,
        added: 480,
        retries: 410,
        newly_failing: 600,
        newly_succeeding: 280,
        yielded: 480,
        let_go: 2,
        ghosts: 31,
        ..Counts::default()
    };
    (report.to, report.change.skipped) = (id(50_009), strings(&["4", "GET /health"]));
    report.change.isolation = Some("serializable".to_owned());
    report.types = (1..=40)
        .map(|n| kind(&format!("GET /parts/{n}"), 1_250, 280, 0))
        .collect();
    report.responses.groups = (0..60)
        .map(|n| {
            group(
                &format!("GET /parts/{}: /items/{n} is gone", n % 40 + 1),
                187,
                14 + n,
                49_000 + n,
            )
        })
        .collect();
    report.responses.changed = (0..100)
        .map(|n| ResponseChange {
            request: id(14 + n),
            of: format!("GET /parts/{}", n % 40 + 1),
            status: (Some(200), Some(if n % 7 == 0 { 404 } else { 200 })),
            headers: Vec::new(),
            body: Some(BodyChange::Json {
                changes: (0..6)
                    .map(|i| change(&format!("/items/{n}/{i}"), Some("\"a\""), Some("\"b\"")))
                    .collect(),
                more: 40,
            }),
            error: None,
        })
        .collect();
    report.transactions.groups = (0..50)
        .map(|n| {
            group(
                &format!("POST /parts/{n}: other statements"),
                360,
                20 + n,
                100_000 + n,
            )
        })
        .collect();
    report.transactions.changed = (0..100)
        .map(|n| TransactionChange {
            transaction: Some(id(20 + n)),
            request: Some(id(10 + n)),
            of: format!("POST /parts/{n}"),
            kind: TransactionChangeKind::Results {
                before_rows: n,
                after_rows: n + 2,
            },
        })
        .collect();
    report.state.tables = (1..=30)
        .map(|n| {
            let mut parts = table(&format!("parts_{n}"), &["id", "name", "price"], &["id"]);
            parts.changed = 333;
            parts.added = 2;
            parts.not_paired = 1;
            parts.columns_changed = vec![change("currency", None, Some("text"))];
            parts.noise = 20;
            parts.noise_columns = strings(&["updated: a clock"]);
            parts.rows = (0..100)
                .map(|row: u64| RowChange {
                    kind: RowChangeKind::Changed {
                        before: values(&[&row.to_string(), "bolt, long", "3.10"]),
                        after: values(&[&row.to_string(), "bolt, long", "3.20"]),
                    },
                    before_by: by(
                        "POST /parts/{id}",
                        100 + row,
                        Some("UPDATE parts SET price = $1 WHERE id = $2"),
                    ),
                    after_by: by(
                        "POST /parts/{id}",
                        200 + row,
                        Some("UPDATE parts SET price = $1 WHERE id = $2"),
                    ),
                })
                .collect();
            parts
        })
        .collect();
    report.state.tables_same = 112;
    report.state.incomparable = (0..9)
        .map(|n| {
            (
                format!("audit_{n}"),
                "its key's type was changed from bigint to uuid".to_owned(),
            )
        })
        .collect();
    report.checks = (0..8).map(|n| duplicates(40 + n, 12)).collect();
    report.selection = Some(Selection {
        executed: (0..20)
            .map(|n| SelectedType {
                name: format!("GET /parts/{n}"),
                requests: 1_500,
                why: "reads parts_1, which POST /parts/1 writes".to_owned(),
                reads: strings(&["parts_1"]),
                writes: Vec::new(),
            })
            .collect(),
        left_out: (0..20)
            .map(|n| LeftOutType {
                name: format!("GET /pages/{n}"),
                requests: 1_000,
                why: "writes nothing".to_owned(),
            })
            .collect(),
        restarts: 2,
        tables_touched: (1..=60).map(|n| format!("parts_{n}")).collect(),
        undetermined: (0..9)
            .map(|n| {
                (
                    format!("DO $$ BEGIN EXECUTE 'SELECT {n}'; END $$"),
                    "dynamic SQL".to_owned(),
                )
            })
            .collect(),
    });
    report.remarks = (0..400)
        .map(|n| Remark::NotSentAgain {
            request: id(400 + n),
            reason: "its body was longer than --request-body-max".to_owned(),
        })
        .chain((0..20).map(|n| Remark::OutsideWriteRefused {
            statement: format!("UPDATE heartbeat SET at = now() WHERE worker = {n}"),
            times: 1_200,
        }))
        .collect();
    report
}

/// The changed service does not survive the recorded requests.
pub fn crashed() -> Report {
    let mut report = faithful();
    report.change.app =
        "DATABASE_URL=postgres://me:***@127.0.0.1:6432/forum ./forum --variant typo".to_owned();
    report.outcome = Outcome::Stopped {
        why: Stopped::ServiceExited {
            status: "exit status: 101".to_owned(),
            last_lines: strings(&[
                "thread 'worker' panicked at src/forum.rs:112:9:",
                "index out of bounds: the len is 3 but the index is 3",
            ]),
            in_flight: vec![id(31), id(33), id(34)],
        },
    };
    report.counts = Counts {
        requests: 60,
        requests_executed: 21,
        requests_not_sent: 39,
        transactions: 44,
        same: 41,
        not_over: 3,
        ..Counts::default()
    };
    report.state = nothing_compared("the run stopped before its end");
    report
}

/// The changed service waits for something that never comes.
pub fn hung() -> Report {
    let mut report = crashed();
    report.outcome = Outcome::Stopped {
        why: Stopped::Hung {
            after_s: 10.0,
            in_flight: (31..60).map(id).collect(),
            waits: (31..40)
                .map(|n| format!("request {n}: t{} waits for a lock of t61", n * 2))
                .collect(),
        },
    };
    report
}

/// Only what can matter was executed.
pub fn selected() -> Report {
    let mut report = moodle_upsert();
    report.counts.requests = 1_000;
    report.counts.requests_not_selected = 940;
    report.to = id(1_009);
    report.selection = Some(Selection {
        executed: vec![
            SelectedType {
                name: "POST /subscribe".to_owned(),
                requests: 20,
                why: "modified".to_owned(),
                reads: strings(&["mdl_forum_subscriptions"]),
                writes: strings(&["mdl_forum_subscriptions"]),
            },
            SelectedType {
                name: "GET /forums/{id}/subscribers".to_owned(),
                requests: 40,
                why: "reads mdl_forum_subscriptions, which POST /subscribe writes".to_owned(),
                reads: strings(&["mdl_forum_subscriptions", "mdl_user"]),
                writes: Vec::new(),
            },
        ],
        left_out: vec![LeftOutType {
            name: "GET /courses".to_owned(),
            requests: 940,
            why: "writes nothing, and reads nothing that the executed ones write".to_owned(),
        }],
        restarts: 1,
        tables_touched: strings(&["mdl_forum_subscriptions", "mdl_user"]),
        undetermined: vec![(
            "SELECT refresh_counters($1)".to_owned(),
            "dynamic SQL in refresh_counters".to_owned(),
        )],
    });
    let (xids, wrote) = (vec![Xid(812), Xid(815)], "public.mdl_user".to_owned());
    report.remarks = vec![
        Remark::ModifiedFound {
            types: strings(&["POST /subscribe"]),
        },
        Remark::ReadCommitted { transactions: 4 },
        Remark::CrossedGap {
            gap: Gap {
                from: 1_795_233_601_123_456,
                to: 1_795_233_602_123_456,
                cause: GapCause::Unaccounted { xids, wrote },
            },
        },
        Remark::GhostFailed {
            transaction: id(7),
            error: "column \"subject\" does not exist".to_owned(),
        },
    ];
    report
}

/// A migration that drops a column, adds one and changes what another holds.
pub fn migrated() -> Report {
    let mut report = faithful();
    report.outcome = Outcome::Different;
    report.change = Change {
        app: "./blog".to_owned(),
        migrations: strings(&["slugs.sql", "prices.sql"]),
        ..Change::default()
    };
    let mut posts = table("posts", &["id", "title", "slug", "body"], &["id"]);
    posts.changed = 2;
    posts.added = 1;
    posts.columns_changed = vec![
        change("summary", Some("text"), None),
        change("published", None, Some("timestamp with time zone")),
        change("price", Some("integer"), Some("numeric(10,2)")),
    ];
    let long = "all work and no play makes Jack a dull boy, ".repeat(20);
    posts.rows = vec![
        RowChange {
            kind: RowChangeKind::Changed {
                before: vec![
                    Some("1".into()),
                    Some("Hello, world".into()),
                    None,
                    Some(format!("{long}then")),
                ],
                after: vec![
                    Some("1".into()),
                    Some("Hello, world".into()),
                    Some("hello-world".into()),
                    Some(format!("{long}now")),
                ],
            },
            before_by: Some(Cause::Before),
            after_by: Some(Cause::Migration),
        },
        RowChange {
            kind: RowChangeKind::Changed {
                before: vec![
                    Some("4".into()),
                    Some(String::new()),
                    None,
                    Some("…".into()),
                ],
                after: vec![
                    Some("4".into()),
                    None,
                    Some("no title".into()),
                    Some("…".into()),
                ],
            },
            before_by: by(
                "POST /posts",
                41,
                Some("INSERT INTO posts (title, body) VALUES ($1, $2)"),
            ),
            after_by: by("POST /posts", 41, None),
        },
        RowChange {
            kind: RowChangeKind::Added {
                row: vec![
                    Some("5".into()),
                    Some("Deleted by a ghost".into()),
                    None,
                    Some(String::new()),
                ],
            },
            before_by: Some(Cause::Transaction {
                request: None,
                transaction: Some(id(77)),
                of: "a ghost".to_owned(),
                statement: Some("DELETE FROM posts WHERE id = $1".to_owned()),
            }),
            after_by: Some(Cause::Unknown),
        },
    ];
    report.state.tables = vec![posts];
    report.state.incomparable = vec![(
        "audit".to_owned(),
        "its key's type was changed from bigint to uuid".to_owned(),
    )];
    report
}

/// Rows are told apart by all they hold.
pub fn without_key() -> Report {
    let mut report = faithful();
    report.outcome = Outcome::Different;
    let mut log = table("log", &["at", "line"], &[]);
    log.added = 2;
    log.removed = 1;
    log.rows = vec![
        RowChange {
            kind: RowChangeKind::Count {
                row: values(&["2026-11-21", "subscribed 5 to 7"]),
                before: 1,
                after: 3,
            },
            before_by: by(
                "POST /subscribe",
                12,
                Some("INSERT INTO log VALUES ($1, $2)"),
            ),
            after_by: by(
                "POST /subscribe",
                14,
                Some("INSERT INTO log VALUES ($1, $2)"),
            ),
        },
        RowChange {
            kind: RowChangeKind::Count {
                row: vec![Some("2026-11-21".into()), None],
                before: 1,
                after: 0,
            },
            before_by: by("POST /subscribe", 12, None),
            after_by: None,
        },
    ];
    report.state.tables = vec![log];
    report
}

/// There is nothing to compare the final state with.
pub fn without_baseline() -> Report {
    let mut report = moodle_merge();
    report.state = nothing_compared("the recorded database has changed since the recording ended");
    report.checks = vec![Check {
        before: Answer::NotAsked,
        ..duplicates(0, 3)
    }];
    report
}

/// Everything that comes from clients or from the database tries to be something else.
pub fn hostile() -> Report {
    let evil = "<script>alert(1)</script>\"'&\u{1b}[2J\u{0}\u{202e}gpj.exe</style>";
    let long = "0123456789".repeat(3_000);
    let mut report = ten_thousand();
    report.change = Change {
        app: evil.to_owned(),
        migrations: strings(&[evil]),
        isolation: Some(evil.to_owned()),
        skipped: strings(&[evil]),
    };
    report.outcome = Outcome::Stopped {
        why: Stopped::ServiceExited {
            status: evil.to_owned(),
            last_lines: strings(&[evil, &long]),
            in_flight: vec![id(1)],
        },
    };
    report.types.truncate(3);
    report.types[0].name = evil.to_owned();
    report.responses.changed.truncate(4);
    report.responses.changed[0].of = evil.to_owned();
    report.responses.changed[0].error = Some(evil.to_owned());
    report.responses.changed[0].headers = vec![change(evil, Some(evil), Some(&long))];
    report.responses.changed[1].body = Some(BodyChange::Text {
        at: 7,
        before: long.clone(),
        after: format!("{evil}\n{evil}\tx\r\n"),
    });
    report.responses.changed[2].body = Some(BodyChange::Json {
        changes: vec![
            change(evil, Some(&long), None),
            change(&long, None, Some(evil)),
        ],
        more: 3,
    });
    report.responses.changed[3].body = Some(BodyChange::Unkept {
        before_bytes: 120_000,
        after_bytes: 130_000,
        after: evil.to_owned(),
    });
    report.responses.groups = vec![group(evil, 5, 14, 17), group(&long, 2, 15, 15)];
    report.responses.noise = vec![group(evil, 5, 14, 17)];
    report.transactions.groups = vec![group(evil, 5, 20, 21)];
    report.transactions.changed = vec![
        TransactionChange {
            transaction: Some(id(20)),
            request: Some(id(14)),
            of: evil.to_owned(),
            kind: TransactionChangeKind::Statements {
                before: strings(&[evil, &long]),
                after: strings(&[&long, evil]),
            },
        },
        TransactionChange {
            transaction: None,
            request: None,
            of: evil.to_owned(),
            kind: TransactionChangeKind::Added {
                statements: strings(&[evil]),
                error: Some(evil.to_owned()),
                retry: true,
            },
        },
    ];
    let mut evils = table(evil, &[evil, "wide"], &[evil]);
    evils.added = 1;
    evils.changed = 1;
    evils.noise_columns = strings(&[evil]);
    evils.noise = 1;
    evils.columns_changed = vec![change(evil, Some(evil), None)];
    evils.rows = vec![
        RowChange {
            kind: RowChangeKind::Added {
                row: values(&[evil, &long]),
            },
            before_by: Some(Cause::Unknown),
            after_by: by(evil, 14, Some(evil)),
        },
        RowChange {
            kind: RowChangeKind::Changed {
                before: values(&[evil, &long]),
                after: values(&[evil, &format!("{long}{evil}")]),
            },
            before_by: by(&long, 14, Some(&long)),
            after_by: by(evil, 15, Some(evil)),
        },
        // Fewer and more values than columns.
        RowChange {
            kind: RowChangeKind::Removed { row: Vec::new() },
            before_by: None,
            after_by: None,
        },
        RowChange {
            kind: RowChangeKind::Count {
                row: values(&["a", "b", "c"]),
                before: 0,
                after: u64::MAX,
            },
            before_by: None,
            after_by: None,
        },
    ];
    report.state.tables = vec![evils];
    report.state.incomparable = vec![(evil.to_owned(), evil.to_owned())];
    report.checks = vec![Check {
        sql: evil.to_owned(),
        before: Answer::Rows {
            columns: strings(&[evil]),
            rows: vec![values(&[evil]), values(&[&long]), vec![None]],
            count: 900,
        },
        after: Answer::Failed {
            error: evil.to_owned(),
        },
    }];
    report.selection = Some(Selection {
        executed: vec![SelectedType {
            name: evil.to_owned(),
            requests: 1,
            why: evil.to_owned(),
            reads: strings(&[evil]),
            writes: strings(&[&long]),
        }],
        left_out: vec![LeftOutType {
            name: evil.to_owned(),
            requests: 1,
            why: long.clone(),
        }],
        restarts: 1,
        tables_touched: strings(&[evil, &long]),
        undetermined: vec![(evil.to_owned(), evil.to_owned())],
    });
    report.remarks = vec![
        Remark::NotPinned {
            what: evil.to_owned(),
        },
        Remark::LetGo {
            transactions: 2,
            hint: long,
        },
    ];
    report
}

fn nothing_compared(reason: &str) -> State {
    State {
        against: Baseline::None {
            reason: reason.to_owned(),
        },
        tables: Vec::new(),
        tables_same: 0,
        incomparable: Vec::new(),
    }
}
