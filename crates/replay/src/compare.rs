//! Compares a response with the recorded one.

use hindcast_gateway::http::headers;
use hindcast_trace::{Digest, Request, Response};
use http::HeaderName;

use crate::clock::are_about_the_same;
use crate::verdict::{BodySeen, Divergence, DivergenceKind};

/// Differences that do not matter.
#[derive(Clone, Debug, Default)]
pub struct Ignore {
    pub headers: Vec<HeaderName>,
    /// JSON pointers (RFC 6901) into bodies. Only bodies that were kept can be looked into.
    pub pointers: Vec<String>,
    /// What matches is taken out of bodies before they are compared. Likewise.
    pub patterns: Vec<regex::bytes::Regex>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{given:?}: {problem}")]
pub struct IgnoreError {
    pub given: String,
    pub problem: String,
}

impl Ignore {
    /// `header:NAME`, `json:/pointer` or `body:REGEX`.
    pub fn add(&mut self, given: &str) -> Result<(), IgnoreError> {
        let failed = |problem: String| IgnoreError {
            given: given.to_owned(),
            problem,
        };
        match given.split_once(':') {
            Some(("header", name)) => self.headers.push(
                name.trim()
                    .parse()
                    .map_err(|_| failed(format!("{name:?} is not the name of a header")))?,
            ),
            Some(("json", pointer)) if pointer.starts_with('/') => {
                self.pointers.push(pointer.to_owned())
            }
            Some(("json", _)) => return Err(failed("a JSON pointer begins with a slash".into())),
            Some(("body", pattern)) => self.patterns.push(
                regex::bytes::Regex::new(pattern).map_err(|error| failed(error.to_string()))?,
            ),
            _ => {
                return Err(failed(
                    "say header:NAME, json:/pointer or body:REGEX".into(),
                ));
            }
        }
        Ok(())
    }

    pub fn touches_bodies(&self) -> bool {
        !self.pointers.is_empty() || !self.patterns.is_empty()
    }

    /// A body without what does not matter.
    pub fn masked(&self, body: &[u8]) -> Vec<u8> {
        let mut body = body.to_vec();
        if !self.pointers.is_empty()
            && let Ok(mut value) = serde_json::from_slice::<serde_json::Value>(&body)
        {
            for pointer in &self.pointers {
                if let Some(found) = value.pointer_mut(pointer) {
                    *found = serde_json::Value::Null;
                }
            }
            body = value.to_string().into_bytes();
        }
        for pattern in &self.patterns {
            body = pattern.replace_all(&body, &b""[..]).into_owned();
        }
        body
    }
}

/// A response as it came in the replay.
#[derive(Debug)]
pub struct Seen {
    pub status: u16,
    pub headers: Vec<(String, Vec<u8>)>,
    pub body: Vec<u8>,
}

/// Compares the responses of a run with the recorded ones.
pub trait Compare: Send + Sync {
    /// What came back for a request whose response counts; an error if nothing did. What is
    /// returned goes to the coordinator.
    fn response(&self, recorded: &Request, outcome: Result<Seen, String>) -> Option<Divergence>;

    /// A request is about to be sent, whether its response counts or not.
    fn sending(&self, recorded: &Request);
}

/// How many bytes around a first difference are shown.
const EXCERPT: usize = 60;

/// The first thing in which two responses differ: status, then headers, then body. An `ETag` is
/// made of the body, as a rule, so it tells something only where the bodies are the same.
pub fn difference(expected: &Response, actual: &Seen, ignore: &Ignore) -> Option<DivergenceKind> {
    let Response::Answered {
        status,
        headers: expected_headers,
        body_digest,
        body_bytes,
        body,
    } = expected
    else {
        return None;
    };
    if *status != actual.status {
        return Some(DivergenceKind::Status {
            expected: *status,
            actual: actual.status,
            actual_body: Some(excerpt(&actual.body, 0)),
        });
    }
    let headers = header_differences(expected_headers, &actual.headers, ignore);
    let (tags, others): (Vec<_>, Vec<_>) = headers.into_iter().partition(|one| one.name == "etag");
    let header = |different: HeaderDifference| DivergenceKind::Header {
        name: different.name,
        expected: different.expected,
        actual: different.actual,
    };
    if let Some(different) = others.into_iter().next() {
        return Some(header(different));
    }
    let digest = Digest::of(&actual.body);
    if digest == *body_digest && actual.body.len() as u64 == *body_bytes {
        return tags.into_iter().next().map(header);
    }
    if let Some(kept) = body
        && ignore.touches_bodies()
        && ignore.masked(kept) == ignore.masked(&actual.body)
    {
        return None;
    }
    let at = body
        .as_deref()
        .map(|kept| first_difference(kept, &actual.body));
    Some(DivergenceKind::Body {
        expected: BodySeen {
            bytes: *body_bytes,
            digest: *body_digest,
            excerpt: body.as_deref().map(|kept| excerpt(kept, at.unwrap_or(0))),
            at: at.map(|at| at as u64),
        },
        actual: BodySeen {
            bytes: actual.body.len() as u64,
            digest,
            excerpt: Some(excerpt(&actual.body, at.unwrap_or(0))),
            at: at.map(|at| at as u64),
        },
    })
}

/// A header that is significant and not the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderDifference {
    /// In lower case.
    pub name: String,
    pub expected: Option<String>,
    pub actual: Option<String>,
}

/// All significant headers in which two responses differ, in the order of their first appearance. A
/// moment that is a second or two from the other (`Expires`, `Last-Modified`) is none.
pub fn header_differences(
    expected: &[(String, Vec<u8>)],
    actual: &[(String, Vec<u8>)],
    ignore: &Ignore,
) -> Vec<HeaderDifference> {
    let counts = |name: &str| {
        name.parse::<HeaderName>()
            .is_ok_and(|name| headers::is_significant(&name) && !ignore.headers.contains(&name))
    };
    let values = |side: &[(String, Vec<u8>)], name: &str| -> Option<String> {
        let found: Vec<_> = side
            .iter()
            .filter(|(given, _)| given.eq_ignore_ascii_case(name))
            .map(|(_, value)| String::from_utf8_lossy(value))
            .collect();
        (!found.is_empty()).then(|| found.join(", "))
    };
    let mut differences: Vec<HeaderDifference> = Vec::new();
    for (name, _) in expected.iter().chain(actual) {
        let name = name.to_ascii_lowercase();
        if !counts(&name) || differences.iter().any(|known| known.name == name) {
            continue;
        }
        let (expected, actual) = (values(expected, &name), values(actual, &name));
        let times = expected.as_deref().zip(actual.as_deref());
        let about = times.is_some_and(|(one, other)| are_about_the_same(one, other));
        if expected != actual && !about {
            differences.push(HeaderDifference {
                name,
                expected,
                actual,
            });
        }
    }
    differences
}

/// How many bytes two bodies have in common at their beginning.
pub fn first_difference(one: &[u8], other: &[u8]) -> usize {
    one.iter().zip(other).take_while(|(a, b)| a == b).count()
}

/// What is around a place in a body, for people to read.
pub fn excerpt(body: &[u8], at: usize) -> String {
    let start = at.saturating_sub(EXCERPT / 2).min(body.len());
    let end = (start + EXCERPT * 2).min(body.len());
    let text = String::from_utf8_lossy(&body[start..end]);
    format!(
        "{}{text}{}",
        if start > 0 { "…" } else { "" },
        if end < body.len() { "…" } else { "" }
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_etag_is_of_the_body() {
        let with = |tag: &str, body: &str| {
            let mut response = answered(body, true);
            if let Response::Answered { headers, .. } = &mut response {
                headers.push(("etag".into(), tag.into()));
            }
            response
        };
        let seen = |tag: &str, body: &str| {
            let mut seen = seen(body);
            seen.headers.push(("etag".into(), tag.into()));
            seen
        };
        let ignore = Ignore::default();
        let other = difference(&with("a", "one"), &seen("b", "two"), &ignore);
        assert!(
            matches!(other, Some(DivergenceKind::Body { .. })),
            "{other:?}"
        );
        let other = difference(&with("a", "one"), &seen("b", "one"), &ignore);
        assert!(
            matches!(other, Some(DivergenceKind::Header { .. })),
            "{other:?}"
        );
        let mut ignore = Ignore::default();
        ignore.add("body:o.*").unwrap();
        let none = difference(&with("a", "one"), &seen("b", "other"), &ignore);
        assert_eq!(none, None);
    }

    fn answered(body: &str, kept: bool) -> Response {
        Response::Answered {
            status: 200,
            headers: vec![
                ("content-type".into(), b"application/json".to_vec()),
                ("date".into(), b"Mon".to_vec()),
            ],
            body_digest: Digest::of(body.as_bytes()),
            body_bytes: body.len() as u64,
            body: kept.then(|| body.as_bytes().to_vec()),
        }
    }

    fn seen(body: &str) -> Seen {
        Seen {
            status: 200,
            headers: vec![
                ("Content-Type".into(), b"application/json".to_vec()),
                ("date".into(), b"Tue".to_vec()),
            ],
            body: body.as_bytes().to_vec(),
        }
    }

    #[test]
    fn what_a_client_could_not_tell_apart_is_the_same() {
        assert_eq!(
            difference(
                &answered("{\"a\":1}", false),
                &seen("{\"a\":1}"),
                &Ignore::default()
            ),
            None
        );
    }

    #[test]
    fn the_first_difference_is_shown_where_the_body_was_kept() {
        let Some(DivergenceKind::Body { expected, actual }) = difference(
            &answered("{\"a\":1}", true),
            &seen("{\"a\":2}"),
            &Ignore::default(),
        ) else {
            panic!("the bodies differ")
        };
        assert_eq!(
            (expected.at, expected.excerpt.as_deref()),
            (Some(5), Some("{\"a\":1}"))
        );
        assert_eq!(actual.excerpt.as_deref(), Some("{\"a\":2}"));
        assert!(
            matches!(difference(&answered("x", false), &seen("y"), &Ignore::default()), Some(DivergenceKind::Body { expected, .. }) if expected.excerpt.is_none())
        );
    }

    #[test]
    fn a_moment_in_another_second_is_no_difference() {
        let differ = |actual: &str| {
            let of = |value: &str| [("Expires".to_owned(), value.as_bytes().to_vec())];
            let expected = of("Wed, 25 Nov 2026 08:56:59 GMT");
            !header_differences(&expected, &of(actual), &Ignore::default()).is_empty()
        };
        assert!(!differ("Wed, 25 Nov 2026 08:56:59 GMT"));
        assert!(!differ("Wed, 25 Nov 2026 08:57:00 GMT"));
        assert!(differ("Wed, 25 Nov 2026 08:57:02 GMT"));
        assert!(differ("Thu, 26 Nov 2026 08:56:59 GMT"));
        assert!(differ("-1"));
    }

    #[test]
    fn noise_that_is_ignored_is_no_difference() {
        let mut ignore = Ignore::default();
        ignore.add("json:/at").unwrap();
        ignore.add("body:token=[a-z]+").unwrap();
        assert_eq!(
            difference(
                &answered("{\"a\":1,\"at\":5}", true),
                &seen("{\"a\":1,\"at\":6}"),
                &ignore
            ),
            None
        );
        assert_eq!(
            difference(&answered("token=abc!", true), &seen("token=xyz!"), &ignore),
            None
        );
        assert!(
            difference(
                &answered("{\"a\":1,\"at\":5}", true),
                &seen("{\"a\":2,\"at\":5}"),
                &ignore
            )
            .is_some()
        );
        assert!(ignore.add("body:(").is_err());
        assert!(ignore.add("cookies").is_err());
    }
}
