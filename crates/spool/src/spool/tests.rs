use std::os::unix::fs::FileExt;

use hindcast_taplog::Direction;
use proptest::prelude::*;

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

impl Spooled {
    fn told(&mut self, text: &[u8]) {
        self.writer.told(0, Records::of(&bytes(text))).unwrap();
    }

    fn flush(&mut self) {
        self.writer.flush(5, Clock { zero: -3 }).unwrap();
    }

    /// Everything that is there by now, as text.
    fn read(&mut self) -> Result<Vec<String>, SpoolError> {
        let mut all = Vec::new();
        while let Some(entry) = self.reader.read()? {
            match entry {
                Entry::Told { ring, told } => {
                    all.extend(told.map(|(at, told)| format!("{ring} {at} {told:?}")));
                }
                entry => all.push(format!("{entry:?}")),
            }
        }
        Ok(all)
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
    let large = vec![b'x'; 200 << 10];
    for _ in 0..6 {
        spool.told(&large);
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
    for at in 0..24 + 50 {
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

proptest! {
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
