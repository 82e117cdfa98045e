//! Whom else a replayed service calls: each is answered as it was when it was recorded, by the
//! bytes that it was sent.
//!
//! ```text
//!   service ── connect(10.0.0.7:6379) ──▶ gate of 10.0.0.7:6379 ──▶ the recorded calls to it
//!                                          whose turn: the board
//! ```
//!
//! A call is answered by the first of its request's that is the same and was not answered yet.
//! What is about a connection only, and what belonged to no request, is answered for any request.
//! What the recording does not have gets no answer: the connection ends, and a remark says so.
//!
//! A call that the service encrypts is answered by a gate that has a certificate of the name which
//! is called, of an authority that the service is told to trust ([`authority`]).

mod authority;

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::io::{self, Cursor};
use std::net::{Ipv6Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt;
use std::sync::{Arc, Mutex, PoisonError};

use hindcast_gateway::messages::{self, Messages, Protocol};
use hindcast_gateway::{
    Accepted, ListenAddress, Listener, address_of, socket_folder, system_address,
};
use hindcast_spool::SharedBoard;
use hindcast_taplog::board::{Address, Line, OTHERS};
use hindcast_trace::{Call, ReadError, Request, RequestFilter, Trace};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use authority::{Authority, VARIABLES};

use crate::plan::Plan;
use crate::turns::Turns;
use crate::verdict::Remark;

/// Of what is read at once.
const BUFFER: usize = 64 << 10;
/// The first byte of a handshake.
const HANDSHAKE: u8 = 0x16;
/// Where no connection can be had.
const ACCEPT_PAUSE: std::time::Duration = std::time::Duration::from_millis(50);

/// All recorded calls, by whom they were made to.
#[derive(Default)]
struct Calls {
    peers: BTreeMap<String, Peer>,
    /// What was asked and is not recorded, and how often.
    unknown: BTreeMap<String, u64>,
}

#[derive(Default)]
struct Peer {
    calls: Vec<Recorded>,
    /// So many of them the service encrypted.
    encrypted: usize,
    by_request: HashMap<u64, Vec<usize>>,
    /// By what was asked.
    by_sent: HashMap<Vec<u8>, Vec<usize>>,
}

struct Recorded {
    sent: Vec<u8>,
    answer: Answer,
    is_given: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Answer {
    bytes: Vec<u8>,
    closes: bool,
}

/// What there is for bytes that may not be all.
#[derive(Debug, PartialEq, Eq)]
enum Found {
    Answer(Answer),
    /// A recorded call begins so.
    More,
    Nothing,
}

impl Calls {
    fn add(&mut self, request: &Request, call: Call) {
        let peer = self.peers.entry(call.peer.clone()).or_default();
        peer.add(request.id.0, call);
    }

    fn note(&mut self, peer: &str, what: &str) {
        *self.unknown.entry(format!("{what} of {peer}")).or_default() += 1;
    }
}

impl Peer {
    fn add(&mut self, request: u64, call: Call) {
        let at = self.calls.len();
        self.encrypted += usize::from(call.encrypted);
        if call.within {
            self.by_request.entry(request).or_default().push(at);
        }
        self.by_sent.entry(call.sent.clone()).or_default().push(at);
        self.calls.push(Recorded {
            sent: call.sent,
            answer: Answer {
                bytes: call.received,
                closes: call.closed,
            },
            is_given: false,
        });
    }

    /// Whether who connects begins with a handshake.
    fn is_encrypted(&self) -> bool {
        !self.calls.is_empty() && self.encrypted == self.calls.len()
    }

    /// A message is whole.
    fn answer(&mut self, request: u64, sent: &[u8]) -> Option<Answer> {
        let without = messages::without_password(sent);
        let sent = without.as_deref().unwrap_or(sent);
        if messages::sets_up(sent) {
            return self.any(sent);
        }
        let own = self.own(request, |recorded| recorded == sent);
        own.or_else(|| self.any(sent)).or_else(|| {
            // What it carries may have been redacted.
            let line = http_line(sent)?;
            self.own(request, |recorded| http_line(recorded) == Some(line))
        })
    }

    /// Nothing says where a message ends.
    fn answer_bytes(&mut self, request: u64, sent: &[u8]) -> Found {
        let own = self.own(request, |recorded| recorded == sent);
        if let Some(answer) = own.or_else(|| self.any(sent)) {
            return Found::Answer(answer);
        }
        let longer = |recorded: &Recorded| !recorded.is_given && recorded.sent.starts_with(sent);
        match self.calls.iter().any(longer) {
            true => Found::More,
            false => Found::Nothing,
        }
    }

    /// What it says before it is asked.
    fn greeting(&self) -> Option<Answer> {
        let first = self.by_sent.get(&b""[..])?.first()?;
        Some(self.calls[*first].answer.clone())
    }

    /// The request's first that was not given yet.
    fn own(&mut self, request: u64, is_it: impl Fn(&[u8]) -> bool) -> Option<Answer> {
        let own = self.by_request.get(&request)?;
        let fits = |&&at: &&usize| !self.calls[at].is_given && is_it(&self.calls[at].sent);
        let at = *own.iter().find(fits)?;
        Some(self.give(at))
    }

    /// Somebody's: one that was not given yet, or else the last.
    fn any(&mut self, sent: &[u8]) -> Option<Answer> {
        let all = self.by_sent.get(sent)?;
        let next = all.iter().find(|&&at| !self.calls[at].is_given);
        let at = *next.or(all.last())?;
        Some(self.give(at))
    }

    fn give(&mut self, at: usize) -> Answer {
        self.calls[at].is_given = true;
        self.calls[at].answer.clone()
    }
}

/// Method and target.
fn http_line(sent: &[u8]) -> Option<&[u8]> {
    let is_http = Protocol::of(sent) == Some(Protocol::Http);
    sent.split(|&byte| byte == b'\r').next().filter(|_| is_http)
}

/// What becomes of a service's connections to others than its database.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Outbound {
    /// They are answered as recorded; what is not recorded is refused.
    #[default]
    Recorded,
    /// They are made.
    Live,
}

/// Gates to those whom the recorded service called. They answer until this is dropped.
pub struct Others {
    calls: Arc<Mutex<Calls>>,
    gates: Vec<(String, Listener)>,
    places: Vec<(Address, Address)>,
    serving: JoinSet<()>,
    /// Vouches for those whom the service calls encrypted; and where its certificate is.
    authority: Option<(Arc<Authority>, OsString)>,
    /// Of the gates' sockets.
    folder: tempfile::TempDir,
}

impl Others {
    /// Reads what the requests of a range called.
    pub async fn open(trace: &Arc<Trace>, plan: &Plan, outbound: Outbound) -> io::Result<Self> {
        let (trace, period) = (Arc::clone(trace), plan.period.clone());
        let read = tokio::task::spawn_blocking(move || {
            let mut calls = Calls::default();
            if outbound == Outbound::Live {
                return Ok(calls);
            }
            let filter = RequestFilter {
                arrived: Some(period),
                ..RequestFilter::default()
            };
            for request in trace.requests(filter) {
                let mut request = request?;
                let own = std::mem::take(&mut request.calls);
                own.into_iter().for_each(|call| calls.add(&request, call));
            }
            Ok::<_, ReadError>(calls)
        });
        let calls = read.await?.map_err(io::Error::other)?;
        let mut others = Self {
            gates: Vec::new(),
            places: Vec::new(),
            serving: JoinSet::new(),
            authority: None,
            folder: socket_folder()?,
            calls: Arc::default(),
        };
        for peer in calls.peers.keys().take(OTHERS) {
            others.open_gate(peer).await?;
        }
        if calls.peers.values().any(Peer::is_encrypted) {
            others.vouch()?;
        }
        others.calls = Arc::new(Mutex::new(calls));
        Ok(others)
    }

    /// Makes an authority, and a file with its certificate that the service can read.
    fn vouch(&mut self) -> io::Result<()> {
        let authority = Authority::new()?;
        let path = self.folder.path().join("authority.pem");
        hindcast_private::write(&path, authority.pem())?;
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o644))?;
        self.authority = Some((Arc::new(authority), path.into()));
        Ok(())
    }

    /// Variables by which the service's libraries are told whom to trust.
    pub fn trusted(&self) -> impl Iterator<Item = (&'static str, &OsString)> {
        let path = self.authority.as_ref().map(|(_, path)| path);
        path.into_iter()
            .flat_map(|path| VARIABLES.map(|name| (name, path)))
    }

    /// What nobody can connect to is left out.
    async fn open_gate(&mut self, peer: &str) -> io::Result<()> {
        let Some(from) = address_of(peer) else {
            return Ok(());
        };
        let at = match peer.strip_prefix("unix:") {
            Some(_) => {
                let name = self.gates.len().to_string();
                ListenAddress::Unix(self.folder.path().join(name))
            }
            None if peer.starts_with('[') => ListenAddress::Tcp {
                host: Ipv6Addr::LOCALHOST.to_string(),
                port: 0,
            },
            None => ListenAddress::on_this_machine(0),
        };
        let gate = Listener::bind(&at).await.map_err(io::Error::other)?;
        if let Some(to) = system_address(&gate.address()) {
            self.places.push((from, to));
            self.gates.push((peer.to_owned(), gate));
        }
        Ok(())
    }

    /// Whom the service calls, and where it gets to instead.
    pub fn places(&self) -> &[(Address, Address)] {
        &self.places
    }

    /// Begins to answer.
    pub fn serve(&mut self, turns: &Arc<Turns>) {
        for (peer, gate) in std::mem::take(&mut self.gates) {
            let is_encrypted = {
                let calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
                calls.peers.get(&peer).is_some_and(Peer::is_encrypted)
            };
            let authority = self.authority.as_ref().filter(|_| is_encrypted);
            let acceptor = authority.map(|(authority, _)| {
                let address = peer.parse::<SocketAddr>();
                let address =
                    address.map_or_else(|_| "localhost".to_owned(), |it| it.ip().to_string());
                TlsAcceptor::from(authority.server(&address))
            });
            let host = Host {
                acceptor,
                calls: Arc::clone(&self.calls),
                turns: Arc::clone(turns),
                peer: peer.into(),
            };
            self.serving.spawn(host.serve(gate));
        }
    }

    /// What was asked in vain.
    pub fn remarks(&self, board: &SharedBoard) -> Vec<Remark> {
        let calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        let asked = calls
            .unknown
            .iter()
            .map(|(what, &times)| Remark::CallNotRecorded {
                what: what.clone(),
                times,
            });
        let refused = board.refused().map(|port| Remark::CallNotRecorded {
            what: format!("a connection to port {port}"),
            times: 1,
        });
        let refused_paths = board.refused_paths().map(|path| Remark::CallNotRecorded {
            what: format!("a connection to {}", String::from_utf8_lossy(&path)),
            times: 1,
        });
        asked.chain(refused).chain(refused_paths).collect()
    }
}

#[derive(Clone)]
struct Host {
    /// The service encrypts what it sends here.
    acceptor: Option<TlsAcceptor>,
    calls: Arc<Mutex<Calls>>,
    turns: Arc<Turns>,
    peer: Arc<str>,
}

impl Host {
    async fn serve(self, gate: Listener) {
        let mut connections = JoinSet::new();
        loop {
            match gate.accept().await {
                Ok(accepted) => connections.spawn(self.clone().converse(accepted)),
                // The process may have run out of descriptors for a moment.
                Err(_) => {
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            while connections.try_join_next().is_some() {}
        }
    }

    /// Ends when the service does, or asks what the recording does not have.
    async fn converse(self, accepted: Accepted) {
        let line = accepted.line();
        if let Ok((stream, _)) = accepted.register() {
            // What fails is the service's connection: it sees that.
            let _ = match &self.acceptor {
                None => self.answer_all(stream, line).await,
                Some(acceptor) => self.decrypt(acceptor, stream, line).await,
            };
        }
    }

    /// Who is called encrypted may be called otherwise by other code.
    async fn decrypt(
        &self,
        acceptor: &TlsAcceptor,
        mut stream: impl AsyncRead + AsyncWrite + Unpin,
        line: Option<Line>,
    ) -> io::Result<()> {
        let mut first = vec![0; BUFFER];
        let length = stream.read(&mut first).await?;
        first.truncate(length);
        let is_handshake = first.first() == Some(&HANDSHAKE);
        let (reader, writer) = tokio::io::split(stream);
        let stream = tokio::io::join(Cursor::new(first).chain(reader), writer);
        if !is_handshake {
            return self.answer_all(stream, line).await;
        }
        match acceptor.accept(stream).await {
            Ok(stream) => self.answer_all(stream, line).await,
            Err(error) => {
                let what = format!(
                    "an encrypted connection, whose certificate the service did not trust ({error}),"
                );
                self.calls().note(&self.peer, &what);
                Ok(())
            }
        }
    }

    async fn answer_all(
        &self,
        mut stream: impl AsyncRead + AsyncWrite + Unpin,
        line: Option<Line>,
    ) -> io::Result<()> {
        if let Some(greeting) = self.peer(|peer| peer.greeting()) {
            stream.write_all(&greeting.bytes).await?;
        }
        let (mut buffer, mut sent) = (vec![0; BUFFER], Vec::new());
        let mut asks = None;
        loop {
            let length = stream.read(&mut buffer).await?;
            if length == 0 {
                return Ok(());
            }
            let request = line
                .and_then(|line| self.turns.whose(line))
                .map_or(0, |request| request.0);
            let first;
            let mut bytes = &buffer[..length];
            if asks.is_none() {
                sent.extend_from_slice(bytes);
                let Some(protocol) = Protocol::of(&sent) else {
                    continue;
                };
                asks = Some(Messages::asks(protocol));
                first = std::mem::take(&mut sent);
                bytes = &first;
            }
            while let Some(asks) = asks.as_mut().filter(|_| !bytes.is_empty()) {
                let whole = asks.take(&mut bytes, &mut sent, false);
                let found = match whole {
                    Ok(true) => self.found(request, &sent),
                    Ok(false) if matches!(asks, Messages::Other) => {
                        self.peer(|peer| peer.answer_bytes(request, &sent))
                    }
                    Ok(false) => Found::More,
                    Err(_) => Found::Nothing,
                };
                match found {
                    Found::More => {}
                    Found::Answer(answer) => {
                        sent.clear();
                        stream.write_all(&answer.bytes).await?;
                        if answer.closes {
                            return stream.shutdown().await;
                        }
                    }
                    Found::Nothing => {
                        let mut calls = self.calls();
                        calls.note(&self.peer, &messages::title(&sent));
                        return Ok(());
                    }
                }
            }
        }
    }

    fn found(&self, request: u64, sent: &[u8]) -> Found {
        let answer = self.peer(|peer| peer.answer(request, sent));
        answer.map_or(Found::Nothing, Found::Answer)
    }

    fn peer<T>(&self, with: impl FnOnce(&mut Peer) -> T) -> T {
        let mut calls = self.calls();
        with(calls.peers.entry(self.peer.to_string()).or_default())
    }

    fn calls(&self) -> std::sync::MutexGuard<'_, Calls> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
