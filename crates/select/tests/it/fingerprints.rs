//! Statements as a recording keeps them say the same as the statements that were sent.

use hindcast_select::{STATEMENTS_KEPT, Statement};
use hindcast_wire::limits::STATEMENTS_MAX;
use hindcast_wire::sql::{Dialect, Script};

fn recorded(text: &str) -> String {
    let script = Script::of(text.as_bytes(), Dialect::default());
    let texts = script
        .statements
        .iter()
        .map(|it| it.fingerprint.text.as_str());
    texts.collect::<Vec<_>>().join("; ")
}

#[test]
fn literals_are_not_missed() {
    let mut wrong = Vec::new();
    for text in TEXTS {
        let kept = recorded(text);
        let (was, is) = (Statement::of(text), Statement::of(&kept));
        assert_eq!(was.undetermined, None, "{text}");
        if was != is {
            wrong.push(format!("{text}\n  {kept}\n  {:?}", is.undetermined));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn as_many_statements_are_kept_as_are_expected() {
    assert_eq!(STATEMENTS_MAX, STATEMENTS_KEPT);
}

const TEXTS: &[&str] = &[
    // Casts and typed literals.
    "SELECT '1'::int, 'a'::regclass, CAST('x' AS text), 'a'::varchar(10), a::varchar(255) FROM t",
    "SELECT CAST(a AS varchar(10)), CAST(b AS char(3)), c::character varying(20), d::bpchar(4) FROM t",
    "SELECT a::numeric(10, 2), b::decimal(5), c::float(24), d::bit(3), e::bit varying(5), f::varbit(3) FROM t",
    "SELECT now()::timestamp(0), now()::timestamptz(3), now()::time(0), a::timestamp(0) without time zone, b::timestamp(0) with time zone FROM t",
    "SELECT CURRENT_TIMESTAMP(3), LOCALTIMESTAMP(0), CURRENT_TIME(0), LOCALTIME(2) FROM t",
    "SELECT date '2020-01-01', timestamp '2020-01-01', timestamptz '2020-01-01', time '10:00', timestamp with time zone '2020-01-01 00:00+00', timestamp(0) '2020-01-01' FROM t",
    "SELECT interval '1 day', interval '1' day, interval '1-2' year to month, interval '1' second(2), interval(3) '1 s', a::interval(3), '5 days'::interval FROM t",
    "SELECT now() - interval '30 days' FROM t WHERE at > now() - '1 hour'::interval",
    "SELECT int '1', bigint '2', float8 '1.5', bool 't', double precision '2', numeric(3, 1) '2.5', json '{}', point '(1,2)', uuid '0b6f1b0e-7d0c-4f63-9a0e-1d2f3a4b5c6d' FROM t",
    "SELECT bytea '\\x00', bit '101', B'101', X'1F', E'a\\n', N'abc', U&'d\\0061t', $$body$$, $x$y$x$ FROM t",
    "SELECT 'a' \n 'b' FROM t",
    "SELECT U&'d!0061t' UESCAPE '!' FROM t",
    // Numbers at odd places.
    "SELECT -1, +2, 1.5e3, .5, 1., a[1], a[1:2], a[:3], (b).c[1] FROM t",
    "SELECT * FROM t LIMIT 10 OFFSET 20",
    "SELECT * FROM t ORDER BY 1, 2 DESC OFFSET 5 ROWS FETCH FIRST 10 ROWS ONLY",
    "SELECT * FROM t ORDER BY a FETCH NEXT 5 ROWS WITH TIES",
    "SELECT a, count(*) FROM t GROUP BY 1 HAVING count(*) > 1",
    "SELECT sum(a) OVER (ORDER BY b ROWS BETWEEN 1 PRECEDING AND 2 FOLLOWING), avg(a) OVER (ROWS 3 PRECEDING) FROM t",
    "SELECT * FROM t TABLESAMPLE system (10) REPEATABLE (5)",
    "SELECT * FROM t WHERE a IN (1, 2, 3) AND b = ANY ('{1,2}') AND c = ANY (ARRAY[1, 2]) AND d BETWEEN 1 AND 2",
    "SELECT * FROM t WHERE a LIKE 'x%' ESCAPE '!' OR b ILIKE '%y' OR c SIMILAR TO 'z' OR d ~ 'q'",
    "SELECT * FROM t WHERE (a, b) IN ((1, 2), (3, 4)) AND c IS NOT DISTINCT FROM 5",
    "SELECT * FROM t WHERE j -> 'a' ->> 'b' = '1' AND j #>> '{a,b}' = '2' AND j @> '{}' AND j ? 'k'",
    // Functions with a grammar of their own.
    "SELECT extract(epoch FROM at), extract('year' FROM at), date_trunc('day', at) FROM t",
    "SELECT substring(a FROM 1 FOR 2), substring(a, 1, 2), overlay(a PLACING 'x' FROM 1 FOR 2), position('x' IN a), trim(both 'x' FROM a) FROM t",
    "SELECT at AT TIME ZONE 'UTC', a COLLATE \"C\", coalesce(a, 'x'), nullif(a, ''), greatest(a, 1), CASE a WHEN 1 THEN 'x' ELSE 'y' END FROM t",
    "SELECT string_agg(a, ', ' ORDER BY b), array_agg(a) FILTER (WHERE b > 1), percentile_cont(0.5) WITHIN GROUP (ORDER BY a) FROM t",
    "SELECT xmlelement(name a, 'b'), xmlparse(content '<a/>') FROM t",
    "SELECT * FROM json_to_recordset('[]') AS x(a int, b varchar(10))",
    "SELECT * FROM unnest(ARRAY[1, 2], ARRAY['a', 'b']) WITH ORDINALITY u(a, b, n)",
    "SELECT * FROM generate_series(1, 10, 2) g JOIN t ON t.a = g",
    "SELECT * FROM crosstab('SELECT 1') AS c(a numeric(10, 2), b timestamp(3))",
    "SELECT * FROM xmltable('/a' PASSING x COLUMNS b int PATH 'b' DEFAULT 1)",
    "SELECT nextval('s'), currval('public.s'::regclass), setval('s', 1, true), set_config('a.b', 'c', true)",
    "SELECT pg_advisory_xact_lock(1, 2), pg_try_advisory_lock(hashtext('a')), pg_notify('a', 'b')",
    // Changes.
    "INSERT INTO t (a, b) VALUES (1, 'x'), (DEFAULT, NULL) ON CONFLICT (a) WHERE c = 1 DO UPDATE SET b = 'y' WHERE t.d > 1 RETURNING a + 1",
    "INSERT INTO t (a) OVERRIDING SYSTEM VALUE SELECT 1 WHERE NOT EXISTS (SELECT 1 FROM u WHERE b = 'x' LIMIT 1)",
    "INSERT INTO t (a[1], b.c) VALUES (1, 2)",
    "UPDATE t SET a = 1, b = b + 1, (c, d) = (1, 2), e[1] = 3 WHERE id = 1",
    "DELETE FROM t WHERE ctid IN (SELECT ctid FROM t WHERE a < 1 ORDER BY a LIMIT 100 FOR UPDATE SKIP LOCKED)",
    "MERGE INTO t USING (VALUES (1, 'x')) v(a, b) ON t.a = v.a WHEN MATCHED THEN UPDATE SET b = 'y' WHEN NOT MATCHED THEN INSERT VALUES (1, 'z')",
    "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 10) SELECT * FROM r, t",
    "WITH a AS MATERIALIZED (SELECT 1) SELECT * FROM a SEARCH, t",
    "COPY t (a, b) FROM STDIN WITH (FORMAT csv, DELIMITER ',', NULL '')",
    "COPY t FROM STDIN DELIMITER ',' NULL AS '' CSV HEADER QUOTE '\"'",
    "COPY t FROM STDIN WITH DELIMITER AS '|'",
    "COPY (SELECT * FROM t WHERE a = 1) TO STDOUT WITH (FORMAT binary)",
    "COPY t FROM '/tmp/x'",
    "COPY t FROM STDIN WHERE a > 1",
    "TRUNCATE t RESTART IDENTITY",
    "LOCK TABLE t IN ACCESS EXCLUSIVE MODE NOWAIT",
    "CALL p(1, 'x')",
    // Sessions.
    "SET LOCAL statement_timeout = 5000",
    "SET statement_timeout TO '5s'",
    "SET TIME ZONE 'UTC'",
    "SET TIME ZONE INTERVAL '+1' HOUR",
    "SET NAMES 'utf8'",
    "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL SERIALIZABLE",
    "SET ROLE 'x'",
    "SET SESSION AUTHORIZATION 'x'",
    "SET TRANSACTION SNAPSHOT '00000003-0000001B-1'",
    "DECLARE c CURSOR WITH HOLD FOR SELECT * FROM t WHERE a = 1",
    "FETCH FORWARD 100 FROM c",
    "FETCH 5 c",
    "FETCH ABSOLUTE -1 FROM c",
    "MOVE 5 IN c",
    "EXPLAIN (ANALYZE, FORMAT json) SELECT * FROM t WHERE a = 1",
    "PREPARE p (int, varchar(10)) AS SELECT * FROM t WHERE a = $1 AND b = 'x'",
    "PREPARE TRANSACTION 'x'",
    "COMMIT PREPARED 'x'",
    "ROLLBACK PREPARED 'x'",
    "NOTIFY a, 'b'",
    "CREATE TEMP TABLE x (a varchar(10) DEFAULT 'y', b numeric(10, 2), c timestamp(3), d interval(2), e char(1) CHECK (e IN ('a', 'b')))",
    "CREATE TEMP TABLE x ON COMMIT DROP AS SELECT 1 AS a, 'x'::varchar(3) AS b FROM t LIMIT 5",
    "SELECT 1 FROM t; UPDATE u SET a = 'x' WHERE b = 2",
];
