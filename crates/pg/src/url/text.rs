//! What a URL or a conninfo string says, as libpq's parameters: `host`, `port`, `dbname` and so on,
//! lists with commas.

use std::collections::BTreeMap;

use super::UrlError;

/// Parameters by name.
pub(super) type Settings = BTreeMap<String, String>;

/// Whether a text is a list of `name=value` rather than a URL.
pub(super) fn is_conninfo(text: &str) -> bool {
    text.contains('=') && !text.contains("://")
}

/// `host=h dbname='a b'`.
pub(super) fn conninfo(text: &str) -> Result<Settings, UrlError> {
    let mut settings = Settings::new();
    let mut rest = text.trim_start();
    let mut last = None;
    while !rest.is_empty() {
        let failed = || UrlError::Keyword(last.clone());
        let (name, value) = rest.split_once('=').ok_or_else(failed)?;
        let name = name.trim_end();
        if name.is_empty() || name.contains(char::is_whitespace) {
            return Err(failed());
        }
        let (value, after) = conninfo_value(value.trim_start()).ok_or_else(failed)?;
        settings.insert(name.to_owned(), value);
        rest = after.trim_start();
        last = Some(name.to_owned());
    }
    Ok(settings)
}

/// A value at the head of a text, and what follows it. `None`: its quote is not closed.
fn conninfo_value(text: &str) -> Option<(String, &str)> {
    let quoted = text.starts_with('\'');
    let mut value = String::new();
    let mut characters = text.char_indices().skip(usize::from(quoted));
    while let Some((at, character)) = characters.next() {
        match character {
            '\\' => value.push(characters.next()?.1),
            '\'' if quoted => return Some((value, &text[at + 1..])),
            _ if !quoted && character.is_whitespace() => return Some((value, &text[at..])),
            _ => value.push(character),
        }
    }
    (!quoted).then_some((value, ""))
}

/// `postgres://user:password@host:port,host:port/database?name=value`.
pub(super) fn url(text: &str) -> Result<Settings, UrlError> {
    let rest = text
        .strip_prefix("postgres://")
        .or_else(|| text.strip_prefix("postgresql://"))
        .ok_or(UrlError::Scheme)?;
    let whole = rest;
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (authority, database) = rest.split_once('/').unwrap_or((rest, ""));
    // The user would be taken for a host, and the password for a port or a database, which are
    // shown.
    if authority.contains(':') && !authority.contains('@') && whole.contains('@') {
        return Err(UrlError::Login);
    }
    // A password may hold an unescaped `@`; a host may not.
    let (login, hosts) = match authority.rsplit_once('@') {
        Some((login, hosts)) => (login, hosts),
        None => ("", authority),
    };
    let (user, password) = login.split_once(':').unwrap_or((login, ""));
    let (hosts, ports): (Vec<_>, Vec<_>) = hosts
        .split(',')
        .filter(|host| !host.is_empty())
        .map(split_host)
        .collect::<Result<Vec<_>, _>>()?
        .into_iter()
        .unzip();
    let mut settings = Settings::new();
    let mut set = |name: &str, value: String| {
        if !value.is_empty() {
            settings.insert(name.to_owned(), value);
        }
    };
    set("user", unescape("user", user)?);
    set("password", unescape("password", password)?);
    set("dbname", unescape("database", database)?);
    set("host", hosts.join(","));
    if ports.iter().any(|port| !port.is_empty()) {
        set("port", ports.join(","));
    }
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        settings.insert(unescape("parameter", name)?, unescape("parameter", value)?);
    }
    Ok(settings)
}

/// `host`, `host:port`, `[::1]:port`, `%2Ffolder`, `%2Ffolder:port`.
fn split_host(text: &str) -> Result<(String, String), UrlError> {
    let failed = || UrlError::Host(text.to_owned());
    if let Some(rest) = text.strip_prefix('[') {
        let (host, rest) = rest.split_once(']').ok_or_else(failed)?;
        return match (rest, rest.strip_prefix(':')) {
            ("", _) => Ok((host.to_owned(), String::new())),
            (_, Some(port)) => Ok((host.to_owned(), port.to_owned())),
            _ => Err(failed()),
        };
    }
    match text.split_once(':') {
        Some((_, port)) if port.contains(':') => Err(failed()),
        Some((host, port)) => Ok((unescape("host", host)?, port.to_owned())),
        None => Ok((unescape("host", text)?, String::new())),
    }
}

fn unescape(part: &'static str, text: &str) -> Result<String, UrlError> {
    let failed = || UrlError::Escape(part);
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        let mut digit = || {
            bytes
                .next()
                .and_then(|digit| char::from(digit).to_digit(16))
        };
        let (high, low) = (digit().ok_or_else(failed)?, digit().ok_or_else(failed)?);
        out.push((high << 4 | low) as u8);
    }
    String::from_utf8(out).map_err(|_| failed())
}
