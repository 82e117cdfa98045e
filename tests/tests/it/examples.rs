//! The services in `examples/`, recorded under concurrent load until their race has happened, and
//! replayed.

use hindcast_tests::requests::Script;
use hindcast_tests::{Stage, repository};

struct Example {
    name: &'static str,
    /// For `hindcast record`.
    options: &'static [&'static str],
    tables: &'static [&'static str],
}

/// Chooses REPEATABLE READ itself.
const PYTHON: Example = Example {
    name: "python",
    options: &[],
    tables: &["room", "booking", "event"],
};

/// Leaves the isolation level to whoever runs it.
const NODE: Example = Example {
    name: "node",
    options: &["--isolation", "repeatable-read"],
    tables: &["account", "entry", "preference"],
};

const CLIENTS: usize = 8;
const ROUNDS_MAX: usize = 50;

impl Example {
    fn read(&self, file: &str) -> String {
        std::fs::read_to_string(repository(&format!("examples/{}/{file}", self.name)))
            .expect("every example has this file")
    }

    fn service(&self) -> String {
        format!("examples/{}/run.sh", self.name)
    }

    /// Records the service until the race shows in its database.
    fn record(&self) -> Stage {
        let stage = Stage::new(self.name, &self.read("schema.sql"));
        let recorder = stage.record(self.options);
        let service = stage.service(&self.service());
        let race = self.read("race.sql");
        let script = Script::read(&repository(&format!("examples/{}/requests", self.name)));
        script.run(&stage.ingress(), CLIENTS, ROUNDS_MAX, || {
            !stage.sql(&race).is_empty()
        });
        service.stop();
        recorder.interrupt().assert_code(0);
        stage
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

fn race_is_replayed(example: &Example) {
    let stage = example.record();
    let replay = stage.replay(&example.service(), &["--keep"]).assert_code(0);
    assert!(replay.stdout.contains("faithful"), "{}", replay.stdout);

    let rewound = kept_database(&replay.stdout);
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
        example.contents(&stage, &rewound),
        example.contents(&stage, &original)
    );

    // Once more, one transaction at a time; and a part of it.
    for how in [&["--sequential"][..], &["--from", "12", "--to", "30"]] {
        let replay = stage.replay(&example.service(), how).assert_code(0);
        assert!(
            replay.stdout.contains("faithful"),
            "{how:?}: {}",
            replay.stdout
        );
    }
}

#[test]
fn the_double_booking_of_the_python_service_is_replayed() {
    race_is_replayed(&PYTHON);
}

#[test]
fn the_overdraft_of_the_node_service_is_replayed() {
    race_is_replayed(&NODE);
}
