//! The paper's services, recorded while their bug strikes, and what a retroaction of them reports.

use std::process::Command;
use std::sync::Barrier;

use serde_json::Value;

use crate::{Finished, Process, Stage, http, program, wait_for};

pub const SUCCESS: i32 = 0;
pub const STOPPED: i32 = 1;
pub const USAGE: i32 = 2;
pub const FAILED: i32 = 3;

/// One of the paper's services, recorded while its bug strikes.
pub struct Case {
    pub stage: Stage,
    pub workload: &'static str,
}

impl Case {
    /// Loads the workload's tables, records what `traffic` does, and stops.
    pub fn recorded(workload: &'static str, scale: &str, traffic: impl FnOnce(&Case)) -> Self {
        let case = Self {
            stage: Stage::new(&format!("retro-{workload}"), "SELECT 1"),
            workload,
        };
        let mut load = Command::new(program("hindcast-workload"));
        load.args(["load", workload, "--scale", scale])
            .args(["--database-url", &case.stage.database_url()]);
        Process::start("load", load, case.stage.folder())
            .wait()
            .assert_code(SUCCESS);
        let recorder = case.stage.record(&[]);
        let mut command = Command::new("sh");
        command.args(["-c", &case.service("original")]);
        let service = case.stage.start_service(command);
        traffic(&case);
        service.stop();
        recorder.interrupt().assert_code(SUCCESS);
        case
    }

    /// The command that starts a variant of the service.
    pub fn service(&self, variant: &str) -> String {
        format!(
            "exec {} serve {} --listen 127.0.0.1:{} --database-url {} --variant {variant}",
            program("hindcast-workload").display(),
            self.workload,
            self.stage.service_port,
            self.stage.gateway_url()
        )
    }

    /// A client of the recorder.
    pub fn client(&self) -> http::Client {
        http::Client::new(self.stage.ingress())
    }

    /// Two clients at the same moment. Returns their statuses.
    pub fn both(&self, one: (&str, &str), other: (&str, &str)) -> [u16; 2] {
        let together = Barrier::new(2);
        let send = |(target, body): (&str, &str)| {
            let mut client = self.client();
            let body = Some(body).filter(|body| !body.is_empty());
            together.wait();
            let response = client
                .send("POST", target, body)
                .expect("the service answers");
            response.status
        };
        std::thread::scope(|scope| {
            let other = scope.spawn(|| send(other));
            [send(one), other.join().expect("it does not panic")]
        })
    }

    /// Does something whose two transactions both get as far as writing to the table before either
    /// may: a session beside the recorder keeps the table locked until both wait.
    pub fn both_wait_for(&self, table: &str, act: impl FnOnce()) {
        let of_table = format!("relation = '{table}'::regclass");
        let lock = format!(
            "DO $$ BEGIN LOCK TABLE {table} IN SHARE ROW EXCLUSIVE MODE; \
             LOOP PERFORM pg_sleep(0.01); EXIT WHEN (SELECT count(*) FROM pg_locks WHERE {of_table} AND NOT granted) >= 2; END LOOP; END $$"
        );
        std::thread::scope(|scope| {
            scope.spawn(|| self.stage.sql(&lock));
            wait_for("the table to be locked", || {
                let held = format!(
                    "SELECT 1 FROM pg_locks WHERE {of_table} AND granted AND mode = 'ShareRowExclusiveLock'"
                );
                (!self.stage.sql(&held).is_empty()).then_some(())
            });
            act();
        });
    }

    /// `hindcast retro` with a command that starts the changed service, whatever comes of it.
    pub fn run(&self, app: &str, more: &[&str]) -> Finished {
        let mut command = self.stage.hindcast(&["retro", "--app", app]);
        command
            .args(["--postgres", &self.stage.database_url()])
            .arg("--trace")
            .arg(self.stage.trace())
            .arg("--app-log")
            .arg(self.stage.folder().join("changed-service.log"))
            .args(more);
        Process::start("retro", command, self.stage.folder()).wait()
    }

    /// The report on a variant of the service.
    pub fn retro(&self, variant: &str, more: &[&str]) -> Report {
        let more = [&["--json"], more].concat();
        let finished = self.run(&self.service(variant), &more).assert_code(SUCCESS);
        self.nothing_is_left();
        Report::of(&finished)
    }

    /// A file with SQL to migrate with.
    pub fn migration(&self, sql: &str) -> String {
        let path = self.stage.folder().join("migration.sql");
        std::fs::write(&path, sql).expect("the folder can be written");
        path.display().to_string()
    }

    /// # Panics
    /// If a rewound database or the changed service is still there.
    #[track_caller]
    pub fn nothing_is_left(&self) {
        let left = "SELECT datname FROM pg_database WHERE datname LIKE 'hindcast_rewound%'";
        assert_eq!(
            self.stage.sql_in("postgres", left),
            "",
            "databases are left"
        );
        // What has been killed may take a moment to be gone.
        wait_for("the changed service to end", || {
            let address = ("127.0.0.1", self.stage.service_port);
            std::net::TcpStream::connect(address).err()
        });
    }

    /// What the original database holds.
    pub fn state(&self) -> String {
        let tables = self.stage.sql(
            "SELECT string_agg(format('SELECT md5(string_agg(t::text, '','' ORDER BY t::text)) FROM %I t', tablename), ' UNION ALL ' ORDER BY tablename) \
             FROM pg_tables WHERE schemaname = 'public'",
        );
        self.stage.sql(tables.trim())
    }
}

/// A report as programs read it.
pub struct Report(pub Value);

impl Report {
    /// # Panics
    /// If it is none.
    pub fn of(finished: &Finished) -> Self {
        Self(
            serde_json::from_str(&finished.stdout).unwrap_or_else(|error| {
                panic!(
                    "no JSON ({error}):\n{}\n{}",
                    finished.stdout, finished.stderr
                )
            }),
        )
    }

    pub fn count(&self, name: &str) -> u64 {
        self.0["counts"][name]
            .as_u64()
            .unwrap_or_else(|| panic!("no count {name} in {}", self.0["counts"]))
    }

    pub fn outcome(&self) -> &str {
        self.0["outcome"]["outcome"].as_str().unwrap_or_default()
    }

    /// How many rows a check's query had before and after.
    pub fn check(&self, number: usize) -> (u64, u64) {
        let check = &self.0["checks"][number];
        let rows = |side: &str| check[side]["count"].as_u64();
        match (rows("before"), rows("after")) {
            (Some(before), Some(after)) => (before, after),
            _ => panic!("the check was not answered: {check}"),
        }
    }

    /// What the kinds of change of a section are called.
    pub fn groups(&self, section: &str) -> Vec<String> {
        let groups = self.0[section]["groups"].as_array();
        let what = |group: &Value| group["what"].as_str().unwrap_or_default().to_owned();
        groups
            .map(|groups| groups.iter().map(what).collect())
            .unwrap_or_default()
    }

    pub fn table(&self, name: &str) -> &Value {
        let tables = self.0["state"]["tables"].as_array();
        tables
            .and_then(|tables| tables.iter().find(|table| table["table"] == name))
            .unwrap_or(&Value::Null)
    }
}
