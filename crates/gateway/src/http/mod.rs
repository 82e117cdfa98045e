//! The HTTP ingress, and the pieces of it that a re-sender needs too.
//!
//! Start reading at [`Ingress`] for recording; a re-sender needs [`headers`], [`BodyDigest`] and [`Traceparent`].

mod digest;
pub mod headers;
mod traceparent;

pub use digest::BodyDigest;
pub use traceparent::Traceparent;
