//! The policy of recording: what is asked, what is swallowed, what is told.
//!
//! ```text
//!  client.rs     the client's messages ─▶ forecast.rs: is there anything to ask?
//!                                      ─▶ between.rs, errands.rs: or to do between transactions?
//!                                      ─▶ ask.rs: how; keeping.rs: what stays prepared
//!  server.rs     the server's messages ─▶ transaction.rs: what they say about the open transaction
//!                                      ─▶ ending.rs: where it ends
//!                                      ─▶ own.rs, bracket.rs: what our statements are answered
//!  observed.rs   what the host hands in and gets out
//! ```

mod ask;
mod between;
mod bracket;
mod client;
mod columns;
mod drawn;
mod ending;
mod errands;
mod forecast;
mod keeping;
mod kept;
mod note;
mod observed;
mod own;
mod server;
mod transaction;

use bytes::{Buf, BytesMut};
use hindcast_model::Micros;

use crate::Wires;
use crate::frame::{self, Direction};
use crate::message::frontend::Startup;
use crate::tracker::{Owner, Tracker};
use ask::Errand;
use client::ClientSide;
pub use columns::{SequenceColumns, Source};
use ending::Streams;
pub use keeping::{Keeping, Look};
use kept::Kept;
pub use note::FUNCTION_CALL;
use note::{Note, StatementNote, Tracked, Work};
pub use observed::*;
use server::{Passage, ServerSide};

/// Observes one Postgres session.
///
/// The host has dealt with requests for encryption and with cancel requests; the first bytes from
/// the client are its startup packet. The host calls [`Observer::on_client`] and
/// [`Observer::on_server`] whenever it has read something, and writes what they put into [`Wires`]
/// before it reads more. Events are told in the order in which they happened.
///
/// A session that cannot be followed is not disturbed: after a [`ProtocolError`] everything that
/// was buffered has been put into `Wires`, and all later bytes pass through as they come
/// ([`Observer::is_raw`]), except for answers to our own statements that are still outstanding.
#[derive(Debug)]
pub struct Observer {
    phase: Phase,
    tracker: Tracker<Note, StatementNote>,
    client: ClientSide,
    server: ServerSide,
    /// What the client sent, and what it was sent.
    from_client: Kept,
    to_client: Kept,
    /// When the server last sent something.
    last_heard: Micros,
    /// What is observed has happened already.
    is_past: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The startup packet has not come yet.
    Startup,
    Following,
    /// The client's bytes pass through, the server's are followed until our last answer has been
    /// swallowed.
    Letting,
    Raw,
}

impl Observer {
    pub fn new(options: ObserverOptions) -> Self {
        Self {
            last_heard: 0,
            is_past: options.passive,
            phase: Phase::Startup,
            tracker: Tracker::new(),
            client: ClientSide::new(&options),
            server: ServerSide::new(&options),
            from_client: Kept::new(options.kept_bytes_max),
            to_client: Kept::new(options.kept_bytes_max),
        }
    }

    /// Takes what it can use off `input`; a message that is not complete yet stays there.
    pub fn on_client(
        &mut self,
        input: &mut BytesMut,
        cx: &Context<'_>,
        out: &mut Wires,
        events: &mut Vec<Event>,
    ) -> Result<(), ProtocolError> {
        match self.phase {
            Phase::Raw | Phase::Letting => {
                pass(input, &mut out.to_server);
                return Ok(());
            }
            Phase::Startup => {
                if !self.startup(input, out, events)? || self.phase == Phase::Raw {
                    return Ok(());
                }
            }
            Phase::Following => {}
        }
        let (mut at, mut run) = (0, 0);
        let result = loop {
            let offset = self.client.cursor.offset();
            let tag = input.get(at).copied().unwrap_or(0);
            let failed = ProtocolError::at(Direction::FromClient, tag, offset);
            let piece = match self.client.cursor.next(&input[at..]) {
                Ok(Some(piece)) => piece,
                Ok(None) => break Ok(()),
                Err(error) => break Err(failed(error.into())),
            };
            if let Err(problem) = self.client.piece(piece, &mut self.tracker, cx) {
                break Err(failed(problem));
            }
            let next = at + piece.bytes.len();
            if !self.client.injected.is_empty() || !self.client.replaced.is_empty() {
                out.to_server.extend_from_slice(&input[run..at]);
                out.to_server.extend_from_slice(&self.client.injected);
                run = at;
                if !self.client.replaced.is_empty() {
                    out.to_server.extend_from_slice(&self.client.replaced);
                    run = next;
                }
                self.client.injected.clear();
                give_back(&mut self.client.replaced);
            }
            if !self.client.following.is_empty() {
                out.to_server.extend_from_slice(&input[run..next]);
                out.to_server.extend_from_slice(&self.client.following);
                self.client.following.clear();
                run = next;
            }
            at = next;
        };
        self.from_client.append(&input[..at]);
        if result.is_err() {
            // What was injected for the message at hand has been noted but not sent.
            self.client.replaced.clear();
            self.client.following.clear();
            out.to_server.extend_from_slice(&input[run..at]);
            out.to_server.extend_from_slice(&self.client.injected);
            self.client.injected.clear();
            input.advance(at);
            pass(input, &mut out.to_server);
            self.phase = Phase::Letting;
            self.let_go();
            return result;
        }
        move_run(input, run, at, &mut out.to_server);
        Ok(())
    }

    /// Likewise for what the server sent. Where that [is ahead](Self::is_ahead), it stays in
    /// `input` until the client's bytes have come.
    pub fn on_server(
        &mut self,
        input: &mut BytesMut,
        cx: &Context<'_>,
        out: &mut Wires,
        events: &mut Vec<Event>,
    ) -> Result<(), ProtocolError> {
        if self.phase == Phase::Raw {
            pass(input, &mut out.to_client);
            return Ok(());
        }
        self.last_heard = cx.now;
        let (mut at, mut run) = (0, 0);
        let result = loop {
            let offset = self.server.cursor.offset();
            let tag = input.get(at).copied().unwrap_or(0);
            let failed = ProtocolError::at(Direction::FromServer, tag, offset);
            if self.is_ahead(&input[at..]) {
                break Ok(());
            }
            let piece = match self.server.cursor.next(&input[at..]) {
                Ok(Some(piece)) => piece,
                Ok(None) => break Ok(()),
                Err(error) => break Err(failed(error.into())),
            };
            if self.server.ends_before(&piece, &self.tracker) {
                self.forward(&input[run..at], out);
                run = at;
                let streams = streams(&mut self.from_client, &mut self.to_client);
                self.server.tell_before(&self.tracker, streams, cx, events);
            }
            let (tracker, client) = (&mut self.tracker, &mut self.client);
            let passage = match self.server.piece(piece, tracker, client, cx, events) {
                Ok(passage) => passage,
                Err(problem) => break Err(failed(problem)),
            };
            let next = at + piece.bytes.len();
            if !self.server.released.is_empty() {
                self.forward(&input[run..at], out);
                run = at;
                let released = self.server.released.split();
                self.forward(&released, out);
            }
            if matches!(passage, Passage::Swallow | Passage::Replace) {
                self.forward(&input[run..at], out);
                run = next;
                let replaced = self.server.replaced.split();
                self.forward(&replaced, out);
            }
            at = next;
            if self.server.ends_here {
                self.forward(&input[run..at], out);
                run = at;
                let streams = streams(&mut self.from_client, &mut self.to_client);
                self.server.tell_ended(&self.tracker, streams, cx, events);
            }
            if passage == Passage::Raw {
                self.phase = Phase::Raw;
            }
            if self.phase == Phase::Letting {
                self.let_go();
            }
            if self.phase == Phase::Raw {
                break Ok(());
            }
        };
        if result.is_err() || self.phase == Phase::Raw {
            self.give_up_server(run, at, input, out);
        } else {
            self.to_client.append(&input[run..at]);
            move_run(input, run, at, &mut out.to_client);
        }
        result
    }

    /// Whether what the server sent answers what the client has not been seen to send. What has
    /// happened may be told so: while the thread that writes has lost its processor, another one
    /// has read the answer. What the server says unasked it may say at any time.
    pub fn is_ahead(&self, input: &[u8]) -> bool {
        const FATAL: [&[u8]; 2] = [b"VFATAL\0", b"VPANIC\0"];
        const NEAR: usize = 64;
        let ends_session = || {
            let start = &input[..input.len().min(NEAR)];
            let mut fields = start.windows(FATAL[0].len());
            fields.any(|at| FATAL.contains(&at))
        };
        let answers = || match input.first() {
            None | Some(b'N' | b'S' | b'A') => false,
            Some(b'E') => !ends_session(),
            Some(_) => true,
        };
        self.is_past
            && self.phase == Phase::Following
            && self.tracker.is_established()
            && self.tracker.is_quiet()
            && !self.server.cursor.is_within_message()
            && answers()
    }

    /// The server can be followed no further: `input[run..at]`, what was held back, and all the
    /// rest pass through.
    fn give_up_server(&mut self, run: usize, at: usize, input: &mut BytesMut, out: &mut Wires) {
        self.phase = Phase::Raw;
        self.server.give_up();
        out.to_client.extend_from_slice(&input[run..at]);
        out.to_client
            .extend_from_slice(&self.server.released.split());
        input.advance(at);
        pass(input, &mut out.to_client);
    }

    /// The client is gone, with or without a last word. The server may still be working on what it
    /// sent, so the host sends what is put into `out` and goes on reading from the server until
    /// that closes its side.
    pub fn on_client_gone(&mut self, cx: &Context<'_>, out: &mut Wires) {
        if self.phase != Phase::Following || self.client.cursor.is_within_message() {
            return;
        }
        let note = Note {
            start: self.client.cursor.offset(),
            at: cx.now,
            alone: cx.alone,
            turn: cx.turn,
            gives_back: None,
            work: Work::Plain,
        };
        // If it cannot be noted there is too much outstanding: what was not noted is not sent.
        let left = self.client.leaves(&mut self.tracker, note);
        let last_words = self.client.injected.split();
        if left.is_ok() {
            out.to_server.extend_from_slice(&last_words);
        }
    }

    /// The server is gone: nothing more will be answered. Ends the open transaction, if any.
    pub fn on_server_gone(&mut self, cx: &Context<'_>, events: &mut Vec<Event>) {
        if self.phase == Phase::Following {
            self.phase = Phase::Raw;
            let streams = streams(&mut self.from_client, &mut self.to_client);
            self.server.gone(&self.tracker, streams, cx, events);
            let unasked = self.client.between.may_have_temporary();
            if unasked || self.tracker.pending().any(drops_temporary) {
                events.push(Event::Unasked {
                    statement: None,
                    began: self.last_heard,
                    ended: cx.now,
                    xids: None,
                    commits_inside: false,
                });
            }
        }
    }

    /// Whether the session could end here without cutting anything off.
    pub fn is_idle(&self) -> bool {
        self.phase == Phase::Following
            && self.tracker.is_established()
            && self.tracker.is_quiet()
            && self.client.is_idle()
            && self.server.is_idle()
    }

    /// Whether the session is being observed: its startup packet has come, and nothing has gone
    /// wrong since.
    pub fn is_following(&self) -> bool {
        self.phase == Phase::Following
    }

    /// Whether bytes of this direction now pass through unobserved; the host may copy them by
    /// itself.
    pub fn is_raw(&self, direction: Direction) -> bool {
        match direction {
            Direction::FromClient => matches!(self.phase, Phase::Raw | Phase::Letting),
            Direction::FromServer => self.phase == Phase::Raw,
        }
    }

    /// Takes the startup packet off `input` and forwards it. Returns whether it was there.
    fn startup(
        &mut self,
        input: &mut BytesMut,
        out: &mut Wires,
        events: &mut Vec<Event>,
    ) -> Result<bool, ProtocolError> {
        let failed = ProtocolError::at(Direction::FromClient, 0, 0);
        let packet = match frame::split_startup(input) {
            Ok(Some(packet)) => packet,
            Ok(None) => return Ok(false),
            Err(error) => {
                self.phase = Phase::Raw;
                pass(input, &mut out.to_server);
                return Err(failed(error.into()));
            }
        };
        out.to_server.extend_from_slice(&packet);
        match Startup::parse(&packet) {
            Ok(startup) if startup.is_replication() => {
                self.phase = Phase::Raw;
                pass(input, &mut out.to_server);
                events.push(Event::Unobserved {
                    reason: "it is a replication connection",
                });
            }
            Ok(startup) => {
                self.phase = Phase::Following;
                self.client.cursor.skip(packet.len());
                self.from_client.append(&packet);
                if let Some(name) = startup.get("application_name") {
                    self.server.application_name(name);
                }
            }
            Err(error) => {
                self.phase = Phase::Raw;
                pass(input, &mut out.to_server);
                return Err(failed(error.into()));
            }
        }
        Ok(true)
    }

    /// Sends bytes to the client, and keeps them for the case that its transaction aborts.
    #[inline]
    fn forward(&mut self, bytes: &[u8], out: &mut Wires) {
        out.to_client.extend_from_slice(bytes);
        self.to_client.append(bytes);
    }

    /// Stops following the server too once nothing has to be swallowed any more.
    fn let_go(&mut self) {
        let ours = self
            .tracker
            .pending()
            .any(|pending| match &pending.payload.work {
                Work::Query(query) => !query.asks.is_empty(),
                _ => pending.owner == Owner::Injected,
            });
        if !ours {
            self.phase = Phase::Raw;
        }
    }
}

fn drops_temporary(pending: &Tracked) -> bool {
    matches!(pending.payload.work, Work::Errand(Errand::DropId))
}

fn streams<'a>(client: &'a mut Kept, server: &'a mut Kept) -> Streams<'a> {
    Streams { client, server }
}

/// Moves everything.
fn pass(input: &mut BytesMut, out: &mut BytesMut) {
    let end = input.len();
    move_run(input, 0, end, out);
}

/// Moves `input[run..at]`, and drops what is before it. What is after it stays.
fn move_run(input: &mut BytesMut, run: usize, at: usize, out: &mut BytesMut) {
    /// Below this, copying is cheaper than handing over the buffer.
    const COPY_BYTES_MAX: usize = 4 << 10;
    if at - run > COPY_BYTES_MAX && run == 0 && at == input.len() && out.is_empty() {
        std::mem::swap(input, out);
    } else {
        out.extend_from_slice(&input[run..at]);
        input.advance(at);
    }
}

/// Empties a scratch buffer, and gives a large one back.
fn give_back(buffer: &mut BytesMut) {
    buffer.clear();
    if buffer.capacity() > crate::limits::IDLE_BUFFER_BYTES_MAX {
        *buffer = BytesMut::new();
    }
}
