//! A disk that is full, and then is not: the caller notices nothing, the writer goes on by itself,
//! and what could not be kept is in the trace as a gap.
//!
//! As root the disk is a small tmpfs; otherwise it is a limit on the length of files, set in a
//! child process.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::common::*;
use hindcast_trace::*;
use tempfile::TempDir;

const CHILD: &str = "HINDCAST_TEST_FULL_CHILD";

trait Disk {
    fn folder(&self) -> PathBuf;
    fn fill(&self);
    fn free(&self);
    /// What the system calls it.
    fn complaint(&self) -> &'static str;
}

struct Tmpfs(TempDir);

impl Tmpfs {
    /// `None` without the right to mount.
    fn mount() -> Option<Self> {
        let folder = TempDir::new().unwrap();
        let mut mount = Command::new("mount");
        mount
            .args(["-t", "tmpfs", "-o", "size=4m", "hindcast-test"])
            .arg(folder.path());
        let mounted = mount
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|status| status.success());
        mounted.then_some(Self(folder))
    }

    fn ballast(&self) -> PathBuf {
        self.0.path().join("ballast")
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        // Lazily: a failed test may still have files open.
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

impl Disk for Tmpfs {
    fn folder(&self) -> PathBuf {
        self.0.path().join("trace")
    }

    fn fill(&self) {
        let mut ballast = File::create(self.ballast()).unwrap();
        while ballast.write(&[0; 4096]).is_ok_and(|written| written > 0) {}
    }

    fn free(&self) {
        fs::remove_file(self.ballast()).unwrap();
    }

    fn complaint(&self) -> &'static str {
        "No space left on device"
    }
}

/// This process may not make files longer than a limit.
struct FileLimit(TempDir);

impl FileLimit {
    fn set(&self, bytes: &str) {
        let limit = Command::new("prlimit")
            .arg(format!("--pid={}", std::process::id()))
            .arg(format!("--fsize={bytes}:"))
            .status();
        let set = limit
            .expect("`prlimit` of util-linux is installed")
            .success();
        assert!(
            set,
            "neither a tmpfs can be mounted nor a file size limit be set: a full disk cannot be tested here"
        );
    }
}

impl Disk for FileLimit {
    fn folder(&self) -> PathBuf {
        self.0.path().join("trace")
    }

    fn fill(&self) {
        self.set("4096");
    }

    fn free(&self) {
        self.set("unlimited");
    }

    fn complaint(&self) -> &'static str {
        "File too large"
    }
}

#[test]
fn a_full_disk_costs_a_gap_and_nothing_else() {
    match Tmpfs::mount() {
        Some(disk) => fill_and_free(&disk),
        None => {
            // A write over the limit raises a signal, which only a shell can have ignored for us.
            let mut shell = Command::new("sh");
            shell.arg("-c").arg(
                "trap '' XFSZ; exec \"$0\" --exact disk_full::child --ignored --nocapture --test-threads=1",
            );
            let status = shell
                .arg(std::env::current_exe().unwrap())
                .env(CHILD, "1")
                .status()
                .unwrap();
            assert!(
                status.success(),
                "the test failed in its child process, see above"
            );
        }
    }
}

#[test]
fn a_file_size_limit_costs_a_gap_and_nothing_else() {
    let mut shell = Command::new("sh");
    shell.arg("-c").arg(
        "trap '' XFSZ; exec \"$0\" --exact disk_full::child --ignored --nocapture --test-threads=1",
    );
    let status = shell
        .arg(std::env::current_exe().unwrap())
        .env(CHILD, "1")
        .status()
        .unwrap();
    assert!(
        status.success(),
        "the test failed in its child process, see above"
    );
}

/// Not a test of its own.
#[test]
#[ignore = "started by a test, in an environment of its own"]
fn child() {
    if std::env::var(CHILD).is_ok() {
        fill_and_free(&FileLimit(TempDir::new().unwrap()));
    }
}

fn fill_and_free(disk: &dyn Disk) {
    let location = Location::folder(disk.folder());
    let options = WriterOptions {
        buffer_records_max: 500,
        ..hasty()
    };
    let (writer, _) = Writer::create(&location, options).unwrap();
    let mut sequence = 0;
    let mut record = |count: u64| {
        for _ in 0..count {
            sequence += 1;
            writer.record(Record::Request(request(0, sequence)));
            writer.record(Record::Transaction(transaction(0, sequence)));
        }
    };
    record(50);
    flush(&writer);

    disk.fill();
    wait_for("writing fails", || {
        record(1);
        writer.status().wal_failure.is_some()
    });
    assert!(
        writer
            .status()
            .wal_failure
            .unwrap()
            .contains(disk.complaint())
    );
    // Far more than the buffer holds: this returns all the same.
    record(2000);
    writer.record(Record::Shape(Shape {
        id: ShapeId(7),
        statements: vec!["SELECT $1".into()],
    }));
    let status = writer.status();
    assert!(status.dropped_requests > 1000, "{status:?}");
    assert_eq!(
        status.dropped_others, 0,
        "there is room left for what is written only once"
    );
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    let waited = runtime
        .block_on(async { tokio::time::timeout(Duration::from_secs(10), writer.durable()).await });
    let refused = waited.expect("nobody waits for a full disk").unwrap_err();
    assert!(refused.to_string().contains(disk.complaint()), "{refused}");

    disk.free();
    wait_for("writing works again", || {
        writer.status().wal_failure.is_none() && writer.status().buffered_records == 0
    });
    record(50);
    let status = writer.clone().close().unwrap();
    drop(writer);

    let trace = Trace::open(&location).unwrap();
    let requests = read_requests(&trace);
    assert_eq!(requests.len() as u64 + status.dropped_requests, sequence);
    assert_eq!(
        trace.transaction_count() + status.dropped_transactions,
        sequence
    );
    assert_eq!(requests.first().unwrap().id, Id::new(0, 1));
    assert_eq!(requests.last().unwrap().id, Id::new(0, sequence));
    assert!(trace.shape(ShapeId(7)).is_some());
    let mut dropped = (0, 0);
    for gap in trace.gaps() {
        let GapCause::Dropped {
            requests,
            transactions,
            reason,
        } = &gap.cause
        else {
            panic!("{gap:?}")
        };
        assert!(
            reason.contains(disk.complaint()) || reason.contains("the buffer was full"),
            "{reason}"
        );
        dropped = (dropped.0 + requests, dropped.1 + transactions);
    }
    assert_eq!(
        dropped,
        (status.dropped_requests, status.dropped_transactions)
    );
    // Every request that is missing arrived within a gap.
    let mut kept = requests
        .iter()
        .map(|request| request.id.sequence())
        .peekable();
    for missing in 1..=sequence {
        if kept.next_if_eq(&missing).is_none() {
            let arrived = crate::common::request(0, missing).arrived;
            assert!(
                trace
                    .gaps()
                    .iter()
                    .any(|gap| (gap.from..=gap.to).contains(&arrived)),
                "request {missing}"
            );
        }
    }
}

/// The trace is where nothing can be written, the write-ahead files are elsewhere.
#[test]
fn segments_wait_until_the_trace_can_be_written() {
    let (disk, plain) = (Tmpfs::mount(), TempDir::new().unwrap());
    let trace_folder = disk
        .as_ref()
        .map_or_else(|| plain.path().join("trace"), Disk::folder);
    let location = Location::folder(&trace_folder);
    let wal = TempDir::new().unwrap();
    let options = WriterOptions {
        wal_folder: Some(wal.path().to_owned()),
        roll_bytes_max: 10_000,
        close_timeout: Duration::from_millis(100),
        ..hasty()
    };
    let (writer, _) = Writer::create(&location, options.clone()).unwrap();
    match &disk {
        Some(disk) => disk.fill(),
        None => forbid(&trace_folder, true),
    }
    let mut sequence = 0;
    wait_for("several segments wait", || {
        sequence += 1;
        writer.record(Record::Request(request(0, sequence)));
        writer.status().segments_waiting >= 3 && writer.status().segment_failure.is_some()
    });
    assert_eq!(writer.status().wal_failure, None);
    match writer.close() {
        Err(CloseError::NotPublished { wal_folder, .. }) => {
            assert!(wal_folder.starts_with(wal.path()))
        }
        other => panic!("{other:?}"),
    }
    // Nothing is lost, and readers on this machine see it.
    assert_eq!(
        request_ids(&Trace::open(&location).unwrap()),
        (1..=sequence).collect::<Vec<_>>()
    );

    match &disk {
        Some(disk) => disk.free(),
        None => forbid(&trace_folder, false),
    }
    assert!(Trace::recover(&location).unwrap() >= 3);
    let trace = Trace::open(&location).unwrap();
    assert_eq!(request_ids(&trace), (1..=sequence).collect::<Vec<_>>());
    assert_eq!(trace.gaps(), [], "it was closed, only not published");
    assert_eq!(trace.warnings(), Vec::<String>::new());
}

fn forbid(folder: &Path, forbidden: bool) {
    use std::os::unix::fs::PermissionsExt;
    let mode = if forbidden { 0o555 } else { 0o755 };
    fs::set_permissions(folder, fs::Permissions::from_mode(mode)).unwrap();
}
