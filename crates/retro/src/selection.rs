//! Which requests are run: all of them, or those that can matter (R³, section 4.5).
//!
//! `hindcast-select` decides; this applies it to a plan and a rewound database, and watches that
//! the database agrees. Where the user does not say which kinds of requests were modified, a
//! *probe* finds out: it runs a sample of every kind and looks for statements that the recording
//! does not have.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use hindcast_pg::tokio::Client;
use hindcast_replay::Plan;
use hindcast_replay::Recording;
use hindcast_replay::changes::{Changes, DifferenceKind};
use hindcast_select::{
    Catalog, CatalogError, Closure, Counters, CountersError, Facts, PatternError, Patterns,
    Statements, Touches, settled,
};
use hindcast_state::StateError;
use hindcast_trace::{ReadError, RequestId, ShapeId, Trace};

use crate::causes::Kinds;
use crate::report::{LeftOutType, SelectedType, Selection};

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
    pub learned: Learned,
}

/// What earlier runs taught about what has to be run.
#[derive(Clone, Debug, Default)]
pub struct Learned {
    /// Tables that were touched although the closure did not allow for it.
    pub touches: Touches,
    /// The kinds of requests that a probe found modified.
    pub modified: Option<Vec<String>>,
}

#[derive(Debug, thiserror::Error)]
pub enum SelectError {
    #[error("the recording cannot be read")]
    Read(#[from] ReadError),
    #[error(transparent)]
    Pattern(#[from] PatternError),
    #[error(transparent)]
    Catalog(#[from] CatalogError),
    #[error(transparent)]
    State(#[from] StateError),
    #[error(transparent)]
    Touched(#[from] CountersError),
    #[error("no request of the recording is of the kind {asked:?}")]
    NoSuchType { asked: String, known: Vec<String> },
}

/// What is run of a plan.
pub struct Selector {
    facts: Arc<Facts>,
    skipped: BTreeSet<usize>,
    what: What,
    /// By shape, the tables that its statements read. Only where it is needed.
    reads: BTreeMap<ShapeId, Vec<String>>,
    /// What a probe found.
    modified_found: Option<Vec<String>>,
}

enum What {
    Everything,
    /// These, to find out which kinds of requests are modified.
    Probe(BTreeSet<RequestId>),
    Closure {
        closure: Closure,
        before: Counters,
        /// All there are.
        tables: BTreeSet<String>,
    },
}

/// How many requests of a kind are tried to find out whether it is modified.
const PROBES: usize = 20;

impl Kinds for Facts {
    fn of(&self, request: RequestId) -> &str {
        match self.type_of(request) {
            Some(number) => &self.types[number].name,
            None => "an unknown request",
        }
    }
}

impl Selector {
    /// `migrated`: tables that were changed on the way. `with_tables`: [`Selector::reads`] is going
    /// to be asked.
    pub async fn new(
        trace: &Trace,
        plan: &Plan,
        wishes: &Wishes,
        migrated: &BTreeSet<String>,
        with_tables: bool,
        client: &Client,
    ) -> Result<Self, SelectError> {
        let patterns = Patterns::parse(&wishes.patterns)?;
        let mut reads = BTreeMap::new();
        let facts = if wishes.select || with_tables {
            let catalog = Catalog::load(client).await?;
            if with_tables {
                reads = tables_read(trace, &catalog);
            }
            Facts::of(trace, plan.period.clone(), &patterns, &catalog)?
        } else {
            Facts::named(trace, plan.period.clone(), &patterns)?
        };
        let number = |asked: &String| {
            let at = facts.types.iter().position(|of| of.name == *asked);
            at.ok_or_else(|| SelectError::NoSuchType {
                asked: asked.clone(),
                known: facts.types.iter().map(|of| of.name.clone()).collect(),
            })
        };
        let skipped = wishes.skip.iter().map(number).collect::<Result<_, _>>()?;
        for name in &wishes.modified {
            number(name)?;
        }
        let learned = wishes.learned.modified.as_ref();
        let modified = match (&wishes.modified[..], learned) {
            ([], None) if wishes.select => None,
            ([], learned) => Some(learned.cloned().unwrap_or_default()),
            (named, _) => Some(named.to_vec()),
        };
        let what = match modified {
            _ if !wishes.select => What::Everything,
            None => What::Probe(sample(trace, plan, &facts)?),
            // Nothing was found modified, so anything may be.
            Some(modified) if modified.is_empty() && migrated.is_empty() => What::Everything,
            Some(modified) => {
                let mut touched = wishes.learned.touches.clone();
                touched.extend(Touches {
                    reads: migrated.clone(),
                    writes: migrated.clone(),
                });
                What::Closure {
                    closure: Closure::of(&facts.types, &modified.into_iter().collect(), &touched),
                    before: Counters::read(client).await?,
                    tables: hindcast_state::table_names(client)
                        .await?
                        .into_iter()
                        .collect(),
                }
            }
        };
        Ok(Self {
            facts: Arc::new(facts),
            skipped,
            what,
            reads,
            modified_found: wishes.learned.modified.clone(),
        })
    }

    pub fn is_probe(&self) -> bool {
        matches!(self.what, What::Probe(_))
    }

    pub fn kinds(&self) -> Arc<dyn Kinds> {
        Arc::clone(&self.facts) as _
    }

    /// Names of the kinds of requests, and how many requests are of each.
    pub fn types(&self) -> Vec<(String, u64)> {
        let types = self.facts.types.iter().zip(&self.facts.shapes);
        let is_ghost = |shapes: &BTreeSet<ShapeId>| {
            let mut ghosts = shapes
                .iter()
                .filter_map(|&shape| self.facts.ghost_type(shape));
            ghosts.next().is_some()
        };
        types
            .filter(|(of, shapes)| !(of.name.starts_with("(no request)") && is_ghost(shapes)))
            .map(|(of, _)| (of.name.clone(), of.requests))
            .collect()
    }

    pub fn executes(&self, request: RequestId) -> bool {
        if self.skips(request) {
            return false;
        }
        match &self.what {
            What::Everything => true,
            What::Probe(sample) => sample.contains(&request),
            What::Closure { closure, .. } => {
                let of = self.facts.type_of(request);
                of.is_none_or(|of| closure.executes(of))
            }
        }
    }

    /// Left out because the user said so.
    pub fn skips(&self, request: RequestId) -> bool {
        let of = self.facts.type_of(request);
        of.is_some_and(|of| self.skipped.contains(&of))
    }

    pub fn executes_ghost(&self, shape: ShapeId) -> bool {
        match &self.what {
            What::Closure { closure, .. } => {
                let of = self.facts.ghost_type(shape);
                // What touches no table may still set up its session for others.
                self.facts.touches_nothing(shape) || of.is_none_or(|of| closure.executes(of))
            }
            What::Everything | What::Probe(_) => true,
        }
    }

    /// The tables that are as they would be if everything had been run; `None`: all.
    pub fn tables(&self) -> Option<BTreeSet<String>> {
        match &self.what {
            What::Closure {
                closure, tables, ..
            } => Some(match closure.left_behind() {
                Some(stale) => tables.difference(stale).cloned().collect(),
                None => closure.writes.clone(),
            }),
            What::Everything | What::Probe(_) => None,
        }
    }

    /// The tables that a shape's statements read; `None`: not known.
    pub fn reads(&self, shape: ShapeId) -> Option<Vec<String>> {
        self.reads.get(&shape).cloned()
    }

    /// What was touched since the beginning, as the database counted. No session but this one is to
    /// be left.
    pub async fn touched(&self, client: &Client) -> Result<Touches, SelectError> {
        let What::Closure { before, .. } = &self.what else {
            return Ok(Touches::default());
        };
        settled(client).await?;
        Ok(Counters::read(client).await?.since(before))
    }

    /// What of it the closure does not allow for.
    pub fn outside(&self, touched: &Touches) -> Option<Touches> {
        match &self.what {
            What::Closure { closure, .. } => closure.outside(touched),
            What::Everything | What::Probe(_) => None,
        }
    }

    /// What a probe found, where the user did not name what is modified.
    pub fn modified_found(&self) -> Option<&Vec<String>> {
        self.modified_found.as_ref()
    }

    /// What was decided, and what the database saw.
    pub fn report(&self, restarts: u32, touched: &Touches) -> Option<Selection> {
        let What::Closure { closure, .. } = &self.what else {
            return None;
        };
        let types = &self.facts.types;
        let executed = closure.executed.iter().map(|executed| {
            let of = &types[executed.index];
            SelectedType {
                name: of.name.clone(),
                requests: of.requests,
                why: executed.why.clone(),
                reads: of.reads.iter().cloned().collect(),
                writes: of.writes.iter().cloned().collect(),
            }
        });
        let left_out = closure.left_out.iter().map(|left_out| LeftOutType {
            name: types[left_out.index].name.clone(),
            requests: types[left_out.index].requests,
            why: left_out.why.clone(),
        });
        let undetermined: BTreeSet<_> = types.iter().flat_map(|of| &of.undetermined).collect();
        Some(Selection {
            executed: executed.collect(),
            left_out: left_out.collect(),
            restarts,
            tables_touched: touched.reads.union(&touched.writes).cloned().collect(),
            undetermined: undetermined.into_iter().cloned().collect(),
        })
    }
}

/// The first requests of every kind.
fn sample(trace: &Trace, plan: &Plan, facts: &Facts) -> Result<BTreeSet<RequestId>, ReadError> {
    let mut taken = vec![0; facts.types.len()];
    let mut sample = BTreeSet::new();
    for request in plan.requests(trace) {
        let request = request?;
        if let Some(of) = facts.type_of(request.id)
            && taken[of] < PROBES
        {
            taken[of] += 1;
            sample.insert(request.id);
        }
    }
    Ok(sample)
}

fn tables_read(trace: &Trace, catalog: &Catalog) -> BTreeMap<ShapeId, Vec<String>> {
    let mut statements = Statements::default();
    let mut reads = BTreeMap::new();
    for shape in trace.shapes() {
        let mut tables = BTreeSet::new();
        let mut known = true;
        for text in &shape.statements {
            let touched = catalog.expand(&statements.of(text));
            known &= touched.undetermined.is_empty();
            tables.extend(touched.reads);
        }
        if known {
            reads.insert(shape.id, tables.into_iter().collect());
        }
    }
    reads
}

/// The kinds of requests in a probe that are modified: they ran transactions which no recorded
/// request of the kind did, or never ran one that all of them did.
///
/// With all but the sample left out the data is another, so paths that the recording knows are no
/// sign of a modification.
pub fn modified(selector: &Selector, recording: &Recording, changes: &Changes) -> Vec<String> {
    let facts = &selector.facts;
    let mut modified = BTreeSet::new();
    let mut gone: BTreeMap<(usize, ShapeId), u64> = BTreeMap::new();
    for difference in &changes.differing {
        let Some(request) = difference.request else {
            continue;
        };
        let Some(of) = facts.type_of(recording.request(request).id) else {
            continue;
        };
        let is_new = match &difference.kind {
            DifferenceKind::Statements { shape }
            | DifferenceKind::Added {
                shape,
                retry: false,
                ..
            } => !facts.shapes[of].contains(shape),
            DifferenceKind::Deleted { into: Some(_) } => true,
            DifferenceKind::Deleted { into: None } => {
                let shape = difference.tx.map(|tx| recording.transaction(tx).shape);
                *gone.entry((of, shape.unwrap_or(ShapeId(0)))).or_default() += 1;
                false
            }
            _ => false,
        };
        if is_new {
            modified.insert(of);
        }
    }
    let mut recorded: BTreeMap<(usize, ShapeId), u64> = BTreeMap::new();
    for transaction in &recording.transactions {
        if let Some((request, _)) = transaction.request
            && let Some(of) = facts.type_of(recording.request(request).id)
        {
            *recorded.entry((of, transaction.shape)).or_default() += 1;
        }
    }
    let never = gone
        .iter()
        .filter(|(what, times)| recorded.get(what) == Some(times));
    modified.extend(never.map(|((of, _), _)| *of));
    if changes.counts.isolation > 0 {
        // Another isolation is asked for by the service as a whole.
        modified.extend(0..facts.types.len());
    }
    modified
        .iter()
        .map(|&of| facts.types[of].name.clone())
        .collect()
}
