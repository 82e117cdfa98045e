//! A response's body, looked at while it passes.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::{Body, Frame, Incoming, SizeHint};

use hindcast_trace::{Digest, Response};

use super::digest::BodyDigest;
use super::exchange::{Durable, Exchange, PassedResponse};
use super::headers;
use super::service::{Lease, with_causes};
use crate::redact::BODY_BYTES_MAX;

/// A response's body on its way to the client.
pub(super) enum ResponseBody {
    /// Written by the gateway itself.
    Ours(Full<Bytes>),
    Passing(Box<PassingBody>),
}

pub(super) struct PassingBody {
    inner: Incoming,
    exchange: Exchange,
    response: Option<PassedResponse>,
    digest: BodyDigest,
    /// `None` once it is longer than the limit, or than what is looked into.
    kept: Option<Vec<u8>>,
    /// It may hold what is to be redacted.
    looked_into: bool,
    /// Goes back to the pool when the body has been read to its end.
    lease: Option<Lease>,
    /// What ends the response for the client waits for the disk, if responses have to.
    held: Option<(Durable, Option<Frame<Bytes>>)>,
}

impl PassingBody {
    pub fn new(
        inner: Incoming,
        exchange: Exchange,
        response: PassedResponse,
        lease: Lease,
    ) -> Self {
        let looked_into = exchange.redactor().wants(&response.headers);
        let mut body = Self {
            inner,
            looked_into,
            exchange,
            response: Some(response),
            digest: BodyDigest::default(),
            kept: Some(Vec::new()),
            lease: Some(lease),
            held: None,
        };
        if body.inner.is_end_stream() {
            body.finish();
        }
        body
    }

    /// What the head of the response has to wait for, if the head is all there is.
    pub fn take_hold(&mut self) -> Option<Durable> {
        self.held.take().map(|(durable, _)| durable)
    }

    fn look_at(&mut self, frame: &Frame<Bytes>) {
        if let Some(data) = frame.data_ref() {
            self.digest.update(data);
            let limit = match self.looked_into {
                true => BODY_BYTES_MAX,
                false => self.exchange.limits().response_body_max,
            };
            if self.digest.bytes() > limit as u64 {
                self.kept = None;
            } else if let Some(kept) = &mut self.kept {
                kept.extend_from_slice(data);
            }
        } else if let (Some(trailers), Some(response)) = (frame.trailers_ref(), &mut self.response)
        {
            response.headers.extend(trailers.clone());
        }
    }

    fn finish(&mut self) {
        let Some(response) = self.response.take() else {
            return;
        };
        let headers = headers::to_record(&response.headers);
        let mut kept = self.kept.take();
        let mut compared = (self.digest.digest(), self.digest.bytes());
        if self.looked_into
            && let Some(body) = &kept
            && let Some(redacted) = self.exchange.redactor().response_body(&headers, body)
        {
            compared = (
                Digest::of(&redacted.compared),
                redacted.compared.len() as u64,
            );
            kept = redacted.kept;
        }
        let limit = self.exchange.limits().response_body_max;
        self.exchange.end(Response::Answered {
            status: response.status,
            headers,
            body_digest: compared.0,
            body_bytes: compared.1,
            body: kept.filter(|body| body.len() <= limit),
        });
        if let Some(lease) = self.lease.take() {
            lease.give_back();
        }
        self.held = self.exchange.durable().map(|durable| (durable, None));
    }
}

impl Body for PassingBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let this = self.get_mut();
        if let Some((durable, _)) = &mut this.held {
            ready!(durable.as_mut().poll(cx));
            return Poll::Ready(this.held.take().and_then(|(_, frame)| frame).map(Ok));
        }
        if this.response.is_none() {
            return Poll::Ready(None);
        }
        match ready!(Pin::new(&mut this.inner).poll_frame(cx)) {
            Some(Ok(frame)) => {
                this.look_at(&frame);
                if this.inner.is_end_stream() {
                    this.finish();
                    if let Some((_, held)) = &mut this.held {
                        *held = Some(frame);
                        return Pin::new(this).poll_frame(cx);
                    }
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Some(Err(error)) => {
                let passed = this.digest.bytes();
                let cause = with_causes(&error);
                this.exchange.broken(format!(
                    "the service went away after {passed} bytes of its response: {cause}"
                ));
                this.response = None;
                Poll::Ready(Some(Err(error)))
            }
            None => {
                this.finish();
                match this.held {
                    Some(_) => Pin::new(this).poll_frame(cx),
                    None => Poll::Ready(None),
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.response.is_none() && self.held.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        match &self.held {
            // The frame that is held was already taken out of the inner body.
            Some((_, Some(frame))) => {
                SizeHint::with_exact(frame.data_ref().map_or(0, |data| data.len() as u64))
            }
            _ => self.inner.size_hint(),
        }
    }
}

impl Drop for PassingBody {
    fn drop(&mut self) {
        if self.response.is_some() {
            let passed = self.digest.bytes();
            self.exchange.broken(format!(
                "the client went away after {passed} bytes of the response"
            ));
        }
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        match self.get_mut() {
            Self::Ours(body) => Pin::new(body)
                .poll_frame(cx)
                .map_err(|never| match never {}),
            Self::Passing(body) => Pin::new(&mut **body).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Ours(body) => body.is_end_stream(),
            Self::Passing(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Ours(body) => body.size_hint(),
            Self::Passing(body) => body.size_hint(),
        }
    }
}
