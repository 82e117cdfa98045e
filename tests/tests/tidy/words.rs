//! Words that the glossary has replaced by others.

use std::fs;
use std::path::Path;

use crate::exceptions::{Found, expect};
use crate::sources;

/// The rows under "Not these": the word, in backquotes, and what is said instead.
fn replaced() -> Vec<String> {
    let path = sources::root().join("docs/glossary.md");
    let text = fs::read_to_string(path).expect("docs/glossary.md can be read");
    let (_, section) = text.split_once("## Not these").expect("it has the section");
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `"));
    rows.map(|row| row.split('`').next().unwrap_or(row).to_owned())
        .collect()
}

fn count(text: &str, word: &str) -> usize {
    let is_letter = |c: char| c.is_alphanumeric() || c == '_';
    let places = text.match_indices(word).filter(|(at, _)| {
        let before = text[..*at].chars().next_back();
        let after = text[at + word.len()..].chars().next();
        !before.is_some_and(is_letter) && !after.is_some_and(is_letter)
    });
    places.count()
}

#[test]
fn words_are_those_of_the_glossary() {
    let replaced = replaced();
    assert!(
        !replaced.is_empty(),
        "the glossary lists the words that are not used"
    );
    let root = sources::root();
    let mut found = Found::new();
    for folder in ["crates", "docs", "tests", "workloads", "README.md"] {
        let mut look = |path: &Path| {
            let name = path
                .strip_prefix(&root)
                .expect("below the root")
                .display()
                .to_string();
            let read = name.ends_with(".rs") || name.ends_with(".md");
            if !read || name == "docs/glossary.md" || name.starts_with("tests/tests/tidy") {
                return;
            }
            let text = fs::read_to_string(path).expect("a source file can be read");
            for word in &replaced {
                *found.entry(word.replace(' ', "_")).or_default() += count(&text, word);
            }
        };
        match root.join(folder) {
            file if file.is_file() => look(&file),
            folder => sources::walk(&folder, &mut look),
        }
    }
    found.retain(|_, count| *count > 0);
    expect(
        "word",
        "docs/glossary.md, \"Not these\", says what to write instead.",
        &found,
    );
}
