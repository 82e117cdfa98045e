//! A request and its response on their way to becoming a record.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use hindcast_model::Traceparent;
use hindcast_trace::{Micros, Request, RequestId, Response};
use http::header::{self, HeaderMap};
use http::request::Parts;

use super::headers;
use crate::redact::Redactor;

/// Resolves when something would survive a crash.
pub type Durable = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Who is told about requests.
pub trait Witness: Send + Sync + 'static {
    /// A request has arrived; from now on it is in flight. `None`: there are too many.
    fn arrived(&self) -> Option<Arrival>;

    /// It is in flight no more. Called exactly once for every arrival.
    fn ended(&self, request: Request);

    /// Resolves when everything that was told so far would survive a crash. `None`: responses need
    /// not wait for that.
    fn durable(&self) -> Option<Durable>;

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
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// A longer request body goes through, but the request cannot be replayed.
    pub request_body_max: usize,
    /// Of a longer response body only digest and length are kept.
    pub response_body_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            request_body_max: 1 << 20,
            response_body_max: 1 << 10,
        }
    }
}

/// The body of a request as far as it has passed. Shared between the two directions: a service may
/// answer early.
pub(super) type SharedBody = Arc<Mutex<PassedBody>>;

#[derive(Debug, Default)]
pub(super) struct PassedBody {
    pub kept: Vec<u8>,
    pub complete: bool,
    pub over_limit: bool,
}

/// Ends exactly once. If it is dropped without an end, its client has gone.
pub(super) struct Exchange {
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
        parts: &Parts,
        limits: Limits,
        redactor: &Arc<Redactor>,
    ) -> Self {
        let mut recorded = headers::to_record(&parts.headers);
        recorded.retain(|(name, _)| name != Traceparent::KEY);
        // HTTP/2 has the host in the target.
        if !parts.headers.contains_key(header::HOST)
            && let Some(authority) = parts.uri.authority()
        {
            recorded.insert(0, ("host".to_owned(), authority.as_str().into()));
        }
        let caller = parts
            .headers
            .get(Traceparent::KEY)
            .map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
        let request = Request {
            id: arrival.id,
            arrived: arrival.at,
            ended: 0,
            method: parts.method.as_str().to_owned(),
            target: parts
                .uri
                .path_and_query()
                .map_or("/", |target| target.as_str())
                .to_owned(),
            headers: recorded,
            body: Vec::new(),
            caller_traceparent: caller,
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
        let Some(mut request) = self.request.take() else {
            return;
        };
        let mut body = self.body.lock().unwrap_or_else(PoisonError::into_inner);
        request.ended = self.witness.now();
        request.body = std::mem::take(&mut body.kept);
        let limit = self.limits.request_body_max;
        request.response = match response {
            Response::Answered { .. } if body.over_limit => Response::Unrecorded {
                reason: format!(
                    "the request's body is longer than the {limit} bytes that are kept"
                ),
            },
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

/// What the response to an exchange has been so far.
pub(super) struct PassedResponse {
    pub status: u16,
    /// Trailers are added at the end.
    pub headers: HeaderMap,
}
