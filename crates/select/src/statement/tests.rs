use std::fmt::Write;

use expect_test::{Expect, expect};

use super::*;

fn join<'a>(names: impl IntoIterator<Item = &'a Name>) -> String {
    let names: Vec<String> = names.into_iter().map(Name::to_string).collect();
    names.join(" ")
}

fn shown(statement: &Statement) -> String {
    let mut text = String::new();
    let mut part = |what: &str, value: String| {
        if !value.is_empty() {
            write!(text, "{what} {value}; ").expect("strings take everything");
        }
    };
    part("reads", join(&statement.reads));
    for (name, effects) in &statement.writes {
        let Effects {
            insert,
            update,
            delete,
            truncate,
            cascade,
            lock,
            refresh,
            // Retroaction's business, and tested there.
            inserts: _,
        } = effects;
        let columns = update.iter().flatten().cloned().collect::<Vec<_>>();
        let updates = format!("updates({})", columns.join(" "));
        let what: Vec<&str> = [
            (*insert, "inserts"),
            (update.is_some(), &updates),
            (*delete, "deletes"),
            (*truncate, "truncates"),
            (*cascade, "cascading"),
            (*lock, "locks"),
            (*refresh, "refreshes"),
        ]
        .into_iter()
        .filter_map(|(holds, what)| holds.then_some(what))
        .collect();
        part(&what.join("+"), name.to_string());
    }
    part("calls", join(&statement.functions));
    part("temporary", join(&statement.temporary));
    part(
        "path",
        statement.search_path.clone().unwrap_or_default().join(" "),
    );
    part(
        "undetermined:",
        statement.undetermined.clone().unwrap_or_default(),
    );
    if text.is_empty() {
        return "nothing".to_owned();
    }
    text.trim_end_matches("; ").to_owned()
}

fn check(texts: &[&str], expected: &Expect) {
    let all = texts.iter().map(|text| {
        let statement = Statement::of(text);
        format!("{text}\n    {}\n", shown(&statement))
    });
    expected.assert_eq(&all.collect::<String>());
}

#[test]
fn queries() {
    check(
        &[
            "SELECT 1",
            "SELECT * FROM a, b.c AS d WHERE a.x = $1 LIMIT $2",
            "SELECT x FROM \"Mixed\" JOIN Folded USING (id) LEFT JOIN LATERAL (SELECT * FROM e) q ON TRUE",
            "SELECT (SELECT max(x) FROM a) FROM b WHERE EXISTS (SELECT FROM c) AND y IN (SELECT y FROM d) ORDER BY (SELECT 1 FROM e) LIMIT (SELECT 1 FROM f)",
            "SELECT x FROM a UNION SELECT x FROM b EXCEPT (SELECT x FROM c INTERSECT SELECT x FROM d)",
            "VALUES ($1, (SELECT 1 FROM a))",
            "TABLE a",
            "SELECT * FROM ONLY a TABLESAMPLE bernoulli($1)",
            "SELECT interval $1, date $2, $3::text, extract($4 from at), x AT TIME ZONE $5 FROM t",
            "SELECT f(x), s.g(y) OVER (ORDER BY h(z)) FROM i($1) j, ROWS FROM (k($2)) l",
            "SELECT CASE WHEN a IS NULL THEN f() END, COALESCE(g(), $1), ARRAY(SELECT x FROM t) FROM u GROUP BY h(a) HAVING count(*) > i()",
        ],
        &expect![[r#"
            SELECT 1
                nothing
            SELECT * FROM a, b.c AS d WHERE a.x = $1 LIMIT $2
                reads a b.c
            SELECT x FROM "Mixed" JOIN Folded USING (id) LEFT JOIN LATERAL (SELECT * FROM e) q ON TRUE
                reads Mixed e folded
            SELECT (SELECT max(x) FROM a) FROM b WHERE EXISTS (SELECT FROM c) AND y IN (SELECT y FROM d) ORDER BY (SELECT 1 FROM e) LIMIT (SELECT 1 FROM f)
                reads a b c d e f; calls max
            SELECT x FROM a UNION SELECT x FROM b EXCEPT (SELECT x FROM c INTERSECT SELECT x FROM d)
                reads a b c d
            VALUES ($1, (SELECT 1 FROM a))
                reads a
            TABLE a
                reads a
            SELECT * FROM ONLY a TABLESAMPLE bernoulli($1)
                reads a
            SELECT interval $1, date $2, $3::text, extract($4 from at), x AT TIME ZONE $5 FROM t
                reads t; calls pg_catalog.extract pg_catalog.timezone
            SELECT f(x), s.g(y) OVER (ORDER BY h(z)) FROM i($1) j, ROWS FROM (k($2)) l
                calls f h i k s.g
            SELECT CASE WHEN a IS NULL THEN f() END, COALESCE(g(), $1), ARRAY(SELECT x FROM t) FROM u GROUP BY h(a) HAVING count(*) > i()
                reads t u; calls count f g h i
        "#]],
    );
}

#[test]
fn common_table_expressions() {
    check(
        &[
            "WITH a AS (SELECT * FROM t) SELECT * FROM a JOIN s.a ON TRUE",
            "WITH t AS (SELECT * FROM t) SELECT * FROM t",
            "WITH RECURSIVE r AS (SELECT * FROM t UNION ALL SELECT * FROM r) SELECT * FROM r",
            "WITH a AS (SELECT * FROM b), b AS (SELECT * FROM a) SELECT * FROM b",
            "SELECT * FROM (WITH a AS (SELECT 1) SELECT * FROM a) x, a",
            "WITH gone AS (DELETE FROM t WHERE x = $1 RETURNING *) INSERT INTO log SELECT f(x) FROM gone",
            "WITH a AS (SELECT 1), b AS (SELECT * FROM a, c) UPDATE d SET x = (SELECT 1 FROM b)",
            "WITH t AS (SELECT 1) INSERT INTO t SELECT * FROM t",
        ],
        &expect![[r#"
            WITH a AS (SELECT * FROM t) SELECT * FROM a JOIN s.a ON TRUE
                reads t s.a
            WITH t AS (SELECT * FROM t) SELECT * FROM t
                reads t
            WITH RECURSIVE r AS (SELECT * FROM t UNION ALL SELECT * FROM r) SELECT * FROM r
                reads t
            WITH a AS (SELECT * FROM b), b AS (SELECT * FROM a) SELECT * FROM b
                reads b
            SELECT * FROM (WITH a AS (SELECT 1) SELECT * FROM a) x, a
                reads a
            WITH gone AS (DELETE FROM t WHERE x = $1 RETURNING *) INSERT INTO log SELECT f(x) FROM gone
                reads t; inserts log; deletes t; calls f
            WITH a AS (SELECT 1), b AS (SELECT * FROM a, c) UPDATE d SET x = (SELECT 1 FROM b)
                reads c d; updates(x) d
            WITH t AS (SELECT 1) INSERT INTO t SELECT * FROM t
                inserts t
        "#]],
    );
}

#[test]
fn changes() {
    check(
        &[
            "INSERT INTO t (a, b) VALUES ($1, $2), ($3, (SELECT 1 FROM u)) RETURNING id",
            "INSERT INTO t DEFAULT VALUES",
            "INSERT INTO t SELECT * FROM u ON CONFLICT (a) DO NOTHING",
            "INSERT INTO t AS x VALUES ($1) ON CONFLICT (a) DO UPDATE SET b = excluded.b, c = (SELECT 1 FROM u) WHERE f(x.b)",
            "UPDATE s.t SET a = $1, (b, c) = (SELECT d, e FROM u) FROM v WHERE t.x = v.x RETURNING (SELECT 1 FROM w)",
            "UPDATE t SET a = $1 WHERE CURRENT OF c",
            "DELETE FROM t USING u WHERE t.x = u.x AND NOT EXISTS (SELECT 1 FROM v)",
            "MERGE INTO t USING u ON t.x = u.x WHEN MATCHED AND f(u.y) THEN UPDATE SET a = u.a WHEN NOT MATCHED THEN INSERT (x) VALUES (u.x)",
            "MERGE INTO t USING (SELECT * FROM u) q ON t.x = q.x WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN DO NOTHING",
            "TRUNCATE a, b.c",
            "TRUNCATE a RESTART IDENTITY CASCADE",
            "COPY t (a, b) FROM STDIN WITH (FORMAT csv)",
            "COPY t TO STDOUT",
            "COPY (SELECT * FROM t JOIN u USING (x)) TO STDOUT",
            "COPY t FROM PROGRAM 'make'",
            "REFRESH MATERIALIZED VIEW CONCURRENTLY m",
            "LOCK TABLE t IN SHARE MODE",
        ],
        &expect![[r#"
            INSERT INTO t (a, b) VALUES ($1, $2), ($3, (SELECT 1 FROM u)) RETURNING id
                reads u; inserts t
            INSERT INTO t DEFAULT VALUES
                inserts t
            INSERT INTO t SELECT * FROM u ON CONFLICT (a) DO NOTHING
                reads u; inserts t
            INSERT INTO t AS x VALUES ($1) ON CONFLICT (a) DO UPDATE SET b = excluded.b, c = (SELECT 1 FROM u) WHERE f(x.b)
                reads t u; inserts+updates(b c) t; calls f
            UPDATE s.t SET a = $1, (b, c) = (SELECT d, e FROM u) FROM v WHERE t.x = v.x RETURNING (SELECT 1 FROM w)
                reads u v w s.t; updates(a b c) s.t
            UPDATE t SET a = $1 WHERE CURRENT OF c
                reads t; updates(a) t
            DELETE FROM t USING u WHERE t.x = u.x AND NOT EXISTS (SELECT 1 FROM v)
                reads t u v; deletes t
            MERGE INTO t USING u ON t.x = u.x WHEN MATCHED AND f(u.y) THEN UPDATE SET a = u.a WHEN NOT MATCHED THEN INSERT (x) VALUES (u.x)
                reads t u; inserts+updates(a) t; calls f
            MERGE INTO t USING (SELECT * FROM u) q ON t.x = q.x WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN DO NOTHING
                reads t u; deletes t
            TRUNCATE a, b.c
                truncates a; truncates b.c
            TRUNCATE a RESTART IDENTITY CASCADE
                truncates+cascading a
            COPY t (a, b) FROM STDIN WITH (FORMAT csv)
                inserts t
            COPY t TO STDOUT
                reads t
            COPY (SELECT * FROM t JOIN u USING (x)) TO STDOUT
                reads t u
            COPY t FROM PROGRAM 'make'
                inserts t; undetermined: COPY runs a program
            REFRESH MATERIALIZED VIEW CONCURRENTLY m
                refreshes m
            LOCK TABLE t IN SHARE MODE
                locks t
        "#]],
    );
}

#[test]
fn row_locks_count_as_writes() {
    check(
        &[
            "SELECT * FROM t WHERE x = $1 FOR UPDATE",
            "SELECT * FROM t JOIN u AS v USING (x) FOR NO KEY UPDATE OF v SKIP LOCKED",
            "SELECT * FROM a, (SELECT * FROM b, c) q FOR SHARE OF q",
            "SELECT * FROM a, (SELECT * FROM b) q FOR KEY SHARE",
            "WITH c AS (SELECT * FROM t) SELECT * FROM c, u FOR UPDATE",
            "SELECT * FROM (SELECT * FROM t FOR UPDATE) q",
        ],
        &expect![[r#"
            SELECT * FROM t WHERE x = $1 FOR UPDATE
                reads t; locks t
            SELECT * FROM t JOIN u AS v USING (x) FOR NO KEY UPDATE OF v SKIP LOCKED
                reads t u; locks u
            SELECT * FROM a, (SELECT * FROM b, c) q FOR SHARE OF q
                reads a b c; locks b; locks c
            SELECT * FROM a, (SELECT * FROM b) q FOR KEY SHARE
                reads a b; locks a; locks b
            WITH c AS (SELECT * FROM t) SELECT * FROM c, u FOR UPDATE
                reads t u; locks u
            SELECT * FROM (SELECT * FROM t FOR UPDATE) q
                reads t; locks t
        "#]],
    );
}

#[test]
fn sessions_and_transactions_touch_nothing() {
    for text in [
        "BEGIN ISOLATION LEVEL SERIALIZABLE",
        "COMMIT",
        "SAVEPOINT a",
        "RELEASE a",
        "ROLLBACK TO a",
        "PREPARE TRANSACTION $1",
        "SET timezone = $1",
        "SET LOCAL lock_timeout TO $1",
        "SET TIME ZONE $1",
        "SET client_encoding TO utf8",
        "RESET ALL",
        "SHOW server_version",
        "DISCARD ALL",
        "DEALLOCATE ALL",
        "LISTEN a",
        "NOTIFY a, $1",
        "UNLISTEN *",
        "FETCH $1 FROM c",
        "MOVE NEXT IN c",
        "CLOSE c",
        "SET CONSTRAINTS ALL DEFERRED",
        "SET TRANSACTION READ ONLY",
        "VACUUM t",
        "ANALYZE t",
        "",
    ] {
        assert_eq!(Statement::of(text), Statement::default(), "{text}");
    }
}

#[test]
fn statements_around_statements() {
    check(
        &[
            "DECLARE c CURSOR FOR SELECT * FROM t",
            "EXPLAIN ANALYZE INSERT INTO t VALUES ($1)",
            "PREPARE p AS UPDATE t SET a = $1",
            "CREATE TEMP TABLE x AS SELECT * FROM t",
            "CREATE TEMPORARY TABLE x (a int DEFAULT f(), b text)",
            "SELECT * INTO TEMP x FROM t",
            "SELECT 1 FROM a; UPDATE b SET c = $1",
            "CALL s.work($1, (SELECT max(x) FROM t))",
            "SET search_path TO public, \"Tenant\"",
            "SET search_path = DEFAULT",
        ],
        &expect![[r#"
            DECLARE c CURSOR FOR SELECT * FROM t
                reads t
            EXPLAIN ANALYZE INSERT INTO t VALUES ($1)
                inserts t
            PREPARE p AS UPDATE t SET a = $1
                reads t; updates(a) t
            CREATE TEMP TABLE x AS SELECT * FROM t
                reads t; temporary x
            CREATE TEMPORARY TABLE x (a int DEFAULT f(), b text)
                calls f; temporary x
            SELECT * INTO TEMP x FROM t
                reads t; temporary x
            SELECT 1 FROM a; UPDATE b SET c = $1
                reads a b; updates(c) b
            CALL s.work($1, (SELECT max(x) FROM t))
                reads t; calls max s.work
            SET search_path TO public, "Tenant"
                path public Tenant
            SET search_path = DEFAULT
                nothing
        "#]],
    );
}

#[test]
fn what_cannot_be_told_is_said() {
    check(
        &[
            "DO $1",
            "EXECUTE p($1)",
            "CREATE TABLE t (a int REFERENCES u)",
            "CREATE TABLE t AS SELECT * FROM u",
            "SELECT * INTO t FROM u",
            "CREATE INDEX ON t (a)",
            "ALTER TABLE t ADD CONSTRAINT u UNIQUE (a, b)",
            "DROP TABLE t, s.u",
            "CREATE VIEW v AS SELECT * FROM t",
            "GRANT SELECT ON t TO u",
            "SELECT FROM WHERE",
            "SELECT * FROM t WHERE x IN ($1, $2…",
            "SET search_path TO $1",
        ],
        &expect![[r#"
            DO $1
                undetermined: DO runs code that is not part of its recorded text
            EXECUTE p($1)
                undetermined: EXECUTE runs a statement that was prepared elsewhere
            CREATE TABLE t (a int REFERENCES u)
                reads t u; locks t; locks u; undetermined: it creates the table t
            CREATE TABLE t AS SELECT * FROM u
                reads t u; locks t; locks u; undetermined: it creates the table t
            SELECT * INTO t FROM u
                reads u; undetermined: it creates the table t
            CREATE INDEX ON t (a)
                reads t; locks t; undetermined: CREATE INDEX changes the schema
            ALTER TABLE t ADD CONSTRAINT u UNIQUE (a, b)
                reads t; locks t; undetermined: ALTER TABLE changes the schema
            DROP TABLE t, s.u
                reads t s.u; locks t; locks s.u; undetermined: DROP changes the schema
            CREATE VIEW v AS SELECT * FROM t
                reads t v; locks t; locks v; undetermined: CREATE VIEW changes the schema
            GRANT SELECT ON t TO u
                reads t; locks t; undetermined: GRANT changes the schema
            SELECT FROM WHERE
                undetermined: syntax error at or near "WHERE"
            SELECT * FROM t WHERE x IN ($1, $2…
                undetermined: only the beginning of its text was kept
            SET search_path TO $1
                undetermined: it sets search_path
        "#]],
    );
}

/// What is understood of a text of which only so many bytes were kept.
fn cut(text: &str, bytes: usize) -> String {
    shown(&Statement::of(&format!("{}…", &text[..bytes])))
}

fn repeated(each: fn(usize) -> String) -> String {
    (1..90).map(each).collect::<Vec<_>>().join(", ")
}

#[test]
fn a_text_cut_in_a_long_list_goes_on_like_that() {
    let ids = repeated(|n| format!("${n}"));
    let cast = repeated(|n| format!("${n}::character varying(10)"));
    let pairs = repeated(|n| format!("(${n}, ${n}::\"S\".\"Mood\"[])"));
    let rows =
        repeated(|n| format!("(${n}, DEFAULT, NULL, f(${n}::timestamp with time zone), 'x')"));
    for (text, expected) in [
        (
            format!("INSERT INTO \"odd)\" (a, b) VALUES {rows}"),
            "inserts+updates(*) odd); calls f",
        ),
        (
            format!("INSERT INTO t SELECT a FROM (VALUES {rows}"),
            "inserts+updates(*) t; calls f",
        ),
        (
            format!("UPDATE t SET a = v.a FROM (VALUES {rows}"),
            "reads t; updates(a) t; calls f",
        ),
        (
            format!("SELECT * FROM t JOIN u USING (x) WHERE f(t.y) AND (t.id IN ({ids}"),
            "reads t u; calls f",
        ),
        (
            format!("DELETE FROM t WHERE id = ANY (ARRAY[{cast}"),
            "reads t; deletes t",
        ),
        (
            format!("DELETE FROM t WHERE (a, b) IN ({pairs}"),
            "reads t; deletes t",
        ),
        (format!("CALL work({cast}"), "calls work"),
    ] {
        for bytes in text.len() - 60..=text.len() {
            assert_eq!(cut(&text, bytes), expected, "{}", &text[..bytes]);
        }
    }
}

#[test]
fn a_text_cut_elsewhere_is_undetermined() {
    let ids = repeated(|n| format!("${n}"));
    let names = repeated(|n| format!("a{n}"));
    let rows = repeated(|n| format!("(${n}, ${n})"));
    for text in [
        // Few, so something else may follow soon.
        "SELECT * FROM t WHERE id IN ($1, $2, ".to_owned(),
        "INSERT INTO t VALUES ($1, $2), ($3".to_owned(),
        // No lists of values: who knows what they are selected from.
        format!("SELECT {ids}"),
        format!("SELECT * FROM (SELECT {ids}"),
        format!("SELECT {names}"),
        format!("INSERT INTO t ({names}"),
        // After the list.
        format!("INSERT INTO t VALUES {rows} ON CONFLICT (a) DO UP"),
        format!("SELECT * FROM t WHERE a IN ({ids}) AND EXISTS (SELECT 1 FR"),
        format!("SELECT * FROM t WHERE a IN ({ids}, (SELECT b FROM u WHERE "),
        // What the rows are for is still to come.
        format!("WITH v (a, b) AS (VALUES {rows}"),
    ] {
        let understood = cut(&text, text.len());
        assert_eq!(
            understood, "undetermined: only the beginning of its text was kept",
            "{text}"
        );
    }
}

#[test]
fn literals_are_put_back_where_parameters_are_not_allowed() {
    check(
        &[
            "SELECT CAST(a AS varchar($1)), CURRENT_TIMESTAMP($2), b::timestamp($3) FROM t WHERE c = $4",
            "SELECT interval $1 second($2), interval($3) $4, $5 $6 $7 FROM t",
            "COPY t FROM STDIN WITH (DELIMITER $1, NULL $2)",
            "COPY t FROM $1 DELIMITER AS $2 CSV",
            "SELECT \"$1\", a$1, $1::char($10), $2::char($11) FROM \"$10\"",
            "SELECT $1::varchar($2) FROM WHERE",
            "SELECT a::varchar(b.$1) FROM t",
            "CREATE TABLE t (a varchar($1))",
        ],
        &expect![[r#"
            SELECT CAST(a AS varchar($1)), CURRENT_TIMESTAMP($2), b::timestamp($3) FROM t WHERE c = $4
                reads t
            SELECT interval $1 second($2), interval($3) $4, $5 $6 $7 FROM t
                reads t
            COPY t FROM STDIN WITH (DELIMITER $1, NULL $2)
                inserts t
            COPY t FROM $1 DELIMITER AS $2 CSV
                inserts t
            SELECT "$1", a$1, $1::char($10), $2::char($11) FROM "$10"
                reads $10
            SELECT $1::varchar($2) FROM WHERE
                undetermined: syntax error at or near "$2"
            SELECT a::varchar(b.$1) FROM t
                undetermined: syntax error at or near "b"
            CREATE TABLE t (a varchar($1))
                reads t; locks t; undetermined: it creates the table t
        "#]],
    );
    let many = repeated(|n| format!("a::varchar(${n})"));
    assert_eq!(
        shown(&Statement::of(&format!("SELECT {many} FROM t"))),
        "reads t"
    );
}

#[test]
fn no_kind_of_statement_is_fatal() {
    for text in [
        "DROP CAST (text AS int)",
        "DROP TRANSFORM FOR int LANGUAGE plpgsql",
        "DROP OPERATOR +(int, int)",
        "DROP OPERATOR CLASS a USING btree",
        "DROP AGGREGATE f(int)",
        "DROP FUNCTION f(int), g",
        "DROP PROCEDURE p",
        "DROP ROUTINE r",
        "DROP TYPE a.b, c",
        "DROP DOMAIN d",
        "DROP RULE r ON t",
        "DROP TRIGGER r ON s.t",
        "DROP POLICY p ON t",
        "DROP SCHEMA a, b CASCADE",
        "DROP EXTENSION e",
        "DROP INDEX CONCURRENTLY i",
        "DROP VIEW v",
        "DROP MATERIALIZED VIEW v",
        "DROP SEQUENCE q",
        "DROP FOREIGN TABLE f",
        "DROP ACCESS METHOD a",
        "DROP EVENT TRIGGER e",
        "DROP LANGUAGE l",
        "DROP COLLATION c",
        "DROP CONVERSION c",
        "DROP STATISTICS s",
        "DROP TEXT SEARCH PARSER p",
        "DROP PUBLICATION p",
        "DROP SERVER s",
        "DROP FOREIGN DATA WRAPPER w",
        "DROP DATABASE d",
        "DROP ROLE r",
        "DROP OWNED BY r",
        "DROP TABLESPACE t",
        "DROP SUBSCRIPTION s",
        "DROP USER MAPPING FOR u SERVER s",
        "CREATE CAST (text AS int) WITH FUNCTION f(text)",
        "CREATE FUNCTION f(a int DEFAULT 1, OUT b text) LANGUAGE sql RETURN 1",
        "CREATE AGGREGATE a (int) (SFUNC = f, STYPE = int)",
        "CREATE OPERATOR + (LEFTARG = int, FUNCTION = f)",
        "CREATE TYPE t AS (a int)",
        "CREATE TYPE t AS ENUM ('a')",
        "CREATE DOMAIN d AS int CHECK (value > 0)",
        "CREATE TRIGGER t AFTER INSERT ON a EXECUTE FUNCTION f()",
        "CREATE POLICY p ON t USING (a = 1)",
        "CREATE RULE r AS ON INSERT TO t DO ALSO (DELETE FROM u; NOTIFY x)",
        "CREATE EXTENSION e",
        "CREATE SCHEMA s CREATE TABLE t (a int) CREATE VIEW v AS SELECT 1",
        "CREATE SEQUENCE s OWNED BY t.a",
        "CREATE PUBLICATION p FOR TABLE t WHERE (a > 1)",
        "CREATE STATISTICS s ON a, b FROM t",
        "CREATE USER u PASSWORD 'x'",
        "CREATE DATABASE d TEMPLATE t",
        "CREATE FOREIGN TABLE f (a int) SERVER s",
        "IMPORT FOREIGN SCHEMA a FROM SERVER s INTO b",
        "ALTER TABLE t ADD COLUMN a int GENERATED ALWAYS AS (b + 1) STORED, DROP COLUMN c, ALTER d TYPE text USING f(d)",
        "ALTER TABLE t RENAME TO u",
        "ALTER TABLE t SET SCHEMA s",
        "ALTER TYPE t ADD VALUE 'x'",
        "ALTER FUNCTION f(int) OWNER TO u",
        "ALTER SYSTEM SET a = 1",
        "ALTER ROLE r SET search_path = a",
        "ALTER DEFAULT PRIVILEGES GRANT SELECT ON TABLES TO u",
        "COMMENT ON COLUMN t.a IS 'x'",
        "SECURITY LABEL ON TABLE t IS 'x'",
        "REASSIGN OWNED BY a TO b",
        "REVOKE ALL ON FUNCTION f(int) FROM u",
        "LOAD 'x'",
        "SELECT * FROM JSON_TABLE(a, '$' COLUMNS (b int PATH '$')) t",
        "SELECT XMLELEMENT(NAME a, XMLATTRIBUTES(b), c), XMLPARSE(DOCUMENT d)",
        "SELECT * FROM XMLTABLE('/a' PASSING b COLUMNS c text)",
        "SELECT a[1:2].b, (c).*, GROUPING(d), ROW(1, 2) FROM t GROUP BY CUBE (d)",
        "SELECT a FROM t WINDOW w AS (PARTITION BY f(b) ROWS BETWEEN 1 PRECEDING AND CURRENT ROW)",
        "SELECT 'a' COLLATE \"C\", a IS DISTINCT FROM b, a BETWEEN SYMMETRIC 1 AND 2, a OPERATOR(s.+) b",
    ] {
        let statement = Statement::of(text);
        let known = text.starts_with("SELECT");
        assert_eq!(statement.undetermined.is_none(), known, "{text}");
    }
}

#[test]
fn deep_nesting_is_undetermined_and_not_fatal() {
    // All depths at which some part of the parser might be the first to give up.
    for depth in [100, 300, 1000, 3000, 10_000, 30_000, 100_000] {
        for (open, close) in [
            ("(1 + ", ")"),
            ("(SELECT ", ")"),
            ("f(", ")"),
            ("NOT ", ""),
            ("ARRAY[", "]"),
            ("CASE WHEN ", " THEN 1 END"),
        ] {
            let deep = format!("{}1{}", open.repeat(depth), close.repeat(depth));
            let body = format!("BEGIN PERFORM {deep}; END");
            for statement in [Statement::of(&format!("SELECT {deep}")), trigger(&body)] {
                let reason = statement.undetermined.unwrap_or_default();
                assert!(
                    !reason.is_empty() || depth < 1000,
                    "{open}×{depth}: {reason}"
                );
            }
        }
        let blocks = format!("{}NULL;{}", "BEGIN ".repeat(depth), " END;".repeat(depth));
        assert!(trigger(&blocks).undetermined.is_some(), "{depth}");
    }
    let flat = format!("SELECT * FROM t WHERE {}", ["x = $1"; 500].join(" OR "));
    assert_eq!(shown(&Statement::of(&flat)), "reads t");
}

#[test]
fn bodies_of_functions() {
    let body = |declared: &str, body: &str| {
        let whole = format!("DECLARE {declared} BEGIN {body} END");
        format!("{body}\n    {}\n", shown(&trigger(&whole)))
    };
    let all = [
        body("v int := (SELECT max(x) FROM u);", "RETURN v;"),
        body("", "IF EXISTS (SELECT FROM q) THEN PERFORM g(a); END IF;"),
        body("v int;", "SELECT x INTO v FROM w; v := v + h(v);"),
        body("r public.t%ROWTYPE;", "r.a := (SELECT 1 FROM z); RETURN r;"),
        body(
            "r record;",
            "FOR r IN SELECT * FROM c LOOP INSERT INTO l VALUES (NEW.a, r.b); END LOOP;",
        ),
        body(
            "",
            "NEW.a := (SELECT 1 FROM n); UPDATE s.t SET a = 1 WHERE b = OLD.b; RETURN NEW;",
        ),
        body("r record;", "FOR r IN EXECUTE 'x' LOOP NULL; END LOOP;"),
        body("", "EXECUTE format('x', (SELECT 1 FROM y));"),
        body(
            "c CURSOR FOR SELECT * FROM cur;",
            "OPEN c; EXCEPTION WHEN OTHERS THEN DELETE FROM e;",
        ),
        body("r t;", "r.a := 1;"),
    ];
    expect![[r#"
        RETURN v;
            reads u; calls max
        IF EXISTS (SELECT FROM q) THEN PERFORM g(a); END IF;
            reads q; calls g
        SELECT x INTO v FROM w; v := v + h(v);
            reads w; calls h
        r.a := (SELECT 1 FROM z); RETURN r;
            reads z
        FOR r IN SELECT * FROM c LOOP INSERT INTO l VALUES (NEW.a, r.b); END LOOP;
            reads c; inserts l
        NEW.a := (SELECT 1 FROM n); UPDATE s.t SET a = 1 WHERE b = OLD.b; RETURN NEW;
            reads n s.t; updates(a) s.t
        FOR r IN EXECUTE 'x' LOOP NULL; END LOOP;
            undetermined: EXECUTE runs a text that is put together when it runs
        EXECUTE format('x', (SELECT 1 FROM y));
            reads y; calls format; undetermined: EXECUTE runs a text that is put together when it runs
        OPEN c; EXCEPTION WHEN OTHERS THEN DELETE FROM e;
            reads cur e; deletes e
        r.a := 1;
            nothing
    "#]]
    .assert_eq(&all.concat());
}

#[test]
fn functions_are_read_with_their_own_parameters() {
    let parameter = |mode, name: &str, composite| Parameter {
        mode,
        name: name.to_owned(),
        composite,
    };
    let found = routine(
        &[
            parameter("IN", "a", true),
            parameter("OUT", "b", false),
            parameter("INOUT", "Odd \"name", false),
        ],
        Returns::Set,
        "DECLARE m public.mood := s.mood_of(a.x); BEGIN a.y := 1; b := (SELECT 1 FROM u); RETURN NEXT; RETURN QUERY SELECT * FROM v; END",
    );
    assert_eq!(shown(&found), "reads u v; calls s.mood_of");
    let found = routine(
        &[],
        Returns::Nothing,
        "BEGIN DELETE FROM t; COMMIT; CALL q(); RETURN; END",
    );
    assert_eq!(shown(&found), "reads t; deletes t; calls q");
    let found = routine(
        &[],
        Returns::One,
        "BEGIN RETURN (SELECT count(*) FROM t) + 1; END",
    );
    assert_eq!(shown(&found), "reads t; calls count");
}

#[test]
fn texts_are_parsed_once() {
    let mut statements = Statements::default();
    let first = statements.of("SELECT 1 FROM a");
    assert!(Arc::ptr_eq(&first, &statements.of("SELECT 1 FROM a")));
}
