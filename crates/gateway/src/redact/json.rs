//! Where the secrets of a JSON text are. Everything else of it is left as it is, byte for byte.

use std::borrow::Cow;

use super::card;
use super::found::{Found, Kind};
use super::rules::{Rule, RuleNumber, Rules};

/// Deeper nesting is not looked into: the text counts as unreadable.
const DEPTH_MAX: usize = 128;

/// In order. `None`: this is not JSON, or not to its end. Several texts may follow one another, as
/// in NDJSON.
pub(super) fn find(body: &[u8], rules: &Rules) -> Option<Vec<Found>> {
    let pointers = rules.find(|rule| matches!(rule, Rule::Json(_))).is_some();
    let mut scan = Scan {
        body,
        at: 0,
        rules,
        cards: rules.cards(),
        path: pointers.then(Vec::new),
        found: Vec::new(),
    };
    scan.space();
    while scan.at < body.len() {
        scan.value(None, 0)?;
        scan.space();
    }
    Some(scan.found)
}

struct Scan<'a> {
    body: &'a [u8],
    at: usize,
    rules: &'a Rules,
    cards: Option<RuleNumber>,
    /// Keys and indices down to here, if any rule wants to know.
    path: Option<Vec<String>>,
    found: Vec<Found>,
}

impl<'a> Scan<'a> {
    fn peek(&self) -> Option<u8> {
        self.body.get(self.at).copied()
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\r' | b'\n')) {
            self.at += 1;
        }
    }

    fn expect(&mut self, byte: u8) -> Option<()> {
        self.space();
        (self.peek()? == byte).then(|| self.at += 1)
    }

    /// `rule`: all that is in here is secret.
    fn value(&mut self, rule: Option<RuleNumber>, depth: usize) -> Option<()> {
        if depth > DEPTH_MAX {
            return None;
        }
        self.space();
        let start = self.at;
        match self.peek()? {
            b'{' => self.object(rule, depth),
            b'[' => self.array(rule, depth),
            b'"' => {
                let text = self.string()?;
                let card = || self.cards.filter(|_| card::is_card(&text));
                if let Some(rule) = rule.or_else(card) {
                    self.found.push(Found {
                        range: start..self.at,
                        rule,
                        kind: Kind::JsonText(text.into_owned()),
                    });
                }
                Some(())
            }
            b'-' | b'0'..=b'9' => {
                while matches!(
                    self.peek(),
                    Some(b'-' | b'+' | b'.' | b'e' | b'E' | b'0'..=b'9')
                ) {
                    self.at += 1;
                }
                if let Some(rule) = rule {
                    self.found.push(Found {
                        range: start..self.at,
                        rule,
                        kind: Kind::Number,
                    });
                }
                Some(())
            }
            _ => ["true", "false", "null"].into_iter().find_map(|word| {
                let rest = &self.body[self.at..];
                rest.starts_with(word.as_bytes())
                    .then(|| self.at += word.len())
            }),
        }
    }

    fn object(&mut self, rule: Option<RuleNumber>, depth: usize) -> Option<()> {
        self.at += 1;
        self.space();
        if self.peek()? == b'}' {
            self.at += 1;
            return Some(());
        }
        loop {
            self.space();
            let key = self.string()?;
            self.expect(b':')?;
            let own = rule.or_else(|| self.rules.field(&key));
            self.inside(key, own, depth)?;
            self.space();
            match self.peek()? {
                b',' => self.at += 1,
                b'}' => {
                    self.at += 1;
                    return Some(());
                }
                _ => return None,
            }
        }
    }

    fn array(&mut self, rule: Option<RuleNumber>, depth: usize) -> Option<()> {
        self.at += 1;
        self.space();
        if self.peek()? == b']' {
            self.at += 1;
            return Some(());
        }
        for index in 0.. {
            let step = self.path.as_ref().map(|_| index.to_string());
            self.inside(step.unwrap_or_default().into(), rule, depth)?;
            self.space();
            match self.peek()? {
                b',' => self.at += 1,
                b']' => {
                    self.at += 1;
                    return Some(());
                }
                _ => return None,
            }
        }
        None
    }

    /// The value behind a key or at an index.
    fn inside(&mut self, step: Cow<'_, str>, rule: Option<RuleNumber>, depth: usize) -> Option<()> {
        let Some(path) = &mut self.path else {
            return self.value(rule, depth + 1);
        };
        path.push(step.into_owned());
        let here = &*path;
        let rule = rule.or_else(|| self.rules.find(|rule| points_at(rule, here)));
        self.value(rule, depth + 1)?;
        if let Some(path) = &mut self.path {
            path.pop();
        }
        Some(())
    }

    /// The text between quotes, without its escapes.
    fn string(&mut self) -> Option<Cow<'a, str>> {
        if self.peek()? != b'"' {
            return None;
        }
        self.at += 1;
        let start = self.at;
        while !matches!(self.peek()?, b'"' | b'\\') {
            self.at += 1;
        }
        let body: &'a [u8] = self.body;
        let plain = &body[start..self.at];
        if self.peek()? == b'"' {
            self.at += 1;
            return Some(String::from_utf8_lossy(plain));
        }
        let mut text = plain.to_vec();
        loop {
            match self.peek()? {
                b'"' => {
                    self.at += 1;
                    return Some(String::from_utf8_lossy(&text).into_owned().into());
                }
                b'\\' => {
                    self.at += 1;
                    self.escape(&mut text)?;
                }
                byte => {
                    self.at += 1;
                    text.push(byte);
                }
            }
        }
    }

    fn escape(&mut self, text: &mut Vec<u8>) -> Option<()> {
        let escaped = self.peek()?;
        self.at += 1;
        text.push(match escaped {
            b'"' | b'\\' | b'/' => escaped,
            b'b' => 8,
            b'f' => 12,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'u' => {
                let mut units = vec![self.unit()?];
                // Two escapes may make one character.
                if (0xd800..0xdc00).contains(&units[0]) && self.body[self.at..].starts_with(b"\\u")
                {
                    self.at += 2;
                    units.push(self.unit()?);
                }
                text.extend_from_slice(String::from_utf16_lossy(&units).as_bytes());
                return Some(());
            }
            _ => return None,
        });
        Some(())
    }

    fn unit(&mut self) -> Option<u16> {
        let digits = self.body.get(self.at..self.at + 4)?;
        self.at += 4;
        u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
    }
}

fn points_at(rule: &Rule, path: &[String]) -> bool {
    match rule {
        Rule::Json(pointer) => {
            let fits = |(token, step): (&String, &String)| token == "*" || token == step;
            pointer.len() == path.len() && pointer.iter().zip(path).all(fits)
        }
        _ => false,
    }
}
