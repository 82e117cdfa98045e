//! The policy of recording: what is asked, what is swallowed, what is told.
//!
//! ```text
//!  client.rs     the client's messages ─▶ forecast.rs: is there anything to ask?  ─▶ ask.rs: how
//!  server.rs     the server's messages ─▶ transaction.rs: what they say about the open transaction ─▶ ending.rs: where it ends
//!  observed.rs   what the host hands in and gets out
//! ```

mod ask;
mod client;
mod ending;
mod forecast;
mod kept;
mod note;
mod observed;
mod sequences;
mod server;
mod transaction;

use bytes::{Buf, BytesMut};

use crate::Output;
use crate::frame::{self, Direction};
use crate::message::frontend::Startup;
use crate::tracker::{Owner, Tracker};
use client::ClientSide;
use ending::Streams;
use kept::Kept;
use note::{Note, StatementNote, Work};
pub use observed::*;
use server::{ServerSide, Verdict};

/// Observes one Postgres session.
///
/// The host has dealt with requests for encryption and with cancel requests; the first bytes from the client are its
/// startup packet. The host calls [`Recorder::on_client`] and [`Recorder::on_server`] whenever it has read something, and writes what they
/// put into [`Output`] before it reads more.
///
/// A session that cannot be followed is not disturbed: after a [`ProtocolError`] everything that was buffered has been put into `Output`, and all later
/// bytes pass through as they come ([`Recorder::is_raw`]), except for answers to our own statements that are still outstanding.
#[derive(Debug)]
pub struct Recorder {
    phase: Phase,
    tracker: Tracker<Note, StatementNote>,
    client: ClientSide,
    server: ServerSide,
    /// What the client sent, and what it was sent.
    from_client: Kept,
    to_client: Kept,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The startup packet has not come yet.
    Startup,
    Following,
    /// The client's bytes pass through, the server's are followed until our last answer has been swallowed.
    Letting,
    Raw,
}

impl Recorder {
    pub fn new(options: RecorderOptions) -> Self {
        let prefix = options.trace_id_prefix;
        Self {
            phase: Phase::Startup,
            tracker: Tracker::new(),
            client: ClientSide::new(options.scripts, prefix),
            server: ServerSide::new(prefix, options.strip_channel_binding),
            from_client: Kept::new(options.kept_bytes_max),
            to_client: Kept::new(options.kept_bytes_max),
        }
    }

    /// Takes what it can use off `input`; a message that is not complete yet stays there.
    pub fn on_client(
        &mut self,
        input: &mut BytesMut,
        cx: &Context<'_>,
        out: &mut Output,
    ) -> Result<(), ProtocolError> {
        match self.phase {
            Phase::Raw | Phase::Letting => {
                pass(input, &mut out.to_server);
                return Ok(());
            }
            Phase::Startup => {
                if !self.startup(input, out)? || self.phase == Phase::Raw {
                    return Ok(());
                }
            }
            Phase::Following => {}
        }
        let (mut at, mut run) = (0, 0);
        let result = loop {
            let offset = self.client.cursor.offset();
            let tag = input.get(at).copied().unwrap_or(0);
            let failed = |problem| {
                Err(ProtocolError {
                    direction: Direction::FromClient,
                    tag,
                    offset,
                    problem,
                })
            };
            let piece = match self.client.cursor.next(&input[at..]) {
                Ok(Some(piece)) => piece,
                Ok(None) => break Ok(()),
                Err(error) => break failed(error.into()),
            };
            if let Err(problem) = self.client.piece(piece, &mut self.tracker, cx) {
                break failed(problem);
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
            at = next;
        };
        self.from_client.append(&input[..at]);
        if result.is_err() {
            // What was injected for the message at hand has been noted but not sent.
            self.client.replaced.clear();
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

    /// Likewise for what the server sent.
    pub fn on_server(
        &mut self,
        input: &mut BytesMut,
        cx: &Context<'_>,
        out: &mut Output,
    ) -> Result<(), ProtocolError> {
        if self.phase == Phase::Raw {
            pass(input, &mut out.to_client);
            return Ok(());
        }
        let (mut at, mut run) = (0, 0);
        let result = loop {
            let offset = self.server.cursor.offset();
            let tag = input.get(at).copied().unwrap_or(0);
            let failed = |problem| {
                Err(ProtocolError {
                    direction: Direction::FromServer,
                    tag,
                    offset,
                    problem,
                })
            };
            let piece = match self.server.cursor.next(&input[at..]) {
                Ok(Some(piece)) => piece,
                Ok(None) => break Ok(()),
                Err(error) => break failed(error.into()),
            };
            if self.server.ends_before(&piece, &self.tracker) {
                self.forward(&input[run..at], out);
                run = at;
                let streams = streams(&mut self.from_client, &mut self.to_client);
                self.server
                    .tell_before(&self.tracker, streams, cx, &mut out.events);
            }
            let (tracker, client) = (&mut self.tracker, &mut self.client);
            let verdict = self
                .server
                .piece(piece, tracker, client, cx, &mut out.events);
            let verdict = match verdict {
                Ok(verdict) => verdict,
                Err(problem) => break failed(problem),
            };
            let next = at + piece.bytes.len();
            if !self.server.released.is_empty() {
                self.forward(&input[run..at], out);
                run = at;
                let released = self.server.released.split();
                self.forward(&released, out);
            }
            if matches!(verdict, Verdict::Swallow | Verdict::Replace) {
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
                self.server
                    .tell_ended(&self.tracker, streams, cx, &mut out.events);
            }
            if verdict == Verdict::Raw {
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
            self.phase = Phase::Raw;
            self.server.give_up();
            out.to_client.extend_from_slice(&input[run..at]);
            out.to_client
                .extend_from_slice(&self.server.released.split());
            input.advance(at);
            pass(input, &mut out.to_client);
            return result;
        }
        self.to_client.append(&input[run..at]);
        move_run(input, run, at, &mut out.to_client);
        Ok(())
    }

    /// The client is gone. The server may still be working on what it sent: go on reading from the server
    /// until that closes its side, then call [`Recorder::on_server_gone`].
    pub fn on_client_gone(&mut self, cx: &Context<'_>, out: &mut Output) {
        let _ = (cx, out);
    }

    /// The server is gone: nothing more will be answered. Ends the open transaction, if any.
    pub fn on_server_gone(&mut self, cx: &Context<'_>, out: &mut Output) {
        if self.phase == Phase::Following {
            self.phase = Phase::Raw;
            let streams = streams(&mut self.from_client, &mut self.to_client);
            self.server
                .gone(&self.tracker, streams, cx, &mut out.events);
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

    /// Whether the session is being observed: its startup packet has come, and nothing has gone wrong since.
    pub fn is_following(&self) -> bool {
        self.phase == Phase::Following
    }

    /// Whether bytes of this direction now pass through unobserved; the host may copy them by itself.
    pub fn is_raw(&self, direction: Direction) -> bool {
        match direction {
            Direction::FromClient => matches!(self.phase, Phase::Raw | Phase::Letting),
            Direction::FromServer => self.phase == Phase::Raw,
        }
    }

    /// Takes the startup packet off `input` and forwards it. Returns whether it was there.
    fn startup(&mut self, input: &mut BytesMut, out: &mut Output) -> Result<bool, ProtocolError> {
        let failed = |problem: Problem| ProtocolError {
            direction: Direction::FromClient,
            tag: 0,
            offset: 0,
            problem,
        };
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
                out.events.push(Event::Unobserved {
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
    fn forward(&mut self, bytes: &[u8], out: &mut Output) {
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
