//! How requests reach a service: by TCP, or by the Unix socket that it listens on.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::BoxFuture;
use hindcast_taplog::board::Line;
use http::Uri;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::{Connected, Connection, HttpConnector};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpStream, UnixSocket, UnixStream};
use tower_service::Service;

use crate::place::Place;

/// How long to wait for room in the queue of a Unix socket, which says at once that it is full.
const FULL_PAUSE: Duration = Duration::from_millis(2);

/// Speaks TLS where a request came encrypted.
pub fn connector(to: &Place) -> HttpsConnector<Connector> {
    let mut http = HttpConnector::new();
    http.enforce_http(false);
    let name = match to {
        Place::Tcp(_) => None,
        Place::Unix(name) => Some(name.as_str().into()),
    };
    HttpsConnectorBuilder::new()
        .with_tls_config(hindcast_pg::trusting_config())
        .https_or_http()
        .enable_http1()
        .wrap_connector(Connector { http, name })
}

#[derive(Clone)]
pub struct Connector {
    http: HttpConnector,
    /// Of a Unix socket.
    name: Option<Arc<str>>,
}

impl Service<Uri> for Connector {
    type Response = Stream;
    type Error = Box<dyn std::error::Error + Send + Sync>;
    type Future = BoxFuture<'static, Result<Stream, Self::Error>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.http.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, to: Uri) -> Self::Future {
        match self.name.clone() {
            None => {
                let connecting = self.http.call(to);
                Box::pin(async { Ok(Stream::Tcp(connecting.await?)) })
            }
            Some(name) => Box::pin(async move {
                let (stream, _) = connect_by_name(&name).await?;
                Ok(Stream::Unix(TokioIo::new(stream)))
            }),
        }
    }
}

pub enum Stream {
    Tcp(TokioIo<TcpStream>),
    Unix(TokioIo<UnixStream>),
}

impl Connection for Stream {
    fn connected(&self) -> Connected {
        match self {
            Self::Tcp(stream) => stream.connected(),
            Self::Unix(_) => Connected::new(),
        }
    }
}

impl Read for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_read(cx, into),
            Self::Unix(stream) => Pin::new(stream).poll_read(cx, into),
        }
    }
}

impl Write for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_write(cx, bytes),
            Self::Unix(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_flush(cx),
            Self::Unix(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Unix(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

/// Both ends of a Unix socket know it by the name of the one that connected, which the kernel
/// gives.
pub async fn connect_by_name(name: &str) -> io::Result<(UnixStream, Option<Line>)> {
    loop {
        let socket = UnixSocket::new_stream()?;
        socket.bind("")?;
        match socket.connect(format!("\0{name}")).await {
            Ok(stream) => {
                let ours = stream.local_addr()?;
                let line = ours.as_abstract_name().and_then(Line::of_name);
                return Ok((stream, line));
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                tokio::time::sleep(FULL_PAUSE).await;
            }
            Err(error) => return Err(error),
        }
    }
}
