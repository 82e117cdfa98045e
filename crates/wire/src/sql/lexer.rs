//! Postgres' lexical rules, as far as they decide where things end.
//!
//! What looks like a keyword, a semicolon or a comment counts only outside of strings, quoted
//! names, dollar-quoted bodies and nested comments. Nothing is interpreted and nothing is copied.

/// The settings of a session that change how its texts are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Dialect {
    /// `standard_conforming_strings`: whether a backslash in a plain string is just a character.
    pub standard_strings: bool,
    pub encoding: Encoding,
}

impl Default for Dialect {
    fn default() -> Self {
        Self {
            standard_strings: true,
            encoding: Encoding::Utf8,
        }
    }
}

/// What matters of `client_encoding`: which bytes make one character.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Encoding {
    Utf8,
    SingleByte,
    /// Several bytes per character, none of them ASCII.
    Euc,
    /// The second byte of a character may look like ASCII, a quote or a backslash even (SJIS, BIG5,
    /// GBK, UHC, GB18030, JOHAB).
    Trailing,
}

impl Encoding {
    /// By the name that the server reports as `client_encoding`.
    pub fn named(name: &[u8]) -> Self {
        let name = name.to_ascii_uppercase();
        match &name[..] {
            b"UTF8" | b"UNICODE" => Self::Utf8,
            b"SJIS" | b"SHIFT_JIS_2004" | b"BIG5" | b"GBK" | b"UHC" | b"GB18030" | b"JOHAB" => {
                Self::Trailing
            }
            name if name.starts_with(b"EUC_") || name == b"MULE_INTERNAL" => Self::Euc,
            _ => Self::SingleByte,
        }
    }

    /// How many characters `bytes` are, as the server counts them for error positions.
    pub fn characters(self, bytes: &[u8]) -> usize {
        match self {
            Self::SingleByte => bytes.len(),
            Self::Utf8 => bytes.iter().filter(|&&byte| byte & 0xc0 != 0x80).count(),
            Self::Euc | Self::Trailing => {
                let (mut count, mut at) = (0, 0);
                while at < bytes.len() {
                    at += self.width(bytes[at]);
                    count += 1;
                }
                count
            }
        }
    }

    /// Bytes of the character that begins with `first`.
    fn width(self, first: u8) -> usize {
        match (self, first) {
            (_, ..0x80) | (Self::Utf8 | Self::SingleByte, _) => 1,
            (Self::Euc, 0x8f) => 3,
            _ => 2,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenKind {
    Space,
    Comment,
    /// A keyword or a name without quotes.
    Word,
    /// `"name"`, with its quotes.
    QuotedName,
    /// A string constant of any spelling, with quotes and prefix.
    String,
    Number,
    /// `$1`
    Parameter,
    Semicolon,
    Open,
    Close,
    Comma,
    /// Operators and whatever else there is.
    Symbol,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token {
    pub kind: TokenKind,
    pub start: usize,
    pub end: usize,
}

impl Token {
    pub fn text<'a>(&self, source: &'a [u8]) -> &'a [u8] {
        &source[self.start..self.end]
    }
}

/// The tokens of a text, spaces and comments included: together they are the text.
pub struct Lexer<'a> {
    text: &'a [u8],
    at: usize,
    dialect: Dialect,
    /// A string, quoted name or comment that never ended has been met.
    unterminated: bool,
}

impl<'a> Lexer<'a> {
    pub fn new(text: &'a [u8], dialect: Dialect) -> Self {
        Self {
            text,
            at: 0,
            dialect,
            unterminated: false,
        }
    }

    /// Whether the text ended within a string, a quoted name or a comment. The server refuses such
    /// texts.
    pub fn is_unterminated(&self) -> bool {
        self.unterminated
    }

    fn peek(&self, ahead: usize) -> u8 {
        self.text.get(self.at + ahead).copied().unwrap_or(0)
    }

    fn skip_while(&mut self, holds: impl Fn(u8) -> bool) {
        while self.at < self.text.len() && holds(self.text[self.at]) {
            self.at += 1;
        }
    }

    fn run_off(&mut self) {
        self.at = self.text.len();
        self.unterminated = true;
    }

    /// To behind the closing quote; `at` is behind the opening one.
    fn quoted(&mut self, quote: u8, backslashes: bool) {
        if self.dialect.encoding != Encoding::Trailing && !backslashes {
            while let Some(found) = memchr::memchr(quote, &self.text[self.at..]) {
                self.at += found + 1;
                if self.peek(0) != quote {
                    return;
                }
                self.at += 1;
            }
            return self.run_off();
        }
        while self.at < self.text.len() {
            let byte = self.text[self.at];
            match byte {
                b'\\' if backslashes => self.at += 2,
                _ if byte == quote && self.peek(1) == quote => self.at += 2,
                _ if byte == quote => {
                    self.at += 1;
                    return;
                }
                _ => self.at += self.dialect.encoding.width(byte),
            }
        }
        self.run_off();
    }

    fn block_comment(&mut self) {
        let mut depth = 1;
        self.at += 2;
        while let Some(found) = memchr::memchr2(b'*', b'/', &self.text[self.at..]) {
            self.at += found;
            match (self.peek(0), self.peek(1)) {
                (b'*', b'/') => {
                    self.at += 2;
                    depth -= 1;
                    if depth == 0 {
                        return;
                    }
                }
                (b'/', b'*') => {
                    self.at += 2;
                    depth += 1;
                }
                _ => self.at += 1,
            }
        }
        self.run_off();
    }

    /// At a `$`.
    fn dollar(&mut self) -> TokenKind {
        if self.peek(1).is_ascii_digit() {
            self.at += 1;
            self.skip_while(|byte| byte.is_ascii_digit());
            return TokenKind::Parameter;
        }
        let tag_end = self.text[self.at + 1..]
            .iter()
            .position(|&byte| !(is_name(byte) && byte != b'$'))
            .map(|length| self.at + 1 + length)
            .filter(|&end| self.text[end] == b'$');
        let Some(tag_end) = tag_end else {
            self.at += 1;
            return TokenKind::Symbol;
        };
        let tag = &self.text[self.at..=tag_end];
        match memchr::memmem::find(&self.text[tag_end + 1..], tag) {
            Some(found) => self.at = tag_end + 1 + found + tag.len(),
            None => self.run_off(),
        }
        TokenKind::String
    }

    fn number(&mut self) {
        self.skip_while(|byte| byte.is_ascii_digit() || byte == b'_');
        if self.peek(0) == b'.' && self.peek(1) != b'.' {
            self.at += 1;
            self.skip_while(|byte| byte.is_ascii_digit() || byte == b'_');
        }
        if self.peek(0) | 0x20 == b'e' {
            let sign = usize::from(matches!(self.peek(1), b'+' | b'-'));
            if self.peek(1 + sign).is_ascii_digit() {
                self.at += 1 + sign;
                self.skip_while(|byte| byte.is_ascii_digit());
            }
        } else if matches!(self.peek(0) | 0x20, b'x' | b'o' | b'b') {
            self.at += 1;
            self.skip_while(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        }
    }

    fn word(&mut self) -> TokenKind {
        let start = self.at;
        while self.at < self.text.len() && is_name(self.text[self.at]) {
            self.at += self.dialect.encoding.width(self.text[self.at]);
        }
        self.at = self.at.min(self.text.len());
        let prefix = &self.text[start..self.at];
        match (prefix, self.peek(0), self.peek(1)) {
            (b"e" | b"E", b'\'', _) => self.after_prefix(1, b'\'', true),
            (b"b" | b"B" | b"x" | b"X", b'\'', _) => self.after_prefix(1, b'\'', false),
            (b"n" | b"N", b'\'', _) => self.after_prefix(1, b'\'', !self.dialect.standard_strings),
            (b"u" | b"U", b'&', b'\'') => self.after_prefix(2, b'\'', false),
            (b"u" | b"U", b'&', b'"') => {
                self.after_prefix(2, b'"', false);
                TokenKind::QuotedName
            }
            _ => TokenKind::Word,
        }
    }

    fn after_prefix(&mut self, skip: usize, quote: u8, backslashes: bool) -> TokenKind {
        self.at += skip;
        self.quoted(quote, backslashes);
        TokenKind::String
    }
}

impl Iterator for Lexer<'_> {
    type Item = Token;

    fn next(&mut self) -> Option<Token> {
        let start = self.at;
        let kind = match *self.text.get(start)? {
            b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c => {
                self.skip_while(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c));
                TokenKind::Space
            }
            b'-' if self.peek(1) == b'-' => {
                self.skip_while(|byte| byte != b'\n' && byte != b'\r');
                TokenKind::Comment
            }
            b'/' if self.peek(1) == b'*' => {
                self.block_comment();
                TokenKind::Comment
            }
            b'\'' => {
                self.at += 1;
                self.quoted(b'\'', !self.dialect.standard_strings);
                TokenKind::String
            }
            b'"' => {
                self.at += 1;
                self.quoted(b'"', false);
                TokenKind::QuotedName
            }
            b'$' => self.dollar(),
            b'0'..=b'9' => {
                self.number();
                TokenKind::Number
            }
            b'.' if self.peek(1).is_ascii_digit() => {
                self.number();
                TokenKind::Number
            }
            b';' => self.single(TokenKind::Semicolon),
            b'(' => self.single(TokenKind::Open),
            b')' => self.single(TokenKind::Close),
            b',' => self.single(TokenKind::Comma),
            byte if is_name(byte) => self.word(),
            byte if is_operator(byte) => {
                while self.at < self.text.len() && is_operator(self.peek(0)) {
                    if self.at > start
                        && matches!((self.peek(0), self.peek(1)), (b'-', b'-') | (b'/', b'*'))
                    {
                        break;
                    }
                    self.at += 1;
                }
                TokenKind::Symbol
            }
            _ => self.single(TokenKind::Symbol),
        };
        self.at = self.at.min(self.text.len());
        Some(Token {
            kind,
            start,
            end: self.at,
        })
    }
}

impl Lexer<'_> {
    fn single(&mut self, kind: TokenKind) -> TokenKind {
        self.at += 1;
        kind
    }
}

fn is_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$' | 0x80..)
}

fn is_operator(byte: u8) -> bool {
    matches!(
        byte,
        b'+' | b'-'
            | b'*'
            | b'/'
            | b'<'
            | b'>'
            | b'='
            | b'~'
            | b'!'
            | b'@'
            | b'#'
            | b'%'
            | b'^'
            | b'&'
            | b'|'
            | b'`'
            | b'?'
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn tokens(text: &str, dialect: Dialect) -> String {
        let mut lexer = Lexer::new(text.as_bytes(), dialect);
        let mut shown: Vec<String> = Vec::new();
        for token in lexer.by_ref() {
            if token.kind != TokenKind::Space {
                shown.push(format!(
                    "{:?}:{}",
                    token.kind,
                    &text[token.start..token.end]
                ));
            }
        }
        if lexer.is_unterminated() {
            shown.push("unterminated".to_owned());
        }
        shown.join(" ")
    }

    fn check(text: &str, expected: &str) {
        assert_eq!(tokens(text, Dialect::default()), expected);
    }

    #[test]
    fn strings_end_where_postgres_ends_them() {
        check("'a''b' c", "String:'a''b' Word:c");
        check(r"'a\' b", r"String:'a\' Word:b");
        check(r"E'a\'b' c", r"String:E'a\'b' Word:c");
        check(
            "U&'a' u&\"b\" N'c' x'ff' e",
            "String:U&'a' QuotedName:u&\"b\" String:N'c' String:x'ff' Word:e",
        );
        check("'open", "String:'open unterminated");
        let old = Dialect {
            standard_strings: false,
            ..Dialect::default()
        };
        assert_eq!(tokens(r"'a\' b' c", old), r"String:'a\' b' Word:c");
    }

    #[test]
    fn dollar_quotes_nest_by_tag() {
        check("$$a;b$$ $1", "String:$$a;b$$ Parameter:$1");
        check("$f$ $$;$$ $g$ $f$;", "String:$f$ $$;$$ $g$ $f$ Semicolon:;");
        check("a$b$c", "Word:a$b$c");
        check("$f$ never", "String:$f$ never unterminated");
        check("$", "Symbol:$");
    }

    #[test]
    fn comments_nest_and_hide_everything() {
        check(
            "a /* ; /* ' */ ; */ b",
            "Word:a Comment:/* ; /* ' */ ; */ Word:b",
        );
        check("a -- ; '\nb", "Word:a Comment:-- ; ' Word:b");
        check("1+--x\n2", "Number:1 Symbol:+ Comment:--x Number:2");
        check("/* open /* */", "Comment:/* open /* */ unterminated");
    }

    #[test]
    fn numbers_and_operators() {
        check(
            "1.5e-3 .5 0xFF 1e a<=$2::int",
            "Number:1.5e-3 Number:.5 Number:0xFF Number:1 Word:e Word:a Symbol:<= Parameter:$2 Symbol:: Symbol:: Word:int",
        );
    }

    #[test]
    fn a_second_byte_that_looks_like_a_quote_is_none() {
        // 表 in SJIS is 0x95 0x5c; a character ending in 0x27 does not exist there, in GB18030 a
        // digit may follow.
        let text = b"'\x95\\' x";
        let kinds = |encoding| {
            Lexer::new(
                text,
                Dialect {
                    standard_strings: false,
                    encoding,
                },
            )
            .map(|token| token.end)
            .next()
            .unwrap()
        };
        assert_eq!(kinds(Encoding::Trailing), 4);
        assert_eq!(kinds(Encoding::SingleByte), text.len());
    }

    #[test]
    fn characters_are_counted_as_the_server_does() {
        assert_eq!(Encoding::named(b"UTF8").characters("aä€😀".as_bytes()), 4);
        assert_eq!(Encoding::named(b"LATIN1").characters(b"a\xe4"), 2);
        assert_eq!(
            Encoding::named(b"EUC_JP").characters(b"a\xa4\xa2\x8f\xb0\xa1"),
            3
        );
        assert_eq!(Encoding::named(b"SJIS").characters(b"\x95\\a"), 2);
    }

    proptest! {
        #[test]
        fn tokens_are_the_text(text in proptest::collection::vec(any::<u8>(), 0..80), standard: bool, trailing: bool) {
            let encoding = if trailing { Encoding::Trailing } else { Encoding::Utf8 };
            let mut at = 0;
            for token in Lexer::new(&text, Dialect { standard_strings: standard, encoding }) {
                prop_assert_eq!(token.start, at);
                prop_assert!(token.end > at);
                at = token.end;
            }
            prop_assert_eq!(at, text.len());
        }

        #[test]
        fn tokens_of_sql_like_text_are_the_text(text in "[-'\"$a1*/; \n\\\\eE(.]{0,40}") {
            let joined: usize = Lexer::new(text.as_bytes(), Dialect::default()).map(|token| token.end - token.start).sum();
            prop_assert_eq!(joined, text.len());
        }
    }
}
