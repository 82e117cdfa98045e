//! The policy of recording.

mod observed;

use bytes::BytesMut;

use crate::Output;
use crate::frame::Direction;
pub use observed::*;

/// Observes one Postgres session.
///
/// The host has dealt with requests for encryption and with cancel requests; the first bytes from the client are its
/// startup packet. The host calls [`Recorder::on_client`] and [`Recorder::on_server`] whenever it has read something, and writes what they
/// put into [`Output`] before it reads more.
///
/// A session that cannot be followed is not disturbed: after a [`ProtocolError`] everything that was buffered has been put into `Output`, and all later
/// bytes pass through as they come ([`Recorder::is_raw`]), except for answers to our own statements that are still outstanding.
pub struct Recorder {}

impl Recorder {
    pub fn new(options: RecorderOptions) -> Self {
        let _ = options;
        Self {}
    }

    /// Takes what it can use off `input`; a message that is not complete yet stays there.
    pub fn on_client(
        &mut self,
        input: &mut BytesMut,
        cx: &Context<'_>,
        out: &mut Output,
    ) -> Result<(), ProtocolError> {
        let _ = cx;
        out.to_server.unsplit(input.split());
        Ok(())
    }

    /// Likewise for what the server sent.
    pub fn on_server(
        &mut self,
        input: &mut BytesMut,
        cx: &Context<'_>,
        out: &mut Output,
    ) -> Result<(), ProtocolError> {
        let _ = cx;
        out.to_client.unsplit(input.split());
        Ok(())
    }

    /// The client is gone. The server may still be working on what it sent: go on reading from the server
    /// until that closes its side, then call [`Recorder::on_server_gone`].
    pub fn on_client_gone(&mut self, cx: &Context<'_>, out: &mut Output) {
        let _ = (cx, out);
    }

    /// The server is gone: nothing more will be answered. Ends the open transaction, if any.
    pub fn on_server_gone(&mut self, cx: &Context<'_>, out: &mut Output) {
        let _ = (cx, out);
    }

    /// Whether the session could end here without cutting anything off.
    pub fn is_idle(&self) -> bool {
        true
    }

    /// Whether bytes of this direction now pass through unobserved; the host may copy them by itself.
    pub fn is_raw(&self, direction: Direction) -> bool {
        let _ = direction;
        false
    }
}
