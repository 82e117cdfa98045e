//! The roles of `docs/security.md`: each is created by the page's own statements, does what it is
//! for, and leaves its password nowhere.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use hindcast_cluster::{Cluster, Options};
use hindcast_tests::{Finished, Process, Stage, http, program, repository, wait_for};

/// The password of every role here, and of the service.
const PASSWORD: &str = "hemlig-4711";

/// How the page lets the recorder read the server's WAL, and how the recorder asks for it.
const REPLICATION: &str = "ALTER ROLE hindcast_record REPLICATION";
const REPLICATION_ASKED: &str = "ALTER ROLE \"hindcast_record\" REPLICATION";

/// Creates a role as the page says, but for its password.
fn create(cluster: &Cluster, role: &str) {
    let page = fs::read_to_string(repository("docs/security.md")).expect("the page");
    let create = format!("CREATE ROLE {role} ");
    let block = page.split("```sql\n").skip(1);
    let block = block.filter_map(|rest| rest.split("```").next());
    let block: Vec<_> = block.filter(|block| block.contains(&create)).collect();
    let [block] = block[..] else {
        panic!("the page has {} blocks with {create}", block.len());
    };
    assert!(!block.contains("SUPERUSER"));
    let sql = block.replace("'choose one'", &format!("'{PASSWORD}'"));
    cluster.sql("shop", &sql).expect("the page's statements");
}

fn server(settings: &[(&str, &str)]) -> Cluster {
    let options = Options {
        hba: "local all postgres trust\nlocal all shop trust\n\
              host all all 127.0.0.1/32 scram-sha-256\n\
              host replication all 127.0.0.1/32 scram-sha-256\n"
            .to_owned(),
        ..Options::throw_away()
    };
    let set = |options: Options, &(name, value): &(&str, &str)| options.set(name, value);
    let options = settings.iter().fold(options, set);
    let cluster = Cluster::temporary(options).expect("a private Postgres");
    let role = format!("CREATE ROLE shop LOGIN PASSWORD '{PASSWORD}'");
    cluster.sql("postgres", &role).expect("a role");
    let database = "CREATE DATABASE shop OWNER shop";
    cluster.sql("postgres", database).expect("a database");
    cluster
}

/// Watches what `ps` would show of all processes until it is asked.
struct Ps {
    stop: Arc<AtomicBool>,
    watching: JoinHandle<BTreeSet<String>>,
}

impl Ps {
    fn watch() -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let watching = std::thread::spawn(move || {
            let mut first_seen = BTreeMap::new();
            let mut shown = BTreeSet::new();
            while !stopped.load(Ordering::Relaxed) {
                for (process, line) in Self::look() {
                    let since = *first_seen.entry(process).or_insert_with(Instant::now);
                    // Given on its own command line, it shows until the arguments are read.
                    let ours = line
                        .split(' ')
                        .next()
                        .is_some_and(|p| p.ends_with("/hindcast"));
                    if !ours || since.elapsed() > Duration::from_secs(1) {
                        shown.insert(line);
                    }
                }
                std::thread::sleep(Duration::from_millis(10));
            }
            shown
        });
        Self { stop, watching }
    }

    /// Command lines with the password, each behind its process.
    fn look() -> Vec<(String, String)> {
        let processes = fs::read_dir("/proc").expect("there is a /proc");
        let lines = processes.flatten().filter_map(|process| {
            let line = fs::read(process.path().join("cmdline")).ok()?;
            let line = String::from_utf8_lossy(&line).replace('\0', " ");
            let name = process.file_name().to_string_lossy().into_owned();
            line.contains(PASSWORD).then_some((name, line))
        });
        lines.collect()
    }

    fn assert_never_shown(self) {
        self.stop.store(true, Ordering::Relaxed);
        let shown = self.watching.join().expect("it only looks");
        assert!(shown.is_empty(), "ps showed {shown:#?}");
    }
}

/// Files below `folder` that hold the password.
fn files_with_password(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let Ok(entries) = fs::read_dir(folder) else {
        return found;
    };
    for entry in entries.flatten() {
        let path = entry.path();
        let kind = entry.file_type().expect("known");
        if kind.is_dir() {
            found.extend(files_with_password(&path));
        } else if kind.is_file() {
            let text = fs::read(&path).unwrap_or_default();
            let mut windows = text.windows(PASSWORD.len());
            if windows.any(|window| window == PASSWORD.as_bytes()) {
                found.push(path.display().to_string());
            }
        }
    }
    found
}

/// A recorded service on the database `shop`.
struct Shop {
    stage: Stage,
    cluster: Cluster,
}

impl Shop {
    fn new() -> Self {
        let cluster = server(&[("wal_level", "replica"), ("max_wal_senders", "4")]);
        let stage = Stage::new("roles", "SELECT 1");
        let mut load = Command::new(program("hindcast-workload"));
        let socket = cluster.socket_url_as("shop", "shop").to_string();
        load.args([
            "load",
            "moodle",
            "--scale",
            "0.01",
            "--database-url",
            &socket,
        ]);
        Process::start("load", load, stage.folder())
            .wait()
            .assert_code(0);
        Self { stage, cluster }
    }

    fn url(&self, role: &str) -> String {
        let port = self.cluster.port();
        format!("postgres://{role}:{PASSWORD}@127.0.0.1:{port}/shop")
    }

    /// Logs in as itself, through the gateway. The password is in the command's environment.
    fn service(&self) -> String {
        format!(
            "DATABASE_URL='postgres://shop:{PASSWORD}@127.0.0.1:{}/shop' exec {} serve moodle \
             --listen 127.0.0.1:{} --variant original",
            self.stage.gateway_port,
            program("hindcast-workload").display(),
            self.stage.service_port,
        )
    }

    fn command(&self, arguments: &[&str], trace: &str) -> Command {
        let mut command = self.stage.hindcast(arguments);
        command.arg("--trace").arg(self.stage.folder().join(trace));
        command
    }

    fn run(&self, name: &str, arguments: &[&str], trace: &str) -> Finished {
        let command = self.command(arguments, trace);
        Process::start(name, command, self.stage.folder()).wait()
    }

    fn record(&self, trace: &str) -> Finished {
        let (ingress, url) = (self.stage.ingress(), self.url("hindcast_record"));
        let app = format!("http://127.0.0.1:{}", self.stage.service_port);
        let gateway = format!("127.0.0.1:{}", self.stage.gateway_port);
        let mut arguments = vec![
            "record",
            "--postgres",
            &url,
            "--isolation",
            "repeatable-read",
        ];
        arguments.extend(["--listen", &ingress, "--app", &app, "--pg-listen", &gateway]);
        let command = self.command(&arguments, trace);
        let mut recorder = Process::start(&format!("record-{trace}"), command, self.stage.folder());
        recorder.wait_until_it_listens(self.stage.ingress_port);
        let mut service = Command::new("sh");
        service.args(["-c", "eval \"$SERVICE\""]);
        service.env("SERVICE", self.service());
        let service = self.stage.start_service(service);
        let mut client = http::Client::new(self.stage.ingress());
        for user in 1..=4 {
            let body = format!("{{\"userid\":{user},\"forum\":1}}");
            let response = client.send("POST", "/subscribe", Some(&body));
            assert!(response.expect("the service answers").status < 300);
        }
        service.stop();
        recorder.interrupt().assert_code(0)
    }
}

#[test]
fn the_roles_of_the_page_do_the_main_job() {
    let shop = Shop::new();
    for role in ["hindcast_record", "hindcast_replay", "hindcast_backup"] {
        create(&shop.cluster, role);
    }
    let ps = Ps::watch();

    let url = shop.url("hindcast_replay");
    shop.run("base", &["base", "--postgres", &url], "trace")
        .assert_code(0);
    let recorded = shop.record("trace");
    assert!(
        recorded.stdout.contains(REPLICATION_ASKED),
        "{}",
        recorded.stdout
    );
    assert!(
        recorded.stdout.contains("final state   "),
        "{}",
        recorded.stdout
    );
    assert!(
        !recorded.stdout.contains("not recorded"),
        "{}",
        recorded.stdout
    );

    let (app, html) = (shop.service(), shop.stage.folder().join("report.html"));
    let html = html.display().to_string();
    let with = ["--postgres", &url, "--app", &app];
    let rewind = [&["rewind", "--before", "1"], &with[..]].concat();
    shop.run("rewind", &rewind, "trace").assert_code(0);
    let replay = [&["replay", "--json"], &with[..]].concat();
    let replayed = shop.run("replay", &replay, "trace").assert_code(0);
    assert!(
        replayed.stdout.contains("\"not_pinned\""),
        "{}",
        replayed.stdout
    );
    let retro = [&["retro", "--html", &html], &with[..]].concat();
    shop.run("retro", &retro, "trace").assert_code(0);
    let html = fs::read_to_string(html).expect("a report");
    assert!(
        html.contains("postgres://shop:***@"),
        "the command is masked"
    );

    // The same from a backup, where only taking it needs a role.
    let backup = shop.cluster.folder().join("backup").display().to_string();
    let url = shop.url("hindcast_backup");
    let base = ["base", "--postgres", &url, "--backup", &backup];
    shop.run("backup", &base, "second").assert_code(0);
    // What the first recording had to do without.
    let page = fs::read_to_string(repository("docs/security.md")).expect("the page");
    assert!(page.contains(&format!("```sql\n{REPLICATION};\n```")));
    shop.cluster.sql("shop", REPLICATION).expect("a right");
    let recorded = shop.record("second");
    assert!(
        !recorded.stdout.contains(REPLICATION_ASKED),
        "{}",
        recorded.stdout
    );
    let replay = ["replay", "--json", "--app", &app];
    let replayed = shop.run("replay-backup", &replay, "second").assert_code(0);
    assert!(
        !replayed.stdout.contains("\"not_pinned\""),
        "{}",
        replayed.stdout
    );

    ps.assert_never_shown();
    let left = files_with_password(shop.stage.folder());
    assert!(left.is_empty(), "the password is in {left:#?}");
}

#[test]
fn a_wrong_url_is_refused_without_its_password() {
    let stage = Stage::new("urls", "SELECT 1");
    for url in [
        format!("postgres://me:{PASSWORD}/x@h/d"),
        format!("postgres://me:{PASSWORD}@h:port/d"),
        format!("postgres://me:{PASSWORD}%zz@h/d"),
        format!("host=h password=a {PASSWORD}"),
        format!("mysql://me:{PASSWORD}@h/d"),
    ] {
        for command in [
            &["base", "--trace", "x", "--postgres", &url][..],
            &["standby", "--memory", "--serve", ":0", "--from", &url],
        ] {
            let refused = stage.run("refused", command);
            assert_ne!(refused.code, Some(0));
            assert!(refused.stderr.contains("rror"), "{}", refused.stderr);
            assert!(!refused.stderr.contains(PASSWORD), "{}", refused.stderr);
        }
    }
    // A server that is down is refused where somebody waits for an answer, and waited for by a
    // standby.
    let url = format!("postgres://me:{PASSWORD}@127.0.0.1:1/d");
    let refused = stage.run("refused", &["base", "--trace", "x", "--postgres", &url]);
    assert_ne!(refused.code, Some(0));
    assert!(!refused.stderr.contains(PASSWORD), "{}", refused.stderr);
    let follow = stage.hindcast(&["standby", "--memory", "--serve", ":0", "--from", &url]);
    let mut standby = Process::start("waits", follow, stage.folder());
    let outputs = standby.output_files();
    let said = || {
        outputs
            .each_ref()
            .map(|file| std::fs::read_to_string(file).unwrap_or_default())
    };
    standby.wait_until("it to say that it waits", || {
        said().concat().contains("refused").then_some(())
    });
    standby.interrupt();
    assert!(!said().concat().contains(PASSWORD), "{:?}", said());
}

#[test]
fn the_role_of_a_standby_follows() {
    let primary = server(&[("wal_level", "logical")]);
    let schema = "SET ROLE shop; CREATE TABLE orders (id int PRIMARY KEY, amount int); \
                  INSERT INTO orders VALUES (1, 10)";
    primary.sql("shop", schema).expect("a schema");
    create(&primary, "hindcast_standby");
    let stage = Stage::new("roles-standby", "SELECT 1");
    let ps = Ps::watch();
    let port = primary.port();
    let from = format!("postgres://hindcast_standby:{PASSWORD}@127.0.0.1:{port}/shop");
    let to = stage.database_url();
    let follow = stage.hindcast(&["standby", "--from", &from, "--to", &to]);
    let standby = Process::start("standby", follow, stage.folder());
    primary
        .sql("shop", "INSERT INTO orders VALUES (2, 20)")
        .expect("a row");
    wait_for("the second row", || {
        let rows = stage.cluster.sql("app", "SELECT sum(amount) FROM orders");
        rows.is_ok_and(|rows| rows.trim() == "30").then_some(())
    });
    standby.interrupt().assert_code(0);
    let drop = ["standby", "drop", "--from", &from];
    stage.run("drop", &drop).assert_code(0);
    ps.assert_never_shown();
    let left = files_with_password(stage.folder());
    assert!(left.is_empty(), "the password is in {left:#?}");
}
