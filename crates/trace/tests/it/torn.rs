//! A damaged write-ahead file, damaged at every single place: everything before the damage is
//! there, and it is said that something is missing.

use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::common::*;
use hindcast_trace::*;
use tempfile::TempDir;

const REQUESTS: u64 = 6;
const HEADER: usize = 38;

struct Crashed {
    folder: TempDir,
    wal: PathBuf,
    bytes: Vec<u8>,
    /// Where the entry of each request is.
    entries: Vec<Range<usize>>,
}

/// A recorder that stopped without closing, having recorded a few requests.
fn crashed() -> Crashed {
    let folder = TempDir::new().unwrap();
    let (writer, _) = Writer::create(&Location::folder(folder.path()), quiet()).unwrap();
    for sequence in 1..=REQUESTS {
        writer.record(Record::Request(request(0, sequence)));
    }
    drop(writer);
    let wal = folder.path().join("wal/r0-000001.wal");
    let bytes = fs::read(&wal).unwrap();
    let mut entries = Vec::new();
    let mut at = HEADER;
    for _ in 0..REQUESTS {
        let length = u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
        entries.push(at..at + 8 + length);
        at += 8 + length;
    }
    assert_eq!(bytes.len(), at + 8 + 9, "one time entry follows");
    Crashed {
        folder,
        wal,
        bytes,
        entries,
    }
}

impl Crashed {
    fn open(&self) -> Trace {
        Trace::open(&Location::folder(self.folder.path())).unwrap()
    }

    /// How many requests end before this place.
    fn whole_before(&self, place: usize) -> u64 {
        self.entries
            .iter()
            .filter(|entry| entry.end <= place)
            .count() as u64
    }
}

fn check(crashed: &Crashed, trace: &Trace, expected: u64, place: usize) {
    let expected: Vec<Request> = (1..=expected)
        .map(|sequence| request(0, sequence))
        .collect();
    assert_eq!(read_requests(trace), expected, "damage at byte {place}");
    let crashes: Vec<&Gap> = trace.gaps().iter().filter(|gap| is_crash(gap)).collect();
    assert_eq!(
        crashes.len(),
        1,
        "damage at byte {place}: {:?}",
        trace.gaps()
    );
    assert!(
        crashes[0].from <= crashes[0].to,
        "damage at byte {place}: {:?}",
        crashes[0]
    );
    assert!(
        crashes[0].from > request(0, 1).arrived,
        "damage at byte {place}: {:?}",
        crashes[0]
    );
    assert!(crashed.wal.exists());
}

fn is_crash(gap: &Gap) -> bool {
    gap.cause == GapCause::Crashed { recorder: 0 }
}

fn says_torn(trace: &Trace) -> bool {
    trace
        .warnings()
        .iter()
        .any(|warning| warning.contains("r0-000001.wal ends in the middle of a record"))
}

#[test]
fn a_file_cut_off_anywhere_keeps_what_is_before_the_cut() {
    let crashed = crashed();
    for length in 0..crashed.bytes.len() {
        fs::write(&crashed.wal, &crashed.bytes[..length]).unwrap();
        let trace = crashed.open();
        check(&crashed, &trace, crashed.whole_before(length), length);
        let between_records = length == 0
            || length == HEADER
            || crashed.entries.iter().any(|entry| entry.end == length);
        assert_eq!(
            says_torn(&trace),
            !between_records,
            "cut at byte {length}: {:?}",
            trace.warnings()
        );
    }
}

#[test]
fn a_bit_flipped_anywhere_costs_nothing_before_it() {
    let crashed = crashed();
    for place in 0..crashed.bytes.len() {
        for mask in [0x01, 0x80, 0xff] {
            let mut bytes = crashed.bytes.clone();
            bytes[place] ^= mask;
            fs::write(&crashed.wal, &bytes).unwrap();
            let trace = crashed.open();
            let expected = if place < HEADER {
                0
            } else {
                crashed.whole_before(place)
            };
            check(&crashed, &trace, expected, place);
            assert!(
                says_torn(&trace),
                "flip at byte {place}: {:?}",
                trace.warnings()
            );
        }
    }
}

#[test]
fn a_record_from_elsewhere_is_not_taken_for_one_of_the_file() {
    let crashed = crashed();
    // The third record again in place of the fourth: whole in itself, but not the successor of the
    // third.
    let third = crashed.bytes[crashed.entries[2].clone()].to_vec();
    let mut bytes = crashed.bytes[..crashed.entries[2].end].to_vec();
    bytes.extend_from_slice(&third);
    fs::write(&crashed.wal, &bytes).unwrap();
    let trace = crashed.open();
    check(&crashed, &trace, 3, crashed.entries[2].end);
    assert!(says_torn(&trace));
}

#[test]
fn recovery_of_a_torn_file_keeps_the_torn_part_aside_and_the_gap_in_the_trace() {
    let crashed = crashed();
    let place = crashed.entries[3].start + 5;
    fs::write(&crashed.wal, &crashed.bytes[..place]).unwrap();
    let location = Location::folder(crashed.folder.path());
    assert_eq!(Trace::recover(&location).unwrap(), 1);
    assert!(!crashed.wal.exists());
    assert!(crashed.wal.with_extension("torn").exists());
    let trace = Trace::open(&location).unwrap();
    assert_eq!(request_ids(&trace), [1, 2, 3]);
    assert!(trace.gaps().iter().any(is_crash));
    assert_eq!(trace.warnings(), Vec::<String>::new());
}

#[test]
fn recovery_of_a_file_without_a_header_still_leaves_a_gap() {
    let crashed = crashed();
    fs::write(&crashed.wal, &crashed.bytes[..HEADER - 1]).unwrap();
    let location = Location::folder(crashed.folder.path());
    assert_eq!(Trace::recover(&location).unwrap(), 1);
    let trace = Trace::open(&location).unwrap();
    assert_eq!(request_ids(&trace), Vec::<u64>::new());
    assert!(trace.gaps().iter().any(is_crash));
}

#[test]
fn the_next_recorder_turns_what_a_crashed_one_left_into_a_segment() {
    let crashed = crashed();
    let location = Location::folder(crashed.folder.path());
    let (writer, number) = Writer::create(&location, quiet()).unwrap();
    assert_eq!(number, 1);
    wait_for("the write-ahead file has become a segment", || {
        !crashed.wal.exists()
    });
    writer.record(Record::Request(request(1, 1)));
    writer.close().unwrap();
    assert_eq!(leftovers(crashed.folder.path()), Vec::<PathBuf>::new());
    let trace = Trace::open(&location).unwrap();
    assert_eq!(trace.request_count(), REQUESTS + 1);
    assert_eq!(trace.gaps().iter().filter(|gap| is_crash(gap)).count(), 1);
}

fn leftovers(trace: &Path) -> Vec<PathBuf> {
    fs::read_dir(trace.join("wal"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect()
}
