//! Which crate uses which.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use crate::sources;

type Arrows = BTreeMap<String, BTreeSet<String>>;

/// The rows of the table under "Who may use whom": names stand in backquotes.
fn allowed() -> Arrows {
    let path = sources::root().join("docs/architecture.md");
    let text = fs::read_to_string(path).expect("docs/architecture.md can be read");
    let (_, section) = text
        .split_once("### Who may use whom")
        .expect("it has the table");
    let section = section.split("\n#").next().unwrap_or_default();
    let rows = section.lines().filter(|line| line.starts_with("| `"));
    let row = |line: &str| {
        let mut names = line.split('`').skip(1).step_by(2).map(str::to_owned);
        let name = names.next().expect("a row begins with a name");
        (name, names.collect())
    };
    rows.map(row).collect()
}

/// What the `[dependencies]` of each package of ours name.
pub fn drawn() -> Arrows {
    let package = |(name, folder): (String, std::path::PathBuf)| {
        let text = fs::read_to_string(folder.join("Cargo.toml")).expect("Cargo.toml can be read");
        let text = text.split("\n[dependencies]").nth(1).unwrap_or_default();
        let section = text.split("\n[").next().unwrap_or_default();
        let ours = section
            .lines()
            .filter_map(|line| line.strip_prefix("hindcast-"));
        let uses = ours.map(|line| {
            line.split(['.', ' ', '='])
                .next()
                .unwrap_or(line)
                .to_owned()
        });
        (name, uses.collect())
    };
    sources::packages().into_iter().map(package).collect()
}

#[test]
fn crates_use_what_the_architecture_allows() {
    let (allowed, drawn) = (allowed(), drawn());
    let all: BTreeSet<&String> = allowed.keys().chain(drawn.keys()).collect();
    let none = BTreeSet::new();
    let mut wrong = Vec::new();
    for name in all {
        let (may, does) = (allowed.get(name), drawn.get(name));
        match (may, does) {
            (None, _) => wrong.push(format!("{name} is not in the table")),
            (_, None) => wrong.push(format!("{name} is in the table and there is no such crate")),
            _ => {}
        }
        let (may, does) = (may.unwrap_or(&none), does.unwrap_or(&none));
        wrong.extend(
            does.difference(may)
                .map(|other| format!("{name} may not use {other}")),
        );
        wrong.extend(
            may.difference(does)
                .map(|other| format!("{name} does not use {other}")),
        );
    }
    assert!(
        wrong.is_empty(),
        "docs/architecture.md, \"Who may use whom\", and the Cargo.toml files disagree:\n  {}",
        wrong.join("\n  ")
    );
}

#[test]
fn arrows_form_no_circle() {
    let mut left = drawn();
    while !left.is_empty() {
        let free: Vec<String> = left
            .iter()
            .filter(|(_, uses)| uses.iter().all(|name| !left.contains_key(name)))
            .map(|(name, _)| name.clone())
            .collect();
        assert!(
            !free.is_empty(),
            "these crates use each other: {:?}",
            left.keys()
        );
        free.iter().for_each(|name| drop(left.remove(name)));
    }
}
