//! `record -- bun …`: every transaction is its request's, by Node's server and by Bun's own.

use hindcast_tests::{Stage, install, repository};

use super::inside_loops::{WAYS_OF_POSTGRES_JS, is_recorded_and_replayed};

fn bun(stage: &Stage, service: &str) -> Vec<String> {
    install("examples/node/run.sh", &["--install"]);
    install("tests/services/bun/install.sh", &[]);
    let bun = repository("tests/services/bun/node_modules/.bin/bun");
    let service = repository("tests/services").join(service);
    let port = stage.service_port.to_string();
    vec![
        bun.display().to_string(),
        service.display().to_string(),
        port,
    ]
}

#[test]
fn bun_with_its_own_server_is_known() {
    let service = |stage: &Stage| bun(stage, "marks_bun.ts");
    is_recorded_and_replayed("bun", service, &["routed", "several", "fetched"]);
}

#[test]
fn bun_with_nodes_server_and_a_pool_is_known() {
    let service = |stage: &Stage| bun(stage, "marks.js");
    let ways = ["transaction", "pool", "callbacks"];
    is_recorded_and_replayed("bun-node", service, &ways);
}

#[test]
fn queries_of_several_requests_on_one_connection_are_known_in_bun() {
    let service = |stage: &Stage| bun(stage, "marks_postgres.js");
    is_recorded_and_replayed("bun-postgres-js", service, &WAYS_OF_POSTGRES_JS);
}
