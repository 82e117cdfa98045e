//! Looks at what the server says while a session is being established.
//!
//! Two things concern the host and no driver: the cancel key, which has to be remembered, and
//! channel binding, which ties a password to the certificate of the connection it is sent over and
//! therefore cannot cross a gateway with a certificate of its own.

use std::sync::Arc;

use bytes::{Buf, BufMut, BytesMut};

use super::cancel::{CancelKeys, Registration};
use super::startup::{self, CancelKey};

const SASL: u32 = 10;
const CHANNEL_BINDING_MECHANISM: &[u8] = b"SCRAM-SHA-256-PLUS";

/// Longer messages than this do not occur before a session is established.
const MESSAGE_BYTES_MAX: usize = 64 << 10;

pub(super) struct Tap {
    keys: Arc<CancelKeys>,
    address: usize,
    registration: Option<Registration>,
    binding: Binding,
    /// The server's offer of channel binding was taken out.
    withheld: bool,
    /// What a driver did not consume yet.
    rest: BytesMut,
}

/// Whether channel binding can work between this client and this server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Binding {
    /// Both sides see the same certificate: the gateway was given the server's.
    Transparent,
    /// The client encrypts, with another certificate than the server's.
    Impossible,
    /// The client does not encrypt and expects no offer of it.
    Unwanted,
}

pub(super) enum Tapped {
    /// Whole messages, and more to look at later.
    Some(BytesMut),
    /// Whole messages, and nothing more to look at.
    Done(BytesMut),
}

impl Tap {
    pub fn new(keys: Arc<CancelKeys>, address: usize, binding: Binding) -> Self {
        Self {
            keys,
            address,
            registration: None,
            binding,
            withheld: false,
            rest: BytesMut::new(),
        }
    }

    /// Keeps the session's cancel key known for as long as it lives.
    pub fn into_registration(self) -> Option<Registration> {
        self.registration
    }

    /// Takes the whole messages off `input`.
    pub fn pass(&mut self, input: &mut BytesMut) -> Tapped {
        let mut out = std::mem::take(&mut self.rest);
        while input.len() >= 5 {
            let length = u32::from_be_bytes(input[1..5].try_into().expect("four bytes")) as usize;
            if !(4..=MESSAGE_BYTES_MAX).contains(&length) {
                // Not what we know; the driver will say so.
                return Tapped::Done(out);
            }
            if input.len() < length + 1 {
                break;
            }
            let message = input.split_to(length + 1);
            let (tag, body) = (message[0], &message[5..]);
            match tag {
                b'R' if body.len() > 4
                    && body[..4] == SASL.to_be_bytes()
                    && self.binding != Binding::Transparent =>
                {
                    self.withhold(&body[4..], &mut out);
                    continue;
                }
                b'K' if body.len() >= 8 => {
                    let process = u32::from_be_bytes(body[..4].try_into().expect("four bytes"));
                    let key = CancelKey {
                        process,
                        secret: body[4..].to_vec(),
                    };
                    self.registration = Some(self.keys.register(key, self.address));
                }
                b'Z' => {
                    out.extend_from_slice(&message);
                    return Tapped::Done(out);
                }
                _ => {}
            }
            out.extend_from_slice(&message);
        }
        Tapped::Some(out)
    }

    pub fn put_back(&mut self, rest: BytesMut) {
        self.rest = rest;
    }

    /// `AuthenticationSASL` without the mechanisms that bind to a channel.
    fn withhold(&mut self, mut mechanisms: &[u8], out: &mut BytesMut) {
        let start = out.len();
        out.put_u8(b'R');
        out.put_u32(0);
        out.put_u32(SASL);
        while let Some(end) = mechanisms
            .iter()
            .position(|&byte| byte == 0)
            .filter(|&end| end > 0)
        {
            match &mechanisms[..end] {
                CHANNEL_BINDING_MECHANISM => self.withheld = true,
                mechanism => {
                    out.put_slice(mechanism);
                    out.put_u8(0);
                }
            }
            mechanisms.advance(end + 1);
        }
        out.put_u8(0);
        let length = (out.len() - start - 1) as u32;
        out[start + 1..start + 5].copy_from_slice(&length.to_be_bytes());
    }

    /// What to tell a client that insists that the server could not bind channels: the server would
    /// take that for an attack and refuse with words that do not help.
    pub fn refuses(&self, client_input: &[u8]) -> Option<BytesMut> {
        if !self.withheld
            || self.binding != Binding::Impossible
            || client_input.first() != Some(&b'p')
        {
            return None;
        }
        // SASLInitialResponse: mechanism, length, then the SCRAM header, whose first letter says
        // it.
        let body = client_input.get(5..)?;
        let response = body.get(body.iter().position(|&byte| byte == 0)? + 5..)?;
        response.starts_with(b"y,").then(|| {
            startup::fatal(
                "28000",
                "SCRAM channel binding cannot pass a gateway with a certificate of its own",
                Some(
                    "Connect with channel_binding=disable, connect to the gateway without TLS, or give the gateway the \
                     server's own certificate and key.",
                ),
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(tag: u8, body: &[u8]) -> Vec<u8> {
        [&[tag][..], &(body.len() as u32 + 4).to_be_bytes(), body].concat()
    }

    fn offer(mechanisms: &str) -> Vec<u8> {
        message(
            b'R',
            &[&SASL.to_be_bytes()[..], mechanisms.as_bytes(), &[0]].concat(),
        )
    }

    #[test]
    fn channel_binding_is_withheld_and_the_key_is_registered() {
        let keys = Arc::new(CancelKeys::default());
        let mut tap = Tap::new(Arc::clone(&keys), 0, Binding::Impossible);
        let server = [
            offer("SCRAM-SHA-256-PLUS\0SCRAM-SHA-256\0"),
            message(b'K', &[0, 0, 0, 7, 1, 2, 3, 4]),
            message(b'Z', b"I"),
            message(b'N', b"rest"),
        ]
        .concat();
        // Byte by byte: a message is looked at when it is whole.
        let (mut input, mut passed, mut done) = (BytesMut::new(), Vec::new(), false);
        for byte in &server {
            input.put_u8(*byte);
            if done {
                continue;
            }
            match tap.pass(&mut input) {
                Tapped::Some(ready) => passed.extend_from_slice(&ready),
                Tapped::Done(ready) => {
                    passed.extend_from_slice(&ready);
                    done = true;
                }
            }
        }
        let expected = [
            offer("SCRAM-SHA-256\0"),
            message(b'K', &[0, 0, 0, 7, 1, 2, 3, 4]),
            message(b'Z', b"I"),
        ]
        .concat();
        assert_eq!(passed, expected);
        assert_eq!(&input[..], message(b'N', b"rest"));
        let answer = |gs2: &str| {
            message(
                b'p',
                &[b"SCRAM-SHA-256\0\0\0\0\x20", gs2.as_bytes()].concat(),
            )
        };
        assert!(tap.refuses(&answer("y,,n=,r=abc")).is_some());
        assert!(tap.refuses(&answer("n,,n=,r=abc")).is_none());
        assert!(tap.refuses(b"p").is_none());
        assert!(tap.into_registration().is_some());
    }
}
