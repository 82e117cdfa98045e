//! Files and folders are created by `crates/private`, which gives them modes that keep other users
//! out. What is created elsewhere holds nothing that was recorded.

use crate::sources;

/// What creates files and folders, or may.
const CREATING: [&str; 10] = [
    "File::create",
    "File::options",
    "OpenOptions::new",
    "DirBuilder::new",
    "fs::write(",
    "fs::copy(",
    "create_dir",
    "tempdir",
    "tempfile::Builder",
    "NamedTempFile",
];

/// Crates that write nothing of a recording, and why.
const OTHERS: [(&str, &str); 9] = [
    ("crates/private/", "it is what all others use"),
    ("crates/cli/src/ps.rs", "writes to its own memory"),
    ("crates/interpose/", "stubs made from a header, for editors"),
    (
        "crates/embed/",
        "puts a library of this tree where it is built",
    ),
    (
        "crates/preload/",
        "a library, which a service reads that may be another user's",
    ),
    (
        "crates/gateway/src/inside/gates.rs",
        "a folder for a socket, which such a service enters",
    ),
    ("crates/stubs/", "writes source files of this tree"),
    ("tests/", "tests"),
    ("workloads/", "services that are recorded"),
];

fn is_of_the_product(path: &str) -> bool {
    let apart = ["/examples/", "/tests/", "/build.rs"];
    !OTHERS.iter().any(|(folder, _)| path.starts_with(folder))
        && !apart.iter().any(|part| path.contains(part))
}

#[test]
fn files_and_folders_are_created_for_their_owner_only() {
    let mut wrong = Vec::new();
    for source in sources::all_rust_files() {
        if !is_of_the_product(&source.path) || source.is_test() {
            continue;
        }
        let tests = source.test_ranges();
        for (number, line) in source.text.lines().enumerate() {
            let code = line.split("//").next().unwrap_or_default();
            let creates = CREATING.iter().any(|name| code.contains(name))
                && !code.contains("hindcast_private::");
            if creates && !tests.iter().any(|range| range.contains(&number)) {
                wrong.push(format!("{}:{}: {}", source.path, number + 1, line.trim()));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "create files and folders with hindcast_private, which keeps other users out:\n  {}",
        wrong.join("\n  ")
    );
}
