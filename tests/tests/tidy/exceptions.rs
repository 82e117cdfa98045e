//! Exceptions by name, from a list that only shrinks.

use std::collections::BTreeMap;

/// What a check found, by name: how many lines, columns, files.
pub type Found = BTreeMap<String, usize>;

const LIST: &str = include_str!("exceptions.txt");

/// The exceptions of one check. A line of the list is `check│name│number`, and what follows `#`
/// is the reason.
fn listed(check: &str) -> Found {
    let entry = |line: &str| {
        let line = line.split('#').next().unwrap_or_default().trim();
        let mut parts = line.split_whitespace();
        let (of, name, number) = (parts.next()?, parts.next()?, parts.next()?);
        let number = number.parse().expect("an exception ends with a number");
        (of == check).then(|| (name.to_owned(), number))
    };
    LIST.lines().filter_map(entry).collect()
}

/// Passes if what was found is what is listed, to the number.
///
/// # Panics
/// Otherwise, naming each difference and the line that would have to stand in the list.
pub fn expect(check: &str, rule: &str, found: &Found) {
    let listed = listed(check);
    let mut wrong = Vec::new();
    for (name, number) in found {
        match listed.get(name) {
            Some(allowed) if allowed == number => {}
            Some(allowed) if number > allowed => {
                wrong.push(format!("{name}: {number}, was {allowed}: it may not grow"));
            }
            Some(_) => wrong.push(format!("{check} {name} {number}    (now less: say so)")),
            None => wrong.push(format!(
                "{name}: {number}, and it is not among the exceptions"
            )),
        }
    }
    for name in listed.keys().filter(|name| !found.contains_key(*name)) {
        wrong.push(format!("{check} {name}: no longer needed, take it out"));
    }
    assert!(
        wrong.is_empty(),
        "{rule}\ntests/tests/tidy/exceptions.txt does not agree with the tree:\n  {}",
        wrong.join("\n  ")
    );
}
