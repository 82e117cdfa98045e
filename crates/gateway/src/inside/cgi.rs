//! Requests as CGI has them: variables, of which some were headers. [`variables`] makes of a
//! recorded request what [`request`] made it of.

use hindcast_trace::Request;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, LOCATION};

use crate::http::RequestHead;
use crate::messages::Asked;
use crate::messages::Body;
use crate::messages::Malformed;

/// Names and values.
pub(super) type Variables<'a> = Vec<(&'a [u8], &'a [u8])>;

const QUERY: &[u8] = b"QUERY_STRING";

/// Variables that are told by other parts of a recorded request.
const TOLD: [&[u8]; 5] = [
    b"REQUEST_METHOD",
    b"REQUEST_URI",
    b"QUERY_STRING",
    b"CONTENT_TYPE",
    b"CONTENT_LENGTH",
];

/// A request of these variables, and where its body ends. What was no header is kept as
/// `:PROTOCOL:NAME`: no header is called so.
pub(super) fn request(
    protocol: &str,
    variables: &[(&[u8], &[u8])],
) -> (RequestHead, Asked, Option<Body>) {
    let variable = |name: &[u8]| {
        let found = variables.iter().find(|(given, _)| *given == name);
        found.map_or(&b""[..], |(_, value)| value)
    };
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let target = target(variable(b"REQUEST_URI"), variable);
    let is_kept = |name: &[u8], value: &[u8]| match name {
        QUERY => !is_query_of(value, &target),
        _ => !TOLD.contains(&name) && !repeats_query(name, value, variable(QUERY)),
    };
    let mut headers = HeaderMap::new();
    let mut parameters = Vec::new();
    for &(name, value) in variables {
        if let Some(name) = name.strip_prefix(b"HTTP_") {
            append(&mut headers, header_name(name), value);
        } else if is_kept(name, value) {
            parameters.push((format!(":{protocol}:{}", text(name)), value.to_vec()));
        }
    }
    let (content_type, length) = (variable(b"CONTENT_TYPE"), variable(b"CONTENT_LENGTH"));
    for (name, value) in [(CONTENT_TYPE, content_type), (CONTENT_LENGTH, length)] {
        if !value.is_empty() && !headers.contains_key(&name) {
            append(&mut headers, Some(name), value);
        }
    }
    if parameters.is_empty() {
        // Who sends it again has to know how it came.
        parameters.push((format!(":{protocol}:"), Vec::new()));
    }
    let method = text(variable(b"REQUEST_METHOD"));
    let asked = Asked {
        head_only: method == "HEAD",
        ..Asked::default()
    };
    let length = text(length).trim().parse().ok();
    let head = RequestHead {
        method,
        target,
        authority: None,
        headers,
        parameters,
    };
    (
        head,
        asked,
        length.filter(|&length| length > 0).map(Body::Length),
    )
}

/// The variables that a recorded request came as. Those that web servers give to each request are
/// there if they are empty, too. `traceparent`: its header of that name.
pub(super) fn variables(
    protocol: &str,
    request: &Request,
    traceparent: Option<&str>,
) -> Vec<(Vec<u8>, Vec<u8>)> {
    let header = |name: &HeaderName| {
        let mut found = request.headers.iter();
        found
            .find(|(given, _)| given == name.as_str())
            .map(|(_, value)| value.clone())
    };
    let length = match header(&CONTENT_LENGTH) {
        None if request.body.is_empty() => Vec::new(),
        _ => request.body.len().to_string().into_bytes(),
    };
    let (_, query) = request.target.split_once('?').unwrap_or_default();
    let told = [
        (&b"REQUEST_METHOD"[..], request.method.clone().into_bytes()),
        (b"REQUEST_URI", request.target.clone().into_bytes()),
        (QUERY, query.into()),
        (b"CONTENT_TYPE", header(&CONTENT_TYPE).unwrap_or_default()),
        (b"CONTENT_LENGTH", length),
    ];
    let mut kept = Vec::new();
    for (name, value) in &request.headers {
        if let Some(name) = name.strip_prefix(':') {
            let name = name
                .strip_prefix(protocol)
                .and_then(|n| n.strip_prefix(':'));
            let name = name.filter(|name| !name.is_empty());
            kept.extend(name.map(|name| (name.as_bytes().to_vec(), value.clone())));
        } else if ![CONTENT_LENGTH.as_str(), CONTENT_TYPE.as_str()].contains(&name.as_str()) {
            kept.push((header_variable(name), value.clone()));
        }
    }
    kept.extend(traceparent.map(|value| (header_variable("traceparent"), value.into())));
    let is_told_apart = |name: &[u8]| kept.iter().any(|(kept, _)| kept == name);
    let mut all: Vec<_> = told
        .into_iter()
        .filter(|(name, _)| !is_told_apart(name))
        .map(|(name, value)| (name.to_vec(), value))
        .collect();
    all.extend(kept);
    all
}

/// `accept-language` is `HTTP_ACCEPT_LANGUAGE`.
fn header_variable(name: &str) -> Vec<u8> {
    format!("HTTP_{}", name.replace('-', "_").to_ascii_uppercase()).into_bytes()
}

/// A web server may rewrite the query on its way to the service.
fn is_query_of(value: &[u8], target: &str) -> bool {
    let (_, query) = target.split_once('?').unwrap_or_default();
    value == query.as_bytes()
}

/// The query stands there again, and what is secret in it would not be found.
fn repeats_query(name: &[u8], value: &[u8], query: &[u8]) -> bool {
    let asked = [b"?", query].concat();
    name.ends_with(b"QUERY_STRING")
        || !query.is_empty() && memchr::memmem::find(value, &asked).is_some()
}

/// As the client sent it if the server says so; else what it was taken apart to.
fn target<'a>(whole: &[u8], variable: impl Fn(&[u8]) -> &'a [u8]) -> String {
    if !whole.is_empty() {
        return String::from_utf8_lossy(whole).into_owned();
    }
    let mut target = [variable(b"SCRIPT_NAME"), variable(b"PATH_INFO")].concat();
    if target.is_empty() {
        target.push(b'/');
    }
    let query = variable(b"QUERY_STRING");
    if !query.is_empty() {
        target.push(b'?');
        target.extend_from_slice(query);
    }
    String::from_utf8_lossy(&target).into_owned()
}

/// `ACCEPT_LANGUAGE` is `accept-language`.
fn header_name(variable: &[u8]) -> Option<HeaderName> {
    let name: Vec<u8> = variable
        .iter()
        .map(|&byte| match byte {
            b'_' => b'-',
            byte => byte.to_ascii_lowercase(),
        })
        .collect();
    HeaderName::from_bytes(&name).ok()
}

fn append(headers: &mut HeaderMap, name: Option<HeaderName>, value: &[u8]) {
    if let (Some(name), Ok(value)) = (name, HeaderValue::from_bytes(value)) {
        headers.append(name, value);
    }
}

/// The status that a CGI program's headers say, and those that are its answer's.
pub(super) fn answer(headers: &HeaderMap) -> Result<(u16, HeaderMap), Malformed> {
    let status = match headers.get("status") {
        Some(status) => {
            let digits = status.as_bytes().get(..3).ok_or(Malformed)?;
            let digits = std::str::from_utf8(digits).map_err(|_| Malformed)?;
            digits.parse().map_err(|_| Malformed)?
        }
        None if headers.contains_key(LOCATION) => 302,
        None => 200,
    };
    let rest = headers.iter().filter(|(name, _)| *name != "status");
    let rest = rest.map(|(name, value)| (name.clone(), value.clone()));
    let mut own = HeaderMap::with_capacity(headers.len());
    for (name, value) in rest {
        own.append(name, value);
    }
    Ok((status, own))
}
