//! Accepts connections, and ends them.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use hindcast_store::Store;
use socket2::{SockRef, TcpKeepalive};

use crate::memory::Catalog;

use super::session;

/// Sessions at the same time.
pub const SESSIONS_MAX: usize = 500;
/// Connections at the same time: some more, for those that cancel and those that are told that there are too many.
const CONNECTIONS_MAX: usize = SESSIONS_MAX + 50;
/// How long a connection that says nothing stays before the other side is asked whether it is there.
const KEEPALIVE: Duration = Duration::from_secs(60);

/// How long sessions have to end by themselves.
const FAREWELL: Duration = Duration::from_millis(500);

/// Why nothing is served.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error("{address:?} is no address to listen on")]
    Address { address: String },
    #[error("cannot listen on {address}")]
    Listen {
        address: String,
        #[source]
        source: io::Error,
    },
}

impl ServeError {
    /// What to do about it.
    pub fn hint(&self) -> String {
        match self {
            ServeError::Address { .. } => {
                "write HOST:PORT, or :PORT for the loopback interface: 127.0.0.1:5433, [::1]:5433, :5433".to_owned()
            }
            ServeError::Listen { source, .. } => match source.kind() {
                io::ErrorKind::AddrInUse => "another server has this port: choose another one".to_owned(),
                io::ErrorKind::PermissionDenied => "choose a port above 1023".to_owned(),
                _ => "the host has to be a name or an address of this machine".to_owned(),
            },
        }
    }
}

/// A server of reads. Dropping it ends all sessions and waits for their threads.
pub struct Server {
    address: SocketAddr,
    shared: Arc<Shared>,
    accepting: Option<JoinHandle<()>>,
}

/// What all sessions have in common.
pub(super) struct Shared {
    pub store: Store,
    pub catalog: Arc<Catalog>,
    pub database: String,
    pub server_version: String,
    stopping: AtomicBool,
    sessions: Mutex<HashMap<u32, Entry>>,
}

/// A connection, as the others see it.
struct Entry {
    secret: [u8; 4],
    cancelled: Arc<AtomicBool>,
    socket: Arc<TcpStream>,
    /// It is past its startup, and counts.
    admitted: bool,
}

impl Server {
    /// Listens on `HOST:PORT`; `:PORT` is a port of the loopback interface only, because nobody is asked for a password.
    pub fn start(
        address: &str,
        store: Store,
        catalog: Arc<Catalog>,
        database: String,
        server_version: String,
    ) -> Result<Self, ServeError> {
        let (host, port) = parse(address).ok_or_else(|| ServeError::Address {
            address: address.to_owned(),
        })?;
        let failed = |source| ServeError::Listen {
            address: address.to_owned(),
            source,
        };
        let listener = TcpListener::bind((host, port)).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let shared = Arc::new(Shared {
            store,
            catalog,
            database,
            server_version,
            stopping: AtomicBool::new(false),
            sessions: Mutex::default(),
        });
        let accepting = {
            let shared = shared.clone();
            std::thread::Builder::new()
                .name("serve-accept".to_owned())
                .spawn(move || accept(&listener, &shared))
                .map_err(failed)?
        };
        Ok(Self {
            address,
            shared,
            accepting: Some(accepting),
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// How many sessions there are.
    pub fn sessions(&self) -> usize {
        let sessions = self.shared.sessions();
        sessions.values().filter(|entry| entry.admitted).count()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::SeqCst);
        // Whoever accepts waits for a connection: here it is. Should it not get through, then because others do.
        let mut address = self.address;
        if address.ip().is_unspecified() {
            match address {
                SocketAddr::V4(_) => address.set_ip(Ipv4Addr::LOCALHOST.into()),
                SocketAddr::V6(_) => address.set_ip(Ipv6Addr::LOCALHOST.into()),
            }
        }
        let _ = TcpStream::connect_timeout(&address, Duration::from_secs(5));
        if let Some(accepting) = self.accepting.take() {
            // A panic of it was reported when it happened.
            let _ = accepting.join();
        }
    }
}

/// Host and port of `HOST:PORT`, `[V6]:PORT`, `:PORT`.
fn parse(address: &str) -> Option<(&str, u16)> {
    let (host, port) = address.rsplit_once(':')?;
    let port = port.parse().ok()?;
    let host = match host.strip_prefix('[') {
        Some(host) => host.strip_suffix(']')?,
        None if host.contains(':') => return None,
        None if host.is_empty() => "127.0.0.1",
        None => host,
    };
    Some((host, port))
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    let secrets = RandomState::new();
    let mut threads: Vec<JoinHandle<()>> = Vec::new();
    let mut process = 0_u32;
    loop {
        let accepted = listener.accept();
        if shared.stopping.load(Ordering::SeqCst) {
            break;
        }
        threads.retain(|thread| !thread.is_finished());
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                // It is gone already; or there are no more file descriptors, and then some have to be given back first.
                tracing::warn!(%error, "a connection could not be accepted");
                std::thread::sleep(Duration::from_millis(20));
                continue;
            }
        };
        if threads.len() >= CONNECTIONS_MAX {
            continue;
        }
        process = process.wrapping_add(1).max(1);
        match serve(shared, stream, process, secrets.hash_one(process)) {
            Ok(thread) => threads.push(thread),
            Err(error) => tracing::warn!(%error, "a connection could not be served"),
        }
    }
    // Nothing more is heard. Who is listening is told why; who is not after a moment, is not waited for.
    for entry in shared.sessions().values() {
        entry.cancelled.store(true, Ordering::SeqCst);
        let _ = entry.socket.shutdown(Shutdown::Read);
    }
    let deadline = Instant::now() + FAREWELL;
    while Instant::now() < deadline && threads.iter().any(|thread| !thread.is_finished()) {
        std::thread::sleep(Duration::from_millis(2));
    }
    for entry in shared.sessions().values() {
        entry.cancelled.store(true, Ordering::SeqCst);
        let _ = entry.socket.shutdown(Shutdown::Both);
    }
    for thread in threads {
        let _ = thread.join();
    }
}

/// Gives a connection a thread.
fn serve(
    shared: &Arc<Shared>,
    stream: TcpStream,
    process: u32,
    secret: u64,
) -> io::Result<JoinHandle<()>> {
    // A client that vanished would keep its snapshot, and with it every version since.
    SockRef::from(&stream).set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEPALIVE))?;
    let stream = Arc::new(stream);
    let secret = (secret as u32).to_be_bytes();
    let cancelled = Arc::new(AtomicBool::new(false));
    let entry = Entry {
        secret,
        cancelled: cancelled.clone(),
        socket: stream.clone(),
        admitted: false,
    };
    shared.sessions().insert(process, entry);
    let place = Place {
        shared: shared.clone(),
        process,
        secret,
        cancelled,
    };
    std::thread::Builder::new()
        .name(format!("serve-{process}"))
        .spawn(move || session::run(stream, &place))
}

/// A connection's place among the others; given back when it is dropped.
pub(super) struct Place {
    pub shared: Arc<Shared>,
    pub process: u32,
    pub secret: [u8; 4],
    /// Somebody wants the running statement to end.
    pub cancelled: Arc<AtomicBool>,
}

impl Place {
    /// Whether one more session is allowed; from now on it counts.
    pub fn admit(&self) -> bool {
        let mut sessions = self.shared.sessions();
        let count = sessions.values().filter(|entry| entry.admitted).count();
        match sessions.get_mut(&self.process) {
            Some(entry) if count < SESSIONS_MAX => {
                entry.admitted = true;
                true
            }
            _ => false,
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.shared.sessions().remove(&self.process);
    }
}

impl Shared {
    fn sessions(&self) -> MutexGuard<'_, HashMap<u32, Entry>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the running statement of a session, for whoever knows its secret. Others are not told that they do not.
    pub fn cancel(&self, process: u32, secret: &[u8]) {
        if let Some(entry) = self.sessions().get(&process)
            && entry.secret == secret
        {
            entry.cancelled.store(true, Ordering::SeqCst);
        }
    }

    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use hindcast_pg::{ConnectOptions, Connection};

    use super::*;

    #[test]
    fn one_session_more_than_the_limit_is_told_so() {
        let (store, _appender) = hindcast_store::open(hindcast_store::Options::default());
        let server = Server::start(
            ":0",
            store,
            Arc::default(),
            "db".to_owned(),
            "15.4".to_owned(),
        )
        .unwrap();
        // They share a socket: so many files not everybody may open.
        let socket = Arc::new(TcpStream::connect(server.address()).unwrap());
        for process in 0..SESSIONS_MAX as u32 {
            let entry = Entry {
                secret: [0; 4],
                cancelled: Arc::default(),
                socket: socket.clone(),
                admitted: true,
            };
            server.shared.sessions().insert(1_000_000 + process, entry);
        }
        let connect = || {
            let url = format!("postgres://ann@{}/db", server.address());
            Connection::connect(&url.parse().unwrap(), &ConnectOptions::named("test"))
        };
        let error = connect().err().unwrap();
        assert_eq!(error.server().unwrap().code, "53300");
        server.shared.sessions().remove(&1_000_000);
        assert!(connect().is_ok());
    }

    #[test]
    fn an_address_without_a_host_is_one_of_this_machine_only() {
        assert_eq!(parse(":5433"), Some(("127.0.0.1", 5433)));
        assert_eq!(parse("[::1]:5433"), Some(("::1", 5433)));
        assert_eq!(parse("localhost:0"), Some(("localhost", 0)));
        for wrong in ["5433", "::1:5433", "host:", "host:70000", "[::1:5433", ""] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }
}
