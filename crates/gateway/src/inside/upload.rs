//! The body of the request that came last, on a connection that carries one after the other.

use std::collections::VecDeque;

use super::call::Call;
use super::host::Host;
use crate::messages::Body;
use crate::messages::Malformed;

/// What is still to come of it.
#[derive(Debug, Default)]
pub(super) struct Upload {
    body: Option<Body>,
}

impl Upload {
    pub fn is_whole(&self) -> bool {
        self.body.is_none()
    }

    pub fn begin(&mut self, body: Body) {
        self.body = Some(body);
    }

    /// Takes as much of `bytes` as belongs to the body, where there is one. `turn`: the tap took
    /// them for the beginning of a request, or knew of one behind the body.
    pub fn take(
        &mut self,
        host: &mut Host,
        calls: &mut VecDeque<Call>,
        turn: &mut Option<u64>,
        bytes: &mut &[u8],
    ) -> Result<(), Malformed> {
        let Some(body) = &mut self.body else {
            return Ok(());
        };
        let call = calls.back_mut().ok_or(Malformed)?;
        let is_whole = body.take(bytes, |data| call.body(host, data))?;
        if let Some(number) = turn.take_if(|_| bytes.is_empty()) {
            call.turn(host, number);
        }
        if is_whole {
            self.body = None;
            call.whole(host);
        }
        Ok(())
    }

    /// Bytes went from the socket to a file.
    pub fn unseen(
        &mut self,
        host: &mut Host,
        calls: &mut VecDeque<Call>,
        length: u64,
    ) -> Result<(), Malformed> {
        let (Some(call), Some(body)) = (calls.back_mut(), &mut self.body) else {
            return Err(Malformed);
        };
        call.body_unseen();
        if body.skip(length)? {
            self.body = None;
            call.whole(host);
        }
        Ok(())
    }
}
