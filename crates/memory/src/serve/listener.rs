//! Accepts connections, and ends them.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use hindcast_pg::scram::Verifier;
use hindcast_pg::{ListenAddress, ServerIdentity};
use hindcast_store::Store;
use socket2::{SockRef, TcpKeepalive};

use crate::catalog::Catalog;

use super::place::{Entry, Place, SESSIONS_MAX, Shared};
use super::session;

/// Connections at the same time: some more, for those that cancel and those that are told that
/// there are too many.
const CONNECTIONS_MAX: usize = SESSIONS_MAX + 50;
/// How long a connection that says nothing stays before the other side is asked whether it is
/// there.
const KEEPALIVE: Duration = Duration::from_secs(60);

/// How long sessions have to end by themselves.
const FAREWELL: Duration = Duration::from_millis(500);

/// Why nothing is served.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error("{address:?} is no address to listen on")]
    Address { address: String },
    #[error("{address} can be reached from other machines, and no password is asked for")]
    Open { address: String },
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
                "write :PORT, which only this machine reaches, or HOST:PORT: :5433, 0.0.0.0:5433, [::1]:5433".to_owned()
            }
            ServeError::Open { .. } => {
                "put a password into a file and name it with --serve-password-file, or serve on the loopback interface: 127.0.0.1:5433".to_owned()
            }
            ServeError::Listen { source, .. } => match source.kind() {
                io::ErrorKind::AddrInUse => "another server has this port: choose another one".to_owned(),
                io::ErrorKind::PermissionDenied => "choose a port above 1023".to_owned(),
                _ => "the host has to be a name or an address of this machine".to_owned(),
            },
        }
    }
}

/// Where reads are served, and who may come in.
#[derive(Clone, Debug)]
pub struct Door {
    /// `HOST:PORT`; `:PORT` is a port of the loopback interface.
    pub address: String,
    /// `None`: everybody who can reach it, which only the loopback interface permits.
    pub password: Option<Verifier>,
    /// With it, only encrypted connections are accepted.
    pub identity: Option<ServerIdentity>,
}

impl Door {
    /// One that asks for no password.
    pub fn open(address: &str) -> Self {
        Self {
            address: address.to_owned(),
            password: None,
            identity: None,
        }
    }

    /// Whether it can be listened there at all, before there is anything to serve.
    pub fn check(&self) -> Result<(), ServeError> {
        self.resolve().map(drop)
    }

    fn resolve(&self) -> Result<Vec<SocketAddr>, ServeError> {
        let address = || self.address.clone();
        let Ok(ListenAddress::Tcp { host, port }) = self.address.parse() else {
            return Err(ServeError::Address { address: address() });
        };
        let found =
            (host.as_str(), port)
                .to_socket_addrs()
                .map_err(|source| ServeError::Listen {
                    address: address(),
                    source,
                })?;
        let found: Vec<_> = found.collect();
        let local = found.iter().all(|found| found.ip().is_loopback());
        match local || self.password.is_some() {
            true => Ok(found),
            false => Err(ServeError::Open { address: address() }),
        }
    }
}

/// A server of reads. Dropping it ends all sessions and waits for their threads.
pub struct Server {
    address: SocketAddr,
    shared: Arc<Shared>,
    accepting: Option<JoinHandle<()>>,
}

impl Server {
    pub fn start(
        door: &Door,
        store: Store,
        catalog: Arc<Catalog>,
        database: String,
        server_version: String,
    ) -> Result<Self, ServeError> {
        let addresses = door.resolve()?;
        let failed = |source| ServeError::Listen {
            address: door.address.clone(),
            source,
        };
        let listener = TcpListener::bind(&addresses[..]).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let shared = Arc::new(Shared {
            store,
            catalog,
            database,
            server_version,
            password: door.password.clone(),
            tls: door.identity.as_ref().map(|it| Arc::clone(&it.config)),
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
        // Whoever accepts waits for a connection: here it is. Should it not get through, then
        // because others do.
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
                // It is gone already; or there are no more file descriptors, and then some have to
                // be given back first.
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
    // Nothing more is heard. Who is listening is told why; who is not after a moment, is not waited
    // for.
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

#[cfg(test)]
mod tests {
    use hindcast_pg::{ConnectOptions, Connection};

    use super::*;

    #[test]
    fn one_session_more_than_the_limit_is_told_so() {
        let (store, _appender) = hindcast_store::open(hindcast_store::Options::default());
        let server = Server::start(
            &Door::open(":0"),
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
    fn beyond_this_machine_there_is_no_server_without_a_password() {
        for (address, local) in [
            (":0", true),
            ("127.0.0.1:0", true),
            ("[::1]:0", true),
            ("0.0.0.0:0", false),
            ("[::]:0", false),
            ("192.0.2.1:5433", false),
        ] {
            let mut door = Door::open(address);
            assert_eq!(door.check().is_ok(), local, "{address}");
            door.password = Some(Verifier::of_password("x"));
            assert!(door.check().is_ok(), "{address}");
        }
        let refused = Door::open("0.0.0.0:1").check().unwrap_err();
        assert!(matches!(refused, ServeError::Open { .. }));
        assert!(refused.hint().contains("--serve-password-file"));
    }

    #[test]
    fn an_address_without_a_host_is_one_of_this_machine_only() {
        let resolves = |address: &str| Door::open(address).resolve();
        assert_eq!(
            resolves(":5433").unwrap(),
            resolves("127.0.0.1:5433").unwrap()
        );
        assert_eq!(
            resolves("5433").unwrap(),
            resolves("127.0.0.1:5433").unwrap()
        );
        for wrong in [
            "::1:5433",
            "host:",
            "host:70000",
            "[::1:5433",
            "",
            "/tmp/socket",
        ] {
            let error = resolves(wrong).expect_err(wrong);
            assert!(matches!(error, ServeError::Address { .. }), "{wrong}");
        }
    }
}
