//! How fast the same log is applied to a backup in each way: `cargo run --release --example backup_ways -- [SECONDS] [SCRIPT]`.
//!
//! pgbench writes to a private primary for some seconds; then its log is applied to fresh backups on the same server.

use std::time::{Duration, Instant};

use hindcast_pg::{ConnectOptions, Connection, DatabaseUrl};
use hindcast_rewind::cluster::{Cluster, Options as ClusterOptions};
use hindcast_standby::backup::{Backup, Granularity, Options, schema};
use hindcast_standby::follow::{Event, Log};
use hindcast_standby::source::{Names, Stream, StreamOptions, TableFilter, preflight, slot};
use hindcast_standby::target::Target;

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let seconds: u32 = arguments.next().map_or(Ok(4), |text| text.parse())?;
    let script = arguments.next().unwrap_or_else(|| {
        "\\set id random(1, 100000)\nUPDATE t SET v = v + 1, at = now() WHERE id = :id;\n"
            .to_owned()
    });
    let cluster = Cluster::temporary(
        ClusterOptions::throw_away()
            .set("wal_level", "logical")
            .set("shared_buffers", "256MB")
            .set("max_wal_size", "4GB")
            .set("synchronous_commit", "off"),
    )?;
    let setup = "CREATE TABLE t (id int PRIMARY KEY, v int, at timestamptz, note text); INSERT INTO t SELECT i, 0, now(), 'note ' || i FROM generate_series(1, 100000) i; \
                 CREATE TABLE log (id bigserial PRIMARY KEY, v int, note text); VACUUM ANALYZE";
    let create = |name: &str| -> Result<DatabaseUrl, Failure> {
        cluster.sql("postgres", &format!("CREATE DATABASE {name}"))?;
        for statement in setup.split("; ") {
            cluster.sql(name, statement)?;
        }
        Ok(cluster.socket_url(name).parse()?)
    };
    let primary = create("primary_side")?;
    let names = Names::new("ways")?;
    let found = preflight(&primary, &TableFilter::default(), &names.slot)?;
    slot::publish(&primary, &names, &found.tables)?;
    let from = slot::create(&primary, &names)?.consistent_point;

    let path = std::env::temp_dir().join(format!("backup-ways-{}.sql", std::process::id()));
    std::fs::write(&path, script)?;
    let status = std::process::Command::new(cluster.binaries().program("pgbench"))
        .args([
            "-n",
            "-c",
            "2",
            "-M",
            "prepared",
            "-T",
            &seconds.to_string(),
            "-f",
        ])
        .arg(&path)
        .arg(cluster.socket_url("primary_side"))
        .stdout(std::process::Stdio::null())
        .status()?;
    assert!(status.success(), "pgbench failed");
    std::fs::remove_file(&path)?;
    let end = cluster
        .sql("primary_side", "SELECT pg_current_wal_insert_lsn()")?
        .parse()?;
    cluster.sql("primary_side", "CREATE TABLE later ()")?;

    let row = |workers, rows_max, copy_rows_min| Options {
        workers,
        epoch_rows_max: rows_max,
        copy_rows_min,
        ..Options::new(&names.slot)
    };
    let ways = [
        ("rows, epochs of 20 000", row(1, 20_000, 1000)),
        (
            "rows, epochs of 20 000, never copied",
            row(1, 20_000, usize::MAX),
        ),
        ("rows, epochs of 2 000", row(1, 2_000, 1000)),
        (
            "rows, epochs of 2 000, never copied",
            row(1, 2_000, usize::MAX),
        ),
        ("rows, 2 workers", row(2, 20_000, 1000)),
        (
            "transactions, 2 workers",
            Options {
                granularity: Granularity::Transaction,
                ..row(2, 2_000, 1000)
            },
        ),
        (
            "single",
            Options {
                granularity: Granularity::Single,
                ..row(1, 2_000, 1000)
            },
        ),
    ];
    for (at, (what, options)) in ways.into_iter().enumerate() {
        let url = create(&format!("backup_{at}"))?;
        let mut connection = Connection::connect(&url, &ConnectOptions::named("ways"))?;
        schema::create(&mut connection)?;
        connection.execute(&format!(
            "INSERT INTO hindcast.standby_progress (slot, worker, workers, epoch, commit_lsn, end_lsn) VALUES ('{}', 0, 1, 0, '{from}', '{from}')",
            names.slot
        ))?;
        let mut backup = Backup::open(&url, options)?;
        let mut log = Stream::start(
            &primary,
            &names.slot,
            &names.publication,
            from,
            StreamOptions::default(),
        )?;
        let begun = Instant::now();
        let mut between = true;
        while !(between && log.read_to() >= end) {
            if begun.elapsed() > Duration::from_secs(30) {
                break;
            }
            match log.next(Instant::now() + Duration::from_millis(2))? {
                None => backup.tick(Instant::now())?,
                Some(Event::Begin(begin)) => {
                    between = false;
                    backup.begin(&begin)?;
                }
                Some(Event::Change { relation, change }) => backup.change(relation, &change)?,
                Some(Event::Commit(commit)) => {
                    between = true;
                    backup.commit(&commit)?;
                }
                Some(Event::Relation(relation)) => backup.relation(relation)?,
                Some(Event::Truncate { relations, how }) => backup.truncate(&relations, how)?,
                Some(Event::Nothing) => {}
            }
        }
        if between {
            backup.drain()?;
        }
        let took = begun.elapsed();
        let status = backup.status();
        log.finish();
        println!(
            "{what:40} {:8.0} tx/s  {:6.2} s, {} transactions, {} rows written, {} epochs",
            status.transactions as f64 / took.as_secs_f64(),
            took.as_secs_f64(),
            status.transactions,
            status.rows_written,
            status.epochs
        );
    }
    Ok(())
}
