//! A service with the tap in it, clients, and what both say of the same requests.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use bytes::Bytes;
use hindcast_gateway::http::{Limits, Witness};
use hindcast_gateway::inside::{Inside, InsideEnd, InsideOptions, Numbers};
use hindcast_gateway::redact::Redactor;
use hindcast_spool::{Drain, SharedBoard, spool};
use hindcast_taplog::board::{Purpose, Redirect};
use hindcast_trace::{Digest, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;

use crate::collecting::Collecting;
use crate::common::*;

/// A service that is recorded from inside.
pub struct Stage {
    inside: Option<Inside>,
    variable: (&'static str, String),
    pub witness: Arc<Collecting>,
    pub folder: tempfile::TempDir,
    programs: Vec<Child>,
}

impl Stage {
    pub fn new() -> Self {
        Self::with_limit(u64::MAX)
    }

    /// With so many bytes of spool.
    pub fn with_limit(spool_max: u64) -> Self {
        let board =
            Arc::new(SharedBoard::make(Purpose::Record { first: 1 }, &Redirect::NONE).unwrap());
        let drain = Drain::with_board(Arc::clone(&board)).unwrap();
        Self::with_spool(drain, Box::new(move || board.take_number()), spool_max)
    }

    /// `numbers`: for requests to which the tap gives none.
    pub fn with(drain: Drain, numbers: Numbers) -> Self {
        Self::with_spool(drain, numbers, u64::MAX)
    }

    pub fn with_spool(drain: Drain, numbers: Numbers, spool_max: u64) -> Self {
        let variable = drain.variable();
        let witness = Collecting::timed();
        let options = InsideOptions {
            limits: Limits::default(),
            redactor: Arc::new(Redactor::default()),
            numbers,
            sessions: None,
        };
        let told = Arc::clone(&witness) as Arc<dyn Witness>;
        let folder = tempfile::tempdir().unwrap();
        let spool = spool(folder.path(), spool_max).unwrap();
        // Some programs change their user.
        let readable = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(folder.path(), readable).unwrap();
        Self {
            inside: Some(Inside::start(drain, spool, told, options).unwrap()),
            variable,
            witness,
            folder,
            programs: Vec::new(),
        }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes a file that all can read.
    pub fn file(&self, name: &str, contents: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, contents).unwrap();
        path
    }

    /// Starts the service.
    pub fn tapped(&mut self, command: &mut Command) {
        let test = std::env::current_exe().unwrap();
        let library = test.with_file_name("libhindcast_tap.so");
        assert!(library.exists(), "{} was not built", library.display());
        command.env("LD_PRELOAD", library);
        command.env(self.variable.0, &self.variable.1);
        self.beside(command);
    }

    /// Starts something that is not recorded.
    pub fn beside(&mut self, command: &mut Command) {
        let log = std::fs::File::create(self.path("log")).unwrap();
        command.current_dir(self.folder.path());
        command
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap());
        let child = command.stderr(log).spawn();
        let child = child.unwrap_or_else(|error| {
            panic!("{command:?}: {error}. `scripts/setup` installs what tests need")
        });
        self.programs.push(child);
    }

    /// How many bytes the taps told that were not looked at.
    pub fn unread(&self) -> u64 {
        let inside = self.inside.as_ref().expect("it goes on");
        inside.meter().read().unread
    }

    /// Waits until somebody listens.
    pub async fn listens(&self, port: u16) {
        until("the service listens", async || {
            tokio::net::TcpStream::connect(("127.0.0.1", port))
                .await
                .is_ok()
        })
        .await;
    }

    /// Ends all programs, the last one first, and the recorder. Nothing was lost.
    pub async fn end(self) -> InsideEnd {
        let witness = Arc::clone(&self.witness);
        let end = self.stop().await;
        let (malformed, lost) = (end.seen.malformed, end.seen.lost_records);
        assert_eq!((malformed, lost), (0, 0), "{end:?}");
        assert!(witness.missed.lock().unwrap().is_empty());
        end
    }

    /// Ends all programs and the recorder.
    pub async fn stop(mut self) -> InsideEnd {
        let end = self.stop_anyhow().await;
        assert_eq!((&end.failed, end.rings_refused), (&None, 0));
        assert_eq!(*self.witness.in_flight.borrow(), 0, "{end:?}");
        end
    }

    /// However it goes.
    pub async fn stop_anyhow(&mut self) -> InsideEnd {
        self.kill();
        let inside = self.inside.take().unwrap();
        let stopping = tokio::task::spawn_blocking(|| inside.stop());
        stopping.await.unwrap()
    }

    fn kill(&mut self) {
        for mut program in self.programs.drain(..).rev() {
            // Those that have workers tell them.
            let pid = program.id().to_string();
            let _ = Command::new("kill").args(["-TERM", &pid]).status();
            let begun = std::time::Instant::now();
            while begun.elapsed() < PATIENCE / 6 && matches!(program.try_wait(), Ok(None)) {
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
            let _ = program.kill();
            let _ = program.wait();
        }
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.kill();
    }
}

pub fn free_port() -> u16 {
    hindcast_cluster::free_port().expect("not all ports are taken")
}

/// A program that may be where only the administrator looks.
pub fn program(begins: &str) -> PathBuf {
    let path = std::env::var("PATH").unwrap_or_default();
    let folders = path.split(':').chain(["/usr/sbin", "/sbin"]).map(Path::new);
    let mut found: Vec<PathBuf> = folders
        .filter_map(|folder| std::fs::read_dir(folder).ok())
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| {
            path.file_name()
                .is_some_and(|name| name.to_string_lossy().starts_with(begins))
        })
        .collect();
    found.sort();
    let found = found.into_iter().next();
    found
        .unwrap_or_else(|| panic!("there is no {begins}; `scripts/setup` installs what tests need"))
}

/// What a client sent and got.
#[derive(Debug)]
pub struct Seen {
    pub number: usize,
    pub method: &'static str,
    pub target: String,
    pub sent: Vec<u8>,
    pub status: u16,
    pub headers: hyper::HeaderMap,
    pub got: Vec<u8>,
}

/// Some clients at a time, each with requests one after the other, of all kinds.
pub async fn clients(port: u16, count: usize, rounds: usize) -> Vec<Seen> {
    numbered(port, 0, count, rounds).await
}

/// Their requests are numbered from there on.
pub async fn numbered(port: u16, first: usize, count: usize, rounds: usize) -> Vec<Seen> {
    let clients = (0..count).map(|number| {
        tokio::spawn(async move {
            let http = Client::builder(TokioExecutor::new()).build(HttpConnector::new());
            let mut seen = Vec::new();
            for round in 0..rounds {
                seen.push(exchange(&http, port, first + number * rounds + round).await);
            }
            seen
        })
    });
    let mut all = Vec::new();
    for one in clients.collect::<Vec<_>>() {
        all.extend(one.await.unwrap());
    }
    all
}

async fn exchange(http: &Client<HttpConnector, Full<Bytes>>, port: u16, number: usize) -> Seen {
    let method = ["POST", "GET", "PUT", "HEAD"][number % 4];
    let sent = match method {
        "POST" | "PUT" => format!("number {number} ")
            .repeat(1 + number * 97 % 9000)
            .into_bytes(),
        _ => Vec::new(),
    };
    let target = format!("/some/path?number={number}&text=%C3%A4");
    let request = hyper::Request::builder()
        .method(method)
        .uri(format!("http://127.0.0.1:{port}{target}"))
        .header("x-number", number.to_string())
        .header("content-type", "text/plain")
        .header("x-two", "one")
        .header("x-two", "two")
        .body(Full::new(Bytes::from(sent.clone())))
        .unwrap();
    let response = http.request(request).await.unwrap();
    let (parts, body) = response.into_parts();
    let got = body.collect().await.unwrap().to_bytes().to_vec();
    Seen {
        number,
        method,
        target,
        sent,
        status: parts.status.as_u16(),
        headers: parts.headers,
        got,
    }
}

pub fn header<'a>(headers: &'a [(String, Vec<u8>)], name: &str) -> Option<&'a [u8]> {
    let found = headers.iter().find(|(given, _)| given == name);
    found.map(|(_, value)| &value[..])
}

/// That each request which a client made was recorded, once, as the client saw it. `between`: a web
/// server stands in between, which adds to headers and takes away from them.
pub async fn compare(stage: &Stage, seen: &[Seen], between: bool) {
    until("all is recorded", async || {
        stage.witness.requests.lock().unwrap().len() >= seen.len()
    })
    .await;
    let requests = stage.witness.requests.lock().unwrap().clone();
    assert_eq!(requests.len(), seen.len());
    let mut numbers: Vec<u64> = requests.iter().map(|one| one.id.0).collect();
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len(), requests.len(), "a number was given twice");
    for seen in seen {
        let number = seen.number.to_string();
        let one =
            |request: &&Request| header(&request.headers, "x-number") == Some(number.as_bytes());
        let recorded = requests.iter().find(one);
        let recorded = recorded.unwrap_or_else(|| panic!("{number} was not recorded"));
        let sent = (seen.method, &seen.target[..]);
        assert_eq!((&recorded.method[..], &recorded.target[..]), sent);
        assert!(recorded.body == seen.sent, "{number}: another body");
        assert!(recorded.arrived <= recorded.ended, "{recorded:?}");
        let Response::Answered {
            status,
            headers,
            body_digest,
            body_bytes,
            ..
        } = &recorded.response
        else {
            panic!("{number}: {:?}", recorded.response);
        };
        assert_eq!(*status, seen.status, "{number}");
        assert_eq!(
            (*body_bytes, *body_digest),
            (seen.got.len() as u64, Digest::of(&seen.got)),
            "{number}"
        );
        if !between {
            let two = recorded.headers.iter().filter(|(name, _)| name == "x-two");
            assert_eq!(two.count(), 2);
            let mut recorded = headers.clone();
            let mut got = hindcast_gateway::http::headers::to_record(&seen.headers);
            recorded.sort();
            got.sort();
            assert_eq!(recorded, got, "{number}");
        }
    }
}
