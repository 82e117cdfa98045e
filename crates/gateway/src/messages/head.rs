//! The heads of HTTP messages.

use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Uri, Version};

use super::Malformed;
use super::body::Body;
use crate::http::{RequestHead, requested_upgrade};

/// Longer ones are taken for something else.
const BYTES_MAX: usize = 1 << 20;
const HEADERS: usize = 100;
const HEADERS_MAX: usize = 4000;

/// A head as far as it has come.
#[derive(Debug, Default)]
pub(crate) struct Gathered {
    bytes: Vec<u8>,
}

impl Gathered {
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Takes a head off the bytes, its empty line included, and gives it away; `None` if it goes on
    /// in bytes that are still to come.
    pub fn take<T>(
        &mut self,
        bytes: &mut &[u8],
        whole: impl FnOnce(&[u8]) -> T,
    ) -> Result<Option<T>, Malformed> {
        if self.bytes.is_empty()
            && let Some(end) = end_of_head(bytes, 0)
        {
            let (head, rest) = bytes.split_at(end);
            *bytes = rest;
            return Ok(Some(whole(head)));
        }
        let before = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        // Its end may be two bytes of before and one of now.
        let Some(end) = end_of_head(&self.bytes, before.saturating_sub(2)) else {
            *bytes = &[];
            return match self.bytes.len() > BYTES_MAX {
                true => Err(Malformed),
                false => Ok(None),
            };
        };
        *bytes = &bytes[end - before..];
        self.bytes.truncate(end);
        let head = whole(&self.bytes);
        self.bytes.clear();
        Ok(Some(head))
    }
}

/// Where the empty line ends that ends a head. It is looked for from `from` on.
fn end_of_head(bytes: &[u8], from: usize) -> Option<usize> {
    memchr::memchr_iter(b'\n', &bytes[from..]).find_map(|at| {
        let next = from + at + 1;
        match bytes[next..] {
            [b'\n', ..] => Some(next + 1),
            [b'\r', b'\n', ..] => Some(next + 2),
            _ => None,
        }
    })
}

/// What a request's head says, and where its body ends; `None`: it has none.
pub(crate) fn request(bytes: &[u8]) -> Result<(RequestHead, Asked, Option<Body>), Malformed> {
    with_headers(|room| {
        let mut request = httparse::Request::new(room);
        let parsed = request.parse(bytes);
        let (Some(method), Some(target)) = (request.method, request.path) else {
            return Err(parsed.err());
        };
        whole(parsed)?;
        let headers = map(request.headers);
        let version = match request.version {
            Some(1) => Version::HTTP_11,
            _ => Version::HTTP_10,
        };
        let asked = Asked {
            head_only: method == "HEAD",
            connect: method == "CONNECT",
            upgrade: requested_upgrade(&headers, version),
        };
        let body = match framing(&headers) {
            Ok(body) => body,
            Err(Malformed) => return Err(None),
        };
        let (target, authority) = split_target(target);
        let head = RequestHead {
            method: method.to_owned(),
            target,
            authority,
            parameters: kept_open(&headers).into_iter().collect(),
            headers,
        };
        // A response is read until the connection closes; a request that says nothing has no body.
        Ok((head, asked, body))
    })
}

/// Whether the client wants its connection kept, if it says so: it is the connection's business and
/// not the request's, but some services show it, and close what they are asked to.
fn kept_open(headers: &HeaderMap) -> Option<(String, Vec<u8>)> {
    let value = headers.get(header::CONNECTION)?.as_bytes();
    let is_known = [&b"close"[..], b"keep-alive"]
        .iter()
        .any(|known| value.eq_ignore_ascii_case(known));
    is_known.then(|| (header::CONNECTION.as_str().to_owned(), value.to_vec()))
}

/// Path and query, and the host if the target is a whole URL.
fn split_target(target: &str) -> (String, Option<String>) {
    let is_url = !target.starts_with('/') && target.contains("://");
    match target.parse::<Uri>() {
        Ok(url) if is_url => {
            let path = url.path_and_query().map_or("/", |path| path.as_str());
            let host = url.authority().map(|host| host.as_str().to_owned());
            (path.to_owned(), host)
        }
        _ => (target.to_owned(), None),
    }
}

/// What has to be known of a request to read its answer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Asked {
    /// HEAD: the answer has no body.
    pub head_only: bool,
    pub connect: bool,
    pub upgrade: Option<HeaderValue>,
}

impl Asked {
    /// What follows may be another protocol.
    pub fn changes_protocol(&self) -> bool {
        self.connect || self.upgrade.is_some()
    }
}

/// What an answer's head says.
#[derive(Debug)]
pub(crate) struct AnswerHead {
    pub status: u16,
    pub headers: HeaderMap,
}

impl AnswerHead {
    /// Where the body ends that follows it, if the request permits one.
    pub fn body(&self, asked: &Asked) -> Result<Option<Body>, Malformed> {
        match self.status {
            _ if asked.head_only => Ok(None),
            100..=199 | 204 | 304 => Ok(None),
            _ => Ok(Some(framing(&self.headers)?.unwrap_or(Body::UntilClosed))),
        }
    }
}

pub(crate) fn answer(bytes: &[u8]) -> Result<AnswerHead, Malformed> {
    with_headers(|room| {
        let mut answer = httparse::Response::new(room);
        let mut config = httparse::ParserConfig::default();
        config
            .allow_spaces_after_header_name_in_responses(true)
            .allow_obsolete_multiline_headers_in_responses(true)
            .ignore_invalid_headers_in_responses(true);
        let parsed = config.parse_response(&mut answer, bytes);
        let status = answer.code;
        whole(parsed)?;
        Ok(AnswerHead {
            status: status.ok_or(None)?,
            headers: map(answer.headers),
        })
    })
}

/// Lines of headers and an empty one: trailers, and what a CGI program says.
pub(crate) fn fields(bytes: &[u8]) -> Result<HeaderMap, Malformed> {
    with_headers(|room| match httparse::parse_headers(bytes, room) {
        Ok(httparse::Status::Complete((_, headers))) => Ok(map(headers)),
        Ok(httparse::Status::Partial) => Err(None),
        Err(error) => Err(Some(error)),
    })
}

/// Gives room for headers, and more of it if that is not enough.
fn with_headers<'b, T>(
    parse: impl Fn(&mut [httparse::Header<'b>]) -> Result<T, Option<httparse::Error>>,
) -> Result<T, Malformed> {
    let few = &mut [httparse::EMPTY_HEADER; HEADERS];
    match parse(few) {
        Err(Some(httparse::Error::TooManyHeaders)) => {
            let mut many = vec![httparse::EMPTY_HEADER; HEADERS_MAX];
            parse(&mut many).map_err(|_| Malformed)
        }
        parsed => parsed.map_err(|_| Malformed),
    }
}

fn whole(parsed: httparse::Result<usize>) -> Result<(), Option<httparse::Error>> {
    match parsed {
        Ok(httparse::Status::Complete(_)) => Ok(()),
        Ok(httparse::Status::Partial) => Err(None),
        Err(error) => Err(Some(error)),
    }
}

fn map(headers: &[httparse::Header<'_>]) -> HeaderMap {
    let mut map = HeaderMap::with_capacity(headers.len());
    for header in headers {
        let name = HeaderName::from_bytes(header.name.as_bytes());
        let value = HeaderValue::from_bytes(header.value);
        if let (Ok(name), Ok(value)) = (name, value) {
            map.append(name, value);
        }
    }
    map
}

/// `None` if the headers say nothing of a body.
fn framing(headers: &HeaderMap) -> Result<Option<Body>, Malformed> {
    let mut codings = headers.get_all(header::TRANSFER_ENCODING).iter();
    if let Some(last) = codings.next_back() {
        let last = last.as_bytes().rsplit(|&byte| byte == b',').next();
        let last = last.unwrap_or_default().trim_ascii();
        return match last.eq_ignore_ascii_case(b"chunked") {
            true => Ok(Some(Body::chunked())),
            false if last.eq_ignore_ascii_case(b"identity") => length(headers),
            false => Ok(Some(Body::UntilClosed)),
        };
    }
    length(headers)
}

fn length(headers: &HeaderMap) -> Result<Option<Body>, Malformed> {
    let Some(length) = headers.get(header::CONTENT_LENGTH) else {
        return Ok(None);
    };
    // `5, 5` is what some make of two equal headers.
    let text = length.to_str().map_err(|_| Malformed)?;
    let first = text.split(',').next().unwrap_or_default().trim();
    match first.bytes().all(|byte| byte.is_ascii_digit()) {
        true => Ok(Some(Body::Length(first.parse().map_err(|_| Malformed)?))),
        false => Err(Malformed),
    }
}
