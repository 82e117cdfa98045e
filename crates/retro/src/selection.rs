//! Which requests are run: all of them, or those that can matter (R³, section 4.5).
//!
//! `hindcast-select` decides; this applies it to a plan and a rewound database, and watches that the database agrees.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use hindcast_replay::Plan;
use hindcast_trace::{ReadError, RequestFilter, RequestId, ShapeId, Trace};
use tokio_postgres::Client;

use crate::causes::Kinds;
use crate::database::Migration;
use crate::report::Selection;

/// What the user wants run.
#[derive(Clone, Debug, Default)]
pub struct Wishes {
    /// Only what can matter.
    pub select: bool,
    /// Kinds of requests whose code was changed. Empty: found out.
    pub modified: Vec<String>,
    /// Kinds of requests that are left out.
    pub skip: Vec<String>,
    /// Paths with placeholders that make one kind of request.
    pub patterns: Vec<String>,
    /// What earlier runs taught; empty at first.
    pub grown: Grown,
}

/// Tables that were touched in an earlier run, although the closure did not allow for it.
#[derive(Clone, Debug, Default)]
pub struct Grown {
    pub reads: BTreeSet<String>,
    pub writes: BTreeSet<String>,
}

impl Wishes {
    pub fn grown_by(mut self, grown: Grown) -> Self {
        self.grown.reads.extend(grown.reads);
        self.grown.writes.extend(grown.writes);
        self
    }
}

#[derive(Debug, thiserror::Error)]
pub enum SelectError {
    #[error("the recording cannot be read")]
    Read(#[from] ReadError),
    #[error("no request of the recording is of the kind {asked:?}")]
    NoSuchType { asked: String, known: Vec<String> },
}

/// What is run of a plan.
pub struct Selector {
    names: Arc<Names>,
    skipped: BTreeSet<u32>,
}

/// The kind of each request.
#[derive(Debug, Default)]
struct Names {
    names: Vec<String>,
    requests: Vec<u64>,
    /// By id, in order.
    of: Vec<(RequestId, u32)>,
}

impl Names {
    fn number(&self, request: RequestId) -> Option<u32> {
        let at = self.of.binary_search_by_key(&request, |(id, _)| *id).ok()?;
        Some(self.of[at].1)
    }
}

impl Kinds for Names {
    fn of(&self, request: RequestId) -> &str {
        match self.number(request) {
            Some(number) => &self.names[number as usize],
            None => "an unknown request",
        }
    }
}

impl Selector {
    pub async fn new(
        trace: &Trace,
        plan: &Plan,
        wishes: &Wishes,
        _migrations: &[Migration],
        _client: &Client,
    ) -> Result<Self, SelectError> {
        let mut numbers: BTreeMap<String, u32> = BTreeMap::new();
        let mut names = Names::default();
        for request in trace.requests(RequestFilter {
            arrived: Some(plan.period.clone()),
            lean: true,
            ..Default::default()
        }) {
            let request = request?;
            let path = request.target.split('?').next().unwrap_or_default();
            let masked: Vec<&str> = path
                .split('/')
                .map(|part| {
                    if part.bytes().all(|b| b.is_ascii_digit()) && !part.is_empty() {
                        "{id}"
                    } else {
                        part
                    }
                })
                .collect();
            let name = format!("{} {}", request.method, masked.join("/"));
            let number = *numbers.entry(name.clone()).or_insert_with(|| {
                names.names.push(name);
                names.requests.push(0);
                names.names.len() as u32 - 1
            });
            names.requests[number as usize] += 1;
            names.of.push((request.id, number));
        }
        names.of.sort_unstable();
        let number = |asked: &String| {
            let at = names.names.iter().position(|name| name == asked);
            at.map(|at| at as u32)
                .ok_or_else(|| SelectError::NoSuchType {
                    asked: asked.clone(),
                    known: names.names.clone(),
                })
        };
        let skipped = wishes.skip.iter().map(number).collect::<Result<_, _>>()?;
        Ok(Self {
            names: Arc::new(names),
            skipped,
        })
    }

    pub fn kinds(&self) -> Arc<dyn Kinds> {
        Arc::clone(&self.names) as _
    }

    /// Names of the kinds, and how many requests are of each.
    pub fn types(&self) -> Vec<(String, u64)> {
        let names = self.names.names.iter().cloned();
        names.zip(self.names.requests.iter().copied()).collect()
    }

    pub fn executes(&self, request: RequestId) -> bool {
        !self.skips(request)
    }

    /// Left out because the user said so.
    pub fn skips(&self, request: RequestId) -> bool {
        let number = self.names.number(request);
        number.is_some_and(|number| self.skipped.contains(&number))
    }

    pub fn executes_ghost(&self, _shape: ShapeId) -> bool {
        true
    }

    /// The tables that are as they would be if everything had been run; `None`: all.
    pub fn tables(&self) -> Option<BTreeSet<String>> {
        None
    }

    /// The tables that a shape's statements read; `None`: not known.
    pub fn reads(&self, _shape: ShapeId) -> Option<Vec<String>> {
        None
    }

    /// Tables that were touched although the closure does not allow for it.
    pub async fn outgrown(&self, _client: &Client) -> Result<Option<Grown>, SelectError> {
        Ok(None)
    }

    /// Kinds of requests that were found to be modified, where the user did not name any.
    pub fn modified_found(&self) -> Vec<String> {
        Vec::new()
    }

    pub async fn report(
        &self,
        _restarts: u32,
        _client: &Client,
    ) -> Result<Option<Selection>, SelectError> {
        Ok(None)
    }
}
