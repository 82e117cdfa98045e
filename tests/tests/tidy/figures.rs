//! The figures of `docs/results/house.md`.

use std::ops::Range;

use crate::circles::circles;
use crate::lengths::{long_functions, wide_comments};
use crate::reasons::without_reason;
use crate::sources::{self, Source};

/// `cargo test -p hindcast-tests --test tidy figures -- --ignored --nocapture`
#[test]
#[ignore = "prints figures and checks nothing"]
fn figures() {
    let packages = sources::packages();
    let sources = sources::all_rust_files();
    let product = || {
        let product = sources.iter().filter(|source| !source.is_test());
        product.filter(|source| source.path.starts_with("crates/"))
    };
    let lines: usize = product()
        .map(|source| source.text.lines().count() - test_lines(source))
        .sum();
    println!("crates                              {}", packages.len() - 2);
    println!("lines without tests and generated   {lines}");
    let code: usize = product()
        .map(|source| code_lines(&source.text) - test_code_lines(source))
        .sum();
    println!("of these, code                      {code}");
    println!(
        "functions over 70 lines             {}",
        long_functions(&sources).len()
    );
    let wide: usize = sources.iter().map(wide_comments).sum();
    println!("comment lines over 100 columns      {wide}");
    let bare: usize = sources
        .iter()
        .map(|source| without_reason(&source.text))
        .sum();
    println!("unsafe without a reason             {bare}");
    let largest = product().max_by_key(|source| source.text.lines().count());
    if let Some(file) = largest {
        println!(
            "longest file                        {} ({})",
            file.path,
            file.text.lines().count()
        );
    }
    for (package, folder) in &packages {
        let circles = circles(folder);
        if !circles.is_empty() {
            let sizes: Vec<usize> = circles.iter().map(Vec::len).collect();
            println!("circles of {package:<24} {sizes:?}");
        }
    }
}

/// Lines that are neither blank nor a comment.
fn code_lines(text: &str) -> usize {
    let code = |line: &&str| !line.trim().is_empty() && !line.trim_start().starts_with("//");
    text.lines().filter(code).count()
}

/// Those of them that belong to tests in the file.
fn test_code_lines(source: &Source) -> usize {
    let lines: Vec<&str> = source.text.lines().collect();
    let ranges = source.test_ranges().into_iter();
    ranges
        .map(|range| code_lines(&lines[range].join("\n")))
        .sum()
}

fn test_lines(source: &Source) -> usize {
    source.test_ranges().iter().map(Range::len).sum()
}
