//! Requests that came by FastCGI or uwsgi, as they are sent again, and their answers as they are
//! read.

use hindcast_trace::Request;
use http::HeaderMap;

use super::{cgi, fastcgi, uwsgi};
use crate::http::headers;
use crate::messages::{Asked, Body, Gathered, Malformed, head};

/// By which a web server asks a service behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CgiProtocol {
    FastCgi,
    Uwsgi,
}

/// An answer as a recording has it.
#[derive(Debug)]
pub struct Answered {
    pub status: u16,
    pub headers: Vec<(String, Vec<u8>)>,
    pub body: Vec<u8>,
    /// What a web server would write into its log.
    pub said: Vec<u8>,
}

impl CgiProtocol {
    /// By which a recorded request came; `None`: by HTTP.
    pub fn of(request: &Request) -> Option<Self> {
        let came_by = |protocol: Self| {
            let name = protocol.name();
            let mut kept = request.headers.iter();
            let kept = kept.any(|(header, _)| {
                let protocol = header
                    .strip_prefix(':')
                    .and_then(|kept| kept.split_once(':'));
                protocol.is_some_and(|(protocol, _)| protocol == name)
            });
            kept.then_some(protocol)
        };
        came_by(Self::FastCgi).or_else(|| came_by(Self::Uwsgi))
    }

    fn name(self) -> &'static str {
        match self {
            Self::FastCgi => "fastcgi",
            Self::Uwsgi => "uwsgi",
        }
    }

    /// The bytes of a request, on a connection that is for it alone. An error says why it cannot be
    /// sent.
    pub fn encode(self, request: &Request, traceparent: Option<&str>) -> Result<Vec<u8>, String> {
        let variables = cgi::variables(self.name(), request, traceparent);
        match self {
            Self::FastCgi => Ok(fastcgi::encode(&variables, &request.body)),
            Self::Uwsgi => uwsgi::encode(&variables, &request.body).ok_or_else(|| {
                "its variables take more than the 65,535 bytes that uwsgi has room for".to_owned()
            }),
        }
    }

    /// Reads the answer to a request of this method.
    pub fn answer(self, method: &str) -> AnswerReader {
        AnswerReader(match self {
            Self::FastCgi => Reads::FastCgi(fastcgi::Answer::default()),
            Self::Uwsgi => Reads::Uwsgi(HttpAnswer::to(method)),
        })
    }
}

/// Reads an answer until it is whole or the connection ends.
#[derive(Debug)]
pub struct AnswerReader(Reads);

#[derive(Debug)]
enum Reads {
    FastCgi(fastcgi::Answer),
    Uwsgi(HttpAnswer),
}

impl AnswerReader {
    /// True once it is whole.
    pub fn take(&mut self, bytes: &[u8]) -> Result<bool, Malformed> {
        match &mut self.0 {
            Reads::FastCgi(answer) => answer.take(bytes),
            Reads::Uwsgi(answer) => answer.take(bytes),
        }
    }

    /// The answer, if it is whole or the end of the connection ends it.
    pub fn finish(self, whole: bool) -> Result<Answered, String> {
        let (begun, body, said, whole) = match self.0 {
            Reads::FastCgi(answer) => (answer.begun, answer.body, answer.said, whole),
            Reads::Uwsgi(answer) => {
                let whole = whole || matches!(answer.left, Some(Body::UntilClosed));
                (answer.begun, answer.body, Vec::new(), whole)
            }
        };
        let bytes = body.len();
        match begun {
            Some((status, headers)) if whole => Ok(Answered {
                status,
                headers: headers::to_record(&headers),
                body,
                said,
            }),
            Some(_) => Err(format!(
                "the response broke off after {bytes} bytes of its body"
            )),
            None if whole => Err("the service ended it without an answer".to_owned()),
            None => Err("the service closed the connection before it had answered".to_owned()),
        }
    }
}

/// An answer of HTTP on a connection that is for it alone.
#[derive(Debug)]
struct HttpAnswer {
    asked: Asked,
    head: Gathered,
    begun: Option<(u16, HeaderMap)>,
    left: Option<Body>,
    body: Vec<u8>,
}

impl HttpAnswer {
    fn to(method: &str) -> Self {
        Self {
            asked: Asked {
                head_only: method == "HEAD",
                ..Asked::default()
            },
            head: Gathered::default(),
            begun: None,
            left: None,
            body: Vec::new(),
        }
    }

    fn take(&mut self, mut bytes: &[u8]) -> Result<bool, Malformed> {
        while self.begun.is_none() {
            let Some(parsed) = self.head.take(&mut bytes, head::answer)? else {
                return Ok(false);
            };
            let answer = parsed?;
            if !(100..=199).contains(&answer.status) {
                self.left = answer.body(&self.asked)?;
                self.begun = Some((answer.status, answer.headers));
            }
        }
        let Some(left) = &mut self.left else {
            return Ok(true);
        };
        let whole = left.take(&mut bytes, |data| self.body.extend_from_slice(data))?;
        if let Some((_, headers)) = &mut self.begun
            && whole
            && !left.trailers().trim_ascii().is_empty()
        {
            headers.extend(head::fields(left.trailers())?);
        }
        Ok(whole)
    }
}
