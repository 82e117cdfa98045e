//! Retroaction as its user sees it: the paper's case studies with the fixes that were tried (R³,
//! section 6), the four kinds of change, and everything that can go wrong. Real services on a real
//! Postgres; races are provoked, not simulated.

use std::sync::atomic::{AtomicBool, Ordering};

use expect_test::{Expect, expect};
use hindcast_tests::Finished;
use hindcast_tests::retro::{Case, FAILED, Report, STOPPED, SUCCESS, USAGE};

/// A page as its reader sees it, but for what differs from run to run: times, paths, ports, and who
/// of two at once came first.
#[track_caller]
fn check(page: &Finished, expected: Expect) {
    let mut text = page.stdout.clone();
    let from_then_on = text
        .find("\nTime: ")
        .expect("a page ends with the time it took");
    text.truncate(from_then_on + 1);
    for (pattern, stands_for) in [
        (
            r"(?s)  what ran .*?\n(  with[^\n]*\n|)\n",
            "  what ran     SERVICE\n\n",
        ),
        (r"\bid=4[01]\b", "id=40|41"),
        (r"request 4[12]\b", "request 41|42"),
        (r"\(4[12]\)", "(41|42)"),
        // Which of two rows that were written at a time comes first.
        (r"/subscribers/[12] ", "/subscribers/1|2 "),
        (r"\bt(5[7-9]|6[0-3])\b", "t57|63"),
    ] {
        let pattern = regex::Regex::new(pattern).expect("it is a regular expression");
        text = pattern.replace_all(&text, stands_for).into_owned();
    }
    expected.assert_eq(&text);
}

// ---- Moodle, MDL-59854 (section 6.1)
// ---------------------------------------------------------------------------

const DUPLICATES: &str =
    "SELECT userid, forum, count(*) FROM mdl_forum_subscriptions GROUP BY 1, 2 HAVING count(*) > 1";

/// Twenty users subscribe one after the other; then a double click subscribes another one twice.
fn moodle() -> Case {
    Case::recorded("moodle", "0.02", |case| {
        let mut client = case.client();
        let mut send = |method: &str, target: &str, body: Option<&str>| {
            let sent = client.send(method, target, body);
            assert!(sent.expect("the service answers").status < 300);
        };
        for user in 1..=20 {
            let body = format!("{{\"userid\":{user},\"forum\":{}}}", user % 7 + 1);
            send("POST", "/subscribe", Some(&body));
            send(
                "GET",
                &format!("/forums/{}/subscribers", user % 7 + 1),
                None,
            );
        }
        let body = "{\"userid\":42,\"forum\":3}";
        case.both_wait_for("mdl_forum_subscriptions", || {
            let statuses = case.both(("/subscribe", body), ("/subscribe", body));
            assert_eq!(statuses, [201, 201]);
        });
        assert_eq!(case.stage.sql(DUPLICATES).trim(), "42|3|2");
        send("GET", "/forums/3/subscribers", None);
    })
}

/// Eight users at a time subscribe to the same few forums.
fn busy_moodle() -> Case {
    Case::recorded("moodle", "0.02", |case| {
        std::thread::scope(|scope| {
            for client in 0..8 {
                scope.spawn(move || {
                    let mut http = case.client();
                    for round in 0..20 {
                        let body = format!(
                            "{{\"userid\":{},\"forum\":{}}}",
                            client * 12 + round % 12 + 1,
                            round + 1
                        );
                        let sent = http.send("POST", "/subscribe", Some(&body));
                        assert!(sent.expect("the service answers").status < 300);
                    }
                });
            }
        });
    })
}

#[test]
fn moodle_merging_the_transactions_is_not_enough_and_a_unique_key_with_upsert_is() {
    let case = moodle();
    let before = case.state();

    // The first fix: check and insert in one transaction. Write skew: neither sees what the other
    // one inserts.
    let merged = case.retro("merged", &["--check", DUPLICATES]);
    let (then, now) = merged.check(0);
    assert!(then >= 1);
    assert_eq!(now, then, "the race is still there");
    assert_eq!(merged.count("responses_changed"), 0);
    assert!(
        merged.count("deleted") > 0,
        "inserts moved into the check's transaction"
    );
    assert_eq!(merged.count("added"), 0);
    assert_eq!(merged.count("let_go"), 0);
    assert_eq!(merged.0["state"]["tables_same"], 3);

    let page = case.run(&case.service("merged"), &["--check", DUPLICATES]);
    check(
        &page,
        expect![[r#"
        Retroaction: different in 42 transactions
          still there  check 1, the same 1 row before and after
          requests     43 (1 to 43): all executed
          transactions 64: 22 same, 21 changed, 21 deleted
          what ran     SERVICE

        Checks
          1  SELECT userid, forum, count(*) FROM mdl_forum_subscriptions GROUP BY 1, 2 HAVING count(*) > 1
             still there: the same 1 row before and after
               = userid=42, forum=3, count=2

        Request types                                       requests  executed  responses  transactions
                                                                                  changed       changed
          POST /subscribe                                         22        22          0            42
          GET /forums/{id}/subscribers                            21        21          0             0

        Transactions: 42 different
          21 × POST /subscribe: moved into another (t2–t57|63)
               t2 of request 1: its writes moved into t1
          21 × POST /subscribe: other statements (t1–t57|63)
               t1 of request 1: now also INSERT INTO mdl_forum_subscriptions (userid, forum) VALUES ($1, $2…

        Final state: 3 the same, compared with the recorded database

        More: --html FILE is a page with every difference that was described, --json the same for programs.
        `hindcast show t2` shows what was recorded there.
    "#]],
    );

    // The fix that stayed.
    let unique = case.migration(
        "DELETE FROM mdl_forum_subscriptions later USING mdl_forum_subscriptions earlier
          WHERE later.userid = earlier.userid AND later.forum = earlier.forum AND later.id > earlier.id;
         CREATE UNIQUE INDEX ON mdl_forum_subscriptions (userid, forum);",
    );
    let upsert = case.retro("upsert", &["--migrate", &unique, "--check", DUPLICATES]);
    assert_eq!(upsert.check(0), (then, 0), "the race is gone");
    let rows = upsert.table("public.mdl_forum_subscriptions");
    assert!(rows["removed"].as_u64() >= Some(1), "{}", upsert.0["state"]);
    let removed = &rows["rows"][0]["before_by"];
    assert_eq!(removed["of"], "POST /subscribe");
    assert!(
        removed["statement"]
            .as_str()
            .is_some_and(|text| text.starts_with("INSERT INTO mdl_forum_subscriptions")),
        "{removed}"
    );
    let page = case.run(
        &case.service("upsert"),
        &["--migrate", &unique, "--check", DUPLICATES],
    );
    check(
        &page,
        expect![[r#"
            Retroaction: different in 2 responses, 22 transactions and 1 table
              gone         check 1, 1 row before, none after
              new          errors of 1 transaction
              requests     43 (1 to 43): all executed
              transactions 64: 42 same, 21 changed, 1 newly failing
              what ran     SERVICE

            Checks
              1  SELECT userid, forum, count(*) FROM mdl_forum_subscriptions GROUP BY 1, 2 HAVING count(*) > 1
                 gone: 1 row before, none after
                   − userid=42, forum=3, count=2

            Request types                                       requests  executed  responses  transactions
                                                                                      changed       changed
              POST /subscribe                                         22        22          1            21
              GET /forums/{id}/subscribers                            21        21          1             1

            Responses: 2 changed
              1 × GET /forums/{id}/subscribers: /subscribers/* is gone (43)
                  request 43: /subscribers/1|2 {"city":"Bogota","country":"CO","email"… is gone
              1 × POST /subscribe: 201 → 409 (41|42)
                  request 41|42: /error "serialization_failure" is new; /message "could not serialize access due t…

            Transactions: 22 different
              20 × POST /subscribe: other statements (t2–t57|63)
                   t2 of request 1: INSERT INTO mdl_forum_sub … now with ON CONFLICT (userid, forum) DO UPDATE …
               1 × GET /forums/{id}/subscribers: other results (t64)
                   t64 of request 43: 6 rows → 5
               1 × POST /subscribe: fails now: could not serialize access due to concurrent update (40001) (t57|63)

            Final state: 1 table different, 2 the same, compared with the recorded database
              public.mdl_forum_subscriptions  −1 removed
                − id=40|41, userid=42, forum=3
                    originally written by POST /subscribe, request 41|42: INSERT INTO mdl_forum_subscriptions (use…

            More: --html FILE is a page with every difference that was described, --json the same for programs.
            `hindcast show 43` shows what was recorded there.
        "#]],
    );
    assert_eq!(case.state(), before, "the original database is untouched");
}

#[test]
fn the_same_code_is_a_faithful_replay_and_says_so() {
    let case = moodle();
    let same = case.retro("original", &[]);
    assert_eq!(same.outcome(), "faithful");
    assert_eq!(same.count("same"), same.count("transactions"));
    assert_eq!(same.0["state"]["against"]["baseline"], "recorded_database");

    // Requests may be left out; then it is not.
    let page = case
        .run(
            &case.service("original"),
            &[
                "--skip",
                "1,2",
                "--skip-type",
                "GET /forums/{id}/subscribers",
            ],
        )
        .assert_code(SUCCESS)
        .stdout;
    assert!(page.contains("skipped"), "{page}");
    let skipped = case.retro("original", &["--skip", "1,2"]);
    assert_eq!(skipped.outcome(), "different");
    assert_eq!(skipped.count("requests_skipped"), 2);
    assert_eq!(
        skipped.count("requests_executed") + 2,
        skipped.count("requests")
    );
}

// ---- WordPress, WP-11437 (section 6.2)
// -------------------------------------------------------------------------

#[test]
fn wordpress_upsert_leaves_serialization_errors_until_transactions_are_tried_again() {
    let mut lost = 0;
    let case = Case::recorded("wp-options", "0.01", |case| {
        let mut client = case.client();
        for number in 1..=20 {
            let body = format!("{{\"option_name\":\"new_{number}\",\"option_value\":\"v\"}}");
            let mut both = || {
                let statuses = case.both(("/options", &body), ("/options", &body));
                lost += statuses.iter().filter(|&&status| status >= 400).count();
            };
            // Left to chance, the loser's snapshot may see the winner's option. Once it must not.
            match number {
                20 => case.both_wait_for("wp_options", both),
                _ => both(),
            }
            client
                .send("GET", &format!("/options/new_{number}"), None)
                .expect("the service answers");
        }
    });
    assert!(lost > 0, "the duplicate key did not come up");

    // The original fails as it did.
    let same = case.retro("original", &[]);
    assert_eq!(same.outcome(), "faithful", "{:#}", same.0);
    assert_eq!(same.count("same_failure"), lost as u64);

    let upsert = case.retro("upsert", &[]);
    let fails: Vec<String> = upsert.groups("transactions");
    assert!(
        fails
            .iter()
            .any(|what| what.contains("(40001) instead of") && what.contains("(23505)")),
        "serialization errors take the place of violated constraints: {fails:?}"
    );
    assert_eq!(upsert.count("newly_failing"), 0);

    let retry = case.retro("upsert-retry", &[]);
    assert_eq!(
        retry.count("retries") + retry.count("newly_succeeding"),
        lost as u64,
        "who saw the other one's option succeeds at once, the others when they try again"
    );
    assert!(retry.count("retries") > 0);
    assert_eq!(
        retry.count("responses_changed"),
        lost as u64,
        "those that failed are answered now"
    );
    let changed = retry.groups("responses");
    assert!(
        changed.iter().all(|what| what.contains("→ 20")),
        "{changed:?}"
    );
}

// ---- WordPress, WP-11073 (section 6.3)
// -------------------------------------------------------------------------

const LOST: &str = r#"SELECT c."comment_ID" FROM wp_comments c JOIN wp_posts p ON p."ID" = c."comment_post_ID" WHERE p.post_status <> 'trash' AND c.comment_approved = 'post-trashed'"#;

#[test]
fn wordpress_checking_for_the_trash_helps_only_under_serializable() {
    let comment = |number: usize| {
        format!("{{\"comment_author\":\"a\",\"comment_content\":\"comment {number}\"}}")
    };
    let case = Case::recorded("wp-comments", "0.01", |case| {
        let mut client = case.client();
        for post in 1..=20 {
            // Comments come in while the post is trashed.
            let trashed = AtomicBool::new(false);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let mut commenting = case.client();
                    for number in 1.. {
                        let comments = format!("/posts/{post}/comments");
                        let sent = commenting.send("POST", &comments, Some(&comment(number)));
                        assert!(sent.expect("the service answers").status < 400);
                        if trashed.load(Ordering::Relaxed) {
                            return;
                        }
                    }
                });
                let trash = client.send("POST", &format!("/posts/{post}/trash"), None);
                trash.expect("the service answers");
                trashed.store(true, Ordering::Relaxed);
            });
            client
                .send("POST", &format!("/posts/{post}/untrash"), None)
                .expect("the service answers");
            if !case.stage.sql(LOST).is_empty() {
                return;
            }
        }
        panic!("no comment was lost");
    });

    let repeatable = case.retro("checked", &["--check", LOST]);
    let (then, now) = repeatable.check(0);
    assert!(
        then >= 1 && now >= 1,
        "still there under snapshot isolation: {then}, {now}"
    );

    let serializable = format!("{} --isolation serializable", case.service("checked"));
    let finished = case
        .run(&serializable, &["--json", "--check", LOST])
        .assert_code(SUCCESS);
    let report = Report::of(&finished);
    assert_eq!(report.check(0), (then, 0), "gone under SERIALIZABLE");
}

// ---- bad input and faults
// --------------------------------------------------------------------------------------

#[test]
fn a_changed_service_that_does_not_start_is_told_with_its_last_words() {
    let case = moodle();
    let before = case.state();
    let failed = case
        .run("echo no such module; exit 3", &[])
        .assert_code(FAILED);
    assert!(failed.stderr.contains("exit status 3"), "{}", failed.stderr);
    assert!(
        failed.stderr.contains("no such module"),
        "{}",
        failed.stderr
    );
    case.nothing_is_left();
    assert_eq!(case.state(), before);
}

#[test]
fn a_migration_that_fails_is_told_with_its_line_and_leaves_nothing() {
    let case = moodle();
    let before = case.state();
    let migration = case.migration("SELECT 1;\nALTER TABLE mdl_forum\n  ADD COLUMN intro text;");
    let failed = case
        .run(&case.service("original"), &["--migrate", &migration])
        .assert_code(FAILED);
    assert!(failed.stderr.contains("migration.sql"), "{}", failed.stderr);
    assert!(
        failed.stderr.contains("already exists (42701)"),
        "{}",
        failed.stderr
    );
    case.nothing_is_left();
    assert_eq!(case.state(), before);

    let missing = case.run(&case.service("original"), &["--migrate", "/no/such.sql"]);
    assert_ne!(missing.code, Some(SUCCESS));
    assert!(
        missing.stderr.contains("/no/such.sql"),
        "{}",
        missing.stderr
    );
}

#[test]
fn a_change_that_hangs_is_stopped_and_says_where() {
    let case = moodle();
    let migration = case.migration(
        "CREATE FUNCTION hang() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF NEW.userid = 11 THEN PERFORM pg_sleep(3600); END IF; RETURN NEW; END $$;
         CREATE TRIGGER hang BEFORE INSERT ON mdl_forum_subscriptions FOR EACH ROW EXECUTE FUNCTION hang();",
    );
    let finished = case
        .run(
            &case.service("original"),
            &["--json", "--migrate", &migration, "--stall-timeout", "2"],
        )
        .assert_code(STOPPED);
    let report = Report::of(&finished);
    assert_eq!(report.outcome(), "stopped");
    let why = &report.0["outcome"]["why"];
    assert_eq!(why["why"], "hung", "{why}");
    assert!(
        why["in_flight"]
            .as_array()
            .is_some_and(|requests| !requests.is_empty()),
        "{why}"
    );
    // What became of each request and transaction is said, also of those that it did not come to.
    let sum = |names: &[&str]| names.iter().map(|name| report.count(name)).sum::<u64>();
    assert!(report.count("requests_unanswered") >= 1);
    assert_eq!(
        sum(&[
            "requests_executed",
            "requests_unanswered",
            "requests_not_sent"
        ]),
        report.count("requests")
    );
    let ended = ["same", "same_failure", "changed", "deleted", "unnoticed"];
    let failed = ["newly_failing", "newly_succeeding", "not_over"];
    assert_eq!(sum(&ended) + sum(&failed), report.count("transactions"));
    assert!(report.count("not_over") >= 1);
    case.nothing_is_left();
}

#[test]
fn a_changed_service_that_crashes_half_way_is_told_with_what_was_in_flight() {
    let case = moodle();
    // The insert of the fifth user says in a file that it is under way, and does not end by itself.
    // Whoever started the service is told a second later.
    let under_way = format!("{}/under_way", case.stage.sql("SHOW data_directory").trim());
    let migration = case.migration(&format!(
        "CREATE FUNCTION stuck() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
           IF NEW.userid = 5 THEN
             COPY (SELECT 1) TO '{under_way}'; PERFORM pg_sleep(600);
           END IF;
           RETURN NEW;
         END $$;
         CREATE TRIGGER stuck BEFORE INSERT ON mdl_forum_subscriptions FOR EACH ROW EXECUTE FUNCTION stuck();",
    ));
    let log = case.stage.folder().join("changed-service.log");
    let app = format!(
        "{} & pid=$!; until [ -e {under_way} ]; do sleep 0.05; done; echo out of memory >>{}; kill -9 $pid; sleep 1; wait $pid",
        case.service("original").trim_start_matches("exec "),
        log.display()
    );
    let finished = case
        .run(&app, &["--json", "--migrate", &migration])
        .assert_code(STOPPED);
    let report = Report::of(&finished);
    let why = &report.0["outcome"]["why"];
    assert_eq!(why["why"], "service_exited", "{why}");
    assert!(
        why["status"]
            .as_str()
            .is_some_and(|status| status.contains("signal 9")),
        "{why}"
    );
    case.nothing_is_left();
}

#[test]
fn a_change_that_makes_every_transaction_conflict_comes_to_its_end() {
    let case = busy_moodle();
    let migration = case.migration(
        "CREATE TABLE hot (n int); INSERT INTO hot VALUES (0);
         CREATE FUNCTION heat() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN UPDATE hot SET n = n + 1; RETURN NEW; END $$;
         CREATE TRIGGER heat BEFORE INSERT ON mdl_forum_subscriptions FOR EACH ROW EXECUTE FUNCTION heat();",
    );
    let report = case.retro("original", &["--migrate", &migration]);
    assert_eq!(report.outcome(), "different");
    let conflicts = report.count("newly_failing");
    assert!(conflicts >= 20, "only {conflicts} of 160 conflicted");
    assert_eq!(report.count("let_go"), 0);
    assert!(
        report
            .groups("transactions")
            .iter()
            .any(|what| what.contains("(40001)")),
        "{:?}",
        report.groups("transactions")
    );
}

#[test]
fn changed_code_that_rejects_the_recorded_requests_is_reported() {
    let case = moodle();
    let other = case
        .service("original")
        .replace("serve moodle", "serve tpcc");
    let finished = case.run(&other, &["--json"]).assert_code(SUCCESS);
    let report = Report::of(&finished);
    assert_eq!(report.count("responses_changed"), report.count("requests"));
    assert_eq!(report.count("deleted"), report.count("transactions"));
    assert!(
        report
            .groups("responses")
            .iter()
            .all(|what| what.contains("→ 404"))
    );
}

#[test]
fn rows_that_cannot_be_compared_are_named() {
    let case = moodle();
    let migration = case.migration(
        "ALTER TABLE mdl_forum_subscriptions DROP CONSTRAINT mdl_forum_subscriptions_pkey;
         ALTER TABLE mdl_forum ALTER COLUMN timemodified TYPE text, ADD COLUMN extra int;
         CREATE TABLE added (id int);",
    );
    let report = case.retro("original", &["--migrate", &migration]);
    assert_eq!(report.outcome(), "different");
    let forum = report.table("public.mdl_forum");
    let columns = forum["columns_changed"].to_string();
    assert!(
        columns.contains("timemodified") && columns.contains("extra"),
        "{}",
        report.0["state"]
    );
}

#[test]
fn what_cannot_be_is_refused_with_the_next_step() {
    let case = moodle();
    let unknown = case
        .run(&case.service("original"), &["--skip-type", "GET /nothing"])
        .assert_code(USAGE);
    assert!(
        unknown.stderr.contains("POST /subscribe"),
        "{}",
        unknown.stderr
    );
    let range = case
        .run(&case.service("original"), &["--from", "99999999"])
        .assert_code(FAILED);
    assert!(range.stderr.contains("hindcast ls"), "{}", range.stderr);
}
