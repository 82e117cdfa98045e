//! HTTP on a loopback address.

use std::convert::Infallible;
use std::fmt::Write;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use hindcast_trace::Trace;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{self, HeaderName, HeaderValue};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use ring::rand::{SecureRandom, SystemRandom};
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};

use crate::answers::{Refusal, answer};
use crate::desk::{Desk, Source};
use crate::pages;

/// Questions are short.
const QUESTION_BYTES_MAX: usize = 64 << 10;

/// Nothing but the page's own files, no frames, no forms, nothing from elsewhere.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
                      img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Why the page cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error("{address} is not an address of this machine alone")]
    NotLoopback { address: SocketAddr },
    #[error("cannot listen at {address}")]
    Listen {
        address: SocketAddr,
        source: io::Error,
    },
    #[error("no random numbers for a token")]
    Random,
}

impl ServeError {
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::NotLoopback { .. } => Some(
                "give 127.0.0.1:PORT; to look from another machine, forward the port: `ssh -L PORT:127.0.0.1:PORT HOST`",
            ),
            Self::Listen { source, .. } if source.kind() == io::ErrorKind::AddrInUse => {
                Some("another process has this port; leave --listen out to take any that is free")
            }
            Self::Listen { .. } | Self::Random => None,
        }
    }
}

/// The page, ready to be asked for.
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    context: Arc<Context>,
}

struct Context {
    desk: Arc<Desk>,
    token: String,
    port: u16,
}

impl Server {
    /// Takes the port, and begins to read the trace.
    pub async fn bind(
        listen: SocketAddr,
        trace: Trace,
        source: Source,
    ) -> Result<Self, ServeError> {
        if !listen.ip().is_loopback() {
            return Err(ServeError::NotLoopback { address: listen });
        }
        let cannot = |source| ServeError::Listen {
            address: listen,
            source,
        };
        let listener = TcpListener::bind(listen).await.map_err(cannot)?;
        let address = listener.local_addr().map_err(cannot)?;
        let mut random = [0; 24];
        let filled = SystemRandom::new().fill(&mut random);
        filled.map_err(|_| ServeError::Random)?;
        let mut token = String::new();
        for byte in random {
            // Writing to a string cannot fail.
            let _ = write!(token, "{byte:02x}");
        }
        let context = Arc::new(Context {
            desk: Desk::start(trace, source),
            token,
            port: address.port(),
        });
        Ok(Self {
            listener,
            address,
            context,
        })
    }

    /// With the token, for the person who started it.
    pub fn url(&self) -> String {
        format!("http://{}/#{}", self.address, self.context.token)
    }

    /// Serves until the future is dropped.
    pub async fn run(self) -> Infallible {
        loop {
            // Out of descriptors, or a client that was gone before it was answered: the next one
            // may fare better.
            let Ok((stream, _)) = self.listener.accept().await else {
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
                continue;
            };
            tokio::spawn(serve(stream, Arc::clone(&self.context)));
        }
    }
}

async fn serve(stream: TcpStream, context: Arc<Context>) {
    let service = service_fn(move |request| {
        let context = Arc::clone(&context);
        async move { Ok::<_, Infallible>(respond(request, &context).await) }
    });
    // A browser that hangs up early is none of our business.
    let _ = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

async fn respond(request: Request<Incoming>, context: &Arc<Context>) -> Response<Full<Bytes>> {
    match answered(request, context).await {
        Ok(response) => response,
        Err(refusal) => {
            let body = json!({ "error": refusal.error, "hint": refusal.hint }).to_string();
            let status = StatusCode::from_u16(refusal.status);
            let status = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            response(status, "application/json", Bytes::from(body))
        }
    }
}

async fn answered(
    request: Request<Incoming>,
    context: &Arc<Context>,
) -> Result<Response<Full<Bytes>>, Refusal> {
    if !is_ours(&request, context.port) {
        return Err(refused(403, "this page is served to this machine only"));
    }
    let path = request.uri().path().to_owned();
    if let Some(file) = pages::file(&path) {
        return match *request.method() {
            Method::GET | Method::HEAD => Ok(response(
                StatusCode::OK,
                file.kind,
                Bytes::from_static(file.bytes),
            )),
            _ => Err(refused(405, "the page is only read")),
        };
    }
    if !path.starts_with("/api/") {
        return Err(refused(404, "there is no such page"));
    }
    authorize(&request, &context.token)?;
    let body = Limited::new(request.into_body(), QUESTION_BYTES_MAX);
    let body = body.collect().await;
    let body = body
        .map_err(|_| refused(413, "the question is too long"))?
        .to_bytes();
    let desk = Arc::clone(&context.desk);
    // Reads files and counts: not on a thread that serves others.
    let answer = tokio::task::spawn_blocking(move || {
        answer(&desk, &path, &body).map(|value| value.to_string())
    });
    let answer = answer
        .await
        .map_err(|_| refused(500, "the answer could not be made"))??;
    Ok(response(
        StatusCode::OK,
        "application/json",
        Bytes::from(answer),
    ))
}

fn refused(status: u16, error: &str) -> Refusal {
    Refusal {
        status,
        error: error.to_owned(),
        hint: None,
    }
}

/// Whether the browser was told a name of this machine: a foreign name that resolves to it is an
/// attack by the page that used it.
fn is_ours(request: &Request<Incoming>, port: u16) -> bool {
    let host = request.headers().get(header::HOST);
    let host = host.and_then(|host| host.to_str().ok()).unwrap_or_default();
    let (name, own) = host.rsplit_once(':').unwrap_or((host, "80"));
    let is_loopback = name == "localhost"
        || name
            .trim_matches(['[', ']'])
            .parse::<std::net::IpAddr>()
            .is_ok_and(|ip| ip.is_loopback());
    is_loopback && own.parse() == Ok(port)
}

fn authorize(request: &Request<Incoming>, token: &str) -> Result<(), Refusal> {
    let hint = "open the address that `hindcast web` printed, with what is behind #";
    let refuse = |status, error: &str| Refusal {
        hint: Some(hint.to_owned()),
        ..refused(status, error)
    };
    let given = request.headers().get(header::AUTHORIZATION);
    let given = given.and_then(|given| given.to_str().ok());
    let given = given.and_then(|given| given.strip_prefix("Bearer "));
    match given {
        None => Err(refuse(401, "the token is missing")),
        Some(given) if is_same(given, token) => Ok(()),
        Some(_) => Err(refuse(403, "the token is another one")),
    }
}

/// Takes as long whatever differs.
fn is_same(given: &str, token: &str) -> bool {
    let pairs = given.bytes().zip(token.bytes());
    given.len() == token.len() && pairs.fold(0, |sum, (a, b)| sum | (a ^ b)) == 0
}

fn response(status: StatusCode, kind: &'static str, body: Bytes) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    let headers: [(HeaderName, &'static str); 7] = [
        (header::CONTENT_TYPE, kind),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-store"),
        (
            HeaderName::from_static("cross-origin-resource-policy"),
            "same-origin",
        ),
        (
            HeaderName::from_static("cross-origin-opener-policy"),
            "same-origin",
        ),
    ];
    for (name, value) in headers {
        response
            .headers_mut()
            .insert(name, HeaderValue::from_static(value));
    }
    response
}
