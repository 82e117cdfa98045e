//! What is found before anything is touched.

use expect_test::expect;
use hindcast_cluster::Shutdown;
use hindcast_standby::source::{PreflightError, Primary, TableFilter, preflight};

use super::support::{Stage, cluster, options};

fn filter(include: &[&str], exclude: &[&str]) -> TableFilter {
    let own = |patterns: &[&str]| patterns.iter().map(|&text| text.to_owned()).collect();
    TableFilter {
        include: own(include),
        exclude: own(exclude),
        rows: Vec::new(),
    }
}

/// The refusal and the advice.
fn said(result: Result<Primary, PreflightError>) -> String {
    match result {
        Ok(primary) => format!("may be followed: {} tables", primary.tables.len()),
        Err(error) => format!("{error}\n{}", error.hint()),
    }
}

fn look(stage: &Stage) -> String {
    said(preflight(
        &stage.url(),
        &TableFilter::default(),
        &stage.names.slot,
    ))
}

#[test]
fn tables_are_found_with_what_is_known_of_them() {
    let stage = Stage::with(
        "tables",
        "CREATE SCHEMA \"Sales\"; CREATE SCHEMA hindcast; CREATE TABLE hindcast.ours (k int);
         CREATE TYPE mood AS ENUM ('good');
         CREATE TABLE \"Sales\".\"Order\" (b text COLLATE \"C\", a numeric(8, 2), n int GENERATED ALWAYS AS (1) STORED, m mood, PRIMARY KEY (a, b) INCLUDE (m));
         CREATE TABLE p (k int) PARTITION BY RANGE (k);
         CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (9);
         ALTER TABLE p1 REPLICA IDENTITY FULL;
         CREATE UNLOGGED TABLE u (k int); CREATE TEMP TABLE t (k int);
         CREATE MATERIALIZED VIEW v AS SELECT 1 AS one; CREATE SEQUENCE s;
         CREATE EXTENSION postgres_fdw; CREATE SERVER elsewhere FOREIGN DATA WRAPPER postgres_fdw;
         CREATE FOREIGN TABLE f (k int) SERVER elsewhere;",
    );
    let primary = stage.primary();
    assert_eq!(primary.database, "tables");
    assert!(primary.version >= 140_000 && primary.system_identifier.len() > 10);
    let tables: Vec<_> = primary
        .tables
        .iter()
        .map(|table| {
            let columns: Vec<_> = table
                .columns
                .iter()
                .map(|column| format!("{} {}", column.name, column.type_name))
                .collect();
            format!(
                "{} ({}) key {:?} {}",
                table.quoted(),
                columns.join(", "),
                table.primary_key,
                table.identity
            )
        })
        .collect();
    expect![[r#"
        "Sales"."Order" (b text, a numeric(8,2), m public.mood) key ["a", "b"] d
        "public"."p1" (k integer) key [] f"#]]
    .assert_eq(&tables.join("\n"));
    expect![[r#"
        public.f is not replicated: a foreign table keeps its rows elsewhere
        public.u is not replicated: an unlogged table is not in the log
        public.v is not replicated: a materialized view is filled by REFRESH on the backup"#]]
    .assert_eq(&primary.notices.join("\n"));
}

#[test]
fn tables_that_could_not_be_updated_any_more_are_refused_if_they_were_updated() {
    let stage = Stage::with(
        "identities",
        "CREATE TABLE fine (k int PRIMARY KEY);
         CREATE TABLE bare (k int);
         CREATE TABLE \"Nothing\" (k int PRIMARY KEY); ALTER TABLE \"Nothing\" REPLICA IDENTITY NOTHING;
         CREATE TABLE later (k int PRIMARY KEY DEFERRABLE);
         CREATE TABLE index_gone (k int NOT NULL UNIQUE); ALTER TABLE index_gone REPLICA IDENTITY USING INDEX index_gone_k_key;
         ALTER TABLE index_gone DROP CONSTRAINT index_gone_k_key;",
    );
    // As with any publication, those whose rows are only inserted do no harm.
    stage.sql("INSERT INTO bare VALUES (1), (2)");
    assert_eq!(look(&stage), "may be followed: 5 tables");
    expect![[r#"
        public.Nothing has no primary key or other replica identity: rows that are inserted are replicated, and the primary refuses to update or delete any while the table is published. ALTER TABLE "public"."Nothing" REPLICA IDENTITY FULL permits it; --exclude-table public.Nothing leaves the table out
        public.bare has no primary key or other replica identity: rows that are inserted are replicated, and the primary refuses to update or delete any while the table is published. ALTER TABLE public.bare REPLICA IDENTITY FULL permits it; --exclude-table public.bare leaves the table out"#]]
    .assert_eq(&stage.primary().notices[..2].join("\n"));

    for table in ["bare", "\"Nothing\"", "later", "index_gone"] {
        stage.sql(&format!(
            "INSERT INTO {table} VALUES (7); UPDATE {table} SET k = 8 WHERE k = 7; DELETE FROM {table}"
        ));
    }
    expect![[r#"
        "public"."Nothing", public.bare, public.index_gone, public.later have no primary key or other replica identity that the log could use to say which row of them was changed, and rows were updated or deleted
        give each of them a primary key, or let every update log the whole old row: ALTER TABLE "public"."Nothing" REPLICA IDENTITY FULL; ALTER TABLE public.bare REPLICA IDENTITY FULL; ALTER TABLE public.index_gone REPLICA IDENTITY FULL; ALTER TABLE public.later REPLICA IDENTITY FULL; Or leave out: --exclude-table public.Nothing --exclude-table public.bare --exclude-table public.index_gone --exclude-table public.later"#]].assert_eq(&look(&stage));
    // These are just the ones that the primary itself would refuse.
    stage.sql("CREATE PUBLICATION probe FOR ALL TABLES");
    for (table, works) in [
        ("fine", true),
        ("bare", false),
        ("\"Nothing\"", false),
        ("later", false),
        ("index_gone", false),
    ] {
        let sql = format!("INSERT INTO {table} VALUES (1); UPDATE {table} SET k = 2");
        let updated = stage.connect().execute(&sql).is_ok();
        assert_eq!(updated, works, "{table}");
    }
    let without = filter(&[], &["bare", "Nothing", "later", "index_*"]);
    assert_eq!(
        said(preflight(&stage.url(), &without, "hindcast_identities")),
        "may be followed: 1 tables"
    );
    stage.sql("ALTER TABLE bare REPLICA IDENTITY FULL; ALTER TABLE \"Nothing\" REPLICA IDENTITY DEFAULT; ALTER TABLE later REPLICA IDENTITY FULL; ALTER TABLE index_gone REPLICA IDENTITY FULL");
    assert_eq!(look(&stage), "may be followed: 5 tables");
}

#[test]
fn keys_that_are_computed_are_refused_as_the_log_leaves_them_out() {
    let stage = Stage::with(
        "computed",
        "CREATE TABLE fine (k int PRIMARY KEY, n int GENERATED ALWAYS AS (1) STORED);
         CREATE TABLE computed (a int, k int GENERATED ALWAYS AS (a * 2) STORED PRIMARY KEY);
         CREATE TABLE by_index (a int, k int GENERATED ALWAYS AS (a * 2) STORED NOT NULL UNIQUE);
         ALTER TABLE by_index REPLICA IDENTITY USING INDEX by_index_k_key;",
    );
    expect![[r#"
        the key of public.by_index, public.computed has a generated column, which is not in the log: an update would not say of which row it is
        let every update log the whole old row: ALTER TABLE public.by_index REPLICA IDENTITY FULL; ALTER TABLE public.computed REPLICA IDENTITY FULL; Or leave out: --exclude-table public.by_index --exclude-table public.computed"#]]
    .assert_eq(&look(&stage));
    stage.sql("ALTER TABLE computed REPLICA IDENTITY FULL; DROP TABLE by_index");
    assert_eq!(look(&stage), "may be followed: 2 tables");

    // One that is there when others are followed already.
    stage.prepare();
    stage.sql("ALTER TABLE computed REPLICA IDENTITY DEFAULT; CREATE TABLE new (a int, k int GENERATED ALWAYS AS (a) STORED PRIMARY KEY)");
    expect![[r#"
        public.computed is replicated until a row of it is updated or deleted: its key has a generated column, which is not in the log: an update would not say of which row it is. ALTER TABLE public.computed REPLICA IDENTITY FULL permits it
        public.new is not replicated: its key has a generated column, which is not in the log: an update would not say of which row it is"#]]
    .assert_eq(&stage.primary().notices.join("\n"));
}

#[test]
fn what_happens_to_other_tables_keeps_nobody_from_following_on() {
    let stage = Stage::with(
        "later",
        "CREATE TABLE t (k int PRIMARY KEY); CREATE TABLE u (k int PRIMARY KEY); CREATE TABLE gone (k int PRIMARY KEY)",
    );
    let look = || {
        let filter = filter(&["*", "gone"], &[]);
        preflight(&stage.url(), &filter, &stage.names.slot)
    };
    stage.prepare();
    stage.sql("CREATE TABLE bare (k int); INSERT INTO bare VALUES (1); UPDATE bare SET k = 2; CREATE TABLE logged (k int); CREATE TABLE fine (k int PRIMARY KEY); ALTER TABLE u DROP CONSTRAINT u_pkey; DROP TABLE gone");
    let primary = look().unwrap();
    let tables: Vec<_> = primary.tables.iter().map(ToString::to_string).collect();
    assert_eq!(
        tables,
        ["public.fine", "public.logged", "public.t", "public.u"]
    );
    expect![[r#"
        public.bare is not replicated: it has no primary key or other replica identity, and its rows were updated or deleted, which the primary would refuse
        public.u has no primary key or other replica identity: rows that are inserted are replicated, and the primary refuses to update or delete any while the table is published. ALTER TABLE public.u REPLICA IDENTITY FULL permits it; --exclude-table public.u leaves the table out"#]].assert_eq(&primary.notices.join("\n"));
    // A new standby is another matter.
    let new = preflight(&stage.url(), &TableFilter::default(), "hindcast_later_2");
    assert!(matches!(new, Err(PreflightError::NoIdentity { tables }) if tables == ["public.bare"]));
}

#[test]
fn patterns_that_fit_nothing_are_most_likely_misspelled() {
    let stage = Stage::with(
        "patterns",
        "CREATE TABLE orders (k int PRIMARY KEY); CREATE UNLOGGED TABLE cache (k int);",
    );
    let said = |include| {
        said(preflight(
            &stage.url(),
            &filter(include, &[]),
            "hindcast_patterns",
        ))
    };
    expect![[r#"
        no table fits order, sales.*
        patterns are like public.orders, 'sales.*' or '*_log'; \dt shows the tables"#]]
    .assert_eq(&said(&["order", "orders", "sales.*"]));
    expect![[r#"
        there is no table to replicate
        check the database of --from, and --table and --exclude-table"#]]
    .assert_eq(&said(&["public.cache"]));
    assert_eq!(said(&["public.*"]), "may be followed: 1 tables");
}

#[test]
fn a_role_needs_rights() {
    let stage = Stage::with(
        "rights",
        "CREATE ROLE follower LOGIN; CREATE ROLE owner;
         CREATE SCHEMA apart;
         CREATE TABLE apart.t (k int PRIMARY KEY); CREATE TABLE u (k int PRIMARY KEY);
         ALTER TABLE apart.t OWNER TO owner; ALTER TABLE u OWNER TO follower;",
    );
    let look = || {
        said(preflight(
            &stage.url_of("follower"),
            &TableFilter::default(),
            &stage.names.slot,
        ))
    };
    let mut seen = Vec::new();
    for step in [
        "SELECT",
        "ALTER ROLE follower REPLICATION",
        "GRANT SELECT ON ALL TABLES IN SCHEMA apart TO follower",
        "ALTER TABLE apart.t ENABLE ROW LEVEL SECURITY; GRANT USAGE ON SCHEMA apart TO follower",
        "ALTER ROLE follower BYPASSRLS",
        "GRANT CREATE ON DATABASE rights TO follower",
        // What the advice says.
        "CREATE PUBLICATION hindcast_rights FOR TABLE apart.t, public.u; REVOKE CREATE ON DATABASE rights FROM follower",
        "DROP PUBLICATION hindcast_rights; GRANT CREATE ON DATABASE rights TO follower; GRANT owner TO follower",
    ] {
        stage.sql(step);
        seen.push(look());
    }
    expect![[r#"
        the role follower may not replicate
        as a superuser on the primary: ALTER ROLE "follower" REPLICATION

        the role follower may not read apart.t
        GRANT SELECT ON apart.t TO "follower" (and USAGE on the schema), or leave out: --exclude-table apart.t

        the role follower may not read apart.t
        GRANT SELECT ON apart.t TO "follower" (and USAGE on the schema), or leave out: --exclude-table apart.t

        row security may hide rows of apart.t from the role follower
        as a superuser on the primary: ALTER ROLE "follower" BYPASSRLS; or leave out: --exclude-table apart.t

        the role follower may not create a publication in the database rights
        as a superuser on the primary: GRANT CREATE ON DATABASE "rights" TO "follower"

        the role follower may not publish apart.t: it does not own it
        let the tables' owner follow, or run as a superuser on the primary: CREATE PUBLICATION hindcast_rights FOR TABLE apart.t, public.u

        may be followed: 2 tables

        may be followed: 2 tables"#]].assert_eq(&seen.join("\n\n"));
}

#[test]
fn a_server_needs_settings_and_room() {
    let mut cluster = cluster(
        options()
            .set("wal_level", "replica")
            .set("max_replication_slots", 1)
            .set("max_wal_senders", 1),
    );
    cluster
        .sql("postgres", "CREATE TABLE t (k int PRIMARY KEY)")
        .unwrap();
    let look = |cluster: &hindcast_cluster::Cluster, slot| {
        let url = cluster.socket_url("postgres");
        said(preflight(&url, &TableFilter::default(), slot))
    };
    let mut seen = vec![look(&cluster, "hindcast_a")];
    cluster.stop(Shutdown::Fast).unwrap();
    let settings = cluster.options_mut().clone().set("wal_level", "logical");
    *cluster.options_mut() = settings;
    cluster.start().unwrap();
    cluster
        .sql(
            "postgres",
            "SELECT pg_create_logical_replication_slot('hindcast_a', 'pgoutput')",
        )
        .unwrap();
    seen.push(look(&cluster, "hindcast_b"));
    seen.push(look(&cluster, "hindcast_a"));
    let url: hindcast_pg::DatabaseUrl = cluster.socket_url("postgres");
    let from = cluster
        .sql("postgres", "SELECT pg_current_wal_lsn()")
        .unwrap()
        .parse()
        .unwrap();
    let stream = hindcast_standby::source::Stream::start(
        &url,
        "hindcast_a",
        "hindcast_a",
        from,
        Default::default(),
    )
    .unwrap();
    seen.push(look(&cluster, "hindcast_a"));
    drop(stream);
    cluster.stop(Shutdown::Fast).unwrap();
    let gone = said(preflight(&url, &TableFilter::default(), "hindcast_a"));
    assert!(
        gone.starts_with("the primary cannot be reached\n"),
        "{gone}"
    );
    expect![[r#"
        wal_level is replica on the primary: its WAL lacks what logical replication needs
        on the primary: ALTER SYSTEM SET wal_level = 'logical'; then restart it

        all 1 replication slots of the primary are in use
        drop slots that nobody reads (SELECT slot_name, active FROM pg_replication_slots), or raise max_replication_slots and restart the primary

        may be followed: 1 tables

        all 1 WAL senders of the primary are in use
        end replication sessions that are not needed (SELECT * FROM pg_stat_replication), or raise max_wal_senders and restart the primary"#]].assert_eq(&seen.join("\n\n"));
}
