//! The services in `examples/`, recorded under concurrent load until their race has happened, and
//! replayed.

use std::process::Command;

use hindcast_tests::requests::Script;
use hindcast_tests::{Finished, Stage, repository};

use super::inside_extension;

struct Example {
    name: &'static str,
    tables: &'static [&'static str],
}

/// Chooses REPEATABLE READ itself.
const PYTHON: Example = Example {
    name: "python",
    tables: &["room", "booking", "event"],
};

/// Leaves the isolation level to the server.
const NODE: Example = Example {
    name: "node",
    tables: &["account", "entry", "preference"],
};

const REPEATABLE_READ: [&str; 2] = ["--isolation", "repeatable-read"];
const CLIENTS: usize = 8;
const ROUNDS_MAX: usize = 50;

impl Example {
    fn read(&self, file: &str) -> String {
        std::fs::read_to_string(repository(&format!("examples/{}/{file}", self.name)))
            .expect("every example has this file")
    }

    /// What starts the service, which needs nothing any more.
    fn service(&self) -> String {
        let service = format!("examples/{}/run.sh", self.name);
        let installed = Command::new(repository(&service)).arg("--install").status();
        assert!(installed.expect("bash is there").success());
        service
    }

    /// Sends requests until the race shows in the service's database.
    fn race(&self, stage: &Stage, address: &str) {
        let race = self.read("race.sql");
        let script = Script::read(&repository(&format!("examples/{}/requests", self.name)));
        script.run(address, CLIENTS, ROUNDS_MAX, || {
            !stage.sql(&race).is_empty()
        });
    }

    fn record_inside(&self, stage: &Stage, more: &[&str]) {
        let recorder = stage.record_inside(more, &self.service());
        self.race(stage, &format!("127.0.0.1:{}", stage.service_port));
        let recorded = recorder.interrupt().assert_code(0).stderr;
        assert!(recorded.contains("(0 ghosts)"), "{recorded}");
    }

    /// Every row of every table in the service's database, ids and times included.
    fn contents(&self, stage: &Stage, database: &str) -> String {
        let rows = |table: &&str| {
            stage.sql_in(
                database,
                &format!("SELECT to_jsonb(t) FROM {table} t ORDER BY 1"),
            )
        };
        self.tables.iter().map(rows).collect::<Vec<_>>().join("\n")
    }
}

/// The name of the database that `--keep` left.
fn kept_database(output: &str) -> String {
    let url = output
        .split_whitespace()
        .rfind(|word| word.contains("postgres://"));
    let url = url
        .unwrap_or_else(|| panic!("replay did not say where the rewound database is:\n{output}"));
    let (_, database) = url
        .rsplit_once('/')
        .expect("a URL of a database has slashes");
    database
        .trim_end_matches(|c: char| !c.is_alphanumeric() && c != '_')
        .to_owned()
}

fn race_is_replayed(example: &Example, stage: &Stage, replay: impl Fn(&[&str]) -> Finished) {
    let replayed = replay(&["--keep"]).assert_code(0).stdout;
    assert!(replayed.contains("faithful"), "{replayed}");

    let rewound = kept_database(&replayed);
    let race = example.read("race.sql");
    assert_eq!(
        stage.sql_in(&rewound, &race),
        stage.sql(&race),
        "the race left other traces than it did when it was recorded"
    );
    let original = stage
        .database_url()
        .rsplit_once('/')
        .expect("a URL of a database has slashes")
        .1
        .to_owned();
    assert_eq!(
        example.contents(stage, &rewound),
        example.contents(stage, &original)
    );

    // Once more, one transaction at a time; and a part of it.
    for how in [&["--sequential"][..], &["--from", "12", "--to", "30"]] {
        let replayed = replay(how).assert_code(0).stdout;
        assert!(replayed.contains("faithful"), "{how:?}: {replayed}");
    }
}

/// With nothing between the service and its database.
#[test]
fn the_double_booking_of_the_python_service_is_replayed() {
    let stage = inside_extension::stage("python", &PYTHON.read("schema.sql"), &[]);
    PYTHON.record_inside(&stage, &[]);
    race_is_replayed(&PYTHON, &stage, |more| stage.replay_inside(more));
}

#[test]
fn the_overdraft_of_the_node_service_is_replayed() {
    let stage = Stage::new("node", &NODE.read("schema.sql"));
    NODE.record_inside(&stage, &REPEATABLE_READ);
    race_is_replayed(&NODE, &stage, |more| stage.replay_inside(more));
}

/// With OpenTelemetry, and a proxy in front of it and one behind it.
#[test]
fn the_overdraft_of_the_node_service_is_replayed_from_outside() {
    let stage = Stage::new("node", &NODE.read("schema.sql"));
    let app = format!("{} --traced", stage.app(&NODE.service()));
    let recorder = stage.record(&REPEATABLE_READ);
    let mut service = Command::new("sh");
    service.args(["-c", &app]);
    let service = stage.start_service(service);
    NODE.race(&stage, &stage.ingress());
    service.stop();
    recorder.interrupt().assert_code(0);
    race_is_replayed(&NODE, &stage, |more| stage.replay_app(&app, more));
}
