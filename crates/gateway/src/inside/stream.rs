//! One connection: what it carries, and who has it open.

use std::collections::VecDeque;

use hindcast_taplog::Direction;

use super::answers::Answers;
use super::call::Call;
use super::fastcgi::FastCgi;
use super::host::{Came, Host};
use super::outbound::Outbound;
use super::sessions::Session;
use super::{Malformed, Off, http1, uwsgi};

/// A connection that the service has accepted, or something else.
pub(super) struct Stream {
    carries: Carries,
    /// It was accepted, as far as is known.
    accepted: bool,
    came: Came,
    /// The turn whose request the next bytes begin; of a connection to the database, whose behalf
    /// was written on, and when.
    turn: Option<u64>,
    turn_at: u64,
    /// Bytes were written since some were last read.
    written: bool,
    /// What it carries is known because the service itself encrypts it.
    is_encrypted: bool,
    /// Programs that have it open, as far as is known.
    holders: Vec<u32>,
    /// When the last of them closed it.
    pub closed: Option<u64>,
}

/// What is known of what a connection carries.
enum Carries {
    /// The first bytes, if any have come, and when and with which turn.
    Unknown(Vec<u8>, u64, Option<u64>),
    Http(Box<Http>),
    FastCgi(Box<FastCgi>),
    /// It leads to the service's database.
    Database(Box<dyn Session>),
    /// It leads to somebody else.
    Outbound(Box<Outbound>),
    /// A part was lost. The next request may be found again.
    Broken,
    /// It is none of ours, or cannot be followed.
    Other,
}

/// Requests of HTTP or uwsgi, and answers of HTTP.
struct Http {
    requests: Requests,
    answers: Answers,
    calls: VecDeque<Call>,
}

enum Requests {
    Http1(http1::Requests),
    Uwsgi(uwsgi::Requests),
}

/// What first bytes say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Http1,
    Http2,
    FastCgi,
    Uwsgi,
    Tls,
    Other,
}

impl Kind {
    fn is_followed(self) -> bool {
        matches!(self, Self::Http1 | Self::FastCgi | Self::Uwsgi)
    }
}

/// Methods may be anything; none is this long.
const METHOD_MAX: usize = 32;
const HTTP2: &[u8] = b"PRI * HTTP/2.0\r\n";

/// `None` if more bytes are needed.
pub(super) fn recognise(bytes: &[u8]) -> Option<Kind> {
    let begun = bytes.trim_ascii_start();
    match bytes {
        // A handshake of TLS 1.0 or later.
        [0x16, 0x03, ..] => Some(Kind::Tls),
        [0x16] => None,
        // A request begins, or a server asks what there is.
        [1, 1 | 9, ..] => Some(Kind::FastCgi),
        [1] => None,
        [0, low, high, 0, ..] if (*low, *high) != (0, 0) => Some(Kind::Uwsgi),
        [0] | [0, _] | [0, _, _] => None,
        _ if begun.len() < HTTP2.len() && HTTP2.starts_with(begun) => None,
        _ if begun.starts_with(HTTP2) => Some(Kind::Http2),
        _ => {
            let method = begun.iter().take_while(|&&byte| is_token(byte)).count();
            match begun.get(method) {
                Some(b' ') if (1..=METHOD_MAX).contains(&method) => Some(Kind::Http1),
                None if method <= METHOD_MAX => None,
                _ => Some(Kind::Other),
            }
        }
    }
}

/// A character of a name in HTTP (RFC 9110, section 5.6.2).
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

const LOST: &str = "a part of what its connection carried was not told: the tap had no room for it";
const MALFORMED: &str = "its connection went on with what is not the protocol that it began with";

impl Stream {
    pub fn new() -> Self {
        Self {
            carries: Carries::Unknown(Vec::new(), 0, None),
            accepted: false,
            came: Came::default(),
            turn: None,
            turn_at: 0,
            written: false,
            is_encrypted: false,
            holders: Vec::new(),
            closed: None,
        }
    }

    /// `by`: the number of the process that did.
    pub fn accepted(&mut self, own: &[u8], peer: &[u8], by: u32) {
        self.accepted = true;
        self.came = Came::new(own, peer, by);
    }

    /// The service has opened it itself.
    pub fn connected(&mut self, stream: u64, peer: &[u8]) {
        if !self.accepted {
            self.carries = match peer {
                // Who that is nobody says.
                b"" | b"unix:" => Carries::Other,
                peer => Carries::Outbound(Box::new(Outbound::new(stream, peer))),
            };
        }
    }

    /// Whether the service has opened it to this address.
    pub fn calls(&self, address: &[u8]) -> bool {
        matches!(&self.carries, Carries::Outbound(outbound) if outbound.peer().as_bytes() == address)
    }

    /// What it carries is known otherwise.
    pub fn ignore(&mut self) {
        self.carries = Carries::Other;
    }

    /// The service has opened it to its database.
    pub fn leads_to_database(&mut self, host: &mut Host, at: u64) {
        let at = host.clock.micros(at);
        self.carries = match &mut host.sessions {
            Some(sessions) => Carries::Database(sessions.connected(at)),
            None => Carries::Other,
        };
    }

    pub fn turn(&mut self, host: &Host, at: u64, number: u64) {
        self.turn_at = at;
        let unused = self.turn.replace(number).is_some();
        if unused && !matches!(self.carries, Carries::Database(_) | Carries::Outbound(_)) {
            host.counters.turns_unused.one();
        }
    }

    /// Whether its bytes are of no use.
    pub fn is_deaf(&self) -> bool {
        matches!(self.carries, Carries::Other)
    }

    pub fn held_by(&mut self, program: u32) {
        self.closed = None;
        if !self.holders.contains(&program) {
            self.holders.push(program);
        }
    }

    /// True if nobody has it open any more, as far as is known. Somebody may turn up who has: a
    /// child that has done nothing with it yet, another descriptor of the same program.
    pub fn let_go(&mut self, program: u32, at: u64) -> bool {
        self.holders.retain(|&holder| holder != program);
        let closed = self.holders.is_empty() && self.closed.is_none();
        if closed {
            self.closed = Some(at);
        }
        closed
    }

    pub fn is_held_by(&self, program: u32) -> bool {
        self.holders.contains(&program)
    }

    /// Whether there is nothing left for somebody to do who turns up later.
    pub fn is_done(&self) -> bool {
        match &self.carries {
            Carries::Unknown(..) => false,
            Carries::Http(http) => {
                http.answers.ends_when_closed() || http.calls.iter().all(Call::is_answered)
            }
            Carries::FastCgi(fastcgi) => fastcgi.is_idle(),
            Carries::Database(_) | Carries::Outbound(_) | Carries::Broken | Carries::Other => true,
        }
    }

    /// Whether it is in the middle of something.
    pub fn is_busy(&self) -> bool {
        match &self.carries {
            Carries::Unknown(first, ..) => !first.is_empty(),
            Carries::Http(http) => !http.calls.is_empty() || !http.requests.is_between(),
            Carries::FastCgi(fastcgi) => !fastcgi.is_idle(),
            Carries::Database(_) => true,
            Carries::Outbound(outbound) => outbound.is_busy(),
            Carries::Broken | Carries::Other => false,
        }
    }

    pub fn bytes(&mut self, host: &mut Host, at: u64, direction: Direction, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        if let Carries::Database(session) = &mut self.carries {
            // A write may be told in several pieces, all with its moment.
            let turn = self.turn.filter(|_| self.turn_at == at);
            let at = host.clock.micros(at);
            return match direction {
                Direction::Out => session.sent(at, turn, bytes),
                Direction::In => session.received(at, bytes),
            };
        }
        if let Carries::Outbound(outbound) = &mut self.carries {
            let turn = self.turn.filter(|_| self.turn_at == at);
            let followed = match direction {
                Direction::Out => outbound.sent(host, at, turn, bytes),
                Direction::In => outbound.received(host, at, bytes),
            };
            if followed == Err(Malformed) {
                self.lose(host, at, MALFORMED);
            }
            return;
        }
        match direction {
            Direction::In => self.read(host, at, bytes),
            Direction::Out => self.wrote(host, at, bytes),
        }
    }

    fn read(&mut self, host: &mut Host, at: u64, bytes: &[u8]) {
        host.came.clone_from(&self.came);
        let turn = self.turn.take();
        let begins = turn.is_some() || self.accepted && self.written;
        self.written = false;
        // Sockets that were inherited may be anything until a turn is told.
        self.accepted |= turn.is_some();
        if !self.accepted {
            return;
        }
        let taken = match &mut self.carries {
            Carries::Http(http) => http.read(host, at, turn, bytes),
            Carries::FastCgi(fastcgi) => fastcgi.read(host, at, turn, bytes).map_err(Off::from),
            Carries::Unknown(first, began, first_turn) => {
                if first.is_empty() {
                    *began = at;
                }
                first.extend_from_slice(bytes);
                *first_turn = turn.or(*first_turn);
                return self.recognise(host, at);
            }
            Carries::Database(_) | Carries::Outbound(_) => return,
            // What looks like a request is taken for one.
            Carries::Broken if begins && recognise(bytes).is_some_and(Kind::is_followed) => {
                self.carries = Carries::Unknown(bytes.to_vec(), at, turn);
                return self.recognise(host, at);
            }
            Carries::Broken | Carries::Other => {
                if turn.is_some() {
                    host.counters.turns_unused.one();
                }
                return;
            }
        };
        self.went(host, at, taken);
    }

    fn recognise(&mut self, host: &mut Host, at: u64) {
        let Carries::Unknown(first, began, turn) = &mut self.carries else {
            return;
        };
        let Some(kind) = recognise(first) else {
            return;
        };
        let (first, began, turn) = (std::mem::take(first), *began, *turn);
        let counters = &host.counters;
        let (counter, carries) = match kind {
            Kind::Http1 => (
                &counters.http1,
                Carries::http(Requests::Http1(http1::Requests::new(self.is_encrypted))),
            ),
            Kind::Uwsgi => (
                &counters.uwsgi,
                Carries::http(Requests::Uwsgi(uwsgi::Requests::default())),
            ),
            Kind::FastCgi => (&counters.fastcgi, Carries::FastCgi(Box::default())),
            Kind::Tls => (&counters.tls, Carries::Other),
            Kind::Http2 => (&counters.http2, Carries::Other),
            Kind::Other => (&counters.unrecognised, Carries::Other),
        };
        counter.one();
        self.carries = carries;
        let taken = match &mut self.carries {
            Carries::Http(http) => http.read(host, began, turn, &first),
            Carries::FastCgi(fastcgi) => fastcgi.read(host, began, turn, &first).map_err(Off::from),
            _ => {
                if turn.is_some() {
                    host.counters.turns_unused.one();
                }
                Ok(())
            }
        };
        self.went(host, at, taken);
    }

    fn wrote(&mut self, host: &mut Host, at: u64, bytes: &[u8]) {
        self.written = true;
        let taken = match &mut self.carries {
            Carries::Http(http) => http.wrote(host, at, bytes),
            Carries::FastCgi(fastcgi) => fastcgi.written(host, at, bytes).map_err(Off::from),
            _ => return,
        };
        self.went(host, at, taken);
    }

    /// Bytes were read or written without being seen.
    pub fn unseen(&mut self, host: &mut Host, at: u64, direction: Direction, length: u64) {
        let taken = match &mut self.carries {
            Carries::Http(http) => http.unseen(host, at, direction, length),
            Carries::Other => return,
            _ => Err(Off::Malformed),
        };
        match taken {
            Err(Off::Malformed) => {
                let reason = "a part of what its connection carried went between a file and the \
                              socket without being seen";
                self.lose(host, at, reason);
            }
            taken => self.went(host, at, taken),
        }
    }

    /// The service encrypts it, and says from here on what it encrypts.
    pub fn encrypted(&mut self, host: &mut Host, at: u64) {
        self.is_encrypted = true;
        match &mut self.carries {
            Carries::Database(session) => session.encrypted(host.clock.micros(at)),
            Carries::Unknown(first, ..) => first.clear(),
            Carries::Outbound(outbound) => outbound.encrypted(),
            _ => {}
        }
    }

    /// The service shuts its half down.
    pub fn ended(&mut self, host: &mut Host, at: u64, direction: Direction) {
        match (direction, &mut self.carries) {
            (Direction::Out, Carries::Http(http)) => {
                http.answers.closed(host, &mut http.calls, at);
                http.end(host, at);
            }
            (direction, Carries::Database(session)) => {
                session.ended(host.clock.micros(at), direction);
            }
            (Direction::In, Carries::Outbound(outbound)) => outbound.closed(host),
            _ => {}
        }
    }

    fn went(&mut self, host: &mut Host, at: u64, taken: Result<(), Off>) {
        match taken {
            Ok(()) => {}
            Err(Off::Upgraded) => {
                host.counters.upgraded.one();
                self.finish(host, at);
                self.carries = Carries::Other;
            }
            Err(Off::Malformed) => {
                host.counters.malformed.one();
                self.lose(host, at, MALFORMED);
            }
        }
    }

    /// Something of it was not told.
    pub fn lost(&mut self, host: &mut Host, at: u64) {
        self.lose(host, at, LOST);
    }

    /// The recording ends.
    pub fn cut_off(&mut self, host: &mut Host, at: u64) {
        if let Carries::Database(_) = self.carries {
            return self.finish(host, at);
        }
        self.lose(
            host,
            at,
            "the recording ended before the service had answered",
        );
    }

    fn lose(&mut self, host: &mut Host, at: u64, reason: &str) {
        match &mut self.carries {
            Carries::Other => return,
            Carries::Http(http) => {
                for mut call in http.calls.drain(..) {
                    call.give_up(host, at, reason);
                    call.end(host);
                }
            }
            Carries::FastCgi(fastcgi) => fastcgi.lost(host, at, reason),
            // From here on it is heard no more.
            Carries::Database(session) => {
                session.lost(host.clock.micros(at), reason);
                self.carries = Carries::Other;
                return;
            }
            Carries::Outbound(_) => {
                host.counters.calls_lost.one();
                self.carries = Carries::Other;
                return;
            }
            Carries::Unknown(..) | Carries::Broken => {}
        }
        self.carries = Carries::Broken;
    }

    /// Nothing more will come.
    pub fn finish(&mut self, host: &mut Host, at: u64) {
        match &mut self.carries {
            Carries::Http(http) => {
                http.answers.closed(host, &mut http.calls, at);
                for mut call in http.calls.drain(..) {
                    call.closed(host, at);
                    call.end(host);
                }
            }
            Carries::FastCgi(fastcgi) => fastcgi.closed(host, at),
            Carries::Database(session) => session.closed(host.clock.micros(at)),
            Carries::Outbound(_) | Carries::Unknown(..) | Carries::Broken | Carries::Other => {}
        }
    }
}

impl Carries {
    fn http(requests: Requests) -> Self {
        Self::Http(Box::new(Http {
            requests,
            answers: Answers::default(),
            calls: VecDeque::new(),
        }))
    }
}

impl Requests {
    fn is_between(&self) -> bool {
        match self {
            Self::Http1(http1) => http1.is_between(),
            Self::Uwsgi(uwsgi) => uwsgi.is_between(),
        }
    }
}

impl Http {
    fn read(
        &mut self,
        host: &mut Host,
        at: u64,
        turn: Option<u64>,
        bytes: &[u8],
    ) -> Result<(), Off> {
        let calls = &mut self.calls;
        let taken = match &mut self.requests {
            Requests::Http1(http1) => http1.take(host, calls, at, turn, bytes),
            Requests::Uwsgi(uwsgi) => uwsgi.take(host, calls, at, turn, bytes),
        };
        self.end(host, at);
        // What comes may be the other protocol already: that the service agreed to it is told only
        // after its write has returned.
        let upgrades = |call: &Call| !call.is_answered() && call.asked.changes_protocol();
        match taken {
            Err(Malformed) if self.calls.back().is_some_and(upgrades) => Ok(()),
            taken => taken.map_err(Off::from),
        }
    }

    fn wrote(&mut self, host: &mut Host, at: u64, bytes: &[u8]) -> Result<(), Off> {
        let taken = self.answers.take(host, &mut self.calls, at, bytes);
        self.end(host, at);
        taken
    }

    fn unseen(
        &mut self,
        host: &mut Host,
        at: u64,
        direction: Direction,
        length: u64,
    ) -> Result<(), Off> {
        let calls = &mut self.calls;
        match (direction, &mut self.requests) {
            (Direction::Out, _) => self.answers.unseen(host, calls, at, length)?,
            (Direction::In, Requests::Http1(http1)) => http1.unseen(host, calls, length)?,
            (Direction::In, Requests::Uwsgi(uwsgi)) => uwsgi.unseen(host, calls, length)?,
        }
        self.end(host, at);
        Ok(())
    }

    /// Tells requests of which nothing more is to come.
    fn end(&mut self, host: &mut Host, at: u64) {
        if let Some(reason) = self.answers.blind() {
            for call in self.calls.iter_mut().filter(|call| call.is_read()) {
                call.give_up(host, at, reason);
            }
        }
        while self.calls.front().is_some_and(Call::is_over) {
            let call = self.calls.pop_front();
            call.into_iter().for_each(|call| call.end(host));
        }
    }
}
