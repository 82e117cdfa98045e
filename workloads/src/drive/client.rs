use std::fmt;
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::str::FromStr;
use std::time::{Duration, Instant};

use http::{Method, Uri};

use super::generator::HttpCall;

/// Where the service listens: `http://host:port`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    host: String,
    port: u16,
}

#[derive(Debug, thiserror::Error)]
#[error("`{0}` is not of the form http://host:port")]
pub struct TargetError(String);

impl FromStr for Target {
    type Err = TargetError;
    fn from_str(text: &str) -> Result<Self, TargetError> {
        let error = || TargetError(text.to_owned());
        let uri: Uri = text.parse().map_err(|_| error())?;
        if uri.scheme_str() != Some("http") || !matches!(uri.path(), "" | "/") {
            return Err(error());
        }
        let host = uri.host().ok_or_else(error)?.to_owned();
        Ok(Self {
            host,
            port: uri.port_u16().unwrap_or(80),
        })
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}:{}", self.host, self.port)
    }
}

#[derive(Debug)]
pub struct HttpReply {
    pub status: u16,
    pub body: Vec<u8>,
    /// Of head and body, as they came.
    pub bytes: usize,
}

#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    #[error("cannot connect")]
    Connect(#[source] io::Error),
    #[error("no answer in time")]
    Timeout,
    #[error("the connection broke")]
    Broken(#[source] io::Error),
    #[error("the answer is not HTTP: {0}")]
    Malformed(&'static str),
}

impl HttpError {
    /// A word to count it by.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Connect(_) => "connect",
            Self::Timeout => "timeout",
            Self::Broken(_) => "broken_connection",
            Self::Malformed(_) => "malformed_response",
        }
    }
}

/// One keep-alive connection, opened when it is needed and again after it failed.
pub struct Client {
    target: Target,
    timeout: Duration,
    stream: Option<TcpStream>,
    output: Vec<u8>,
    input: Vec<u8>,
}

impl Client {
    pub fn new(target: Target, timeout: Duration) -> Self {
        Self {
            target,
            timeout,
            stream: None,
            output: Vec::new(),
            input: Vec::new(),
        }
    }

    pub fn connect(&mut self) -> io::Result<()> {
        let address = format!("{}:{}", self.target.host, self.target.port);
        let mut last = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
        for address in address.to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, self.timeout) {
                Ok(stream) => {
                    stream.set_nodelay(true)?;
                    stream.set_write_timeout(Some(self.timeout))?;
                    self.stream = Some(stream);
                    return Ok(());
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// Sends a request and reads the answer. After an error the connection is given up.
    pub fn send(&mut self, call: &HttpCall) -> Result<HttpReply, HttpError> {
        let deadline = Instant::now() + self.timeout;
        let reused = self.stream.is_some();
        match self.exchange(call, deadline) {
            // The server closed a kept connection before it read the request: it is not the
            // request's fault.
            Err(HttpError::Broken(_))
                if reused && self.input.is_empty() && call.method == Method::GET =>
            {
                self.exchange(call, deadline)
            }
            outcome => outcome,
        }
    }

    fn exchange(&mut self, call: &HttpCall, deadline: Instant) -> Result<HttpReply, HttpError> {
        if self.stream.is_none() {
            self.connect().map_err(HttpError::Connect)?;
        }
        let outcome = self.write(call).and_then(|()| self.read(deadline));
        match outcome {
            Ok((reply, true)) => Ok(reply),
            Ok((reply, false)) => {
                self.stream = None;
                Ok(reply)
            }
            Err(error) => {
                self.stream = None;
                Err(error)
            }
        }
    }

    fn write(&mut self, call: &HttpCall) -> Result<(), HttpError> {
        self.output.clear();
        self.input.clear();
        let Target { host, port } = &self.target;
        let head = write!(
            self.output,
            "{} {} HTTP/1.1\r\nhost: {host}:{port}\r\n",
            call.method, call.path
        );
        head.and_then(|()| match &call.traceparent {
            Some(traceparent) => write!(self.output, "traceparent: {traceparent}\r\n"),
            None => Ok(()),
        })
        .and_then(|()| match call.method {
            Method::GET => write!(self.output, "\r\n"),
            _ => write!(
                self.output,
                "content-type: application/json\r\ncontent-length: {}\r\n\r\n",
                call.body.len()
            ),
        })
        .expect("a buffer grows");
        self.output.extend_from_slice(&call.body);
        stream(&mut self.stream)
            .write_all(&self.output)
            .map_err(HttpError::Broken)
    }

    /// The reply, and whether the connection may be used again.
    fn read(&mut self, deadline: Instant) -> Result<(HttpReply, bool), HttpError> {
        let head = loop {
            if let Some(head) = Head::parse(&self.input)? {
                // Interim answers are followed by the real one.
                if head.status >= 200 {
                    break head;
                }
                self.input.drain(..head.bytes);
                continue;
            }
            if self.fill(deadline)? == 0 {
                return Err(HttpError::Broken(io::ErrorKind::UnexpectedEof.into()));
            }
        };
        let (body, end) = match head.body {
            Body::Bytes(length) => {
                let end = head.bytes + length;
                while self.input.len() < end {
                    self.fill_more(deadline)?;
                }
                (self.input[head.bytes..end].to_vec(), end)
            }
            Body::Chunked => self.read_chunks(head.bytes, deadline)?,
            Body::UntilClosed => {
                while self.fill(deadline)? > 0 {}
                (self.input[head.bytes..].to_vec(), self.input.len())
            }
        };
        let reusable =
            head.keep_alive && end == self.input.len() && !matches!(head.body, Body::UntilClosed);
        Ok((
            HttpReply {
                status: head.status,
                body,
                bytes: end,
            },
            reusable,
        ))
    }

    fn read_chunks(
        &mut self,
        mut at: usize,
        deadline: Instant,
    ) -> Result<(Vec<u8>, usize), HttpError> {
        let mut body = Vec::new();
        loop {
            match httparse::parse_chunk_size(&self.input[at..]) {
                Ok(httparse::Status::Partial) => self.fill_more(deadline)?,
                Err(_) => return Err(HttpError::Malformed("chunk size")),
                Ok(httparse::Status::Complete((line, length))) => {
                    let from = at + line;
                    let length =
                        usize::try_from(length).map_err(|_| HttpError::Malformed("chunk size"))?;
                    if length == 0 {
                        return self.read_trailers(from, deadline).map(|end| (body, end));
                    }
                    while self.input.len() < from + length + 2 {
                        self.fill_more(deadline)?;
                    }
                    body.extend_from_slice(&self.input[from..from + length]);
                    at = from + length + 2;
                }
            }
        }
    }

    /// Up to the empty line that ends a chunked body.
    fn read_trailers(&mut self, mut at: usize, deadline: Instant) -> Result<usize, HttpError> {
        loop {
            match self.input[at..].windows(2).position(|pair| pair == b"\r\n") {
                Some(0) => return Ok(at + 2),
                Some(line) => at += line + 2,
                None => self.fill_more(deadline)?,
            }
        }
    }

    fn fill_more(&mut self, deadline: Instant) -> Result<(), HttpError> {
        match self.fill(deadline)? {
            0 => Err(HttpError::Broken(io::ErrorKind::UnexpectedEof.into())),
            _ => Ok(()),
        }
    }

    fn fill(&mut self, deadline: Instant) -> Result<usize, HttpError> {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(HttpError::Timeout);
        }
        let stream = stream(&mut self.stream);
        let before = self.input.len();
        self.input.resize(before + 16_384, 0);
        let read = stream
            .set_read_timeout(Some(left))
            .and_then(|()| stream.read(&mut self.input[before..]));
        self.input.truncate(before + *read.as_ref().unwrap_or(&0));
        read.map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => HttpError::Timeout,
            _ => HttpError::Broken(error),
        })
    }
}

fn stream(stream: &mut Option<TcpStream>) -> &mut TcpStream {
    stream.as_mut().expect("connected before it is used")
}

struct Head {
    status: u16,
    bytes: usize,
    body: Body,
    keep_alive: bool,
}

enum Body {
    Bytes(usize),
    Chunked,
    UntilClosed,
}

impl Head {
    /// `None` while it is incomplete.
    fn parse(input: &[u8]) -> Result<Option<Self>, HttpError> {
        let mut headers = [httparse::EMPTY_HEADER; 64];
        let mut response = httparse::Response::new(&mut headers);
        let bytes = match response.parse(input) {
            Ok(httparse::Status::Partial) => return Ok(None),
            Ok(httparse::Status::Complete(bytes)) => bytes,
            Err(_) => return Err(HttpError::Malformed("head")),
        };
        let status = response.code.ok_or(HttpError::Malformed("status"))?;
        let bodiless = status < 200 || status == 204 || status == 304;
        let mut body = if bodiless {
            Body::Bytes(0)
        } else {
            Body::UntilClosed
        };
        let mut keep_alive = response.version == Some(1);
        for header in response.headers.iter() {
            let value = std::str::from_utf8(header.value)
                .map_err(|_| HttpError::Malformed("header"))?
                .trim();
            if header.name.eq_ignore_ascii_case("connection") {
                keep_alive = !value.eq_ignore_ascii_case("close");
            } else if header.name.eq_ignore_ascii_case("transfer-encoding") && !bodiless {
                body = Body::Chunked;
            } else if header.name.eq_ignore_ascii_case("content-length")
                && matches!(body, Body::UntilClosed)
            {
                body = Body::Bytes(
                    value
                        .parse()
                        .map_err(|_| HttpError::Malformed("content-length"))?,
                );
            }
        }
        Ok(Some(Self {
            status,
            bytes,
            body,
            keep_alive,
        }))
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    /// Serves each text to one request, all on one connection, in writes of `step` bytes.
    fn replies(
        texts: &'static [&'static str],
        step: usize,
    ) -> Vec<Result<(u16, String), &'static str>> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let target: Target = format!("http://{}", listener.local_addr().unwrap())
            .parse()
            .unwrap();
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            for text in texts {
                let mut request = Vec::new();
                while !request.ends_with(b"\r\n\r\n{}") {
                    let mut byte = [0];
                    stream.read_exact(&mut byte).unwrap();
                    request.push(byte[0]);
                }
                for piece in text.as_bytes().chunks(step) {
                    stream.write_all(piece).unwrap();
                }
            }
        });
        let mut client = Client::new(target, Duration::from_secs(10));
        let call = HttpCall::post("/".into(), &serde_json::json!({}));
        let outcomes = texts
            .iter()
            .map(|_| match client.send(&call) {
                Ok(reply) => Ok((reply.status, String::from_utf8(reply.body).unwrap())),
                Err(error) => Err(error.kind()),
            })
            .collect();
        server.join().unwrap();
        outcomes
    }

    #[test]
    fn answers_of_either_framing_are_read_however_they_arrive() {
        const TEXTS: &[&str] = &[
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
            "HTTP/1.1 201 Created\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\nA;x=y\r\n0123456789\r\n0\r\nt: v\r\n\r\n",
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n",
            "HTTP/1.1 500 Oh\r\nconnection: close\r\n\r\nuntil the end",
        ];
        for step in [1, 7, 1000] {
            let expected = [
                Ok((200, "hello".to_owned())),
                Ok((201, "abc0123456789".to_owned())),
                Ok((204, String::new())),
                Ok((500, "until the end".to_owned())),
            ];
            assert_eq!(replies(TEXTS, step), expected, "in pieces of {step}");
        }
    }

    #[test]
    fn an_answer_that_stops_short_or_is_not_http_is_an_error() {
        assert_eq!(
            replies(&["HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhal"], 100),
            [Err("broken_connection")]
        );
        assert_eq!(
            replies(&["SSH-2.0-OpenSSH_9.2\r\n"], 100),
            [Err("malformed_response")]
        );
    }

    #[test]
    fn only_plain_http_urls_are_targets() {
        assert_eq!(
            "http://localhost:8080/"
                .parse::<Target>()
                .unwrap()
                .to_string(),
            "http://localhost:8080"
        );
        for bad in [
            "https://localhost",
            "localhost",
            "/path",
            "http://host/path",
            "",
        ] {
            assert!(bad.parse::<Target>().is_err(), "{bad}");
        }
    }
}
