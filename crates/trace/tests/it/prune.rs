//! The oldest part is removed: what remains is whole, and what is missing is said to be pruned.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::common::*;
use hindcast_trace::*;
use tempfile::TempDir;

fn folder_and_location() -> (TempDir, Location) {
    let folder = TempDir::new().unwrap();
    let location = Location::folder(folder.path().join("trace"));
    (folder, location)
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut left = vec![folder.to_owned()];
    while let Some(path) = left.pop() {
        if path.is_dir() {
            left.extend(
                fs::read_dir(&path)
                    .unwrap()
                    .map(|entry| entry.unwrap().path()),
            );
        } else {
            found.push(path.strip_prefix(folder).unwrap().to_owned());
        }
    }
    found.sort();
    found
}

fn holds_files_of(folder: &Path, recorder: &str) -> bool {
    files(folder).iter().any(|path| {
        let name = path.file_name().unwrap().to_string_lossy();
        let kept = path.starts_with("claims") || path.starts_with("pruned");
        !kept && name.starts_with(recorder) && !name.contains("-p")
    })
}

#[test]
fn what_is_before_the_last_base_goes_and_the_rest_is_whole() {
    let (folder, location) = folder_and_location();
    let trace = folder.path().join("trace");
    record_with(&location, hasty(), 10);
    let base = take_base(&location, hasty());
    record_with(&location, hasty(), 7);
    let plan = plan_prune(&location, None, &all_of_it()).unwrap();
    assert_eq!(plan.recorders.len(), 1, "{plan:?}");
    let part = &plan.recorders[0];
    assert_eq!(
        (part.recorder, part.requests, part.transactions),
        (0, 10, 10)
    );
    assert_eq!(part.ids, Some((Id::new(0, 1), Id::new(0, 10))));
    assert_eq!(plan.held_by.as_ref(), Some(&base));
    assert!(holds_files_of(&trace, "r0"), "a plan removes nothing");

    prune(&location, None, &plan, |_| ()).unwrap();
    assert!(!holds_files_of(&trace, "r0"), "{:?}", files(&trace));
    let opened = Trace::open(&location).unwrap();
    assert_eq!(opened.warnings(), Vec::<String>::new());
    assert_eq!(
        read_requests(&opened),
        (1..=7)
            .map(|sequence| request(1, sequence))
            .collect::<Vec<_>>()
    );
    assert_eq!(read_transactions(&opened).len(), 7);
    // What the rest may refer to is still there.
    assert_eq!(opened.bases(), [base]);
    assert_eq!(opened.recorders(), [recorder(0), recorder(1)]);
    assert_eq!(opened.shapes().len(), 2);
    let cause = GapCause::Pruned {
        recorder: 0,
        requests: 10,
        transactions: 10,
    };
    assert_eq!(opened.gaps().len(), 1);
    assert_eq!(opened.gaps()[0].cause, cause);
    assert_eq!(opened.gaps()[0].from, request(0, 1).arrived);
    assert_eq!(opened.pruned()[0].ids, Some(Id::new(0, 1)..=Id::new(0, 10)));
    assert_eq!(
        plan_prune(&location, None, &all_of_it()).unwrap().recorders,
        []
    );
    // A version of hindcast that knows no markers would not miss anything.
    let version = fs::read_to_string(trace.join("trace.json")).unwrap();
    assert!(version.contains("\"version\": 2"), "{version}");
    // And everybody goes on.
    assert_eq!(record_with(&location, hasty(), 3), 2);
    assert_eq!(Trace::open(&location).unwrap().request_count(), 10);
}

#[test]
fn pruning_again_adds_to_what_was_pruned() {
    let (folder, location) = folder_and_location();
    let options = WriterOptions {
        roll_every: Duration::from_millis(1),
        ..hasty()
    };
    let (writer, _) = Writer::create(&location, options).unwrap();
    for sequence in 1..=3 {
        writer.record(Record::Shape(Shape {
            id: ShapeId(sequence as u32),
            statements: Vec::new(),
        }));
        writer.record(Record::Request(request(0, sequence)));
        wait_for("the next segment", || {
            writer.status().segments_written == sequence
        });
        // The recorder is alive meanwhile.
        let plan = plan_prune(&location, None, &all_of_it()).unwrap();
        prune(&location, None, &plan, |_| ()).unwrap();
        let opened = Trace::open(&location).unwrap();
        assert_eq!(opened.request_count(), 0);
        assert_eq!(opened.recording(), [0]);
        assert_eq!(opened.shapes().len() as u64, sequence);
        assert_eq!(opened.pruned()[0].requests, sequence);
        assert_eq!(
            opened.pruned()[0].ids,
            Some(Id::new(0, 1)..=Id::new(0, sequence))
        );
    }
    writer.record(Record::Request(request(0, 4)));
    writer.close().unwrap();
    let opened = Trace::open(&location).unwrap();
    assert_eq!(request_ids(&opened), [4]);
    assert_eq!(opened.warnings(), Vec::<String>::new());
    let markers = fs::read_dir(folder.path().join("trace/pruned")).unwrap();
    assert_eq!(markers.count(), 2, "the last one and the lock");
}

#[test]
fn a_recorder_and_pruning_do_not_lose_a_request_between_them() {
    let (_folder, location) = folder_and_location();
    let options = WriterOptions {
        roll_bytes_max: 4000,
        ..hasty()
    };
    let (writer, _) = Writer::create(&location, options).unwrap();
    std::thread::scope(|scope| {
        let recording = scope.spawn(|| {
            for sequence in 1..=600 {
                writer.record(Record::Request(request(0, sequence)));
                if sequence % 20 == 0 {
                    flush(&writer);
                }
            }
        });
        let mut is_over = false;
        while !is_over {
            is_over = recording.is_finished();
            let plan = plan_prune(&location, None, &all_of_it()).unwrap();
            prune(&location, None, &plan, |_| ()).unwrap();
            // Readable at every moment.
            Trace::open(&location).unwrap();
        }
    });
    writer.close().unwrap();
    let opened = Trace::open(&location).unwrap();
    let pruned: u64 = opened.pruned().iter().map(|pruned| pruned.requests).sum();
    assert!(pruned > 0);
    let remaining = request_ids(&opened);
    assert_eq!(remaining, (pruned + 1..=600).collect::<Vec<_>>());
}

#[test]
fn killed_after_any_number_of_files_the_trace_is_readable_and_the_next_run_cleans_up() {
    let (folder, location) = folder_and_location();
    record_with(&location, hasty(), 10);
    record_with(&location, hasty(), 10);
    let base = take_base(&location, hasty());
    record_with(&location, hasty(), 5);
    let (mut complete, mut after) = (None, 0);
    while complete.is_none() {
        after += 1;
        let copy = folder.path().join(format!("copy-{after}"));
        copy_folder(&folder.path().join("trace"), &copy);
        let location = Location::folder(&copy);
        let plan = plan_prune(&location, None, &all_of_it()).unwrap();
        let killed = catch_unwind(AssertUnwindSafe(|| {
            prune(&location, None, &plan, |removed| {
                assert!(removed < after, "killed")
            })
            .unwrap();
        }));
        let opened = Trace::open(&location).unwrap();
        assert_eq!(opened.request_count(), 5, "killed after {after} files");
        assert_eq!(read_requests(&opened).len(), 5);
        assert_eq!(opened.bases(), std::slice::from_ref(&base));
        assert_eq!(opened.shapes().len(), 3);
        let again = plan_prune(&location, None, &all_of_it()).unwrap();
        prune(&location, None, &again, |_| ()).unwrap();
        assert!(!holds_files_of(&copy, "r0") && !holds_files_of(&copy, "r1"));
        if killed.is_ok() {
            complete = Some(files(&copy).len());
        }
    }
    assert!(after > 6, "it was killed {after} times");
}

fn copy_folder(from: &Path, to: &Path) {
    for file in files(from) {
        let target = to.join(&file);
        fs::create_dir_all(target.parent().unwrap()).unwrap();
        fs::copy(from.join(&file), target).unwrap();
    }
}

#[test]
fn a_reader_that_had_it_open_is_told_what_happened() {
    let (_folder, location) = folder_and_location();
    record_with(&location, hasty(), 10);
    let opened = Trace::open(&location).unwrap();
    let plan = plan_prune(&location, None, &all_of_it()).unwrap();
    prune(&location, None, &plan, |_| ()).unwrap();
    let error = opened.requests(RequestFilter::default()).next();
    let error = error.unwrap().unwrap_err().to_string();
    assert!(
        error.ends_with(
            "requests/r0-000001.parquet was pruned while the recording was being read; open it again"
        ),
        "{error}"
    );
}

#[test]
fn a_write_ahead_file_that_was_left_does_not_bring_back_what_was_pruned() {
    let (folder, location) = folder_and_location();
    let trace = folder.path().join("trace");
    let wal = trace.join("wal/r0-000001.wal");
    let (writer, _) = Writer::create(&location, quiet()).unwrap();
    writer.record(Record::Request(request(0, 1)));
    flush(&writer);
    let bytes = fs::read(&wal).unwrap();
    writer.close().unwrap();
    // Torn tails are kept aside when a file is recovered.
    fs::write(trace.join("wal/r0-000001.torn"), &bytes).unwrap();
    let plan = plan_prune(&location, None, &all_of_it()).unwrap();
    prune(&location, None, &plan, |_| ()).unwrap();
    assert!(!trace.join("wal/r0-000001.torn").exists());
    fs::write(&wal, &bytes).unwrap();
    assert_eq!(Trace::open(&location).unwrap().request_count(), 0);
    Trace::recover(&location).unwrap();
    assert!(!wal.exists());
    assert!(!holds_files_of(&trace, "r0"), "{:?}", files(&trace));
}

#[test]
fn a_base_holds_what_is_replayed_from_it() {
    let (_folder, location) = folder_and_location();
    let base = take_base(&location, hasty());
    record_with(&location, hasty(), 10);
    let held = plan_prune(&location, None, &all_of_it()).unwrap();
    assert_eq!(held.recorders, []);
    assert_eq!(held.held_by, Some(base));
    assert!(held.held_segments >= 1);
    let by_size = PruneOptions {
        keep_bytes: Some(1),
        ..PruneOptions::default()
    };
    assert_eq!(plan_prune(&location, None, &by_size).unwrap().recorders, []);
    let plan = plan_prune(&location, None, &regardless()).unwrap();
    assert_eq!(plan.recorders[0].requests, 10);
    prune(&location, None, &plan, |_| ()).unwrap();
    assert_eq!(Trace::open(&location).unwrap().request_count(), 0);
}

#[test]
fn two_at_a_time_are_refused() {
    let (folder, location) = folder_and_location();
    record_with(&location, hasty(), 1);
    let plan = plan_prune(&location, None, &all_of_it()).unwrap();
    prune(&location, None, &PrunePlan::default(), |_| ()).unwrap();
    let lock = fs::File::open(folder.path().join("trace/pruned/.lock")).unwrap();
    lock.lock().unwrap();
    let error = prune(&location, None, &plan, |_| ()).unwrap_err();
    assert!(matches!(error, PruneError::Busy { .. }), "{error}");
    assert!(!error.hint().is_empty());
    assert_eq!(Trace::open(&location).unwrap().request_count(), 1);
}
