//! Keywords with their arguments, and those that stand beside functions and parameters alike.

use crate::InterfaceError;
use crate::expression::Scope;
use crate::model::*;
use crate::source::Annotation;

/// A keyword with its arguments.
pub(super) struct Keyword<'a> {
    pub name: &'a str,
    pub arguments: Vec<&'a str>,
    pub place: &'a Place,
}

impl<'a> Keyword<'a> {
    pub fn parse(annotation: &'a Annotation) -> Keyword<'a> {
        let text = annotation.text.trim();
        let (name, arguments) = match text.split_once('(') {
            Some((name, rest)) => (name.trim(), split(rest.strip_suffix(')').unwrap_or(rest))),
            None => (text, Vec::new()),
        };
        Keyword {
            name,
            arguments,
            place: &annotation.place,
        }
    }

    pub fn wrong(&self, instead: &str) -> InterfaceError {
        let written = match self.arguments.as_slice() {
            [] => self.name.to_owned(),
            arguments => format!("{}({})", self.name, arguments.join(", ")),
        };
        InterfaceError::Keyword {
            place: self.place.clone(),
            written,
            instead: instead.to_owned(),
        }
    }

    pub fn one(&self, instead: &str) -> Result<&'a str, InterfaceError> {
        match self.arguments.as_slice() {
            [one] if !one.is_empty() => Ok(one),
            _ => Err(self.wrong(instead)),
        }
    }

    pub fn two(&self, instead: &str) -> Result<(&'a str, &'a str), InterfaceError> {
        match self.arguments.as_slice() {
            [one, two] => Ok((one, two)),
            _ => Err(self.wrong(instead)),
        }
    }
}

/// Arguments at the commas outside of parentheses.
fn split(text: &str) -> Vec<&str> {
    let mut arguments = Vec::new();
    let (mut depth, mut start) = (0, 0);
    for (offset, byte) in text.bytes().enumerate() {
        match byte {
            b'(' | b'[' => depth += 1,
            b')' | b']' => depth -= 1,
            b',' if depth == 0 => {
                arguments.push(text[start..offset].trim());
                start = offset + 1;
            }
            _ => {}
        }
    }
    arguments.push(text[start..].trim());
    arguments
}

pub(super) fn descriptor_kind(keyword: &Keyword) -> Result<String, InterfaceError> {
    let how = "newfd(file), newfd(internal), newfd(socket), newfd(poll) or newfd(other)";
    match keyword.one(how)? {
        kind @ ("file" | "internal" | "socket" | "poll" | "other") => Ok(kind.to_owned()),
        _ => Err(keyword.wrong(how)),
    }
}

pub(super) fn foreign(scope: &Scope, keyword: &Keyword) -> Result<Foreign, InterfaceError> {
    let how = "xpointer(none), xpointer(thread), xpointer(process), xpointer(callback) or xpointer(until(KEY)), and bsize(BYTES) behind a comma when it is no string";
    let (owner, size) = match keyword.arguments.as_slice() {
        [owner] => (*owner, None),
        [owner, size] => {
            let inner = size
                .strip_prefix("bsize(")
                .and_then(|rest| rest.strip_suffix(')'));
            (*owner, Some(inner.ok_or_else(|| keyword.wrong(how))?))
        }
        _ => return Err(keyword.wrong(how)),
    };
    let owner = match owner {
        "none" | "null" => Owner::None,
        "thread" => Owner::Thread,
        "process" => Owner::Process,
        "callback" => Owner::Callback,
        until if until.starts_with("until(") => {
            let key = until
                .strip_prefix("until(")
                .and_then(|rest| rest.strip_suffix(')'))
                .ok_or_else(|| keyword.wrong(how))?;
            Owner::Until(scope.expression(key, keyword.place)?)
        }
        _ => return Err(keyword.wrong(how)),
    };
    let size = size
        .map(|size| scope.expression(size, keyword.place))
        .transpose()?;
    Ok(Foreign { owner, size })
}
