//! One keep-alive HTTP/1.1 connection with a blocking interface: what one client of a load test is.

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;

/// A client of one server. It connects when it must.
pub struct Client {
    /// `127.0.0.1:8080`
    address: String,
    runtime: tokio::runtime::Runtime,
    connection: Option<SendRequest<Full<Bytes>>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    pub status: u16,
    pub headers: hyper::HeaderMap,
    pub body: Bytes,
}

impl Response {
    /// # Panics
    /// If the body is not JSON.
    #[track_caller]
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error} in {:?}", self.text()))
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

impl Client {
    pub fn new(address: impl Into<String>) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a tokio runtime can be made");
        Self {
            address: address.into(),
            runtime,
            connection: None,
        }
    }

    /// Sends a request, with its body as JSON if there is one, and waits for the whole answer.
    pub fn send(
        &mut self,
        method: &str,
        target: &str,
        body: Option<&str>,
    ) -> Result<Response, Box<dyn std::error::Error + Send + Sync>> {
        self.send_with(method, target, &[], body)
    }

    /// The same with headers.
    pub fn send_with(
        &mut self,
        method: &str,
        target: &str,
        headers: &[(&str, &str)],
        body: Option<&str>,
    ) -> Result<Response, Box<dyn std::error::Error + Send + Sync>> {
        let mut request = hyper::Request::builder()
            .method(method)
            .uri(target)
            .header("host", &self.address);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        if body.is_some() {
            request = request.header("content-type", "application/json");
        }
        let request = request.body(Full::new(Bytes::from(body.unwrap_or_default().to_owned())))?;
        let Self {
            address,
            runtime,
            connection,
        } = self;
        runtime.block_on(async {
            // A connection that the server has closed in the meantime is no longer ready.
            let mut before = connection.take();
            if let Some(open) = &mut before
                && open.ready().await.is_err()
            {
                before = None;
            }
            let mut open = match before {
                Some(open) => open,
                None => {
                    let stream = tokio::net::TcpStream::connect(address.as_str()).await?;
                    let (open, driver) = handshake(TokioIo::new(stream)).await?;
                    tokio::spawn(driver);
                    open
                }
            };
            let (head, body) = open.send_request(request).await?.into_parts();
            let body = body.collect().await?.to_bytes();
            *connection = Some(open);
            Ok(Response {
                status: head.status.as_u16(),
                headers: head.headers,
                body,
            })
        })
    }
}
