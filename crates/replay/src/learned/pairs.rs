//! Which values of a recorded answer another value stands for in the answer of the replay. Pure.
//!
//! A place is known by its name (cookies, hidden fields and `meta` of a page, headers), by its path
//! (JSON), or by all that is around it (other texts).

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::LazyLock;

use hindcast_gateway::redact::MARK;
use regex::bytes::Regex;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

use super::generated::{are_generated, is_generated, may_hold_generated};
use super::replacer::{percent_decoded, words};

/// Shorter values are found by chance.
const SHORTEST: usize = 8;

type Headers = [(String, Vec<u8>)];

/// A recorded value and what the replay has in its place. They differ.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pair {
    pub recorded: Vec<u8>,
    pub replayed: Vec<u8>,
    pub how: How,
}

/// What makes two values belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum How {
    /// The name of the place says that it is a secret of this client, which is drawn anew.
    Secret,
    /// The place, and that both look like drawn ones.
    Place,
}

#[derive(Default)]
struct Pairs(Vec<Pair>);

impl Pairs {
    fn add(&mut self, recorded: &[u8], replayed: &[u8], how: How) {
        let long = |value: &[u8]| value.len() >= SHORTEST && words(value).next().is_some();
        if recorded == replayed || !long(recorded) || !long(replayed) {
            return;
        }
        if how == How::Secret || are_generated(recorded, replayed) {
            self.0.push(Pair {
                recorded: recorded.to_vec(),
                replayed: replayed.to_vec(),
                how,
            });
        }
        // What a value is made of stands elsewhere by itself: a session's key, with and without
        // its signature.
        let (one, other) = (percent_decoded(recorded), percent_decoded(replayed));
        let (one, other) = (parts(&one), parts(&other));
        if one.len() > 1 && one.len() == other.len() {
            for (part, other_part) in one.into_iter().zip(other) {
                self.0.extend(generated(part, other_part));
            }
        }
    }
}

/// What a value is made of. What separates it is in no value that is encoded as a whole.
fn parts(value: &[u8]) -> Vec<&[u8]> {
    value.split(|byte| b".:|!~".contains(byte)).collect()
}

fn generated(recorded: &[u8], replayed: &[u8]) -> Option<Pair> {
    let differ = recorded != replayed && are_generated(recorded, replayed);
    differ.then(|| Pair {
        recorded: recorded.to_vec(),
        replayed: replayed.to_vec(),
        how: How::Place,
    })
}

/// Of the headers of two answers.
pub fn of_headers(recorded: &Headers, replayed: &Headers) -> Vec<Pair> {
    if !have_same_names(recorded, replayed) {
        return of_named_headers(recorded, replayed);
    }
    // What is the same in its place says nothing, and that is nearly all of them.
    let both = recorded.iter().zip(replayed);
    let (one, other): (Vec<_>, Vec<_>) = both
        .filter(|(one, other)| one != other)
        .map(|(one, other)| (one.clone(), other.clone()))
        .unzip();
    of_named_headers(&one, &other)
}

fn of_named_headers(recorded: &Headers, replayed: &Headers) -> Vec<Pair> {
    let mut pairs = Pairs::default();
    let cookies = named(cookies(replayed));
    for (name, values) in named(self::cookies(recorded)) {
        for (value, other) in values.iter().zip(cookies.get(name).into_iter().flatten()) {
            pairs.add(value, other, How::Secret);
        }
    }
    let replayed = others(replayed);
    for (name, values) in others(recorded) {
        for (value, other) in values.iter().zip(replayed.get(&name).into_iter().flatten()) {
            if is_secret(&name) {
                pairs.add(value, other, How::Secret);
                continue;
            }
            for (part, other_part) in aligned(value, other) {
                pairs.0.extend(generated(&value[part], &other[other_part]));
            }
        }
    }
    pairs.0
}

/// Whether the headers of two answers have the same names, in the same order.
pub fn have_same_names(one: &Headers, other: &Headers) -> bool {
    one.len() == other.len() && one.iter().zip(other).all(|(one, other)| one.0 == other.0)
}

/// All headers but those that give cookies, by their names.
fn others(headers: &Headers) -> BTreeMap<Vec<u8>, Vec<&[u8]>> {
    let mut named: BTreeMap<_, Vec<&[u8]>> = BTreeMap::new();
    for (name, value) in headers {
        let name = name.to_ascii_lowercase().into_bytes();
        named.entry(name).or_default().push(value);
    }
    named.remove(&b"set-cookie"[..]);
    named
}

/// Of the bodies of two answers, by the names and the paths of places.
pub fn of_bodies(recorded: &[u8], replayed: &[u8]) -> Vec<Pair> {
    let mut pairs = Pairs::default();
    match (parsed(recorded), parsed(replayed)) {
        (Some(recorded), Some(replayed)) => of_json(&recorded, &replayed, "", &mut pairs),
        _ => {
            let replayed = named(fields(replayed));
            for (name, values) in named(fields(recorded)) {
                let how = match is_secret(name) {
                    true => How::Secret,
                    false => How::Place,
                };
                for (value, other) in values.iter().zip(replayed.get(name).into_iter().flatten()) {
                    pairs.add(value, other, how);
                }
            }
        }
    }
    pairs.0
}

/// Of two texts that are the same but for words; none of texts that are not.
pub fn of_texts(recorded: &[u8], replayed: &[u8]) -> Vec<Pair> {
    let all = aligned(recorded, replayed).into_iter();
    all.filter_map(|(part, other)| generated(&recorded[part], &replayed[other]))
        .collect()
}

/// What may be a value of this kind in a recorded answer: what a later request of the client may
/// carry.
pub fn given(headers: &Headers, body: Option<&[u8]>) -> Vec<Vec<u8>> {
    let mut given = given_by_headers(headers);
    given.extend(given_by_body(body.unwrap_or_default()));
    given
}

/// Those of its headers.
pub fn given_by_headers(headers: &Headers) -> Vec<Vec<u8>> {
    let mut given: Vec<Vec<u8>> = cookies(headers).map(|(_, value)| value).collect();
    given.retain(|value| is_given(value));
    for (_, value) in headers {
        let all = words(value).map(|word| &value[word]);
        given.extend(all.filter(|word| is_given(word)).map(<[u8]>::to_vec));
    }
    given
}

/// Those of its body. Most bodies have none, which shows without parsing them.
pub fn given_by_body(body: &[u8]) -> Vec<Vec<u8>> {
    if !may_hold_generated(body) {
        return Vec::new();
    }
    given_by_json(body).unwrap_or_else(|| {
        let all = fields(body).map(|(_, value)| value);
        all.filter(|value| is_given(value)).collect()
    })
}

/// `None`: this is no JSON.
fn given_by_json(body: &[u8]) -> Option<Vec<Vec<u8>>> {
    if !may_be_json(body) {
        return None;
    }
    let mut given = Vec::new();
    let mut json = serde_json::Deserializer::from_slice(body);
    GivenTexts(&mut given).deserialize(&mut json).ok()?;
    json.end().is_ok().then_some(given)
}

/// Collects the texts of a JSON value that look drawn. It is made of no other.
struct GivenTexts<'a>(&'a mut Vec<Vec<u8>>);

impl<'de> DeserializeSeed<'de> for GivenTexts<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for GivenTexts<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_str<E>(self, text: &str) -> Result<(), E> {
        if is_given(text.as_bytes()) {
            self.0.push(text.as_bytes().to_vec());
        }
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut all: A) -> Result<(), A::Error> {
        while all.next_element_seed(GivenTexts(self.0))?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut all: A) -> Result<(), A::Error> {
        while all.next_key::<IgnoredAny>()?.is_some() {
            all.next_value_seed(GivenTexts(self.0))?;
        }
        Ok(())
    }
}

/// Whether it looks drawn, or is the hash of what was redacted.
fn is_given(value: &[u8]) -> bool {
    is_generated(value) || is_hash(value)
}

pub fn is_hash(value: &[u8]) -> bool {
    value.starts_with(MARK.as_bytes())
}

/// Whether a place of this name has a value that is for one client only.
fn is_secret(name: &[u8]) -> bool {
    const PARTS: [&[u8]; 8] = [
        b"csrf", b"xsrf", b"token", b"nonce", b"session", b"verif", b"auth", b"state",
    ];
    let name = name.to_ascii_lowercase();
    let has = |part: &&[u8]| name.windows(part.len()).any(|window| window == *part);
    PARTS.iter().any(has)
}

/// The words of two texts that stand in the same places and differ; none where the texts differ in
/// what is between their words.
fn aligned(one: &[u8], other: &[u8]) -> Vec<(Range<usize>, Range<usize>)> {
    let mut found = Vec::new();
    let (mut at, mut other_at) = (0, 0);
    let (mut of_one, mut of_other) = (words(one), words(other));
    loop {
        let (word, other_word) = match (of_one.next(), of_other.next()) {
            (Some(word), Some(other_word)) => (word, other_word),
            (None, None) => break,
            _ => return Vec::new(),
        };
        if one[at..word.start] != other[other_at..other_word.start] {
            return Vec::new();
        }
        (at, other_at) = (word.end, other_word.end);
        if one[word.clone()] != other[other_word.clone()] {
            found.push((word, other_word));
        }
    }
    match one[at..] == other[other_at..] {
        true => found,
        false => Vec::new(),
    }
}

/// Cookies that an answer gives, without what says how long and where.
fn cookies(headers: &Headers) -> impl Iterator<Item = (&[u8], Vec<u8>)> {
    let set = headers.iter();
    let set = set.filter(|(name, _)| name.eq_ignore_ascii_case("set-cookie"));
    set.filter_map(|(_, value)| {
        let cookie = value.split(|&byte| byte == b';').next()?;
        let at = cookie.iter().position(|&byte| byte == b'=')?;
        let value = cookie[at + 1..].trim_ascii();
        let value = value.strip_prefix(b"\"").unwrap_or(value);
        let value = value.strip_suffix(b"\"").unwrap_or(value);
        Some((cookie[..at].trim_ascii(), value.to_vec()))
    })
}

/// All values by their names, in their order.
fn named<'a>(all: impl Iterator<Item = (&'a [u8], Vec<u8>)>) -> BTreeMap<&'a [u8], Vec<Vec<u8>>> {
    let mut by_name: BTreeMap<_, Vec<_>> = BTreeMap::new();
    all.for_each(|(name, value)| by_name.entry(name).or_default().push(value));
    by_name
}

static TAGS: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r#"(?i-u)<(?:input|meta)\s(?:[^>"']|"[^"]*"|'[^']*')*>"#)
        .expect("it is a regular expression")
});
static ATTRIBUTES: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r#"(?i-u)\b(type|name|id|value|content)\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s>"']+))"#)
        .expect("it is a regular expression")
});

/// Hidden fields of forms, and `meta`, each with its name.
fn fields(page: &[u8]) -> impl Iterator<Item = (&[u8], Vec<u8>)> {
    TAGS.find_iter(page).filter_map(|tag| {
        let mut attributes: BTreeMap<Vec<u8>, &[u8]> = BTreeMap::new();
        for found in ATTRIBUTES.captures_iter(tag.as_bytes()) {
            let value = (2..5).find_map(|group| found.get(group));
            let name = found[1].to_ascii_lowercase();
            attributes.insert(name, value.map_or(&b""[..], |value| value.as_bytes()));
        }
        let of = |name: &str| attributes.get(name.as_bytes()).copied();
        let is_hidden = of("type").is_some_and(|kind| kind.eq_ignore_ascii_case(b"hidden"));
        let value = match is_hidden {
            true => of("value")?,
            false => of("content")?,
        };
        Some((of("name").or_else(|| of("id"))?, unescaped(value)))
    })
}

/// A page's text without the entities that tokens have.
fn unescaped(text: &[u8]) -> Vec<u8> {
    const ENTITIES: [(&[u8], u8); 9] = [
        (b"&#43;", b'+'),
        (b"&#x2b;", b'+'),
        (b"&#x2B;", b'+'),
        (b"&#47;", b'/'),
        (b"&#x2F;", b'/'),
        (b"&#x2f;", b'/'),
        (b"&#61;", b'='),
        (b"&#x3D;", b'='),
        (b"&amp;", b'&'),
    ];
    let mut plain = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(&byte) = rest.first() {
        let entity = ENTITIES.iter().find(|(entity, _)| rest.starts_with(entity));
        let (length, byte) = entity.map_or((1, byte), |(entity, byte)| (entity.len(), *byte));
        plain.push(byte);
        rest = &rest[length..];
    }
    plain
}

/// Only objects and arrays.
fn parsed(body: &[u8]) -> Option<Value> {
    may_be_json(body).then(|| serde_json::from_slice(body).ok())?
}

fn may_be_json(body: &[u8]) -> bool {
    let first = body.iter().find(|byte| !byte.is_ascii_whitespace());
    matches!(first, Some(b'{' | b'['))
}

fn of_json(recorded: &Value, replayed: &Value, name: &str, pairs: &mut Pairs) {
    match (recorded, replayed) {
        (Value::Object(one), Value::Object(other)) => {
            for (name, value) in one {
                let other = other.get(name);
                other
                    .into_iter()
                    .for_each(|other| of_json(value, other, name, pairs));
            }
        }
        (Value::Array(one), Value::Array(other)) if one.len() == other.len() => {
            for (value, other) in one.iter().zip(other) {
                of_json(value, other, name, pairs);
            }
        }
        (Value::String(one), Value::String(other)) if one != other => {
            let (one, other) = (one.as_bytes(), other.as_bytes());
            let how = match is_secret(name.as_bytes()) || is_hash(one) {
                true => How::Secret,
                false => How::Place,
            };
            pairs.add(one, other, how);
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    fn check(pairs: Vec<Pair>, expected: Expect) {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let lines = pairs
            .iter()
            .map(|pair| format!("{} → {}", text(&pair.recorded), text(&pair.replayed)));
        expected.assert_eq(&lines.collect::<Vec<_>>().join("\n"));
    }

    fn headers(all: &[(&str, &str)]) -> Vec<(String, Vec<u8>)> {
        let all = all.iter();
        all.map(|(name, value)| ((*name).to_owned(), value.as_bytes().to_vec()))
            .collect()
    }

    const ONE: &str = "3q27wR9bXk1LmZpT0uYcAvN4sHfGjE6d";
    const TWO: &str = "Zk81LmQ2xR7bT9uYcA0vN4wHfGjE6dXp";

    #[test]
    fn cookies_are_known_by_their_names() {
        let one = headers(&[
            (
                "set-cookie",
                &format!("sid=s%3A{ONE}.{TWO}; Path=/; HttpOnly"),
            ),
            ("Set-Cookie", "lang=de"),
            ("location", &format!("/notes/{ONE}?n=1")),
        ]);
        let other = headers(&[
            ("Set-Cookie", "lang=fr"),
            (
                "Set-Cookie",
                &format!("sid=s%3A{TWO}.{ONE}; Path=/; HttpOnly"),
            ),
            ("location", &format!("/notes/{TWO}?n=1")),
        ]);
        check(
            of_headers(&one, &other),
            expect![[r#"
                s%3A3q27wR9bXk1LmZpT0uYcAvN4sHfGjE6d.Zk81LmQ2xR7bT9uYcA0vN4wHfGjE6dXp → s%3AZk81LmQ2xR7bT9uYcA0vN4wHfGjE6dXp.3q27wR9bXk1LmZpT0uYcAvN4sHfGjE6d
                3q27wR9bXk1LmZpT0uYcAvN4sHfGjE6d → Zk81LmQ2xR7bT9uYcA0vN4wHfGjE6dXp
                Zk81LmQ2xR7bT9uYcA0vN4wHfGjE6dXp → 3q27wR9bXk1LmZpT0uYcAvN4sHfGjE6d
                3q27wR9bXk1LmZpT0uYcAvN4sHfGjE6d → Zk81LmQ2xR7bT9uYcA0vN4wHfGjE6dXp"#]],
        );
    }

    #[test]
    fn hidden_fields_are_known_by_their_names_whatever_else_a_page_says() {
        let page = |csrf: &str, text: &str| {
            format!(
                r#"<meta name="csrf-token" content='{csrf}'><p>{text}</p>
                <input type="hidden" name=csrf_token value="{csrf}x&#43;y=="><input name=title value="{text}">
                <input type=hidden name="version" value="version-{text}">"#
            )
        };
        check(
            of_bodies(
                page(ONE, "one").as_bytes(),
                page(TWO, "two more").as_bytes(),
            ),
            expect![[r#"
                3q27wR9bXk1LmZpT0uYcAvN4sHfGjE6d → Zk81LmQ2xR7bT9uYcA0vN4wHfGjE6dXp
                3q27wR9bXk1LmZpT0uYcAvN4sHfGjE6dx+y== → Zk81LmQ2xR7bT9uYcA0vN4wHfGjE6dXpx+y=="#]],
        );
    }

    #[test]
    fn values_of_json_are_known_by_their_paths() {
        let (uuid, other) = (
            "6f2c1c5e-5cf4-4b0c-9d3f-2f6e7a8b9c0d",
            "7f2c1c5e-5cf4-4b0c-9d3f-2f6e7a8b9c0d",
        );
        let body = |token: &str, id: &str, title: &str| {
            format!(r#"{{"token":"{token}","note":{{"id":"{id}","title":"{title}"}},"n":1}}"#)
        };
        check(
            of_bodies(
                body("redacted-0123456789abcdef", uuid, "a title of a note").as_bytes(),
                body(TWO, other, "another title of it").as_bytes(),
            ),
            expect![[r#"
                6f2c1c5e-5cf4-4b0c-9d3f-2f6e7a8b9c0d → 7f2c1c5e-5cf4-4b0c-9d3f-2f6e7a8b9c0d
                redacted-0123456789abcdef → Zk81LmQ2xR7bT9uYcA0vN4wHfGjE6dXp"#]],
        );
    }

    #[test]
    fn words_of_a_text_are_known_by_what_is_around_them() {
        let text = |id: &str, more: &str| format!("<a href='/notes/{id}'>{more}</a>");
        let pairs = |one: &str, other: &str| of_texts(one.as_bytes(), other.as_bytes());
        check(
            pairs(&text(ONE, "a"), &text(TWO, "a")),
            expect!["3q27wR9bXk1LmZpT0uYcAvN4sHfGjE6d → Zk81LmQ2xR7bT9uYcA0vN4wHfGjE6dXp"],
        );
        check(pairs(&text(ONE, "a"), &text(TWO, "a <b>")), expect![""]);
    }
}
