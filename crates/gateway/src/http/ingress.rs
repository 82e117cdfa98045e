//! Accepts HTTP connections and passes requests on.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use hindcast_model::Traceparent;
use hindcast_pg::ListenAddress;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Method, Request, Response, StatusCode, Uri, Version};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use tokio::runtime::Handle;

use super::exchange::{self, Exchange, Limits, PassedResponse, RequestHead, Witness};
use super::headers;
use super::request_body::RequestBody;
use super::response_body::{PassingBody, ResponseBody};
use super::service::{Pool, ServiceUrl};
use crate::listen::{ACCEPT_PAUSE, Accepted, BindError, Listener};
use crate::redact::Redactor;

/// How long a client may take to send the head of a request.
const HEAD_PATIENCE: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub struct IngressOptions {
    pub listen: ListenAddress,
    pub service: ServiceUrl,
    /// Speak HTTP/2 with the service (prior knowledge, as gRPC services expect); otherwise
    /// HTTP/1.1.
    pub service_http2: bool,
    pub limits: Limits,
    pub redactor: Arc<Redactor>,
    /// Where connections are served, in turn. Empty: on the runtime that [`Ingress::bind`] was
    /// called on.
    pub runtimes: Vec<Handle>,
}

/// An HTTP server that passes everything on to a service and tells a [`Witness`].
pub struct Ingress {
    address: ListenAddress,
    accepting: tokio::task::JoinHandle<()>,
    /// Shared with the task that accepts, until that has ended.
    graceful: Arc<GracefulShutdown>,
}

/// Tells where an [`Ingress`] listens.
#[derive(Clone, Debug)]
pub struct IngressHandle {
    address: ListenAddress,
}

impl IngressHandle {
    pub fn address(&self) -> &ListenAddress {
        &self.address
    }
}

/// What every connection of one runtime shares.
struct Front {
    pool: Arc<Pool>,
    witness: Arc<dyn Witness>,
    limits: Limits,
    redactor: Arc<Redactor>,
}

impl Ingress {
    /// Listens, and accepts from then on.
    pub async fn bind(
        options: IngressOptions,
        witness: Arc<dyn Witness>,
    ) -> Result<Self, BindError> {
        let listener = Listener::bind(&options.listen).await?;
        Ok(Self::serve(listener, options, witness))
    }

    pub(crate) fn serve(
        listener: Listener,
        options: IngressOptions,
        witness: Arc<dyn Witness>,
    ) -> Self {
        let address = listener.address();
        let runtimes = match options.runtimes.is_empty() {
            true => vec![Handle::current()],
            false => options.runtimes,
        };
        let fronts = runtimes
            .into_iter()
            .map(|runtime| {
                // A pool per runtime: a connection is driven by a task of the runtime that opened
                // it.
                let pool = Arc::new(Pool::new(options.service.clone(), options.service_http2));
                (
                    runtime,
                    Arc::new(Front {
                        pool,
                        witness: Arc::clone(&witness),
                        limits: options.limits,
                        redactor: Arc::clone(&options.redactor),
                    }),
                )
            })
            .collect();
        let graceful = Arc::new(GracefulShutdown::new());
        let accepting = tokio::spawn(accept(listener, fronts, Arc::clone(&graceful)));
        Self {
            address,
            accepting,
            graceful,
        }
    }

    pub fn handle(&self) -> IngressHandle {
        IngressHandle {
            address: self.address.clone(),
        }
    }

    /// Stops accepting, lets requests in flight end, and closes idle connections. Returns whether
    /// all ended in time.
    pub async fn shut_down(self, patience: Duration) -> bool {
        self.accepting.abort();
        let _ = self.accepting.await;
        let Some(graceful) = Arc::into_inner(self.graceful) else {
            return true;
        };
        tokio::time::timeout(patience, graceful.shutdown())
            .await
            .is_ok()
    }
}

async fn accept(
    listener: Listener,
    fronts: Vec<(Handle, Arc<Front>)>,
    graceful: Arc<GracefulShutdown>,
) {
    let next = AtomicUsize::new(0);
    loop {
        match listener.accept().await {
            Ok(accepted) => {
                let (runtime, front) = &fronts[next.fetch_add(1, Ordering::Relaxed) % fronts.len()];
                runtime.spawn(serve(accepted, Arc::clone(front), graceful.watcher()));
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept an HTTP connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn serve(accepted: Accepted, front: Arc<Front>, watcher: Watcher) {
    let stream = match accepted.register() {
        Ok((stream, _)) => stream,
        Err(error) => return tracing::warn!(%error, "cannot serve an HTTP connection"),
    };
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_PATIENCE);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(Some(Duration::from_secs(30)));
    let service = service_fn(move |request| {
        let front = Arc::clone(&front);
        async move { Ok::<_, Infallible>(front.pass(request).await) }
    });
    let connection = builder
        .serve_connection_with_upgrades(TokioIo::new(stream), service)
        .into_owned();
    // The record of a request says how it ended; a connection that ends in an error has nothing to
    // add.
    if let Err(error) = watcher.watch(connection).await {
        tracing::debug!(error, "an HTTP connection broke");
    }
}

impl Front {
    async fn pass(&self, request: Request<Incoming>) -> Response<ResponseBody> {
        let Some(arrival) = self.witness.arrived() else {
            return ours(
                StatusCode::SERVICE_UNAVAILABLE,
                "too many requests in flight",
            );
        };
        let (parts, body) = request.into_parts();
        let witness = Arc::clone(&self.witness);
        let head = RequestHead::of(&parts);
        let mut exchange = Exchange::begin(witness, arrival, head, self.limits, &self.redactor);
        if parts.method == Method::CONNECT {
            exchange.end(exchange::connected());
            return ours(
                StatusCode::METHOD_NOT_ALLOWED,
                "CONNECT is for proxies, and this is none",
            );
        }
        let upgrade = exchange::requested_upgrade(&parts.headers, parts.version);
        let mut client_side = Request::from_parts(parts, body);
        let upgraded = upgrade
            .is_some()
            .then(|| hyper::upgrade::on(&mut client_side));
        let (parts, body) = client_side.into_parts();

        let body = RequestBody::new(body, exchange.body(), self.limits.request_body_max);
        let mut forwarded = Request::new(body);
        *forwarded.method_mut() = parts.method;
        *forwarded.uri_mut() = self.target(&parts.uri);
        *forwarded.headers_mut() = self.headers(parts.headers, &parts.uri, arrival.traceparent);
        if let Some(protocol) = &upgrade {
            let headers = forwarded.headers_mut();
            headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
            headers.insert(header::UPGRADE, protocol.clone());
        }

        let (mut response, lease) = match self.pool.send(forwarded).await {
            Ok(answered) => answered,
            Err(error) => {
                exchange.broken(error.to_string());
                return ours(StatusCode::BAD_GATEWAY, &error.to_string());
            }
        };
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            exchange.end(exchange::upgraded(upgrade.as_ref()));
            let service_side = hyper::upgrade::on(&mut response);
            if let Some(client_side) = upgraded {
                tokio::spawn(tunnel(client_side, service_side));
            }
            let (parts, _) = response.into_parts();
            return Response::from_parts(parts, ResponseBody::Ours(Full::default()));
        }

        let (mut parts, body) = response.into_parts();
        // What `Connection` names must still be known when the record is made.
        let (status, headers) = (parts.status.as_u16(), parts.headers.clone());
        let passed = PassedResponse::begin(status, headers, self.limits, &self.redactor);
        headers::strip_hop_by_hop(&mut parts.headers);
        // The version of the hop to the client is the server's affair.
        parts.version = Version::HTTP_11;
        let mut body = Box::new(PassingBody::new(body, exchange, passed, lease));
        if let Some(durable) = body.take_hold() {
            durable.await;
        }
        Response::from_parts(parts, ResponseBody::Passing(body))
    }

    /// Path and query; HTTP/2 wants to be told the rest as well.
    fn target(&self, uri: &Uri) -> Uri {
        let mut parts = http::uri::Parts::default();
        parts.path_and_query = Some(
            uri.path_and_query()
                .cloned()
                .unwrap_or_else(|| "/".parse().expect("a valid path")),
        );
        if self.pool.is_http2() {
            parts.scheme = Some(http::uri::Scheme::HTTP);
            parts.authority = Some(
                uri.authority()
                    .unwrap_or(self.pool.url().authority())
                    .clone(),
            );
        }
        Uri::from_parts(parts).unwrap_or_else(|_| uri.clone())
    }

    fn headers(&self, mut headers: HeaderMap, uri: &Uri, traceparent: Traceparent) -> HeaderMap {
        headers::strip_hop_by_hop(&mut headers);
        if !headers.contains_key(header::HOST)
            && let Some(authority) = uri.authority()
            && let Ok(host) = HeaderValue::from_str(authority.as_str())
        {
            headers.insert(header::HOST, host);
        }
        let value = HeaderValue::from_str(&traceparent.to_string()).expect("hex digits and dashes");
        headers.insert(HeaderName::from_static(Traceparent::KEY), value);
        headers
    }
}

async fn tunnel(client: hyper::upgrade::OnUpgrade, service: hyper::upgrade::OnUpgrade) {
    let (Ok(client), Ok(service)) = tokio::join!(client, service) else {
        return;
    };
    let _ =
        tokio::io::copy_bidirectional(&mut TokioIo::new(client), &mut TokioIo::new(service)).await;
}

/// An answer of the gateway itself; it says so.
fn ours(status: StatusCode, message: &str) -> Response<ResponseBody> {
    let body = Full::new(Bytes::from(format!("hindcast: {message}\n")));
    let mut response = Response::new(ResponseBody::Ours(body));
    *response.status_mut() = status;
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("text/plain; charset=utf-8"),
    );
    response
}
