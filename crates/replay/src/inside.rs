//! A service that was recorded from inside, as it was started: its connections to the database lead
//! to the holder, and what it listens on is a port of its own.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use hindcast_gateway::{Gates, redirect, socket_folder};
use hindcast_pg::DatabaseUrl;
use hindcast_preload::Preload;
use hindcast_spool::{Reception, SharedBoard};
use hindcast_taplog::board::{Listener, Purpose};
use hindcast_trace::{Micros, Trace};

use crate::monitor::Monitor;
use crate::others::Others;
pub use crate::others::Outbound;
use crate::pins::Pins;
use crate::place::{Asked, Place};
use crate::recording::Recording;
use crate::turns::Turns;

/// So long a service that listens elsewhere may take until it listens on all that requests came to.
/// Changed code may never.
const ELSEWHERE: Duration = Duration::from_secs(60);
/// Likewise on the port by which clients named it, where that is all that is known. Behind a web
/// server it never does.
const ELSEWHERE_NAMED: Duration = Duration::from_secs(3);

/// How a service was started, and what it knew its database by.
#[derive(Clone)]
pub struct Launch {
    /// For a shell.
    pub command: String,
    pub directory: PathBuf,
    pub environment: Vec<(String, OsString)>,
    /// By which the folder of the tap was named.
    pub folder: Option<String>,
    pub database: DatabaseUrl,
    /// What requests came to; `None`: there was only one.
    pub asked: Option<Asked>,
    pub outbound: Outbound,
}

/// What a service needs that is replayed from inside, for as long as it runs.
pub struct Inside {
    pub turns: Arc<Turns>,
    pub others: Others,
    reception: Reception,
    preload: Preload,
    launch: Launch,
    /// How many connections the service needs at a time; the shims give as many to a pool that is
    /// smaller.
    pub connections: usize,
    /// When it listened first, elsewhere than its clients named it.
    elsewhere: OnceLock<Instant>,
    /// Of files of caches: where, and from when on the service is replayed.
    files: OsString,
    /// Of the gate's socket, of PHP's sessions, and of caches.
    _folders: [tempfile::TempDir; 3],
}

impl Inside {
    /// Returns the gates to serve as well. `begins`: from when on the service is replayed.
    pub fn open(
        launch: Launch,
        gates: Gates,
        mut others: Others,
        monitor: &Monitor,
        begins: Micros,
    ) -> io::Result<(Self, hindcast_gateway::Listeners)> {
        let mut redirect = redirect(&launch.database, Some(&gates));
        let places = redirect.others.iter_mut().zip(others.places());
        places.for_each(|(to, from)| *to = *from);
        redirect.may_leave = launch.outbound == Outbound::Live;
        let board = Arc::new(SharedBoard::make(Purpose::Replay, &redirect)?);
        let (listeners, folder) = gates.into_parts();
        let sessions = shared_folder(0o1733)?;
        let path = sessions.path().as_os_str().as_bytes();
        board.sessions().keep_in(path, begins);
        let caches = shared_folder(0o1777)?;
        let mut files = caches.path().as_os_str().to_owned();
        files.push(format!(":{begins}"));
        let turns = Arc::new(Turns::new(&board));
        others.serve(&turns, monitor);
        let inside = Self {
            reception: Reception::open(board)?,
            preload: Preload::make(launch.folder.as_deref())?,
            turns,
            others,
            launch,
            connections: 0,
            elsewhere: OnceLock::new(),
            files,
            _folders: [folder, sessions, caches],
        };
        Ok((inside, listeners))
    }

    /// What its requests draw and read.
    pub fn pins(&self, trace: &Trace, recording: &Arc<Recording>) -> Pins {
        Pins::new(&self.turns, trace.recorders(), recording)
    }

    pub fn command(&self) -> &str {
        &self.launch.command
    }

    pub fn directory(&self) -> &PathBuf {
        &self.launch.directory
    }

    /// All of it.
    pub fn environment(&self) -> Vec<(String, OsString)> {
        let mut all = self.launch.environment.clone();
        let set = |name: &str| {
            let mut known = self.launch.environment.iter();
            known
                .find(|(known, _)| known == name)
                .map(|(_, value)| value.clone())
        };
        let ours = self.preload.environment(set);
        all.retain(|(name, _)| !ours.iter().any(|(our, _)| our == name));
        all.extend(
            ours.into_iter()
                .map(|(name, value)| (name.to_owned(), value)),
        );
        for (name, file) in self.others.trusted() {
            all.retain(|(known, _)| known != name);
            all.push((name.to_owned(), file.clone()));
        }
        let (name, value) = self.reception.variable();
        all.push(((*name).to_owned(), value.into()));
        all.push((
            "HINDCAST_POOL".to_owned(),
            self.connections.to_string().into(),
        ));
        all.push(("HINDCAST_FILES".to_owned(), self.files.clone()));
        all
    }

    /// Where the service listens, once it does. Of several, that to which most requests came.
    pub fn service(&self) -> Option<Place> {
        if let Some(asked) = &self.launch.asked {
            return self.place(asked);
        }
        let came_to = &self.others.came_to;
        let (named, patience) = match came_to.first() {
            Some(asked) => (self.place(asked), ELSEWHERE),
            None => (
                self.others.port.and_then(|port| self.port(Some(port))),
                ELSEWHERE_NAMED,
            ),
        };
        if came_to.iter().all(|asked| self.place(asked).is_some())
            && let Some(place) = &named
        {
            return Some(place.clone());
        }
        // What its own processes called is none to which requests came.
        let called = self.others.called_paths();
        let mut paths = self.turns.board.all_moved_but(called).map(unix);
        let place = named.or_else(|| self.port(None).or_else(|| paths.next()))?;
        let since = self.elsewhere.get_or_init(Instant::now);
        // It may listen for something else before.
        let is_known = !came_to.is_empty() || self.others.port.is_some();
        let waits = is_known && since.elapsed() < patience;
        (!waits).then_some(place)
    }

    /// What else requests came to, as far as the service listens on it.
    pub fn also(&self) -> Vec<(Asked, Place)> {
        let others = match self.launch.asked {
            // All requests go to what a user names.
            Some(_) => &[],
            None => self.others.came_to.get(1..).unwrap_or_default(),
        };
        let place = |asked: &Asked| Some((asked.clone(), self.place(asked)?));
        others.iter().filter_map(place).collect()
    }

    fn place(&self, asked: &Asked) -> Option<Place> {
        match asked {
            Asked::Port(port) => self.port(Some(*port)),
            Asked::Path(path) => self.turns.board.moved(path.as_bytes()).map(unix),
        }
    }

    /// Where it listens that asked for this port, or for any.
    fn port(&self, asked: Option<u16>) -> Option<Place> {
        let mut listeners = self.turns.board.listeners();
        let listener = listeners
            .find(|listener: &Listener| asked.is_none_or(|port| listener.asked == port))?;
        let host = match listener.v6 {
            true => "[::1]",
            false => "127.0.0.1",
        };
        let url = format!("http://{host}:{}", listener.got).parse();
        url.ok().map(Place::Tcp)
    }
}

/// For files of a service, which may have become another user, or several: each of them can make
/// files in it that the others cannot remove.
fn shared_folder(mode: u32) -> io::Result<tempfile::TempDir> {
    let folder = socket_folder()?;
    std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(mode))?;
    Ok(folder)
}

fn unix(name: [u8; 5]) -> Place {
    Place::Unix(String::from_utf8_lossy(&name).into_owned())
}
