//! The hot path: bytes from both sockets through the driver to both sockets.
//!
//! One task per session, one `poll` per wakeup, no locks. A message that arrives costs a wakeup,
//! one `read` and one `write`: writes are tried at once and wait for readiness only when the kernel
//! takes no more; a `read` that did not fill its buffer is known to have emptied the socket, so no
//! second one is made to find that out.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, BytesMut};
use futures::task::AtomicWaker;
use hindcast_pg::tokio::Stream;
use hindcast_wire::Wires;
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::Sleep;

use super::cancel::Registration;
use super::driver::{Driver, Flow, Permission};
use super::startup;
use super::tap::{Tap, Tapped};

/// Smallest free space that a read is given, and the largest that it grows to while reads fill it.
const READ_BYTES: usize = 8 << 10;
const READ_BYTES_MAX: usize = 64 << 10;
/// As long as more than this waits to be written to one side, nothing is read from the other.
const BACKLOG_BYTES_MAX: usize = 256 << 10;
/// Buffers that grew beyond this are given back once they are empty.
const KEEP_BYTES_MAX: usize = 128 << 10;
/// How long a driver keeps something from the server at most.
const KEPT_FOR: Duration = Duration::from_millis(20);
/// What a server may still send after its client is gone before we hang up on it.
const AFTERMATH_BYTES_MAX: u64 = 16 << 20;

/// How far a shutdown has got.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(super) enum Phase {
    Running,
    /// End when nothing would be cut off.
    Draining,
    /// End.
    Ending,
}

/// How the server's host talks to a session's task. Costs the pump one relaxed load per wakeup.
#[derive(Debug)]
pub(super) struct Control {
    phase: AtomicU8,
    waker: AtomicWaker,
}

impl Default for Control {
    fn default() -> Self {
        Self {
            phase: AtomicU8::new(Phase::Running as u8),
            waker: AtomicWaker::new(),
        }
    }
}

impl Control {
    pub fn advance(&self, phase: Phase) {
        self.phase.fetch_max(phase as u8, Ordering::SeqCst);
        self.waker.wake();
    }

    /// Until a shutdown begins. For the time before there is a pump, on the session's own task.
    pub async fn draining(&self) {
        poll_fn(|cx| {
            self.waker.register(cx.waker());
            match self.phase() {
                Phase::Running => Poll::Pending,
                Phase::Draining | Phase::Ending => Poll::Ready(()),
            }
        })
        .await;
    }

    fn phase(&self) -> Phase {
        match self.phase.load(Ordering::Acquire) {
            0 => Phase::Running,
            1 => Phase::Draining,
            _ => Phase::Ending,
        }
    }
}

/// One side of a session.
struct Side {
    stream: Stream,
    /// Read and not yet consumed.
    input: BytesMut,
    read_bytes: usize,
    reading: Reading,
    /// Something was written since the last flush. Only TLS cares.
    unflushed: bool,
    /// A write failed: what is still meant for this side is thrown away.
    deaf: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Reading {
    Open,
    /// The end was read; the driver does not know yet.
    Ended,
    /// And now it does.
    Told,
}

impl Side {
    fn new(stream: Stream) -> Self {
        Self {
            stream,
            input: BytesMut::new(),
            read_bytes: READ_BYTES,
            reading: Reading::Open,
            unflushed: false,
            deaf: false,
        }
    }

    /// Whether anything was read, the end included.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.input.reserve(self.read_bytes);
        let free = self.input.capacity() - self.input.len();
        let read = ready!(pin!(self.stream.read_buf(&mut self.input)).poll(cx));
        match read {
            Ok(0) | Err(_) => self.reading = Reading::Ended,
            Ok(count) if count == free => {
                self.read_bytes = (self.read_bytes * 2).min(READ_BYTES_MAX)
            }
            Ok(_) => {}
        }
        Poll::Ready(())
    }

    /// Writes what the kernel takes; whether it took anything.
    fn poll_write(&mut self, cx: &mut Context<'_>, output: &mut BytesMut) -> bool {
        let mut progress = false;
        while !output.is_empty() {
            if self.deaf {
                output.clear();
                return true;
            }
            match Pin::new(&mut self.stream).poll_write(cx, output) {
                Poll::Ready(Ok(0) | Err(_)) => self.deaf = true,
                Poll::Ready(Ok(count)) => {
                    output.advance(count);
                    self.unflushed = true;
                    progress = true;
                }
                Poll::Pending => break,
            }
        }
        if output.is_empty() && output.capacity() > KEEP_BYTES_MAX {
            *output = BytesMut::new();
        }
        if self.unflushed && !self.deaf {
            match Pin::new(&mut self.stream).poll_flush(cx) {
                Poll::Ready(Ok(())) => self.unflushed = false,
                Poll::Ready(Err(_)) => self.deaf = true,
                Poll::Pending => {}
            }
        }
        progress
    }
}

/// A session between the moment it has both connections and its end.
pub(super) struct Pump<D> {
    client: Side,
    server: Side,
    wires: Wires,
    driver: D,
    /// Looks at what the server says until the session is established.
    tap: Option<Tap>,
    /// Held, not used: the cancel key is forgotten with the session.
    key: Option<Registration>,
    waiting: Option<Permission>,
    /// Until what the driver keeps is sent.
    keeping: Option<Pin<Box<Sleep>>>,
    mode: Mode,
    aftermath: u64,
    control: Arc<Control>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Driven,
    PassThrough,
    /// What is on the wires goes out, then it is over.
    Closing,
}

impl<D: Driver> Pump<D> {
    /// `opening` is the client's `StartupMessage`.
    pub fn new(
        client: Stream,
        server: Stream,
        driver: D,
        opening: BytesMut,
        tap: Tap,
        control: Arc<Control>,
    ) -> Self {
        let mut client = Side::new(client);
        client.input = opening;
        Self {
            client,
            server: Side::new(server),
            wires: Wires::default(),
            driver,
            tap: Some(tap),
            key: None,
            waiting: None,
            keeping: None,
            mode: Mode::Driven,
            aftermath: 0,
            control,
        }
    }

    /// Until both sides have nothing more to say.
    pub async fn run(mut self) {
        self.feed_client_input();
        poll_fn(|cx| {
            // The task's waker stays the same for its whole life; registering again is one
            // comparison.
            self.control.waker.register(cx.waker());
            self.poll(cx)
        })
        .await;
        for side in [&mut self.client, &mut self.server] {
            // A last word of TLS if it can be said at once. The sockets close when they are
            // dropped.
            let _ = futures::FutureExt::now_or_never(side.stream.shutdown());
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            let mut progress = false;

            if let Some(permission) = &mut self.waiting
                && permission.as_mut().poll(cx).is_ready()
            {
                self.waiting = None;
                let flow = self.driver.on_permission(&mut self.wires);
                self.apply(flow);
                self.feed_client_input();
                progress = true;
            }

            progress |= self.server.poll_write(cx, &mut self.wires.to_server);
            progress |= self.client.poll_write(cx, &mut self.wires.to_client);

            if self.mode == Mode::Closing {
                let done = self.wires.to_server.is_empty() && self.wires.to_client.is_empty();
                let flushed = !self.client.unflushed || self.client.deaf;
                if done && flushed || self.control.phase() == Phase::Ending {
                    return Poll::Ready(());
                }
                if !progress {
                    return Poll::Pending;
                }
                continue;
            }

            if self.server.reading == Reading::Open
                && self.wires.to_client.len() < BACKLOG_BYTES_MAX
                && self.server.poll_read(cx).is_ready()
            {
                progress = true;
                self.feed_server_input();
            }
            // What the client sends while its session waits is read too, as far as the buffer goes,
            // but not looked at.
            if self.client.reading == Reading::Open
                && self.wires.to_server.len() < BACKLOG_BYTES_MAX
                && (self.waiting.is_none() || self.client.input.len() < BACKLOG_BYTES_MAX)
                && self.client.poll_read(cx).is_ready()
            {
                progress = true;
                self.feed_client_input();
            }

            progress |= self.send_what_is_kept(cx);
            progress |= self.tell_who_is_gone(cx);
            if self.control.phase() != Phase::Running {
                progress |= self.end_if_due();
            }
            if !progress {
                return Poll::Pending;
            }
        }
    }

    fn feed_client_input(&mut self) {
        if let Some(refusal) = self
            .tap
            .as_ref()
            .and_then(|tap| tap.refuses(&self.client.input))
        {
            self.wires.to_client.extend_from_slice(&refusal);
            self.mode = Mode::Closing;
            return;
        }
        // One call may end in a wait and leave the rest, so there is no loop: a driver consumes all
        // that it can.
        if self.mode == Mode::Driven && self.waiting.is_none() && !self.client.input.is_empty() {
            let flow = self
                .driver
                .on_client(&mut self.client.input, &mut self.wires);
            self.apply(flow);
        }
        if self.mode == Mode::PassThrough {
            append(&mut self.wires.to_server, &mut self.client.input);
        }
        shrink(&mut self.client.input);
    }

    fn feed_server_input(&mut self) {
        if self.client.reading != Reading::Open || self.client.deaf {
            self.aftermath += self.server.input.len() as u64;
        }
        let mut established = None;
        if let Some(tap) = &mut self.tap {
            match tap.pass(&mut self.server.input) {
                Tapped::Some(ready) => established = Some(ready),
                Tapped::Done(mut ready) => {
                    append(&mut ready, &mut self.server.input);
                    self.server.input = ready;
                    self.key = self.tap.take().and_then(Tap::into_registration);
                }
            }
        }
        let input = established.as_mut().unwrap_or(&mut self.server.input);
        if self.mode == Mode::Driven && !input.is_empty() {
            let flow = self.driver.on_server(input, &mut self.wires);
            apply(flow, &mut self.mode, &mut self.waiting);
        }
        if self.mode == Mode::PassThrough {
            append(&mut self.wires.to_client, input);
            append(&mut self.wires.to_server, &mut self.client.input);
        }
        if let (Some(tap), Some(rest)) = (&mut self.tap, established) {
            tap.put_back(rest);
        }
        shrink(&mut self.server.input);
    }

    fn apply(&mut self, flow: Flow) {
        apply(flow, &mut self.mode, &mut self.waiting);
    }

    /// The wait goes on when what was kept has been sent: then it is a little short for what is
    /// kept next.
    fn send_what_is_kept(&mut self, cx: &mut Context<'_>) -> bool {
        if self.driver.keeps() && self.keeping.is_none() {
            self.keeping = Some(Box::pin(tokio::time::sleep(KEPT_FOR)));
        }
        let Some(keeping) = &mut self.keeping else {
            return false;
        };
        if keeping.as_mut().poll(cx).is_pending() {
            return false;
        }
        self.keeping = None;
        self.driver.send_kept(&mut self.wires);
        true
    }

    fn tell_who_is_gone(&mut self, cx: &mut Context<'_>) -> bool {
        let mut progress = false;
        // A client that left while its session waits is still owed what it sent before.
        if self.client.reading == Reading::Ended && self.waiting.is_none() {
            self.client.reading = Reading::Told;
            self.driver.on_client_gone(&mut self.wires);
            progress = true;
        }
        if self.client.reading == Reading::Told
            && self.server.reading == Reading::Open
            && self.wires.to_server.is_empty()
        {
            // The server reads to the end and closes; what it answers until then still counts.
            if Pin::new(&mut self.server.stream)
                .poll_shutdown(cx)
                .is_ready()
                && self.aftermath > AFTERMATH_BYTES_MAX
            {
                self.server.reading = Reading::Ended;
                progress = true;
            }
        }
        if self.server.reading == Reading::Ended {
            self.server.reading = Reading::Told;
            self.driver.on_server_gone(&mut self.wires);
            self.wires.to_server.clear();
            self.mode = Mode::Closing;
            progress = true;
        }
        progress
    }

    /// The end of a session that a shutdown wants to end; whether it has come.
    fn end_if_due(&mut self) -> bool {
        // It is leaving already.
        if self.client.reading == Reading::Told && self.control.phase() == Phase::Draining {
            return false;
        }
        let quiet = self.mode == Mode::Driven
            && self.waiting.is_none()
            && self.client.input.is_empty()
            && self.wires.to_server.is_empty()
            && self.wires.to_client.is_empty()
            && self.driver.idle();
        if !quiet && self.control.phase() == Phase::Draining {
            return false;
        }
        if self.client.reading != Reading::Told {
            self.client.reading = Reading::Told;
            self.driver.on_client_gone(&mut self.wires);
        }
        let farewell = startup::fatal(
            "57P01",
            "terminating connection because the gateway shuts down",
            None,
        );
        self.wires.to_client.extend_from_slice(&farewell);
        if quiet && self.control.phase() == Phase::Draining {
            // Terminate, so that the server's log does not complain about us. The session ends when
            // the server closes: until then it answers what the driver asked last.
            self.wires.to_server.extend_from_slice(&[b'X', 0, 0, 0, 4]);
            return true;
        }
        self.server.reading = Reading::Told;
        self.driver.on_server_gone(&mut self.wires);
        self.mode = Mode::Closing;
        true
    }
}

fn apply(flow: Flow, mode: &mut Mode, waiting: &mut Option<Permission>) {
    match flow {
        Flow::Continue => {}
        Flow::Wait(permission) => *waiting = Some(permission),
        Flow::PassThrough => {
            *mode = Mode::PassThrough;
            *waiting = None;
        }
        Flow::Close => {
            *mode = Mode::Closing;
            *waiting = None;
        }
    }
}

/// Moves all of `source` behind `target`, without copying where that is possible.
fn append(target: &mut BytesMut, source: &mut BytesMut) {
    if target.is_empty() {
        std::mem::swap(target, source);
        source.clear();
    } else {
        target.extend_from_slice(source);
        source.clear();
    }
}

fn shrink(buffer: &mut BytesMut) {
    if buffer.is_empty() && buffer.capacity() > KEEP_BYTES_MAX {
        *buffer = BytesMut::new();
    }
}
