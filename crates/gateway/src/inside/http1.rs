//! Requests of HTTP/1, on a connection that carries one after the other.

use std::collections::VecDeque;

use hindcast_trace::Request;

use super::call::Call;
use super::host::Host;
use super::upload::Upload;
use crate::messages::Body;
use crate::messages::Gathered;
use crate::messages::Malformed;
use crate::messages::head;

/// The half of a connection that the service reads.
#[derive(Debug, Default)]
pub(super) struct Requests {
    head: Gathered,
    /// The service decrypts them itself.
    are_encrypted: bool,
    /// When the request began whose head is gathered, and its turn.
    began: u64,
    turn: Option<u64>,
    upload: Upload,
}

impl Requests {
    pub fn new(are_encrypted: bool) -> Self {
        Self {
            are_encrypted,
            ..Self::default()
        }
    }

    /// `turn`: the tap numbered a request that it took to begin with these bytes.
    pub fn take(
        &mut self,
        host: &mut Host,
        calls: &mut VecDeque<Call>,
        at: u64,
        mut turn: Option<u64>,
        mut bytes: &[u8],
    ) -> Result<(), Malformed> {
        while !bytes.is_empty() {
            match self.upload.is_whole() {
                true => self.take_head(host, calls, at, &mut turn, &mut bytes)?,
                false => self.upload.take(host, calls, &mut turn, &mut bytes)?,
            }
        }
        Ok(())
    }

    fn take_head(
        &mut self,
        host: &mut Host,
        calls: &mut VecDeque<Call>,
        at: u64,
        turn: &mut Option<u64>,
        bytes: &mut &[u8],
    ) -> Result<(), Malformed> {
        if self.head.is_empty() {
            // Some clients send an empty line behind a body.
            *bytes = bytes.trim_ascii_start();
            if bytes.is_empty() {
                return Ok(());
            }
            self.began = at;
        }
        if let Some(number) = turn.take()
            && self.turn.replace(number).is_some()
        {
            host.counters.turns_unused.one();
        }
        let Some(parsed) = self.head.take(bytes, head::request)? else {
            return Ok(());
        };
        let (mut head, asked, body) = parsed?;
        if self.are_encrypted {
            let (name, scheme) = Request::ENCRYPTED;
            head.parameters.push((name.to_owned(), scheme.into()));
        }
        let mut call = Call::begin(host, self.began, self.turn.take(), head, asked);
        match body {
            None | Some(Body::Length(0)) => call.whole(host),
            // Nothing says where it ends.
            Some(Body::UntilClosed) => return Err(Malformed),
            Some(body) => self.upload.begin(body),
        }
        calls.push_back(call);
        Ok(())
    }

    /// Bytes went from the socket to a file.
    pub fn unseen(
        &mut self,
        host: &mut Host,
        calls: &mut VecDeque<Call>,
        length: u64,
    ) -> Result<(), Malformed> {
        self.upload.unseen(host, calls, length)
    }

    /// Whether the bytes that come next begin a request.
    pub fn is_between(&self) -> bool {
        self.upload.is_whole() && self.head.is_empty()
    }
}
