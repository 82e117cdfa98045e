//! Checkpoints: a replay begins in the middle of a recording, where an earlier replay was.

use std::fs;
use std::path::PathBuf;

use hindcast_tests::exec::{FAILED, Outcome, Program, Recorded, Scene, programs};
use serde_json::Value;

/// A recording of the program that has checkpoints.
struct Case {
    scene: Scene,
    recorded: Outcome,
}

impl Case {
    fn new(name: &str, program: &str) -> Case {
        let scene = Scene::new(name).file("input.txt", "line\n".repeat(1000));
        let recorded = scene.record(&Program::new(programs::compiled(program)));
        Case { scene, recorded }
    }

    /// Replays it whole and has checkpoints taken.
    fn take(&self) -> Outcome {
        let replayed = self.scene.replay_with(&["--checkpoint-every", "0.02"]);
        replayed.assert_code(self.recorded.code());
        assert_eq!(replayed.difference(&self.recorded), None);
        assert!(self.folder().exists(), "{}", replayed.said);
        replayed
    }

    fn folder(&self) -> PathBuf {
        self.scene.recording().join("checkpoints")
    }

    /// At which event thread `thread` was at each checkpoint.
    fn events(&self, thread: u64) -> Vec<u64> {
        let entries = fs::read_dir(self.folder()).expect("there are checkpoints");
        let mut events: Vec<u64> = entries
            .filter_map(|entry| {
                let about = fs::read(entry.unwrap().path().join("about.json")).unwrap();
                let about: Value = serde_json::from_slice(&about).unwrap();
                let threads = about["threads"].as_array().unwrap();
                let found = threads.iter().find(|found| found["number"] == thread)?;
                found["event"].as_u64()
            })
            .collect();
        events.sort_unstable();
        events
    }

    /// Behind a checkpoint in front of which the second thread has stopped some times, as it will
    /// behind it. On a busy machine the few that are taken may lie elsewhere.
    fn middle(&self) -> String {
        let all = Recorded::in_folder(self.scene.recording()).events()["p0/t2"] as u64;
        let is_there = |&event: &u64| (all / 4..all / 4 * 3).contains(&event);
        for _ in 0..10 {
            if let Some(event) = self.events(2).into_iter().find(is_there) {
                return format!("2:{}", event + 1);
            }
            fs::remove_dir_all(self.folder()).unwrap();
            self.take();
        }
        panic!("no checkpoint is in the middle of the {all} events");
    }

    /// What a replay from there on writes: the end of what was recorded, and as much of it as comes
    /// after the checkpoint.
    fn replay_from(&self, at: &str) -> usize {
        let replayed = self.scene.replay_with(&["--at", at]);
        replayed.assert_code(self.recorded.code());
        replayed.assert_said(&["begins at the checkpoint"]);
        let (whole, part) = (self.recorded.text(), replayed.text());
        assert!(whole.ends_with(&part), "{part}\nis no end of\n{whole}");
        assert!(part.lines().count() >= 5, "{part}");
        part.len()
    }
}

#[test]
fn a_replay_begins_at_each_checkpoint_and_comes_to_the_same_end() {
    let case = Case::new("checkpoints", "checkpoints");
    case.recorded.assert_code(3);
    case.take();
    let events = case.events(2);
    assert!(events.len() >= 2, "{events:?}");
    let mut written = Vec::new();
    for at in [0, events.len() / 2, events.len() - 1] {
        written.push(case.replay_from(&format!("2:{}", events[at] + 1)));
    }
    assert!(written.is_sorted_by(|one, next| one >= next), "{written:?}");
    assert!(written.first() > written.last(), "{written:?}");
    // Whatever is before the first has no checkpoint.
    let replayed = case.scene.replay_with(&["--at", "0:1"]);
    assert_eq!(replayed.difference(&case.recorded), None);
}

#[test]
fn a_checkpoint_is_taken_of_a_replay_that_began_at_one() {
    let case = Case::new("checkpoints-again", "checkpoints");
    case.take();
    let events = case.events(1);
    let first = format!("1:{}", events[0] + 1);
    for entry in fs::read_dir(case.folder()).unwrap() {
        let entry = entry.unwrap();
        if entry.file_name() != "1" {
            fs::remove_dir_all(entry.path()).unwrap();
        }
    }
    let again = ["--at", &first, "--checkpoint-every", "0.02"];
    let replayed = case.scene.replay_with(&again);
    replayed.assert_code(case.recorded.code());
    let events = case.events(1);
    assert!(events.len() >= 2, "{events:?}");
    case.replay_from(&format!("1:{}", events[events.len() - 1] + 1));
}

/// What gdb prints, value by value.
fn printed(case: &Case, options: &[&str], commands: &[&str]) -> Vec<i64> {
    let mut arguments = options.to_vec();
    arguments.extend(["--gdb", "--", "-batch", "-ex", "set debuginfod enabled off"]);
    for command in commands {
        arguments.extend(["-ex", command]);
    }
    let said = case.scene.replay_with(&arguments).text();
    let values = said.lines().filter_map(|line| line.strip_prefix('$'));
    let value = |line: &str| line.split_once(" = ")?.1.parse().ok();
    values.filter_map(value).collect()
}

const PRINT: &str = "print (long)of_second";

#[test]
fn a_debugger_goes_forwards_and_backwards() {
    let case = Case::new("checkpoints-gdb", "checkpoints");
    let early = printed(&case, &["--break", "2:20000"], &["run", PRINT]);
    let late = printed(&case, &["--break", "2:90000"], &["run", PRINT]);
    assert_eq!((early.len(), late.len()), (1, 1));
    assert_ne!(early, late);
    case.take();
    let all = printed(
        &case,
        &["--at", "2:90000"],
        &[
            "run",
            PRINT,
            "hindcast-at 2:20000",
            PRINT,
            "hindcast-at 2:90000",
            PRINT,
        ],
    );
    assert_eq!(all, [late[0], early[0], late[0]]);
}

#[test]
fn a_debugger_goes_back_to_the_stops_before() {
    let case = Case::new("checkpoints-back", "checkpoints");
    case.take();
    let mut commands = vec!["break reached", "run", "continue", PRINT, "continue", PRINT];
    for _ in 0..3 {
        commands.extend(["hindcast-back", PRINT]);
    }
    commands.extend(["continue", PRINT]);
    let values = printed(&case, &["--at", &case.middle()], &commands);
    let [at, after, back, before, earlier, forward] = values[..] else {
        panic!("{values:?}")
    };
    assert!(at < after, "{values:?}");
    assert_eq!(back, at, "{values:?}");
    assert!(earlier < before && before < at, "{values:?}");
    assert_eq!(forward, before, "{values:?}");
}

#[test]
fn a_checkpoint_that_cannot_be_used_is_an_error_with_the_next_step() {
    let case = Case::new("checkpoints-damaged", "checkpoints");
    case.take();
    let events = case.events(1);
    let at = format!("1:{}", events[events.len() - 1] + 1);
    for entry in fs::read_dir(case.folder()).unwrap() {
        let image = entry.unwrap().path().join("image");
        let bytes = fs::read(&image).unwrap();
        fs::write(&image, &bytes[..bytes.len() - 8192]).unwrap();
    }
    let replayed = case.scene.replay_with(&["--at", &at]);
    replayed.assert_code(FAILED);
    replayed.assert_said(&["the checkpoint: its file is cut off", "Remove the folder"]);
    fs::remove_dir_all(case.folder()).unwrap();
    let replayed = case.scene.replay_with(&["--at", &at]);
    assert_eq!(replayed.difference(&case.recorded), None);
}
