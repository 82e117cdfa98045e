//! In what two JSON values differ, by pointer (RFC 6901).
//!
//! Arrays are aligned first, so that one element that came or went is one change and not one for
//! each element behind it.

use serde_json::Value;

/// One place where two values differ. `None`: it is not there.
#[derive(Clone, Debug, PartialEq)]
pub struct Change<'a> {
    pub pointer: String,
    /// The same with `*` for places in arrays and for names that are numbers or UUIDs, so that
    /// changes of one kind read the same.
    pub masked: String,
    pub before: Option<&'a Value>,
    pub after: Option<&'a Value>,
}

/// Longer middles of arrays are compared place by place: aligning takes time and memory in the
/// product of their lengths.
const ALIGNED_ELEMENTS_MAX: usize = 1000;
/// Differences in more places are not told apart; the value at which this was reached counts as
/// changed as a whole.
const CHANGES_MAX: usize = 100_000;

/// All places where the values differ, in the order in which a reader meets them.
pub fn changes<'a>(before: &'a Value, after: &'a Value) -> Vec<Change<'a>> {
    let mut found = Vec::new();
    compare(
        before,
        after,
        &mut String::new(),
        &mut String::new(),
        &mut found,
    );
    found
}

fn compare<'a>(
    before: &'a Value,
    after: &'a Value,
    pointer: &mut String,
    masked: &mut String,
    found: &mut Vec<Change<'a>>,
) {
    if before == after {
        return;
    }
    match (before, after) {
        (Value::Object(b), Value::Object(a)) if found.len() < CHANGES_MAX => {
            for (name, value) in b {
                let token = escaped(name);
                within(
                    pointer,
                    masked,
                    &token,
                    mask(&token),
                    |pointer, masked| match a.get(name) {
                        Some(other) => compare(value, other, pointer, masked, found),
                        None => found.push(change(pointer, masked, Some(value), None)),
                    },
                );
            }
            for (name, value) in a.iter().filter(|(name, _)| !b.contains_key(*name)) {
                let token = escaped(name);
                within(pointer, masked, &token, mask(&token), |pointer, masked| {
                    found.push(change(pointer, masked, None, Some(value)));
                });
            }
        }
        (Value::Array(b), Value::Array(a)) if found.len() < CHANGES_MAX => {
            for step in align(b, a) {
                // A place is where the element is in the array that has it; in both, where it was.
                let place = match step {
                    Step::Both(b, _) | Step::Before(b) => b,
                    Step::After(a) => a,
                };
                within(
                    pointer,
                    masked,
                    &place.to_string(),
                    "*",
                    |pointer, masked| match step {
                        Step::Both(x, y) => compare(&b[x], &a[y], pointer, masked, found),
                        Step::Before(x) => found.push(change(pointer, masked, Some(&b[x]), None)),
                        Step::After(y) => found.push(change(pointer, masked, None, Some(&a[y]))),
                    },
                );
            }
        }
        _ => found.push(change(pointer, masked, Some(before), Some(after))),
    }
}

fn change<'a>(
    pointer: &str,
    masked: &str,
    before: Option<&'a Value>,
    after: Option<&'a Value>,
) -> Change<'a> {
    Change {
        pointer: pointer.to_owned(),
        masked: masked.to_owned(),
        before,
        after,
    }
}

fn within(
    pointer: &mut String,
    masked: &mut String,
    token: &str,
    masked_token: &str,
    work: impl FnOnce(&mut String, &mut String),
) {
    let lengths = (pointer.len(), masked.len());
    pointer.push('/');
    pointer.push_str(token);
    masked.push('/');
    masked.push_str(masked_token);
    work(pointer, masked);
    pointer.truncate(lengths.0);
    masked.truncate(lengths.1);
}

fn mask(name: &str) -> &str {
    let number = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit());
    if number || is_uuid(name) { "*" } else { name }
}

fn escaped(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// These two belong together, equal or not.
    Both(usize, usize),
    Before(usize),
    After(usize),
}

/// Which elements of two arrays belong together: the equal ones at both ends, and of those between
/// a longest common subsequence. What is left over between two equal ones is paired from the left.
fn align(before: &[Value], after: &[Value]) -> Vec<Step> {
    let start = before.iter().zip(after).take_while(|(b, a)| b == a).count();
    let end = (before[start..].iter().rev())
        .zip(after[start..].iter().rev())
        .take_while(|(b, a)| b == a)
        .count();
    let (b, a) = (
        &before[start..before.len() - end],
        &after[start..after.len() - end],
    );
    let equal = match b.len().max(a.len()) <= ALIGNED_ELEMENTS_MAX {
        true => common_subsequence(b, a),
        false => Vec::new(),
    };
    let mut steps = Vec::new();
    let (mut x, mut y) = (0, 0);
    for (next_x, next_y) in equal.into_iter().chain([(b.len(), a.len())]) {
        while x < next_x && y < next_y {
            steps.push(Step::Both(start + x, start + y));
            (x, y) = (x + 1, y + 1);
        }
        steps.extend((x..next_x).map(|x| Step::Before(start + x)));
        steps.extend((y..next_y).map(|y| Step::After(start + y)));
        (x, y) = (next_x + 1, next_y + 1);
    }
    steps
}

/// Pairs of places of equal elements, both ascending.
fn common_subsequence(b: &[Value], a: &[Value]) -> Vec<(usize, usize)> {
    // lengths[x][y]: how long the longest one of b[x..] and a[y..] is.
    let width = a.len() + 1;
    let mut lengths = vec![0u16; (b.len() + 1) * width];
    for x in (0..b.len()).rev() {
        for y in (0..a.len()).rev() {
            lengths[x * width + y] = if b[x] == a[y] {
                lengths[(x + 1) * width + y + 1] + 1
            } else {
                lengths[(x + 1) * width + y].max(lengths[x * width + y + 1])
            };
        }
    }
    let mut pairs = Vec::new();
    let (mut x, mut y) = (0, 0);
    while x < b.len() && y < a.len() {
        if b[x] == a[y] {
            pairs.push((x, y));
            (x, y) = (x + 1, y + 1);
        } else if lengths[(x + 1) * width + y] >= lengths[x * width + y + 1] {
            x += 1;
        } else {
            y += 1;
        }
    }
    pairs
}

pub(crate) fn is_uuid(text: &str) -> bool {
    text.len() == 36
        && text.bytes().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        })
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn check(before: Value, after: Value, expected: Expect) {
        let value = |value: Option<&Value>| value.map_or("-".to_owned(), Value::to_string);
        let lines: Vec<_> = changes(&before, &after)
            .iter()
            .map(|c| format!("{}: {} → {}", c.pointer, value(c.before), value(c.after)))
            .collect();
        expected.assert_eq(&lines.join("\n"));
    }

    #[test]
    fn what_came_went_and_changed() {
        check(
            json!({"a": 1, "b": {"c/d": [1, 2]}, "gone": null}),
            json!({"a": 2, "b": {"c/d": [1, 3]}, "new": {}}),
            expect![[r#"
                /a: 1 → 2
                /b/c~1d/1: 2 → 3
                /gone: null → -
                /new: - → {}"#]],
        );
        check(json!([1]), json!({"0": 1}), expect![[r#": [1] → {"0":1}"#]]);
    }

    #[test]
    fn one_element_more_is_one_change() {
        check(
            json!([{"id": 1}, {"id": 2}, {"id": 3}]),
            json!([{"id": 1}, {"id": 9}, {"id": 2}, {"id": 3}]),
            expect![[r#"/1: - → {"id":9}"#]],
        );
        check(
            json!([1, 2, 3, 4, 5, 6]),
            json!([0, 1, 2, 4, 7, 6, 8]),
            expect![[r#"
                /0: - → 0
                /2: 3 → -
                /4: 5 → 7
                /6: - → 8"#]],
        );
    }

    #[test]
    fn long_arrays_are_compared_in_bounded_time() {
        let before: Vec<u32> = (0..50_000).collect();
        let after: Vec<u32> = (1..50_000).chain([0]).collect();
        assert_eq!(changes(&json!(before), &json!(after)).len(), 50_000);
        let after: Vec<u32> = (0..50_000).filter(|n| *n != 777).collect();
        assert_eq!(changes(&json!(before), &json!(after)).len(), 1);
    }

    fn values() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            (0..4).prop_map(|n| json!(n)),
            "[ab/~]{0,2}".prop_map(|text| json!(text))
        ];
        leaf.prop_recursive(3, 24, 5, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
                prop::collection::btree_map("[ab/~]{1,2}", inner, 0..4)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn there_are_changes_exactly_where_values_differ(before in values(), after in values()) {
            let changes = changes(&before, &after);
            prop_assert_eq!(changes.is_empty(), before == after);
            for change in changes {
                prop_assert_ne!(change.before, change.after);
                // What was there is where the pointer says.
                if let Some(value) = change.before {
                    prop_assert_eq!(before.pointer(&change.pointer), Some(value));
                }
            }
        }
    }
}
