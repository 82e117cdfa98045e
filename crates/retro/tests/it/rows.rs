//! What two databases hold, row by row, on a real server.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use expect_test::{Expect, expect};
use hindcast_pg::tokio::Client;
use hindcast_retro::drawn::Drawn;
use hindcast_retro::report::{Cause, RowChangeKind, RowText, TableChange};
use hindcast_retro::rows::{Causes, Compared, Limits, Reasons, compare_states};

use crate::support::{Nobody, WINDOW, pair};

fn reasons(ids: &[(String, String)]) -> Reasons<'_> {
    static NOTHING: LazyLock<Drawn> = LazyLock::new(Drawn::default);
    Reasons {
        window: &WINDOW,
        drawn: &NOTHING,
        ids,
    }
}

async fn compared(a: &Client, b: &Client) -> Compared {
    compare_states(a, b, None, &Nobody, reasons(&[]), &Limits::default())
        .await
        .unwrap()
}

fn shown(row: &RowText) -> String {
    let values: Vec<_> = row
        .iter()
        .map(|value| value.as_deref().unwrap_or("NULL"))
        .collect();
    values.join(", ")
}

fn text(table: &TableChange) -> String {
    let mut text = format!(
        "{} +{} -{} ~{}, noise {}: {:?}\n",
        table.table, table.added, table.removed, table.changed, table.noise, table.noise_columns
    );
    for change in &table.columns_changed {
        text += &format!(
            "  column {}: {:?} → {:?}\n",
            change.name, change.before, change.after
        );
    }
    for row in &table.rows {
        text += &match &row.kind {
            RowChangeKind::Added { row } => format!("  + {}\n", shown(row)),
            RowChangeKind::Removed { row } => format!("  - {}\n", shown(row)),
            RowChangeKind::Changed { before, after } => {
                format!("  ~ {} → {}\n", shown(before), shown(after))
            }
            RowChangeKind::Count { row, before, after } => {
                format!("  {before} → {after} times {}\n", shown(row))
            }
        };
    }
    text
}

fn check(compared: &Compared, expected: Expect) {
    let mut all: String = compared.tables.iter().map(text).collect();
    all += &format!("{} same\n", compared.tables_same);
    for (table, reason) in &compared.incomparable {
        all += &format!("{table}: {reason}\n");
    }
    expected.assert_eq(&all);
}

#[tokio::test]
async fn rows_that_differ_are_counted_and_described() {
    let (_cluster, a, b) = pair(
        "CREATE TABLE forum (id int PRIMARY KEY, name text); CREATE TABLE same (k int); CREATE TABLE log (line text); \
         INSERT INTO forum SELECT g, 'forum ' || g FROM generate_series(1, 20) g; INSERT INTO log VALUES ('x'), ('x'), ('y')",
        "INSERT INTO forum VALUES (30, 'only before'); INSERT INTO log VALUES ('z'), ('z')",
        "UPDATE forum SET name = NULL WHERE id = 3; INSERT INTO forum VALUES (25, 'new'); INSERT INTO log VALUES ('y'), ('y'), ('w')",
    )
    .await;
    let mut compared = compared(&a, &b).await;
    // Rows without a key come in no particular order.
    compared.tables[1]
        .rows
        .sort_by_key(|row| format!("{row:?}"));
    check(
        &compared,
        expect![[r#"
            public.forum +1 -1 ~1, noise 0: []
              ~ 3, forum 3 → 3, NULL
              + 25, new
              - 30, only before
            public.log +3 -2 ~0, noise 0: []
              + w
              1 → 3 times y
              2 → 0 times z
            1 same
        "#]],
    );
}

#[tokio::test]
async fn a_changed_schema_is_reported_and_the_rest_compared() {
    let (_cluster, a, b) = pair(
        "CREATE TABLE t (k int PRIMARY KEY, v varchar(9), n int); INSERT INTO t VALUES (1, 'x', 1), (2, 'y', 2); \
         CREATE TABLE other (k int PRIMARY KEY); CREATE TABLE third (v int); INSERT INTO third VALUES (1)",
        "",
        "ALTER TABLE t ALTER v TYPE text, ALTER n TYPE text, ADD extra int; UPDATE t SET v = 'z' WHERE k = 2; \
         ALTER TABLE other ALTER k TYPE text; CREATE TABLE new (k int PRIMARY KEY); INSERT INTO new VALUES (7); UPDATE third SET v = 2",
    )
    .await;
    check(
        &compared(&a, &b).await,
        expect![[r#"
            public.new +1 -0 ~0, noise 0: []
              column k: None → Some("integer")
              + 7
            public.t +0 -0 ~1, noise 0: []
              column n: Some("integer") → Some("text")
              column extra: None → Some("integer")
              ~ 2, y → 2, z
            public.third +1 -1 ~0, noise 0: []
              - 1
              + 2
            0 same
            public.other: rows of the table public.other cannot be told apart in the same way: the column k of its primary key is integer in the first database, text in the second
        "#]],
    );
    let only: BTreeSet<String> = ["public.third".to_owned()].into();
    let compared = compare_states(
        &a,
        &b,
        Some(&only),
        &Nobody,
        reasons(&[]),
        &Limits::default(),
    )
    .await
    .unwrap();
    assert_eq!((compared.tables.len(), compared.incomparable.len()), (1, 0));
}

#[tokio::test]
async fn clocks_and_numbers_are_noise_also_where_others_refer_to_them() {
    let (_cluster, a, b) = pair(
        "CREATE TABLE post (id bigserial PRIMARY KEY, title text, at timestamptz DEFAULT now(), modified bigint); \
         CREATE TABLE comment (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), post bigint REFERENCES post, said text); \
         CREATE TABLE tag (post bigint REFERENCES post, tag text, PRIMARY KEY (post, tag)); \
         INSERT INTO post VALUES (1, 'first', '2024-05-01 12:01+00', 1714564860)",
        "INSERT INTO post VALUES (2, 'second', '2024-05-01 12:02+00', 1714564920), (3, 'third', '2024-05-01 12:03+00', 0); \
         INSERT INTO comment VALUES (DEFAULT, 2, 'yes'), (DEFAULT, 1, 'no'); INSERT INTO tag VALUES (2, 'x'), (3, 'y')",
        "UPDATE post SET at = '2024-06-03 09:01+00', modified = 1717405260; \
         INSERT INTO post VALUES (7, 'second', '2024-06-03 09:02+00', 1717405320), (8, 'fourth', '2024-06-03 09:02+00', 0); \
         INSERT INTO comment VALUES (DEFAULT, 7, 'yes'), (DEFAULT, 1, 'perhaps'); INSERT INTO tag VALUES (7, 'x'), (1, 'y')",
    )
    .await;
    // Their keys are random.
    let mut compared = compared(&a, &b).await;
    for row in &mut compared.tables[0].rows {
        match &mut row.kind {
            RowChangeKind::Added { row } | RowChangeKind::Removed { row } => row[0] = None,
            other => panic!("{other:?}"),
        }
    }
    compared.tables[0]
        .rows
        .sort_by_key(|row| format!("{row:?}"));
    check(
        &compared,
        expect![[r#"
            public.comment +2 -2 ~0, noise 2: ["id: randomness", "post: a sequence"]
              + NULL, 1, perhaps
              - NULL, 1, no
            public.post +2 -2 ~1, noise 3: ["id: a sequence", "at: a clock", "modified: a clock"]
              - 3, third, 2024-05-01 12:03:00+00, 0
              + 8, fourth, 2024-06-03 09:02:00+00, 0
            public.tag +2 -2 ~0, noise 2: ["post: a sequence"]
              + 1, y
              - 3, y
            0 same
        "#]],
    );
}

#[tokio::test]
async fn ids_that_the_service_made_otherwise_are_noise_where_they_stand_for_each_other() {
    let (_cluster, a, b) = pair(
        "CREATE TABLE post (id text PRIMARY KEY, title text); CREATE TABLE comment (n int PRIMARY KEY, post text, said text)",
        "INSERT INTO post VALUES ('one', 'a title'), ('two', 'another'); INSERT INTO comment VALUES (1, 'one', 'yes'), (2, 'two', 'no')",
        "INSERT INTO post VALUES ('uno', 'a title'), ('due', 'changed'); INSERT INTO comment VALUES (1, 'uno', 'yes'), (2, 'uno', 'no')",
    )
    .await;
    let ids = [("uno", "one"), ("due", "two")];
    let ids = ids.map(|(now, was)| (now.to_owned(), was.to_owned()));
    let limits = Limits::default();
    let compared = compare_states(&a, &b, None, &Nobody, reasons(&ids), &limits);
    check(
        &compared.await.unwrap(),
        expect![[r#"
        public.comment +0 -0 ~2, noise 1: ["post: randomness"]
          ~ 2, two, no → 2, uno, no
        public.post +2 -2 ~0, noise 2: ["id: randomness"]
          + due, changed
          - two, another
        0 same
    "#]],
    );
}

#[tokio::test]
async fn limits_bound_what_is_described_and_not_what_is_counted() {
    let (_cluster, a, b) = pair(
        "CREATE TABLE t (id serial PRIMARY KEY, v text)",
        "INSERT INTO t SELECT g, 'v' || g FROM generate_series(1, 1000) g; INSERT INTO t VALUES (0, repeat('ä', 500))",
        "INSERT INTO t SELECT g + 5000, 'v' || g FROM generate_series(1, 1000) g; UPDATE t SET v = 'w' WHERE id > 5990",
    )
    .await;
    let limits = Limits {
        described_per_table: 3,
        value_characters: 10,
        renumbered_candidates: 500,
    };
    let compared = compare_states(&a, &b, None, &Nobody, reasons(&[]), &limits)
        .await
        .unwrap();
    let table = &compared.tables[0];
    assert_eq!((table.added, table.removed), (1000, 1001));
    // The first 500 removed ones waited, and 499 of them found a counterpart, which made room for
    // as many added ones.
    assert_eq!(table.noise, 2 * 499);
    assert_eq!(table.not_paired, 501 + (501 - 499));
    let described: Vec<_> = table
        .rows
        .iter()
        .map(|row| match &row.kind {
            RowChangeKind::Removed { row } | RowChangeKind::Added { row } => {
                row[0].clone().unwrap()
            }
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(described, ["0", "500", "501"]);
    let RowChangeKind::Removed { row } = &table.rows[0].kind else {
        panic!("{table:?}")
    };
    let value = row[1].as_deref().unwrap();
    assert!(
        value.starts_with("ääääääääää… (500 characters, hash "),
        "{value}"
    );
}

#[tokio::test]
async fn causes_are_asked_with_what_the_row_says() {
    struct Echo;
    impl Causes for Echo {
        fn before(&self, table: &str, xmin: u32, cmin: u32) -> Cause {
            assert!(xmin > 0);
            echo(&format!("{table} before {cmin}"))
        }
        fn after(&self, table: &str, xmin: u32, cmin: u32) -> Cause {
            assert!(xmin > 0);
            echo(&format!("{table} after {cmin}"))
        }
        fn deleted(&self, table: &str, key: &str) -> Option<Cause> {
            Some(echo(&format!("{table} deleted {key}")))
        }
    }
    fn echo(said: &str) -> Cause {
        Cause::Transaction {
            request: None,
            transaction: None,
            of: String::new(),
            statement: Some(said.to_owned()),
        }
    }
    let (_cluster, a, b) = pair(
        "BEGIN; CREATE TABLE t (k int, l text, v int, PRIMARY KEY (l, k)); COMMIT; BEGIN; INSERT INTO t VALUES (1, 'a b', 1), (2, 'c', 2); COMMIT",
        "",
        "DELETE FROM t WHERE k = 1",
    )
    .await;
    // One command after the other, each with its own number.
    b.batch_execute("BEGIN; UPDATE t SET v = 3; INSERT INTO t VALUES (9, 'z', 9); COMMIT")
        .await
        .unwrap();
    let compared = compare_states(&a, &b, None, &Echo, reasons(&[]), &Limits::default())
        .await
        .unwrap();
    let by: Vec<_> = compared.tables[0]
        .rows
        .iter()
        .map(|row| (row.before_by.clone(), row.after_by.clone()))
        .collect();
    let said = |text: &str| Some(echo(text));
    assert_eq!(
        by,
        [
            (
                said("public.t before 0"),
                said("public.t deleted (\"a b\",1)")
            ),
            (said("public.t before 0"), said("public.t after 0")),
            (None, said("public.t after 1")),
        ]
    );
}
