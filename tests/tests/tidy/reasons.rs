//! Why each `unsafe` is sound: a comment `SAFETY:` in the lines above it, up to the next blank one,
//! or one for the whole file where all of it rests on the same fact.

use crate::exceptions::{Found, expect};
use crate::sources;

const LINES_ABOVE: usize = 6;
const OF_THE_FILE: &str = "// SAFETY, of each `unsafe` here that has no reason of its own: ";

pub fn without_reason(text: &str) -> usize {
    let lines: Vec<&str> = text.lines().collect();
    if lines.iter().any(|line| line.starts_with(OF_THE_FILE)) {
        return 0;
    }
    let is_unsafe = |line: &str| {
        let code = line.split("//").next().unwrap_or_default();
        ["{", "impl"]
            .iter()
            .any(|next| code.contains(&["unsafe", next].join(" ")))
    };
    let has_reason = |at: usize| {
        let above = lines[..=at].iter().rev().take(LINES_ABOVE + 1);
        above
            .take_while(|line| !line.trim().is_empty())
            .any(|line| line.contains("SAFETY"))
    };
    (0..lines.len())
        .filter(|at| is_unsafe(lines[*at]) && !has_reason(*at))
        .count()
}

#[test]
fn each_unsafe_has_a_reason() {
    let sources = sources::all_rust_files();
    let found = sources
        .iter()
        .map(|source| (source.path.clone(), without_reason(&source.text)));
    let found: Found = found.filter(|(_, count)| *count > 0).collect();
    expect(
        "unsafe",
        "Unsafe code states the fact it relies on.",
        &found,
    );
}
