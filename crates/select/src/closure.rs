//! Which request types must be executed again: Algorithm 3 of R³, and what to do when it was wrong.
//!
//! Executed are the modified types, and every type that writes and shares a table with the executed
//! ones such that one of the two writes it. Types that write nothing cannot change what others see,
//! so they are left out unless they are modified themselves.
//!
//! The sets of tables come from statements that were recorded; changed code may touch others. So a
//! run observes the tables it really touches, asks [`Closure::outside`], and where that finds
//! something, begins again with a closure that was told of it. Each such step makes the closure
//! larger, so they end.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

/// What is known of one request type.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TypeFacts {
    pub name: String,
    pub requests: u64,
    /// Tables, schema-qualified and quoted where needed.
    pub reads: BTreeSet<String>,
    pub writes: BTreeSet<String>,
    /// Statements whose tables cannot be told, and why. A type that has any counts as reading and
    /// writing everything.
    pub undetermined: Vec<(String, String)>,
}

/// Tables that were read and written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Touches {
    pub reads: BTreeSet<String>,
    pub writes: BTreeSet<String>,
}

/// The types to execute and those to leave out. Each type is in exactly one of the two, by its
/// index, in ascending order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Closure {
    pub executed: Vec<Executed>,
    pub left_out: Vec<LeftOut>,
    /// Of the executed types, and what was touched beyond them.
    pub reads: BTreeSet<String>,
    pub writes: BTreeSet<String>,
    /// Of those left-out types that write anything.
    foreign: Touches,
    /// One of them may touch everything.
    foreign_anything: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Executed {
    pub index: usize,
    /// `writes public.orders, which POST /checkout reads`
    pub why: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOut {
    pub index: usize,
    /// `writes nothing`
    pub why: String,
}

impl TypeFacts {
    pub fn may_touch_anything(&self) -> bool {
        !self.undetermined.is_empty()
    }

    fn may_write(&self) -> bool {
        self.may_touch_anything() || !self.writes.is_empty()
    }

    fn may_touch(&self) -> bool {
        self.may_write() || !self.reads.is_empty()
    }
}

impl Touches {
    pub fn is_empty(&self) -> bool {
        self.reads.is_empty() && self.writes.is_empty()
    }

    pub fn extend(&mut self, other: Touches) {
        self.reads.extend(other.reads);
        self.writes.extend(other.writes);
    }
}

/// Who among the executed brought a table in: for the reasons.
#[derive(Clone, Copy)]
enum Who {
    Type(usize),
    Beyond,
}

#[derive(Default)]
struct Reach<'a> {
    readers: BTreeMap<&'a str, Who>,
    writers: BTreeMap<&'a str, Who>,
    /// The first executed type that may touch everything.
    anything: Option<usize>,
    /// Some table is touched at all: what may touch anything may touch that.
    touches: bool,
    writes: bool,
}

impl Closure {
    /// `modified`: names of the types whose code changed. `touched`: tables touched beyond what the
    /// types tell, by a migration or as observed at run time.
    pub fn of(types: &[TypeFacts], modified: &BTreeSet<String>, touched: &Touches) -> Self {
        let mut reach = Reach::default();
        reach.add(&touched.reads, &touched.writes, Who::Beyond);
        let mut reasons: Vec<Option<String>> = vec![None; types.len()];
        for (index, each) in types.iter().enumerate() {
            if modified.contains(&each.name) {
                reach.add_type(index, each);
                reasons[index] = Some("is modified".to_owned());
            }
        }
        // Each round looks at what is left; a type joins with the reason that first applies. As
        // many rounds as types at most.
        let mut candidates: Vec<usize> = (0..types.len())
            .filter(|index| reasons[*index].is_none() && types[*index].may_write())
            .collect();
        loop {
            let before = candidates.len();
            candidates.retain(|&index| {
                let reason = reach.reason(types, &types[index]);
                if reason.is_some() {
                    reach.add_type(index, &types[index]);
                    reasons[index] = reason;
                }
                reasons[index].is_none()
            });
            if candidates.len() == before {
                break;
            }
        }
        Self::collect(types, reasons, touched)
    }

    fn collect(types: &[TypeFacts], reasons: Vec<Option<String>>, touched: &Touches) -> Self {
        let mut closure = Self {
            reads: touched.reads.clone(),
            writes: touched.writes.clone(),
            ..Self::default()
        };
        for (index, (each, reason)) in types.iter().zip(reasons).enumerate() {
            if let Some(why) = reason {
                closure.reads.extend(each.reads.iter().cloned());
                closure.writes.extend(each.writes.iter().cloned());
                closure.executed.push(Executed { index, why });
                continue;
            }
            let why = if !each.may_write() {
                "writes nothing".to_owned()
            } else {
                closure.foreign.reads.extend(each.reads.iter().cloned());
                closure.foreign.writes.extend(each.writes.iter().cloned());
                closure.foreign_anything |= each.may_touch_anything();
                if each.writes.is_empty() {
                    "nothing that is executed touches any table".to_owned()
                } else {
                    format!(
                        "writes {}, which nothing that is executed touches",
                        list(&each.writes)
                    )
                }
            };
            closure.left_out.push(LeftOut { index, why });
        }
        closure
    }

    pub fn executes(&self, index: usize) -> bool {
        self.executed
            .binary_search_by_key(&index, |executed| executed.index)
            .is_ok()
    }

    /// Tables that stay as they were though requests would have changed them: left-out types write
    /// these. All others are as if everything had been executed, also those that the changed code
    /// is the first to write. `None`: a left-out type may write any table.
    pub fn left_behind(&self) -> Option<&BTreeSet<String>> {
        (!self.foreign_anything).then_some(&self.foreign.writes)
    }

    /// What of `touched` this closure does not allow, because a type that was left out matters to
    /// it: a read of a table that a left-out type writes, or a write of a table that a left-out
    /// type which writes anything reads or writes. Adding it to `touched` and computing the closure
    /// again gets a larger one that allows it.
    pub fn outside(&self, touched: &Touches) -> Option<Touches> {
        let foreign_to = |table: &String, foreign: &[&BTreeSet<String>]| {
            self.foreign_anything || foreign.iter().any(|tables| tables.contains(table))
        };
        let outside = Touches {
            reads: touched
                .reads
                .iter()
                .filter(|table| foreign_to(table, &[&self.foreign.writes]))
                .cloned()
                .collect(),
            writes: touched
                .writes
                .iter()
                .filter(|table| foreign_to(table, &[&self.foreign.reads, &self.foreign.writes]))
                .cloned()
                .collect(),
        };
        (!outside.is_empty()).then_some(outside)
    }
}

impl<'a> Reach<'a> {
    fn add(&mut self, reads: &'a BTreeSet<String>, writes: &'a BTreeSet<String>, who: Who) {
        for table in reads {
            self.readers.entry(table).or_insert(who);
        }
        for table in writes {
            self.writers.entry(table).or_insert(who);
        }
        self.writes |= !writes.is_empty();
        self.touches |= self.writes || !reads.is_empty();
    }

    fn add_type(&mut self, index: usize, each: &'a TypeFacts) {
        self.add(&each.reads, &each.writes, Who::Type(index));
        if each.may_touch_anything() {
            self.anything.get_or_insert(index);
            (self.touches, self.writes) = (true, true);
        }
    }

    /// Why a type that writes must join, if it must.
    fn reason(&self, types: &[TypeFacts], each: &TypeFacts) -> Option<String> {
        let whom = |who: &Who| match who {
            Who::Type(index) => types[*index].name.clone(),
            Who::Beyond => "the change itself".to_owned(),
        };
        for (own, others, what) in [
            (&each.writes, &self.readers, ("writes", "reads")),
            (&each.writes, &self.writers, ("writes", "writes too")),
            (&each.reads, &self.writers, ("reads", "writes")),
        ] {
            let mut shared = own.iter().filter_map(|table| {
                let who = others.get(table.as_str())?;
                Some((table, who))
            });
            if let Some((table, who)) = shared.next() {
                let and_writes = if what.0 == "reads" {
                    ", and writes other tables"
                } else {
                    ""
                };
                return Some(format!(
                    "{} {table}, which {} {}{and_writes}",
                    what.0,
                    whom(who),
                    what.1
                ));
            }
        }
        if let Some(anything) = self.anything
            && each.may_touch()
        {
            return Some(format!(
                "shares tables with {}, which may touch anything",
                types[anything].name
            ));
        }
        if let Some((statement, reason)) = each.undetermined.first()
            && self.touches
        {
            return Some(format!("may touch anything: {reason}, in {statement}"));
        }
        None
    }
}

fn list(tables: &BTreeSet<String>) -> String {
    const SHOWN: usize = 5;
    let shown: Vec<&str> = tables.iter().take(SHOWN).map(String::as_str).collect();
    match tables.len().saturating_sub(SHOWN) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

#[cfg(test)]
mod tests;
