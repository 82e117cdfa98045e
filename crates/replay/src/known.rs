//! What was found out of statements of a kind, so that it is found out once.

use std::cell::RefCell;
use std::collections::HashMap;
use std::mem::Discriminant;

use hindcast_wire::sql::{Kind, Statement};

/// As many are remembered; then it begins anew.
const MOST: usize = 1 << 14;

/// All that such a question looks at.
#[derive(PartialEq, Eq, Hash)]
struct Shape {
    text: u64,
    kind: Discriminant<Kind>,
    locks: bool,
    sequences: bool,
    uuids: bool,
}

/// Answers of one question, by what statements look like.
#[derive(Default)]
pub struct Known(RefCell<HashMap<Shape, bool>>);

impl Known {
    pub fn or_find(&self, statement: &Statement, find: fn(&Statement) -> bool) -> bool {
        let shape = Shape {
            text: statement.fingerprint.hash,
            kind: std::mem::discriminant(&statement.kind),
            locks: statement.locks.is_empty(),
            sequences: statement.sequences.is_empty(),
            uuids: statement.uuids.is_empty(),
        };
        if let Some(known) = self.0.borrow().get(&shape) {
            return *known;
        }
        let found = find(statement);
        let mut known = self.0.borrow_mut();
        if known.len() >= MOST {
            known.clear();
        }
        known.insert(shape, found);
        found
    }
}
