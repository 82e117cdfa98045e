//! Runs ghosts: transactions that belong to no request, from what their clients sent.
//!
//! Each recorded session gets a connection of its own and runs its transactions in order, so that settings, prepared statements and temporary
//! tables are there when they are needed. A [`Holder`] makes them wait, like everybody else.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bytes::BytesMut;
use hindcast_gateway::pg::{Connector, Wires};
use hindcast_order::{Admission, Span, Tx, admission};
use hindcast_trace::{RequestId, SessionId};
use hindcast_wire::frame::{self, Direction};
use hindcast_wire::message::{backend as server, frontend as client};
use postgres_protocol::authentication::sasl::{ChannelBinding, SCRAM_SHA_256, ScramSha256};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::task::JoinSet;

use crate::coordinator::{Claim, Ended};
use crate::desk::Floor;
use crate::hold::{Desk, HoldOptions, Holder, Next, Pins};
use crate::recording::{Fate, Recording};

/// Why a ghost could not be run. The replay goes on without it, and diverges if that matters.
#[derive(Debug, thiserror::Error)]
pub enum GhostError {
    #[error("cannot connect to the rewound database: {0}")]
    Connect(String),
    #[error("the server asks for an authentication that is not supported here ({0})")]
    Authentication(u32),
    #[error("the server refused the connection: {0}")]
    Refused(String),
    #[error("the connection was lost")]
    Lost(#[from] std::io::Error),
    #[error("what the client sent was not kept")]
    NotKept,
}

/// The ghosts to run, by session, in order. Those that only read are left out: nobody can tell.
pub fn by_session(recording: &Recording) -> BTreeMap<SessionId, Vec<Tx>> {
    let mut sessions: BTreeMap<SessionId, Vec<Tx>> = BTreeMap::new();
    for tx in recording.ghosts().filter(|&tx| matters(recording, tx)) {
        sessions
            .entry(recording.transaction(tx).session)
            .or_default()
            .push(tx);
    }
    // A session that only ever set something has nobody to set it for.
    sessions.retain(|_, own| {
        own.iter()
            .any(|&tx| recording.transaction(tx).has_snapshot || recording.transaction(tx).wrote)
    });
    sessions
}

/// Whether anything depends on a ghost: it wrote, or it left something behind in its session.
pub fn matters(recording: &Recording, tx: Tx) -> bool {
    let ghost = recording.transaction(tx);
    ghost.fate != Fate::Aborted && (ghost.wrote || !ghost.has_snapshot)
}

/// Runs all ghosts.
///
/// No more sessions are open at a time than originally, and they are opened in the order of their first ghosts. Nothing gets stuck by
/// that, for the reason for which nothing gets stuck by [`hindcast_order::admission`].
pub async fn run_all(
    floor: Arc<Floor>,
    connector: Arc<Connector>,
    options: HoldOptions,
    sessions: Vec<Vec<Tx>>,
) {
    let spans: Vec<Span> = sessions
        .iter()
        .map(|own| {
            let used = |&tx: &Tx| floor.recording.transaction(tx);
            Span {
                first: own.iter().map(|tx| used(tx).began).min().unwrap_or(0),
                last: own.iter().map(|tx| used(tx).ended).max(),
            }
        })
        .collect();
    let overlap = admission::overlap(spans.iter().filter_map(|s| Some((s.first, s.last?))));
    let mut line = Admission::new(&spans, overlap);
    let mut open = JoinSet::new();
    loop {
        while let Some(session) = line.next() {
            line.sent(session);
            let own = sessions[session.index()].clone();
            let (floor, connector) = (Arc::clone(&floor), Arc::clone(&connector));
            let options = options.clone();
            open.spawn(async move {
                run(floor, connector, options, own).await;
                session
            });
        }
        match open.join_next().await {
            Some(Ok(session)) => line.ended(session),
            Some(Err(error)) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(_) => return,
            },
            None => return,
        }
    }
}

/// Runs the ghosts of one session. If one cannot be run, those behind it cannot either: they might lack what it left behind.
async fn run(floor: Arc<Floor>, connector: Arc<Connector>, options: HoldOptions, ghosts: Vec<Tx>) {
    let mut left = ghosts.into();
    if let Err(error) = run_session(&floor, &connector, options, &mut left).await {
        let error = error.to_string();
        floor.gate.with(|coordinator| {
            for tx in left {
                coordinator.ghost_failed(tx, error.clone());
            }
        });
    }
}

async fn run_session(
    floor: &Arc<Floor>,
    connector: &Connector,
    options: HoldOptions,
    left: &mut VecDeque<Tx>,
) -> Result<(), GhostError> {
    let Some(&first) = left.front() else {
        return Ok(());
    };
    let mut stream = connect(connector).await?;
    let mut session = Session {
        holder: Holder::running(options),
        desk: GhostDesk {
            floor: Arc::clone(floor),
            current: first,
            over: false,
        },
    };
    while let Some(&tx) = left.front() {
        if !floor.gate.with(|coordinator| coordinator.claim_ghost(tx)) {
            left.pop_front();
            continue;
        }
        session.desk.current = tx;
        session.desk.over = false;
        let bytes = floor
            .recording
            .extras(tx)
            .ok()
            .and_then(|extras| extras.client_bytes);
        let outcome = match bytes {
            Some(bytes) => session.run(&mut stream, &bytes).await,
            None => Err(GhostError::NotKept),
        };
        if session.desk.over {
            // It has been compared, whatever became of its connection since.
            left.pop_front();
            outcome?;
        } else {
            outcome?;
            // Nothing in it took a snapshot: it is over all the same.
            floor.gate.with(|coordinator| coordinator.ghost_over(tx));
            left.pop_front();
        }
    }
    Ok(())
}

struct Session {
    holder: Holder,
    desk: GhostDesk,
}

impl Session {
    async fn run(
        &mut self,
        stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
        bytes: &[u8],
    ) -> Result<(), GhostError> {
        let mut wires = Wires::default();
        let mut sent = BytesMut::from(bytes);
        let mut received = BytesMut::new();
        let mut next = self.holder.on_client(&mut sent, &mut wires, &mut self.desk);
        loop {
            stream.write_all(&wires.to_server.split()).await?;
            wires.to_client.clear();
            match next {
                Next::Wait(ask) => {
                    self.desk.floor.gate.permission(ask).await;
                    next = self.holder.on_permission(&mut wires, &mut self.desk);
                    continue;
                }
                Next::Close => {
                    return Err(std::io::Error::from(std::io::ErrorKind::InvalidData).into());
                }
                Next::Continue => {}
            }
            if self.holder.is_idle() {
                return Ok(());
            }
            if stream.read_buf(&mut received).await? == 0 {
                self.holder.on_server_gone(&mut self.desk);
                return Err(std::io::Error::from(std::io::ErrorKind::UnexpectedEof).into());
            }
            next = self
                .holder
                .on_server(&mut received, &mut wires, &mut self.desk);
        }
    }
}

/// Knows which ghost it is before anybody asks.
struct GhostDesk {
    floor: Arc<Floor>,
    current: Tx,
    over: bool,
}

impl Desk for GhostDesk {
    fn claim(&mut self, _request: Option<RequestId>, _opening: u64) -> Claim {
        Claim::Run(self.current)
    }
    fn pins(&self, tx: Tx) -> Pins {
        self.floor.pins(tx)
    }
    fn recorded_answers(&self, _tx: Tx) -> Option<Vec<u8>> {
        None
    }
    fn alone(&self) -> Option<RequestId> {
        None
    }
    fn took_snapshot(&mut self, tx: Tx) {
        self.floor
            .gate
            .with(|coordinator| coordinator.took_snapshot(tx));
    }
    fn locked(&mut self, tx: Tx, statement: u32) {
        self.floor
            .gate
            .with(|coordinator| coordinator.locked(tx, statement));
    }
    fn ran(&mut self, tx: Tx) {
        self.floor.gate.with(|coordinator| coordinator.ran(tx));
    }
    fn ended(&mut self, claim: Claim, ended: Ended) {
        self.over = true;
        self.floor
            .gate
            .with(|coordinator| coordinator.ended(claim, &ended));
    }
    fn served(&mut self, _tx: Tx, _complete: bool) {}
    fn lost(&mut self, claim: Claim) {
        self.over = true;
        self.floor.gate.with(|coordinator| coordinator.lost(claim));
    }
    fn outside_write_refused(&mut self, _statement: &str) {}
}

/// A session that is ready for queries, as the user of the URL.
async fn connect(
    connector: &Connector,
) -> Result<impl AsyncRead + AsyncWrite + Unpin + use<>, GhostError> {
    let (mut stream, _) = connector
        .connect()
        .await
        .map_err(|error| GhostError::Connect(error.to_string()))?;
    let url = connector.url();
    let (user, database) = (url.user(), url.database());
    let password = url.password().unwrap_or_default();
    let mut out = BytesMut::new();
    let parameters: [(&[u8], &[u8]); 4] = [
        (b"user", user.as_bytes()),
        (b"database", database.as_bytes()),
        (b"application_name", b"hindcast ghost"),
        (b"synchronous_commit", b"off"),
    ];
    client::startup(&mut out, client::PROTOCOL_3_0, &parameters);
    stream.write_all(&out).await?;
    let mut input = BytesMut::new();
    let mut scram = None;
    loop {
        let Some(frame) =
            frame::split(Direction::FromServer, &mut input).map_err(std::io::Error::other)?
        else {
            if stream.read_buf(&mut input).await? == 0 {
                return Err(std::io::Error::from(std::io::ErrorKind::UnexpectedEof).into());
            }
            continue;
        };
        out.clear();
        match frame.tag() {
            server::READY_FOR_QUERY => return Ok(stream),
            server::ERROR_RESPONSE => {
                return Err(GhostError::Refused(crate::hold::error_text(frame.body())));
            }
            server::AUTHENTICATION => {
                let (kind, data) =
                    server::parse_authentication(frame.body()).map_err(std::io::Error::other)?;
                match kind {
                    0 => {}
                    3 => client::password(&mut out, &[password.as_bytes(), b"\0"].concat()),
                    5 => {
                        let salt: [u8; 4] = data
                            .try_into()
                            .map_err(|_| GhostError::Authentication(kind))?;
                        let hash = postgres_protocol::authentication::md5_hash(
                            user.as_bytes(),
                            password.as_bytes(),
                            salt,
                        );
                        client::password(&mut out, &[hash.as_bytes(), b"\0"].concat());
                    }
                    10 => {
                        let exchange =
                            ScramSha256::new(password.as_bytes(), ChannelBinding::unsupported());
                        let first = exchange.message();
                        let length = (first.len() as u32).to_be_bytes();
                        client::password(
                            &mut out,
                            &[SCRAM_SHA_256.as_bytes(), b"\0", &length, first].concat(),
                        );
                        scram = Some(exchange);
                    }
                    11 | 12 => {
                        let exchange = scram.as_mut().ok_or(GhostError::Authentication(kind))?;
                        if kind == 11 {
                            exchange.update(data)?;
                            client::password(&mut out, exchange.message());
                        } else {
                            exchange.finish(data)?;
                        }
                    }
                    other => return Err(GhostError::Authentication(other)),
                }
                stream.write_all(&out).await?;
            }
            _ => {}
        }
    }
}
