//! The HTTP side of the services: routing, JSON, errors as status codes, a shutdown that finishes
//! what it began.
//!
//! Every answer is JSON. An error is `{"error": kind, "message": text}`; the kind is what drivers
//! count.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::{TcpListener, TcpStream};

use crate::database::{BadUrl, Database, DatabaseError, DatabaseOptions, MayConflict, TraceParent};
use crate::workload::NoSuchVariant;
use crate::{Variant, Workload, moodle, tpcc, wp_comments, wp_options};

/// The largest request body accepted.
const BODY_BYTES_MAX: usize = 1 << 20;

/// How long a shutdown waits for requests that are being answered.
const SHUTDOWN_WAIT: Duration = Duration::from_secs(10);

/// One workload's handlers on one database.
pub struct Service {
    workload: Workload,
    variant: Variant,
    database: Database,
}

#[derive(Debug, thiserror::Error)]
pub enum ServiceError {
    #[error(transparent)]
    Variant(#[from] NoSuchVariant),
    #[error(transparent)]
    Url(#[from] BadUrl),
}

impl Service {
    /// Does not connect: the database is first spoken to when a request needs it.
    pub fn new(
        workload: Workload,
        variant: Variant,
        options: &DatabaseOptions,
    ) -> Result<Self, ServiceError> {
        workload.check_variant(variant)?;
        Ok(Self {
            workload,
            variant,
            database: Database::new(options)?,
        })
    }

    /// The same on a session of its own.
    fn with_one_session(&self) -> Self {
        Self {
            workload: self.workload,
            variant: self.variant,
            database: self.database.with_sessions(1),
        }
    }

    async fn answer(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        match self.route(request).await {
            Ok(reply) => reply.into_response(),
            Err(failure) => failure.reply().into_response(),
        }
    }

    async fn route(&self, request: Request<Incoming>) -> Result<Reply, Failure> {
        let (parts, body) = request.into_parts();
        let body = Limited::new(body, BODY_BYTES_MAX)
            .collect()
            .await
            .map_err(Failure::invalid)?
            .to_bytes();
        let traceparent = parts.headers.get("traceparent");
        let traceparent = traceparent.and_then(|value| TraceParent::parse(value.as_bytes()));

        let segments: Vec<&str> = parts.uri.path().trim_matches('/').split('/').collect();
        let call = Call {
            method: &parts.method,
            path: &segments,
            body: &body,
        };
        if let (&Method::GET, ["healthz"]) = (call.method, call.path) {
            return Reply::ok(&Health {
                status: "ok",
                workload: self.workload.to_string(),
                variant: self.variant.to_string(),
            });
        }
        let cx = self.database.for_request(traceparent);
        for part in self.workload.parts() {
            let variant = self.variant.of(*part);
            let reply = match part {
                Workload::Moodle => moodle::handle(cx, variant, &call).await?,
                Workload::WpOptions => wp_options::handle(cx, variant, &call).await?,
                Workload::WpComments => wp_comments::handle(cx, variant, &call).await?,
                Workload::Tpcc => tpcc::handle(cx, &call).await?,
                Workload::Wordpress => unreachable!("a combination is made of its parts"),
            };
            if let Some(reply) = reply {
                return Ok(reply);
            }
        }
        Err(Failure::NotFound(format!(
            "{} {}",
            parts.method,
            parts.uri.path()
        )))
    }
}

#[derive(Serialize)]
struct Health {
    status: &'static str,
    workload: String,
    variant: String,
}

/// Which thread answers a connection's requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Threads {
    /// The caller's runtime, as event loops do it.
    Shared,
    /// One of its own, with a database session of its own.
    PerConnection,
}

/// Serves until `shutdown` resolves, then finishes the requests that are being answered.
pub async fn serve(
    listener: TcpListener,
    service: Service,
    threads: Threads,
    shutdown: impl Future<Output = ()>,
) -> io::Result<()> {
    let service = Arc::new(service);
    let connections = GracefulShutdown::new();
    tokio::pin!(shutdown);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = &mut shutdown => break,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            // The peer was gone before it was accepted.
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
            Err(error) => return Err(error),
        };
        stream.set_nodelay(true)?;
        let watcher = connections.watcher();
        match threads {
            Threads::Shared => {
                tokio::spawn(answer_all(stream, service.clone(), watcher));
            }
            Threads::PerConnection => {
                let stream = stream.into_std()?;
                let service = Arc::new(service.with_one_session());
                std::thread::spawn(move || on_this_thread(stream, service, watcher));
            }
        }
    }
    drop(listener);
    // Whoever is still being answered after this is cut off with the process.
    let _ = tokio::time::timeout(SHUTDOWN_WAIT, connections.shutdown()).await;
    Ok(())
}

/// A connection that breaks concerns only its client, who sees it.
async fn answer_all(stream: TcpStream, service: Arc<Service>, watcher: Watcher) {
    let answer = service_fn(move |request| {
        let service = service.clone();
        async move { Ok::<_, Infallible>(service.answer(request).await) }
    });
    let server = auto::Builder::new(TokioExecutor::new());
    let connection = server
        .serve_connection(TokioIo::new(stream), answer)
        .into_owned();
    watcher.watch(connection).await.ok();
}

fn on_this_thread(stream: std::net::TcpStream, service: Arc<Service>, watcher: Watcher) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a descriptor for the thread's own poll");
    runtime.block_on(async {
        let stream = TcpStream::from_std(stream).expect("it was a runtime's before");
        answer_all(stream, service, watcher).await;
    });
}

/// A request as a handler sees it.
pub struct Call<'a> {
    pub method: &'a Method,
    /// The path's segments.
    pub path: &'a [&'a str],
    body: &'a [u8],
}

impl Call<'_> {
    pub fn body<T: DeserializeOwned>(&self) -> Result<T, Failure> {
        serde_json::from_slice(self.body).map_err(Failure::invalid)
    }
}

/// A number in a path.
pub fn number<T: std::str::FromStr>(segment: &str) -> Result<T, Failure> {
    segment
        .parse()
        .map_err(|_| Failure::Invalid(format!("`{segment}` is not a number in range")))
}

pub struct Reply {
    status: StatusCode,
    body: Vec<u8>,
}

impl Reply {
    pub fn ok(body: &impl Serialize) -> Result<Self, Failure> {
        Ok(Self::new(StatusCode::OK, body))
    }

    pub fn created(body: &impl Serialize) -> Result<Self, Failure> {
        Ok(Self::new(StatusCode::CREATED, body))
    }

    fn new(status: StatusCode, body: &impl Serialize) -> Self {
        let body =
            serde_json::to_vec(body).expect("our answers have string keys and finite numbers");
        Self { status, body }
    }

    fn into_response(self) -> Response<Full<Bytes>> {
        let mut response = Response::new(Full::new(Bytes::from(self.body)));
        *response.status_mut() = self.status;
        let json = header::HeaderValue::from_static("application/json");
        response.headers_mut().insert(header::CONTENT_TYPE, json);
        response
    }
}

/// Why a request got no ordinary answer.
#[derive(Debug)]
pub enum Failure {
    Invalid(String),
    NotFound(String),
    /// The application itself says no.
    Refused {
        kind: &'static str,
        message: String,
    },
    /// TPC-C's one order in a hundred that names an item nobody sells, and is rolled back as
    /// specified.
    RolledBack(String),
    Database(DatabaseError),
}

impl Failure {
    fn invalid(error: impl std::fmt::Display) -> Self {
        Self::Invalid(error.to_string())
    }

    fn reply(&self) -> Reply {
        let (status, error, message) = match self {
            Self::Invalid(message) => (StatusCode::BAD_REQUEST, "invalid_request", message.clone()),
            Self::NotFound(message) => (StatusCode::NOT_FOUND, "not_found", message.clone()),
            Self::Refused { kind, message } => (StatusCode::FORBIDDEN, *kind, message.clone()),
            Self::RolledBack(message) => (
                StatusCode::UNPROCESSABLE_ENTITY,
                "rolled_back",
                message.clone(),
            ),
            Self::Database(error) => {
                let (status, kind) = match error {
                    DatabaseError::Conflict {
                        deadlock: false, ..
                    } => (StatusCode::CONFLICT, "serialization_failure"),
                    DatabaseError::Conflict { deadlock: true, .. } => {
                        (StatusCode::CONFLICT, "deadlock_detected")
                    }
                    // As the originals would: they print the database's error and stop.
                    DatabaseError::UniqueViolation { .. } => {
                        (StatusCode::INTERNAL_SERVER_ERROR, "unique_violation")
                    }
                    DatabaseError::Refused { .. } => {
                        (StatusCode::INTERNAL_SERVER_ERROR, "database_error")
                    }
                    DatabaseError::Unreachable(_) => {
                        (StatusCode::SERVICE_UNAVAILABLE, "database_unavailable")
                    }
                };
                (status, kind, error.to_string())
            }
        };
        Reply::new(status, &Problem { error, message })
    }
}

#[derive(Serialize)]
struct Problem {
    error: &'static str,
    message: String,
}

impl From<DatabaseError> for Failure {
    fn from(error: DatabaseError) -> Self {
        Self::Database(error)
    }
}

impl MayConflict for Failure {
    fn is_conflict(&self) -> bool {
        matches!(self, Self::Database(error) if error.is_conflict())
    }
}

/// A row's column that could not be read as its type is a disagreement between this code and its
/// schema.
pub(crate) fn column<'a, T: tokio_postgres::types::FromSql<'a>>(
    row: &'a tokio_postgres::Row,
    index: usize,
) -> Result<T, Failure> {
    row.try_get(index)
        .map_err(|error| Failure::Database(DatabaseError::from_column(error)))
}

/// `Ok(None)` for a path that is not the handler's own.
pub type Handled = Result<Option<Reply>, Failure>;
