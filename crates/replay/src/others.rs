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
mod calls;
mod conversation;
mod named;
mod progress;

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::net::{Ipv6Addr, SocketAddr};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use hindcast_gateway::{ListenAddress, Listener, address_of, socket_folder, system_address};
use hindcast_spool::SharedBoard;
use hindcast_taplog::board::{Address, OTHERS};
use hindcast_trace::{ReadError, RequestFilter, Trace};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use authority::{Authority, VARIABLES};
use calls::{Calls, Peer};
use conversation::Host;
pub use named::{client, process};

use named::Named;

use crate::monitor::Monitor;
use crate::place::Asked;
use crate::plan::Plan;
use crate::turns::Turns;
use crate::verdict::Remark;

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
    /// Whom the service called, itself among them.
    called: Vec<String>,
    /// By which most clients named the service.
    pub port: Option<u16>,
    /// What the service listened on when requests came, that of most first; empty: that is not
    /// recorded.
    pub came_to: Vec<Asked>,
    /// How many requests came from each client, by its address.
    pub came_from: HashMap<SocketAddr, u32>,
    /// Requests came to more than one process.
    pub has_processes: bool,
}

impl Others {
    /// Reads what the requests of a range called.
    pub async fn open(trace: &Arc<Trace>, plan: &Plan, outbound: Outbound) -> io::Result<Self> {
        let (trace, period) = (Arc::clone(trace), plan.period.clone());
        let first = plan.first.recorder();
        let read = tokio::task::spawn_blocking(move || {
            let mut calls = Calls::default();
            let mut named = Named::default();
            let filter = RequestFilter {
                arrived: Some(period),
                ..RequestFilter::default()
            };
            for request in trace.requests(filter) {
                let mut request = request?;
                named.add(&request, request.id.recorder() == first);
                if outbound == Outbound::Live {
                    continue;
                }
                calls.progress.add(&request);
                let own = std::mem::take(&mut request.calls);
                own.into_iter().for_each(|call| calls.add(&request, call));
            }
            calls.whole();
            Ok::<_, ReadError>((calls, named))
        });
        let (calls, named) = read.await?.map_err(io::Error::other)?;
        let mut others = Self {
            gates: Vec::new(),
            places: Vec::new(),
            serving: JoinSet::new(),
            authority: None,
            folder: socket_folder()?,
            called: calls.peers.keys().cloned().collect(),
            port: named.port(),
            came_to: named.came_to(),
            has_processes: named.came_by.len() > 1,
            came_from: named.came_from,
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

    /// The paths of the sockets that the service called.
    pub fn called_paths(&self) -> impl Iterator<Item = &[u8]> + Clone {
        let paths = self
            .called
            .iter()
            .filter_map(|peer| peer.strip_prefix("unix:"));
        paths.map(str::as_bytes)
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
    pub fn serve(&mut self, turns: &Arc<Turns>, monitor: &Monitor) {
        if !monitor.with(|coordinator| coordinator.does_ghosts()) {
            let mut calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
            calls.hand_late();
        }
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
                monitor: monitor.clone(),
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
        let brought = calls
            .brought
            .iter()
            .map(|(what, &times)| Remark::CallDiffered {
                what: what.clone(),
                times,
            });
        let refused = board.refused().map(|port| Remark::CallNotRecorded {
            what: format!("a connection to port {port}"),
            times: 1,
        });
        // Where nobody listens, it was refused when it was recorded, too.
        let paths = board.refused_paths();
        let paths = paths.filter(|path| Path::new(OsStr::from_bytes(path)).exists());
        let refused_paths = paths.map(|path| Remark::CallNotRecorded {
            what: format!("a connection to {}", String::from_utf8_lossy(&path)),
            times: 1,
        });
        asked
            .chain(brought)
            .chain(refused)
            .chain(refused_paths)
            .collect()
    }
}
