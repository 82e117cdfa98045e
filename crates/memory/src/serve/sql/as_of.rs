//! `FROM t AS OF …`, which Postgres' grammar does not have.

use hindcast_wire::sql::lexer::{Dialect, Lexer, Token, TokenKind};

use super::SqlError;

/// Which state is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AsOf {
    /// An LSN or a time, as a string.
    Text(String),
    /// Likewise, as the value of this parameter, from 0.
    Parameter(usize),
    /// `now() - interval '…'`, in microseconds.
    Ago { text: String, micros: i64 },
}

/// The text without its `AS OF …`, replaced by blanks so that positions stay, and what was asked
/// for.
pub(super) fn cut(text: &str) -> Result<(String, Option<AsOf>), SqlError> {
    let tokens: Vec<Token> = Lexer::new(text.as_bytes(), Dialect::default())
        .filter(|token| !matches!(token.kind, TokenKind::Space | TokenKind::Comment))
        .collect();
    for at in 0..tokens.len() {
        let rest = Rest {
            text,
            tokens: &tokens[at..],
        };
        if !(rest.word(0, "as") && rest.word(1, "of")) {
            continue;
        }
        let Some((value, length)) = rest.value()? else {
            continue;
        };
        let (start, end) = (tokens[at].start, tokens[at + length - 1].end);
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

/// What begins with `AS OF`.
struct Rest<'a> {
    text: &'a str,
    tokens: &'a [Token],
}

impl Rest<'_> {
    fn word(&self, at: usize, wanted: &str) -> bool {
        self.is(at, TokenKind::Word) && self.text_of(at, at).eq_ignore_ascii_case(wanted)
    }

    fn is(&self, at: usize, kind: TokenKind) -> bool {
        self.tokens.get(at).is_some_and(|token| token.kind == kind)
    }

    fn text_of(&self, first: usize, last: usize) -> &str {
        &self.text[self.tokens[first].start..self.tokens[last].end]
    }

    /// What stands behind it, and how many tokens there are up to its end; `None` if it is none:
    /// `of` may be a name.
    fn value(&self) -> Result<Option<(AsOf, usize)>, SqlError> {
        let mut at = 2;
        if self.word(at, "system") && self.word(at + 1, "time") {
            at += 2;
        } else if self.word(at, "lsn") || self.word(at, "timestamp") || self.word(at, "timestamptz")
        {
            at += 1;
        }
        let in_brackets = self.is(at, TokenKind::Open);
        at += usize::from(in_brackets);
        let Some((value, end)) = self.plain(at)? else {
            return Ok(None);
        };
        match (in_brackets, self.is(end, TokenKind::Close)) {
            (true, true) => Ok(Some((value, end + 1))),
            (true, false) => Ok(None),
            (false, _) => Ok(Some((value, end))),
        }
    }

    /// Without brackets.
    fn plain(&self, at: usize) -> Result<Option<(AsOf, usize)>, SqlError> {
        if self.is(at, TokenKind::String) {
            return Ok(Some((AsOf::Text(self.string(at)?), at + 1)));
        }
        if self.is(at, TokenKind::Parameter) {
            let number = self.text_of(at, at)[1..].parse::<usize>().ok();
            let number = number.and_then(|number| number.checked_sub(1));
            let number = number.filter(|number| *number < usize::from(u16::MAX));
            let number =
                number.ok_or_else(|| SqlError::new("42P02", "there is no such parameter"))?;
            return Ok(Some((AsOf::Parameter(number), at + 1)));
        }
        let brackets = self.is(at + 1, TokenKind::Open) && self.is(at + 2, TokenKind::Close);
        let after = if self.word(at, "now") && brackets {
            at + 3
        } else if self.word(at, "current_timestamp") {
            at + 1
        } else {
            return Ok(None);
        };
        let is_minus = self.is(after, TokenKind::Symbol) && self.text_of(after, after) == "-";
        if !(is_minus && self.word(after + 1, "interval") && self.is(after + 2, TokenKind::String))
        {
            return Err(SqlError::new(
                "42601",
                "AS OF takes an LSN or a time as a string or a parameter, or now() - interval '…'",
            ));
        }
        let interval = self.string(after + 2)?;
        let micros = micros(&interval).ok_or_else(|| {
            SqlError::new("22007", format!("\"{interval}\" is no interval here"))
                .hint("write 5 minutes, 1.5 s, or 00:05:00")
        })?;
        let text = self.text_of(at, after + 2).to_owned();
        Ok(Some((AsOf::Ago { text, micros }, after + 3)))
    }

    fn string(&self, at: usize) -> Result<String, SqlError> {
        let quoted = self.text_of(at, at);
        let plain = quoted
            .strip_prefix('\'')
            .and_then(|text| text.strip_suffix('\''));
        let plain =
            plain.ok_or_else(|| SqlError::new("42601", "AS OF takes a plain string: '…'"))?;
        Ok(plain.replace("''", "'"))
    }
}

/// Of an interval of weeks at most: `1 hour 30 minutes`, `1.5 s`, `00:05:00`.
fn micros(text: &str) -> Option<i64> {
    let mut seconds = 0.0;
    let mut words = text.split_whitespace().peekable();
    words.peek()?;
    while let Some(word) = words.next() {
        if word.contains(':') {
            let parts: Vec<f64> = word
                .split(':')
                .map(|part| part.parse().ok())
                .collect::<Option<_>>()?;
            let [hours, minutes, rest @ ..] = parts.as_slice() else {
                return None;
            };
            seconds += hours * 3600.0 + minutes * 60.0 + rest.first().unwrap_or(&0.0);
            continue;
        }
        let split = word.find(|c: char| c.is_ascii_alphabetic());
        let (number, unit) = word.split_at(split.unwrap_or(word.len()));
        let unit = if unit.is_empty() { words.next()? } else { unit };
        let scale = match unit.to_ascii_lowercase().as_str() {
            "ms" | "msec" | "millisecond" | "milliseconds" => 0.001,
            "s" | "sec" | "secs" | "second" | "seconds" => 1.0,
            "m" | "min" | "mins" | "minute" | "minutes" => 60.0,
            "h" | "hour" | "hours" => 3600.0,
            "d" | "day" | "days" => 86_400.0,
            "w" | "week" | "weeks" => 604_800.0,
            _ => return None,
        };
        seconds += number.parse::<f64>().ok()? * scale;
    }
    // Longer than anything is kept.
    (seconds.abs() < 1e10).then(|| (seconds * 1e6).round() as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn value(text: &str) -> AsOf {
        cut(text).unwrap().1.expect("it is there")
    }

    fn text(text: &str) -> AsOf {
        AsOf::Text(text.to_owned())
    }

    #[test]
    fn the_clause_is_cut_out_wherever_a_table_has_it() {
        let (rest, found) = cut("SELECT * FROM t AS OF '0/16B3748' x WHERE k = 1").unwrap();
        assert_eq!(
            rest,
            format!("SELECT * FROM t {} x WHERE k = 1", " ".repeat(17))
        );
        assert_eq!(found, Some(text("0/16B3748")));
        let two = "SELECT * FROM t as of system time '2026-11-21 10:00' JOIN u AS OF '2026-11-21 10:00' ON true";
        assert_eq!(value(two), text("2026-11-21 10:00"));
        assert!(cut("SELECT * FROM t AS OF '1' JOIN u AS OF '2' ON true").is_err());
    }

    #[test]
    fn a_parameter_or_a_time_ago_is_as_good_as_a_string() {
        let parameter = value("SELECT * FROM t AS OF $2 WHERE k = $1");
        assert_eq!(parameter, AsOf::Parameter(1));
        let (rest, found) = cut("SELECT * FROM t AS OF (now() - interval '5 minutes') x").unwrap();
        assert_eq!(rest, format!("SELECT * FROM t {} x", " ".repeat(36)));
        let Some(AsOf::Ago { text, micros }) = found else {
            panic!("{found:?}");
        };
        assert_eq!(
            (text.as_str(), micros),
            ("now() - interval '5 minutes'", 300_000_000)
        );
        assert!(matches!(
            value("SELECT 1 FROM t AS OF TIMESTAMP CURRENT_TIMESTAMP - INTERVAL '1s'"),
            AsOf::Ago {
                micros: 1_000_000,
                ..
            }
        ));
        for wrong in [
            "now()",
            "now() - interval 'soon'",
            "now() + interval '1 s'",
            "$0",
        ] {
            assert!(
                cut(&format!("SELECT * FROM t AS OF {wrong}")).is_err(),
                "{wrong}"
            );
        }
    }

    #[test]
    fn intervals_are_read_as_people_write_them() {
        for (text, expected) in [
            ("1 hour 30 minutes", Some(5400.0)),
            ("1.5 s", Some(1.5)),
            ("2h", Some(7200.0)),
            ("1 day 00:05:00.25", Some(86_700.25)),
            ("01:00", Some(3600.0)),
            ("", None),
            ("5", None),
            ("5 months", None),
            ("1:x", None),
            ("1e300 s", None),
        ] {
            let expected = expected.map(|seconds: f64| (seconds * 1e6) as i64);
            assert_eq!(micros(text), expected, "{text:?}");
        }
    }

    #[test]
    fn what_only_looks_like_it_stays() {
        for text in [
            "SELECT 'x as of ''y''' FROM t",
            "SELECT 1 AS of",
            "SELECT a -- AS OF 'x'\nFROM t",
            "SELECT \"as\" of FROM t",
            "SELECT a AS of, now() FROM t",
        ] {
            assert_eq!(cut(text).unwrap(), (text.to_owned(), None));
        }
    }
}
