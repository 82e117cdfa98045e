//! Links from documentation into the tree.

use std::fs;
use std::path::Path;

use crate::sources;

/// `[text](path#fragment)` with a path of ours.
struct Link<'a> {
    text: &'a str,
    path: &'a str,
    fragment: Option<&'a str>,
}

fn links(text: &str) -> Vec<Link<'_>> {
    let link = |(at, _): (usize, &str)| {
        let label = text[..at].rsplit('[').next()?;
        let target = text[at + 2..].split(')').next()?;
        let (path, fragment) = match target.split_once('#') {
            Some((path, fragment)) => (path, Some(fragment)),
            None => (target, None),
        };
        let ours = !path.is_empty() && !path.contains("://");
        ours.then_some(Link {
            text: label,
            path,
            fragment,
        })
    };
    text.match_indices("](").filter_map(link).collect()
}

/// What is wrong with a link of a file in `folder`.
fn wrong(folder: &Path, link: &Link<'_>) -> Option<String> {
    let target = folder.join(link.path);
    if !target.exists() {
        return Some(format!("{} does not exist", link.path));
    }
    let line = link.fragment?.strip_prefix('L')?;
    let name = link.text.trim_matches('`').rsplit([':', '.']).next()?;
    let number: usize = line.parse().ok()?;
    let text = fs::read_to_string(&target).ok()?;
    let defined = |line: &str| {
        let words: Vec<&str> = line
            .split(|c: char| !c.is_alphanumeric() && c != '_')
            .collect();
        words.contains(&name)
    };
    let lines: Vec<usize> = (1..)
        .zip(text.lines())
        .filter(|(_, line)| defined(line))
        .map(|(at, _)| at)
        .collect();
    let path = link.path;
    (!lines.contains(&number))
        .then(|| format!("{path} line {number} does not have `{name}`; these do: {lines:?}"))
}

#[test]
fn links_lead_where_they_say() {
    let root = sources::root();
    let mut found = Vec::new();
    let mut look = |path: &Path| {
        if path.extension().is_none_or(|extension| extension != "md") {
            return;
        }
        let text = fs::read_to_string(path).expect("a page can be read");
        let folder = path.parent().expect("a file is in a folder");
        let bad = links(&text)
            .into_iter()
            .filter_map(|link| wrong(folder, &link));
        found.extend(bad.map(|what| format!("{}: {what}", path.display())));
    };
    sources::walk(&root.join("docs"), &mut look);
    ["README.md", "CONTRIBUTING.md"]
        .iter()
        .for_each(|page| look(&root.join(page)));
    assert!(found.is_empty(), "broken links:\n  {}", found.join("\n  "));
}
