//! Bases whose rows are read from a backup, while a service is recorded.

use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hindcast_cluster::Cluster;
use hindcast_tests::http::Client;
use hindcast_tests::standby::{Follower, Random, assert_refused, kills, pair};
use hindcast_tests::{Finished, Process, Stage, wait_for};

use super::inside::replay;
use super::sides;

/// `still` is what nobody writes to while it is recorded; the sequence is what nobody logs.
const MORE: &str = "; CREATE TABLE still (id int PRIMARY KEY, what text); INSERT INTO still SELECT i, 'as it was ' || i FROM generate_series(1, 500) i; \
    CREATE TABLE ticket (id serial PRIMARY KEY, what text); INSERT INTO ticket (what) SELECT 'x' FROM generate_series(1, 20); \
    CREATE TABLE part (id int, at int, PRIMARY KEY (id, at)) PARTITION BY RANGE (at); CREATE TABLE part_1 PARTITION OF part FOR VALUES FROM (0) TO (100); \
    INSERT INTO part SELECT i, i FROM generate_series(1, 50) i; CREATE VIEW voted AS SELECT * FROM ballot WHERE votes > 0; \
    CREATE MATERIALIZED VIEW counted AS SELECT count(*) FROM still; ALTER TABLE ticket ADD FOREIGN KEY (id) REFERENCES still; \
    CREATE TYPE mood AS ENUM ('ok', 'sad'); CREATE TABLE felt (id int PRIMARY KEY, mood mood); INSERT INTO felt VALUES (1, 'ok'); \
    CREATE UNLOGGED TABLE cache (k text); INSERT INTO cache VALUES ('kept')";

/// A stage, a backup of its database, and who follows.
struct Followed {
    stage: Stage,
    backup: Cluster,
}

impl Followed {
    fn new(name: &str) -> Self {
        let schema = format!(
            "{}{MORE}; ALTER TABLE entry REPLICA IDENTITY FULL",
            sides::SCHEMA
        );
        let backup = Cluster::temporary(pair::backup()).expect("a backup starts");
        backup.sql("postgres", "CREATE DATABASE copy").unwrap();
        Self {
            stage: Stage::with(name, &schema, pair::primary()),
            backup,
        }
    }

    fn follow(&self, more: &[&str]) -> Follower {
        let (from, to) = (self.stage.database_url(), self.backup.url("copy"));
        let arguments = ["standby", "--from", &from, "--to", &to, "--json"];
        let command = self.stage.hindcast(&[&arguments, more].concat());
        Follower::start("follower", command, self.stage.folder())
    }

    fn follow_from_now(&self) -> Follower {
        let mut follower = self.follow(&[]);
        follower.wait_until_it_follows();
        follower
    }

    /// Without waiting.
    fn start_to_record(&self, from: &str, every: &str) -> Process {
        let mut command = self.stage.hindcast(&["record", "--roll-interval", "1"]);
        command
            .args(["--base-every", every, "--base-from", from, "--trace"])
            .arg(self.stage.trace())
            .arg("--")
            .args(sides::service(&self.stage))
            .env("DATABASE_URL", self.stage.database_url());
        Process::start("record", command, self.stage.folder())
    }

    fn record(&self, every: &str) -> Process {
        let mut recorder = self.start_to_record(&self.backup.url("copy"), every);
        recorder.wait_until_it_listens(self.stage.service_port);
        recorder
    }

    fn bases(&self) -> Vec<std::path::PathBuf> {
        let folders = std::fs::read_dir(self.stage.trace().join("dumps"));
        let folders = folders.into_iter().flatten().flatten();
        folders.map(|folder| folder.path()).collect()
    }

    /// Three clients vote until something is so. Returns how many requests there were.
    fn under_load(&self, what: &str, is_so: impl FnMut() -> Option<()>) -> u64 {
        let enough = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let client = |number: u64| {
                let address = format!("127.0.0.1:{}", self.stage.service_port);
                let enough = &enough;
                scope.spawn(move || {
                    let mut client = Client::new(address);
                    let mut sent = 0;
                    while !enough.load(Ordering::Relaxed) {
                        let path = format!("/{}", number * 3 + sent % 3 + 1);
                        let answer = client.send("POST", &path, None);
                        assert_eq!(answer.unwrap().status, 200);
                        sent += 1;
                        std::thread::sleep(Duration::from_millis(60 + 20 * number));
                    }
                    sent
                })
            };
            let clients: Vec<_> = (0..3).map(client).collect();
            wait_for(what, is_so);
            enough.store(true, Ordering::Relaxed);
            clients.into_iter().map(|one| one.join().unwrap()).sum()
        })
    }

    /// How often somebody has read all of the table that nobody writes to.
    fn reads(&self) -> u64 {
        let scans = "SELECT seq_scan FROM pg_stat_user_tables WHERE relname = 'still'";
        self.stage.sql(scans).parse().unwrap()
    }
}

/// Of a replay that was not faithful this says so.
#[track_caller]
fn lead_in(said: &str) -> u64 {
    assert!(said.contains("Verdict: faithful"), "{said}");
    assert!(said.contains("as recorded"), "{said}");
    said.split_once("lead-in of ").map_or(0, |(_, rest)| {
        let digits = rest.split(|c: char| !c.is_ascii_digit()).next();
        digits.unwrap().parse().unwrap()
    })
}

#[test]
fn rows_of_a_base_are_read_from_a_backup_and_a_replay_starts_from_it() {
    let followed = Followed::new("base-from");
    let follower = followed.follow_from_now();
    let stage = &followed.stage;
    // What the log has not: where a sequence is, and what is unlogged.
    stage.sql("SELECT nextval('ticket_id_seq') FROM generate_series(1, 7); INSERT INTO cache VALUES ('more')");
    let recorder = followed.record("1s");
    let before = followed.reads();
    let two = || (followed.bases().len() >= 2).then_some(());
    let first = followed.under_load("two bases", two);
    // Nor what a table has become of which no row is written any more.
    stage.sql("ALTER TABLE part ADD COLUMN late int DEFAULT 5; ALTER TABLE part ALTER late SET DEFAULT 6; ALTER TABLE ticket RENAME what TO that; ALTER TYPE mood RENAME VALUE 'ok' TO 'well'");
    let count = followed.bases().len();
    let more = || (followed.bases().len() >= count + 3).then_some(());
    let requests = first + followed.under_load("three more bases", more);
    assert_eq!(followed.reads(), before, "the primary's table was read");
    let recorded = recorder.interrupt().assert_code(0);
    follower.interrupt().assert_code(0);
    let said = &recorded.stderr;
    assert!(said.contains("rows of 6 tables from the backup)"), "{said}");
    assert!(said.contains("Its rows of public.part_1 were read from the recorded database: the backup lacks its late integer"), "{said}");
    for base in followed.bases() {
        assert!(base.join("rows.dump").exists(), "{}", base.display());
    }

    // From a base after the tables were changed, and from one before.
    let last = replay(stage, &["--from", &(requests - 1).to_string(), "--keep"]);
    let last = last.assert_code(0);
    assert!(lead_in(&last.stdout) < requests / 2, "{}", last.stdout);
    let (from, to) = ((first * 3 / 4).to_string(), (first - 1).to_string());
    let part = replay(stage, &["--from", &from, "--to", &to]);
    let part = part.assert_code(0).stdout;
    assert!(part.contains("Verdict: faithful"), "{part}");
    assert_all_is_there(stage, &last);
}

/// In a database that was kept: what is not in the log, and what came with the schema.
fn assert_all_is_there(stage: &Stage, replayed: &Finished) {
    let after = |words: &str, said: &str| {
        let rest = said.split_once(words).expect(said).1;
        rest.split([';', '\n']).next().expect(said).to_owned()
    };
    let url = after("\ndatabase ", &replayed.stdout);
    let ask = |sql: &str| {
        let mut psql = Command::new(stage.cluster.binaries().program("psql"));
        let output = psql.args(["-XAt", &url, "-c", sql]).output().unwrap();
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    };
    for (sql, value) in [
        ("SELECT count(*) || min(what) FROM still", "500as it was 1"),
        ("SELECT count(*) || max(that) FROM ticket", "20x"),
        ("SELECT count(*) || ' ' || min(late) FROM part", "50 5"),
        (
            "SELECT string_agg(k, ' ' ORDER BY k) FROM cache",
            "kept more",
        ),
        ("SELECT mood FROM felt", "well"),
        ("SELECT count FROM counted", "500"),
        ("SELECT count(*) > 0 FROM voted", "t"),
        (
            "SELECT count(*) FROM pg_constraint WHERE contype IN ('p', 'f') AND connamespace = 'public'::regnamespace",
            "7",
        ),
        ("SELECT nextval('ticket_id_seq')", "28"),
    ] {
        assert_eq!(ask(sql), value, "{sql}");
    }
    let remove = replayed.stderr.split_once("remove    ").expect("how").1;
    let (pid, folder) = (after("kill ", remove), after("rm -r ", remove));
    assert!(Command::new("kill").arg(pid).status().unwrap().success());
    wait_for("the server to be gone", || {
        let is_gone = !std::path::Path::new(&folder)
            .join("data/postmaster.pid")
            .exists();
        is_gone
            .then(|| std::fs::remove_dir_all(&folder).ok())
            .flatten()
    });
}

#[test]
fn a_follower_that_is_killed_while_bases_are_taken_leaves_none_that_is_wrong() {
    let followed = Followed::new("base-from-killed");
    let mut random = Random::seeded();
    let mut follower = Some(followed.follow_from_now());
    let recorder = followed.record("500ms");
    wait_for("the first base", || {
        (!followed.bases().is_empty()).then_some(())
    });
    let mut struck = 0;
    let requests = followed.under_load("the follower to be killed and bases to be taken", || {
        std::thread::sleep(Duration::from_millis(random.below(1200)));
        if struck < kills(12) {
            struck += 1;
            follower.take().expect("one follows").kill();
            std::thread::sleep(Duration::from_millis(random.below(300)));
            follower = Some(followed.follow(&[]));
            return None;
        }
        (followed.bases().len() >= 5).then_some(())
    });
    recorder.interrupt().assert_code(0);
    follower.unwrap().interrupt().assert_code(0);
    // The first base was there before the first request; each part begins at another one.
    let whole = replay(&followed.stage, &[]).assert_code(0).stdout;
    assert_eq!(lead_in(&whole), 0);
    assert!(whole.contains(&format!("{requests} requests")), "{whole}");
    for part in 2..=5 {
        let from = (requests * part / 6).to_string();
        let said = replay(&followed.stage, &["--from", &from]);
        lead_in(&said.assert_code(0).stdout);
    }
}

#[test]
fn a_backup_that_cannot_show_what_the_primary_showed_is_refused() {
    let followed = Followed::new("base-from-refused");
    let copy = followed.backup.url("copy");
    let refused = |from: &str, words: &str| {
        let finished = followed.start_to_record(from, "1s").wait();
        assert_refused(&finished, &["no base can be read from", words]);
    };
    refused(&copy, "nobody's backup");
    let follower = followed.follow(&["--exclude-table", "still"]);
    let is_there = || {
        let stored = followed
            .backup
            .sql("copy", "SELECT state FROM hindcast.standby");
        (stored.ok()? == "following").then_some(())
    };
    wait_for("it to follow", is_there);
    refused(&copy, "not to have all of the primary: public.still");
    follower.interrupt().assert_code(0);
    refused(&copy, "nobody follows");
    followed.backup.sql("copy", "UPDATE hindcast.standby SET system_identifier = '7', source = 'postgres://elsewhere/db'").unwrap();
    refused(
        &copy,
        "the backup of another primary, postgres://elsewhere/db",
    );
    let flags = ["record", "--base-from", &copy, "--trace", "t", "--", "true"];
    let finished = followed.stage.run("record", &flags).assert_code(2);
    assert!(
        finished.stderr.contains("--base-every"),
        "{}",
        finished.stderr
    );
}
