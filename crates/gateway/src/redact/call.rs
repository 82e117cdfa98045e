//! What a service asks of others by HTTP, and what they answer.

use hindcast_trace::{Call, Id, Request, Response};

use super::Redactor;
use crate::http::headers::to_record;
use crate::messages::{AnswerHead, Asked, Body, Gathered, Protocol, head};

impl Redactor {
    /// Takes the secrets out of a call, if it is one of HTTP.
    pub fn call(&self, call: &mut Call) {
        if self.rules().is_empty() || Protocol::of(&call.sent) != Some(Protocol::Http) {
            return;
        }
        let is_head = call.sent.starts_with(b"HEAD ");
        if let Some(sent) = self.call_sent(&call.sent) {
            call.sent = sent;
        }
        if let Some(received) = self.call_received(&call.received, is_head) {
            call.received = received;
        }
    }

    /// `None`: it stays as it is.
    fn call_sent(&self, sent: &[u8]) -> Option<Vec<u8>> {
        let mut rest = sent;
        let head = Gathered::default().take(&mut rest, head::request);
        let (head, _, body) = head.ok()??.ok()?;
        let before = Request {
            method: head.method,
            target: head.target,
            headers: to_record(&head.headers),
            body: whole(body, rest),
            response: Response::Broken {
                reason: String::new(),
            },
            id: Id(0),
            arrived: 0,
            ended: 0,
            caller_traceparent: None,
            user_id: None,
            came_to: None,
            came_from: None,
            came_by: None,
            clock: Vec::new(),
            secrets: Default::default(),
            calls: Vec::new(),
        };
        let mut request = before.clone();
        self.request(&mut request);
        if (&request.target, &request.headers) == (&before.target, &before.headers)
            && request.body == before.body
        {
            return None;
        }
        let line = format!("{} {} HTTP/1.1\r\n", request.method, request.target);
        Some(written(&line, &request.headers, &request.body))
    }

    fn call_received(&self, received: &[u8], head_only: bool) -> Option<Vec<u8>> {
        let mut rest = received;
        let head: AnswerHead = Gathered::default()
            .take(&mut rest, head::answer)
            .ok()??
            .ok()?;
        let asked = Asked {
            head_only,
            ..Asked::default()
        };
        let before = whole(head.body(&asked).ok()?, rest);
        let recorded = to_record(&head.headers);
        let mut headers = recorded.clone();
        self.answer_headers(&mut headers);
        let body = self.response_body(&recorded, &before);
        if headers == recorded && body.is_none() {
            return None;
        }
        let body = body.map_or(before, |body| body.kept.unwrap_or_default());
        let line = format!("HTTP/1.1 {} -\r\n", head.status);
        Some(written(&line, &headers, &body))
    }
}

/// All of a body, chunks put together.
fn whole(body: Option<Body>, mut bytes: &[u8]) -> Vec<u8> {
    let mut all = Vec::new();
    if let Some(mut body) = body {
        // As far as it makes sense.
        let _ = body.take(&mut bytes, |data| all.extend_from_slice(data));
    }
    all
}

/// With a length in place of chunks.
fn written(line: &str, headers: &super::Headers, body: &[u8]) -> Vec<u8> {
    let mut bytes = line.as_bytes().to_vec();
    let framing = |name: &str| {
        name.eq_ignore_ascii_case("transfer-encoding")
            || name.eq_ignore_ascii_case("content-length")
    };
    for (name, value) in headers.iter().filter(|(name, _)| !framing(name)) {
        bytes.extend_from_slice(name.as_bytes());
        bytes.extend_from_slice(b": ");
        bytes.extend_from_slice(value);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes.extend_from_slice(format!("content-length: {}\r\n\r\n", body.len()).as_bytes());
    bytes.extend_from_slice(body);
    bytes
}
