//! `FROM t AS OF '…'`, which Postgres' grammar does not have.

use hindcast_wire::sql::lexer::{Dialect, Lexer, Token, TokenKind};

use super::SqlError;

/// The text without its `AS OF [LSN | TIMESTAMP | SYSTEM TIME] '…'`, replaced by blanks so that
/// positions stay, and what was asked for.
pub(super) fn cut(text: &str) -> Result<(String, Option<String>), SqlError> {
    let bytes = text.as_bytes();
    let tokens: Vec<Token> = Lexer::new(bytes, Dialect::default())
        .filter(|token| !matches!(token.kind, TokenKind::Space | TokenKind::Comment))
        .collect();
    let word = |at: usize, wanted: &str| {
        tokens.get(at).is_some_and(|token| {
            token.kind == TokenKind::Word
                && token.text(bytes).eq_ignore_ascii_case(wanted.as_bytes())
        })
    };
    for at in 0..tokens.len() {
        if !(word(at, "as") && word(at + 1, "of")) {
            continue;
        }
        let mut value = at + 2;
        if word(value, "system") && word(value + 1, "time") {
            value += 2;
        } else if word(value, "lsn") || word(value, "timestamp") || word(value, "timestamptz") {
            value += 1;
        }
        let Some(token) = tokens
            .get(value)
            .filter(|token| token.kind == TokenKind::String)
        else {
            continue;
        };
        let quoted = &text[token.start..token.end];
        let Some(plain) = quoted
            .strip_prefix('\'')
            .and_then(|text| text.strip_suffix('\''))
        else {
            return Err(SqlError::new(
                "42601",
                "AS OF takes a plain string: an LSN or a time",
            ));
        };
        let value = plain.replace("''", "'");
        let (start, end) = (tokens[at].start, token.end);
        let blanked = format!(
            "{}{}{}",
            &text[..start],
            " ".repeat(end - start),
            &text[end..]
        );
        // Another table may have one too.
        let (rest, other) = cut(&blanked)?;
        if other.as_ref().is_some_and(|other| *other != value) {
            return Err(SqlError::new(
                "42601",
                "a statement reads one state: there are two different AS OF",
            ));
        }
        return Ok((rest, Some(value)));
    }
    Ok((text.to_owned(), None))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clause_is_cut_out_wherever_a_table_has_it() {
        let (text, value) = cut("SELECT * FROM t AS OF '0/16B3748' x WHERE k = 1").unwrap();
        assert_eq!(
            text,
            format!("SELECT * FROM t {} x WHERE k = 1", " ".repeat(17))
        );
        assert_eq!(value.as_deref(), Some("0/16B3748"));
        let (_, value) = cut("SELECT * FROM t as of system time '2026-11-21 10:00' JOIN u AS OF '2026-11-21 10:00' ON true").unwrap();
        assert_eq!(value.as_deref(), Some("2026-11-21 10:00"));
        assert!(cut("SELECT * FROM t AS OF '1' JOIN u AS OF '2' ON true").is_err());
    }

    #[test]
    fn what_only_looks_like_it_stays() {
        for text in [
            "SELECT 'x as of ''y''' FROM t",
            "SELECT 1 AS of",
            "SELECT a -- AS OF 'x'\nFROM t",
            "SELECT \"as\" of FROM t",
        ] {
            assert_eq!(cut(text).unwrap(), (text.to_owned(), None));
        }
    }
}
