//! Requests and answers of FastCGI, as PHP gets them behind a web server.
//!
//! ```text
//!   1 │ kind u8 │ request u16 │ length u16 │ padding u8 │ 0 │ contents │ padding
//!
//!   read      BEGIN ─ PARAMS … PARAMS(empty) ─ STDIN … STDIN(empty)
//!   written   STDOUT, STDERR … ─ END
//! ```
//!
//! Requests of one connection may be mixed with each other. A request that says how long its body
//! is has been read when that has come: PHP does not look for the empty record behind it.

use std::collections::HashMap;

use http::HeaderMap;

use super::call::Call;
use super::cgi::{self, Variables};
use super::host::Host;
use crate::messages::Body;
use crate::messages::Gathered;
use crate::messages::Malformed;
use crate::messages::head;

const HEAD: usize = 8;
/// Of a request's variables.
const PARAMS_MAX: usize = 4 << 20;
/// At a time, on one connection.
const REQUESTS_MAX: usize = 1024;

const BEGIN: u8 = 1;
const END: u8 = 3;
const PARAMS: u8 = 4;
const STDIN: u8 = 5;
const STDOUT: u8 = 6;
const STDERR: u8 = 7;

const RESPONDER: u16 = 1;

/// What a request says is kept up to about here.
const SAID_MAX: usize = 64 << 10;
/// Of a record.
const CONTENTS_MAX: usize = u16::MAX as usize;

/// A connection.
#[derive(Default)]
pub(super) struct FastCgi {
    read: Records,
    written: Records,
    /// When the record began that is being read, and the turn that was told for what it begins.
    since: u64,
    turn: Option<u64>,
    /// By the number that each has on this connection.
    requests: HashMap<u16, Request>,
}

/// One request of it.
#[derive(Default)]
struct Request {
    began: u64,
    turn: Option<u64>,
    /// Contents of BEGIN and PARAMS.
    begin: Vec<u8>,
    params: Vec<u8>,
    /// Once all params are there.
    call: Option<Call>,
    /// How much of its body is to come, if it says so.
    body: Option<Body>,
    answer: Gathered,
    answering: bool,
}

impl FastCgi {
    pub fn read(
        &mut self,
        host: &mut Host,
        at: u64,
        turn: Option<u64>,
        mut bytes: &[u8],
    ) -> Result<(), Malformed> {
        if let Some(number) = turn
            && self.turn.replace(number).is_some()
        {
            host.counters.turns_unused.one();
        }
        loop {
            if self.read.is_between() {
                self.since = at;
            }
            let Some(piece) = self.read.next(&mut bytes)? else {
                return Ok(());
            };
            if piece.kind == BEGIN && piece.begins && piece.number != 0 {
                if let Some(before) = self.requests.remove(&piece.number) {
                    before.end(host, at);
                }
                if self.requests.len() >= REQUESTS_MAX {
                    return Err(Malformed);
                }
                let request = Request {
                    began: self.since,
                    ..Request::default()
                };
                self.requests.insert(piece.number, request);
            }
            let Some(request) = self.requests.get_mut(&piece.number) else {
                continue;
            };
            if let Some(number) = self.turn.take() {
                request.turned(host, number);
            }
            if request.read(host, &piece)? {
                self.end(host, piece.number);
            }
        }
    }

    pub fn written(&mut self, host: &mut Host, at: u64, mut bytes: &[u8]) -> Result<(), Malformed> {
        while let Some(piece) = self.written.next(&mut bytes)? {
            let Some(request) = self.requests.get_mut(&piece.number) else {
                continue;
            };
            match piece.kind {
                STDOUT => request.answered(host, piece.contents)?,
                END if piece.ends => {
                    request.answer_ended(host, at);
                    self.end(host, piece.number);
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// If nothing more is to come of the request.
    fn end(&mut self, host: &mut Host, number: u16) {
        let over = |request: &Request| request.call.as_ref().is_some_and(Call::is_over);
        if self.requests.get(&number).is_some_and(over)
            && let Some(Request {
                call: Some(call), ..
            }) = self.requests.remove(&number)
        {
            call.end(host);
        }
    }

    pub fn closed(&mut self, host: &mut Host, at: u64) {
        for (_, request) in self.requests.drain() {
            request.end(host, at);
        }
    }

    pub fn lost(&mut self, host: &mut Host, at: u64, reason: &str) {
        for (_, request) in self.requests.drain() {
            if let Some(mut call) = request.call {
                call.give_up(host, at, reason);
                call.end(host);
            }
        }
    }

    pub fn is_idle(&self) -> bool {
        self.requests.is_empty()
    }
}

impl Request {
    fn turned(&mut self, host: &mut Host, number: u64) {
        match &mut self.call {
            Some(call) => call.turn(host, number),
            None => {
                if self.turn.replace(number).is_some() {
                    host.counters.turns_unused.one();
                }
            }
        }
    }

    /// True if it may be over.
    fn read(&mut self, host: &mut Host, piece: &Piece<'_>) -> Result<bool, Malformed> {
        match (piece.kind, &mut self.call) {
            (BEGIN, None) if self.begin.len() < HEAD => {
                self.begin.extend_from_slice(piece.contents);
            }
            (PARAMS, None) => {
                self.params.extend_from_slice(piece.contents);
                if self.params.len() > PARAMS_MAX {
                    return Err(Malformed);
                }
                if piece.begins && piece.ends && piece.contents.is_empty() {
                    self.params_ended(host)?;
                }
            }
            (STDIN, Some(call)) if !call.is_read() => {
                let mut contents = piece.contents;
                let ended = match &mut self.body {
                    Some(body) => body.take(&mut contents, |data| call.body(host, data))?,
                    None => false,
                };
                if ended || piece.begins && piece.ends && piece.contents.is_empty() {
                    call.whole(host);
                }
                return Ok(call.is_over());
            }
            _ => {}
        }
        Ok(false)
    }

    fn params_ended(&mut self, host: &mut Host) -> Result<(), Malformed> {
        let role = self
            .begin
            .first_chunk()
            .map(|role| u16::from_be_bytes(*role));
        if role != Some(RESPONDER) {
            return Err(Malformed);
        }
        let params = std::mem::take(&mut self.params);
        let (head, asked, body) = cgi::request("fastcgi", &variables(&params)?);
        let mut call = Call::begin(host, self.began, self.turn.take(), head, asked);
        self.body = body;
        if self.body.is_none() {
            call.whole(host);
        }
        self.call = Some(call);
        Ok(())
    }

    fn answered(&mut self, host: &mut Host, mut contents: &[u8]) -> Result<(), Malformed> {
        let Some(call) = &mut self.call else {
            return Ok(());
        };
        if !self.answering {
            let Some(headers) = self.answer.take(&mut contents, head::fields)? else {
                return Ok(());
            };
            let (status, headers) = cgi::answer(&headers?)?;
            call.answer(host, status, headers);
            self.answering = true;
        }
        call.answer_body(contents);
        Ok(())
    }

    fn answer_ended(&mut self, host: &mut Host, at: u64) {
        let Some(call) = &mut self.call else {
            return;
        };
        match self.answering {
            true => call.answer_whole(host, at),
            false => call.give_up(host, at, "the service ended it without an answer"),
        }
    }

    fn end(self, host: &mut Host, at: u64) {
        if let Some(mut call) = self.call {
            call.closed(host, at);
            call.end(host);
        }
    }
}

/// A request, as a web server sends it on a connection that is for it alone. No variable is in two
/// records if it has room in one: PHP looks for whole ones.
pub(super) fn encode(variables: &[(Vec<u8>, Vec<u8>)], body: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(1024 + body.len());
    let role = RESPONDER.to_be_bytes();
    record(&mut out, BEGIN, &[role[0], role[1], 0, 0, 0, 0, 0, 0]);
    let mut params = Vec::new();
    for (name, value) in variables {
        let mut pair = Vec::with_capacity(8 + name.len() + value.len());
        put_length(&mut pair, name.len());
        put_length(&mut pair, value.len());
        pair.extend_from_slice(name);
        pair.extend_from_slice(value);
        if params.len() + pair.len() > CONTENTS_MAX {
            records(&mut out, PARAMS, &params);
            params.clear();
        }
        params.append(&mut pair);
    }
    for (kind, contents) in [(PARAMS, &params[..]), (STDIN, body)] {
        records(&mut out, kind, contents);
        record(&mut out, kind, &[]);
    }
    out
}

fn records(out: &mut Vec<u8>, kind: u8, contents: &[u8]) {
    for part in contents.chunks(CONTENTS_MAX) {
        record(out, kind, part);
    }
}

fn record(out: &mut Vec<u8>, kind: u8, contents: &[u8]) {
    let [high, low] = (contents.len() as u16).to_be_bytes();
    out.extend_from_slice(&[1, kind, 0, 1, high, low, 0, 0]);
    out.extend_from_slice(contents);
}

fn put_length(out: &mut Vec<u8>, length: usize) {
    match u8::try_from(length) {
        Ok(short @ ..0x80) => out.push(short),
        _ => out.extend_from_slice(&(length as u32 | 1 << 31).to_be_bytes()),
    }
}

/// What a request that was sent by [`encode`] is answered.
#[derive(Debug, Default)]
pub(super) struct Answer {
    written: Records,
    head: Gathered,
    pub begun: Option<(u16, HeaderMap)>,
    pub body: Vec<u8>,
    /// What is for the web server's log, if it does not go on and on.
    pub said: Vec<u8>,
}

impl Answer {
    /// True once it is whole.
    pub fn take(&mut self, mut bytes: &[u8]) -> Result<bool, Malformed> {
        while let Some(piece) = self.written.next(&mut bytes)? {
            match piece.kind {
                STDOUT => {
                    let mut contents = piece.contents;
                    if self.begun.is_none()
                        && let Some(headers) = self.head.take(&mut contents, head::fields)?
                    {
                        self.begun = Some(cgi::answer(&headers?)?);
                    }
                    self.body.extend_from_slice(contents);
                }
                STDERR if self.said.len() < SAID_MAX => {
                    self.said.extend_from_slice(piece.contents);
                }
                END if piece.ends => return Ok(true),
                _ => {}
            }
        }
        Ok(false)
    }
}

/// One half of a connection, taken apart.
#[derive(Debug, Default)]
struct Records {
    head: [u8; HEAD],
    /// How much of the head is there.
    have: usize,
    /// Of contents and of padding.
    left: (usize, usize),
    begun: bool,
}

/// Contents of a record, or some of them.
#[derive(Debug)]
struct Piece<'a> {
    kind: u8,
    number: u16,
    contents: &'a [u8],
    /// These are the first of the record, or the last.
    begins: bool,
    ends: bool,
}

impl Records {
    /// Whether the bytes that come next begin a record.
    fn is_between(&self) -> bool {
        self.have == 0 || self.have == HEAD && self.left == (0, 0)
    }

    /// `None` if more bytes are needed.
    fn next<'a>(&mut self, bytes: &mut &'a [u8]) -> Result<Option<Piece<'a>>, Malformed> {
        if self.have == HEAD && self.left.0 == 0 {
            let padding = self.left.1.min(bytes.len());
            *bytes = &bytes[padding..];
            self.left.1 -= padding;
            if self.left.1 > 0 {
                return Ok(None);
            }
            self.have = 0;
        }
        if self.have < HEAD {
            let some = (HEAD - self.have).min(bytes.len());
            self.head[self.have..self.have + some].copy_from_slice(&bytes[..some]);
            *bytes = &bytes[some..];
            self.have += some;
            if self.have < HEAD {
                return Ok(None);
            }
            if self.head[0] != 1 {
                return Err(Malformed);
            }
            let length = u16::from_be_bytes([self.head[4], self.head[5]]);
            self.left = (length.into(), self.head[6].into());
            self.begun = false;
        } else if bytes.is_empty() {
            return Ok(None);
        }
        if self.left.0 > 0 && bytes.is_empty() {
            return Ok(None);
        }
        let (contents, rest) = bytes.split_at(self.left.0.min(bytes.len()));
        *bytes = rest;
        self.left.0 -= contents.len();
        let begins = !std::mem::replace(&mut self.begun, true);
        Ok(Some(Piece {
            kind: self.head[1],
            number: u16::from_be_bytes([self.head[2], self.head[3]]),
            contents,
            begins,
            ends: self.left.0 == 0,
        }))
    }
}

/// Each with the lengths of name and value in front, of one byte or four.
pub(super) fn variables(mut bytes: &[u8]) -> Result<Variables<'_>, Malformed> {
    let mut all = Vec::new();
    while !bytes.is_empty() {
        let (name, value) = (length(&mut bytes)?, length(&mut bytes)?);
        let (name, rest) = bytes.split_at_checked(name).ok_or(Malformed)?;
        let (value, rest) = rest.split_at_checked(value).ok_or(Malformed)?;
        all.push((name, value));
        bytes = rest;
    }
    Ok(all)
}

fn length(bytes: &mut &[u8]) -> Result<usize, Malformed> {
    let (&first, rest) = bytes.split_first().ok_or(Malformed)?;
    if first < 0x80 {
        *bytes = rest;
        return Ok(first.into());
    }
    let (four, rest) = bytes.split_first_chunk().ok_or(Malformed)?;
    *bytes = rest;
    Ok((u32::from_be_bytes(*four) & 0x7fff_ffff) as usize)
}
