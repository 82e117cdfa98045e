//! Metrics over HTTP, for Prometheus.

use std::convert::Infallible;
use std::sync::Arc;

use hindcast_gateway::ListenAddress;
use hindcast_standby::metrics::prometheus;
use hindcast_standby::status::Control;
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode, header};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};

use crate::error::CliError;

/// What is followed: a database, where it was named, and its standby.
type Followed = Arc<[(Option<String>, Control)]>;

/// Answers `GET /metrics` until the runtime ends.
pub async fn serve(address: &str, followed: Followed) -> Result<(), CliError> {
    let wrong = |error: &dyn std::fmt::Display| CliError::usage(format!("--metrics: {error}"));
    let (host, port) = match address.parse().map_err(|error: String| wrong(&error))? {
        ListenAddress::Tcp { host, port } => (host, port),
        ListenAddress::Unix(_) => {
            return Err(wrong(&"metrics are served over TCP: give HOST:PORT"));
        }
    };
    let listener = TcpListener::bind((host.as_str(), port))
        .await
        .map_err(|error| {
            CliError::because(format!("cannot serve metrics at {address}"), &error)
                .hint("another process listens there, or the address is not one of this machine's")
        })?;
    tokio::spawn(async move {
        loop {
            // Out of descriptors, or a client that was gone before it was answered: the next one
            // may fare better.
            let Ok((stream, _)) = listener.accept().await else {
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
                continue;
            };
            tokio::spawn(answer(stream, Arc::clone(&followed)));
        }
    });
    Ok(())
}

async fn answer(stream: TcpStream, followed: Followed) {
    let service = service_fn(move |request| {
        let followed = Arc::clone(&followed);
        async move { Ok::<_, Infallible>(respond(&request, &followed)) }
    });
    // A scraper that hangs up early is none of our business.
    let _ = hyper::server::conn::http1::Builder::new()
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

fn respond(request: &Request<Incoming>, followed: &Followed) -> Response<Full<Bytes>> {
    let (status, body) = match request.uri().path() {
        "/metrics" | "/" => {
            let status = |(database, control): &(Option<String>, Control)| {
                (database.clone(), control.status())
            };
            let statuses: Vec<_> = followed.iter().map(status).collect();
            (StatusCode::OK, prometheus(&statuses))
        }
        _ => (
            StatusCode::NOT_FOUND,
            "metrics are at /metrics\n".to_owned(),
        ),
    };
    let mut response = Response::new(Full::from(body));
    *response.status_mut() = status;
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        header::HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8"),
    );
    response
}
