//! What a recording says about its request types.
//!
//! The trace is read in three passes, each streaming: requests to learn what ids look like,
//! requests again to name them, transactions to see which statements belong to which type. What is
//! kept per request is one number.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ops::Range;

use hindcast_trace::{
    Micros, ReadError, Request, RequestFilter, RequestId, Response, ShapeId, Trace,
    TransactionFilter,
};

use crate::catalog::{Catalog, Touched};
use crate::closure::TypeFacts;
use crate::statement::{Statement, Statements};
use crate::types::{Patterns, TypeNamer};

/// How much of a statement names a type of ghosts, in characters.
const GHOST_NAME_MAX: usize = 80;

/// Recorders keep no more statements of a transaction than this: what has as many may have had
/// more.
pub const STATEMENTS_KEPT: usize = 4 << 10;

/// The request types of a range of a recording. Ghosts, which are transactions without a request,
/// are types of their own.
#[derive(Debug, Default)]
pub struct Facts {
    /// In the order of their names.
    pub types: Vec<TypeFacts>,
    /// By type, what its transactions were made of.
    pub shapes: Vec<BTreeSet<ShapeId>>,
    requests: Numbers,
    ghosts: HashMap<ShapeId, u32>,
    /// Shapes that touch no table.
    idle: HashSet<ShapeId>,
}

/// The types of requests. Recorders number their requests one after the other, so whole pages of
/// numbers are full of them.
#[derive(Debug, Default)]
struct Numbers {
    pages: HashMap<u64, Box<[u32; PAGE]>>,
}

const PAGE: usize = 1 << 10;

impl Numbers {
    /// In a number's place: no such request arrived in the range.
    const NONE: u32 = u32::MAX;

    fn place(request: RequestId) -> (u64, usize) {
        let page = PAGE as u64;
        (request.0 / page, (request.0 % page) as usize)
    }

    fn set(&mut self, request: RequestId, number: u32) {
        let (page, at) = Self::place(request);
        let page = self.pages.entry(page);
        page.or_insert_with(|| Box::new([Self::NONE; PAGE]))[at] = number;
    }

    fn get(&self, request: RequestId) -> Option<u32> {
        let (page, at) = Self::place(request);
        let number = self.pages.get(&page)?[at];
        (number != Self::NONE).then_some(number)
    }

    fn renumber(&mut self, new: &[u32]) {
        let numbers = self.pages.values_mut().flat_map(|page| page.iter_mut());
        for number in numbers.filter(|it| **it != Self::NONE) {
            *number = new[*number as usize];
        }
    }
}

impl Facts {
    /// Of the requests that arrived in this range, and of the ghosts that began in it.
    pub fn of(
        trace: &Trace,
        arrived: Range<Micros>,
        patterns: &Patterns,
        catalog: &Catalog,
    ) -> Result<Self, ReadError> {
        let mut facts = Self::named(trace, arrived, patterns)?;
        let mut reading = Reading::new(trace, catalog, facts.shapes.iter().flatten());
        for (each, shapes) in facts.types.iter_mut().zip(&facts.shapes) {
            for shape in shapes {
                let touches_nothing = reading.add(*shape, each);
                if touches_nothing {
                    facts.idle.insert(*shape);
                }
            }
        }
        Ok(facts)
    }

    /// Only names, counts and shapes: nothing is known about tables.
    pub fn named(
        trace: &Trace,
        arrived: Range<Micros>,
        patterns: &Patterns,
    ) -> Result<Self, ReadError> {
        let mut gathered = Gathered::default();
        let end = gathered.requests(trace, &arrived, patterns)?;
        gathered.transactions(trace, arrived.start..end, &arrived)?;
        Ok(gathered.sorted())
    }

    /// `None`: it did not arrive in the range.
    pub fn type_of(&self, request: RequestId) -> Option<usize> {
        Some(self.requests.get(request)? as usize)
    }

    /// The type of ghosts of this shape. `None`: there are none in the range.
    pub fn ghost_type(&self, shape: ShapeId) -> Option<usize> {
        Some(*self.ghosts.get(&shape)? as usize)
    }

    /// Whether transactions of this shape touch no table at all. Such ghosts may set up their
    /// session for others, so they are not left out.
    pub fn touches_nothing(&self, shape: ShapeId) -> bool {
        self.idle.contains(&shape)
    }
}

/// Types in the order in which they were found.
#[derive(Default)]
struct Gathered {
    numbers: HashMap<String, u32>,
    types: Vec<(TypeFacts, BTreeSet<ShapeId>)>,
    requests: Numbers,
    ghosts: HashMap<ShapeId, u32>,
}

impl Gathered {
    /// Returns when the last of them had ended: its transactions began before.
    fn requests(
        &mut self,
        trace: &Trace,
        arrived: &Range<Micros>,
        patterns: &Patterns,
    ) -> Result<Micros, ReadError> {
        let lean = || {
            trace.requests(RequestFilter {
                arrived: Some(arrived.clone()),
                lean: true,
                ..RequestFilter::default()
            })
        };
        let mut namer = TypeNamer::new(patterns.clone());
        let mut end = arrived.end;
        for request in lean() {
            let request = request?;
            end = end.max(request.ended.saturating_add(1));
            // A scan for holes asks for hundreds of paths that do not exist. They must not make ids
            // of those that do.
            if !is_not_found(&request) {
                namer.observe(&request.method, &request.target, None);
            }
        }
        for request in lean() {
            let request = request?;
            let (method, target) = (&request.method, &request.target);
            let name = if is_not_found(&request) && !namer.knows(method, target) {
                format!("{} (not found)", method.to_ascii_uppercase())
            } else {
                namer.name(method, target, None)
            };
            let number = self.number(name);
            self.types[number as usize].0.requests += 1;
            self.requests.set(request.id, number);
        }
        Ok(end)
    }

    fn transactions(
        &mut self,
        trace: &Trace,
        began: Range<Micros>,
        ghosts_began: &Range<Micros>,
    ) -> Result<(), ReadError> {
        let mut seen: HashSet<(u32, ShapeId)> = HashSet::new();
        for transaction in trace.transactions(TransactionFilter {
            began: Some(began),
            lean: true,
            ..TransactionFilter::default()
        }) {
            let transaction = transaction?;
            let shape = transaction.shape;
            let number = match transaction.request {
                Some((request, _)) => match self.requests.get(request) {
                    Some(number) => number,
                    None => continue,
                },
                None if ghosts_began.contains(&transaction.began) => {
                    let number = match self.ghosts.get(&shape) {
                        Some(number) => *number,
                        None => self.number(ghost_name(trace, shape)),
                    };
                    self.ghosts.insert(shape, number);
                    self.types[number as usize].0.requests += 1;
                    number
                }
                None => continue,
            };
            if seen.insert((number, shape)) {
                self.types[number as usize].1.insert(shape);
            }
        }
        Ok(())
    }

    fn number(&mut self, name: String) -> u32 {
        if let Some(number) = self.numbers.get(&name) {
            return *number;
        }
        let number = self.types.len() as u32;
        let facts = TypeFacts {
            name: name.clone(),
            ..TypeFacts::default()
        };
        self.types.push((facts, BTreeSet::new()));
        self.numbers.insert(name, number);
        number
    }

    fn sorted(mut self) -> Facts {
        let by_name: BTreeMap<String, u32> = self.numbers.into_iter().collect();
        let mut new_numbers = vec![0; self.types.len()];
        for (new, old) in by_name.values().enumerate() {
            new_numbers[*old as usize] = new as u32;
        }
        let mut types: Vec<_> = self.types.into_iter().zip(&new_numbers).collect();
        types.sort_by_key(|(_, number)| **number);
        let (types, shapes) = types.into_iter().map(|(it, _)| it).unzip();
        self.requests.renumber(&new_numbers);
        let renumber = |old: u32| new_numbers[old as usize];
        let ghosts = self.ghosts.into_iter();
        Facts {
            types,
            shapes,
            requests: self.requests,
            ghosts: ghosts.map(|(shape, old)| (shape, renumber(old))).collect(),
            idle: HashSet::new(),
        }
    }
}

/// Statements of a trace, followed through a catalog, each text once.
struct Reading<'a> {
    trace: &'a Trace,
    catalog: &'a Catalog,
    statements: Statements,
    touched: HashMap<&'a str, Touched>,
    /// Temporary tables that any of the statements makes.
    temporary: BTreeSet<crate::statement::Name>,
}

impl<'a> Reading<'a> {
    fn new<'s>(
        trace: &'a Trace,
        catalog: &'a Catalog,
        shapes: impl Iterator<Item = &'s ShapeId>,
    ) -> Self {
        let mut reading = Self {
            trace,
            catalog,
            statements: Statements::default(),
            touched: HashMap::new(),
            temporary: BTreeSet::new(),
        };
        for shape in shapes.filter_map(|id| trace.shape(*id)) {
            for text in &shape.statements {
                let statement = reading.statements.of(text);
                let made = statement.temporary.iter().cloned();
                reading.temporary.extend(made);
            }
        }
        reading
    }

    /// Whether the shape touches nothing.
    fn add(&mut self, shape: ShapeId, facts: &mut TypeFacts) -> bool {
        let cannot_tell = |facts: &mut TypeFacts, reason: String| {
            let why = ("(a transaction)".to_owned(), reason);
            if !facts.undetermined.contains(&why) {
                facts.undetermined.push(why);
            }
        };
        let Some(shape) = self.trace.shape(shape) else {
            let reason = "the recording does not say what it was made of";
            cannot_tell(facts, reason.to_owned());
            return false;
        };
        let mut idle = true;
        if shape.statements.len() >= STATEMENTS_KEPT {
            let reason = format!("only its first {STATEMENTS_KEPT} statements were kept");
            cannot_tell(facts, reason);
            idle = false;
        }
        for text in &shape.statements {
            let touched = self.touched.entry(text).or_insert_with(|| {
                let statement = self.statements.of(text);
                self.catalog.expand_among(&statement, &self.temporary)
            });
            idle &= *touched == Touched::default();
            facts.reads.extend(touched.reads.iter().cloned());
            facts.writes.extend(touched.writes.iter().cloned());
            for reason in &touched.undetermined {
                let why = (text.clone(), reason.clone());
                if !facts.undetermined.contains(&why) {
                    facts.undetermined.push(why);
                }
            }
        }
        idle
    }
}

fn is_not_found(request: &Request) -> bool {
    matches!(request.response, Response::Answered { status: 404, .. })
}

/// After the first statement that says what it is about: not `BEGIN`.
fn ghost_name(trace: &Trace, shape: ShapeId) -> String {
    let statements = trace.shape(shape).map_or(&[][..], |it| &it.statements);
    let telling = statements
        .iter()
        .find(|text| Statement::of(text) != Statement::default());
    let text = telling.or(statements.first());
    let text = text.map_or("(unknown)", String::as_str);
    let mut name = format!("(no request) {text}");
    if let Some((at, _)) = name.char_indices().nth(GHOST_NAME_MAX) {
        name.truncate(at);
        name.push('…');
    }
    name
}
