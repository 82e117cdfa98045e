//! The harness itself, against the example services without Hindcast in between: what fails here is
//! not Hindcast's fault.

use hindcast_tests::requests::Script;
use hindcast_tests::{Stage, repository};

/// The service works, and its race shows under concurrent clients.
fn example_races(name: &str, settings: &str) {
    let read = |file: &str| {
        std::fs::read_to_string(repository(&format!("examples/{name}/{file}")))
            .expect("every example has this file")
    };
    let mut stage = Stage::new(name, &read("schema.sql"));
    stage.gateway_port = stage.cluster.port();
    stage.sql(settings);
    let service = stage.service(&format!("examples/{name}/run.sh"));
    let race = read("race.sql");
    let script = Script::read(&repository(&format!("examples/{name}/requests")));
    let counts = script.run(&format!("127.0.0.1:{}", stage.service_port), 8, 50, || {
        !stage.sql(&race).is_empty()
    });
    assert!(counts.values().sum::<u64>() > 8, "{counts:?}");
    service.stop();
}

#[test]
fn the_python_example_races_by_itself() {
    example_races("python", "");
}

#[test]
fn the_node_example_races_by_itself() {
    example_races(
        "node",
        "ALTER DATABASE app SET default_transaction_isolation = 'repeatable read'",
    );
}
