//! What a driver is to its host.

use std::future::Future;
use std::pin::Pin;

use bytes::BytesMut;
use hindcast_taplog::board::Line;
use hindcast_wire::Wires;

use super::startup::Parameters;

/// Something a driver waits for before its session may go on.
pub type Permission = Pin<Box<dyn Future<Output = ()> + Send>>;

/// How a session goes on after a driver has looked at some bytes.
pub enum Flow {
    Continue,
    /// What is in [`Wires`] is sent; then nothing more is taken from the client until the
    /// permission is there. The host then calls [`Driver::on_permission`] and hands over what the
    /// client has sent meanwhile. Bytes from the server keep being handed over all the time. There
    /// is one wait at a time: a later one replaces an earlier one.
    Wait(Permission),
    /// From here on bytes are copied both ways and the driver is not asked again (except for the
    /// `gone` calls). What it did not consume is forwarded as it came.
    PassThrough,
    /// What is in [`Wires`] is sent, then both connections are closed.
    Close,
}

/// Decides what happens to the bytes of one session. A state machine: it owns no socket and is
/// never polled.
///
/// `input` holds everything that was read and not yet consumed, in order. A driver consumes whole
/// messages and leaves an incomplete one in place; the host calls again when more has arrived. A
/// message longer than the host is willing to keep must be consumed in parts. The host writes what
/// is put into `wires` as soon as the driver returns.
pub trait Driver: Send + 'static {
    /// Bytes from the client, beginning with its `StartupMessage` (as changed by [`Host::open`]).
    fn on_client(&mut self, input: &mut BytesMut, wires: &mut Wires) -> Flow;

    /// Bytes from the server.
    fn on_server(&mut self, input: &mut BytesMut, wires: &mut Wires) -> Flow;

    /// The permission of an earlier [`Flow::Wait`] has come.
    fn on_permission(&mut self, wires: &mut Wires) -> Flow {
        let _ = wires;
        Flow::Continue
    }

    /// Whether it keeps something from the server, to send it with what comes next.
    fn keeps(&self) -> bool {
        false
    }

    /// Nothing has come for a while: puts what it keeps into `to_server`.
    fn send_kept(&mut self, wires: &mut Wires) {
        let _ = wires;
    }

    /// The client closed its connection. The host still sends what is put into `to_server`, closes
    /// the connection to the server for writing, and hands over what the server still answers.
    fn on_client_gone(&mut self, wires: &mut Wires) {
        let _ = wires;
    }

    /// The server closed its connection. The host still sends what is put into `to_client`, then
    /// closes the client's.
    fn on_server_gone(&mut self, wires: &mut Wires) {
        let _ = wires;
    }

    /// Whether the session could end here without cutting anything off: no transaction open, no
    /// answer outstanding. Asked only while the host drains.
    fn idle(&self) -> bool;
}

/// Gives every session its driver.
pub trait Host: Send + Sync + 'static {
    type Driver: Driver;

    /// A client has sent its `StartupMessage`; no connection to the server exists yet. The
    /// parameters may be changed here.
    fn open(&self, start: &mut SessionStart) -> Result<Self::Driver, Refusal>;
}

/// What is known about a session before it exists.
#[derive(Debug)]
pub struct SessionStart {
    /// Sessions are numbered from 1 in the order in which they sent their `StartupMessage`.
    pub number: u64,
    /// Where the client came from: `127.0.0.1:50312`, or `unix`.
    pub peer: String,
    /// Where its connection stands on a service's board, if the service's tap made it.
    pub line: Option<Line>,
    /// Whether the client's connection is encrypted.
    pub encrypted: bool,
    pub parameters: Parameters,
}

/// Why a driver does not want a session; sent to the client as a fatal error.
#[derive(Debug)]
pub struct Refusal {
    /// Five characters.
    pub sqlstate: &'static str,
    pub message: String,
    pub hint: Option<String>,
}
