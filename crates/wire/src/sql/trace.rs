//! Which request a statement belongs to, by its comment.
//!
//! [sqlcommenter](https://google.github.io/sqlcommenter/spec/) appends
//! `/*key='value',…,traceparent='00-…-…-01'*/`. Such a comment is different for every request, so
//! it has to go before the text reaches the server, where it would defeat every cache that is keyed
//! by text.

use std::ops::Range;

use hindcast_model::Traceparent;

use super::lexer::{Dialect, Lexer, TokenKind};

/// A comment that names a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceComment {
    pub trace: Traceparent,
    /// What to take out of the text: the whole comment if it holds nothing but keys and values,
    /// else its `traceparent`.
    pub range: Range<usize>,
    /// The comment separates two tokens that would run together without it: leave a space.
    pub separates: bool,
}

const KEY: &[u8] = Traceparent::KEY.as_bytes();

/// The first comment of a text that carries a `traceparent`.
///
/// Costs one search for the word in the common case that there is none.
pub fn trace_comment(text: &[u8], dialect: Dialect) -> Option<TraceComment> {
    memchr::memmem::find(text, KEY)?;
    let mut end_of_previous = None;
    for token in Lexer::new(text, dialect) {
        if token.kind != TokenKind::Comment {
            end_of_previous = (token.kind != TokenKind::Space).then_some(token.end);
            continue;
        }
        let Some((value, trace)) = find_value(token.text(text)) else {
            continue;
        };
        let closed = token.text(text).starts_with(b"--") || token.text(text).ends_with(b"*/");
        if !closed {
            return None;
        }
        if !is_pairs_only(token.text(text)) {
            let range = token.start + value.start..token.start + value.end;
            return Some(TraceComment {
                trace,
                range,
                separates: false,
            });
        }
        let before = &text[..token.start];
        let after = &text[token.end..];
        let (mut range, mut separates) = (token.start..token.end, false);
        if after
            .iter()
            .all(|byte| byte.is_ascii_whitespace() || *byte == b';')
        {
            range.start = before.trim_ascii_end().len();
        } else if before.trim_ascii_start().is_empty() {
            range.end = text.len() - after.trim_ascii_start().len();
        } else {
            separates = end_of_previous == Some(token.start) && !after.starts_with(b" ");
        }
        return Some(TraceComment {
            trace,
            range,
            separates,
        });
    }
    None
}

/// `traceparent='…'` within a comment, with a comma that belongs to it.
fn find_value(comment: &[u8]) -> Option<(Range<usize>, Traceparent)> {
    memchr::memmem::find_iter(comment, KEY).find_map(|start| {
        let rest = &comment[start + KEY.len()..];
        let open = rest
            .iter()
            .take_while(|byte| matches!(byte, b'=' | b':' | b' ' | b'\'' | b'"'))
            .count();
        let value = &rest[open..];
        let length = value
            .iter()
            .position(|byte| !byte.is_ascii_alphanumeric() && *byte != b'-')
            .unwrap_or(value.len());
        let trace = Traceparent::parse(&value[..length])?;
        let mut end = start + KEY.len() + open + length;
        if matches!(comment.get(end), Some(b'\'' | b'"')) {
            end += 1;
        }
        let mut start = start;
        if comment.get(end) == Some(&b',') {
            end += 1;
        } else if start > 0 && comment[start - 1] == b',' {
            start -= 1;
        }
        Some((start..end, trace))
    })
}

/// Whether a comment is `key='value'` pairs and nothing else.
fn is_pairs_only(comment: &[u8]) -> bool {
    let inner = match comment
        .strip_prefix(b"/*")
        .and_then(|comment| comment.strip_suffix(b"*/"))
    {
        Some(inner) => inner,
        None => match comment.strip_prefix(b"--") {
            Some(inner) => inner,
            None => return false,
        },
    };
    let mut rest = inner.trim_ascii();
    loop {
        let Some(equals) = memchr::memchr(b'=', rest) else {
            return false;
        };
        let key = rest[..equals].trim_ascii();
        let is_key = |byte: &u8| {
            byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.' | b'%' | b'~' | b'+')
        };
        if key.is_empty() || !key.iter().all(is_key) {
            return false;
        }
        let Some(value) = rest[equals + 1..].trim_ascii_start().strip_prefix(b"'") else {
            return false;
        };
        // A quote in a value is escaped with a backslash.
        let mut escaped = false;
        let Some(end) = value.iter().position(|&byte| {
            let closes = byte == b'\'' && !escaped;
            escaped = byte == b'\\' && !escaped;
            closes
        }) else {
            return false;
        };
        rest = value[end + 1..].trim_ascii_start();
        match rest.strip_prefix(b",") {
            Some(more) => rest = more.trim_ascii_start(),
            None => return rest.is_empty(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARENT: &str = "00-0123456789abcdef00000000000000ff-00f067aa0ba902b7-01";

    /// The text without what is taken out, and the low half of the trace-id.
    fn strip(text: &str) -> (String, Option<u64>) {
        let text = text.replace("$TP", PARENT);
        match trace_comment(text.as_bytes(), Dialect::default()) {
            None => (text, None),
            Some(found) => {
                let space = if found.separates { " " } else { "" };
                (
                    format!(
                        "{}{space}{}",
                        &text[..found.range.start],
                        &text[found.range.end..]
                    ),
                    Some(found.trace.request.0),
                )
            }
        }
    }

    #[track_caller]
    fn check(text: &str, expected: &str) {
        assert_eq!(strip(text), (expected.to_owned(), Some(255)));
    }

    #[test]
    fn a_comment_of_pairs_goes_altogether() {
        check("SELECT 1 /*traceparent='$TP'*/", "SELECT 1");
        check(
            "SELECT 1 /*action='a%20b',db_driver='x',traceparent='$TP'*/;",
            "SELECT 1;",
        );
        check(
            "/*traceparent='$TP',tracestate='a%3Db'*/ SELECT 1",
            "SELECT 1",
        );
        check("SELECT 1 -- traceparent='$TP'\n, 2", "SELECT 1 \n, 2");
        check("SELECT/*traceparent='$TP'*/1", "SELECT 1");
        check("SELECT /*traceparent='$TP'*/ 1", "SELECT  1");
    }

    #[test]
    fn of_another_comment_only_the_traceparent_goes() {
        check(
            "SELECT 1 /* from billing traceparent='$TP' */",
            "SELECT 1 /* from billing  */",
        );
        check(
            "SELECT 1 /* see traceparent: $TP, thanks */",
            "SELECT 1 /* see  thanks */",
        );
    }

    #[test]
    fn what_only_looks_like_a_comment_stays() {
        for text in [
            "SELECT '/*traceparent=''$TP''*/'",
            "SELECT $$ /*traceparent='$TP'*/ $$",
            "SELECT 1 /*traceparent='00-xyz'*/",
            "SELECT 1 /*traceparent='$TP'",
        ] {
            assert_eq!(strip(text).1, None, "{text}");
        }
    }

    #[test]
    fn only_well_formed_traceparents_count() {
        check(
            "SELECT 1 /*traceparent='01-0123456789abcdef00000000000000ff-00f067aa0ba902b7-01-more'*/",
            "SELECT 1",
        );
        for text in [
            "SELECT 1 /*traceparent='$TP-more'*/",
            "SELECT 1 /*traceparent='00-0123456789abcdef00000000000000ff-0000000000000000-01'*/",
            "SELECT 1 /*traceparent='00-0123456789ABCDEF00000000000000FF-00f067aa0ba902b7-01'*/",
        ] {
            assert_eq!(strip(text).1, None, "{text}");
        }
    }
}
