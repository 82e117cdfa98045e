use hindcast_taplog::Direction;

use super::*;

const NO_LIMIT: u64 = u64::MAX;

fn program() -> Program {
    Program {
        pid: 7,
        parent: 1,
        began: 99,
        command: b"a\0b\0".to_vec(),
    }
}

fn bytes(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    for at in 0..3 {
        let told = Told::Bytes {
            stream: 12,
            direction: Direction::In,
            bytes: text,
        };
        told.encode(at, &mut out);
    }
    out
}

fn written(texts: &[&[u8]]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let mut segments = Segments::create(folder.path(), NO_LIMIT).unwrap();
    segments.ring(0, &program()).unwrap();
    for text in texts {
        segments.told(0, Records::of(&bytes(text))).unwrap();
    }
    segments.garbled(0).unwrap();
    segments.flush(0).unwrap();
    folder
}

/// Everything as text, up to the end or the damage.
fn read(folder: &Path) -> (Vec<String>, Option<String>) {
    let (mut spool, mut all) = (Spool::open(folder), Vec::new());
    loop {
        match spool.read() {
            Ok(Some(Entry::Told { ring, told })) => {
                all.extend(told.map(|(at, told)| format!("{ring} {at} {told:?}")));
            }
            Ok(Some(entry)) => all.push(format!("{entry:?}")),
            Ok(None) => return (all, None),
            Err(error) => return (all, Some(error.to_string())),
        }
    }
}

#[test]
fn what_is_written_is_read() {
    let folder = written(&[b"one", b"", b"two"]);
    let (all, error) = read(folder.path());
    assert_eq!(error, None);
    assert_eq!(all.len(), 1 + 9 + 1);
    assert!(all[0].contains("pid: 7") && all[0].contains("command: [97, 0, 98, 0]"));
    assert_eq!(
        all[3],
        format!(
            "0 2 {:?}",
            Told::Bytes {
                stream: 12,
                direction: Direction::In,
                bytes: b"one"
            }
        )
    );
    assert_eq!(all[10], "Garbled { ring: 0 }");
}

#[test]
fn files_end_where_they_are_large_enough() {
    let large = vec![b'x'; 200 << 10];
    let folder = written(&[&large, &large, &large]);
    assert!(path_of(folder.path(), 1).exists() && !path_of(folder.path(), 2).exists());
    let (all, error) = read(folder.path());
    assert_eq!((all.len(), error), (11, None));
}

#[test]
fn half_a_block_at_the_end_is_the_end() {
    let folder = written(&[b"one", b"two"]);
    let path = path_of(folder.path(), 0);
    let whole = std::fs::read(&path).unwrap();
    let mut counts = Vec::new();
    for length in 0..whole.len() {
        std::fs::write(&path, &whole[..length]).unwrap();
        let (all, error) = read(folder.path());
        assert_eq!(error, None, "{length}");
        counts.push(all.len());
    }
    assert!(counts.is_sorted());
    counts.dedup();
    assert_eq!(counts, [0, 1, 4, 7]);
}

#[test]
fn whatever_is_changed_is_noticed() {
    let folder = written(&[b"one"]);
    let path = path_of(folder.path(), 0);
    let whole = std::fs::read(&path).unwrap();
    let (all, _) = read(folder.path());
    for at in 0..whole.len() {
        let mut changed = whole.clone();
        changed[at] ^= 0x41;
        std::fs::write(&path, &changed).unwrap();
        let (read, error) = read(folder.path());
        // A length that points behind the end looks like half a block.
        assert!(error.is_some() || read.len() < all.len(), "byte {at}");
        assert!(all.starts_with(&read), "byte {at}");
    }
}

#[test]
fn a_file_that_was_cut_off_in_the_middle_of_a_spool_is_damaged() {
    let large = vec![b'x'; 200 << 10];
    let folder = written(&[&large, &large, &large]);
    let first = File::options()
        .write(true)
        .open(path_of(folder.path(), 0))
        .unwrap();
    first.set_len(700 << 10).unwrap();
    let (_, error) = read(folder.path());
    assert!(error.unwrap().contains("ends in the middle"));
}

#[test]
fn a_spool_has_a_limit_and_is_never_written_over() {
    let folder = tempfile::tempdir().unwrap();
    let mut segments = Segments::create(folder.path(), 100).unwrap();
    assert!(segments.has_room());
    segments
        .told(0, Records::of(&bytes(b"more than a hundred bytes")))
        .unwrap();
    assert!(!segments.has_room() && segments.written() > 100);
    let error = Segments::create(folder.path(), 100).unwrap_err();
    assert!(error.to_string().contains("000000.spool"), "{error}");
}
