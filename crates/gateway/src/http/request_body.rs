//! A request's body, looked at while it passes.

use std::pin::Pin;
use std::sync::PoisonError;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};

use super::exchange::SharedBody;

/// A request's body on its way to the service.
pub(super) struct RequestBody {
    inner: Incoming,
    passed: SharedBody,
    bytes_max: usize,
}

impl RequestBody {
    pub fn new(inner: Incoming, passed: SharedBody, bytes_max: usize) -> Self {
        if inner.is_end_stream() {
            passed
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .complete = true;
        }
        Self {
            inner,
            passed,
            bytes_max,
        }
    }

    /// Nothing was taken out of it yet, and nothing will be: it can be sent again.
    pub fn is_empty(&self) -> bool {
        self.inner.is_end_stream()
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let this = self.get_mut();
        let frame = ready!(Pin::new(&mut this.inner).poll_frame(cx));
        let mut passed = this.passed.lock().unwrap_or_else(PoisonError::into_inner);
        match &frame {
            None => passed.complete = true,
            Some(Ok(frame)) => {
                if let Some(data) = frame.data_ref() {
                    passed.pass(data, this.bytes_max);
                }
                passed.complete = this.inner.is_end_stream();
            }
            Some(Err(_)) => {}
        }
        drop(passed);
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
