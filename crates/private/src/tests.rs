use std::io::{Read, Write};
use std::os::unix::fs::{PermissionsExt, symlink};

use super::*;

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().mode() & 0o7777
}

fn widen(path: &Path) {
    fs::set_permissions(path, fs::Permissions::from_mode(0o666)).unwrap();
}

#[test]
fn what_is_made_is_for_its_owner_only() {
    let parent = tempfile::tempdir().unwrap();
    let at = |name: &str| parent.path().join(name);
    write(at("written"), "x").unwrap();
    fs::write(at("wide"), "from").unwrap();
    widen(&at("wide"));
    assert_eq!(copy(at("wide"), at("copy")).unwrap(), 4);
    options().append(true).create(true).open(at("log")).unwrap();
    for name in ["written", "copy", "log"] {
        assert_eq!(mode(&at(name)), FILE_MODE, "{name}");
    }
    let temporary = temporary_folder(parent.path(), "t-").unwrap();
    assert_eq!(mode(temporary.path()), FOLDER_MODE);
    let made = folders(at("a/b/c")).unwrap();
    assert_eq!(made, [at("a"), at("a/b"), at("a/b/c")]);
    made.iter()
        .for_each(|path| assert_eq!(mode(path), FOLDER_MODE));
    assert_eq!(folders(at("a/b/d")).unwrap(), [at("a/b/d")]);
    assert!(folders(at("a/b/c")).unwrap().is_empty());
    assert!(folders(at("written/below")).is_err());
}

#[test]
fn a_reader_of_the_old_file_does_not_see_the_new_contents() {
    let parent = tempfile::tempdir().unwrap();
    let path = parent.path().join("report");
    fs::write(&path, "old").unwrap();
    widen(&path);
    let mut reader = File::open(&path).unwrap();
    create(&path).unwrap().write_all(b"secret").unwrap();
    let mut read = String::new();
    reader.read_to_string(&mut read).unwrap();
    assert_eq!(read, "old");
    assert_eq!(fs::read_to_string(&path).unwrap(), "secret");
    assert_eq!(mode(&path), FILE_MODE);
}

#[test]
fn a_file_of_ours_is_emptied_and_stays_the_same_file() {
    let parent = tempfile::tempdir().unwrap();
    let path = parent.path().join("log");
    write(&path, "a long first run").unwrap();
    let first = fs::metadata(&path).unwrap().ino();
    write(&path, "second").unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "second");
    assert_eq!(fs::metadata(&path).unwrap().ino(), first);
}

#[test]
fn links_are_followed_and_their_targets_are_closed() {
    let parent = tempfile::tempdir().unwrap();
    let at = |name: &str| parent.path().join(name);
    fs::write(at("target"), "old").unwrap();
    widen(&at("target"));
    symlink(at("target"), at("link")).unwrap();
    write(at("link"), "new").unwrap();
    assert!(at("link").is_symlink());
    assert_eq!(fs::read_to_string(at("target")).unwrap(), "new");
    assert_eq!(mode(&at("target")), FILE_MODE);
    symlink(at("nothing yet"), at("dangling")).unwrap();
    write(at("dangling"), "new").unwrap();
    assert_eq!(mode(&at("nothing yet")), FILE_MODE);
}

#[test]
fn what_is_no_ordinary_file_is_written_as_it_is() {
    write("/dev/null", "x").unwrap();
    assert!(!fs::metadata("/dev/null").unwrap().is_file());
}

#[test]
fn what_others_can_read_is_noticed() {
    let parent = tempfile::tempdir().unwrap();
    let path = parent.path().join("file");
    write(&path, "x").unwrap();
    assert!(!is_open_to_others(&path));
    widen(&path);
    assert!(is_open_to_others(&path));
    assert!(!is_open_to_others(parent.path().join("absent")));
}
