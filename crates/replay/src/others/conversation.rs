//! One connection of a replayed service to somebody else, answered from the recorded calls.

use std::io::{self, Cursor};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use hindcast_gateway::messages::{self, Messages, Protocol, redis};
use hindcast_gateway::{Accepted, Listener};
use hindcast_taplog::board::Line;
use hindcast_trace::Micros;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use super::calls::{Asked, Calls, Found};
use crate::monitor::Monitor;
use crate::turns::Turns;

/// Of what is read at once.
const BUFFER: usize = 64 << 10;
/// The first byte of a handshake.
const HANDSHAKE: u8 = 0x16;
/// Where no connection can be had.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Who waits looks again after this, should he have missed that something moved.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// All that is needed to answer whom the service calls by one address.
#[derive(Clone)]
pub struct Host {
    /// The service encrypts what it sends here.
    pub acceptor: Option<TlsAcceptor>,
    pub calls: Arc<Mutex<Calls>>,
    pub turns: Arc<Turns>,
    pub monitor: Monitor,
    pub peer: Arc<str>,
}

/// What of a connection is behind it.
#[derive(Default)]
struct Conversation {
    /// Of a message that is not whole.
    sent: Vec<u8>,
    asks: Option<Messages>,
    /// Commands of Redis that run together, from their `MULTI` on.
    together: Option<Vec<u8>>,
    /// What is published to these comes here.
    channels: Vec<Vec<u8>>,
    /// When that was published which came last, and what.
    last: (Micros, Vec<u8>),
    /// Its messages are those of the protocol's version 3.
    pushes: bool,
}

/// What becomes of a connection.
enum Next {
    GoesOn,
    Ends,
}

/// An error of Redis, in the place of an answer.
const NOT_RECORDED: &[u8] = b"-ERR this is not in the recording that is replayed\r\n";

impl Host {
    pub async fn serve(self, gate: Listener) {
        let mut connections = JoinSet::new();
        loop {
            match gate.accept().await {
                Ok(accepted) => connections.spawn(self.clone().converse(accepted)),
                // The process may have run out of descriptors for a moment.
                Err(_) => {
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            while connections.try_join_next().is_some() {}
        }
    }

    /// Ends when the service does, or asks what the recording does not have.
    async fn converse(self, accepted: Accepted) {
        let line = accepted.line();
        if let Ok((stream, _)) = accepted.register() {
            // What fails is the service's connection: it sees that.
            let _ = match &self.acceptor {
                None => self.answer_all(stream, line).await,
                Some(acceptor) => self.decrypt(acceptor, stream, line).await,
            };
        }
    }

    /// Who is called encrypted may be called otherwise by other code.
    async fn decrypt(
        &self,
        acceptor: &TlsAcceptor,
        mut stream: impl AsyncRead + AsyncWrite + Unpin,
        line: Option<Line>,
    ) -> io::Result<()> {
        let mut first = vec![0; BUFFER];
        let length = stream.read(&mut first).await?;
        first.truncate(length);
        let is_handshake = first.first() == Some(&HANDSHAKE);
        let (reader, writer) = tokio::io::split(stream);
        let stream = tokio::io::join(Cursor::new(first).chain(reader), writer);
        if !is_handshake {
            return self.answer_all(stream, line).await;
        }
        match acceptor.accept(stream).await {
            Ok(stream) => self.answer_all(stream, line).await,
            Err(error) => {
                let what = format!(
                    "an encrypted connection, whose certificate the service did not trust ({error}),"
                );
                self.calls().note(&self.peer, &what);
                Ok(())
            }
        }
    }

    async fn answer_all(
        &self,
        mut stream: impl AsyncRead + AsyncWrite + Unpin,
        line: Option<Line>,
    ) -> io::Result<()> {
        let peer = |calls: &Calls| calls.peers.get(&*self.peer)?.greeting();
        let greeting = peer(&self.calls());
        if let Some(greeting) = greeting {
            stream.write_all(&greeting.bytes).await?;
        }
        let (mut buffer, mut conversation) = (vec![0; BUFFER], Conversation::default());
        loop {
            self.publish(&mut stream, &mut conversation).await?;
            let length = tokio::select! {
                length = stream.read(&mut buffer) => length?,
                () = self.moved(None), if !conversation.channels.is_empty() => continue,
            };
            if length == 0 {
                return Ok(());
            }
            let request = line
                .and_then(|line| self.turns.whose(line))
                .map_or(0, |request| request.0);
            let bytes = &buffer[..length];
            let next = self.carry(&mut stream, &mut conversation, request, bytes);
            if let Next::Ends = next.await? {
                return stream.shutdown().await;
            }
        }
    }

    /// Something moves, or it is this moment.
    async fn moved(&self, until: Option<Instant>) {
        let again = Instant::now() + LOOK_AGAIN;
        let until = until.map_or(again, |until| until.min(again));
        tokio::select! {
            () = self.turns.moved.notified() => {}
            () = tokio::time::sleep_until(until.into()) => {}
        }
    }

    /// Says what was published to a connection's channels and is due.
    async fn publish(
        &self,
        stream: &mut (impl AsyncWrite + Unpin),
        conversation: &mut Conversation,
    ) -> io::Result<()> {
        while !conversation.channels.is_empty() {
            let now = Instant::now();
            let (channels, last) = (&conversation.channels, &mut conversation.last);
            let message = {
                let mut calls = self.calls();
                calls.progress.look(&self.turns, now);
                calls.published(&self.peer, channels, last, now)
            };
            match message {
                Some(message) => stream.write_all(&message).await?,
                None => break,
            }
        }
        Ok(())
    }

    /// Cuts what came into messages, and answers those that are whole.
    async fn carry(
        &self,
        stream: &mut (impl AsyncWrite + Unpin),
        conversation: &mut Conversation,
        request: u64,
        mut bytes: &[u8],
    ) -> io::Result<Next> {
        let first;
        if conversation.asks.is_none() {
            conversation.sent.extend_from_slice(bytes);
            let Some(protocol) = Protocol::of(&conversation.sent) else {
                return Ok(Next::GoesOn);
            };
            conversation.asks = Some(Messages::asks(protocol));
            first = std::mem::take(&mut conversation.sent);
            bytes = &first;
        }
        while let Some(asks) = conversation.asks.as_mut().filter(|_| !bytes.is_empty()) {
            let whole = asks.take(&mut bytes, &mut conversation.sent, false);
            let found = match whole {
                Ok(true) if matches!(asks, Messages::Redis) => {
                    self.command(conversation, request).await
                }
                Ok(true) => self.found(request, &conversation.sent).await,
                Ok(false) if matches!(asks, Messages::Other) => {
                    let mut calls = self.calls();
                    calls.answer_bytes(&self.peer, request, &conversation.sent)
                }
                Ok(false) => Found::More,
                Err(_) => Found::Nothing,
            };
            match found {
                Found::Answer(answer) => {
                    conversation.sent.clear();
                    stream.write_all(&answer.bytes).await?;
                    self.turns.moved.notify_waiters();
                    if answer.closes {
                        return Ok(Next::Ends);
                    }
                }
                Found::Nothing => {
                    let title = messages::title(&conversation.sent);
                    self.calls().note(&self.peer, &title);
                    // Others may wait for answers on the same connection.
                    if !matches!(conversation.asks, Some(Messages::Redis)) {
                        return Ok(Next::Ends);
                    }
                    conversation.sent.clear();
                    stream.write_all(NOT_RECORDED).await?;
                }
                Found::More | Found::Later(_) => {}
            }
        }
        Ok(Next::GoesOn)
    }

    /// A command of Redis is whole.
    async fn command(&self, conversation: &mut Conversation, request: u64) -> Found {
        let sent = &conversation.sent;
        let name = redis::name(sent);
        if let Some(together) = &mut conversation.together {
            together.extend_from_slice(sent);
            if !redis::ends_together(&name) {
                return Found::said(b"+QUEUED\r\n".to_vec());
            }
            let all = conversation.together.take().unwrap_or_default();
            return match self.found(request, &all).await {
                Found::Answer(mut answer) => {
                    let last = redis::each(&answer.bytes).last().unwrap_or_default();
                    answer.bytes = last.to_vec();
                    Found::Answer(answer)
                }
                // Earlier recorders kept each command by itself.
                _ => self.found(request, sent).await,
            };
        }
        if redis::begins_together(&name) {
            conversation.together = Some(sent.clone());
            return Found::said(b"+OK\r\n".to_vec());
        }
        if name == "hello" {
            conversation.pushes = redis::words(sent).nth(1) == Some(b"3");
        }
        if name.ends_with("subscribe") {
            return Found::said(conversation.subscribe(&name));
        }
        self.found(request, sent).await
    }

    /// What answers a message, once its time has come.
    async fn found(&self, request: u64, sent: &[u8]) -> Found {
        let at = Instant::now();
        loop {
            let now = Instant::now();
            let asked = Asked {
                request,
                sent,
                at,
                now,
            };
            let (found, handed) = {
                let mut calls = self.calls();
                calls.progress.look(&self.turns, now);
                let found = calls.answer(&self.peer, asked);
                (found, std::mem::take(&mut calls.handed))
            };
            for at in handed {
                self.monitor.with(|coordinator| coordinator.was_handed(at));
            }
            let Found::Later(until) = found else {
                return found;
            };
            self.moved(until).await;
        }
    }

    fn calls(&self) -> std::sync::MutexGuard<'_, Calls> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Conversation {
    /// Nobody else is asked: what is published is in the recording, or does not come.
    fn subscribe(&mut self, name: &str) -> Vec<u8> {
        let channels: Vec<Vec<u8>> = redis::words(&self.sent)
            .skip(1)
            .map(<[u8]>::to_vec)
            .collect();
        let leaves = name.contains("unsubscribe");
        let about = match channels.is_empty() {
            true => std::mem::take(&mut self.channels),
            false => channels,
        };
        let mut answer = Vec::new();
        for channel in &about {
            self.channels.retain(|known| known != channel);
            if !leaves {
                self.channels.push(channel.clone());
            }
            let kind = if self.pushes { '>' } else { '*' };
            let head = format!(
                "{kind}3\r\n${}\r\n{name}\r\n${}\r\n",
                name.len(),
                channel.len()
            );
            answer.extend_from_slice(head.as_bytes());
            answer.extend_from_slice(channel);
            answer.extend_from_slice(format!("\r\n:{}\r\n", self.channels.len()).as_bytes());
        }
        if about.is_empty() {
            let head = format!("*3\r\n${}\r\n{name}\r\n$-1\r\n:0\r\n", name.len());
            answer.extend_from_slice(head.as_bytes());
        }
        answer
    }
}

impl Found {
    fn said(bytes: Vec<u8>) -> Self {
        Self::Answer(super::calls::Answer {
            bytes,
            closes: false,
        })
    }
}
