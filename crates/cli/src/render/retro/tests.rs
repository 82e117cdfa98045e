use expect_test::{Expect, expect};
use hindcast_retro::report::Report;

use super::samples;
use super::{LINES, WIDTH, page};
use crate::render::format::is_active;

fn check(report: &Report, expect: Expect) {
    let page = page(report);
    for line in page.lines() {
        assert!(line.chars().count() <= WIDTH, "too long: {line}");
    }
    assert!(
        page.lines().count() <= LINES,
        "{} lines",
        page.lines().count()
    );
    // The last line is the only one that depends on how fast the machine was.
    let (stable, timing) = page.trim_end().rsplit_once('\n').unwrap();
    assert!(timing.starts_with("Time: "), "{timing}");
    expect.assert_eq(stable);
}

fn fits_the_terminal(page: &str) {
    let lines = page.lines().count();
    assert!(lines <= LINES, "{lines} lines");
    for line in page.lines() {
        assert!(line.chars().count() <= WIDTH, "too long: {line}");
        assert!(
            !line.chars().any(is_active),
            "drives the terminal: {line:?}"
        );
    }
}

#[test]
fn only_analysis_was_added() {
    check(
        &samples::faithful(),
        expect![[r#"
            Retroaction: faithful: only analysis was added. Same responses, transactions and final state
              still there  the errors of 1 transaction
              requests     60 (10 to 69): all executed
              transactions 118: 117 same, 1 failing as before, 2 ghosts of no request
              what ran     ./forum --statistics

            Final state: 3 the same, compared with the recorded database
        "#]],
    );
}

#[test]
fn merging_the_transactions_leaves_the_race() {
    check(
        &samples::moodle_merge(),
        expect![[r#"
            Retroaction: different in 36 transactions
              still there  check 1, the same 3 rows before and after
              requests     60 (10 to 69): all executed
              transactions 118: 82 same, 18 changed, 18 deleted
              what ran     ./forum --variant merged

            Checks
              1  SELECT userid, forum, count(*) FROM mdl_forum_subscriptions GROUP BY userid, forum HAVING coun…
                 still there: the same 3 rows before and after
                   = userid=5, forum=7, count=2
                   = userid=6, forum=7, count=2
                   = userid=7, forum=7, count=2

            Request types                                       requests  executed  responses  transactions
                                                                                      changed       changed
              POST /subscribe                                         20        20          0            36
              GET /forums/{id}/subscribers                            40        40          0             0

            Transactions: 36 different
              18 × POST /subscribe: other statements (t20–t130)
                   t20 of request 10: now also INSERT INTO mdl_forum_subscriptions (userid, forum) VALUES ($1, …
              18 × POST /subscribe: moved into another (t22–t132)
                   t22 of request 10: its writes moved into t20

            Final state: 3 the same, compared with the recorded database

            More: --html FILE is a page with every difference that was described, --json the same for programs.
            `hindcast show t20` shows what was recorded there."#]],
    );
}

#[test]
fn the_unique_index_and_the_upsert_end_it() {
    check(
        &samples::moodle_upsert(),
        expect![[r#"
            Retroaction: different in 6 responses, 23 transactions and 1 table
              gone         check 1, 3 rows before, none after; the errors of 3 transactions
              new          errors of 2 transactions (there were 2 retries)
              changed      check 2, 1031 before, 1028 after
              requests     60 (10 to 69): all executed
              transactions 118: 97 same, 16 changed, 2 newly failing, 3 newly succeeding, 2 added (retries)
              order        1 yielded (SQLSTATE 40001): blocked by one that was complete and had to commit later
              what ran     ./forum --variant upsert
              with         migration unique-subscriptions.sql

            Checks
              1  SELECT userid, forum, count(*) FROM mdl_forum_subscriptions GROUP BY userid, forum HAVING coun…
                 gone: 3 rows before, none after
                   − userid=5, forum=7, count=2
                   − userid=6, forum=7, count=2
                   − userid=7, forum=7, count=2
              2  SELECT count(*) FROM mdl_forum_subscriptions
                 changed: 1031 before, 1028 after

            Request types                                       requests  executed  responses  transactions
                                                                                      changed       changed
              POST /subscribe                                         20        20          3            21
              GET /forums/{id}/subscribers                            40        40          3             0

            Responses: 6 changed
              3 × POST /subscribe: 201 → 200 (12–61)
                  request 12: /created true → false; /subscription 1003 → 1002
              3 × GET /forums/{id}/subscribers: header content-length changed, /subscribers/… is gone (14–68)
                  request 14: /subscribers/3 {"subscription":1003,"id":5,"username":… is gone; header content-l…
              5 more differ only in clocks, sequence values or randomness

            Transactions: 23 different
              16 × POST /subscribe: other statements (t21–t130)
                   t21 of request 10: INSERT INTO mdl_forum_sub … now with ON CONFLICT (userid, forum) DO UPDAT…
               2 × POST /subscribe: fails now: could not serialize access due to concurrent update (40001)
                   (t24–t86)
               2 × POST /subscribe: tried again
                   request 12: INSERT INTO mdl_forum_subscriptions (userid, forum) VALUES …

            Final state: 1 table different, 2 the same, compared with the recorded database
              mdl_forum_subscriptions  −3 removed, ~5 changed
                5 of these differ only in clocks, sequence values or randomness (id: a sequence value)
                − id=1003, userid=5, forum=7
                    originally written by POST /subscribe, request 12: INSERT INTO mdl_forum_subscriptions (use…
                − id=1017, userid=6, forum=7
                    originally written by POST /subscribe, request 33: INSERT INTO mdl_forum_subscriptions (use…
                − id=1030, userid=7, forum=7
                    originally written by POST /subscribe, request 61: INSERT INTO mdl_forum_subscriptions (use…

            More: --html FILE is a page with every difference that was described, --json the same for programs.
            `hindcast show 12` shows what was recorded there."#]],
    );
}

#[test]
fn ten_thousand_differences_fit_on_a_few_screens() {
    check(
        &samples::ten_thousand(),
        expect![[r#"
            Retroaction: different in 11,220 responses, 19,360 transactions and 30 tables
              gone         the errors of 280 transactions
              new          errors of 600 transactions (there were 410 retries)
              still there  the errors of 120 transactions
              changed      check 1, 40 rows before, 12 rows after; check 2, 41 rows before, 12 rows after; check
                           3, 42 rows before, 12 rows after; check 4, 43 rows before, 12 rows after; check 5, 4…
              requests     50,000 (10 to 50009): 30,000 executed, 10 skipped, 19,990 not selected, because they
                           cannot matter
              transactions 60,000: 41,000 same, 120 failing as before, 9,000 changed, 600 newly failing, 280
                           newly succeeding, 9,000 deleted, 480 added (410 of them retries), 31 ghosts of no
                           request
              order        480 yielded (SQLSTATE 40001): blocked by one that was complete and had to commit
                           later; 2 let go out of order, because nothing else would have moved
              what ran     ./forum --variant upsert
              with         migration unique-subscriptions.sql; isolation serializable; skipped 4 and GET /health

            Checks
              1  SELECT userid, forum, count(*) FROM mdl_forum_subscriptions GROUP BY userid, forum HAVING coun…
                 changed: 40 rows before, 12 rows after
                   − userid=17, forum=7, count=2
                   − userid=18, forum=7, count=2
                   … and 26 more rows
              2  SELECT userid, forum, count(*) FROM mdl_forum_subscriptions GROUP BY userid, forum HAVING coun…
                 changed: 41 rows before, 12 rows after
                   − userid=17, forum=7, count=2
                   − userid=18, forum=7, count=2
                   … and 27 more rows
              … and 6 more checks

            Request types                                       requests  executed  responses  transactions
                                                                                      changed       changed
              GET /parts/1                                         1,250     1,250        280             0
              GET /parts/2                                         1,250     1,250        280             0
              GET /parts/3                                         1,250     1,250        280             0
              GET /parts/4                                         1,250     1,250        280             0
              … and 36 more types

            Responses: 11,220 changed
              187 × GET /parts/1: /items/0 is gone (14–49000)
                    request 14: status 200 → 404; /items/0/0 "a" → "b"; /items/0/1 "a" → "b"; /items/0/2 "a" → …
              187 × GET /parts/2: /items/1 is gone (15–49001)
                    request 15: /items/1/0 "a" → "b"; /items/1/1 "a" → "b"; /items/1/2 "a" → "b"; /items/1/3 "a…
              187 × GET /parts/3: /items/2 is gone (16–49002)
                    request 16: /items/2/0 "a" → "b"; /items/2/1 "a" → "b"; /items/2/2 "a" → "b"; /items/2/3 "a…
              187 × GET /parts/4: /items/3 is gone (17–49003)
                    request 17: /items/3/0 "a" → "b"; /items/3/1 "a" → "b"; /items/3/2 "a" → "b"; /items/3/3 "a…
              187 × GET /parts/5: /items/4 is gone (18–49004)
                    request 18: /items/4/0 "a" → "b"; /items/4/1 "a" → "b"; /items/4/2 "a" → "b"; /items/4/3 "a…
              … and 10,285 more responses of 55 other kinds
              5 more differ only in clocks, sequence values or randomness

            Transactions: 19,360 different
              360 × POST /parts/0: other statements (t20–t100000)
                    t20 of request 10: 0 rows → 2
              360 × POST /parts/1: other statements (t21–t100001)
                    t21 of request 11: 1 row → 3
              360 × POST /parts/2: other statements (t22–t100002)
                    t22 of request 12: 2 rows → 4
              360 × POST /parts/3: other statements (t23–t100003)
                    t23 of request 13: 3 rows → 5
              … and 16,560 more transactions of 46 other kinds

            Final state: 30 tables different, 112 the same, 9 not comparable, compared with the recorded
              database
              parts_1  +2 added, ~333 changed
                column currency text is new; it was not compared
                20 of these differ only in clocks, sequence values or randomness (updated: a clock)
                1 more could be the same under another number; that was not looked into
                ~ id=0: price 3.10 → 3.20
                    originally written by POST /parts/{id}, request 100: UPDATE parts SET price = $1 WHERE id =…
                    now written by POST /parts/{id}, request 200: UPDATE parts SET price = $1 WHERE id = $2
                ~ id=1: price 3.10 → 3.20
                    originally written by POST /parts/{id}, request 101: UPDATE parts SET price = $1 WHERE id =…
                    now written by POST /parts/{id}, request 201: UPDATE parts SET price = $1 WHERE id = $2
                … and 313 more rows
              parts_2  +2 added, ~333 changed
                column currency text is new; it was not compared
                20 of these differ only in clocks, sequence values or randomness (updated: a clock)
                1 more could be the same under another number; that was not looked into
                ~ id=0: price 3.10 → 3.20
                    originally written by POST /parts/{id}, request 100: UPDATE parts SET price = $1 WHERE id =…
                    now written by POST /parts/{id}, request 200: UPDATE parts SET price = $1 WHERE id = $2
                ~ id=1: price 3.10 → 3.20
                    originally written by POST /parts/{id}, request 101: UPDATE parts SET price = $1 WHERE id =…
                    now written by POST /parts/{id}, request 201: UPDATE parts SET price = $1 WHERE id = $2
                … and 313 more rows
              … and 28 more tables (rows): parts_3 (315), parts_4 (315), parts_5 (315), parts_6 (315), parts_7
                (315), parts_8 (315), parts_9 (315), parts_10 (315), …
              audit_0  not comparable: its key's type was changed from bigint to uuid
              … and 8 more incomparable tables

            Selection: 20 of 40 request types executed (30,000 of 50,000 requests)
              executed  GET /parts/0: reads parts_1, which POST /parts/1 writes
              executed  GET /parts/1: reads parts_1, which POST /parts/1 writes
              executed  GET /parts/2: reads parts_1, which POST /parts/1 writes
              … and 17 more executed types
              left out  GET /pages/0: writes nothing
              left out  GET /pages/1: writes nothing
              left out  GET /pages/2: writes nothing
              … and 17 more left-out types
              touched   parts_1, parts_2, parts_3, parts_4, parts_5, parts_6, parts_7, parts_8, parts_9,
                        parts_10, parts_11, parts_12, parts_13, parts_14, parts_15, parts_16, parts_17, …
              began again twice: what the statements touched was more than could be told from them
              taken to touch everything: DO $$ BEGIN EXECUTE 'SELECT 0'; END $$ (dynamic SQL)
              taken to touch everything: DO $$ BEGIN EXECUTE 'SELECT 1'; END $$ (dynamic SQL)
              … and 7 more such statements

            Remarks
              - refused 1,200×, outside any request: UPDATE heartbeat SET at = now() WHERE worker = 0
                (--allow-outside-writes lets it through)
              - refused 1,200×, outside any request: UPDATE heartbeat SET at = now() WHERE worker = 1
                (--allow-outside-writes lets it through)
              - refused 1,200×, outside any request: UPDATE heartbeat SET at = now() WHERE worker = 2
                (--allow-outside-writes lets it through)
              … and 18 more remarks

            More: --html FILE is a page with every difference that was described, --json the same for programs.
            `hindcast show 14` shows what was recorded there."#]],
    );
}

#[test]
fn a_service_that_crashes() {
    check(
        &samples::crashed(),
        expect![[r#"
            Retroaction: stopped: the changed service ended by itself (exit status: 101)
                thread 'worker' panicked at src/forum.rs:112:9:
                index out of bounds: the len is 3 but the index is 3
              Not answered then: 31, 33 and 34 (`hindcast show 31`). What follows was seen up to there.
              requests     60 (10 to 69): 21 executed, 39 not sent
              transactions 44: 41 same, 3 not over when it stopped
              what ran     DATABASE_URL=postgres://me:***@127.0.0.1:6432/forum ./forum --variant typo

            Final state: not compared
              the run stopped before its end.

            More: --html FILE is a page with every difference that was described, --json the same for programs."#]],
    );
}

#[test]
fn a_service_that_hangs() {
    check(
        &samples::hung(),
        expect![[r#"
            Retroaction: stopped: nothing moved for 10 s
                request 31: t62 waits for a lock of t61
                request 32: t64 waits for a lock of t61
                request 33: t66 waits for a lock of t61
                request 34: t68 waits for a lock of t61
                request 35: t70 waits for a lock of t61
                request 36: t72 waits for a lock of t61
                … and 3 more waits
              Not answered then: 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42 and 17 more (`hindcast show
                31`). What follows was seen up to there.
              requests     60 (10 to 69): 21 executed, 39 not sent
              transactions 44: 41 same, 3 not over when it stopped
              what ran     DATABASE_URL=postgres://me:***@127.0.0.1:6432/forum ./forum --variant typo

            Final state: not compared
              the run stopped before its end.

            More: --html FILE is a page with every difference that was described, --json the same for programs."#]],
    );
}

#[test]
fn only_what_can_matter_was_executed() {
    check(
        &samples::selected(),
        expect![[r#"
            Retroaction: different in 6 responses, 23 transactions and 1 table
              gone         check 1, 3 rows before, none after; the errors of 3 transactions
              new          errors of 2 transactions (there were 2 retries)
              changed      check 2, 1031 before, 1028 after
              requests     1,000 (10 to 1009): 60 executed, 940 not selected, because they cannot matter
              transactions 118: 97 same, 16 changed, 2 newly failing, 3 newly succeeding, 2 added (retries)
              order        1 yielded (SQLSTATE 40001): blocked by one that was complete and had to commit later
              what ran     ./forum --variant upsert
              with         migration unique-subscriptions.sql

            Checks
              1  SELECT userid, forum, count(*) FROM mdl_forum_subscriptions GROUP BY userid, forum HAVING coun…
                 gone: 3 rows before, none after
                   − userid=5, forum=7, count=2
                   − userid=6, forum=7, count=2
                   − userid=7, forum=7, count=2
              2  SELECT count(*) FROM mdl_forum_subscriptions
                 changed: 1031 before, 1028 after

            Request types                                       requests  executed  responses  transactions
                                                                                      changed       changed
              POST /subscribe                                         20        20          3            21
              GET /forums/{id}/subscribers                            40        40          3             0

            Responses: 6 changed
              3 × POST /subscribe: 201 → 200 (12–61)
                  request 12: /created true → false; /subscription 1003 → 1002
              3 × GET /forums/{id}/subscribers: header content-length changed, /subscribers/… is gone (14–68)
                  request 14: /subscribers/3 {"subscription":1003,"id":5,"username":… is gone; header content-l…
              5 more differ only in clocks, sequence values or randomness

            Transactions: 23 different
              16 × POST /subscribe: other statements (t21–t130)
                   t21 of request 10: INSERT INTO mdl_forum_sub … now with ON CONFLICT (userid, forum) DO UPDAT…
               2 × POST /subscribe: fails now: could not serialize access due to concurrent update (40001)
                   (t24–t86)
               2 × POST /subscribe: tried again
                   request 12: INSERT INTO mdl_forum_subscriptions (userid, forum) VALUES …

            Final state: 1 table different, 2 the same, compared with the recorded database
              mdl_forum_subscriptions  −3 removed, ~5 changed
                5 of these differ only in clocks, sequence values or randomness (id: a sequence value)
                − id=1003, userid=5, forum=7
                    originally written by POST /subscribe, request 12: INSERT INTO mdl_forum_subscriptions (use…
                − id=1017, userid=6, forum=7
                    originally written by POST /subscribe, request 33: INSERT INTO mdl_forum_subscriptions (use…
                − id=1030, userid=7, forum=7
                    originally written by POST /subscribe, request 61: INSERT INTO mdl_forum_subscriptions (use…

            Selection: 2 of 3 request types executed (60 of 1,000 requests)
              executed  POST /subscribe: modified
              executed  GET /forums/{id}/subscribers: reads mdl_forum_subscriptions, which POST /subscribe writ…
              left out  GET /courses: writes nothing, and reads nothing that the executed ones write
              touched   mdl_forum_subscriptions, mdl_user, as the database counted; all in the closure
              began again once: what the statements touched was more than could be told from them
              taken to touch everything: SELECT refresh_counters($1) (dynamic SQL in refresh_counters)

            Remarks
              - which request types were modified was found by comparing statements: POST /subscribe (--modified
                TYPE names them)
              - 4 transactions ran at READ COMMITTED without the extension: only the first snapshot of each was
                enforced, and others may come out by chance
              - Gap: 2026-11-21 04:00:01.123 – 2026-11-21 04:00:02.123 UTC: 2 transactions wrote to
                public.mdl_user past the recorder: transaction ids 812, 815. What is missing there may show as …
              - ghost t7 failed: column "subject" does not exist (`hindcast show t7` shows what it is)

            More: --html FILE is a page with every difference that was described, --json the same for programs.
            `hindcast show 12` shows what was recorded there."#]],
    );
}

#[test]
fn a_migration_changes_columns() {
    check(
        &samples::migrated(),
        expect![[r#"
            Retroaction: different in 1 table
              still there  the errors of 1 transaction
              requests     60 (10 to 69): all executed
              transactions 118: 117 same, 1 failing as before, 2 ghosts of no request
              what ran     ./blog
              with         migrations slugs.sql and prices.sql

            Final state: 1 table different, 3 the same, 1 not comparable, compared with the recorded database
              posts  +1 added, ~2 changed
                column summary text is gone; it was not compared
                column published timestamp with time zone is new; it was not compared
                column price integer → numeric(10,2); it was not compared
                ~ id=1: slug NULL → hello-world, body '…dull boy, then' → '…dull boy, now'
                    originally written before the range began
                    now written by the migration
                ~ id=4: title '' → NULL, slug NULL → 'no title'
                    originally written by POST /posts, request 41: INSERT INTO posts (title, body) VALUES ($1, …
                    now written by POST /posts, request 41
                + id=5, title='Deleted by a ghost', slug=NULL, body=''
                    originally deleted by ghost t77: DELETE FROM posts WHERE id = $1
              audit  not comparable: its key's type was changed from bigint to uuid

            More: --html FILE is a page with every difference that was described, --json the same for programs."#]],
    );
}

#[test]
fn a_table_without_a_key() {
    check(
        &samples::without_key(),
        expect![[r#"
            Retroaction: different in 1 table
              still there  the errors of 1 transaction
              requests     60 (10 to 69): all executed
              transactions 118: 117 same, 1 failing as before, 2 ghosts of no request
              what ran     ./forum --statistics

            Final state: 1 table different, 3 the same, compared with the recorded database
              log  +2 added, −1 removed, no primary key
                + 3× instead of 1×: at=2026-11-21, line='subscribed 5 to 7'
                    originally written by POST /subscribe, request 12: INSERT INTO log VALUES ($1, $2)
                    now written by POST /subscribe, request 14: INSERT INTO log VALUES ($1, $2)
                − 0× instead of 1×: at=2026-11-21, line=NULL
                    originally written by POST /subscribe, request 12

            More: --html FILE is a page with every difference that was described, --json the same for programs."#]],
    );
}

#[test]
fn nothing_to_compare_with() {
    check(
        &samples::without_baseline(),
        expect![[r#"
            Retroaction: different in 36 transactions
              not known    check 1, not asked before, 3 rows after
              requests     60 (10 to 69): all executed
              transactions 118: 82 same, 18 changed, 18 deleted
              what ran     ./forum --variant merged

            Checks
              1  SELECT userid, forum, count(*) FROM mdl_forum_subscriptions GROUP BY userid, forum HAVING coun…
                 not asked before, 3 rows after
                   + userid=5, forum=7, count=2
                   + userid=6, forum=7, count=2
                   + userid=7, forum=7, count=2

            Request types                                       requests  executed  responses  transactions
                                                                                      changed       changed
              POST /subscribe                                         20        20          0            36
              GET /forums/{id}/subscribers                            40        40          0             0

            Transactions: 36 different
              18 × POST /subscribe: other statements (t20–t130)
                   t20 of request 10: now also INSERT INTO mdl_forum_subscriptions (userid, forum) VALUES ($1, …
              18 × POST /subscribe: moved into another (t22–t132)
                   t22 of request 10: its writes moved into t20

            Final state: not compared
              the recorded database has changed since the recording ended. --original COMMAND makes an original
              final state to compare with; --compare-with URL names one.

            More: --html FILE is a page with every difference that was described, --json the same for programs.
            `hindcast show t20` shows what was recorded there."#]],
    );
}

#[test]
fn what_clients_sent_cannot_drive_the_terminal_or_fill_it() {
    fits_the_terminal(&page(&samples::hostile()));
}
