//! Prepared statements and portals by their names, and what a batch makes of them. Pure.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use hindcast_trace::RequestId;
use hindcast_wire::frame::Frame;
use hindcast_wire::message::frontend as client;
use hindcast_wire::sql::{Script, Statement};

/// A statement that the client prepared.
#[derive(Debug)]
pub(super) struct Prepared {
    script: Arc<Script>,
    /// The request that its comment names. It counts for the first execution only: after that the
    /// comment is stale.
    request: Option<RequestId>,
    executed: AtomicBool,
}

impl Prepared {
    pub fn new(script: Arc<Script>, request: Option<RequestId>) -> Self {
        Self {
            script,
            request,
            executed: AtomicBool::new(false),
        }
    }

    fn statement(&self) -> Option<&Statement> {
        self.script.statements.first()
    }
}

/// The names that the session has given.
#[derive(Debug, Default)]
pub(super) struct Names {
    statements: HashMap<Bytes, Arc<Prepared>>,
    portals: HashMap<Bytes, Arc<Prepared>>,
}

/// What a message does to the names.
#[derive(Clone, Debug)]
enum Change {
    Statement(Bytes, Arc<Prepared>),
    Portal(Bytes, Arc<Prepared>),
}

impl Names {
    pub fn apply(&mut self, message: &Message) {
        if let Some(change) = message.change.clone() {
            self.insert(change);
        }
    }

    fn insert(&mut self, change: Change) {
        match change {
            Change::Statement(name, prepared) => self.statements.insert(name, prepared),
            Change::Portal(name, prepared) => self.portals.insert(name, prepared),
        };
    }
}

/// One message of a batch.
#[derive(Debug)]
pub(super) struct Message {
    pub frame: Frame,
    /// What a `Parse`, `Bind` or `Execute` is about.
    about: Option<Arc<Prepared>>,
    change: Option<Change>,
}

impl Message {
    pub fn statement(&self) -> Option<&Statement> {
        self.about.as_ref()?.statement()
    }
}

/// A batch of the extended protocol: what each message is about and does to the names, if it comes
/// to run.
#[derive(Debug)]
pub(super) struct Batch {
    pub messages: Vec<Message>,
    /// The request that its texts name.
    pub named: Option<RequestId>,
}

impl Batch {
    /// `prepare` reads a statement's text.
    pub fn of(names: &Names, frames: Vec<Frame>, prepare: impl Fn(&[u8]) -> Prepared) -> Self {
        // What the batch itself has named so far, over what the session had.
        let mut above = Names::default();
        let mut named = None;
        let mut read = |frame: Frame| {
            let (about, change) = match frame.tag() {
                client::PARSE => parsed(&frame, &prepare),
                client::BIND => bound(&frame, names, &above),
                client::EXECUTE => (executed(&frame, names, &above), None),
                _ => (None, None),
            };
            let names_request = match (&about, frame.tag()) {
                (Some(prepared), client::PARSE) => prepared.request,
                (Some(prepared), client::EXECUTE) => {
                    let first = !prepared.executed.load(Ordering::Relaxed);
                    prepared.request.filter(|_| first)
                }
                _ => None,
            };
            named = named.or(names_request);
            if let Some(change) = change.clone() {
                above.insert(change);
            }
            Message {
                frame,
                about,
                change,
            }
        };
        let messages = frames.into_iter().map(&mut read).collect();
        Self { messages, named }
    }

    fn executions(&self) -> impl Iterator<Item = &Message> {
        let executes = |message: &&Message| message.frame.tag() == client::EXECUTE;
        self.messages.iter().filter(executes)
    }

    /// What it executes.
    pub fn executed(&self) -> impl Iterator<Item = &Statement> {
        self.executions().filter_map(Message::statement)
    }

    /// Comments of what it executes are stale from here on.
    pub fn note_executed(&self) {
        for prepared in self
            .executions()
            .filter_map(|message| message.about.as_ref())
        {
            prepared.executed.store(true, Ordering::Relaxed);
        }
    }

    /// Its messages from this one on.
    pub fn frames_from(&self, at: usize) -> Vec<Frame> {
        let rest = self.messages[at..].iter();
        rest.map(|message| message.frame.clone()).collect()
    }
}

type Read = (Option<Arc<Prepared>>, Option<Change>);

fn parsed(frame: &Frame, prepare: impl Fn(&[u8]) -> Prepared) -> Read {
    let Ok(parse) = client::Parse::parse(frame.body()) else {
        return (None, None);
    };
    let prepared = Arc::new(prepare(parse.text));
    let name = Bytes::copy_from_slice(parse.name);
    let change = Change::Statement(name, Arc::clone(&prepared));
    (Some(prepared), Some(change))
}

fn bound(frame: &Frame, below: &Names, above: &Names) -> Read {
    let Ok(bind) = client::BindNames::parse(frame.body()) else {
        return (None, None);
    };
    let known = above.statements.get(bind.statement);
    let prepared = known.or_else(|| below.statements.get(bind.statement));
    let portal = Bytes::copy_from_slice(bind.portal);
    let change = prepared.map(|prepared| Change::Portal(portal, Arc::clone(prepared)));
    (prepared.cloned(), change)
}

fn executed(frame: &Frame, below: &Names, above: &Names) -> Option<Arc<Prepared>> {
    let (portal, _) = client::parse_execute(frame.body()).ok()?;
    let known = above.portals.get(portal);
    known.or_else(|| below.portals.get(portal)).cloned()
}
