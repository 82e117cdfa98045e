//! What has happened already, and is told as closely in order as is known.

use std::sync::Arc;

use bytes::BytesMut;
use hindcast_wire::sql::ScriptCache;
use hindcast_wire::{
    Context, Event, Observer, ObserverOptions, ProtocolError, SequenceColumns, Wires,
};

struct Past {
    observer: Observer,
    server: BytesMut,
    events: Vec<Event>,
}

fn message(tag: u8, body: &[u8]) -> Vec<u8> {
    let length = (body.len() as u32 + 4).to_be_bytes();
    [&[tag], &length[..], body].concat()
}

impl Past {
    fn established() -> Self {
        let options = ObserverOptions {
            passive: true,
            ..ObserverOptions::new(1, Arc::new(ScriptCache::default()))
        };
        let mut past = Self {
            observer: Observer::new(options),
            server: BytesMut::new(),
            events: Vec::new(),
        };
        let startup = b"\0\0\0\x11\0\x03\0\0user\0me\0\0";
        past.client(startup).unwrap();
        past.server(&message(b'R', &[0; 4])).unwrap();
        for parameter in [
            "server_version\x0015.1\0",
            "server_encoding\0UTF8\0",
            "client_encoding\0UTF8\0",
            "standard_conforming_strings\0on\0",
            "in_hot_standby\0off\0",
        ] {
            past.server(&message(b'S', parameter.as_bytes())).unwrap();
        }
        past.server(&message(b'Z', b"I")).unwrap();
        past
    }

    fn step(
        &mut self,
        step: impl FnOnce(&mut Self, &Context<'_>, &mut Vec<Event>) -> Result<(), ProtocolError>,
    ) -> Result<(), ProtocolError> {
        let mut events = std::mem::take(&mut self.events);
        let context = Context {
            now: 1,
            alone: None,
            turn: None,
            sequences: &SequenceColumns::default(),
            lock_order: &|| 0,
        };
        let done = step(self, &context, &mut events);
        self.events = events;
        done
    }

    fn client(&mut self, bytes: &[u8]) -> Result<(), ProtocolError> {
        self.step(|past, context, events| {
            let (mut input, mut wires) = (BytesMut::from(bytes), Wires::default());
            past.observer
                .on_client(&mut input, context, &mut wires, events)?;
            past.observer
                .on_server(&mut past.server, context, &mut wires, events)
        })
    }

    fn server(&mut self, bytes: &[u8]) -> Result<(), ProtocolError> {
        self.step(|past, context, events| {
            past.server.extend_from_slice(bytes);
            let mut wires = Wires::default();
            past.observer
                .on_server(&mut past.server, context, &mut wires, events)
        })
    }
}

fn query(text: &str) -> Vec<u8> {
    message(b'Q', &[text.as_bytes(), b"\0"].concat())
}

fn answer(tag: &str, status: u8) -> Vec<u8> {
    let complete = message(b'C', &[tag.as_bytes(), b"\0"].concat());
    [complete, message(b'Z', &[status])].concat()
}

/// A thread writes, and loses its processor before it tells so; another one reads the answer.
#[test]
fn an_answer_waits_for_what_it_answers() {
    let mut past = Past::established();
    past.client(&query("BEGIN")).unwrap();
    // With the rest of an answer comes one that is ahead.
    let both = [answer("BEGIN", b'T'), answer("DELETE 1", b'T')].concat();
    past.server(&both).unwrap();
    assert!(past.observer.is_ahead(&past.server));
    past.client(&query("DELETE FROM t")).unwrap();
    assert!(past.server.is_empty());
    // What is told unasked does not wait.
    past.server(&message(b'N', b"SNOTICE\0\0")).unwrap();
    assert!(past.server.is_empty());
    past.server(&answer("COMMIT", b'I')).unwrap();
    past.client(&query("COMMIT")).unwrap();
    let told = past.events.iter().find_map(|event| match event {
        Event::Transaction(told) => Some(told),
        _ => None,
    });
    let told = told.expect("it is told");
    assert_eq!((told.statement_count, told.completed), (3, 3), "{told:?}");
}

/// A server that shuts down says so to whom it likes.
#[test]
fn the_end_of_a_session_waits_for_nothing() {
    let mut past = Past::established();
    let fields = b"SFATAL\0VFATAL\0C57P01\0Mterminating connection\0\0";
    past.server(&message(b'E', fields)).unwrap();
    assert!(past.server.is_empty());
    let fields = b"SERROR\0VERROR\0C42P01\0Mno such table\0\0";
    past.server(&message(b'E', fields)).unwrap();
    assert!(past.observer.is_ahead(&past.server));
}
