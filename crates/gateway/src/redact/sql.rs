//! Secrets in what is kept of sessions: rows that an aborted transaction was answered, and what the
//! client of a ghost sent. A column is known by its name, wherever it stands.
//!
//! What cannot be told stays as it is: an `INSERT` without a list of columns, values that pass
//! through expressions, rows whose description came in an earlier transaction, messages that quote
//! a value.

use std::collections::{BTreeMap, HashMap};

use bytes::{BufMut, Bytes, BytesMut};
use hindcast_wire::message::{backend as server, frontend as client};
use hindcast_wire::sql::Dialect;
use hindcast_wire::sql::lexer::{Lexer, Token, TokenKind};

use super::found::instead;
use super::rules::Rules;
use super::value::With;

const HEADER: usize = 5;
/// text, varchar, char(n), name, unknown.
const TEXT_TYPES: [u32; 5] = [25, 1043, 1042, 19, 705];
const TEXT: u16 = 0;

/// The next whole message, taken off `rest`.
fn next<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = rest
        .get(1..HEADER)?
        .try_into()
        .map(u32::from_be_bytes)
        .ok()?;
    let (message, after) = rest.split_at_checked(length as usize + 1)?;
    *rest = after;
    (message.len() >= HEADER).then_some(message)
}

pub(super) fn server_bytes(bytes: &[u8], rules: &Rules, with: &With<'_>) -> Vec<u8> {
    let mut out = BytesMut::with_capacity(bytes.len());
    // The secret ones: which they are, whether they are text, and in which format.
    let mut columns: Vec<Option<(bool, u16)>> = Vec::new();
    let mut rest = bytes;
    while let Some(message) = next(&mut rest) {
        let body = &message[HEADER..];
        match message[0] {
            server::ROW_DESCRIPTION => {
                let secret = |column: server::Column<'_>| {
                    let name = String::from_utf8_lossy(column.name);
                    let text = TEXT_TYPES.contains(&column.type_oid);
                    rules.column(&name).map(|_| (text, column.format))
                };
                let described = server::parse_row_description(body);
                columns = described.flatten().map(secret).collect();
            }
            server::DATA_ROW if columns.iter().any(Option::is_some) => {
                let values: Vec<Option<Bytes>> = server::parse_data_row(body)
                    .enumerate()
                    .map(|(at, value)| match columns.get(at) {
                        Some(Some((text, format))) => value_instead(value?, *text, *format, with),
                        _ => value.map(Bytes::copy_from_slice),
                    })
                    .collect();
                let values: Vec<_> = values.iter().map(Option::as_deref).collect();
                server::data_row(&mut out, &values);
                continue;
            }
            server::ERROR_RESPONSE | server::NOTICE_RESPONSE => {
                if let Ok(fields) = server::Fields::parse(body)
                    && let Some(detail) = fields.get(b'D')
                    && let Some(other) = detail_without(&String::from_utf8_lossy(detail), rules)
                {
                    let fields = fields.iter().map(|(field, text)| match field {
                        b'D' => (field, other.as_bytes()),
                        _ => (field, text),
                    });
                    server::error_fields(&mut out, message[0], fields);
                    continue;
                }
            }
            _ => {}
        }
        out.extend_from_slice(message);
    }
    out.extend_from_slice(rest);
    out.to_vec()
}

/// What is neither text nor digits has no other value that would be valid: it becomes NULL.
fn value_instead(value: &[u8], text: bool, format: u16, with: &With<'_>) -> Option<Bytes> {
    let digits = format == TEXT && value.iter().all(u8::is_ascii_digit);
    (text || digits).then(|| instead(value, with).into())
}

/// `Key (a, b)=(1, 2) already exists.` and `Failing row contains (1, 2).` quote values.
fn detail_without(detail: &str, rules: &Rules) -> Option<String> {
    if detail.starts_with("Failing row contains (") && rules.look_into_sql() {
        return Some("Failing row contains (redacted).".to_owned());
    }
    let (names, _) = detail.strip_prefix("Key (")?.split_once(")=(")?;
    let secret = names
        .split(", ")
        .any(|name| rules.column(name.trim_matches('"')).is_some());
    let end = detail.rfind(')')?;
    secret.then(|| format!("Key ({names})=(redacted{}", &detail[end..]))
}

pub(super) fn client_bytes(
    bytes: &[u8],
    rules: &Rules,
    with: &With<'_>,
) -> Result<Vec<u8>, &'static str> {
    let mut out = BytesMut::with_capacity(bytes.len());
    // Which parameters of a prepared statement are secret.
    let mut prepared: HashMap<Vec<u8>, Vec<usize>> = HashMap::new();
    let mut rest = bytes;
    while let Some(message) = next(&mut rest) {
        let body = &message[HEADER..];
        match message[0] {
            client::QUERY => {
                if let Ok(text) = client::parse_query(body) {
                    let places = places(text, rules);
                    if places.copies {
                        return Err("it copies a redacted column in");
                    }
                    if !places.literals.is_empty() {
                        client::query(&mut out, &without(text, &places.literals, with));
                        continue;
                    }
                }
            }
            client::PARSE => {
                if let Ok(parse) = client::Parse::parse(body) {
                    let places = places(parse.text, rules);
                    if places.copies {
                        return Err("it copies a redacted column in");
                    }
                    prepared.insert(parse.name.to_vec(), places.parameters);
                    let text = without(parse.text, &places.literals, with);
                    client::Parse {
                        text: &text,
                        ..parse
                    }
                    .build(&mut out);
                    continue;
                }
            }
            client::BIND => {
                if let Ok(bind) = client::Bind::parse(body)
                    && let Some(secret) = prepared.get(bind.statement)
                    && !secret.is_empty()
                {
                    put_bind(&mut out, body, &bind, secret, with);
                    continue;
                }
            }
            _ => {}
        }
        out.extend_from_slice(message);
    }
    out.extend_from_slice(rest);
    Ok(out.to_vec())
}

fn put_bind(
    out: &mut BytesMut,
    body: &[u8],
    bind: &client::Bind<'_>,
    secret: &[usize],
    with: &With<'_>,
) {
    let start = out.len();
    out.put_u8(client::BIND);
    out.put_u32(0);
    let names = bind.portal.len() + bind.statement.len() + 2;
    let formats = 2 + 2 * bind.parameter_formats.len();
    out.put_slice(&body[..names + formats + 2]);
    let format = |at: usize| match &bind.parameter_formats[..] {
        [] => TEXT,
        [one] => *one,
        each => each.get(at).copied().unwrap_or(TEXT),
    };
    let mut length = 0;
    for (at, value) in bind.parameters.iter().enumerate() {
        length += 4 + value.map_or(0, <[u8]>::len);
        let plain = || value.map(Bytes::copy_from_slice);
        let value = match (value, secret.contains(&at)) {
            (Some(value), true) => {
                let printable = std::str::from_utf8(value)
                    .is_ok_and(|text| !text.contains(|c: char| c.is_control()));
                value_instead(value, format(at) == TEXT || printable, format(at), with)
            }
            _ => plain(),
        };
        match value {
            None => out.put_u32(u32::MAX),
            Some(value) => {
                out.put_u32(value.len() as u32);
                out.put_slice(&value);
            }
        }
    }
    // The formats of results are behind the values.
    out.put_slice(&body[names + formats + 2 + length..]);
    let length = (out.len() - start - 1) as u32;
    out[start + 1..start + HEADER].copy_from_slice(&length.to_be_bytes());
}

/// Where a statement's secrets are.
#[derive(Debug, Default)]
struct Places {
    /// Constants in its text, by where they begin.
    literals: BTreeMap<usize, Token>,
    /// Counted from 0.
    parameters: Vec<usize>,
    /// Rows with a secret column follow.
    copies: bool,
}

impl Places {
    fn add(&mut self, text: &[u8], token: Token) {
        match token.kind {
            TokenKind::String | TokenKind::Number => {
                self.literals.insert(token.start, token);
            }
            TokenKind::Parameter => {
                let digits = std::str::from_utf8(&token.text(text)[1..]).ok();
                let number = digits.and_then(|digits| digits.parse::<usize>().ok());
                self.parameters
                    .extend(number.and_then(|number| number.checked_sub(1)));
            }
            _ => {}
        }
    }
}

fn places(text: &[u8], rules: &Rules) -> Places {
    let tokens: Vec<Token> = Lexer::new(text, Dialect::default())
        .filter(|token| !matches!(token.kind, TokenKind::Space | TokenKind::Comment))
        .collect();
    let mut places = Places::default();
    let word = |at: usize, word: &str| {
        let token = tokens.get(at).filter(|token| token.kind == TokenKind::Word);
        token.is_some_and(|token| token.text(text).eq_ignore_ascii_case(word.as_bytes()))
    };
    for at in 0..tokens.len() {
        if word(at, "INSERT") && word(at + 1, "INTO") {
            inserted(text, &tokens, at + 2, rules, &mut places);
        }
        if word(at, "COPY") && at == 0 {
            let (columns, _) = names(text, &tokens, at + 1);
            places.copies |= columns.iter().any(|name| rules.column(name).is_some());
        }
        let Some(name) = name(text, tokens[at]) else {
            continue;
        };
        if rules.column(&name).is_none() {
            continue;
        }
        let equals = |token: Option<&Token>| {
            token.is_some_and(|token| token.kind == TokenKind::Symbol && token.text(text) == b"=")
        };
        // name = value, value = name, PASSWORD 'value'
        if equals(tokens.get(at + 1)) {
            tokens
                .get(at + 2)
                .into_iter()
                .for_each(|value| places.add(text, *value));
        }
        let first = qualified_from(text, &tokens, at);
        if first >= 2 && equals(tokens.get(first - 1)) {
            places.add(text, tokens[first - 2]);
        }
        if let Some(next) = tokens
            .get(at + 1)
            .filter(|next| next.kind == TokenKind::String)
        {
            places.add(text, *next);
        }
    }
    places
}

/// Where `schema.table.column` begins whose last part is at `at`.
fn qualified_from(text: &[u8], tokens: &[Token], mut at: usize) -> usize {
    while at >= 2 && tokens[at - 1].text(text) == b"." && name(text, tokens[at - 2]).is_some() {
        at -= 2;
    }
    at
}

fn name(text: &[u8], token: Token) -> Option<String> {
    let name = String::from_utf8_lossy(token.text(text));
    match token.kind {
        TokenKind::Word => Some(name.into_owned()),
        TokenKind::QuotedName => Some(name.trim_matches('"').replace("\"\"", "\"")),
        _ => None,
    }
}

/// The names in the parentheses behind a table's name, and what follows them.
fn names(text: &[u8], tokens: &[Token], from: usize) -> (Vec<String>, usize) {
    let kind = |at: usize| tokens.get(at).map(|token| token.kind);
    let mut at = from;
    while matches!(
        kind(at),
        Some(TokenKind::Word | TokenKind::QuotedName | TokenKind::Symbol)
    ) {
        at += 1;
    }
    let mut found = Vec::new();
    if kind(at) == Some(TokenKind::Open) {
        at += 1;
        while !matches!(kind(at), None | Some(TokenKind::Close)) {
            found.extend(name(text, tokens[at]));
            at += 1;
        }
        at += 1;
    }
    (found, at)
}

/// `(columns) VALUES (values), (values)`: everything in the place of a secret column.
fn inserted(text: &[u8], tokens: &[Token], from: usize, rules: &Rules, places: &mut Places) {
    let (columns, at) = names(text, tokens, from);
    let secret: Vec<bool> = columns
        .iter()
        .map(|name| rules.column(name).is_some())
        .collect();
    if !secret.contains(&true) {
        return;
    }
    let (mut depth, mut column) = (0, 0);
    for token in &tokens[at.min(tokens.len())..] {
        match token.kind {
            TokenKind::Open => {
                depth += 1;
                column = if depth == 1 { 0 } else { column };
            }
            TokenKind::Close => depth -= 1,
            TokenKind::Comma if depth == 1 => column += 1,
            TokenKind::Semicolon => return,
            // Behind the values: ON CONFLICT, RETURNING.
            TokenKind::Word if depth == 0 && !token.text(text).eq_ignore_ascii_case(b"values") => {
                return;
            }
            _ if depth > 0 && secret.get(column) == Some(&true) => places.add(text, *token),
            _ => {}
        }
    }
}

fn without(text: &[u8], literals: &BTreeMap<usize, Token>, with: &With<'_>) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut done = 0;
    for token in literals.values() {
        out.extend_from_slice(&text[done..token.start]);
        let written = token.text(text);
        match token.kind {
            TokenKind::Number => out.extend(with.number(written).into_bytes()),
            _ => {
                let inner = written
                    .strip_prefix(b"'")
                    .and_then(|rest| rest.strip_suffix(b"'"));
                let value = String::from_utf8_lossy(inner.unwrap_or(written)).replace("''", "'");
                out.extend(format!("'{}'", instead(value.as_bytes(), with)).into_bytes());
            }
        }
        done = token.end;
    }
    out.extend_from_slice(&text[done..]);
    out
}

#[cfg(test)]
mod tests {
    use super::super::value::{Key, MARK};
    use super::*;

    fn rules() -> Rules {
        Rules::read(["column:password", "column:pin"]).unwrap()
    }

    /// A text as it is kept: hashes are shown as `#`.
    fn kept(sql: &str) -> String {
        let mut sent = BytesMut::new();
        client::query(&mut sent, sql.as_bytes());
        let key = Key::of(b"k");
        let bytes = client_bytes(&sent, &rules(), &With::Hash(&key)).unwrap();
        let text = client::parse_query(&bytes[HEADER..]).unwrap();
        let text = String::from_utf8_lossy(text).into_owned();
        let mut parts = text.split(MARK);
        let first = parts.next().unwrap_or_default().to_owned();
        parts.fold(first, |all, part| format!("{all}#{}", &part[16..]))
    }

    #[test]
    fn constants_of_secret_columns_are_found() {
        for (sql, expected) in [
            (
                "INSERT INTO u (name, password) VALUES ('ann', 'x'), ('bob', 'it''s') RETURNING name",
                "INSERT INTO u (name, password) VALUES ('ann', '#'), ('bob', '#') RETURNING name",
            ),
            (
                "INSERT INTO s.\"u\" (\"Password\") VALUES (crypt('x', 'y'))",
                "INSERT INTO s.\"u\" (\"Password\") VALUES (crypt('#', '#'))",
            ),
            (
                "UPDATE u SET name = 'ann', password='x' WHERE id = 4 AND 'y' = u.password",
                "UPDATE u SET name = 'ann', password='#' WHERE id = 4 AND '#' = u.password",
            ),
            ("ALTER ROLE ann PASSWORD 'x'", "ALTER ROLE ann PASSWORD '#'"),
            (
                "SELECT 'password = x' -- password = 'x'",
                "SELECT 'password = x' -- password = 'x'",
            ),
            ("INSERT INTO u VALUES ('x')", "INSERT INTO u VALUES ('x')"),
        ] {
            assert_eq!(kept(sql), expected);
        }
        assert_ne!(kept("UPDATE u SET pin = 1234"), "UPDATE u SET pin = 1234");
    }

    #[test]
    fn parameters_of_secret_columns_are_found() {
        let mut sent = BytesMut::new();
        client::parse(
            &mut sent,
            b"s",
            b"UPDATE u SET password = $2 WHERE name = $1",
            &[],
        );
        let plain = sent.len();
        client::bind(&mut sent, b"", b"s", &[Some(b"ann"), Some(b"x")]);
        let key = Key::of(b"k");
        let with = With::Hash(&key);
        let bytes = client_bytes(&sent, &rules(), &with).unwrap();
        assert_eq!(bytes[..plain], sent[..plain]);
        let bind = client::Bind::parse(&bytes[plain + HEADER..]).unwrap();
        let hashed = with.text(b"x");
        assert_eq!(
            bind.parameters,
            [Some(&b"ann"[..]), Some(hashed.as_bytes())]
        );

        let mut copy = BytesMut::new();
        client::query(&mut copy, b"COPY u (name, password) FROM STDIN");
        assert!(client_bytes(&copy, &rules(), &with).is_err());
    }

    #[test]
    fn rows_and_details_are_without() {
        let column = |name: &'static [u8], type_oid| server::Column {
            name,
            table: 1,
            attribute: 1,
            type_oid,
            format: TEXT,
        };
        let mut answered = BytesMut::new();
        let columns = [
            column(b"name", 25),
            column(b"password", 25),
            column(b"pin", 1082),
        ];
        server::row_description(&mut answered, &columns);
        let described = answered.len();
        server::data_row(
            &mut answered,
            &[Some(b"ann"), Some(b"x"), Some(b"2026-01-01")],
        );
        let row = answered.len();
        let detail = [
            (b'C', &b"23505"[..]),
            (b'D', b"Key (name, pin)=(ann, 12) already exists."),
        ];
        server::error_fields(&mut answered, server::ERROR_RESPONSE, detail.into_iter());
        answered.extend_from_slice(b"Z\0\0");
        let key = Key::of(b"k");
        let with = With::Hash(&key);
        let bytes = server_bytes(&answered, &rules(), &with);
        assert_eq!(bytes[..described], answered[..described]);
        let values: Vec<_> = server::parse_data_row(&bytes[described + HEADER..]).collect();
        let hashed = with.text(b"x");
        assert_eq!(values, [Some(&b"ann"[..]), Some(hashed.as_bytes()), None]);
        let text = String::from_utf8_lossy(&bytes);
        assert!(
            text.contains("Key (name, pin)=(redacted) already exists."),
            "{text}"
        );
        assert!(bytes.ends_with(b"Z\0\0") && row > described);
        // Without a rule nothing moves.
        let other = Rules::read(["column:other", "cards"]).unwrap();
        assert_eq!(server_bytes(&answered, &other, &with), answered.to_vec());
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes: Vec<u8>) {
            let key = Key::of(b"k");
            let _ = server_bytes(&bytes, &rules(), &With::Hash(&key));
            let _ = client_bytes(&bytes, &rules(), &With::Hash(&key));
            let _ = places(&bytes, &rules());
        }
    }
}
