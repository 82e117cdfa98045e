//! Accepts sessions and sees them through.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::BytesMut;
use futures::FutureExt;
use hindcast_pg::tokio::{Connector, Stream};
use hindcast_pg::{ListenAddress, ServerIdentity};
use tokio::io::AsyncWriteExt;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

use super::cancel::CancelKeys;
use super::driver::{Host, Refusal, SessionStart};
use super::pump::{Control, Phase, Pump};
use super::startup::{self, Asked, First, Parameters, StartupError};
use super::tap::{Binding, Tap};
use crate::listen::{ACCEPT_PAUSE, Accepted, BindError, Listener, Listeners};

/// What a client that connects may take to say who it is, encryption included. Postgres' own limit.
const STARTUP_PATIENCE: Duration = Duration::from_secs(60);
#[derive(Debug)]
pub struct ServerOptions {
    /// What clients that ask for TLS are shown. `None`: they are told that there is none.
    pub identity: Option<ServerIdentity>,
    /// Where sessions run, in turn. Empty: on the runtime that [`Server::bind`] was called on.
    pub runtimes: Vec<Handle>,
}

/// A Postgres gateway: accepts until it is told to stop.
pub struct Server<H> {
    shared: Arc<Shared<H>>,
    handle: ServerHandle,
    accepting: tokio::task::JoinHandle<()>,
}

/// Tells where a [`Server`] listens and how many sessions it has.
#[derive(Clone, Debug)]
pub struct ServerHandle {
    address: ListenAddress,
    sessions: Arc<Sessions>,
    keys: Arc<CancelKeys>,
}

struct Shared<H> {
    host: Arc<H>,
    connector: Arc<Connector>,
    identity: Option<ServerIdentity>,
    keys: Arc<CancelKeys>,
    numbers: AtomicU64,
    sessions: Arc<Sessions>,
}

/// The sessions that are alive, so that a shutdown can reach them.
#[derive(Debug)]
struct Sessions {
    alive: Mutex<Alive>,
    count: watch::Sender<usize>,
}

#[derive(Debug)]
struct Alive {
    phase: Phase,
    next: u64,
    controls: HashMap<u64, Arc<Control>>,
}

impl<H: Host> Server<H> {
    /// Listens, and accepts from then on.
    pub async fn bind(
        listen: &ListenAddress,
        options: ServerOptions,
        connector: Arc<Connector>,
        host: Arc<H>,
    ) -> Result<Self, BindError> {
        let listener = Listener::bind(listen).await?;
        Ok(Self::serve(
            Listeners(vec![listener]),
            options,
            connector,
            host,
        ))
    }

    /// The first of `listeners` is the one that is named.
    pub fn serve(
        Listeners(listeners): Listeners,
        options: ServerOptions,
        connector: Arc<Connector>,
        host: Arc<H>,
    ) -> Self {
        let sessions = Arc::new(Sessions {
            alive: Mutex::new(Alive {
                phase: Phase::Running,
                next: 0,
                controls: HashMap::new(),
            }),
            count: watch::Sender::new(0),
        });
        let keys = Arc::<CancelKeys>::default();
        let handle = ServerHandle {
            address: listeners[0].address(),
            sessions: Arc::clone(&sessions),
            keys: Arc::clone(&keys),
        };
        let shared = Arc::new(Shared {
            host,
            connector,
            identity: options.identity,
            keys,
            numbers: AtomicU64::new(1),
            sessions,
        });
        let runtimes = match options.runtimes.is_empty() {
            true => vec![Handle::current()],
            false => options.runtimes,
        };
        let all = listeners.into_iter();
        let accepting = all.map(|one| accept(one, Arc::clone(&shared), runtimes.clone()));
        let accepting = tokio::spawn(futures::future::join_all(accepting).map(drop));
        Self {
            shared,
            handle,
            accepting,
        }
    }

    pub fn handle(&self) -> ServerHandle {
        self.handle.clone()
    }

    /// Stops accepting and cuts every session off, without waiting for that.
    pub fn cut_off(&self) {
        self.accepting.abort();
        self.shared.sessions.advance(Phase::Ending);
    }

    /// Stops accepting, ends sessions as they become idle, and the rest when `patience` is over.
    /// Returns how many had to be cut off.
    pub async fn shut_down(self, patience: Duration) -> usize {
        self.accepting.abort();
        let _ = self.accepting.await;
        let sessions = &self.shared.sessions;
        sessions.advance(Phase::Draining);
        let mut count = sessions.count.subscribe();
        if tokio::time::timeout(patience, count.wait_for(|&count| count == 0))
            .await
            .is_ok()
        {
            return 0;
        }
        let left = *count.borrow();
        sessions.advance(Phase::Ending);
        // Ending takes no more than a wakeup.
        let _ =
            tokio::time::timeout(Duration::from_secs(5), count.wait_for(|&count| count == 0)).await;
        left
    }
}

impl ServerHandle {
    /// Where it really listens: the port is known even if 0 was asked for.
    pub fn address(&self) -> &ListenAddress {
        &self.address
    }

    pub fn sessions(&self) -> usize {
        *self.sessions.count.borrow()
    }

    /// The processes that serve them, as the server calls them.
    pub(crate) fn backends(&self) -> Vec<u32> {
        self.keys.processes()
    }
}

impl Sessions {
    fn enter(self: &Arc<Self>) -> Membership {
        let control = Arc::new(Control::default());
        let mut alive = self.alive.lock().unwrap_or_else(PoisonError::into_inner);
        control.advance(alive.phase);
        let key = alive.next;
        alive.next += 1;
        alive.controls.insert(key, Arc::clone(&control));
        drop(alive);
        self.count.send_modify(|count| *count += 1);
        Membership {
            sessions: Arc::clone(self),
            key,
            control,
        }
    }

    fn advance(&self, phase: Phase) {
        let mut alive = self.alive.lock().unwrap_or_else(PoisonError::into_inner);
        alive.phase = phase;
        for control in alive.controls.values() {
            control.advance(phase);
        }
    }
}

struct Membership {
    sessions: Arc<Sessions>,
    key: u64,
    control: Arc<Control>,
}

impl Drop for Membership {
    fn drop(&mut self) {
        self.sessions
            .alive
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .controls
            .remove(&self.key);
        self.sessions.count.send_modify(|count| *count -= 1);
    }
}

async fn accept<H: Host>(listener: Listener, shared: Arc<Shared<H>>, runtimes: Vec<Handle>) {
    let next = AtomicUsize::new(0);
    loop {
        match listener.accept().await {
            Ok(accepted) => {
                let runtime = &runtimes[next.fetch_add(1, Ordering::Relaxed) % runtimes.len()];
                runtime.spawn(session(accepted, Arc::clone(&shared)));
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept a database session");
                // The client gave up, or descriptors ran out. The latter passes only when others
                // leave.
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn session<H: Host>(accepted: Accepted, shared: Arc<Shared<H>>) {
    let membership = shared.sessions.enter();
    let control = Arc::clone(&membership.control);
    let established = tokio::select! {
        established = establish(accepted, &shared, Arc::clone(&control)) => established,
        // Nothing has begun that could be cut off.
        () = control.draining() => None,
    };
    if let Some(pump) = established {
        pump.run().await;
    }
}

/// Up to the moment at which both connections exist. `None`: it did not come to that, and both
/// sides have been told.
async fn establish<H: Host>(
    accepted: Accepted,
    shared: &Shared<H>,
    control: Arc<Control>,
) -> Option<Pump<H::Driver>> {
    let line = accepted.line();
    let begun = tokio::time::timeout(STARTUP_PATIENCE, begin(accepted, shared)).await;
    let (mut client, peer, parameters) = match begun {
        Ok(Ok(begun)) => begun?,
        Ok(Err(StartupError::Silent)) => return None,
        Ok(Err(error)) => {
            tracing::debug!(%error, "a client did not get to a session");
            return None;
        }
        Err(_) => {
            tracing::debug!("a client said nothing for too long");
            return None;
        }
    };
    let number = shared.numbers.fetch_add(1, Ordering::Relaxed);
    let mut start = SessionStart {
        number,
        peer,
        line,
        encrypted: client.is_encrypted(),
        parameters,
    };
    let driver = match shared.host.open(&mut start) {
        Ok(driver) => driver,
        Err(Refusal {
            sqlstate,
            message,
            hint,
        }) => {
            say(
                &mut client,
                &startup::fatal(sqlstate, &message, hint.as_deref()),
            )
            .await;
            return None;
        }
    };
    let (server, address) = match shared.connector.connect().await {
        Ok(connected) => connected,
        Err(error) => {
            // What libpq takes for "the server is starting or gone": pools try again.
            say(
                &mut client,
                &startup::fatal("08006", &error.to_string(), None),
            )
            .await;
            return None;
        }
    };
    let ours = shared
        .identity
        .as_ref()
        .map(|identity| identity.leaf.as_ref());
    let binding = match (client.is_encrypted(), server.peer_certificate()) {
        (true, Some(theirs)) if Some(theirs) == ours => Binding::Transparent,
        (true, _) => Binding::Impossible,
        (false, _) => Binding::Unwanted,
    };
    let tap = Tap::new(Arc::clone(&shared.keys), address, binding);
    let mut opening = BytesMut::new();
    start.parameters.encode(&mut opening);
    Some(Pump::new(client, server, driver, opening, tap, control))
}

/// Up to the `StartupMessage`, which is the client's word that there will be a session. `None`: it
/// was something else, and is done.
async fn begin<H: Host>(
    accepted: Accepted,
    shared: &Shared<H>,
) -> Result<Option<(Stream, String, Parameters)>, StartupError> {
    let (mut stream, peer) = accepted.register().map_err(StartupError::Broken)?;
    if let (Stream::Tcp(tcp), Some(identity)) = (&stream, &shared.identity) {
        let mut first = [0];
        if tcp.peek(&mut first).await.map_err(StartupError::Broken)? == 1
            && startup::is_tls_handshake(first[0])
        {
            stream = encrypt(stream, identity).await?;
        }
    }
    let mut asked = Asked {
        ssl: stream.is_encrypted(),
        gss: false,
    };
    loop {
        let first = match startup::read_first(&mut stream, asked).await {
            Err(StartupError::Layout) => {
                let message = "invalid startup packet layout: expected terminator as last byte";
                say(&mut stream, &startup::fatal("08P01", message, None)).await;
                return Ok(None);
            }
            first => first?,
        };
        match first {
            First::SslRequest => {
                asked.ssl = true;
                match (&stream, &shared.identity) {
                    (Stream::Tcp(_), Some(identity)) => {
                        stream.write_all(b"S").await.map_err(StartupError::Broken)?;
                        stream = encrypt(stream, identity).await?;
                        // What is encrypted is not encrypted again.
                        asked.gss = true;
                    }
                    _ => stream.write_all(b"N").await.map_err(StartupError::Broken)?,
                }
            }
            First::GssEncRequest => {
                asked.gss = true;
                stream.write_all(b"N").await.map_err(StartupError::Broken)?;
            }
            First::Cancel { key, packet } => {
                shared.keys.forward(&shared.connector, &key, &packet).await;
                return Ok(None);
            }
            First::Unsupported { major, minor } => {
                let message = format!(
                    "unsupported frontend protocol {major}.{minor}: the gateway supports 3.x"
                );
                say(&mut stream, &startup::fatal("0A000", &message, None)).await;
                return Ok(None);
            }
            First::Startup(parameters) => return Ok(Some((stream, peer, parameters))),
        }
    }
}

async fn encrypt(stream: Stream, identity: &ServerIdentity) -> Result<Stream, StartupError> {
    let Stream::Tcp(stream) = stream else {
        return Err(StartupError::Malformed("encryption asked for twice"));
    };
    let stream = TlsAcceptor::from(Arc::clone(&identity.config))
        .accept(stream)
        .await
        .map_err(StartupError::Broken)?;
    Ok(Stream::Tls(Box::new(stream.into())))
}

/// Last words to a client. Whether it hears them is its affair.
async fn say(stream: &mut Stream, message: &[u8]) {
    let _ = stream.write_all(message).await;
    let _ = stream.shutdown().await;
}
