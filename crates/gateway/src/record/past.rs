//! Follows the service's connections to its database by what its taps tell, after it has happened.

use std::sync::Arc;

use bytes::BytesMut;
use hindcast_taplog::Direction;
use hindcast_taplog::pins::Reading;
use hindcast_trace::Micros;
use hindcast_wire::Wires;

use super::extension::Telling;
use super::server_side::ServerSide;
use super::session::{RecordingDriver, RecordingHost};
use crate::http::Witness;
use crate::inside::{Session, Sessions};
use crate::pg::{Asked, Driver, First, Flow, Host, SessionStart, take_first};

const ENCRYPTED: &str = "it is encrypted by other means than OpenSSL's shared libssl, which alone the recorder can \
                         see: connect with sslmode=disable or by the server's Unix socket, or let `hindcast record` \
                         use its gateway";
const AHEAD: &str = "the server answered what nobody was seen to ask";
/// Bytes of answers that wait for what they answer: a write is told when it has returned.
const AHEAD_MAX: usize = 16 << 20;
const UNKNOWN: &str = "what it began with is not what Postgres' clients begin with";

/// Gives each connection who follows it.
pub(super) struct PastSessions {
    host: RecordingHost,
    server: Arc<ServerSide>,
    extension: Telling,
    opened: u64,
}

struct PastSession {
    host: RecordingHost,
    number: u64,
    stage: Stage,
}

enum Stage {
    /// The client has not said yet what it wants.
    Opening(Box<Opening>),
    Followed(Box<Followed>),
    /// Nothing is to be known of it.
    Over,
}

#[derive(Default)]
struct Opening {
    input: BytesMut,
    asked: Asked,
    /// For the letter that says whether it may encrypt.
    waits: bool,
    /// It may, and is to.
    agreed: bool,
    /// It does, and what it says is known all the same.
    encrypted: bool,
}

struct Followed {
    driver: RecordingDriver,
    client: BytesMut,
    /// What the server sent and is no message yet, or answers what the client is yet to be told to
    /// have sent.
    server: BytesMut,
    /// When the last of that came.
    heard: Micros,
    wires: Wires,
}

impl PastSessions {
    pub fn boxed(host: &RecordingHost, server: Arc<ServerSide>) -> Box<dyn Sessions> {
        let mut host = host.clone();
        host.told = Some(Arc::clone(&server));
        let extension = Telling::new(&host.sink, &server, host.sink.now());
        Box::new(Self {
            host,
            server,
            extension,
            opened: 0,
        })
    }
}

impl Sessions for PastSessions {
    fn connected(&mut self, _at: Micros) -> Box<dyn Session> {
        self.opened += 1;
        Box::new(PastSession {
            host: self.host.clone(),
            number: self.opened,
            stage: Stage::Opening(Box::default()),
        })
    }

    fn all_told(&mut self, until: Micros) {
        self.server.wire_until(until);
    }

    fn read_late(&mut self, request: u64, reading: Reading) {
        self.server.read_late(request, reading);
    }

    fn noted(&mut self, note: &[u8]) {
        self.extension.told(note);
    }
}

impl PastSession {
    fn open(&mut self, at: Micros) {
        let Stage::Opening(opening) = &mut self.stage else {
            return;
        };
        while !opening.waits {
            let mut packet = opening.input.clone();
            let first = match take_first(&mut opening.input, opening.asked) {
                Ok(Some(first)) => first,
                Ok(None) => return,
                Err(_) => return self.unobserved(at, UNKNOWN),
            };
            match first {
                First::SslRequest => {
                    opening.asked.ssl = true;
                    opening.waits = true;
                }
                First::GssEncRequest => {
                    opening.asked.gss = true;
                    opening.waits = true;
                }
                First::Cancel { .. } => {
                    self.stage = Stage::Over;
                    return;
                }
                First::Unsupported { .. } => return self.unobserved(at, UNKNOWN),
                First::Startup(parameters) => {
                    let mut start = SessionStart {
                        number: self.number,
                        peer: "the service".to_owned(),
                        line: None,
                        encrypted: opening.encrypted,
                        parameters,
                    };
                    let length = packet.len() - opening.input.len();
                    // What is behind it goes to whom it is for.
                    let rest = packet.split_off(length);
                    let Ok(driver) = self.host.open(&mut start) else {
                        self.stage = Stage::Over;
                        return;
                    };
                    let mut followed = Followed {
                        driver,
                        client: packet,
                        server: BytesMut::new(),
                        heard: at,
                        wires: Wires::default(),
                    };
                    followed.sent(at, None, &rest);
                    self.stage = Stage::Followed(Box::new(followed));
                    return;
                }
            }
        }
    }

    /// It cannot be followed.
    fn unobserved(&mut self, at: Micros, reason: &str) {
        self.stage = Stage::Over;
        let sink = &self.host.sink;
        sink.counters().session();
        let session = sink.session_id(self.number);
        sink.unobserved(session, at, reason.to_owned());
    }
}

impl Session for PastSession {
    fn sent(&mut self, at: Micros, turn: Option<u64>, bytes: &[u8]) {
        match &mut self.stage {
            Stage::Opening(opening) if opening.agreed && !opening.encrypted => {
                self.unobserved(at, ENCRYPTED);
            }
            Stage::Opening(opening) => {
                opening.input.extend_from_slice(bytes);
                self.open(at);
            }
            Stage::Followed(followed) => followed.sent(at, turn, bytes),
            Stage::Over => {}
        }
    }

    fn received(&mut self, at: Micros, bytes: &[u8]) {
        match &mut self.stage {
            Stage::Opening(opening) => match bytes {
                b"N" if opening.waits => {
                    opening.waits = false;
                    self.open(at);
                }
                b"S" if opening.waits => (opening.agreed, opening.waits) = (true, false),
                b"G" if opening.waits => self.unobserved(at, ENCRYPTED),
                _ => self.unobserved(at, UNKNOWN),
            },
            Stage::Followed(followed) => followed.received(at, bytes),
            Stage::Over => {}
        }
    }

    fn encrypted(&mut self, _at: Micros) {
        if let Stage::Opening(opening) = &mut self.stage {
            opening.encrypted = true;
        }
    }

    fn ended(&mut self, at: Micros, direction: Direction) {
        if let Stage::Followed(followed) = &mut self.stage
            && direction == Direction::In
        {
            followed.server_gone(at);
            self.stage = Stage::Over;
        }
    }

    fn lost(&mut self, at: Micros, reason: &str) {
        if let Stage::Followed(followed) = &mut self.stage {
            followed.driver.is_at(at, None);
            followed.driver.give_up(reason.to_owned());
        }
        self.closed(at);
    }

    fn closed(&mut self, at: Micros) {
        if let Stage::Followed(followed) = &mut self.stage {
            followed.server_gone(at);
        }
        self.stage = Stage::Over;
    }
}

impl Followed {
    fn sent(&mut self, at: Micros, turn: Option<u64>, bytes: &[u8]) {
        self.driver.is_at(at, turn);
        self.client.extend_from_slice(bytes);
        let flow = self.driver.on_client(&mut self.client, &mut self.wires);
        if matches!(flow, Flow::PassThrough) {
            self.client.clear();
        }
        if !self.server.is_empty() {
            self.hear();
        }
    }

    fn received(&mut self, at: Micros, bytes: &[u8]) {
        self.server.extend_from_slice(bytes);
        self.heard = at;
        self.hear();
        if self.server.len() > AHEAD_MAX && self.driver.is_ahead(&self.server) {
            self.give_up_waiting(at);
        }
    }

    fn hear(&mut self) {
        self.driver.is_at(self.heard, None);
        let flow = self.driver.on_server(&mut self.server, &mut self.wires);
        if matches!(flow, Flow::PassThrough) {
            self.server.clear();
        }
    }

    fn give_up_waiting(&mut self, at: Micros) {
        self.driver.is_at(at, None);
        self.driver.give_up(AHEAD.to_owned());
        self.server.clear();
    }

    fn server_gone(&mut self, at: Micros) {
        if self.driver.is_ahead(&self.server) {
            self.give_up_waiting(at);
        }
        self.driver.is_at(at, None);
        self.driver.on_server_gone(&mut self.wires);
    }
}
