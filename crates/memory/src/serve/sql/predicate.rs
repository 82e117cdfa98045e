//! Conditions on rows, with three truth values.

use std::borrow::Cow;
use std::cmp::Ordering;

use crate::encoding::{Kind, encode};

use super::SqlError;

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Operand {
    Column(usize),
    /// In text form; `None` is NULL.
    Constant(Option<String>),
    /// From 0.
    Parameter(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl Comparison {
    pub fn named(name: &str) -> Option<Self> {
        Some(match name {
            "=" => Comparison::Equal,
            "<>" | "!=" => Comparison::NotEqual,
            "<" => Comparison::Less,
            "<=" => Comparison::LessOrEqual,
            ">" => Comparison::Greater,
            ">=" => Comparison::GreaterOrEqual,
            _ => return None,
        })
    }

    pub fn needs_order(self) -> bool {
        !matches!(self, Comparison::Equal | Comparison::NotEqual)
    }

    /// The same with its sides exchanged.
    pub fn turned(self) -> Self {
        match self {
            Comparison::Less => Comparison::Greater,
            Comparison::LessOrEqual => Comparison::GreaterOrEqual,
            Comparison::Greater => Comparison::Less,
            Comparison::GreaterOrEqual => Comparison::LessOrEqual,
            same => same,
        }
    }

    fn holds(self, ordering: Ordering) -> bool {
        match self {
            Comparison::Equal => ordering.is_eq(),
            Comparison::NotEqual => ordering.is_ne(),
            Comparison::Less => ordering.is_lt(),
            Comparison::LessOrEqual => ordering.is_le(),
            Comparison::Greater => ordering.is_gt(),
            Comparison::GreaterOrEqual => ordering.is_ge(),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Predicate {
    Compare {
        comparison: Comparison,
        left: Operand,
        right: Operand,
        /// As what each of the two is compared: kinds that are ordered together.
        kinds: (Kind, Kind),
    },
    /// `IS [NOT] DISTINCT FROM`.
    Distinct {
        left: Operand,
        right: Operand,
        kinds: (Kind, Kind),
        negated: bool,
    },
    IsNull {
        operand: Operand,
        negated: bool,
    },
    Like {
        operand: Operand,
        pattern: Operand,
        ignore_case: bool,
        negated: bool,
    },
    /// A boolean column or constant by itself.
    Truth(Operand),
    /// `IS [NOT] TRUE`, `IS [NOT] FALSE`.
    IsTruth {
        inner: Box<Predicate>,
        wanted: Option<bool>,
        negated: bool,
    },
    And(Vec<Predicate>),
    Or(Vec<Predicate>),
    Not(Box<Predicate>),
}

/// Where operands get their values.
pub(super) trait Row {
    fn column(&self, number: usize) -> Option<&[u8]>;
}

/// What is the same for all rows of an execution.
pub(super) struct Bound<'a> {
    pub parameters: &'a [Option<Vec<u8>>],
}

impl Bound<'_> {
    pub fn value<'r>(&'r self, operand: &'r Operand, row: &'r dyn Row) -> Option<&'r [u8]> {
        match operand {
            Operand::Column(number) => row.column(*number),
            Operand::Constant(text) => text.as_deref().map(str::as_bytes),
            Operand::Parameter(number) => self.parameters.get(*number)?.as_deref(),
        }
    }

    /// NULL is `None`.
    pub fn test(&self, predicate: &Predicate, row: &dyn Row) -> Result<Option<bool>, SqlError> {
        Ok(match predicate {
            Predicate::Compare {
                comparison,
                left,
                right,
                kinds,
            } => match (self.value(left, row), self.value(right, row)) {
                (Some(left), Some(right)) => Some(comparison.holds(compare(*kinds, left, right)?)),
                _ => None,
            },
            Predicate::Distinct {
                left,
                right,
                kinds,
                negated,
            } => {
                let same = match (self.value(left, row), self.value(right, row)) {
                    (Some(left), Some(right)) => compare(*kinds, left, right)?.is_eq(),
                    (None, None) => true,
                    _ => false,
                };
                Some(same == *negated)
            }
            Predicate::IsNull { operand, negated } => {
                Some(self.value(operand, row).is_none() != *negated)
            }
            Predicate::Like {
                operand,
                pattern,
                ignore_case,
                negated,
            } => match (self.value(operand, row), self.value(pattern, row)) {
                (Some(text), Some(pattern)) => Some(like(text, pattern, *ignore_case)? != *negated),
                _ => None,
            },
            Predicate::Truth(operand) => match self.value(operand, row) {
                None => None,
                Some(text) => Some(compare((Kind::Bool, Kind::Bool), text, b"t")?.is_eq()),
            },
            Predicate::IsTruth {
                inner,
                wanted,
                negated,
            } => Some((self.test(inner, row)? == *wanted) != *negated),
            Predicate::And(all) => {
                let mut known = Some(true);
                for one in all {
                    match self.test(one, row)? {
                        Some(false) => return Ok(Some(false)),
                        Some(true) => {}
                        None => known = None,
                    }
                }
                known
            }
            Predicate::Or(any) => {
                let mut known = Some(false);
                for one in any {
                    match self.test(one, row)? {
                        Some(true) => return Ok(Some(true)),
                        Some(false) => {}
                        None => known = None,
                    }
                }
                known
            }
            Predicate::Not(inner) => self.test(inner, row)?.map(|truth| !truth),
        })
    }
}

pub(super) fn encoded(kind: Kind, text: &[u8], out: &mut Vec<u8>) -> Result<(), SqlError> {
    encode(kind, text, out).map_err(|error| {
        let code = match kind {
            Kind::Date | Kind::Time | Kind::Timestamp | Kind::TimestampTz => "22007",
            _ => "22P02",
        };
        SqlError::new(code, error.to_string())
    })
}

fn compare(kinds: (Kind, Kind), left: &[u8], right: &[u8]) -> Result<Ordering, SqlError> {
    // Equal texts are equal values; so far as order goes, those of texts are their bytes'.
    if kinds == (Kind::Text, Kind::Text) {
        return Ok(left.cmp(right));
    }
    let (mut one, mut other) = (Vec::new(), Vec::new());
    encoded(kinds.0, left, &mut one)?;
    encoded(kinds.1, right, &mut other)?;
    Ok(one.cmp(&other))
}

/// `LIKE`: `%` stands for anything, `_` for one character, a backslash takes the next one as it is.
fn like(text: &[u8], pattern: &[u8], ignore_case: bool) -> Result<bool, SqlError> {
    if ignore_case && !pattern.is_ascii() {
        return Err(SqlError::unsupported(
            "ILIKE with letters whose case depends on a locale",
        ));
    }
    let fold = |bytes: &[u8]| -> String {
        let text = String::from_utf8_lossy(bytes);
        match ignore_case {
            true => text.to_ascii_lowercase(),
            false => Cow::into_owned(text),
        }
    };
    let text: Vec<char> = fold(text).chars().collect();
    let pattern: Vec<char> = fold(pattern).chars().collect();
    // The last `%` and where it was tried; everything before it fits for good.
    let (mut at, mut place) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while at < text.len() {
        let fits = match pattern.get(place) {
            Some('%') => {
                star = Some((place + 1, at));
                place += 1;
                continue;
            }
            Some('_') => Some(1),
            Some('\\') => match pattern.get(place + 1) {
                None => {
                    return Err(SqlError::new(
                        "22025",
                        "LIKE pattern must not end with escape character",
                    ));
                }
                Some(wanted) => (*wanted == text[at]).then_some(2),
            },
            Some(wanted) => (*wanted == text[at]).then_some(1),
            None => None,
        };
        match (fits, star) {
            (Some(width), _) => {
                at += 1;
                place += width;
            }
            (None, Some((after, tried))) => {
                at = tried + 1;
                star = Some((after, at));
                place = after;
            }
            (None, None) => return Ok(false),
        }
    }
    Ok(pattern[place..].iter().all(|&c| c == '%'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_stand_for_texts() {
        for (text, pattern, fits) in [
            ("", "", true),
            ("", "%", true),
            ("abc", "a%", true),
            ("abc", "%b%", true),
            ("abc", "a_c", true),
            ("abc", "a_", false),
            ("aXbXc", "a%b%c", true),
            ("100%", "100\\%", true),
            ("1000", "100\\%", false),
            ("äbc", "_bc", true),
            ("aab", "%ab", true),
            ("ABC", "abc", false),
        ] {
            assert_eq!(
                like(text.as_bytes(), pattern.as_bytes(), false),
                Ok(fits),
                "{text} {pattern}"
            );
        }
        assert_eq!(like(b"ABC", b"a%", true), Ok(true));
        assert!(like(b"abc", b"ab\\", false).is_err());
    }
}
