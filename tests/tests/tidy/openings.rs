//! What a crate says about itself before anything else.

use std::fs;

use crate::sources;

/// What an opening must speak of, and how one recognises it.
const PARTS: [(&str, &[&str]); 3] = [
    ("what it does not do", &["not", "never"]),
    (
        "where to start reading",
        &["tart reading", "tart there", "tart with"],
    ),
    ("the invariant to keep", &["nvariant"]),
];

#[test]
fn each_crate_opens_with_what_it_is() {
    let mut wrong = Vec::new();
    for (name, folder) in sources::packages() {
        let file = ["src/lib.rs", "src/main.rs"].map(|file| folder.join(file));
        let file = file
            .iter()
            .find(|file| file.exists())
            .expect("a crate has a root");
        let text = fs::read_to_string(file).expect("it can be read");
        let opening: String = text
            .lines()
            .take_while(|line| line.starts_with("//!"))
            .collect();
        for (part, signs) in PARTS {
            if !signs.iter().any(|sign| opening.contains(sign)) {
                wrong.push(format!("{name} does not say {part}"));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "crate openings (//!):\n  {}",
        wrong.join("\n  ")
    );
}
