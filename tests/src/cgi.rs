//! A client that asks as a web server does: by FastCGI or uwsgi, over TCP or a Unix socket.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use hyper::header::{HeaderMap, HeaderName, HeaderValue};

use crate::http::Response;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    FastCgi,
    Uwsgi,
    Http,
}

#[derive(Clone, Debug)]
pub enum Address {
    Port(u16),
    Path(PathBuf),
}

#[derive(Clone, Debug)]
pub struct Client {
    pub protocol: Protocol,
    pub address: Address,
    /// `SCRIPT_FILENAME`.
    pub script: String,
}

impl Client {
    /// Sends a request on a connection of its own, and reads its answer.
    pub fn send_with(
        &self,
        method: &str,
        target: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> io::Result<Response> {
        let sent = match self.protocol {
            Protocol::FastCgi => fastcgi(&self.variables(method, target, headers, body), body),
            Protocol::Uwsgi => uwsgi(&self.variables(method, target, headers, body), body),
            Protocol::Http => http(method, target, headers, body),
        };
        let answered = match &self.address {
            Address::Port(port) => exchange(TcpStream::connect(("127.0.0.1", *port))?, &sent),
            Address::Path(path) => exchange(UnixStream::connect(path)?, &sent),
        }?;
        Ok(match self.protocol {
            Protocol::FastCgi => response(&standard_output(&answered)),
            Protocol::Uwsgi | Protocol::Http => response(&answered),
        })
    }

    fn variables(
        &self,
        method: &str,
        target: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Vec<(String, String)> {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let mut variables = vec![
            ("REQUEST_METHOD".to_owned(), method.to_owned()),
            ("REQUEST_URI".to_owned(), target.to_owned()),
            ("PATH_INFO".to_owned(), path.to_owned()),
            // As `try_files $uri /index.php?path=$uri&$args` makes it.
            ("QUERY_STRING".to_owned(), format!("path={path}&{query}")),
            ("CONTENT_TYPE".to_owned(), String::new()),
            ("CONTENT_LENGTH".to_owned(), body.len().to_string()),
            ("SCRIPT_FILENAME".to_owned(), self.script.clone()),
            ("SERVER_PROTOCOL".to_owned(), "HTTP/1.1".to_owned()),
            ("SERVER_NAME".to_owned(), "example".to_owned()),
            ("SERVER_PORT".to_owned(), "80".to_owned()),
            ("HTTP_HOST".to_owned(), "example".to_owned()),
        ];
        variables.extend(headers.iter().map(|(name, value)| {
            let name = name.replace('-', "_").to_ascii_uppercase();
            (format!("HTTP_{name}"), (*value).to_owned())
        }));
        variables
    }
}

fn exchange(mut stream: impl Read + Write, sent: &[u8]) -> io::Result<Vec<u8>> {
    stream.write_all(sent)?;
    let mut answered = Vec::new();
    stream.read_to_end(&mut answered)?;
    Ok(answered)
}

fn http(method: &str, target: &str, headers: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let mut sent = format!(
        "{method} {target} HTTP/1.1\r\nHost: example\r\nConnection: close\r\nContent-Length: {length}\r\n"
    );
    for (name, value) in headers {
        sent += &format!("{name}: {value}\r\n");
    }
    [sent.as_bytes(), b"\r\n", body].concat()
}

fn fastcgi(variables: &[(String, String)], body: &[u8]) -> Vec<u8> {
    let record = |kind: u8, contents: &[u8]| {
        let [high, low] = (contents.len() as u16).to_be_bytes();
        [&[1, kind, 0, 1, high, low, 0, 0], contents].concat()
    };
    let mut params = Vec::new();
    for (name, value) in variables {
        for length in [name.len(), value.len()] {
            params.extend_from_slice(&(length as u32 | 1 << 31).to_be_bytes());
        }
        params.extend_from_slice(name.as_bytes());
        params.extend_from_slice(value.as_bytes());
    }
    let mut sent = record(1, &[0, 1, 0, 0, 0, 0, 0, 0]);
    sent.extend(record(4, &params));
    sent.extend(record(4, &[]));
    body.chunks(8192)
        .for_each(|part| sent.extend(record(5, part)));
    sent.extend(record(5, &[]));
    sent
}

/// What a program wrote there, without what it wrote elsewhere.
fn standard_output(mut records: &[u8]) -> Vec<u8> {
    let mut output = Vec::new();
    while let [_, kind, _, _, high, low, padding, _, rest @ ..] = records {
        let length = usize::from(u16::from_be_bytes([*high, *low]));
        if *kind == 6 {
            output.extend_from_slice(&rest[..length]);
        }
        records = &rest[length + usize::from(*padding)..];
    }
    output
}

fn uwsgi(variables: &[(String, String)], body: &[u8]) -> Vec<u8> {
    let mut packet = Vec::new();
    for text in variables.iter().flat_map(|(name, value)| [name, value]) {
        packet.extend_from_slice(&(text.len() as u16).to_le_bytes());
        packet.extend_from_slice(text.as_bytes());
    }
    let [low, high] = (packet.len() as u16).to_le_bytes();
    [&[0, low, high, 0], &packet[..], body].concat()
}

/// A status line, if there is one, headers, and a body that ends with the connection.
fn response(answered: &[u8]) -> Response {
    let text = String::from_utf8_lossy(answered);
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let mut headers = HeaderMap::new();
    let mut status = 200;
    for line in head.lines() {
        let number = |text: &str| text.split(' ').next().and_then(|first| first.parse().ok());
        if let Some(line) = line.strip_prefix("HTTP/1.1 ") {
            status = number(line).unwrap_or(0);
        } else if let Some((name, value)) = line.split_once(": ") {
            if name == "Status" {
                status = number(value).unwrap_or(0);
            }
            let name: HeaderName = name.to_ascii_lowercase().parse().expect("it is a name");
            headers.append(name, HeaderValue::from_str(value).expect("it is a value"));
        }
    }
    Response {
        status,
        headers,
        body: body.to_owned().into_bytes().into(),
    }
}
