//! Clock keywords in SQL text: `CURRENT_TIMESTAMP` and its kin are grammar, not functions, and cannot be replaced in the catalog.

/// Replaces `CURRENT_TIMESTAMP`, `LOCALTIMESTAMP`, `CURRENT_DATE`, `CURRENT_TIME` and `LOCALTIME` by calls of functions that
/// [`super::prepare`] made, which answer as recorded. `None`: the text has none of them.
///
/// The functions bear the names of the keywords, so result columns keep theirs. Strings, quoted names and comments are left alone.
pub fn rewrite_clock_keywords(sql: &str) -> Option<String> {
    let words = words(sql);
    let mut rewritten = String::new();
    let mut copied = 0;
    for (index, word) in words.iter().enumerate() {
        let Some((name, type_name)) = keyword(word.text) else {
            continue;
        };
        let before = index.checked_sub(1).map(|index| words[index]);
        // `t.current_date`, `AS current_date`: names.
        if sql[..word.start].trim_end().ends_with('.')
            || before.is_some_and(|before| {
                before.text.eq_ignore_ascii_case("as")
                    && sql[before.end()..word.start].trim().is_empty()
            })
        {
            continue;
        }
        rewritten.push_str(&sql[copied..word.start]);
        copied = word.end();
        let call = format!("pg_catalog.\"{name}\"()");
        match precision(&sql[copied..]) {
            Some((digits, length)) if type_name != "date" => {
                rewritten.push_str(&format!("CAST({call} AS pg_catalog.{type_name}({digits}))"));
                copied += length;
            }
            _ => rewritten.push_str(&call),
        }
    }
    if copied == 0 {
        return None;
    }
    rewritten.push_str(&sql[copied..]);
    Some(rewritten)
}

/// The functions of a text whose results nobody recorded: clocks that go on and randomness.
pub(super) fn unpinned_calls(sql: &str) -> Vec<String> {
    const NAMES: [&str; 8] = [
        "clock_timestamp",
        "timeofday",
        "random",
        "gen_random_uuid",
        "uuid_generate_v1",
        "uuid_generate_v1mc",
        "uuid_generate_v4",
        "gen_random_bytes",
    ];
    let mut found = Vec::new();
    for word in words(sql) {
        let name = word.text.to_ascii_lowercase();
        if NAMES.contains(&name.as_str())
            && sql[word.end()..].trim_start().starts_with('(')
            && !found.contains(&name)
        {
            found.push(name);
        }
    }
    found
}

/// A function's name, and its type with the name that takes a precision.
fn keyword(word: &str) -> Option<(&'static str, &'static str)> {
    [
        ("current_timestamp", "timestamptz"),
        ("localtimestamp", "timestamp"),
        ("current_date", "date"),
        ("current_time", "timetz"),
        ("localtime", "time"),
    ]
    .into_iter()
    .find(|(name, _)| word.eq_ignore_ascii_case(name))
}

/// `(3)` at the start of the text: its digits, and its length with white space.
fn precision(text: &str) -> Option<(&str, usize)> {
    let open = text.len() - text.trim_start().len();
    let inner = text[open..].strip_prefix('(')?;
    let (digits, _) = inner.split_once(')')?;
    let trimmed = digits.trim();
    let is_number = !trimmed.is_empty() && trimmed.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then_some((trimmed, open + 1 + digits.len() + 1))
}

#[derive(Clone, Copy)]
struct Word<'a> {
    start: usize,
    text: &'a str,
}

impl Word<'_> {
    fn end(&self) -> usize {
        self.start + self.text.len()
    }
}

/// The unquoted words of a text, outside strings and comments.
fn words(sql: &str) -> Vec<Word<'_>> {
    let bytes = sql.as_bytes();
    let is_word =
        |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'$' || byte >= 0x80;
    let mut words = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let rest = &sql[at..];
        at += match bytes[at] {
            b'\'' => quoted(rest, '\'', false),
            b'"' => quoted(rest, '"', false),
            b'-' if rest.starts_with("--") => rest.find('\n').unwrap_or(rest.len()),
            b'/' if rest.starts_with("/*") => comment(rest),
            b'$' => dollar_quoted(rest).unwrap_or(1),
            byte if is_word(byte) => {
                let length = rest
                    .bytes()
                    .position(|byte| !is_word(byte))
                    .unwrap_or(rest.len());
                let text = &rest[..length];
                let after = &rest[length..];
                if text.eq_ignore_ascii_case("e") && after.starts_with('\'') {
                    length + quoted(after, '\'', true)
                } else {
                    words.push(Word { start: at, text });
                    length
                }
            }
            _ => 1,
        };
    }
    words
}

/// The length of a quoted thing at the start of the text. A doubled quote reads as the end of one and the start of another, which
/// comes to the same.
fn quoted(text: &str, quote: char, backslashes: bool) -> usize {
    let mut escaped = false;
    for (at, character) in text.char_indices().skip(1) {
        if escaped {
            escaped = false;
        } else if character == quote {
            return at + 1;
        } else if backslashes && character == '\\' {
            escaped = true;
        }
    }
    text.len()
}

/// The length of a comment, which may hold others.
fn comment(text: &str) -> usize {
    let bytes = text.as_bytes();
    let (mut depth, mut at) = (0, 0);
    while at + 1 < bytes.len() {
        match &bytes[at..at + 2] {
            b"/*" => (depth, at) = (depth + 1, at + 2),
            b"*/" => {
                (depth, at) = (depth - 1, at + 2);
                if depth == 0 {
                    return at;
                }
            }
            _ => at += 1,
        }
    }
    text.len()
}

/// The length of `$tag$ … $tag$`. `None`: a parameter or a lone dollar.
fn dollar_quoted(text: &str) -> Option<usize> {
    let tag_length = text[1..].find('$')?;
    let tag = &text[1..1 + tag_length];
    let is_tag = !tag.starts_with(|character: char| character.is_ascii_digit())
        && tag
            .chars()
            .all(|character| character.is_alphanumeric() || character == '_');
    if !is_tag {
        return None;
    }
    let delimiter = &text[..tag_length + 2];
    let body = &text[delimiter.len()..];
    Some(
        body.find(delimiter)
            .map_or(text.len(), |end| delimiter.len() + end + delimiter.len()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(sql: &str, expected: &str) {
        let rewritten = rewrite_clock_keywords(sql);
        assert_eq!(
            rewritten.as_deref().unwrap_or("unchanged"),
            expected,
            "{sql}"
        );
    }

    #[test]
    fn keywords_become_calls() {
        check(
            "SELECT CURRENT_TIMESTAMP",
            "SELECT pg_catalog.\"current_timestamp\"()",
        );
        check(
            "values (current_date, LocalTime)",
            "values (pg_catalog.\"current_date\"(), pg_catalog.\"localtime\"())",
        );
        check(
            "SELECT current_timestamp (3), LOCALTIMESTAMP( 0 )",
            "SELECT CAST(pg_catalog.\"current_timestamp\"() AS pg_catalog.timestamptz(3)), \
             CAST(pg_catalog.\"localtimestamp\"() AS pg_catalog.timestamp(0))",
        );
        check(
            "SELECT é, current_time",
            "SELECT é, pg_catalog.\"current_time\"()",
        );
    }

    #[test]
    fn what_only_looks_like_a_keyword_stays() {
        for sql in [
            "SELECT 'current_date', E'it\\'s current_date', 'it''s current_date'",
            "SELECT \"current_date\", t.current_date, t . current_date, 1 AS current_date",
            "SELECT 1 -- current_date",
            "SELECT /* /* current_date */ current_date */ 1",
            "SELECT $$current_date$$, $a$ $$ current_date $a$",
            "SELECT my_current_date, current_dates, current_user, now()",
            "SELECT '",
            "/* current_date",
            "",
        ] {
            check(sql, "unchanged");
        }
        check(
            "SELECT $1, current_date",
            "SELECT $1, pg_catalog.\"current_date\"()",
        );
        check(
            "SELECT 'a'current_date",
            "SELECT 'a'pg_catalog.\"current_date\"()",
        );
    }

    #[test]
    fn calls_that_nobody_records_are_found_outside_strings() {
        assert_eq!(
            unpinned_calls("gen_random_uuid(), RANDOM (), random()"),
            ["gen_random_uuid", "random"]
        );
        assert!(unpinned_calls("'random()' || random -- random()").is_empty());
    }
}
