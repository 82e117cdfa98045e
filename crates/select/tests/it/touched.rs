//! The database's own counters, and whether what they show was foreseen.

use std::collections::BTreeSet;

use hindcast_cluster::{Cluster, Options};
use hindcast_select::{Catalog, Counters, Statement, Touches, settled};

async fn cluster() -> Cluster {
    Cluster::temporary_async(Options::throw_away())
        .await
        .unwrap()
}

fn tables(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// Runs a text in a session of its own and tells what it touched.
async fn touched_by(cluster: &Cluster, text: &str) -> Touches {
    let watcher = cluster.connect("postgres").await.unwrap();
    settled(&watcher).await.unwrap();
    let before = Counters::read(&watcher).await.unwrap();
    let session = cluster.connect("postgres").await.unwrap();
    session
        .batch_execute(text)
        .await
        .unwrap_or_else(|error| panic!("{text}: {error}"));
    drop(session);
    settled(&watcher).await.unwrap();
    Counters::read(&watcher).await.unwrap().since(&before)
}

#[tokio::test]
async fn counters_show_what_was_read_and_written() {
    let cluster = cluster().await;
    touched_by(
        &cluster,
        "CREATE TABLE a (x int PRIMARY KEY); CREATE TABLE b (x int REFERENCES a ON DELETE CASCADE); CREATE TABLE c (x int); INSERT INTO c VALUES (1); \
         CREATE SCHEMA hindcast; CREATE TABLE hindcast.notes (x int); CREATE SCHEMA \"Odd\"; CREATE TABLE \"Odd\".t (x int)",
    )
    .await;
    let touches = |reads: &[&str], writes: &[&str]| Touches {
        reads: tables(reads),
        writes: tables(writes),
    };
    for (text, expected) in [
        ("SELECT 1", touches(&[], &[])),
        ("SELECT * FROM c", touches(&["public.c"], &[])),
        ("INSERT INTO c VALUES (1)", touches(&[], &["public.c"])),
        (
            "BEGIN; INSERT INTO c VALUES (1); ROLLBACK",
            touches(&[], &["public.c"]),
        ),
        (
            "INSERT INTO a VALUES (1); INSERT INTO b VALUES (1)",
            touches(&["public.a"], &["public.a", "public.b"]),
        ),
        (
            "DELETE FROM a",
            touches(&["public.a", "public.b"], &["public.a", "public.b"]),
        ),
        ("TRUNCATE c", touches(&[], &["public.c"])),
        ("INSERT INTO hindcast.notes VALUES (1)", touches(&[], &[])),
        (
            "CREATE TEMP TABLE t AS SELECT * FROM a",
            touches(&["public.a"], &[]),
        ),
        (
            "INSERT INTO \"Odd\".t VALUES (1)",
            touches(&[], &["\"Odd\".t"]),
        ),
        ("DROP TABLE \"Odd\".t", touches(&[], &["\"Odd\".t"])),
        ("CREATE TABLE made (x int)", touches(&[], &["public.made"])),
    ] {
        assert_eq!(touched_by(&cluster, text).await, expected, "{text}");
    }
}

#[tokio::test]
async fn what_is_touched_was_foreseen() {
    let cluster = cluster().await;
    let client = cluster.connect("postgres").await.unwrap();
    client
        .batch_execute(
            "CREATE TABLE users (id int PRIMARY KEY, name text UNIQUE, karma int DEFAULT 0); \
             CREATE TABLE forums (id int PRIMARY KEY, owner int REFERENCES users ON DELETE CASCADE); \
             CREATE TABLE posts (id serial PRIMARY KEY, forum int REFERENCES forums ON DELETE CASCADE, author int REFERENCES users ON DELETE SET NULL, body text); \
             CREATE TABLE audit (what text); CREATE TABLE stats (forum int PRIMARY KEY, posts int); \
             CREATE FUNCTION count_post() RETURNS trigger LANGUAGE plpgsql AS $$ DECLARE s stats%ROWTYPE; BEGIN \
               INSERT INTO stats VALUES (NEW.forum, 1) ON CONFLICT (forum) DO UPDATE SET posts = stats.posts + 1; \
               SELECT * INTO s FROM stats WHERE forum = NEW.forum; UPDATE users SET karma = karma + 1 WHERE id = NEW.author; RETURN NEW; END $$; \
             CREATE TRIGGER count_post AFTER INSERT ON posts FOR EACH ROW EXECUTE FUNCTION count_post(); \
             CREATE FUNCTION noted(t text) RETURNS text LANGUAGE sql AS 'INSERT INTO audit VALUES (t) RETURNING what'; \
             CREATE VIEW busy AS SELECT f.id, f.owner, s.posts FROM forums f JOIN stats s ON s.forum = f.id; \
             CREATE VIEW names AS SELECT id, name FROM users; \
             CREATE RULE keep AS ON DELETE TO audit DO INSTEAD UPDATE stats SET posts = 0; \
             CREATE MATERIALIZED VIEW top AS SELECT * FROM busy; \
             CREATE TABLE log (at int, what text) PARTITION BY RANGE (at); \
             CREATE TABLE log1 PARTITION OF log FOR VALUES FROM (0) TO (10); CREATE TABLE log2 PARTITION OF log DEFAULT; \
             INSERT INTO users SELECT g, 'u' || g FROM generate_series(1, 50) g; INSERT INTO forums SELECT g, g FROM generate_series(1, 20) g",
        )
        .await
        .unwrap();
    let catalog = Catalog::load(&client).await.unwrap();
    drop(client);
    for text in [
        "INSERT INTO posts (forum, author, body) VALUES (1, 2, 'x'), (2, 3, 'y')",
        "UPDATE posts SET body = 'z'",
        "UPDATE posts SET author = 4 WHERE forum = 1",
        "SELECT noted('hello')",
        "SELECT * FROM busy",
        "SELECT * FROM top, names",
        "UPDATE names SET name = 'v' WHERE id = 7",
        "DELETE FROM audit",
        "REFRESH MATERIALIZED VIEW top",
        "WITH moved AS (DELETE FROM posts WHERE forum = 2 RETURNING *) INSERT INTO log SELECT id, body FROM moved",
        "UPDATE log SET at = 100",
        "SELECT * FROM log FOR UPDATE",
        "INSERT INTO users VALUES (1, 'u1') ON CONFLICT (id) DO UPDATE SET karma = 5",
        "UPDATE users SET id = 1000 WHERE id = 50",
        "MERGE INTO stats USING forums ON forum = id WHEN MATCHED THEN UPDATE SET posts = 3 WHEN NOT MATCHED THEN INSERT VALUES (id, 0)",
        "DELETE FROM users WHERE id < 3",
        "COPY (SELECT * FROM busy) TO STDOUT",
        "TRUNCATE users CASCADE",
    ] {
        let foreseen = catalog.expand(&Statement::of(text));
        assert_eq!(foreseen.undetermined, Vec::<String>::new(), "{text}");
        if text.starts_with("COPY") {
            continue;
        }
        let touched = touched_by(&cluster, text).await;
        assert_ne!(touched, Touches::default(), "{text}");
        let missed = |touched: &BTreeSet<String>, foreseen: &BTreeSet<String>| {
            touched.difference(foreseen).cloned().collect::<Vec<_>>()
        };
        // A write is the stronger touch: whoever must run for a reader must run for a writer.
        let either = &foreseen.reads | &foreseen.writes;
        assert_eq!(missed(&touched.reads, &either), [""; 0], "{text}");
        assert_eq!(missed(&touched.writes, &foreseen.writes), [""; 0], "{text}");
    }
}
