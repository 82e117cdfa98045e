//! What `check` says of a server, from nothing to everything.

use hindcast_cluster::{Cluster, Shutdown};
use hindcast_extension::{Finding, check};

use crate::server::{options, server, session};

fn look(cluster: &Cluster, role: &str) -> Vec<Finding> {
    let mut url = cluster.url("postgres").to_string();
    url = url.replacen("postgres@", &format!("{role}@"), 1);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(check(&url.parse().unwrap())).unwrap()
}

fn next(findings: &[Finding]) -> Vec<(&str, &str)> {
    let steps = findings.iter();
    steps
        .filter_map(|finding| Some((finding.subject, finding.next.as_deref()?)))
        .collect()
}

#[test]
fn each_step_is_asked_for_until_nothing_is_missing() {
    let mut cluster = Cluster::temporary(options()).unwrap();
    cluster
        .sql("postgres", "CREATE ROLE \"Recorder\" LOGIN")
        .unwrap();
    let findings = look(&cluster, "Recorder");
    let preload = (
        "preloaded",
        "add hindcast to shared_preload_libraries in postgresql.conf, and restart the server",
    );
    let create = (
        "created",
        "CREATE EXTENSION hindcast, in the database postgres",
    );
    let grant = (
        "rights",
        "GRANT USAGE ON SCHEMA hindcast TO \"Recorder\"; GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA hindcast TO \"Recorder\"",
    );
    assert_eq!(next(&findings), [preload, create]);
    cluster
        .sql("postgres", create.1.split(',').next().unwrap())
        .unwrap();
    assert_eq!(next(&look(&cluster, "Recorder")), [preload, grant]);
    cluster.sql("postgres", grant.1).unwrap();
    assert_eq!(next(&look(&cluster, "Recorder")), [preload]);

    cluster.stop(Shutdown::Fast).unwrap();
    *cluster.options_mut() = cluster_options(&cluster);
    cluster.start().unwrap();
    let findings = look(&cluster, "Recorder");
    assert_eq!(next(&findings), []);
    let subjects: Vec<_> = findings.iter().map(|finding| finding.subject).collect();
    assert_eq!(
        subjects,
        [
            "server",
            "installed",
            "preloaded",
            "records",
            "created",
            "rights",
            "loaded",
            "ring",
            "readers",
            "lost"
        ]
    );
}

fn cluster_options(_: &Cluster) -> hindcast_cluster::Options {
    options()
        .set("shared_preload_libraries", "hindcast")
        .set("hindcast.ring_size", "64kB")
}

#[test]
fn records_that_are_lost_while_somebody_reads_are_a_finding() {
    let cluster = crate::server::server_with(options().set("hindcast.ring_size", "64kB"));
    let mut busy = session(&cluster);
    for _ in 0..1000 {
        busy.run("SELECT 1");
    }
    assert_eq!(next(&look(&cluster, "postgres")), []);
    let mut reader = session(&cluster);
    reader.run("SELECT * FROM hindcast.take(1)");
    let findings = look(&cluster, "postgres");
    assert_eq!(next(&findings)[0].0, "lost");
    busy.run("ALTER SYSTEM SET hindcast.databases = 'other'");
    busy.run("SELECT pg_reload_conf()");
    crate::server::wait_for("the setting", || {
        (busy.one("SHOW hindcast.databases") == "other").then_some(())
    });
    assert_eq!(
        next(&look(&cluster, "postgres"))[0],
        (
            "records",
            "add postgres to hindcast.databases, and SELECT pg_reload_conf()"
        )
    );
}

#[test]
fn an_extension_of_another_version_is_to_be_updated() {
    let cluster = server();
    cluster
        .sql(
            "postgres",
            "DROP EXTENSION IF EXISTS hindcast;
             CREATE EXTENSION hindcast;
             UPDATE pg_extension SET extversion = '1.0' WHERE extname = 'hindcast'",
        )
        .unwrap();
    let update = ("created", "ALTER EXTENSION hindcast UPDATE");
    assert_eq!(next(&look(&cluster, "postgres")), [update]);
    cluster.sql("postgres", update.1).unwrap();
    assert_eq!(next(&look(&cluster, "postgres")), []);
}
