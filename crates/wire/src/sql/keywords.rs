//! Keywords in statement texts that ask for the time (`CURRENT_TIMESTAMP` and its kin) or for the
//! database's name.

use super::lexer::{Dialect, Lexer, Token, TokenKind};
use super::rewrite::Edits;

/// Keyword, and the type of its value by the name that takes a precision, if one does.
const KEYWORDS: [(&str, Option<&str>); 6] = [
    ("current_timestamp", Some("timestamptz")),
    ("localtimestamp", Some("timestamp")),
    ("current_date", None),
    ("current_time", Some("timetz")),
    ("localtime", Some("time")),
    ("current_catalog", None),
];

/// Replaces these keywords, which are grammar and cannot be redefined, by calls of functions of the
/// same names in `pg_catalog`, which a rewound database has. Result columns keep their names
/// by that.
pub fn keyword_edits(text: &[u8], dialect: Dialect) -> Edits {
    let mut edits = Edits::new();
    if !text.windows(5).any(|window| {
        window.eq_ignore_ascii_case(b"curre") || window.eq_ignore_ascii_case(b"local")
    }) {
        return edits;
    }
    let tokens: Vec<Token> = Lexer::new(text, dialect)
        .filter(|token| !matches!(token.kind, TokenKind::Space | TokenKind::Comment))
        .collect();
    for (index, token) in tokens.iter().enumerate() {
        let word = token.text(text);
        let same =
            |(keyword, _): &&(&str, Option<&str>)| word.eq_ignore_ascii_case(keyword.as_bytes());
        let Some((keyword, kind)) = KEYWORDS.iter().find(same) else {
            continue;
        };
        // `t.current_date`, `AS current_date`: names.
        let before = index.checked_sub(1).map(|before| tokens[before].text(text));
        let is_name = before.is_some_and(|word| word == b"." || word.eq_ignore_ascii_case(b"as"));
        if is_name || token.kind != TokenKind::Word {
            continue;
        }
        let call = format!("pg_catalog.\"{keyword}\"()");
        match kind.zip(precision(&tokens[index + 1..], text)) {
            Some((kind, (digits, end))) => {
                let cast = [
                    b"CAST(",
                    call.as_bytes(),
                    b" AS pg_catalog.",
                    kind.as_bytes(),
                ];
                let cast = [&cast.concat(), &b"("[..], digits, b"))"].concat();
                edits.replace(token.start, end - token.start, &cast);
            }
            None => edits.replace(token.start, token.end - token.start, call.as_bytes()),
        }
    }
    edits
}

/// `(3)`: its digits, and where it ends.
fn precision<'a>(tokens: &[Token], text: &'a [u8]) -> Option<(&'a [u8], usize)> {
    let [open, digits, close, ..] = tokens else {
        return None;
    };
    let kinds = (open.kind, digits.kind, close.kind);
    let is_precision = kinds == (TokenKind::Open, TokenKind::Number, TokenKind::Close);
    is_precision.then(|| (digits.text(text), close.end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        let mut out = Vec::new();
        keyword_edits(text.as_bytes(), Dialect::default()).apply(text.as_bytes(), &mut out);
        assert_eq!(String::from_utf8(out).unwrap(), expected);
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
        check(
            "INSERT INTO t VALUES (1, CURRENT_TIMESTAMP)",
            "INSERT INTO t VALUES (1, pg_catalog.\"current_timestamp\"())",
        );
        check(
            "SELECT CURRENT_TIMESTAMP AS x, CURRENT_DATE - 1",
            "SELECT pg_catalog.\"current_timestamp\"() AS x, pg_catalog.\"current_date\"() - 1",
        );
        check(
            "select current_catalog, t.current_catalog",
            "select pg_catalog.\"current_catalog\"(), t.current_catalog",
        );
        check(
            "SELECT $1, 'a'current_date",
            "SELECT $1, 'a'pg_catalog.\"current_date\"()",
        );
    }

    #[test]
    fn what_only_looks_like_a_keyword_stays() {
        for text in [
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
            check(text, text);
        }
    }
}
