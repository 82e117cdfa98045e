//! Prepared statements and portals by their names, and what a batch makes of them. Pure.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use hindcast_trace::RequestId;
use hindcast_wire::frame::Frame;
use hindcast_wire::message::frontend::{self as client, Formats, Target};
use hindcast_wire::sql::{Script, Statement};
use hindcast_wire::{each_value, values_of};

use crate::reading::only_begins;

/// A statement that the client prepared.
#[derive(Debug)]
pub(super) struct Prepared {
    script: Arc<Script>,
    /// The request that its comment names. It counts for the first execution only: after that the
    /// comment is stale.
    request: Option<RequestId>,
    executed: AtomicBool,
    /// The message that prepared it.
    parse: Bytes,
    /// The body of the first `RowDescription` of its rows.
    description: OnceLock<Bytes>,
}

/// A prepared statement, and the formats in which a portal of it asks for its rows.
#[derive(Clone, Debug)]
pub(super) struct Bound {
    pub prepared: Arc<Prepared>,
    pub formats: Formats,
    /// The message that bound it; of no portal there is none.
    pub bind: Option<Bytes>,
}

impl Bound {
    /// Of no portal.
    fn unbound(prepared: &Arc<Prepared>) -> Self {
        Self {
            prepared: Arc::clone(prepared),
            formats: Formats::Text,
            bind: None,
        }
    }
}

impl Prepared {
    pub fn new(script: Arc<Script>, request: Option<RequestId>) -> Self {
        Self {
            script,
            request,
            executed: AtomicBool::new(false),
            parse: Bytes::new(),
            description: OnceLock::new(),
        }
    }

    /// The message that prepared it.
    pub fn parse(&self) -> &Bytes {
        &self.parse
    }

    /// The server described its rows so.
    pub fn describe(&self, body: &[u8]) {
        self.description
            .get_or_init(|| Bytes::copy_from_slice(body));
    }

    pub fn description(&self) -> Option<&Bytes> {
        self.description.get()
    }

    fn statement(&self) -> Option<&Statement> {
        self.script.statements.first()
    }
}

/// The names that the session has given.
#[derive(Debug, Default)]
pub(super) struct Names {
    statements: HashMap<Bytes, Arc<Prepared>>,
    portals: HashMap<Bytes, Bound>,
}

/// What a message does to the names.
#[derive(Clone, Debug)]
enum Change {
    Statement(Bytes, Arc<Prepared>),
    Portal(Bytes, Bound),
}

impl Names {
    pub fn apply(&mut self, message: &Message) {
        if let Some(change) = message.change.clone() {
            self.insert(change);
        }
    }

    fn insert(&mut self, change: Change) {
        match change {
            Change::Statement(name, prepared) => drop(self.statements.insert(name, prepared)),
            Change::Portal(name, bound) => drop(self.portals.insert(name, bound)),
        }
    }
}

/// One message of a batch.
#[derive(Debug)]
pub(super) struct Message {
    pub frame: Frame,
    /// What a `Parse`, `Bind`, `Describe` or `Execute` is about.
    pub about: Option<Bound>,
    change: Option<Change>,
}

impl Message {
    pub fn statement(&self) -> Option<&Statement> {
        self.about.as_ref()?.prepared.statement()
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
                client::DESCRIBE => (described(&frame, names, &above), None),
                client::EXECUTE => (executed(&frame, names, &above), None),
                _ => (None, None),
            };
            let names_request = match (&about, frame.tag()) {
                (Some(about), client::PARSE) => about.prepared.request,
                (Some(about), client::EXECUTE) => {
                    let first = !about.prepared.executed.load(Ordering::Relaxed);
                    about.prepared.request.filter(|_| first)
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
        for about in self
            .executions()
            .filter_map(|message| message.about.as_ref())
        {
            about.prepared.executed.store(true, Ordering::Relaxed);
        }
    }

    /// With which values the first statement runs that takes a snapshot, of those that are run
    /// from this message on. `None`: with none, or another batch will say.
    pub fn values_from(&self, at: usize) -> Values {
        let mut run = self.messages[at..].iter();
        let values = run.find_map(|message| {
            let executes = message.frame.tag() == client::EXECUTE;
            let statement = message
                .statement()
                .filter(|one| executes && one.takes_snapshot)?;
            let bind = message.about.as_ref()?.bind.clone().map(Frame);
            Some(Values::of(statement, bind.as_ref().map(Frame::body)))
        });
        values.unwrap_or_default()
    }

    /// Whether all before this message begins a transaction, which works.
    pub fn only_begins_before(&self, at: usize) -> bool {
        let mut before = self.messages[..at].iter();
        before.all(|one| one.statement().is_some_and(|it| only_begins(it).is_some()))
    }

    /// Whether each of its messages but the last is about this statement, and answered by one
    /// message.
    pub fn is_only_about(&self, statement: &Statement) -> bool {
        let (_, all) = self.messages.split_last().expect("the batch has its end");
        all.iter().all(|message| {
            let describes = message.frame.tag() == client::DESCRIBE;
            let parameters = describes && message.frame.body().first() == Some(&b'S');
            let about = message.statement().map(|one| &one.fingerprint);
            !parameters && about == Some(&statement.fingerprint)
        })
    }

    /// Its messages from this one on.
    pub fn frames_from(&self, at: usize) -> Vec<Frame> {
        let rest = self.messages[at..].iter();
        rest.map(|message| message.frame.clone()).collect()
    }
}

/// With which values a statement runs, as numbers.
#[derive(Clone, Debug, Default)]
pub(super) struct Values {
    /// See [`values_of`].
    pub all: Option<u64>,
    /// See [`each_value`].
    pub each: Vec<u64>,
}

impl Values {
    pub fn of(statement: &Statement, bind: Option<&[u8]>) -> Self {
        let all = match bind.map(client::bind_rest) {
            Some(Ok((values, _))) => values_of(statement, Some(values)),
            Some(Err(_)) => None,
            None => values_of(statement, None),
        };
        let each = each_value(statement, bind);
        Self { all, each }
    }
}

type Read = (Option<Bound>, Option<Change>);

fn parsed(frame: &Frame, prepare: impl Fn(&[u8]) -> Prepared) -> Read {
    let Ok(parse) = client::Parse::parse(frame.body()) else {
        return (None, None);
    };
    let prepared = Arc::new(Prepared {
        parse: Bytes::copy_from_slice(&frame.0),
        ..prepare(parse.text)
    });
    let name = Bytes::copy_from_slice(parse.name);
    let about = Bound::unbound(&prepared);
    (Some(about), Some(Change::Statement(name, prepared)))
}

fn bound(frame: &Frame, below: &Names, above: &Names) -> Read {
    let Ok(bind) = client::BindNames::parse(frame.body()) else {
        return (None, None);
    };
    let Some(prepared) = statement(bind.statement, below, above) else {
        return (None, None);
    };
    let bound = Bound {
        prepared: Arc::clone(prepared),
        formats: client::bind_result_formats(frame.body()).unwrap_or_default(),
        bind: Some(frame.0.clone()),
    };
    let portal = Bytes::copy_from_slice(bind.portal);
    (Some(bound.clone()), Some(Change::Portal(portal, bound)))
}

fn described(frame: &Frame, below: &Names, above: &Names) -> Option<Bound> {
    match Target::parse(frame.body()).ok()? {
        Target::Statement(name) => statement(name, below, above).map(Bound::unbound),
        Target::Portal(name) => portal(name, below, above).cloned(),
    }
}

fn executed(frame: &Frame, below: &Names, above: &Names) -> Option<Bound> {
    let (name, _) = client::parse_execute(frame.body()).ok()?;
    portal(name, below, above).cloned()
}

fn statement<'a>(name: &[u8], below: &'a Names, above: &'a Names) -> Option<&'a Arc<Prepared>> {
    let known = above.statements.get(name);
    known.or_else(|| below.statements.get(name))
}

fn portal<'a>(name: &[u8], below: &'a Names, above: &'a Names) -> Option<&'a Bound> {
    let known = above.portals.get(name);
    known.or_else(|| below.portals.get(name))
}
