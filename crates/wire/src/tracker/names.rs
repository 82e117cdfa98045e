//! Prepared statements and portals, by name.
//!
//! They are kept as the client's stream defines them, ahead of the answers: what a message did is
//! undone if it turns out to have failed.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use crate::limits;
use crate::message::frontend::{Formats, Parse, Target};
use crate::sql::Script;

/// A prepared statement.
#[derive(Debug)]
pub struct Prepared<S> {
    /// Empty for the unnamed one.
    pub name: Box<[u8]>,
    /// `None` if the session's statements hold too much text already.
    pub text: Option<Box<[u8]>>,
    /// Parameter types as they stand in a `Parse` message: count and oids.
    pub types: Box<[u8]>,
    pub script: Arc<Script>,
    pub data: S,
    /// The body of its `RowDescription`, once [`Prepared::describe`] was called.
    row_description: OnceLock<Box<[u8]>>,
    sequence: u64,
}

impl<S> Prepared<S> {
    /// Its only statement; `None` if the text is empty. (A text with several is refused by the
    /// server.)
    pub fn statement(&self) -> Option<&crate::sql::Statement> {
        self.script.statements.first()
    }

    pub fn row_description(&self) -> Option<&[u8]> {
        self.row_description.get().map(|body| &body[..])
    }

    /// Keeps the body of the `RowDescription` that answered a `Describe` of it.
    pub fn describe(&self, body: &[u8]) {
        let _ = self.row_description.set(body.into());
    }

    /// The message that prepares it, or `None` if the text was not kept.
    pub fn parse_message(&self) -> Option<Parse<'_>> {
        Some(Parse {
            name: &self.name,
            text: self.text.as_deref()?,
            types: &self.types,
        })
    }
}

/// A bound statement.
#[derive(Debug)]
pub struct Portal<S> {
    pub prepared: Arc<Prepared<S>>,
    pub formats: Formats,
    /// With which values, see [`values_of`](crate::values_of); `None` where they were not seen.
    pub values: Option<u64>,
    sequence: u64,
}

#[derive(Debug)]
pub(super) struct Names<S> {
    statements: HashMap<Box<[u8]>, Arc<Prepared<S>>>,
    statement_bytes: usize,
    unnamed_portal: Option<Portal<S>>,
    portals: HashMap<Box<[u8]>, Portal<S>>,
}

impl<S> Names<S> {
    pub fn new() -> Self {
        Self {
            statements: HashMap::new(),
            statement_bytes: 0,
            unnamed_portal: None,
            portals: HashMap::new(),
        }
    }

    pub fn statement(&self, name: &[u8]) -> Option<&Arc<Prepared<S>>> {
        self.statements.get(name)
    }

    pub fn portal(&self, name: &[u8]) -> Option<&Portal<S>> {
        if name.is_empty() {
            self.unnamed_portal.as_ref()
        } else {
            self.portals.get(name)
        }
    }

    /// The statement that a name stands for, or that a portal was bound to.
    pub fn target(&self, target: Target<'_>) -> Option<Arc<Prepared<S>>> {
        match target {
            Target::Statement(name) => self.statements.get(name).cloned(),
            Target::Portal(name) => Some(Arc::clone(&self.portal(name)?.prepared)),
        }
    }

    /// Whether more is open than [`limits::PREPARED_MAX`] allows.
    pub fn are_too_many(&self) -> bool {
        self.statements.len().max(self.portals.len()) > limits::PREPARED_MAX
    }

    /// Prepares a statement; with it comes the one that had its name.
    pub fn prepare(
        &mut self,
        parse: &Parse<'_>,
        script: Arc<Script>,
        data: S,
        sequence: u64,
    ) -> (Arc<Prepared<S>>, Option<Arc<Prepared<S>>>) {
        let room = self.statement_bytes + parse.text.len() <= limits::PREPARED_BYTES_MAX;
        let prepared = Arc::new(Prepared {
            name: parse.name.into(),
            text: room.then(|| parse.text.into()),
            types: parse.types.into(),
            script,
            data,
            row_description: OnceLock::new(),
            sequence,
        });
        let replaced = self.insert(Arc::clone(&prepared));
        (prepared, replaced)
    }

    /// Binds a statement, which is returned if there is one.
    pub fn bind(
        &mut self,
        portal: &[u8],
        statement: &[u8],
        (formats, values): (Formats, Option<u64>),
        sequence: u64,
    ) -> Option<Arc<Prepared<S>>> {
        let prepared = self.statements.get(statement).cloned();
        let bound = prepared.clone().map(|prepared| Portal {
            prepared,
            formats,
            values,
            sequence,
        });
        match bound {
            bound if portal.is_empty() => self.unnamed_portal = bound,
            Some(bound) => drop(self.portals.insert(portal.into(), bound)),
            None => {}
        }
        prepared
    }

    /// Closes a statement, which is returned, or a portal.
    pub fn close(&mut self, target: Target<'_>) -> Option<Arc<Prepared<S>>> {
        match target {
            Target::Statement(name) => return self.remove(name),
            Target::Portal(b"") => self.unnamed_portal = None,
            Target::Portal(name) => drop(self.portals.remove(name)),
        }
        None
    }

    /// A statement, or all of them, is gone if it was prepared before the message with this
    /// sequence number.
    pub fn deallocate(&mut self, name: Option<&[u8]>, sequence: u64) {
        let is_older = |prepared: &Arc<Prepared<S>>| prepared.sequence < sequence;
        match name {
            Some(name) if self.statements.get(name).is_some_and(is_older) => {
                drop(self.remove(name));
            }
            Some(_) => {}
            None => {
                self.statements.retain(|_, prepared| !is_older(prepared));
                let bytes = self.statements.values().map(|one| text_bytes(one));
                self.statement_bytes = bytes.sum();
            }
        }
    }

    /// Portals live no longer than their transaction, which the message with this sequence number
    /// ended.
    pub fn end_transaction(&mut self, sequence: u64) {
        if !self.portals.is_empty() {
            self.portals.retain(|_, portal| portal.sequence > sequence);
        }
    }

    /// A `Parse` failed: its statement gives way to the one that it replaced.
    pub fn undo_prepare(
        &mut self,
        prepared: &Arc<Prepared<S>>,
        replaced: Option<Arc<Prepared<S>>>,
    ) {
        let current = self.statements.get(&prepared.name);
        if current.is_some_and(|current| Arc::ptr_eq(current, prepared)) {
            self.remove(&prepared.name);
            if let Some(replaced) = replaced {
                self.insert(replaced);
            }
        }
    }

    /// A `Close` failed: its statement is still there, unless the name has been taken since.
    pub fn undo_close(&mut self, prepared: Arc<Prepared<S>>) {
        if !self.statements.contains_key(&prepared.name) {
            drop(self.insert(prepared));
        }
    }

    fn insert(&mut self, prepared: Arc<Prepared<S>>) -> Option<Arc<Prepared<S>>> {
        self.statement_bytes += text_bytes(&prepared);
        // Keep the key of an existing entry: the unnamed statement is replaced all the time.
        let replaced = match self.statements.get_mut(&prepared.name) {
            Some(slot) => Some(std::mem::replace(slot, prepared)),
            None => self.statements.insert(prepared.name.clone(), prepared),
        };
        self.statement_bytes -= replaced.as_deref().map_or(0, text_bytes);
        replaced
    }

    fn remove(&mut self, name: &[u8]) -> Option<Arc<Prepared<S>>> {
        let removed = self.statements.remove(name);
        self.statement_bytes -= removed.as_deref().map_or(0, text_bytes);
        removed
    }
}

fn text_bytes<S>(prepared: &Prepared<S>) -> usize {
    prepared.text.as_ref().map_or(0, |text| text.len())
}
