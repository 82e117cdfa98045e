//! Requests of uwsgi, as nginx's `uwsgi_pass` sends them. Answers are those of HTTP.
//!
//! ```text
//!   0 │ size u16 │ 0 │ variables: size u16, name, size u16, value … │ body of CONTENT_LENGTH
//! ```

use std::collections::VecDeque;

use super::call::Call;
use super::cgi::{self, Variables};
use super::host::Host;
use super::upload::Upload;
use crate::messages::Malformed;

const HEAD: usize = 4;

/// The half of a connection that the service reads.
#[derive(Debug, Default)]
pub(super) struct Requests {
    /// Head and variables, as far as they have come.
    gathered: Vec<u8>,
    began: u64,
    turn: Option<u64>,
    upload: Upload,
}

impl Requests {
    pub fn take(
        &mut self,
        host: &mut Host,
        calls: &mut VecDeque<Call>,
        at: u64,
        mut turn: Option<u64>,
        mut bytes: &[u8],
    ) -> Result<(), Malformed> {
        while !bytes.is_empty() {
            if !self.upload.is_whole() {
                self.upload.take(host, calls, &mut turn, &mut bytes)?;
                continue;
            }
            if self.gathered.is_empty() {
                self.began = at;
            }
            self.turn = turn.take().or(self.turn);
            if !self.gather(&mut bytes)? {
                return Ok(());
            }
            let variables = variables(&self.gathered[HEAD..])?;
            let (head, asked, body) = cgi::request("uwsgi", &variables);
            let mut call = Call::begin(host, self.began, self.turn.take(), head, asked);
            self.gathered.clear();
            match body {
                Some(body) => self.upload.begin(body),
                None => call.whole(host),
            }
            calls.push_back(call);
        }
        Ok(())
    }

    /// Whether all variables are there.
    fn gather(&mut self, bytes: &mut &[u8]) -> Result<bool, Malformed> {
        for size in [HEAD, usize::MAX] {
            let size = match self.gathered[..] {
                [0, low, high, 0, ..] => HEAD + usize::from(u16::from_le_bytes([low, high])),
                [_, _, _, _, ..] => return Err(Malformed),
                _ => size,
            };
            let wanted = size.saturating_sub(self.gathered.len()).min(bytes.len());
            let (some, rest) = bytes.split_at(wanted);
            self.gathered.extend_from_slice(some);
            *bytes = rest;
            if self.gathered.len() < size {
                return Ok(false);
            }
        }
        Ok(true)
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

    pub fn is_between(&self) -> bool {
        self.upload.is_whole() && self.gathered.is_empty()
    }
}

/// A request, as a web server sends it; `None` if its variables have no room in one.
pub(super) fn encode(variables: &[(Vec<u8>, Vec<u8>)], body: &[u8]) -> Option<Vec<u8>> {
    let mut packet = Vec::new();
    for text in variables.iter().flat_map(|(name, value)| [name, value]) {
        let size = u16::try_from(text.len()).ok()?;
        packet.extend_from_slice(&size.to_le_bytes());
        packet.extend_from_slice(text);
    }
    let [low, high] = u16::try_from(packet.len()).ok()?.to_le_bytes();
    Some([&[0, low, high, 0], &packet[..], body].concat())
}

fn variables(mut bytes: &[u8]) -> Result<Variables<'_>, Malformed> {
    let mut all = Vec::new();
    while !bytes.is_empty() {
        all.push((text(&mut bytes)?, text(&mut bytes)?));
    }
    Ok(all)
}

fn text<'a>(bytes: &mut &'a [u8]) -> Result<&'a [u8], Malformed> {
    let (size, rest) = bytes.split_first_chunk().ok_or(Malformed)?;
    let size = usize::from(u16::from_le_bytes(*size));
    let (text, rest) = rest.split_at_checked(size).ok_or(Malformed)?;
    *bytes = rest;
    Ok(text)
}
