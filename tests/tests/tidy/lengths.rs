//! How long functions and files are, and how wide comments.

use std::path::Path;

use crate::exceptions::{Found, expect};
use crate::sources::{self, Source};

pub const FUNCTION_LINES_MAX: usize = 70;
pub const FILE_LINES_MAX: usize = 800;
pub const COMMENT_COLUMNS_MAX: usize = 100;

pub fn long_functions(sources: &[Source]) -> Found {
    let product = sources.iter().filter(|source| !source.is_test());
    let long = product.flat_map(|source| {
        let functions = sources::functions(source).into_iter();
        let long = functions.filter(|function| function.lines > FUNCTION_LINES_MAX);
        long.map(|function| (format!("{}:{}", source.path, function.name), function.lines))
    });
    long.collect()
}

pub fn wide_comments(source: &Source) -> usize {
    let comments = source
        .text
        .lines()
        .filter(|line| line.trim_start().starts_with("//"));
    comments
        .filter(|line| line.chars().count() > COMMENT_COLUMNS_MAX)
        .count()
}

#[test]
fn functions_fit_on_a_screen() {
    let found = long_functions(&sources::all_rust_files());
    expect(
        "function",
        &format!("A function outside tests has at most {FUNCTION_LINES_MAX} lines."),
        &found,
    );
}

#[test]
fn files_hold_one_concept() {
    let root = sources::root();
    let mut found = Found::new();
    for folder in [
        "crates",
        "tests",
        "workloads",
        "bench",
        "scripts",
        "examples",
    ] {
        sources::walk(&root.join(folder), &mut |path: &Path| {
            let source = path
                .extension()
                .is_some_and(|e| e == "rs" || e == "py" || e == "c");
            let Ok(text) = std::fs::read_to_string(path) else {
                return;
            };
            let lines = text.lines().count();
            if source && lines > FILE_LINES_MAX && !sources::is_generated(&text) {
                let path = path.strip_prefix(&root).expect("below the root");
                found.insert(path.display().to_string(), lines);
            }
        });
    }
    let rule = format!("A file has at most {FILE_LINES_MAX} lines: which second concept moved in?");
    expect("file", &rule, &found);
}

#[test]
fn comments_are_narrow_enough_to_read() {
    let sources = sources::all_rust_files();
    let wide = sources
        .iter()
        .map(|source| (source.path.clone(), wide_comments(source)));
    let found = wide.filter(|(_, count)| *count > 0).collect();
    expect(
        "comments",
        &format!("A line of a comment has at most {COMMENT_COLUMNS_MAX} columns."),
        &found,
    );
}
