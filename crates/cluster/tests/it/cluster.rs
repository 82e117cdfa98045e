//! Private servers: they start, answer, stop, and never stay behind.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use hindcast_cluster::{Binaries, Cluster, ClusterError, Options, Shutdown};
use hindcast_pg::ConnectOptions;
use hindcast_pg::tokio::Client;

/// Waits for a fact, with a limit far beyond what it should take.
#[track_caller]
fn eventually(what: &str, mut fact: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !fact() {
        assert!(
            begun.elapsed() < Duration::from_secs(60),
            "did not happen: {what}"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn runs(pid: u32) -> bool {
    // A zombie has ended, too; in a container without an init nobody may ever collect it.
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(')')
        .next()
        .is_some_and(|rest| !rest.is_empty() && !rest.trim_start().starts_with('Z'))
}

#[test]
fn a_temporary_server_answers_and_leaves_nothing() {
    let cluster = Cluster::temporary(Options::throw_away().set("max_connections", 17)).unwrap();
    assert_eq!(
        cluster
            .sql("postgres", "SHOW max_connections; SELECT 1+1")
            .unwrap(),
        "17\n2"
    );
    let (folder, pid) = (cluster.folder().to_owned(), cluster.pid().unwrap());
    assert!(runs(pid) && folder.exists());
    drop(cluster);
    assert!(!runs(pid), "the server runs on");
    assert!(!folder.exists(), "the folder is still there");
}

#[test]
fn it_is_reachable_over_tcp_and_over_its_socket() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let cluster = Cluster::temporary_async(Options::throw_away())
            .await
            .unwrap();
        let client = cluster.connect("postgres").await.unwrap();
        client
            .batch_execute("CREATE DATABASE \"odd name/%\"")
            .await
            .unwrap();
        for url in [
            cluster.url("odd name/%").parse().unwrap(),
            cluster.socket_url("odd name/%"),
        ] {
            let client = Client::connect(&url, &ConnectOptions::default())
                .await
                .unwrap();
            let row = client
                .query_one("SELECT current_database()::text", &[])
                .await
                .unwrap();
            assert_eq!(row.get::<&str>(0), "odd name/%");
        }
    });
}

#[test]
fn data_survives_a_stop_of_either_kind_and_a_reopening() {
    let folder = tempfile::Builder::new()
        .prefix("hindcast-test-")
        .tempdir()
        .unwrap();
    let mut cluster = Cluster::init(folder.path(), Options::default()).unwrap();
    cluster.start().unwrap();
    cluster
        .sql(
            "postgres",
            "CREATE TABLE t (k int); INSERT INTO t VALUES (1)",
        )
        .unwrap();
    cluster.stop(Shutdown::Fast).unwrap();
    assert!(!cluster.is_running());
    cluster.start().unwrap();
    cluster.sql("postgres", "INSERT INTO t VALUES (2)").unwrap();
    cluster.stop(Shutdown::Immediate).unwrap();
    drop(cluster);
    let mut cluster = Cluster::open(folder.path(), Options::default()).unwrap();
    cluster.start().unwrap();
    assert_eq!(
        cluster.sql("postgres", "SELECT sum(k) FROM t").unwrap(),
        "3"
    );
}

#[test]
fn many_start_at_once() {
    let servers: Vec<_> = (0..4)
        .map(|_| std::thread::spawn(|| Cluster::temporary(Options::throw_away()).unwrap()))
        .collect();
    // The threads that started them are gone when the servers are asked.
    let clusters: Vec<_> = servers
        .into_iter()
        .map(|thread| thread.join().unwrap())
        .collect();
    for cluster in &clusters {
        assert_eq!(cluster.sql("postgres", "SELECT 1").unwrap(), "1");
    }
}

#[test]
fn a_deep_folder_still_has_a_socket() {
    let folder = tempfile::Builder::new()
        .prefix("hindcast-test-")
        .tempdir()
        .unwrap();
    open_to_all(folder.path());
    let deep = folder.path().join("d".repeat(60)).join("e".repeat(60));
    std::fs::create_dir_all(&deep).unwrap();
    let mut cluster = Cluster::init(&deep, Options::throw_away()).unwrap();
    cluster.start().unwrap();
    assert_eq!(cluster.sql("postgres", "SELECT 1").unwrap(), "1");
}

#[test]
fn a_taken_port_is_named() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let error = Cluster::temporary(Options::throw_away().port(port)).unwrap_err();
    assert!(
        matches!(error, ClusterError::PortTaken { port: p } if p == port),
        "{error}"
    );
    assert!(error.hint().unwrap().contains(&port.to_string()));
}

#[test]
fn an_unknown_setting_is_quoted_from_the_log() {
    let error = Cluster::temporary(Options::throw_away().set("no_such_setting", 1)).unwrap_err();
    assert!(matches!(error, ClusterError::Start { .. }));
    assert!(
        error
            .to_string()
            .contains("unrecognized configuration parameter \"no_such_setting\""),
        "{error}"
    );
}

#[test]
fn a_folder_without_a_server_says_what_to_install() {
    let error = Binaries::in_folder(Path::new("/usr/share")).unwrap_err();
    assert!(matches!(error, ClusterError::NotFound { .. }));
    assert!(error.hint().unwrap().contains("apt install postgresql"));
    let error = Binaries::find_version(9).unwrap_err();
    assert!(error.hint().unwrap().contains("postgresql-9"), "{error}");
}

#[test]
fn a_cluster_is_neither_overwritten_nor_imagined() {
    let folder = tempfile::Builder::new()
        .prefix("hindcast-test-")
        .tempdir()
        .unwrap();
    assert!(matches!(
        Cluster::open(folder.path(), Options::default()),
        Err(ClusterError::NotInitialised { .. })
    ));
    drop(Cluster::init(folder.path(), Options::throw_away()).unwrap());
    assert!(matches!(
        Cluster::init(folder.path(), Options::default()),
        Err(ClusterError::AlreadyInitialised { .. })
    ));
}

#[test]
fn a_server_that_dies_is_noticed() {
    let mut cluster = Cluster::temporary(Options::throw_away()).unwrap();
    assert!(cluster.is_running());
    kill("-KILL", cluster.pid().unwrap());
    eventually("the cluster notices", || !cluster.is_running());
    assert!(cluster.sql("postgres", "SELECT 1").is_err());
}

#[test]
fn a_server_that_was_left_running_stays_until_it_is_killed() {
    let mut cluster = Cluster::temporary(Options::throw_away()).unwrap();
    let supervised = cluster.is_running();
    let left = cluster.leave_running();
    let pid = left.pid.unwrap();
    assert!(supervised && runs(pid));
    let row = Command::new(Binaries::find().unwrap().program("psql"))
        .args(["-XAtc", "SELECT 42", &left.url])
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&row.stdout), "42\n");
    kill("-INT", pid);
    eventually("the server ends", || !runs(pid));
    std::fs::remove_dir_all(left.folder).unwrap();
}

/// Runs this test binary again, as a process that starts a server and then waits for its end.
fn another_process() -> (std::process::Child, u32, PathBuf) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "cluster::start_a_server_and_wait",
            "--nocapture",
            "--ignored",
        ])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let line = lines
        .find_map(|line| line.unwrap().strip_prefix("server ").map(str::to_owned))
        .unwrap();
    let (pid, folder) = line.split_once(' ').unwrap();
    (child, pid.parse().unwrap(), PathBuf::from(folder))
}

#[test]
#[ignore = "run by the tests below, in a process of its own"]
fn start_a_server_and_wait() {
    let cluster = Cluster::temporary(Options::throw_away()).unwrap();
    println!(
        "\nserver {} {}",
        cluster.pid().unwrap(),
        cluster.folder().display()
    );
    let _ = std::io::stdin().lines().next();
    std::process::exit(0);
}

#[test]
fn a_killed_process_leaves_neither_server_nor_folder() {
    let (mut child, server, folder) = another_process();
    assert!(runs(server));
    child.kill().unwrap();
    child.wait().unwrap();
    eventually("the server ends", || !runs(server));
    eventually("the folder is removed", || !folder.exists());
}

#[test]
fn a_process_that_exits_without_dropping_leaves_neither() {
    let (mut child, server, folder) = another_process();
    drop(child.stdin.take());
    child.wait().unwrap();
    eventually("the server ends", || !runs(server));
    eventually("the folder is removed", || !folder.exists());
}

#[test]
fn a_killed_supervisor_does_not_save_the_server() {
    let cluster = Cluster::temporary(Options::throw_away()).unwrap();
    let server = cluster.pid().unwrap();
    let stat = std::fs::read_to_string(format!("/proc/{server}/stat")).unwrap();
    let parent = stat
        .rsplit(')')
        .next()
        .unwrap()
        .split_whitespace()
        .nth(1)
        .unwrap()
        .parse()
        .unwrap();
    kill("-KILL", parent);
    drop(cluster);
    eventually("the server ends", || !runs(server));
}

fn kill(signal: &str, pid: u32) {
    assert!(
        Command::new("kill")
            .args([signal, &pid.to_string()])
            .status()
            .unwrap()
            .success()
    );
}

/// The server's user must be able to enter the folders above its own.
fn open_to_all(folder: &Path) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o755)).unwrap();
}
