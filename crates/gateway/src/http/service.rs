//! Connections to the service, kept and used again.

use std::error::Error;
use std::fmt;
use std::io;
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use hindcast_pg::tokio::Stream;
use http::uri::Authority;
use http::{Method, Request, Response, Uri};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;

use super::request_body::RequestBody;

/// Shorter than what any common server allows an idle connection: one that is about to be closed
/// under us must not get a request, for then it would not be known whether the service has seen it.
const IDLE_MAX: Duration = Duration::from_secs(1);
const CONNECT_PATIENCE: Duration = Duration::from_secs(10);

/// Where the service listens: `http://host:port`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceUrl {
    authority: Authority,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ServiceUrlError {
    #[error("the service's URL is not a URL")]
    Malformed,
    #[error("the service's URL begins with http://, not {0}")]
    Scheme(String),
    #[error("the service's URL is http://HOST:PORT without a path: requests keep their own")]
    Path,
    /// A recording keeps the URL, so it must hold no password.
    #[error(
        "the service's URL is http://HOST:PORT without a user: requests keep their own headers"
    )]
    User,
}

impl FromStr for ServiceUrl {
    type Err = ServiceUrlError;

    fn from_str(text: &str) -> Result<Self, ServiceUrlError> {
        let uri: Uri = text.parse().map_err(|_| ServiceUrlError::Malformed)?;
        match uri.scheme_str() {
            Some("http") => {}
            Some(scheme) => return Err(ServiceUrlError::Scheme(format!("{scheme}://"))),
            None => return Err(ServiceUrlError::Scheme(format!("`{text}`"))),
        }
        if uri.path() != "/" || uri.query().is_some() {
            return Err(ServiceUrlError::Path);
        }
        let authority = uri
            .into_parts()
            .authority
            .ok_or(ServiceUrlError::Malformed)?;
        if authority.as_str().contains('@') {
            return Err(ServiceUrlError::User);
        }
        Ok(Self { authority })
    }
}

impl fmt::Display for ServiceUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}", self.authority)
    }
}

impl ServiceUrl {
    pub fn authority(&self) -> &Authority {
        &self.authority
    }

    pub async fn connect(&self) -> io::Result<TcpStream> {
        // An IPv6 address stands in brackets, which a resolver does not want.
        let host = self
            .authority
            .host()
            .trim_start_matches('[')
            .trim_end_matches(']');
        let connecting = TcpStream::connect((host, self.authority.port_u16().unwrap_or(80)));
        let stream = tokio::time::timeout(CONNECT_PATIENCE, connecting)
            .await
            .map_err(|_| {
                io::Error::new(
                    io::ErrorKind::TimedOut,
                    format!("no answer within {CONNECT_PATIENCE:?}"),
                )
            })??;
        Stream::tune(&stream);
        Ok(stream)
    }
}

/// Why the service gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum ServiceError {
    #[error("the service at {url} cannot be reached: {source}")]
    Unreachable { url: String, source: io::Error },
    #[error(
        "the service at {url} went away without an answer: {}",
        with_causes(source)
    )]
    NoAnswer { url: String, source: hyper::Error },
}

/// Connections of one runtime to the service.
pub(super) struct Pool {
    url: ServiceUrl,
    http2: bool,
    idle: Mutex<Vec<(http1::SendRequest<RequestBody>, Instant)>>,
    /// Shared by all requests, if the service is spoken to in HTTP/2.
    multiplexed: tokio::sync::Mutex<Option<http2::SendRequest<RequestBody>>>,
}

/// The right to use a connection; dropped without being given back, the connection closes.
pub(super) struct Lease {
    /// `None` for a connection that is shared anyway.
    sender: Option<http1::SendRequest<RequestBody>>,
    pool: Arc<Pool>,
}

impl Lease {
    pub fn give_back(self) {
        let Some(sender) = self.sender.filter(|sender| !sender.is_closed()) else {
            return;
        };
        let mut idle = self
            .pool
            .idle
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        // Used last, used first: what is at the front has been idle for longest.
        let stale = idle
            .iter()
            .take_while(|(_, since)| now.duration_since(*since) > IDLE_MAX)
            .count();
        idle.drain(..stale);
        idle.push((sender, now));
    }
}

impl Pool {
    pub fn new(url: ServiceUrl, http2: bool) -> Self {
        Self {
            url,
            http2,
            idle: Mutex::default(),
            multiplexed: tokio::sync::Mutex::default(),
        }
    }

    pub fn is_http2(&self) -> bool {
        self.http2
    }

    pub fn url(&self) -> &ServiceUrl {
        &self.url
    }

    pub async fn send(
        self: &Arc<Self>,
        request: Request<RequestBody>,
    ) -> Result<(Response<Incoming>, Lease), ServiceError> {
        match self.http2 {
            true => self.send_multiplexed(request).await,
            false => self.send_pooled(request).await,
        }
    }

    async fn send_pooled(
        self: &Arc<Self>,
        mut request: Request<RequestBody>,
    ) -> Result<(Response<Incoming>, Lease), ServiceError> {
        while let Some(mut sender) = self.take_idle() {
            // Should the service close the connection just now, a request without side effects can
            // go again.
            let spare =
                (request.body().is_empty() && is_safe(request.method())).then(|| head_of(&request));
            match sender.try_send_request(request).await {
                Ok(response) => return Ok((response, self.lease(sender))),
                Err(mut failed) => match (failed.take_message(), spare) {
                    (Some(unsent), _) => request = unsent,
                    (None, Some(head)) => {
                        tracing::debug!(error = %failed.error(), "a kept connection to the service was closed");
                        return self.send_anew(head).await;
                    }
                    (None, None) => return Err(self.no_answer(failed.into_error())),
                },
            }
        }
        let mut sender = self.open().await?;
        let response = sender
            .send_request(request)
            .await
            .map_err(|source| self.no_answer(source))?;
        Ok((response, self.lease(sender)))
    }

    /// A request that has no body, on a connection of its own.
    async fn send_anew(
        self: &Arc<Self>,
        head: Request<()>,
    ) -> Result<(Response<Incoming>, Lease), ServiceError> {
        let stream = self.connect().await?;
        let handshake =
            http1::handshake::<_, http_body_util::Empty<bytes::Bytes>>(TokioIo::new(stream)).await;
        let (mut sender, connection) = handshake.map_err(|source| self.no_answer(source))?;
        tokio::spawn(async move {
            let _ = connection.await;
        });
        let request = head.map(|()| http_body_util::Empty::new());
        let response = sender
            .send_request(request)
            .await
            .map_err(|source| self.no_answer(source))?;
        Ok((
            response,
            Lease {
                sender: None,
                pool: Arc::clone(self),
            },
        ))
    }

    async fn send_multiplexed(
        self: &Arc<Self>,
        request: Request<RequestBody>,
    ) -> Result<(Response<Incoming>, Lease), ServiceError> {
        let mut sender = {
            let mut shared = self.multiplexed.lock().await;
            match &*shared {
                Some(sender) if !sender.is_closed() => sender.clone(),
                _ => {
                    let io = TokioIo::new(self.connect().await?);
                    let handshake = http2::handshake(TokioExecutor::new(), io).await;
                    let (sender, connection) =
                        handshake.map_err(|source| self.no_answer(source))?;
                    tokio::spawn(async move {
                        let _ = connection.await;
                    });
                    shared.insert(sender).clone()
                }
            }
        };
        let response = sender
            .send_request(request)
            .await
            .map_err(|source| self.no_answer(source))?;
        Ok((
            response,
            Lease {
                sender: None,
                pool: Arc::clone(self),
            },
        ))
    }

    /// The connection that was used last and can take a request at once.
    fn take_idle(&self) -> Option<http1::SendRequest<RequestBody>> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let mut at = idle.len();
        while at > 0 {
            at -= 1;
            if idle[at].0.is_closed() || idle[at].1.elapsed() > IDLE_MAX {
                idle.remove(at);
            } else if idle[at].0.is_ready() {
                return Some(idle.remove(at).0);
            }
        }
        None
    }

    async fn open(&self) -> Result<http1::SendRequest<RequestBody>, ServiceError> {
        let stream = self.connect().await?;
        let handshake = http1::handshake(TokioIo::new(stream)).await;
        let (sender, connection) = handshake.map_err(|source| self.no_answer(source))?;
        // Ends when the sender is dropped or the service closes. Errors show up at the request.
        tokio::spawn(async move {
            let _ = connection.with_upgrades().await;
        });
        Ok(sender)
    }

    async fn connect(&self) -> Result<TcpStream, ServiceError> {
        self.url
            .connect()
            .await
            .map_err(|source| ServiceError::Unreachable {
                url: self.url.to_string(),
                source,
            })
    }

    fn lease(self: &Arc<Self>, sender: http1::SendRequest<RequestBody>) -> Lease {
        Lease {
            sender: Some(sender),
            pool: Arc::clone(self),
        }
    }

    fn no_answer(&self, source: hyper::Error) -> ServiceError {
        ServiceError::NoAnswer {
            url: self.url.to_string(),
            source,
        }
    }
}

fn is_safe(method: &Method) -> bool {
    [Method::GET, Method::HEAD, Method::OPTIONS].contains(method)
}

fn head_of(request: &Request<RequestBody>) -> Request<()> {
    let mut head = Request::new(());
    *head.method_mut() = request.method().clone();
    *head.uri_mut() = request.uri().clone();
    *head.headers_mut() = request.headers().clone();
    head
}

/// hyper tells the reason only in the causes.
pub(crate) fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn service_urls() {
        let check = |text: &str| text.parse::<ServiceUrl>().map(|url| url.to_string());
        assert_eq!(
            check("http://127.0.0.1:8000"),
            Ok("http://127.0.0.1:8000".into())
        );
        assert_eq!(check("http://[::1]:8000/"), Ok("http://[::1]:8000".into()));
        assert_eq!(
            check("https://a"),
            Err(ServiceUrlError::Scheme("https://".into()))
        );
        assert_eq!(
            check("localhost:8000"),
            Err(ServiceUrlError::Scheme("`localhost:8000`".into()))
        );
        assert_eq!(check("http://a/api"), Err(ServiceUrlError::Path));
        assert_eq!(check("http://a b"), Err(ServiceUrlError::Malformed));
        assert_eq!(check("http://me:secret@a"), Err(ServiceUrlError::User));
    }
}
