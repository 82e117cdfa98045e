//! A request and its response on their way to becoming a record.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use hindcast_model::Traceparent;
use hindcast_taplog::pins;
use hindcast_trace::{Call, Digest, Micros, Request, RequestId, Response};
use http::Version;
use http::header::{self, HeaderMap, HeaderValue};
use http::request::Parts;
use serde::{Deserialize, Serialize};

use super::digest::BodyDigest;
use super::headers;
use crate::redact::{BODY_BYTES_MAX, Redactor};

/// Resolves when something would survive a crash.
pub type Durable = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Who is told about requests.
pub trait Witness: Send + Sync + 'static {
    /// A request has arrived; from now on it is in flight. `None`: there are too many.
    fn arrived(&self) -> Option<Arrival>;

    /// A request had arrived at that time, and has this number. `None`: there are too many, or this
    /// is no number that a request can have.
    fn arrived_before(&self, number: u64, at: Micros) -> Option<Arrival>;

    /// It is in flight no more. Called exactly once for every arrival.
    fn ended(&self, request: Request);

    /// Resolves when everything that was told so far would survive a crash. `None`: responses need
    /// not wait for that.
    fn durable(&self) -> Option<Durable>;

    /// Whether who can wait may tell more now. Who cannot wait tells it anyway.
    fn has_room(&self) -> bool {
        true
    }

    /// Requests may be missing that arrived in this period.
    fn missed(&self, from: Micros, to: Micros, reason: &str);

    fn now(&self) -> Micros;
}

/// What a request is given when it arrives.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    pub id: RequestId,
    pub at: Micros,
    pub traceparent: Traceparent,
}

/// How much of a request is kept.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Limits {
    /// A longer request body goes through, but the request cannot be replayed.
    pub request_body_max: usize,
    /// Of a longer response body only digest and length are kept; also of one of more than
    /// 1 KiB that is no text.
    pub response_body_max: usize,
}

/// What differs in an image, nobody reads.
const OPAQUE_BODY_MAX: usize = 1 << 10;

impl Default for Limits {
    fn default() -> Self {
        Self {
            request_body_max: 1 << 20,
            response_body_max: 64 << 10,
        }
    }
}

impl Limits {
    /// How long the body of a response with these headers may be to be kept.
    fn response_body_max(&self, headers: &HeaderMap) -> usize {
        const TEXT: [&str; 5] = ["text/", "json", "xml", "javascript", "urlencoded"];
        let kind = headers.get(header::CONTENT_TYPE);
        let kind = kind.map(|kind| String::from_utf8_lossy(kind.as_bytes()).to_ascii_lowercase());
        match kind.is_none_or(|kind| TEXT.iter().any(|text| kind.contains(text))) {
            true => self.response_body_max,
            false => self.response_body_max.min(OPAQUE_BODY_MAX),
        }
    }
}

/// What a request begins with.
#[derive(Debug)]
pub(crate) struct RequestHead {
    pub method: String,
    /// Path and query.
    pub target: String,
    /// The host, if it is a part of the target: HTTP/2 has it there.
    pub authority: Option<String>,
    pub headers: HeaderMap,
    /// What is recorded beside the headers and is none.
    pub parameters: Vec<(String, Vec<u8>)>,
}

impl RequestHead {
    pub fn of(parts: &Parts) -> Self {
        let target = parts.uri.path_and_query();
        Self {
            method: parts.method.as_str().to_owned(),
            target: target.map_or("/", |target| target.as_str()).to_owned(),
            authority: parts.uri.authority().map(|host| host.as_str().to_owned()),
            headers: parts.headers.clone(),
            parameters: Vec::new(),
        }
    }
}

/// The body of a request as far as it has passed. Shared between the two directions: a service may
/// answer early.
pub(super) type SharedBody = Arc<Mutex<PassedBody>>;

#[derive(Debug, Default)]
pub(crate) struct PassedBody {
    kept: Vec<u8>,
    pub complete: bool,
    over_limit: bool,
}

impl PassedBody {
    pub fn pass(&mut self, data: &[u8], bytes_max: usize) {
        if self.kept.len() + data.len() > bytes_max {
            self.over_limit = true;
            self.kept = Vec::new();
        }
        if !self.over_limit {
            self.kept.extend_from_slice(data);
        }
    }
}

/// Ends exactly once. If it is dropped without an end, its client has gone.
pub(crate) struct Exchange {
    witness: Arc<dyn Witness>,
    request: Option<Box<Request>>,
    body: SharedBody,
    limits: Limits,
    redactor: Arc<Redactor>,
}

impl Exchange {
    pub fn begin(
        witness: Arc<dyn Witness>,
        arrival: Arrival,
        head: RequestHead,
        limits: Limits,
        redactor: &Arc<Redactor>,
    ) -> Self {
        let mut recorded = headers::to_record(&head.headers);
        recorded.retain(|(name, _)| name != Traceparent::KEY);
        if !head.headers.contains_key(header::HOST)
            && let Some(authority) = head.authority
        {
            recorded.insert(0, ("host".to_owned(), authority.into()));
        }
        recorded.extend(head.parameters);
        let caller = head.headers.get(Traceparent::KEY);
        let caller = caller.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
        let request = Request {
            id: arrival.id,
            arrived: arrival.at,
            ended: 0,
            method: head.method,
            target: head.target,
            headers: recorded,
            body: Vec::new(),
            caller_traceparent: caller,
            user_id: None,
            came_to: None,
            came_from: None,
            came_by: None,
            clock: Vec::new(),
            secrets: Default::default(),
            calls: Vec::new(),
            response: Response::Broken {
                reason: String::new(),
            },
        };
        Self {
            witness,
            request: Some(Box::new(request)),
            body: SharedBody::default(),
            limits,
            redactor: Arc::clone(redactor),
        }
    }

    pub fn body(&self) -> SharedBody {
        Arc::clone(&self.body)
    }

    /// In place of what was passed to the shared one.
    pub fn set_body(&mut self, body: PassedBody) {
        *self.body.lock().unwrap_or_else(PoisonError::into_inner) = body;
    }

    /// What was read from the wall clock, in order.
    pub fn set_clock(&mut self, readings: &[pins::Reading]) {
        if let Some(request) = &mut self.request {
            let arrived = request.arrived.saturating_mul(1000);
            request.clock = pins::encode_readings(arrived, readings);
        }
    }

    /// What the service asked of others, in order.
    pub fn set_calls(&mut self, calls: Vec<Call>) {
        if let Some(request) = &mut self.request {
            request.calls = calls;
        }
    }

    /// Where the service had accepted its connection, from whom, and which process did.
    pub fn set_came(&mut self, own: Option<&str>, peer: Option<&str>, by: Option<u32>) {
        if let Some(request) = &mut self.request {
            request.came_to = own.map(str::to_owned);
            request.came_from = peer.map(str::to_owned);
            request.came_by = by;
        }
    }

    pub fn limits(&self) -> Limits {
        self.limits
    }

    pub fn redactor(&self) -> &Redactor {
        &self.redactor
    }

    /// Resolves when the record of this exchange would survive a crash. To be asked for after the
    /// end.
    pub fn durable(&self) -> Option<Durable> {
        self.witness.durable()
    }

    /// The first end counts.
    pub fn end(&mut self, response: Response) {
        self.end_at(self.witness.now(), response);
    }

    /// It had ended at that time.
    pub fn end_at(&mut self, at: Micros, response: Response) {
        let Some(mut request) = self.request.take() else {
            return;
        };
        let mut body = self.body.lock().unwrap_or_else(PoisonError::into_inner);
        // The clock may have been set back.
        request.ended = at.max(request.arrived);
        request.body = std::mem::take(&mut body.kept);
        let limit = self.limits.request_body_max;
        request.response = match response {
            Response::Answered { .. } | Response::Broken { .. } if body.over_limit => {
                Response::Unrecorded {
                    reason: format!(
                        "the request's body is longer than the {limit} bytes that are kept"
                    ),
                }
            }
            Response::Answered { .. } if !body.complete => Response::Unrecorded {
                reason: "the service answered before it had read the whole request".to_owned(),
            },
            response => response,
        };
        drop(body);
        self.redactor.request(&mut request);
        self.witness.ended(*request);
    }

    pub fn broken(&mut self, reason: String) {
        self.end(Response::Broken { reason });
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        if self.request.is_some() {
            self.broken("the client went away before the service had answered".to_owned());
        }
    }
}

/// A response as far as it has passed.
pub(crate) struct PassedResponse {
    status: u16,
    /// Trailers are added at the end.
    headers: HeaderMap,
    digest: BodyDigest,
    /// `None` once it is longer than the limit, or than what is looked into.
    kept: Option<Vec<u8>>,
    kept_max: usize,
    /// It may hold what is to be redacted.
    looked_into: bool,
}

impl PassedResponse {
    pub fn begin(status: u16, headers: HeaderMap, limits: Limits, redactor: &Redactor) -> Self {
        let looked_into = redactor.wants(&headers);
        let kept_max = match looked_into {
            true => BODY_BYTES_MAX,
            false => limits.response_body_max(&headers),
        };
        Self {
            status,
            headers,
            digest: BodyDigest::default(),
            kept: Some(Vec::new()),
            kept_max,
            looked_into,
        }
    }

    pub fn pass(&mut self, data: &[u8]) {
        self.digest.update(data);
        if self.digest.bytes() > self.kept_max as u64 {
            self.kept = None;
        } else if let Some(kept) = &mut self.kept {
            kept.extend_from_slice(data);
        }
    }

    pub fn trailers(&mut self, trailers: HeaderMap) {
        self.headers.extend(trailers);
    }

    /// How much of the body has passed.
    pub fn bytes(&self) -> u64 {
        self.digest.bytes()
    }

    /// All of it has passed.
    pub fn finish(mut self, limits: Limits, redactor: &Redactor) -> Response {
        let headers = headers::to_record(&self.headers);
        let mut kept = self.kept.take();
        let mut compared = (self.digest.digest(), self.digest.bytes());
        if self.looked_into
            && let Some(body) = &kept
            && let Some(redacted) = redactor.response_body(&headers, body)
        {
            compared = (
                Digest::of(&redacted.compared),
                redacted.compared.len() as u64,
            );
            kept = redacted.kept;
        }
        Response::Answered {
            status: self.status,
            headers,
            body_digest: compared.0,
            body_bytes: compared.1,
            body: kept.filter(|body| body.len() <= limits.response_body_max(&self.headers)),
        }
    }
}

/// The protocol that a client wants to switch to. HTTP/2 has no such thing.
pub(crate) fn requested_upgrade(headers: &HeaderMap, version: Version) -> Option<HeaderValue> {
    let asked = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(|name| name.trim().eq_ignore_ascii_case("upgrade"));
    let protocol = headers.get(header::UPGRADE)?;
    // Browsers and curl offer to switch to HTTP/2 in passing; it does no harm if that is not taken
    // up.
    (asked && version == Version::HTTP_11 && protocol != "h2c").then(|| protocol.clone())
}

/// What becomes of a request whose connection does something else from here on.
pub(crate) fn upgraded(protocol: Option<&HeaderValue>) -> Response {
    let protocol = protocol.map_or("?".into(), |name| String::from_utf8_lossy(name.as_bytes()));
    Response::Unrecorded {
        reason: format!("the connection was upgraded to {protocol}"),
    }
}

/// What becomes of a CONNECT.
pub(crate) fn connected() -> Response {
    Response::Unrecorded {
        reason: "CONNECT is for proxies".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_what_is_no_text_less_is_kept() {
        let limits = Limits::default();
        let kept = |kind: Option<&'static str>| {
            let kind = kind.map(|kind| (header::CONTENT_TYPE, HeaderValue::from_static(kind)));
            limits.response_body_max(&kind.into_iter().collect())
        };
        for text in [
            "text/html; charset=utf-8",
            "application/problem+json",
            "Text/CSV",
        ] {
            assert_eq!(kept(Some(text)), 64 << 10, "{text}");
        }
        assert_eq!(kept(None), 64 << 10);
        assert_eq!(kept(Some("image/png")), 1 << 10);
    }
}
