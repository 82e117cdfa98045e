//! Leaves secrets out of what is recorded.
//!
//! Pure: [`Rules`] and bytes in, bytes out. A secret is replaced where it stands, and everything
//! around it stays as it was: JSON stays JSON, a form stays a form.
//!
//! ```text
//!            recorded                          compared, in a replay
//!  value ──▶ With::Hash: redacted-5f1c…    ──▶ With::Mask: redacted  ◀── value of the replay
//! ```
//!
//! What is recorded is a keyed hash: equal values stay equal, within what one recorder wrote. What
//! is compared is the same for all values, and a response's digest is over that, so a replay needs
//! no key. The rules are in the trace, and applied again they find the same places.
//!
//! Start reading at [`Redactor`]. The invariant: **masking what was hashed gives the same as
//! masking what was there before**, so a replay that only carries a secret through is not
//! different.

mod call;
mod card;
mod form;
mod found;
mod json;
mod rules;
mod sql;
mod value;

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::sync::Arc;

use hindcast_trace::{Request, Response, Sealer, Secrets, TransactionId};
use http::HeaderMap;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderValue};

use found::{Found, Kind, replace};
pub use rules::{Rule, RuleError, RuleNumber, Rules};
pub use value::{Key, MARK, With, hash_in_sql, holds_hash};

type Headers = [(String, Vec<u8>)];

/// Longer bodies of responses are not looked into; they are longer than what is kept, too.
pub const BODY_BYTES_MAX: usize = 1 << 20;

/// Why a body could not be looked into.
const OPAQUE: &str = "its body cannot be looked into for what is to be redacted: ";

/// The rules of a recorder and its key.
#[derive(Clone, Debug)]
pub struct Redactor {
    rules: Rules,
    /// Finds who sent a request; empty if nobody asked.
    users: Rules,
    key: Key,
    /// Keeps what is taken out of requests and transactions, for who has the key.
    sealer: Option<Arc<Sealer>>,
}

/// Without rules.
impl Default for Redactor {
    fn default() -> Self {
        Self::new(Rules::default())
    }
}

impl Redactor {
    /// With a key that nothing else has.
    pub fn new(rules: Rules) -> Self {
        Self {
            rules,
            users: Rules::default(),
            key: Key::random(),
            sealer: None,
        }
    }

    /// With a key that the caller has, to hash other things by it.
    pub fn with_key(rules: Rules, key: &[u8; 32]) -> Self {
        Self {
            key: Key::of(key),
            ..Self::new(rules)
        }
    }

    /// What is taken out of requests and transactions is kept, sealed.
    pub fn keeping(self, sealer: Option<Sealer>) -> Self {
        Self {
            sealer: sealer.map(Arc::new),
            ..self
        }
    }

    /// A request has the first value that these find as its user.
    pub fn knowing_users_by(self, users: Rules) -> Self {
        Self { users, ..self }
    }

    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// Takes the secrets out of a request, and out of its response but for the body, and finds its
    /// user in what is left: who is redacted is a hash. Without its body, if that cannot be looked
    /// into, a request cannot be sent again: it counts as not recorded.
    pub fn request(&self, request: &mut Request) {
        if !self.rules.is_empty() {
            self.redact(request);
        }
        request.user_id = self.user_of(request);
    }

    fn user_of(&self, request: &Request) -> Option<String> {
        if self.users.is_empty() {
            return None;
        }
        let found = self.users.secrets_in(request).into_iter().next()?;
        Some(String::from_utf8_lossy(&found).into_owned())
    }

    fn redact(&self, request: &mut Request) {
        let sealer = self.sealer.as_deref();
        let found = sealer.filter(|_| !self.rules.applied_to_request(request).is_empty());
        request.secrets = found.map_or(Secrets::None, |sealer| sealer.seal(request));
        let with = With::Hash(&self.key);
        let before = request.body.len();
        match self.rules.body(&request.headers, &request.body, &with) {
            Looked::Found(body, _) => request.body = body,
            Looked::Nothing => {}
            Looked::Opaque(why) => {
                request.body = Vec::new();
                request.response = Response::Unrecorded {
                    reason: format!("{OPAQUE}{why}"),
                };
            }
        }
        if let Some((target, _)) = self.rules.target(&request.target, &with) {
            request.target = target;
        }
        self.rules.headers(&mut request.headers, &with);
        if request.body.len() != before {
            set_length(&mut request.headers, request.body.len());
        }
        if let Response::Answered { headers, .. } = &mut request.response {
            self.rules.headers(headers, &with);
        }
    }

    /// Takes the secrets out of the headers of an answer.
    fn answer_headers(&self, headers: &mut [(String, Vec<u8>)]) {
        self.rules.headers(headers, &With::Hash(&self.key));
    }

    /// Whether the body of a response may hold something, so that it has to be seen as a whole.
    pub fn wants(&self, headers: &HeaderMap) -> bool {
        let text = |name| {
            let value: Option<&HeaderValue> = headers.get(name);
            value.map_or(&b""[..], HeaderValue::as_bytes)
        };
        self.rules.look_into_bodies()
            && kind_of(text(CONTENT_TYPE), text(CONTENT_ENCODING), None) != BodyKind::Other
    }

    /// A response's body as it is kept, and as it is compared. `None`: there is nothing to redact.
    /// Opaque bodies are not kept.
    pub fn response_body(&self, headers: &Headers, body: &[u8]) -> Option<RedactedBody> {
        match self.rules.body(headers, body, &With::Hash(&self.key)) {
            Looked::Found(kept, _) => Some(RedactedBody {
                kept: Some(kept),
                compared: self.rules.masked_body(headers, body).into_owned(),
            }),
            Looked::Nothing => None,
            Looked::Opaque(_) => Some(RedactedBody {
                kept: None,
                compared: body.to_vec(),
            }),
        }
    }

    /// Keeps what the server answered a transaction and what its client sent, for who has the key.
    pub fn sealed(&self, id: TransactionId, server: &[u8], client: &[u8]) -> Secrets {
        let sealer = self.sealer.as_deref();
        sealer.map_or(Secrets::None, |sealer| {
            sealer.seal_bytes(id, server, client)
        })
    }

    /// What the server answered an aborted transaction.
    pub fn server_bytes(&self, bytes: &[u8]) -> Vec<u8> {
        sql::server_bytes(bytes, &self.rules, &With::Hash(&self.key))
    }

    /// What the client of a ghost sent. An error says what cannot be looked into.
    pub fn client_bytes(&self, bytes: &[u8]) -> Result<Vec<u8>, &'static str> {
        sql::client_bytes(bytes, &self.rules, &With::Hash(&self.key))
    }
}

/// A response's body without its secrets.
#[derive(Debug, PartialEq, Eq)]
pub struct RedactedBody {
    /// With hashes in the places of secrets; `None` if it may not be kept.
    pub kept: Option<Vec<u8>>,
    /// With the same for all: what digest and length are of.
    pub compared: Vec<u8>,
}

/// What became of a body.
enum Looked {
    Nothing,
    Found(Vec<u8>, Vec<RuleNumber>),
    Opaque(&'static str),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BodyKind {
    Json,
    Form,
    Parts,
    /// Compressed: nothing is known of it.
    Encoded,
    /// Images, pages, text: no rule is about them.
    Other,
}

/// How these headers compare with others: as they would be recorded, but with one value for all
/// secrets.
impl Rules {
    pub fn masked_headers<'a>(&self, headers: &'a Headers) -> Cow<'a, Headers> {
        if self.is_empty() {
            return Cow::Borrowed(headers);
        }
        let mut masked = headers.to_vec();
        self.headers(&mut masked, &With::Mask);
        Cow::Owned(masked)
    }

    pub fn masked_body<'a>(&self, headers: &Headers, body: &'a [u8]) -> Cow<'a, [u8]> {
        if body.len() > BODY_BYTES_MAX {
            return Cow::Borrowed(body);
        }
        match self.body(headers, body, &With::Mask) {
            Looked::Found(masked, _) => Cow::Owned(masked),
            Looked::Nothing | Looked::Opaque(_) => Cow::Borrowed(body),
        }
    }

    /// What a client sent, or would have, with one value for all secrets. An error says what cannot
    /// be looked into.
    pub fn masked_client_bytes(&self, bytes: &[u8]) -> Result<Vec<u8>, &'static str> {
        sql::client_bytes(bytes, self, &With::Mask)
    }

    /// The same of what it was answered.
    pub fn masked_server_bytes(&self, bytes: &[u8]) -> Vec<u8> {
        sql::server_bytes(bytes, self, &With::Mask)
    }

    /// What these rules find in a request: in its headers, then in its body, then in its target.
    pub fn secrets_in(&self, request: &Request) -> Vec<Vec<u8>> {
        let secrets = RefCell::default();
        let with = With::Collect(&secrets);
        self.headers(&mut request.headers.clone(), &with);
        self.body(&request.headers, &request.body, &with);
        self.target(&request.target, &with);
        secrets.into_inner()
    }

    /// The rules that found something in a recorded request.
    pub fn applied_to_request(&self, request: &Request) -> BTreeSet<RuleNumber> {
        let mut applied = self.applied_to(&request.headers, &request.body);
        if let Some((_, rules)) = self.target(&request.target, &With::Mask) {
            applied.extend(rules);
        }
        applied
    }

    /// And in its response.
    pub fn applied_to_response(&self, response: &Response) -> BTreeSet<RuleNumber> {
        match response {
            Response::Answered { headers, body, .. } => {
                self.applied_to(headers, body.as_deref().unwrap_or_default())
            }
            _ => BTreeSet::new(),
        }
    }

    fn applied_to(&self, headers: &Headers, body: &[u8]) -> BTreeSet<RuleNumber> {
        let mut applied = self.headers(&mut headers.to_vec(), &With::Mask);
        if let Looked::Found(_, rules) = self.body(headers, body, &With::Mask) {
            applied.extend(rules);
        }
        applied
    }

    fn body(&self, headers: &Headers, body: &[u8], with: &With<'_>) -> Looked {
        if body.is_empty() || !self.look_into_bodies() {
            return Looked::Nothing;
        }
        let found = match kind_in(headers, body) {
            BodyKind::Other => return Looked::Nothing,
            BodyKind::Encoded => return Looked::Opaque("it is compressed"),
            BodyKind::Json => match json::find(body, self) {
                Some(found) => found,
                None => return Looked::Opaque("it is not the JSON that it says it is"),
            },
            BodyKind::Form => form::find(body, 0, self),
            BodyKind::Parts => {
                let content_type = String::from_utf8_lossy(header(headers, "content-type"));
                match form::find_in_parts(body, &content_type, self) {
                    Some(found) => found,
                    None => return Looked::Opaque("its parts cannot be told apart"),
                }
            }
        };
        match found.is_empty() {
            true => Looked::Nothing,
            false => Looked::Found(replace(body, &found, with), rules_of(&found)),
        }
    }

    /// The query of a request's target.
    fn target(&self, target: &str, with: &With<'_>) -> Option<(String, Vec<RuleNumber>)> {
        let query = target.find('?')? + 1;
        let found = form::find(&target.as_bytes()[query..], query, self);
        if found.is_empty() {
            return None;
        }
        let replaced = replace(target.as_bytes(), &found, with);
        let replaced = String::from_utf8(replaced).ok()?;
        Some((replaced, rules_of(&found)))
    }

    /// With the rules that found something.
    fn headers(&self, headers: &mut [(String, Vec<u8>)], with: &With<'_>) -> BTreeSet<RuleNumber> {
        let mut applied = BTreeSet::new();
        for (name, value) in headers {
            // `:fastcgi:NAME` is no header, and found by NAME.
            let called = name.rsplit(':').next().unwrap_or(name);
            let fits =
                |rule: &Rule| matches!(rule, Rule::Header(of) if of.eq_ignore_ascii_case(called));
            let whole = self.find(fits);
            let found = match () {
                () if name.eq_ignore_ascii_case("cookie") => self.cookies(value, b';', whole),
                () if name.eq_ignore_ascii_case("set-cookie") => self.cookies(value, b'\0', whole),
                () if called == "QUERY_STRING" && whole.is_none() => form::find(value, 0, self),
                () => whole
                    .map(|rule| secret_part(value, rule))
                    .into_iter()
                    .collect(),
            };
            if !found.is_empty() {
                *value = replace(value, &found, with);
                applied.extend(rules_of(&found));
            }
        }
        applied
    }

    /// The values of cookies, by their names. Of a `Set-Cookie`, where nothing separates cookies,
    /// only what is in front of the attributes.
    fn cookies(&self, value: &[u8], separator: u8, whole: Option<RuleNumber>) -> Vec<Found> {
        let end = match separator {
            b'\0' => value
                .iter()
                .position(|&byte| byte == b';')
                .unwrap_or(value.len()),
            _ => value.len(),
        };
        let mut found = Vec::new();
        let mut at = 0;
        for cookie in value[..end].split(|&byte| byte == separator) {
            if let Some(equals) = cookie.iter().position(|&byte| byte == b'=') {
                let name = String::from_utf8_lossy(&cookie[..equals]);
                let name = name.trim();
                let fits = |rule: &Rule| matches!(rule, Rule::Cookie(cookie) if cookie == "*" || cookie == name);
                let rule = whole.or_else(|| self.find(fits));
                let (start, end) = (at + equals + 1, at + cookie.len());
                found.extend(rule.filter(|_| start < end).map(|rule| Found {
                    range: start..end,
                    rule,
                    kind: Kind::Plain,
                }));
            }
            at += cookie.len() + 1;
        }
        found
    }
}

fn rules_of(found: &[Found]) -> Vec<RuleNumber> {
    found.iter().map(|found| found.rule).collect()
}

/// What is secret of a header: all but the scheme of `Authorization: Bearer …`.
fn secret_part(value: &[u8], rule: RuleNumber) -> Found {
    let scheme = value.iter().position(|&byte| byte == b' ');
    let scheme = scheme.filter(|&end| value[..end].iter().all(u8::is_ascii_alphabetic));
    Found {
        range: scheme.map_or(0, |end| end + 1)..value.len(),
        rule,
        kind: Kind::Plain,
    }
}

/// Empty if there is none.
fn header<'a>(headers: &'a Headers, name: &str) -> &'a [u8] {
    let found = headers
        .iter()
        .find(|(given, _)| given.eq_ignore_ascii_case(name));
    found.map_or(&b""[..], |(_, value)| value)
}

fn kind_in(headers: &Headers, body: &[u8]) -> BodyKind {
    let (content_type, encoding) = (
        header(headers, "content-type"),
        header(headers, "content-encoding"),
    );
    kind_of(content_type, encoding, Some(body))
}

/// What a body is, by its headers; where these do not say, by its first byte.
fn kind_of(content_type: &[u8], encoding: &[u8], body: Option<&[u8]>) -> BodyKind {
    let media_type = content_type.split(|&byte| byte == b';').next();
    let media_type = media_type.unwrap_or_default().trim_ascii();
    let is = |name: &str| media_type.eq_ignore_ascii_case(name.as_bytes());
    let ends = |end: &str| {
        let start = media_type.len().saturating_sub(end.len());
        media_type[start..].eq_ignore_ascii_case(end.as_bytes())
    };
    let kind = match body {
        _ if is("application/x-www-form-urlencoded") => BodyKind::Form,
        _ if is("multipart/form-data") => BodyKind::Parts,
        _ if is("application/json") || is("text/json") || ends("+json") || ends("ndjson") => {
            BodyKind::Json
        }
        _ if !media_type.is_empty() => BodyKind::Other,
        None | Some([b'{' | b'[', ..]) => BodyKind::Json,
        Some(_) => BodyKind::Other,
    };
    match encoding.trim_ascii() {
        b"" | b"identity" => kind,
        _ if kind == BodyKind::Other => kind,
        _ => BodyKind::Encoded,
    }
}

fn set_length(headers: &mut [(String, Vec<u8>)], length: usize) {
    for (name, value) in headers {
        if name.eq_ignore_ascii_case("content-length") {
            *value = length.to_string().into_bytes();
        }
    }
}

#[cfg(test)]
mod tests;
