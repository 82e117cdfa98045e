//! Where the secrets of forms and query strings are.

use std::ops::Range;

use super::card;
use super::found::{Found, Kind};
use super::rules::{RuleNumber, Rules};

/// Of `name=value&name=value`, which begins at `offset` of a text.
pub(super) fn find(text: &[u8], offset: usize, rules: &Rules) -> Vec<Found> {
    let mut found = Vec::new();
    let mut at = 0;
    for pair in text.split(|&byte| byte == b'&') {
        if let Some(equals) = pair.iter().position(|&byte| byte == b'=') {
            let (name, value) = (decoded(&pair[..equals]), decoded(&pair[equals + 1..]));
            if let Some(rule) = rule_for(&String::from_utf8_lossy(&name), &value, rules) {
                let start = offset + at + equals + 1;
                found.push(Found {
                    range: start..offset + at + pair.len(),
                    rule,
                    kind: Kind::Escaped(value),
                });
            }
        }
        at += pair.len() + 1;
    }
    found
}

/// Of the parts of a `multipart/form-data` body. Files are left as they are. `None`: it cannot be
/// taken apart.
pub(super) fn find_in_parts(body: &[u8], content_type: &str, rules: &Rules) -> Option<Vec<Found>> {
    let boundary = parameter(content_type, "boundary").filter(|given| !given.is_empty())?;
    let delimiter = format!("--{boundary}");
    let mut found = Vec::new();
    let mut rest = position(body, delimiter.as_bytes(), 0)? + delimiter.len();
    let delimiter = format!("\r\n{delimiter}");
    while !body[rest..].starts_with(b"--") {
        let head_end = position(body, b"\r\n\r\n", rest)?;
        let head = String::from_utf8_lossy(&body[rest..head_end]);
        let start = head_end + 4;
        // An empty part has its delimiter right behind its head.
        let end = position(body, delimiter.as_bytes(), head_end + 2)?;
        let content = start.min(end)..end;
        found.extend(find_in_part(&head, body, content, rules));
        rest = end + delimiter.len();
    }
    Some(found)
}

fn find_in_part(head: &str, body: &[u8], content: Range<usize>, rules: &Rules) -> Option<Found> {
    let disposition = head.lines().find(|line| {
        line.get(..20)
            .is_some_and(|start| start.eq_ignore_ascii_case("content-disposition:"))
    })?;
    if parameter(disposition, "filename").is_some() {
        return None;
    }
    let name = parameter(disposition, "name")?;
    let rule = rule_for(&name, &body[content.clone()], rules)?;
    Some(Found {
        range: content,
        rule,
        kind: Kind::Plain,
    })
}

/// `user[password]` is a field `password`.
fn rule_for(name: &str, value: &[u8], rules: &Rules) -> Option<RuleNumber> {
    if value.is_empty() {
        return None;
    }
    let inner = name
        .strip_suffix(']')
        .and_then(|name| name.rsplit_once('['));
    let inner = inner.map_or(name, |(_, inner)| inner);
    let card = || {
        let text = std::str::from_utf8(value).unwrap_or_default();
        rules.cards().filter(|_| card::is_card(text))
    };
    rules.field(inner).or_else(card)
}

/// `name=value` or `name="value"` behind a semicolon.
fn parameter(header: &str, name: &str) -> Option<String> {
    header.split(';').skip(1).find_map(|part| {
        let (given, value) = part.split_once('=')?;
        let value = value.trim().trim_matches('"');
        given
            .trim()
            .eq_ignore_ascii_case(name)
            .then(|| value.to_owned())
    })
}

fn position(text: &[u8], part: &[u8], from: usize) -> Option<usize> {
    let rest = text.get(from..)?;
    memchr::memmem::find(rest, part).map(|at| from + at)
}

fn decoded(text: &[u8]) -> Vec<u8> {
    let digit = |at: usize| {
        text.get(at)
            .and_then(|&digit| char::from(digit).to_digit(16))
    };
    let mut out = Vec::with_capacity(text.len());
    let mut at = 0;
    while at < text.len() {
        match (text[at], digit(at + 1), digit(at + 2)) {
            (b'%', Some(high), Some(low)) => {
                out.push((high << 4 | low) as u8);
                at += 2;
            }
            (b'+', ..) => out.push(b' '),
            (byte, ..) => out.push(byte),
        }
        at += 1;
    }
    out
}
