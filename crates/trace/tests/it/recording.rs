//! One recorder and several, small buffers, other versions: how writer and reader behave towards
//! each other.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use crate::common::*;
use hindcast_trace::*;
use tempfile::TempDir;

#[test]
fn two_recorders_write_into_one_trace_without_knowing_of_each_other() {
    let folder = TempDir::new().unwrap();
    let location = Location::folder(folder.path());
    let numbers: Vec<u16> = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..8)
            .map(|_| {
                scope.spawn(|| {
                    let (writer, number) = Writer::create(
                        &location,
                        WriterOptions {
                            roll_bytes_max: 5000,
                            ..hasty()
                        },
                    )
                    .unwrap();
                    writer.record(Record::Recorder(recorder(number)));
                    for sequence in 1..=200 {
                        writer.record(Record::Request(request(number, sequence)));
                        writer.record(Record::Transaction(transaction(number, sequence)));
                        if sequence % 50 == 0 {
                            flush(&writer);
                        }
                    }
                    writer.close().unwrap();
                    number
                })
            })
            .collect();
        writers
            .into_iter()
            .map(|writer| writer.join().unwrap())
            .collect()
    });
    let mut numbers = numbers;
    numbers.sort_unstable();
    assert_eq!(numbers, (0..8).collect::<Vec<u16>>());

    let trace = Trace::open(&location).unwrap();
    assert_eq!(trace.recorders().len(), 8);
    let requests = read_requests(&trace);
    let order: Vec<(Micros, Id)> = requests
        .iter()
        .map(|request| (request.arrived, request.id))
        .collect();
    assert!(order.is_sorted(), "in order of arrival across recorders");
    assert_eq!(order.len(), 1600);
    let transactions = read_transactions(&trace);
    assert!(transactions.is_sorted_by_key(|transaction| (transaction.began, transaction.id)));
    assert_eq!(transactions.len(), 1600);
    assert_eq!(trace.gaps(), []);
    assert_eq!(
        leftovers(folder.path()),
        Vec::<String>::new(),
        "write-ahead files and locks are gone"
    );
}

#[test]
fn what_another_recorder_has_is_no_gap() {
    let folder = TempDir::new().unwrap();
    let location = Location::folder(folder.path());
    let (one, first) = Writer::create(&location, quiet()).unwrap();
    one.record(Record::Recorder(recorder(first)));
    let gap = |xids: &[u64]| {
        Record::Gap(Gap {
            from: 10,
            to: 20,
            cause: GapCause::Unaccounted {
                xids: xids.iter().copied().map(Xid).collect(),
                wrote: "forum".to_owned(),
            },
        })
    };
    one.record(gap(&[700, 701, 702]));
    one.record(gap(&[700, 701]));
    one.close().unwrap();
    let gaps = |expected: &[&[u64]]| {
        let trace = Trace::open(&location).unwrap();
        let of = |gap: &Gap| match &gap.cause {
            GapCause::Unaccounted { xids, .. } => xids.iter().map(|xid| xid.0).collect(),
            other => panic!("{other:?}"),
        };
        let found: Vec<Vec<u64>> = trace.gaps().iter().map(of).collect();
        assert_eq!(found, expected);
    };
    gaps(&[&[700, 701, 702], &[700, 701]]);

    let (two, second) = Writer::create(&location, quiet()).unwrap();
    two.record(Record::Recorder(recorder(second)));
    two.record(Record::Transaction(Transaction {
        xid: Some(Xid(700)),
        subxids: vec![Xid(701)],
        ..transaction(second, 1)
    }));
    two.close().unwrap();
    gaps(&[&[702]]);
}

#[test]
fn what_is_read_is_in_order_though_long_requests_end_in_later_segments() {
    let folder = TempDir::new().unwrap();
    let location = Location::folder(folder.path());
    let (writer, _) = Writer::create(
        &location,
        WriterOptions {
            roll_bytes_max: 1,
            ..hasty()
        },
    )
    .unwrap();
    // Of a hundred requests every tenth takes so long that it is recorded fifty requests later.
    let (mut late, mut segments) = (Vec::new(), 0);
    for sequence in 1..=100u64 {
        if sequence % 10 == 0 {
            late.push(sequence);
        } else {
            writer.record(Record::Request(request(0, sequence)));
        }
        if sequence % 20 == 0 {
            if let Some(early) = (sequence > 50).then(|| late.remove(0)) {
                writer.record(Record::Request(request(0, early)));
            }
            flush(&writer);
            segments += 1;
            wait_for("a new segment", || {
                writer.status().segments_written >= segments
            });
        }
    }
    late.into_iter()
        .for_each(|sequence| writer.record(Record::Request(request(0, sequence))));
    flush(&writer);
    let trace = Trace::open(&location).unwrap();
    assert_eq!(request_ids(&trace), (1..=100).collect::<Vec<_>>());
    writer.close().unwrap();
    let trace = Trace::open(&location).unwrap();
    assert_eq!(request_ids(&trace), (1..=100).collect::<Vec<_>>());
}

#[test]
fn ranges_and_points_are_found_in_segments_and_write_ahead_files() {
    let folder = TempDir::new().unwrap();
    let location = Location::folder(folder.path());
    let (writer, _) = Writer::create(
        &location,
        WriterOptions {
            roll_bytes_max: 200_000,
            ..hasty()
        },
    )
    .unwrap();
    for sequence in 1..=9000 {
        writer.record(Record::Request(request(0, sequence)));
        writer.record(Record::Transaction(transaction(0, sequence)));
        // A ghost for each.
        writer.record(Record::Transaction(Transaction {
            request: None,
            ..transaction(0, 10_000 + sequence)
        }));
        if sequence % 1000 == 0 {
            flush(&writer);
        }
    }
    let check = |trace: &Trace| {
        assert_eq!(
            (trace.request_count(), trace.transaction_count()),
            (9000, 18_000)
        );
        let ids = Some(Id::new(0, 2500)..=Id::new(0, 7500));
        let requests: Vec<u64> = trace
            .requests(RequestFilter {
                ids: ids.clone(),
                ..Default::default()
            })
            .map(|row| row.unwrap().id.sequence())
            .collect();
        assert_eq!(requests, (2500..=7500).collect::<Vec<_>>());
        let arrived = Some(request(0, 4000).arrived..request(0, 4010).arrived);
        let requests: Vec<u64> = trace
            .requests(RequestFilter {
                arrived,
                ..Default::default()
            })
            .map(|row| row.unwrap().id.sequence())
            .collect();
        assert_eq!(requests, (4000..4010).collect::<Vec<_>>());
        let of_requests = trace.transactions(TransactionFilter {
            requests: ids,
            ..Default::default()
        });
        assert_eq!(of_requests.count(), 5001, "ghosts belong to no request");
        let began = Some(transaction(0, 18_000).began..Micros::MAX);
        assert_eq!(
            trace
                .transactions(TransactionFilter {
                    began,
                    ..Default::default()
                })
                .count(),
            1001
        );
        assert_eq!(
            trace.request(Id::new(0, 4711)).unwrap(),
            Some(request(0, 4711))
        );
        assert_eq!(trace.request(Id::new(0, 9001)).unwrap(), None);
        assert_eq!(trace.request(Id::new(1, 1)).unwrap(), None);
        assert_eq!(
            trace.transaction(Id::new(0, 4711)).unwrap(),
            Some(transaction(0, 4711))
        );
        assert_eq!(
            trace.transactions_of(Id::new(0, 4711)).unwrap(),
            [transaction(0, 4711)]
        );
        assert_eq!(
            trace.arrivals(),
            Some(request(0, 1).arrived..=request(0, 9000).arrived)
        );
    };
    check(&Trace::open(&location).unwrap());
    writer.close().unwrap();
    check(&Trace::open(&location).unwrap());
}

#[test]
fn the_index_numbers_the_transactions_of_each_request() {
    let folder = TempDir::new().unwrap();
    let location = Location::folder(folder.path());
    let (writer, _) = Writer::create(&location, quiet()).unwrap();
    let of = [Some(1), Some(2), None, Some(1), Some(2), Some(1), None];
    for (number, request) in of.iter().enumerate() {
        let request = request.map(|request| (Id::new(0, request), Attribution::Alone));
        writer.record(Record::Transaction(Transaction {
            request,
            ..transaction(0, number as u64 + 1)
        }));
    }
    writer.close().unwrap();
    let trace = Trace::open(&location).unwrap();
    let positions: Vec<u32> = trace
        .index(TransactionFilter::default())
        .map(|entry| entry.unwrap().position)
        .collect();
    assert_eq!(positions, [0, 0, 0, 1, 1, 2, 0]);
}

#[test]
fn a_full_buffer_costs_a_gap_that_counts_what_is_missing() {
    let folder = TempDir::new().unwrap();
    let location = Location::folder(folder.path());
    let options = WriterOptions {
        buffer_bytes_max: 3000,
        ..quiet()
    };
    let (writer, _) = Writer::create(&location, options).unwrap();
    for sequence in 1..=100 {
        writer.record(Record::Request(request(0, sequence)));
    }
    let status = writer.close().unwrap();
    assert_eq!(status.accepted + status.dropped_requests, 100);
    assert!(status.dropped_requests > 50, "{status:?}");
    let trace = Trace::open(&location).unwrap();
    let kept = trace.request_count();
    let cause = GapCause::Dropped {
        requests: 100 - kept,
        transactions: 0,
        reason: "the buffer was full".into(),
    };
    let (from, to) = (request(0, kept + 1).arrived, request(0, 100).ended);
    assert_eq!(trace.gaps(), [Gap { from, to, cause }]);
}

#[test]
fn a_writer_that_is_dropped_leaves_everything_but_the_end() {
    let folder = TempDir::new().unwrap();
    let location = Location::folder(folder.path());
    let (writer, _) = Writer::create(&location, quiet()).unwrap();
    writer.record(Record::Request(request(0, 1)));
    let clone = writer.clone();
    drop(writer);
    clone.record(Record::Request(request(0, 2)));
    drop(clone);
    let trace = Trace::open(&location).unwrap();
    assert_eq!(request_ids(&trace), [1, 2]);
    assert!(
        matches!(
            trace.gaps(),
            [Gap {
                cause: GapCause::Crashed { recorder: 0 },
                ..
            }]
        ),
        "{:?}",
        trace.gaps()
    );
    assert!(
        trace.warnings()[0].contains("recorder 0 stopped without closing the trace"),
        "{:?}",
        trace.warnings()
    );
}

#[test]
fn a_running_recorder_is_no_crash() {
    let folder = TempDir::new().unwrap();
    let location = Location::folder(folder.path());
    let (writer, _) = Writer::create(&location, hasty()).unwrap();
    writer.record(Record::Request(request(0, 1)));
    wait_for("it is on disk by itself", || writer.status().flushed == 1);
    let trace = Trace::open(&location).unwrap();
    assert_eq!(trace.recording(), [0]);
    assert_eq!(trace.gaps(), []);
    assert_eq!(trace.warnings(), Vec::<String>::new());
    assert_eq!(Trace::recover(&location).unwrap(), 0, "its file is its own");
    assert_eq!(request_ids(&trace), [1]);
    writer.close().unwrap();
}

#[test]
fn closing_twice_is_refused_and_recording_afterwards_is_counted() {
    let folder = TempDir::new().unwrap();
    let (writer, _) = Writer::create(&Location::folder(folder.path()), quiet()).unwrap();
    let clone = writer.clone();
    writer.close().unwrap();
    clone.record(Record::Request(request(0, 1)));
    assert_eq!(clone.status().dropped_requests, 1);
    assert!(matches!(clone.close(), Err(CloseError::ClosedBefore)));
}

#[test]
fn old_records_become_segments_by_age() {
    let folder = TempDir::new().unwrap();
    let location = Location::folder(folder.path());
    let options = WriterOptions {
        roll_every: Duration::from_millis(1),
        ..hasty()
    };
    let (writer, _) = Writer::create(&location, options).unwrap();
    for sequence in 1..=3 {
        writer.record(Record::Request(request(0, sequence)));
        wait_for("the next segment", || {
            writer.status().segments_written == sequence
        });
    }
    writer.close().unwrap();
    assert_eq!(request_ids(&Trace::open(&location).unwrap()), [1, 2, 3]);
}

#[test]
fn a_trace_of_a_newer_version_is_refused_with_both_versions_and_what_to_do() {
    let folder = TempDir::new().unwrap();
    let location = Location::folder(folder.path());
    Writer::create(&location, quiet())
        .unwrap()
        .0
        .close()
        .unwrap();
    let path = folder.path().join("trace.json");
    let newer = fs::read_to_string(&path)
        .unwrap()
        .replace("\"version\": 1", "\"version\": 4");
    // Whatever else a later version may put there.
    fs::write(&path, newer.replace("\"created_by\"", "\"made_by\"")).unwrap();
    let errors = [
        Trace::open(&location).err().unwrap(),
        Trace::recover(&location).err().unwrap(),
        Writer::create(&location, quiet()).err().unwrap(),
    ];
    for error in errors {
        assert_eq!(
            error.to_string(),
            format!(
                "{} has format version 4; this version of hindcast reads up to version 3",
                folder.path().display()
            )
        );
        assert_eq!(
            error.hint(),
            "install the version of hindcast that recorded it, or a later one"
        );
    }
}

#[test]
fn a_newer_segment_or_write_ahead_file_in_an_old_trace_is_refused_too() {
    let folder = TempDir::new().unwrap();
    let location = Location::folder(folder.path());
    let (writer, _) = Writer::create(&location, quiet()).unwrap();
    writer.record(Record::Request(request(0, 1)));
    drop(writer);
    let wal = folder.path().join("wal/r0-000001.wal");
    let old = fs::read(&wal).unwrap();
    let mut bytes = old.clone();
    bytes[8] = 4;
    let crc = crc32fast::hash(&bytes[..34]).to_le_bytes();
    bytes[34..38].copy_from_slice(&crc);
    fs::write(&wal, bytes).unwrap();
    let error = Trace::open(&location).err().unwrap().to_string();
    assert!(
        error.ends_with(
            "r0-000001.wal has format version 4; this version of hindcast reads up to version 3"
        ),
        "{error}"
    );
    fs::write(&wal, old).unwrap();

    Trace::recover(&location).unwrap();
    let manifest = folder.path().join("segments/r0-000001.json");
    let newer = fs::read_to_string(&manifest)
        .unwrap()
        .replace("\"version\": 1", "\"version\": 4");
    fs::write(&manifest, newer).unwrap();
    let error = Trace::open(&location).err().unwrap().to_string();
    assert!(
        error.ends_with(
            "r0-000001.json has format version 4; this version of hindcast reads up to version 3"
        ),
        "{error}"
    );
}

#[test]
fn what_is_not_a_trace_is_said_not_to_be_one() {
    let folder = TempDir::new().unwrap();
    let error = Trace::open(&Location::folder(folder.path().join("nothing")))
        .err()
        .unwrap();
    assert_eq!(
        error.to_string(),
        format!("there is no trace at {}/nothing", folder.path().display())
    );
    fs::write(
        folder.path().join("trace.json"),
        "{\"format\":\"something else\"}",
    )
    .unwrap();
    let error = Trace::open(&Location::folder(folder.path())).err().unwrap();
    assert!(
        error
            .to_string()
            .ends_with("is damaged: it is not a hindcast-trace file"),
        "{error}"
    );
}

#[test]
fn a_damaged_segment_is_named_and_the_others_are_read() {
    let folder = TempDir::new().unwrap();
    let location = Location::folder(folder.path());
    let (writer, _) = Writer::create(
        &location,
        WriterOptions {
            roll_bytes_max: 1,
            ..hasty()
        },
    )
    .unwrap();
    for sequence in 1..=2 {
        writer.record(Record::Request(request(0, sequence)));
        wait_for("a segment", || writer.status().segments_written == sequence);
    }
    writer.close().unwrap();
    fs::write(
        folder.path().join("requests/r0-000002.parquet"),
        "PAR1 not really PAR1",
    )
    .unwrap();
    let trace = Trace::open(&location).unwrap();
    let mut requests = trace.requests(RequestFilter::default());
    // The stream looks one row ahead, so the error may come in place of the last good row's
    // successor.
    let read: Vec<Result<Request, ReadError>> = requests.by_ref().collect();
    let error = read.last().unwrap().as_ref().unwrap_err();
    assert!(
        error.to_string().contains("requests/r0-000002.parquet"),
        "{error}"
    );
    assert!(requests.next().is_none());
    assert_eq!(trace.request(Id::new(0, 1)).unwrap(), Some(request(0, 1)));
}

#[test]
fn a_trace_without_its_write_ahead_folder_says_what_is_missing() {
    let folder = TempDir::new().unwrap();
    let location = Location::folder(folder.path());
    let (writer, _) = Writer::create(
        &location,
        WriterOptions {
            roll_bytes_max: 1,
            ..hasty()
        },
    )
    .unwrap();
    writer.record(Record::Request(request(0, 1)));
    wait_for("a segment", || writer.status().segments_written == 1);
    drop(writer);
    // As if the tables had been copied from another machine.
    fs::remove_dir_all(folder.path().join("wal")).unwrap();
    let trace = Trace::open(&location).unwrap();
    assert_eq!(request_ids(&trace), [1]);
    assert!(
        matches!(
            trace.gaps(),
            [Gap {
                cause: GapCause::Crashed { recorder: 0 },
                ..
            }]
        ),
        "{:?}",
        trace.gaps()
    );
    assert!(
        trace.warnings()[0].contains("has not closed the trace"),
        "{:?}",
        trace.warnings()
    );
}

#[test]
fn bodies_of_very_different_lengths_come_back_whole() {
    let folder = TempDir::new().unwrap();
    let location = Location::folder(folder.path());
    let (writer, _) = Writer::create(&location, hasty()).unwrap();
    let mut bodies = BTreeMap::new();
    for sequence in 1..=60u64 {
        // Up to 4 MB: several row groups, and pages of one value.
        let body: Vec<u8> = (0..1usize << (sequence % 23))
            .map(|at| (at as u64 * sequence) as u8)
            .collect();
        bodies.insert(sequence, body.clone());
        writer.record(Record::Request(Request {
            body,
            ..request(0, sequence)
        }));
        if sequence % 8 == 0 {
            flush(&writer);
        }
    }
    writer.close().unwrap();
    for request in Trace::open(&location)
        .unwrap()
        .requests(RequestFilter::default())
    {
        let request = request.unwrap();
        assert!(
            bodies.remove(&request.id.sequence()).unwrap() == request.body,
            "request {}",
            request.id
        );
    }
    assert!(bodies.is_empty());
}

fn leftovers(trace: &Path) -> Vec<String> {
    let entries = fs::read_dir(trace.join("wal")).unwrap();
    entries
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect()
}
