//! A trace of which the recording machine has only the public key: nothing in it can be read
//! without the secret one, and nothing of it is lost.

use std::fs;
use std::path::{Path, PathBuf};

use crate::common::*;
use hindcast_trace::*;
use tempfile::TempDir;

/// In bodies of requests and in statements: what must not be found in any file.
const SECRET: &str = "4111 1111 1111 1111";

fn secretly(sequence: u64) -> Request {
    Request {
        body: format!("{{\"card\":\"{SECRET}\",\"number\":{sequence}}}").into_bytes(),
        ..request(0, sequence)
    }
}

fn encrypting(key: &Key, options: WriterOptions) -> WriterOptions {
    WriterOptions {
        key: Some(key.clone()),
        ..options
    }
}

/// The secret key and the public one.
fn keys() -> (Key, Key) {
    let secret = SecretKey::generate().unwrap();
    let public = Key::Public(secret.public());
    (Key::Secret(secret), public)
}

fn requests(location: &Location, key: &Key) -> Vec<Request> {
    read_requests(&Trace::open_with(location, Some(key)).unwrap())
}

fn expected(count: u64) -> Vec<Request> {
    (1..=count).map(secretly).collect()
}

/// Records so many requests, on disk when it returns.
fn begun(location: &Location, options: WriterOptions, count: u64) -> Writer {
    let (writer, number) = Writer::create(location, options).unwrap();
    writer.record(Record::Recorder(recorder(number)));
    writer.record(Record::Shape(Shape {
        id: ShapeId(1),
        statements: vec![SECRET.into()],
    }));
    for sequence in 1..=count {
        writer.record(Record::Request(secretly(sequence)));
        writer.record(Record::Transaction(transaction(0, sequence)));
    }
    flush(&writer);
    writer
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    entries
        .flat_map(|path| {
            if path.is_dir() {
                files(&path)
            } else {
                vec![path]
            }
        })
        .collect()
}

#[track_caller]
fn assert_unreadable(folder: &Path) {
    for file in files(folder) {
        let bytes = fs::read(&file).unwrap();
        for secret in [SECRET, "forum/list", "application/json"] {
            let found = bytes
                .windows(secret.len())
                .any(|window| window == secret.as_bytes());
            assert!(!found, "{secret:?} is in {}", file.display());
        }
    }
}

#[test]
fn nothing_can_be_read_without_the_secret_key_and_everything_with_it() {
    let (secret, public) = keys();
    let folder = TempDir::new().unwrap();
    let location = Location::folder(folder.path());
    let writer = begun(&location, encrypting(&public, quiet()), 300);
    assert_unreadable(folder.path());
    assert_eq!(
        requests(&location, &secret),
        expected(300),
        "while recording"
    );
    writer.close().unwrap();
    assert_unreadable(folder.path());
    assert!(
        !files(folder.path())
            .iter()
            .any(|file| file.extension() == Some("wal".as_ref()))
    );
    let trace = Trace::open_with(&location, Some(&secret)).unwrap();
    assert_eq!(read_requests(&trace), expected(300));
    assert_eq!(read_transactions(&trace).len(), 300);
    assert_eq!(trace.request(Id::new(0, 77)).unwrap(), Some(secretly(77)));
    assert_eq!(trace.shapes()[0].statements, [SECRET]);
    assert_eq!(trace.gaps(), []);
    assert_eq!(trace.warnings(), Vec::<String>::new());
}

#[test]
fn a_segment_of_many_chunks_is_read_in_any_order() {
    let (secret, public) = keys();
    let folder = TempDir::new().unwrap();
    let location = Location::folder(folder.path());
    let (writer, _) = Writer::create(&location, encrypting(&public, quiet())).unwrap();
    // What does not compress.
    let mut state = 1u64;
    let mut bytes = |length: usize| -> Vec<u8> {
        let next = || {
            state = state
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            (state >> 56) as u8
        };
        std::iter::repeat_with(next).take(length).collect()
    };
    let large: Vec<Request> = (1..=40)
        .map(|sequence| Request {
            body: bytes(30_000),
            ..request(0, sequence)
        })
        .collect();
    for request in &large {
        writer.record(Record::Request(request.clone()));
    }
    writer.close().unwrap();
    let length = fs::metadata(folder.path().join("requests/r0-000001.parquet"))
        .unwrap()
        .len();
    assert!(length > 10 * 65536, "{length}");
    let trace = Trace::open_with(&location, Some(&secret)).unwrap();
    assert_eq!(read_requests(&trace), large);
    for sequence in [40, 1, 23] {
        let found = trace.request(Id::new(0, sequence)).unwrap().unwrap();
        assert_eq!(found, large[sequence as usize - 1]);
    }
}

#[test]
fn a_missing_or_wrong_key_is_refused_with_the_next_step() {
    let (secret, public) = keys();
    let (other, _) = keys();
    let folder = TempDir::new().unwrap();
    let location = Location::folder(folder.path());
    begun(&location, encrypting(&public, quiet()), 1)
        .close()
        .unwrap();
    let shown = folder.path().display();
    let id = secret.id();
    let check = |key: Option<&Key>, expected: String, hint: &str| {
        let error = Trace::open_with(&location, key).err().unwrap();
        assert_eq!(error.to_string(), expected);
        assert!(error.hint().contains(hint), "{}", error.hint());
    };
    check(
        None,
        format!("the recording in {shown} is encrypted for key {id}"),
        "`--key`",
    );
    check(
        Some(&other),
        format!(
            "the recording in {shown} is encrypted for key {id}, and the given one is {}",
            other.id()
        ),
        "hindcast key show",
    );
    check(
        Some(&public),
        format!("the recording in {shown} is encrypted, and the given key {id} is the public one"),
        "the secret key",
    );
    // Nor does a recorder mix.
    let error = Writer::create(&location, quiet()).err().unwrap();
    assert!(matches!(error, OpenError::Encrypted { .. }), "{error}");
    let plain = TempDir::new().unwrap();
    let plain = Location::folder(plain.path());
    Writer::create(&plain, quiet()).unwrap().0.close().unwrap();
    let error = Writer::create(&plain, encrypting(&public, quiet()))
        .err()
        .unwrap();
    assert!(matches!(error, OpenError::NotEncrypted { .. }), "{error}");
    // A key that is not needed does no harm: HINDCAST_KEY may be set for other recordings.
    Trace::open_with(&plain, Some(&secret)).unwrap();
}

#[test]
fn what_a_killed_recorder_leaves_waits_for_the_secret_key() {
    let (secret, public) = keys();
    let folder = TempDir::new().unwrap();
    let location = Location::folder(folder.path());
    let wal = folder.path().join("wal/r0-000001.wal");
    // Dropped, it is one that was killed.
    drop(begun(&location, encrypting(&public, quiet()), 50));
    // The next recorder has the public key only, and cannot read what it finds.
    let (next, number) = Writer::create(&location, encrypting(&public, hasty())).unwrap();
    assert_eq!(number, 1);
    next.close().unwrap();
    assert!(wal.exists());
    assert_eq!(requests(&location, &secret), expected(50));
    assert!(matches!(
        Trace::recover_with(&location, Some(&public)),
        Err(OpenError::OnlyPublic { .. })
    ));
    assert_eq!(Trace::recover_with(&location, Some(&secret)).unwrap(), 1);
    assert!(!wal.exists());
    assert_unreadable(folder.path());
    assert_eq!(requests(&location, &secret), expected(50));
}

#[test]
fn a_write_ahead_file_cut_off_anywhere_keeps_what_is_before_the_cut() {
    let (secret, public) = keys();
    let folder = TempDir::new().unwrap();
    let location = Location::folder(folder.path());
    let wal = folder.path().join("wal/r0-000001.wal");
    drop(begun(&location, encrypting(&public, quiet()), 20));
    let whole = fs::read(&wal).unwrap();
    let mut seen = 0;
    for cut in (0..whole.len()).step_by(37) {
        fs::write(&wal, &whole[..cut]).unwrap();
        let read = requests(&location, &secret);
        assert_eq!(read, expected(read.len() as u64), "cut at {cut}");
        assert!(read.len() >= seen, "cut at {cut}");
        seen = read.len();
    }
    assert!(seen >= 19, "{seen}");
    // Recovered, the torn part is kept and is a gap, as without encryption.
    fs::write(&wal, &whole[..whole.len() * 2 / 3]).unwrap();
    let before = requests(&location, &secret);
    Trace::recover_with(&location, Some(&secret)).unwrap();
    assert_eq!(requests(&location, &secret), before);
    assert!(folder.path().join("wal/r0-000001.torn").exists());
    let trace = Trace::open_with(&location, Some(&secret)).unwrap();
    assert_eq!(trace.gaps()[0].cause, GapCause::Crashed { recorder: 0 });
}

#[test]
fn a_changed_byte_in_a_write_ahead_file_ends_it_there() {
    let (secret, public) = keys();
    let folder = TempDir::new().unwrap();
    let location = Location::folder(folder.path());
    let wal = folder.path().join("wal/r0-000001.wal");
    drop(begun(&location, encrypting(&public, quiet()), 20));
    let whole = fs::read(&wal).unwrap();
    for position in (80..whole.len()).step_by(131) {
        let mut changed = whole.clone();
        changed[position] ^= 1;
        fs::write(&wal, &changed).unwrap();
        let read = requests(&location, &secret);
        assert_eq!(read, expected(read.len() as u64), "changed at {position}");
        assert!(read.len() <= 20);
    }
}

#[test]
fn a_changed_or_shortened_segment_is_noticed_also_with_a_manifest_to_match() {
    let (secret, public) = keys();
    let folder = TempDir::new().unwrap();
    let location = Location::folder(folder.path());
    begun(&location, encrypting(&public, quiet()), 300)
        .close()
        .unwrap();
    let table = folder.path().join("requests/r0-000001.parquet");
    let manifest = folder.path().join("segments/r0-000001.json");
    let (whole, described) = (
        fs::read(&table).unwrap(),
        fs::read_to_string(&manifest).unwrap(),
    );
    let checksum = |bytes: &[u8]| format!("{:016x}", xxhash_rust::xxh3::xxh3_64(bytes));
    let check = |bytes: Vec<u8>, what: &str| {
        // Somebody who can write the one file can write the other.
        let forged = described
            .replace(&checksum(&whole), &checksum(&bytes))
            .replace(
                &format!("\"bytes\": {}", whole.len()),
                &format!("\"bytes\": {}", bytes.len()),
            );
        fs::write(&manifest, forged).unwrap();
        fs::write(&table, &bytes).unwrap();
        let trace = Trace::open_with(&location, Some(&secret)).unwrap();
        let read: Result<Vec<_>, _> = trace.requests(RequestFilter::default()).collect();
        assert!(read.is_err(), "{what} is not noticed");
    };
    for position in (0..whole.len()).step_by(whole.len() / 40) {
        let mut changed = whole.clone();
        changed[position] ^= 16;
        check(changed, &format!("a change at {position}"));
    }
    for length in [0, 10, 52, 60, whole.len() / 2, whole.len() - 1] {
        check(whole[..length].to_vec(), &format!("a cut at {length}"));
    }
    // Another table of the same trace in its place.
    let other = fs::read(folder.path().join("transactions/r0-000001.parquet")).unwrap();
    check(other, "another table");
}

#[test]
fn a_decrypted_copy_holds_the_same_and_needs_no_key() {
    let (secret, public) = keys();
    let folder = TempDir::new().unwrap();
    let location = Location::folder(folder.path().join("trace"));
    begun(&location, encrypting(&public, hasty()), 100)
        .close()
        .unwrap();
    // One that was killed: in a write-ahead file.
    let (killed, _) = Writer::create(&location, encrypting(&public, quiet())).unwrap();
    killed.record(Record::Request(Request {
        id: Id::new(1, 1),
        ..secretly(1)
    }));
    flush(&killed);
    drop(killed);
    let copy = folder.path().join("copy");
    let done = decrypt(&location, &secret, &copy).unwrap();
    assert_eq!(done.segments, 2);
    let original = Trace::open_with(&location, Some(&secret)).unwrap();
    let copied = Trace::open(&Location::folder(&copy)).unwrap();
    assert_eq!(read_requests(&copied), read_requests(&original));
    assert_eq!(copied.request_count(), 101);
    assert_eq!(read_transactions(&copied), read_transactions(&original));
    assert_eq!(copied.shapes(), original.shapes());
    assert_eq!(copied.gaps(), original.gaps());
    let table = fs::read(copy.join("requests/r0-000001.parquet")).unwrap();
    assert_eq!(
        (&table[..4], &table[table.len() - 4..]),
        (&b"PAR1"[..], &b"PAR1"[..])
    );
    let again = decrypt(&location, &secret, &copy).unwrap_err();
    assert!(again.to_string().contains("cannot be written"), "{again}");
}

#[test]
fn an_encrypted_trace_is_pruned() {
    let (secret, public) = keys();
    let folder = TempDir::new().unwrap();
    let location = Location::folder(folder.path());
    record_with(&location, encrypting(&public, hasty()), 10);
    let base = take_base(&location, encrypting(&public, hasty()));
    record_with(&location, encrypting(&public, hasty()), 7);
    let plan = plan_prune(&location, Some(&secret), &all_of_it()).unwrap();
    prune(&location, Some(&secret), &plan, |_| ()).unwrap();
    assert_unreadable(folder.path());
    let trace = Trace::open_with(&location, Some(&secret)).unwrap();
    assert_eq!(trace.request_count(), 7);
    assert_eq!(trace.bases(), [base]);
    assert_eq!(trace.shapes().len(), 2);
    let copy = folder.path().join("copy");
    decrypt(&location, &secret, &copy).unwrap();
    let copied = Trace::open(&Location::folder(&copy)).unwrap();
    assert_eq!(
        (copied.request_count(), copied.pruned()),
        (7, trace.pruned())
    );
}

#[test]
fn without_a_key_nothing_is_different() {
    let folder = TempDir::new().unwrap();
    let location = Location::folder(folder.path());
    let writer = begun(&location, quiet(), 3);
    let wal = fs::read(folder.path().join("wal/r0-000001.wal")).unwrap();
    assert_eq!((&wal[..8], wal[8]), (&b"HNDCSWAL"[..], 1));
    writer.close().unwrap();
    let trace_file = fs::read_to_string(folder.path().join("trace.json")).unwrap();
    assert!(trace_file.contains("\"version\": 1") && !trace_file.contains("encryption"));
    assert_eq!(read_requests(&Trace::open(&location).unwrap()), expected(3));
}
