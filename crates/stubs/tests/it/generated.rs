//! What is committed is what the headers give.

use std::collections::HashSet;
use std::path::Path;

use hindcast_interpose::interfaces_folder;
use hindcast_stubs::generated;

#[test]
fn committed_code_is_what_the_headers_give() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for (path, text) in generated(&interfaces_folder()).expect("the headers are good") {
        let committed = std::fs::read_to_string(crates.join(&path)).unwrap_or_default();
        assert!(
            committed == text,
            "crates/{} is not what the headers give: run `cargo run -p hindcast-stubs`",
            path.display()
        );
    }
}

#[test]
fn numbers_of_functions_fit_their_range_and_their_tables() {
    let files = generated(&interfaces_folder()).expect("the headers are good");
    let (_, functions) = files
        .iter()
        .find(|(path, _)| path.ends_with("functions.rs"))
        .expect("the table");
    let count = functions.matches("Function = Function(").count();
    assert!(count > 300, "{count}");
    // `cache` keeps a table this long per thread; numbers of users' functions begin far above.
    assert!(64 + count < 64 + 640, "{count} functions");
}

#[test]
fn no_symbol_is_known_twice() {
    let files = generated(&interfaces_folder()).expect("the headers are good");
    let (_, symbols) = files
        .iter()
        .find(|(path, _)| path.ends_with("symbols.txt"))
        .expect("the list");
    let mut seen = HashSet::new();
    for line in symbols.lines() {
        let name = line.split(' ').next().expect("a name");
        assert!(seen.insert(name), "{name} is listed twice");
    }
}
