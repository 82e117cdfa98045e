//! Where a text holds a password: a command line, a message, a setting.
//!
//! Pure, and a guess by nature: it knows the forms in which databases and services are told their
//! secrets. `scheme://user:PASSWORD@host`, `…?password=PASSWORD`, `password=PASSWORD` of a conninfo
//! string, `API_TOKEN=TOKEN` of a shell, `--password PASSWORD` and `--password=PASSWORD`.

use std::ops::Range;

/// Parts of names whose values are secret, in lower case.
const NAMES: [&str; 7] = [
    "password",
    "passwd",
    "passphrase",
    "secret",
    "token",
    "credential",
    "_key",
];

/// Whether a setting, a variable or a flag of this name holds a secret.
pub fn sounds_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase().replace('-', "_");
    // A file is named, and its name is no secret.
    !name.ends_with("file") && NAMES.iter().any(|part| name.contains(part))
}

/// `text` with `***` for every secret.
pub fn masked(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut done = 0;
    for secret in secrets(text) {
        out.push_str(&text[done..secret.start]);
        out.push_str("***");
        done = secret.end;
    }
    out.push_str(&text[done..]);
    out
}

/// Where the secrets are: in order, without overlap, none empty.
pub fn secrets(text: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    look_into(text, 0, &mut found);
    found.retain(|range| !range.is_empty());
    found
}

/// `at` is where `text` begins in the whole.
fn look_into(text: &str, at: usize, found: &mut Vec<Range<usize>>) {
    /// What the words before say of this one.
    #[derive(PartialEq)]
    enum Next {
        Plain,
        /// After `--password`: it is the secret.
        Secret,
        /// After a bare `password`: it is, if an equals sign comes first.
        AfterEquals,
    }
    let mut next = Next::Plain;
    for word in words(text) {
        let whole = &text[word.clone()];
        let start = at + word.start;
        let after_equals = whole.strip_prefix('=');
        next = match (next, after_equals) {
            (Next::AfterEquals, Some("")) => Next::Secret,
            (Next::AfterEquals, Some(value)) => {
                found.push(unquoted(value, start + 1));
                Next::Plain
            }
            (Next::Secret, _) if !whole.starts_with("--") => {
                found.push(unquoted(whole, start));
                Next::Plain
            }
            _ => {
                look_at(whole, start, found);
                match whole {
                    _ if whole.contains(['=', ':']) => Next::Plain,
                    _ if whole.starts_with("--") && sounds_secret(whole) => Next::Secret,
                    _ if whole.eq_ignore_ascii_case("password") => Next::AfterEquals,
                    _ => Next::Plain,
                }
            }
        };
    }
}

/// One word.
fn look_at(word: &str, at: usize, found: &mut Vec<Range<usize>>) {
    let inner = unquoted(word, 0);
    if inner.len() < word.len() {
        return look_into(&word[inner.clone()], at + inner.start, found);
    }
    let url = word.find("://");
    if let Some(equals) = word
        .find('=')
        .filter(|&equals| url.is_none_or(|url| equals < url))
    {
        let (name, value) = (&word[..equals], &word[equals + 1..]);
        let value_at = at + equals + 1;
        return match sounds_secret(name) {
            true => found.push(unquoted(value, value_at)),
            false => look_at(value, value_at, found),
        };
    }
    if let Some(scheme) = url {
        look_at_url(word, scheme + "://".len(), at, found);
    }
}

/// A word with a URL whose authority begins at `from`.
fn look_at_url(word: &str, from: usize, at: usize, found: &mut Vec<Range<usize>>) {
    let rest = &word[from..];
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let login_end = match (authority.rfind('@'), authority.split_once(':')) {
        (Some(end), _) => Some(end),
        // No port, or no database with such a name: the password holds a slash, and should not.
        (None, Some((_, port))) if port.parse::<u16>().is_err() || is_database(&word[..from]) => {
            rest.rfind('@')
        }
        (None, _) => None,
    };
    let login_end = login_end.unwrap_or(0);
    if let Some(colon) = rest[..login_end].find(':') {
        found.push(at + from + colon + 1..at + from + login_end);
    }
    let Some(query) = rest[login_end..].find('?') else {
        return;
    };
    let mut begin = login_end + query + 1;
    for pair in rest[begin..].split('&') {
        if let Some((name, value)) = pair.split_once('=')
            && sounds_secret(name)
        {
            let value_at = at + from + begin + name.len() + 1;
            found.push(value_at..value_at + value.len());
        }
        begin += pair.len() + 1;
    }
}

/// Whether a URL that begins so is a database's.
fn is_database(before_authority: &str) -> bool {
    ["postgres://", "postgresql://"]
        .iter()
        .any(|scheme| before_authority.ends_with(scheme))
}

/// Where the text inside a word's quotes is, or the word.
fn unquoted(word: &str, at: usize) -> Range<usize> {
    let whole = at..at + word.len();
    let Some(quote) = word.chars().next().filter(|first| "'\"".contains(*first)) else {
        return whole;
    };
    match word.len() > 1 && word.ends_with(quote) {
        true => at + 1..whole.end - 1,
        false => whole,
    }
}

/// What white space separates that is not between quotes. A quote opens at a word's beginning or
/// after an equals sign, and only if it is closed again: prose has apostrophes.
fn words(text: &str) -> Vec<Range<usize>> {
    let mut words = Vec::new();
    let mut start = None;
    let mut skip_to = 0;
    let mut before = None;
    for (at, character) in text.char_indices() {
        if at < skip_to {
            continue;
        }
        match (start, character) {
            (Some(from), space) if space.is_whitespace() => {
                words.push(from..at);
                start = None;
            }
            (None, space) if space.is_whitespace() => {}
            (begun, quote @ ('\'' | '"')) => {
                start.get_or_insert(at);
                let opens = begun.is_none() || before == Some('=');
                if opens && let Some(length) = closing(&text[at + 1..], quote) {
                    skip_to = at + 1 + length;
                }
            }
            (None, _) => start = Some(at),
            _ => {}
        }
        before = Some(character);
    }
    words.extend(start.map(|from| from..text.len()));
    words
}

/// How long a quoted text is, with its closing quote. A backslash before a quote keeps it open.
fn closing(text: &str, quote: char) -> Option<usize> {
    let mut escaped = false;
    for (at, character) in text.char_indices() {
        match character {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if character == quote => return Some(at + quote.len_utf8()),
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn secrets_are_found_in_every_form() {
        for (given, shown) in [
            ("postgres://u:p@h:1/d", "postgres://u:***@h:1/d"),
            ("postgres://u:p@w@h/d x", "postgres://u:***@h/d x"),
            // It should have been written %2F.
            ("postgres://u:p/w@h/d", "postgres://u:***@h/d"),
            ("postgres://u:1/w@h/d", "postgres://u:***@h/d"),
            ("--url=http://h:80/a@b:c", "--url=http://h:80/a@b:c"),
            ("http://h:80/a?mail=b@c", "http://h:80/a?mail=b@c"),
            (
                "postgres://u@h/d?password=x&sslmode=a",
                "postgres://u@h/d?password=***&sslmode=a",
            ),
            ("host=h password=p user=u", "host=h password=*** user=u"),
            ("host=h password = p user=u", "host=h password = *** user=u"),
            (r"password='a \' b' user=u", "password='***' user=u"),
            (
                "PGPASSWORD=a API_TOKEN='b'\tx",
                "PGPASSWORD=*** API_TOKEN='***'\tx",
            ),
            (
                "URL='postgres://u:p@h/d?password=q' ./app --port 1",
                "URL='postgres://u:***@h/d?password=***' ./app --port 1",
            ),
            ("sh -c 'PGPASSWORD=p ./app'", "sh -c 'PGPASSWORD=*** ./app'"),
            (
                "app --password p --token=t --key-file f",
                "app --password *** --token=*** --key-file f",
            ),
            (
                "the service's password is asked for by the server",
                "the service's password is asked for by the server",
            ),
            (
                "DATABASE_URL=postgres://me@h/d",
                "DATABASE_URL=postgres://me@h/d",
            ),
            (
                "--app=DB=postgres://u:p@h/d ./x",
                "--app=DB=postgres://u:***@h/d ./x",
            ),
            ("'unclosed password=p", "'unclosed password=***"),
        ] {
            assert_eq!(masked(given), shown);
        }
    }

    proptest! {
        #[test]
        fn any_text_is_looked_through(text in "[a-z '\"=:/@?&\\\\é-]{0,40}") {
            let mut end = 0;
            for secret in secrets(&text) {
                prop_assert!(end <= secret.start && secret.start < secret.end);
                prop_assert!(text.is_char_boundary(secret.start) && text.is_char_boundary(secret.end));
                end = secret.end;
            }
            prop_assert!(end <= text.len());
        }

        #[test]
        fn the_password_of_a_url_never_shows(password in "[A-Z0-9%@:_]{6,12}") {
            let text = format!("x DATABASE_URL=postgres://me:{password}@h/d y");
            prop_assert!(!masked(&text).contains(&password));
        }
    }
}
