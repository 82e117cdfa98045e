use std::os::unix::fs::FileExt;

use hindcast_taplog::Direction;
use proptest::prelude::*;
use ring::rand::{SecureRandom, SystemRandom};

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

fn bytes(texts: [&[u8]; 3]) -> Vec<u8> {
    let mut out = Vec::new();
    for (at, text) in (0..).zip(texts) {
        let told = Told::Bytes {
            stream: 12,
            direction: Direction::In,
            bytes: text,
        };
        told.encode(at, &mut out);
    }
    out
}

/// As many bytes, in which nothing repeats.
fn noise(length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    SystemRandom::new().fill(&mut bytes).unwrap();
    bytes
}

struct Spooled {
    folder: tempfile::TempDir,
    writer: Writer,
    reader: Reader,
}

fn spooled(limit: u64) -> Spooled {
    let folder = tempfile::tempdir().unwrap();
    let (writer, reader) = spool(folder.path(), limit).unwrap();
    Spooled {
        folder,
        writer,
        reader,
    }
}

const SEALED: &[u8] = b"the key, for somebody";

/// One that others can read.
fn lasting_one(limit: u64, key: &Key) -> Spooled {
    let folder = tempfile::tempdir().unwrap();
    let (writer, reader) = lasting(folder.path(), limit, key, SEALED, b"what it is").unwrap();
    Spooled {
        folder,
        writer,
        reader,
    }
}

impl Spooled {
    fn told(&mut self, text: &[u8]) {
        let told = bytes([text; 3]);
        self.writer.told(0, Records::of(&told)).unwrap();
    }

    /// Three records, each so long, in which nothing repeats.
    fn noise(&mut self, length: usize) {
        let noise = [(); 3].map(|()| noise(length));
        let told = bytes([&noise[0], &noise[1], &noise[2]]);
        self.writer.told(0, Records::of(&told)).unwrap();
    }

    fn flush(&mut self) {
        self.writer.flush(5, Clock { zero: -3 }).unwrap();
    }

    /// Everything that is there by now, as text.
    fn read(&mut self) -> Result<Vec<String>, SpoolError> {
        let (all, end) = read(&mut self.reader);
        end.map(|()| all)
    }

    fn file(&self, number: u32) -> std::path::PathBuf {
        self.folder.path().join(format!("{number:06}.spool"))
    }
}

/// Until there is no more, or it cannot be read.
fn read(reader: &mut Reader) -> (Vec<String>, Result<(), SpoolError>) {
    let mut all = Vec::new();
    loop {
        match reader.read() {
            Ok(None) => return (all, Ok(())),
            Err(error) => return (all, Err(error)),
            Ok(Some(Entry::Told { ring, told })) => {
                all.extend(told.map(|(at, told)| format!("{ring} {at} {told:?}")));
            }
            Ok(Some(entry)) => all.push(format!("{entry:?}")),
        }
    }
}

#[test]
fn what_is_written_is_read_once_it_is_flushed() {
    let mut spool = spooled(NO_LIMIT);
    spool.writer.ring(0, &program()).unwrap();
    spool.told(b"one");
    assert_eq!(spool.read().unwrap(), [""; 0]);
    spool.writer.garbled(0).unwrap();
    spool.writer.ended(0).unwrap();
    spool.flush();
    spool.writer.note(b"another");
    let all = spool.read().unwrap();
    assert!(all[0].contains("pid: 7") && all[0].contains("command: [97, 0, 98, 0]"));
    assert!(all[3].starts_with("0 2 Bytes { stream: 12"), "{}", all[3]);
    assert_eq!(
        all[4..],
        [
            "Garbled { ring: 0 }",
            "Ended { ring: 0 }",
            "Looked { moment: 5, clock: Clock { zero: -3 } }",
            "Noted([97, 110, 111, 116, 104, 101, 114])",
        ]
    );
    spool.flush();
    assert_eq!(spool.read().unwrap().len(), 1);
}

#[test]
fn a_file_is_given_up_when_it_was_read() {
    let mut spool = spooled(3 << 20);
    for _ in 0..6 {
        spool.noise(200 << 10);
    }
    spool.flush();
    assert!(!spool.writer.has_room());
    let names = std::fs::read_dir(spool.folder.path()).unwrap();
    assert_eq!(names.count(), 0, "files have no names");
    assert_eq!(spool.read().unwrap().len(), 19);
    assert!(spool.writer.has_room());
    assert_eq!(spool.reader.meter().read().unread, 0);
    assert_eq!(spool.writer.locked().shared.locked().files.len(), 1);
}

#[test]
fn what_is_changed_on_disk_is_noticed() {
    for at in 0..CHUNK_HEAD as u64 + 50 {
        let mut spool = spooled(NO_LIMIT);
        spool.told(b"one");
        spool.flush();
        let file = Arc::clone(&spool.writer.locked().file);
        let mut byte = [0];
        // The length's high bytes make it longer than what was written.
        file.read_exact_at(&mut byte, at).unwrap();
        file.write_all_at(&[byte[0] ^ 0x41], at).unwrap();
        let error = spool.read().unwrap_err().to_string();
        assert!(error.contains("is damaged"), "byte {at}: {error}");
    }
}

/// Descriptors that cannot be written to stand for a full disk.
#[test]
fn what_the_disk_does_not_take_is_offered_again() {
    let mut spool = spooled(NO_LIMIT);
    spool.told(b"one");
    let read_only = Arc::new(File::open("/dev/null").unwrap());
    let file = std::mem::replace(&mut spool.writer.locked().file, read_only);
    spool.flush();
    assert!(!spool.writer.has_room());
    assert_eq!(spool.read().unwrap(), [""; 0]);
    spool.writer.locked().file = file;
    assert!(spool.writer.has_room());
    assert_eq!(spool.read().unwrap().len(), 4);
}

#[test]
fn who_reads_is_woken_and_told_of_the_end() {
    let mut spool = spooled(NO_LIMIT);
    let mut writer = spool.writer.clone();
    let thread = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(20));
        writer.flush(1, Clock::default()).unwrap();
        std::thread::sleep(Duration::from_millis(20));
        writer.close();
    });
    let long = Duration::from_secs(60);
    spool.reader.wait(long);
    assert_eq!(spool.read().unwrap().len(), 1);
    assert!(!spool.reader.meter().read().is_closed);
    spool.reader.wait(long);
    assert!(spool.reader.meter().read().is_closed);
    thread.join().unwrap();
}

#[test]
fn what_repeats_takes_little_room_and_the_limit_is_about_what_is_on_disk() {
    let mut spool = spooled(1 << 20);
    let answer = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n".repeat(200);
    for _ in 0..200 {
        spool.told(answer.as_bytes());
    }
    spool.flush();
    // Six megabytes were told.
    let unread = spool.reader.meter().read().unread;
    assert!(spool.writer.has_room() && unread < 600 << 10, "{unread}");
    spool.noise(400 << 10);
    spool.flush();
    assert!(!spool.writer.has_room());
}

#[test]
fn who_is_in_a_hurry_takes_more_room_and_the_same_is_read() {
    let mut spool = spooled(NO_LIMIT);
    let text = vec![b'x'; 100_000];
    let mut rooms = Vec::new();
    for is_behind in [true, false] {
        spool.writer.hurry(is_behind);
        let before = spool.reader.meter().read().unread;
        spool.told(&text);
        spool.flush();
        rooms.push(spool.reader.meter().read().unread - before);
    }
    assert!(rooms[0] > 300_000 && rooms[1] < 10_000, "{rooms:?}");
    let read = spool.read().unwrap();
    assert_eq!(read.len(), 8);
    assert_eq!(read[..4], read[4..]);
}

#[test]
fn what_is_left_can_be_read_again_by_who_has_the_key() {
    let key = Key::random().unwrap();
    let mut spool = lasting_one(NO_LIMIT, &key);
    for _ in 0..5 {
        spool.noise(200 << 10);
        spool.flush();
    }
    let all = spool.read().unwrap();
    assert!(all[0].starts_with("About"), "{}", all[0]);
    assert_eq!(all.len(), 1 + 5 * 4);
    spool.told(b"not read yet");
    spool.flush();
    assert!(spool.file(3).exists(), "several files");

    let folder = spool.folder.path();
    assert_eq!(sealed_key(folder).unwrap().as_deref(), Some(SEALED));
    for _ in 0..2 {
        let (again, end) = read(&mut left(folder, &key).unwrap());
        end.unwrap();
        assert_eq!(again[..all.len()], all);
        assert_eq!(again.len(), all.len() + 4);
    }
    let other = Key::random().unwrap();
    assert!(left(folder, &other).unwrap().read().is_err());
    remove(folder).unwrap();
    assert!(!folder.exists() && sealed_key(folder).unwrap().is_none());
}

#[test]
fn what_a_power_failure_cut_off_ends_it() {
    let key = Key::random().unwrap();
    let mut spool = lasting_one(NO_LIMIT, &key);
    for _ in 0..5 {
        spool.noise(200 << 10);
        spool.flush();
    }
    let whole = spool.read().unwrap();
    let last = (1..)
        .take_while(|&number| spool.file(number).exists())
        .last();
    let mut shortest = whole.len();
    for file in [last.unwrap(), 1] {
        let file = File::options().write(true).open(spool.file(file)).unwrap();
        let mut length = file.metadata().unwrap().len();
        while length > 0 {
            length = length.saturating_sub(150_001);
            file.set_len(length).unwrap();
            let Ok(mut reader) = left(spool.folder.path(), &key) else {
                shortest = 0;
                continue;
            };
            let (found, end) = read(&mut reader);
            assert_eq!(found[..], whole[..found.len()]);
            assert!(found.len() == shortest || found.len() < shortest, "{end:?}");
            shortest = found.len();
        }
    }
    assert_eq!(shortest, 0);
}

#[test]
fn a_spool_that_is_too_large_to_keep_is_read_once() {
    let key = Key::random().unwrap();
    let mut spool = lasting_one(8 << 20, &key);
    let is_whole = |spool: &Spooled| how_far(spool.folder.path()).unwrap().is_whole;
    for _ in 0..2 {
        spool.noise(600 << 10);
        spool.flush();
        spool.read().unwrap();
        assert!(spool.writer.has_room() && is_whole(&spool));
    }
    for _ in 0..8 {
        spool.noise(600 << 10);
        spool.flush();
        spool.read().unwrap();
        assert!(spool.writer.has_room());
    }
    assert!(!is_whole(&spool) && !spool.file(1).exists());
    assert!(sealed_key(spool.folder.path()).unwrap().is_none());
    let on_disk = std::fs::read_dir(spool.folder.path()).unwrap().count();
    assert!(on_disk <= 3, "{on_disk} files are left");
    let error = left(spool.folder.path(), &key).unwrap_err().to_string();
    assert!(error.contains("its beginning is not there"), "{error}");
}

#[test]
fn how_much_was_read_can_be_asked_by_others() {
    let key = Key::random().unwrap();
    let mut spool = lasting_one(NO_LIMIT, &key);
    spool.read().unwrap();
    spool.reader.wait(Duration::ZERO);
    spool.noise(300 << 10);
    spool.flush();
    let some = how_far(spool.folder.path()).unwrap();
    assert!(some.read < 1000 && some.total > 900 << 10, "{some:?}");
    assert!((wall() - some.heard).abs() < 60_000_000, "{some:?}");
    spool.read().unwrap();
    spool.reader.wait(Duration::ZERO);
    let all = how_far(spool.folder.path()).unwrap();
    assert_eq!((all.read, all.total), (some.total, some.total));
    assert_eq!(how_far(&spool.folder.path().join("none")), None);
}

#[test]
fn a_spool_of_another_version_is_refused() {
    let key = Key::random().unwrap();
    let spool = lasting_one(NO_LIMIT, &key);
    let file = File::options().write(true).open(spool.file(1)).unwrap();
    for (at, byte, said) in [
        (8, 9, "in format 9"),
        (12, 7, "another file"),
        (0, 0, "does not begin"),
    ] {
        file.write_all_at(&[byte], at).unwrap();
        let error = left(spool.folder.path(), &key).unwrap_err().to_string();
        assert!(error.contains(said), "{error}");
        file.write_all_at(&[b"HNDCSPOL\x02\0\0\0\x01"[at as usize]], at)
            .unwrap();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Whatever the lengths, and whenever it is read.
    #[test]
    fn what_comes_out_is_what_went_in(steps in prop::collection::vec((0..600_000usize, any::<bool>()), 1..20)) {
        let mut spool = spooled(NO_LIMIT);
        let (mut wrote, mut read) = (Vec::new(), Vec::new());
        for (number, (length, reads)) in steps.into_iter().enumerate() {
            let note = vec![number as u8; length];
            spool.writer.note(&note);
            wrote.push((number as u8, length));
            while reads && let Some(Entry::Noted(note)) = spool.reader.read().unwrap() {
                read.push((note.first().copied(), note.len()));
            }
        }
        while let Some(Entry::Noted(note)) = spool.reader.read().unwrap() {
            read.push((note.first().copied(), note.len()));
        }
        let wrote: Vec<_> = wrote.iter().map(|&(number, length)| ((length > 0).then_some(number), length)).collect();
        prop_assert_eq!(wrote, read);
    }
}
