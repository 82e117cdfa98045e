//! Secrets that were found in a text, and the text without them.

use std::ops::Range;

use super::card;
use super::rules::RuleNumber;
use super::value::With;

/// A secret in a text.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub range: Range<usize>,
    pub rule: RuleNumber,
    pub kind: Kind,
}

/// How it is written there.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A JSON string with its quotes, and what it says.
    JsonText(String),
    Number,
    /// A value of a form or a query string, and what it says.
    Escaped(Vec<u8>),
    Plain,
}

impl Found {
    fn replacement(&self, text: &[u8], with: &With<'_>) -> Vec<u8> {
        match &self.kind {
            Kind::JsonText(secret) => format!("\"{}\"", instead(secret.as_bytes(), with)),
            Kind::Number => with.number(&text[self.range.clone()]),
            // Only the spaces between a card's groups need an escape.
            Kind::Escaped(secret) => instead(secret, with).replace(' ', "+"),
            Kind::Plain => instead(&text[self.range.clone()], with),
        }
        .into_bytes()
    }
}

/// In the place of a value that is text. What is all digits stays so: services check that.
pub(super) fn instead(secret: &[u8], with: &With<'_>) -> String {
    let text = std::str::from_utf8(secret).unwrap_or_default();
    let digits = !secret.is_empty() && secret.iter().all(u8::is_ascii_digit);
    match with {
        With::Hash(_) if card::is_card(text) => with.card(text),
        With::Hash(_) if digits => with.number(secret),
        _ => with.text(secret),
    }
}

/// `text` with each secret replaced; they are in order.
pub(super) fn replace(text: &[u8], found: &[Found], with: &With<'_>) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len() + found.len() * 16);
    let mut done = 0;
    for secret in found {
        out.extend_from_slice(&text[done..secret.range.start]);
        out.extend(secret.replacement(text, with));
        done = secret.range.end;
    }
    out.extend_from_slice(&text[done..]);
    out
}
