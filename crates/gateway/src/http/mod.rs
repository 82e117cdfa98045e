//! The HTTP ingress, and the pieces of it that a re-sender needs too.
//!
//! Every request gets a number and a fresh [`Traceparent`](hindcast_model::Traceparent) and goes on
//! to the service while its body is still arriving; the response comes back likewise. What passes
//! is copied into a [`hindcast_trace::Request`], up to limits, and handed to a [`Witness`] when the
//! exchange ends, however it ends.
//!
//! Start reading at [`Ingress`] for recording; a re-sender needs [`headers`] and [`BodyDigest`].

mod digest;
mod exchange;
pub mod headers;
mod ingress;
mod request_body;
mod response_body;
mod service;

pub use digest::BodyDigest;
pub use exchange::{Arrival, Durable, Limits, Witness};
pub(crate) use exchange::{
    Exchange, PassedBody, PassedResponse, RequestHead, connected, requested_upgrade, upgraded,
};
pub use ingress::{Ingress, IngressHandle, IngressOptions};
pub(crate) use service::with_causes;
pub use service::{ServiceError, ServiceUrl, ServiceUrlError};
