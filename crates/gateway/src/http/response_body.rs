//! A response's body, looked at while it passes.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::{Body, Frame, Incoming, SizeHint};

use super::exchange::{Durable, Exchange, PassedResponse};
use super::service::{Lease, with_causes};

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
        let mut body = Self {
            inner,
            exchange,
            response: Some(response),
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
        let Some(response) = &mut self.response else {
            return;
        };
        if let Some(data) = frame.data_ref() {
            response.pass(data);
        } else if let Some(trailers) = frame.trailers_ref() {
            response.trailers(trailers.clone());
        }
    }

    fn bytes(&self) -> u64 {
        self.response.as_ref().map_or(0, PassedResponse::bytes)
    }

    fn finish(&mut self) {
        let Some(response) = self.response.take() else {
            return;
        };
        let response = response.finish(self.exchange.limits(), self.exchange.redactor());
        self.exchange.end(response);
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
                let passed = this.bytes();
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
            let passed = self.bytes();
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
