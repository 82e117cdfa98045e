//! The tokens of a statement, as what reads them asks for them.

use super::lexer::{Token, TokenKind};

/// The tokens of one statement, without spaces and comments.
pub(super) struct Words<'a> {
    text: &'a [u8],
    tokens: &'a [Token],
}

impl<'a> Words<'a> {
    pub fn new(text: &'a [u8], tokens: &'a [Token]) -> Self {
        Self { text, tokens }
    }

    /// Whether this is a fingerprint that was cut.
    pub fn are_cut(&self) -> bool {
        self.text.ends_with("…".as_bytes())
    }

    pub fn indices(&self) -> std::ops::Range<usize> {
        0..self.tokens.len()
    }

    pub fn at(&self, index: usize) -> &'a [u8] {
        self.tokens
            .get(index)
            .map_or(&[], |token| token.text(self.text))
    }

    /// Whether the word at `index` is this keyword, given in lower case.
    pub fn is(&self, index: usize, keyword: &str) -> bool {
        self.tokens
            .get(index)
            .is_some_and(|token| token.kind == TokenKind::Word)
            && self.at(index).eq_ignore_ascii_case(keyword.as_bytes())
    }

    pub fn any(&self, index: usize, keywords: &[&str]) -> bool {
        keywords.iter().any(|keyword| self.is(index, keyword))
    }

    pub fn kind(&self, index: usize) -> Option<TokenKind> {
        self.tokens.get(index).map(|token| token.kind)
    }

    /// Indices of tokens outside of parentheses.
    pub fn top_level(&self) -> impl Iterator<Item = usize> + '_ {
        let mut depth = 0usize;
        self.tokens
            .iter()
            .enumerate()
            .filter_map(move |(index, token)| {
                match token.kind {
                    TokenKind::Open => depth += 1,
                    TokenKind::Close => depth = depth.saturating_sub(1),
                    _ if depth == 0 => return Some(index),
                    _ => {}
                }
                None
            })
    }

    pub fn find_top(&self, keyword: &str) -> Option<usize> {
        self.top_level().find(|&index| self.is(index, keyword))
    }

    pub fn find(&self, keyword: &str) -> Option<usize> {
        (0..self.tokens.len()).find(|&index| self.is(index, keyword))
    }

    /// What a string constant holds, if it is spelled plainly.
    pub fn string(&self, index: usize) -> Option<Vec<u8>> {
        if self.kind(index) != Some(TokenKind::String) {
            return None;
        }
        let inner = self.at(index).strip_prefix(b"'")?.strip_suffix(b"'")?;
        let mut value = Vec::with_capacity(inner.len());
        let mut bytes = inner.iter();
        while let Some(&byte) = bytes.next() {
            value.push(byte);
            if byte == b'\'' {
                bytes.next();
            }
        }
        Some(value)
    }

    /// A name as Postgres stores it: folded to lower case unless quoted.
    pub fn name(&self, index: usize) -> Box<[u8]> {
        let text = self.at(index);
        match text
            .strip_prefix(b"\"")
            .and_then(|text| text.strip_suffix(b"\""))
        {
            Some(quoted) => {
                let mut name = Vec::with_capacity(quoted.len());
                let mut bytes = quoted.iter();
                while let Some(&byte) = bytes.next() {
                    name.push(byte);
                    if byte == b'"' {
                        bytes.next();
                    }
                }
                name.into()
            }
            None => text.to_ascii_lowercase().into(),
        }
    }

    /// Whether it is a name in escapes, `U&"…"`.
    pub fn is_escaped(&self, index: usize) -> bool {
        self.kind(index) == Some(TokenKind::QuotedName) && !self.at(index).starts_with(b"\"")
    }
}
