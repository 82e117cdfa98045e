//! Sends requests again that came by FastCGI or uwsgi, each by a connection of its own.
//!
//! Such a request has no place for a number that the service would not see. So the number stands at
//! the connection's place on the board, before anything is sent.

use std::fs::File;
use std::io::{self, Write};

use hindcast_gateway::inside::CgiProtocol;
use hindcast_taplog::board::Line;
use hindcast_trace::Request;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::compare::Seen;
use crate::connect::{Client, connect_as, connect_by_name};
use crate::others;
use crate::pins::Pins;
use crate::place::Place;

pub async fn send(
    place: &Place,
    protocol: CgiProtocol,
    request: &Request,
    traceparent: Option<&str>,
    inside: Option<(&Pins, u64)>,
    log: Option<&File>,
) -> Result<Seen, String> {
    let bytes = protocol.encode(request, traceparent)?;
    let refused = |error: io::Error| format!("{place} does not accept connections: {error}");
    let exchange = Exchange {
        protocol,
        request,
        bytes,
        inside,
        log,
    };
    match place {
        Place::Tcp(url) => {
            // A server may let only some addresses in.
            let pins = inside.map(|(pins, _)| pins.clone());
            let client = |address| Client {
                address,
                came_by: None,
            };
            let shown = pins.zip(others::client(request).map(client));
            let stream = connect_as(url, shown).await.map_err(refused)?;
            let line = line_of_ports(&stream).map_err(refused)?;
            exchange.run(stream, line).await
        }
        Place::Unix(name) => {
            let (stream, line) = connect_by_name(name).await.map_err(refused)?;
            exchange.run(stream, line).await
        }
    }
}

fn line_of_ports(stream: &TcpStream) -> io::Result<Option<Line>> {
    let (ours, theirs) = (stream.local_addr()?, stream.peer_addr()?);
    Ok(Line::of_ports(ours.port(), theirs.port()))
}

struct Exchange<'a> {
    protocol: CgiProtocol,
    request: &'a Request,
    bytes: Vec<u8>,
    /// And the number that the service's taps know it by.
    inside: Option<(&'a Pins, u64)>,
    /// Where the service's output goes.
    log: Option<&'a File>,
}

impl Exchange<'_> {
    async fn run(
        self,
        stream: impl AsyncRead + AsyncWrite,
        line: Option<Line>,
    ) -> Result<Seen, String> {
        let said = self.inside.zip(line);
        if let Some(((pins, number), line)) = said {
            pins.sends_by(line, number);
        }
        let (mut reading, mut writing) = tokio::io::split(stream);
        let mut answer = self.protocol.answer(&self.request.method);
        let read = async {
            let mut room = vec![0; 64 << 10];
            loop {
                match reading.read(&mut room).await {
                    Ok(0) => return Ok(false),
                    Ok(length) => {
                        let whole = answer.take(&room[..length]);
                        if whole.map_err(|_| "what it answered is not the protocol's")? {
                            return Ok(true);
                        }
                    }
                    Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {
                        return Ok(false);
                    }
                    Err(error) => return Err(format!("the response broke off: {error}")),
                }
            }
        };
        // A service may answer and close before it has read all.
        let write = async {
            let _ = writing.write_all(&self.bytes).await;
            let _ = writing.flush().await;
            std::future::pending().await
        };
        let whole = tokio::select! {
            whole = read => whole,
            never = write => never,
        };
        // While the connection is open its place on the board is nobody else's.
        if let Some(((pins, _), line)) = said {
            pins.sent_by(line);
        }
        let answered = answer.finish(whole?)?;
        if let Some(mut log) = self.log.filter(|_| !answered.said.is_empty()) {
            let said = String::from_utf8_lossy(&answered.said);
            // The web server would have it in its log; a full disk there costs no request.
            let _ = writeln!(log, "request {}: {}", self.request.id, said.trim_end());
        }
        Ok(Seen {
            status: answered.status,
            headers: answered.headers,
            body: answered.body,
        })
    }
}
