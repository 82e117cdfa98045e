//! The paper's formal model: recorded executions, and their orders as relations.

use std::collections::BTreeMap;
use std::fmt;

use super::{Event, Relation, Thread};

/// What can be acquired, by the dense index that the caller gave it: a lock, a condition, a pipe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Resource(pub u32);

impl Resource {
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "L{}", self.0)
    }
}

/// A successful acquisition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Acquisition {
    pub thread: Thread,
    pub resource: Resource,
}

/// The second of each pair comes after the first.
pub type Pairs = Vec<(Event, Event)>;

/// A recorded execution (Definition 1): acquisitions as a recorder saw them, one after the other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Execution {
    events: Vec<Acquisition>,
}

impl Execution {
    pub fn new() -> Self {
        Self::default()
    }

    /// The next acquisition.
    pub fn acquired(&mut self, thread: Thread, resource: Resource) -> Event {
        self.events.push(Acquisition { thread, resource });
        Event::at(self.events.len())
    }

    /// How many acquisitions there are.
    pub fn len(&self) -> usize {
        self.events.len()
    }

    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    pub fn events(&self) -> impl ExactSizeIterator<Item = (Event, Acquisition)> + Clone + '_ {
        let events = self.events.iter().enumerate();
        events.map(|(at, &acquisition)| (Event::at(at + 1), acquisition))
    }

    /// Who acquired what. Not for the start.
    pub fn acquisition(&self, event: Event) -> Acquisition {
        self.events[event.index() - 1]
    }

    /// →CO (Definition 3), adjacent pairs only.
    pub fn program_order(&self) -> Pairs {
        self.adjacent(|acquisition| acquisition.thread.0 as u32)
    }

    /// →res (Definition 4), adjacent pairs only.
    pub fn resource_order(&self) -> Pairs {
        self.adjacent(|acquisition| acquisition.resource.0)
    }

    /// →sync (Definition 7): a lock goes from one thread to another.
    pub fn handovers(&self) -> Pairs {
        let mut pairs = self.resource_order();
        pairs.retain(|&(first, second)| {
            self.acquisition(first).thread != self.acquisition(second).thread
        });
        pairs
    }

    /// Algorithm 1: E_nonrelaxed and E_relaxed.
    pub fn relax(&self) -> (Pairs, Pairs) {
        let (mut nonrelaxed, mut relaxed) = (Vec::new(), Vec::new());
        let mut last_acquisition = BTreeMap::new();
        for (event, Acquisition { thread, resource }) in self.events() {
            match last_acquisition.insert(resource, event) {
                None => nonrelaxed.push((Event(event.0 - 1), event)),
                Some(previous) if self.acquisition(previous).thread == thread => {
                    relaxed.push((previous, event));
                }
                Some(previous) => nonrelaxed.push((previous, event)),
            }
        }
        (nonrelaxed, relaxed)
    }

    /// →TO (Definition 6): the one in which the events were recorded.
    pub fn total_order(&self) -> Relation {
        self.closure((1..=self.len()).map(|at| (Event::at(at - 1), Event::at(at))))
    }

    /// →PO (Definition 9). It is also →HB (Definition 14): (→CO ∪ →sync)⁺.
    pub fn partial_order(&self) -> Relation {
        self.closure(self.program_order().into_iter().chain(self.handovers()))
    }

    /// →RTO (Definition 11).
    pub fn relaxed_order(&self) -> Relation {
        let (nonrelaxed, _) = self.relax();
        self.closure(self.program_order().into_iter().chain(nonrelaxed))
    }

    /// What pairs of these events imply.
    pub fn closure(&self, pairs: impl IntoIterator<Item = (Event, Event)>) -> Relation {
        Relation::closure(self.len() + 1, pairs)
    }

    fn adjacent(&self, of: impl Fn(Acquisition) -> u32) -> Pairs {
        let mut last = BTreeMap::new();
        let events = self.events();
        events
            .filter_map(|(event, acquisition)| {
                let previous = last.insert(of(acquisition), event)?;
                Some((previous, event))
            })
            .collect()
    }
}
