//! What statements touch in a real database.

use std::collections::BTreeSet;

use expect_test::{Expect, expect};
use hindcast_cluster::{Cluster, Options};
use hindcast_pg::tokio::Client;
use hindcast_select::{Catalog, Statement, Touched};

async fn database(sql: &str) -> (Cluster, Client) {
    let cluster = Cluster::temporary_async(Options::throw_away())
        .await
        .unwrap();
    let client = cluster.connect("postgres").await.unwrap();
    client.batch_execute(sql).await.unwrap();
    (cluster, client)
}

fn shown(catalog: &Catalog, text: &str) -> String {
    let touched = catalog.expand(&Statement::of(text));
    if touched == Touched::default() {
        return format!("{text}\n    nothing\n");
    }
    let join = |tables: &BTreeSet<String>| tables.iter().cloned().collect::<Vec<_>>().join(" ");
    let mut shown = format!("{text}\n   ");
    for (what, tables) in [("reads", &touched.reads), ("writes", &touched.writes)] {
        if !tables.is_empty() {
            shown += &format!(" {what} {}", join(tables).replace("public.", ""));
        }
    }
    for reason in touched.undetermined {
        shown += &format!(" UNDETERMINED {reason}");
    }
    shown + "\n"
}

async fn check(sql: &str, texts: &[&str], expected: Expect) {
    let (_cluster, client) = database(sql).await;
    let catalog = Catalog::load(&client).await.unwrap();
    let all: String = texts.iter().map(|text| shown(&catalog, text)).collect();
    expected.assert_eq(&all);
}

#[tokio::test]
async fn names_are_looked_up_along_the_search_path() {
    check(
        "CREATE TABLE t (a int); CREATE SCHEMA s; CREATE TABLE s.t (a int); CREATE TABLE s.u (a int); CREATE TABLE \"Odd \"\" name\" (a int); \
         CREATE SCHEMA hindcast; CREATE TABLE hindcast.deleted (a int); CREATE SEQUENCE seq; SET search_path = s, public",
        &[
            "SELECT * FROM t, public.t",
            "SELECT * FROM u, \"Odd \"\" name\", seq",
            "SELECT * FROM pg_class, pg_catalog.pg_proc, information_schema.tables, hindcast.deleted",
            "INSERT INTO hindcast.deleted VALUES ($1)",
            "SELECT * FROM nowhere",
            "SELECT nothing($1), lower($2), pg_catalog.upper($3), nextval($4), count(*)",
            "SET search_path TO s, \"$user\", public",
            "SET search_path TO public",
            "SET search_path TO DEFAULT",
            "SELECT lo_get($1), query_to_xml($2, $3, $4, $5)",
            "SELECT pg_try_advisory_xact_lock($1), pg_advisory_unlock_all()",
        ],
        expect![[r#"
            SELECT * FROM t, public.t
                reads t s.t
            SELECT * FROM u, "Odd "" name", seq
                reads "Odd "" name" s.u
            SELECT * FROM pg_class, pg_catalog.pg_proc, information_schema.tables, hindcast.deleted
                nothing
            INSERT INTO hindcast.deleted VALUES ($1)
                nothing
            SELECT * FROM nowhere
                UNDETERMINED there is no table nowhere
            SELECT nothing($1), lower($2), pg_catalog.upper($3), nextval($4), count(*)
                UNDETERMINED there is no function nothing
            SET search_path TO s, "$user", public
                nothing
            SET search_path TO public
                UNDETERMINED it sets search_path to public
            SET search_path TO DEFAULT
                nothing
            SELECT lo_get($1), query_to_xml($2, $3, $4, $5)
                reads pg_catalog.pg_largeobject writes pg_catalog.pg_largeobject UNDETERMINED query_to_xml reads what it is told to when it runs
            SELECT pg_try_advisory_xact_lock($1), pg_advisory_unlock_all()
                writes advisory locks
        "#]],
    )
    .await;
}

#[tokio::test]
async fn temporary_tables_concern_nobody() {
    let (_cluster, client) = database("CREATE TABLE t (a int)").await;
    let catalog = Catalog::load(&client).await.unwrap();
    let make = Statement::of("CREATE TEMP TABLE x AS SELECT * FROM t");
    let touched = catalog.expand(&make);
    assert_eq!(touched.reads, BTreeSet::from(["public.t".to_owned()]));
    assert!(touched.undetermined.is_empty());
    let fill = Statement::of("INSERT INTO x SELECT * FROM t");
    assert!(!catalog.expand(&fill).undetermined.is_empty());
    let touched = catalog.expand_among(&fill, &make.temporary);
    assert!(touched.writes.is_empty() && touched.undetermined.is_empty());
    let qualified = catalog.expand(&Statement::of("DELETE FROM pg_temp.x"));
    assert_eq!(qualified, Default::default());
}

#[tokio::test]
async fn a_migration_touches_what_it_alters() {
    let tables = "CREATE TABLE subs (id int PRIMARY KEY, forum int, a int); CREATE TABLE kept (x int); CREATE TABLE old (x int)";
    let (_cluster, client) = database(tables).await;
    let catalog = Catalog::load(&client).await.unwrap();
    let touches = catalog.expand(&Statement::of(
        "BEGIN; DELETE FROM subs s USING subs t WHERE s.id > t.id; ALTER TABLE subs ADD UNIQUE (forum, a); DROP TABLE old; \
         CREATE TABLE new (x int); INSERT INTO new SELECT x FROM kept; COMMIT",
    ));
    let names = |names: &[&str]| {
        names
            .iter()
            .map(|name| format!("public.{name}"))
            .collect::<BTreeSet<_>>()
    };
    assert_eq!(touches.writes, names(&["old", "subs"]));
    assert_eq!(touches.reads, names(&["kept", "old", "subs"]));
}

#[tokio::test]
async fn views_are_their_tables() {
    check(
        "CREATE TABLE a (x int PRIMARY KEY, y int); CREATE TABLE b (x int); CREATE TABLE log (x int); \
         CREATE FUNCTION peek() RETURNS int LANGUAGE sql AS 'SELECT count(*)::int FROM log'; \
         CREATE VIEW simple AS SELECT * FROM a; \
         CREATE VIEW nested AS SELECT s.*, peek() AS z FROM simple s WHERE EXISTS (SELECT FROM b WHERE b.x = s.x); \
         CREATE MATERIALIZED VIEW kept AS SELECT * FROM nested; \
         CREATE VIEW triggered AS SELECT * FROM b; \
         CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN INSERT INTO log VALUES (NEW.x); RETURN NEW; END'; \
         CREATE TRIGGER t INSTEAD OF INSERT ON triggered FOR EACH ROW EXECUTE FUNCTION note(); \
         CREATE VIEW ruled AS SELECT x FROM b GROUP BY x; \
         CREATE RULE r AS ON INSERT TO ruled DO INSTEAD INSERT INTO log VALUES (new.x); \
         CREATE RULE also AS ON DELETE TO a DO ALSO DELETE FROM log WHERE x = old.x",
        &[
            "SELECT * FROM simple",
            "SELECT * FROM nested",
            "SELECT * FROM kept",
            "REFRESH MATERIALIZED VIEW kept",
            "UPDATE simple SET y = $1",
            "INSERT INTO triggered VALUES ($1)",
            "DELETE FROM triggered",
            "INSERT INTO ruled VALUES ($1)",
            "DELETE FROM a",
            "INSERT INTO a VALUES ($1)",
            "SELECT * FROM simple FOR UPDATE",
        ],
        expect![[r#"
            SELECT * FROM simple
                reads a
            SELECT * FROM nested
                reads a b log
            SELECT * FROM kept
                reads kept
            REFRESH MATERIALIZED VIEW kept
                reads a b log writes kept
            UPDATE simple SET y = $1
                reads a writes a
            INSERT INTO triggered VALUES ($1)
                reads b writes log
            DELETE FROM triggered
                reads b writes b
            INSERT INTO ruled VALUES ($1)
                reads b log writes log
            DELETE FROM a
                reads a log writes a log
            INSERT INTO a VALUES ($1)
                writes a
            SELECT * FROM simple FOR UPDATE
                reads a writes a
        "#]],
    )
    .await;
}

#[tokio::test]
async fn foreign_keys_reach_both_ways() {
    check(
        "CREATE TABLE parent (id int PRIMARY KEY, code text UNIQUE, title text); \
         CREATE TABLE plain (parent int REFERENCES parent, note text); \
         CREATE TABLE owned (id int PRIMARY KEY, parent int REFERENCES parent ON DELETE CASCADE); \
         CREATE TABLE grand (owned int REFERENCES owned ON DELETE SET NULL); \
         CREATE TABLE coded (code text REFERENCES parent (code) ON UPDATE CASCADE); \
         CREATE TABLE pointed (a int, at int GENERATED ALWAYS AS (a + 1) STORED REFERENCES parent); \
         CREATE TABLE log (x int); \
         CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN INSERT INTO log VALUES (1); RETURN NULL; END'; \
         CREATE TRIGGER note AFTER UPDATE OF at ON pointed FOR EACH ROW EXECUTE FUNCTION note()",
        &[
            "INSERT INTO plain VALUES ($1)",
            "UPDATE plain SET parent = $1",
            "UPDATE plain SET note = $1",
            "DELETE FROM plain",
            "UPDATE parent SET title = $1",
            "UPDATE parent SET code = $1",
            "DELETE FROM parent",
            "DELETE FROM owned",
            "INSERT INTO parent VALUES ($1) ON CONFLICT (id) DO UPDATE SET id = $2",
            "TRUNCATE parent CASCADE",
            "UPDATE pointed SET a = $1",
        ],
        expect![[r#"
            INSERT INTO plain VALUES ($1)
                reads parent writes plain
            UPDATE plain SET parent = $1
                reads parent plain writes plain
            UPDATE plain SET note = $1
                reads plain writes plain
            DELETE FROM plain
                reads plain writes plain
            UPDATE parent SET title = $1
                reads parent writes parent
            UPDATE parent SET code = $1
                reads coded parent writes coded parent
            DELETE FROM parent
                reads coded grand owned parent plain pointed writes grand owned parent
            DELETE FROM owned
                reads grand owned writes grand owned
            INSERT INTO parent VALUES ($1) ON CONFLICT (id) DO UPDATE SET id = $2
                reads owned parent plain pointed writes parent
            TRUNCATE parent CASCADE
                writes coded grand owned parent plain pointed
            UPDATE pointed SET a = $1
                reads parent pointed writes log pointed
        "#]],
    )
    .await;
}

#[tokio::test]
async fn triggers_and_functions_do_what_their_bodies_say() {
    check(
        "CREATE TABLE t (a int, b int); CREATE TABLE log (a int); CREATE TABLE counts (n int); CREATE TABLE r (a int); \
         CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ DECLARE n counts%ROWTYPE; BEGIN \
           SELECT * INTO n FROM counts; IF TG_OP = 'INSERT' THEN INSERT INTO log VALUES (NEW.a); END IF; RETURN NEW; END $$; \
         CREATE TRIGGER note AFTER INSERT OR UPDATE OF b ON t FOR EACH ROW EXECUTE FUNCTION note(); \
         CREATE FUNCTION total() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN UPDATE counts SET n = n + (SELECT count(*) FROM gone); RETURN NULL; END $$; \
         CREATE TRIGGER total AFTER DELETE ON t REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION total(); \
         CREATE FUNCTION plain(x int) RETURNS bigint LANGUAGE sql AS 'SELECT count(*) FROM r WHERE a = x'; \
         CREATE FUNCTION atomic(x int) RETURNS SETOF r BEGIN ATOMIC INSERT INTO log VALUES (x); SELECT * FROM r; END; \
         CREATE FUNCTION short() RETURNS bigint RETURN (SELECT count(*) FROM counts); \
         CREATE PROCEDURE work(INOUT x bigint) LANGUAGE plpgsql AS $$ BEGIN DELETE FROM log; COMMIT; x := plain(x); END $$; \
         CREATE PROCEDURE two(IN a int, OUT b int, INOUT c int) LANGUAGE plpgsql AS $$ BEGIN b := a; SELECT n INTO c FROM counts; END $$; \
         CREATE FUNCTION rows(OUT a int, OUT b int) RETURNS SETOF record LANGUAGE plpgsql AS $$ BEGIN RETURN QUERY SELECT * FROM t; END $$; \
         CREATE FUNCTION listed() RETURNS TABLE (a int) LANGUAGE plpgsql AS $$ BEGIN FOR a IN SELECT r.a FROM r LOOP RETURN NEXT; END LOOP; END $$; \
         CREATE FUNCTION dynamic() RETURNS void LANGUAGE plpgsql AS $$ BEGIN EXECUTE 'DROP TABLE t'; END $$; \
         CREATE FUNCTION calls() RETURNS void LANGUAGE plpgsql AS $$ BEGIN PERFORM dynamic(); END $$; \
         CREATE FUNCTION overloaded(int) RETURNS int LANGUAGE sql AS 'SELECT a FROM r'; \
         CREATE FUNCTION overloaded(text) RETURNS int LANGUAGE sql AS 'SELECT a FROM log'; \
         CREATE FUNCTION add(r, int) RETURNS r LANGUAGE sql AS 'SELECT $1'; \
         CREATE FUNCTION start(bigint, int) RETURNS bigint LANGUAGE sql AS 'SELECT count(*) FROM counts'; \
         CREATE AGGREGATE odd (int) (SFUNC = start, STYPE = bigint); \
         CREATE FUNCTION recursive(int) RETURNS int LANGUAGE sql AS 'SELECT a FROM r'; \
         CREATE OR REPLACE FUNCTION recursive(int) RETURNS int LANGUAGE sql AS 'SELECT recursive($1 - 1) FROM t'; \
         CREATE SCHEMA s; CREATE TABLE s.r (a int); \
         CREATE FUNCTION elsewhere() RETURNS int LANGUAGE sql SET search_path = s AS 'SELECT abs(a) FROM r'; \
         CREATE FUNCTION temporary() RETURNS void LANGUAGE plpgsql AS $$ BEGIN CREATE TEMP TABLE x AS SELECT * FROM t; DELETE FROM x; END $$; \
         CREATE FUNCTION pure(text) RETURNS text LANGUAGE internal IMMUTABLE AS 'lower'; \
         CREATE FUNCTION impure(text) RETURNS text LANGUAGE internal AS 'lower'; \
         CREATE EXTENSION pgcrypto; \
         CREATE TABLE computed (id uuid DEFAULT gen_random_uuid(), n bigint DEFAULT short(), CHECK (overloaded(n::text) IS NULL))",
        &[
            "INSERT INTO t VALUES ($1)",
            "UPDATE t SET a = $1",
            "UPDATE t SET b = $1",
            "DELETE FROM t",
            "SELECT plain($1)",
            "SELECT * FROM atomic($1)",
            "SELECT short()",
            "CALL work($1)",
            "CALL two($1, $2)",
            "SELECT * FROM rows(), listed()",
            "SELECT calls()",
            "SELECT overloaded($1)",
            "SELECT odd(a) FROM r",
            "SELECT recursive($1)",
            "SELECT elsewhere()",
            "SELECT temporary()",
            "SELECT pure($1)",
            "SELECT impure($1)",
            "SELECT gen_salt($1)",
            "INSERT INTO computed DEFAULT VALUES",
            "SELECT * FROM computed",
        ],
        expect![[r#"
            INSERT INTO t VALUES ($1)
                reads counts writes log t
            UPDATE t SET a = $1
                reads t writes t
            UPDATE t SET b = $1
                reads counts t writes log t
            DELETE FROM t
                reads counts t writes counts t
            SELECT plain($1)
                reads r
            SELECT * FROM atomic($1)
                reads r writes log
            SELECT short()
                reads counts
            CALL work($1)
                reads log r writes log
            CALL two($1, $2)
                reads counts
            SELECT * FROM rows(), listed()
                reads r t
            SELECT calls()
                UNDETERMINED in function public.dynamic: EXECUTE runs a text that is put together when it runs
            SELECT overloaded($1)
                reads log r
            SELECT odd(a) FROM r
                reads counts r
            SELECT recursive($1)
                reads t
            SELECT elsewhere()
                reads s.r
            SELECT temporary()
                reads t
            SELECT pure($1)
                nothing
            SELECT impure($1)
                UNDETERMINED in function public.impure: it is written in internal
            SELECT gen_salt($1)
                nothing
            INSERT INTO computed DEFAULT VALUES
                reads counts log writes computed
            SELECT * FROM computed
                reads computed
        "#]],
    )
    .await;
}

#[tokio::test]
async fn partitions_heirs_and_policies_belong_to_their_table() {
    check(
        "CREATE TABLE parts (k int, v int) PARTITION BY RANGE (k); \
         CREATE TABLE low PARTITION OF parts FOR VALUES FROM (0) TO (10); \
         CREATE TABLE high PARTITION OF parts FOR VALUES FROM (10) TO (20) PARTITION BY LIST (k); \
         CREATE TABLE ten PARTITION OF high DEFAULT; \
         CREATE TABLE log (k int); \
         CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN INSERT INTO log VALUES (NEW.k); RETURN NEW; END'; \
         CREATE TRIGGER note AFTER UPDATE ON parts FOR EACH ROW EXECUTE FUNCTION note(); \
         CREATE TABLE base (a int); CREATE TABLE heir (b int) INHERITS (base); \
         CREATE TABLE secret (owner text); CREATE TABLE members (name text); \
         CREATE FUNCTION allowed(text) RETURNS bool LANGUAGE sql AS 'SELECT count(*) > 0 FROM log'; \
         ALTER TABLE secret ENABLE ROW LEVEL SECURITY; \
         CREATE POLICY p ON secret USING (owner IN (SELECT name FROM members) AND allowed(owner)); \
         CREATE EXTENSION postgres_fdw; CREATE SERVER other FOREIGN DATA WRAPPER postgres_fdw; CREATE FOREIGN TABLE far (a int) SERVER other",
        &[
            "SELECT * FROM parts",
            "INSERT INTO parts VALUES ($1)",
            "UPDATE ten SET v = $1",
            "SELECT * FROM low",
            "DELETE FROM base",
            "SELECT * FROM ONLY heir",
            "SELECT * FROM secret",
            "INSERT INTO secret VALUES ($1)",
            "SELECT * FROM far",
        ],
        expect![[r#"
            SELECT * FROM parts
                reads high low parts ten
            INSERT INTO parts VALUES ($1)
                writes high low parts ten
            UPDATE ten SET v = $1
                reads ten writes log ten
            SELECT * FROM low
                reads low
            DELETE FROM base
                reads base heir writes base heir
            SELECT * FROM ONLY heir
                reads heir
            SELECT * FROM secret
                reads log members secret
            INSERT INTO secret VALUES ($1)
                reads log members writes secret
            SELECT * FROM far
                UNDETERMINED public.far is in another database
        "#]],
    )
    .await;
}
