//! When a service that accepts connections serves.

use std::convert::Infallible;
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Empty;
use hyper::{Request, Uri};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;

use crate::connect::connector;
use crate::place::Place;

/// How long an answer may take until it is asked for again.
const PATIENCE: Duration = Duration::from_secs(5);

/// What a service does once it serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ready {
    /// It answers this path with a status below 500.
    Answers(String),
    /// Its output has a line with this.
    Says(String),
}

impl FromStr for Ready {
    type Err = Infallible;

    /// A path, or a URL of which the path counts, since the service has another port in a replay;
    /// anything else is a part of a line.
    fn from_str(text: &str) -> Result<Self, Infallible> {
        let path = match text.parse::<Uri>() {
            Ok(url) if url.scheme().is_some() => url.path_and_query().map(ToString::to_string),
            _ => text.starts_with('/').then(|| text.to_owned()),
        };
        Ok(path.map_or_else(|| Self::Says(text.to_owned()), Self::Answers))
    }
}

impl Ready {
    pub async fn is(&self, place: &Place, log: &Path) -> bool {
        match self {
            Self::Answers(path) => {
                let answer = tokio::time::timeout(PATIENCE, answers(place, path));
                answer.await.unwrap_or_default()
            }
            Self::Says(text) => std::fs::read(log).is_ok_and(|said| {
                let mut lines = said.split(|&byte| byte == b'\n');
                lines.any(|line| String::from_utf8_lossy(line).contains(text))
            }),
        }
    }
}

async fn answers(place: &Place, path: &str) -> bool {
    let client = Client::builder(TokioExecutor::new())
        .pool_max_idle_per_host(0)
        .build::<_, Empty<Bytes>>(connector(place, None));
    for scheme in ["http", "https"] {
        let url = format!("{scheme}://{}{path}", place.authority());
        if let Ok(request) = Request::get(url).body(Empty::new())
            && let Ok(answer) = client.request(request).await
        {
            return answer.status().as_u16() < 500;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[test]
    fn paths_and_urls_are_asked_for_and_the_rest_is_looked_for() {
        let ready = |text: &str| text.parse::<Ready>().unwrap();
        let answers = |path: &str| Ready::Answers(path.to_owned());
        assert_eq!(ready("/healthz?full"), answers("/healthz?full"));
        assert_eq!(ready("http://127.0.0.1:8000/up"), answers("/up"));
        assert_eq!(ready("Started in"), Ready::Says("Started in".to_owned()));
    }

    #[tokio::test]
    async fn what_is_looked_for_is_part_of_a_line_of_the_output() {
        let log = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(log.path(), "Starting\nStarted in 3 s\n").unwrap();
        let nowhere = Place::Unix("nowhere".to_owned());
        let is = async |text: &str| {
            let ready: Ready = text.parse().unwrap();
            ready.is(&nowhere, log.path()).await
        };
        assert!(is("Started in").await);
        assert!(!is("Ready").await);
        assert!(!is("/up").await);
    }

    #[tokio::test]
    async fn an_answer_that_is_no_error_of_the_server_is_one() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let place = format!("http://{}", listener.local_addr().unwrap());
        let place = Place::Tcp(place.parse().unwrap());
        let ready: Ready = "/up".parse().unwrap();
        for (status, expected) in [(503, false), (404, true), (200, true)] {
            let answer = async {
                let (mut client, _) = listener.accept().await.unwrap();
                let mut head = [0; 8];
                client.read_exact(&mut head).await.unwrap();
                assert_eq!(&head, b"GET /up ");
                let answer = format!("HTTP/1.1 {status} Status\r\nContent-Length: 0\r\n\r\n");
                client.write_all(answer.as_bytes()).await.unwrap();
            };
            let (is, ()) = tokio::join!(ready.is(&place, Path::new("/")), answer);
            assert_eq!(is, expected, "{status}");
        }
    }
}
