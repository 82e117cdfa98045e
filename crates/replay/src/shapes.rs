//! What is known about transactions from the texts of their statements.

mod writes;

use std::collections::{HashMap, HashSet};

use hindcast_trace::{Shape, ShapeId, Trace};
use hindcast_wire::FUNCTION_CALL;
use hindcast_wire::sql::{self, Dialect, Kind, Script, Statement};

use crate::reading::only_reads;
use crate::setup::{asks_aside, asks_catalog, asks_nothing, sets_up};
pub use writes::{Writes, targets};

/// What is known about a kind of transaction from its statements.
#[derive(Default)]
pub struct Shapes {
    /// The hash of the statement that makes a transaction take its snapshot.
    pub openings: HashMap<ShapeId, u64>,
    /// Its text.
    opening_texts: HashMap<ShapeId, String>,
    /// Hashes of statements that open transactions which do more than read.
    opening_more: HashSet<u64>,
    looking: HashMap<ShapeId, Vec<u32>>,
    /// Of those that try for an advisory lock: these statements, by their places.
    tries: HashMap<ShapeId, Vec<u32>>,
    locking_tables: HashMap<ShapeId, Vec<u32>>,
    /// Those that take an advisory lock before they look at anything.
    locking_first: HashSet<ShapeId>,
    /// Those that look at nothing, and give advisory locks back.
    giving_back: HashSet<ShapeId>,
    pub reading: HashSet<ShapeId>,
    /// The hashes of its statements.
    statements: HashMap<ShapeId, Vec<u64>>,
    /// Of those that begin a transaction and do more than read: the hashes of their first reads,
    /// and of what comes behind them.
    leading: HashMap<ShapeId, Vec<u64>>,
    /// By hash: the statements, of all transactions, that do nothing but read.
    reads: HashMap<u64, String>,
    /// Hashes of statements that are about settings, or that ask what the catalog says where
    /// nothing defines anything: whenever they come.
    aside: HashSet<u64>,
    /// They do nothing but `NOTIFY`.
    pub notifying: HashSet<ShapeId>,
    /// They do nothing but what connections and pools do for themselves; see [`sets_up`].
    setting_up: HashSet<ShapeId>,
    /// Of those, the ones that depend on nothing that anybody may do.
    asking_nothing: HashSet<ShapeId>,
    /// Whether one of all their statements may change the catalog.
    pub define: bool,
    /// By statement: its hash, if it asks the catalog and that does not change, or if it reads and
    /// its transaction does nothing else.
    lookups: HashMap<ShapeId, Vec<Option<u64>>>,
    /// Of those, the ones that read something else than the catalog.
    moving: HashMap<ShapeId, Vec<u64>>,
    /// What its statements write.
    pub writes: Writes,
    /// They do nothing but ask what the session has drawn from a sequence last.
    asking_last: HashSet<ShapeId>,
    /// The tables that its statements name as those they write.
    pub targets: HashMap<ShapeId, Vec<String>>,
    /// It is one statement, which nobody began a transaction for.
    single: HashSet<ShapeId>,
    /// Hashes of its statements but for those that begin it.
    bodies: HashMap<ShapeId, Vec<u64>>,
    /// Its statements that may be answered otherwise than recorded, and why; with whether the
    /// server told what they drew.
    unpinned: HashMap<(ShapeId, bool), Vec<String>>,
    /// A result of one of its statements may show what the database draws anew. Likewise.
    showing_drawn: HashSet<(ShapeId, bool)>,
}

/// Reads that are in one of two lists of statements: the recorded ones, and others.
#[derive(Debug, Default)]
pub struct Differing {
    pub gone: Vec<u64>,
    pub new: Vec<u64>,
}

impl Shapes {
    pub fn of(trace: &Trace) -> Self {
        let mut shapes = Self::default();
        // A fingerprint is a statement again, and its own fingerprint.
        let statements = |shape: &Shape| -> Vec<Statement> {
            let texts = shape.statements.iter();
            let scripts = texts.map(|text| Script::of(text.as_bytes(), Dialect::default()));
            scripts.flat_map(|script| script.statements).collect()
        };
        // What drivers call by the protocol defines nothing.
        let is_call = |one: &Statement| one.fingerprint.hash == FUNCTION_CALL.fingerprint.hash;
        let defines = |one: &Statement| {
            matches!(one.kind, Kind::Utility | Kind::Call | Kind::Do) && !is_call(one)
        };
        let all = trace
            .shapes()
            .iter()
            .map(|shape| (shape, statements(shape)));
        let all: Vec<_> = all.collect();
        shapes.define = all.iter().any(|(_, own)| own.iter().any(defines));
        for (shape, statements) in all {
            shapes.note_opening(shape.id, &statements);
            if let [only] = &statements[..]
                && only.takes_snapshot
            {
                shapes.single.insert(shape.id);
            }
            let looks = |one: &&(u32, &Statement)| {
                one.1.takes_snapshot && !one.1.locks.contains(&sql::ADVISORY)
            };
            let looking = (0..).zip(&statements).filter(|one| looks(&one));
            let looking: Vec<u32> = looking.map(|(at, _)| at).collect();
            shapes.looking.insert(shape.id, looking);
            shapes.note_locks(shape.id, &statements);
            shapes.bodies.insert(shape.id, body(&shape.statements));
            shapes.note_drawn(shape, &statements);
            shapes.writes.note(shape.id, &statements);
            let asks = |one: &Statement| one.sequences.iter().any(|column| column.is_last);
            if !statements.is_empty() && statements.iter().all(asks) {
                shapes.asking_last.insert(shape.id);
            }
            shapes.note_unnoticed(shape.id, &statements);
            shapes.note_lookups(shape.id, &statements);
            let reads = |one: &&Statement| one.takes_snapshot && only_reads(one);
            let text = |one: &Statement| (one.fingerprint.hash, one.fingerprint.text.clone());
            let reads = statements.iter().filter(reads).map(text);
            shapes.reads.extend(reads);
            let hashes = statements.iter().map(|one| one.fingerprint.hash);
            shapes.statements.insert(shape.id, hashes.collect());
            shapes.note_aside(&statements);
            if are_reads(&statements) {
                shapes.reading.insert(shape.id);
            } else {
                shapes.targets.insert(shape.id, targets(&shape.statements));
                shapes.note_leading(shape.id, &statements);
            }
        }
        shapes
    }

    /// What its statements do with locks other than those of rows.
    fn note_locks(&mut self, shape: ShapeId, statements: &[Statement]) {
        let those = |are: fn(&Statement) -> bool| {
            let those = (0..).zip(statements).filter(|one| are(one.1));
            let places: Vec<u32> = those.map(|(at, _)| at).collect();
            Some(places).filter(|places| !places.is_empty())
        };
        let tries = those(|one| one.tries);
        self.tries.extend(tries.map(|places| (shape, places)));
        let tables = those(|one| one.kind == Kind::Lock);
        let tables = tables.map(|places| (shape, places));
        self.locking_tables.extend(tables);
        let first = statements.iter().find(|one| one.takes_snapshot);
        if first.is_some_and(|one| one.locks.contains(&sql::ADVISORY)) {
            self.locking_first.insert(shape);
        }
        let mut looking = statements.iter().filter(|one| one.takes_snapshot);
        if first.is_some() && looking.all(only_gives_back) {
            self.giving_back.insert(shape);
        }
    }

    /// Whether it does nothing by which it is known when it comes.
    fn note_unnoticed(&mut self, shape: ShapeId, statements: &[Statement]) {
        let marks = |kind: &Kind| matches!(kind, Kind::Savepoint | Kind::Release);
        let is_own = |one: &&Statement| !one.kind.controls_transaction() && !marks(&one.kind);
        let own: Vec<&Statement> = statements.iter().filter(is_own).collect();
        let all = |are: fn(&Statement) -> bool| !own.is_empty() && own.iter().all(|one| are(one));
        if all(|one| one.kind == Kind::Notify) {
            self.notifying.insert(shape);
        }
        if all(sets_up) {
            self.setting_up.insert(shape);
        }
        if all(sets_up) && all(asks_nothing) {
            self.asking_nothing.insert(shape);
        }
    }

    /// Which of its statements may come whenever.
    fn note_aside(&mut self, statements: &[Statement]) {
        let define = self.define;
        let aside = statements.iter();
        let aside = aside.filter(|one| is_setting(one) || !define && asks_catalog(one));
        self.aside.extend(aside.map(|one| one.fingerprint.hash));
    }

    fn note_leading(&mut self, shape: ShapeId, statements: &[Statement]) {
        let begins = |one: &Statement| matches!(one.kind, Kind::Begin { .. });
        if !statements.first().is_some_and(begins) {
            return;
        }
        let looks = || statements.iter().filter(|one| one.takes_snapshot);
        let reads = looks().take_while(|one| only_reads(one)).count();
        let leading = looks().take(reads + 1).map(|one| one.fingerprint.hash);
        self.leading.insert(shape, leading.collect());
    }

    /// Whether a transaction of this shape does more than read, and nothing but read before this
    /// statement. Then it may begin with it where a cache has the rest.
    pub fn leads_to(&self, shape: ShapeId, statement: u64) -> bool {
        let leading = self.leading.get(&shape);
        leading.is_some_and(|leading| leading.contains(&statement))
    }

    /// Whether a transaction of this shape is begun by its client, and does more than read.
    pub fn is_begun_to_write(&self, shape: ShapeId) -> bool {
        self.leading.contains_key(&shape)
    }

    /// What makes transactions of this shape take their snapshot. A driver may ask the catalog
    /// within a transaction for what it does not know on its connection, and knows it on another
    /// one in a replay. So that counts only where there is nothing else, or it may be answered
    /// otherwise another time.
    fn note_opening(&mut self, shape: ShapeId, statements: &[Statement]) {
        let looks = || statements.iter().filter(|one| one.takes_snapshot);
        let own = looks().find(|one| !self.define && !asks_catalog(one));
        let Some(opening) = own.or_else(|| looks().next()) else {
            return;
        };
        let hash = opening.fingerprint.hash;
        self.openings.insert(shape, hash);
        let text = opening.fingerprint.text.clone();
        self.opening_texts.insert(shape, text);
        if !are_reads(statements) {
            self.opening_more.insert(hash);
        }
    }

    /// Which statements may come for more or for less where the transaction is served.
    fn note_lookups(&mut self, shape: ShapeId, statements: &[Statement]) {
        let is_known = |one: &Statement| !self.define || one.kind == Kind::Show;
        let of_driver = |one: &Statement| is_known(one) && asks_aside(one);
        let reads_only = are_reads(statements);
        let moves = |one: &Statement| reads_only && one.takes_snapshot && only_reads(one);
        let hash = |one: &Statement| one.fingerprint.hash;
        let lookups = statements.iter();
        let lookups = lookups.map(|one| (of_driver(one) || moves(one)).then(|| hash(one)));
        let lookups: Vec<Option<u64>> = lookups.collect();
        let reads = statements
            .iter()
            .filter(|one| moves(one) && !asks_catalog(one));
        let reads = reads.map(hash).collect();
        self.lookups.insert(shape, lookups);
        self.moving.insert(shape, reads);
    }

    /// The reads of a transaction that does nothing else, but for what its driver asks for itself:
    /// a cache may have what they read.
    pub fn moving(&self, shape: ShapeId) -> &[u64] {
        self.moving.get(&shape).map_or(&[], Vec::as_slice)
    }

    /// By statement of a shape: its hash, if a driver asks the catalog by it, or the service for
    /// what a cache may have, and may ask for more or for less in a replay. Empty if nothing is
    /// known of that.
    pub fn lookups(&self, shape: ShapeId) -> &[Option<u64>] {
        self.lookups.get(&shape).map_or(&[], Vec::as_slice)
    }

    /// The statements that look at the database, each with a snapshot of its own under READ
    /// COMMITTED. One that may wait for an advisory lock looks when it has it.
    pub fn looking(&self, shape: ShapeId) -> Option<&[u32]> {
        self.looking.get(&shape).map(Vec::as_slice)
    }

    /// The statements of a shape that try for an advisory lock: their places and hashes.
    pub fn tries(&self, shape: ShapeId) -> Vec<(u32, u64)> {
        let of = |&at: &u32| Some((at, *self.statements(shape)?.get(at as usize)?));
        let tries = self.tries.get(&shape).into_iter().flatten();
        tries.filter_map(of).collect()
    }

    /// Those of its statements that are `LOCK TABLE`.
    pub fn locking_tables(&self, shape: ShapeId) -> &[u32] {
        self.locking_tables.get(&shape).map_or(&[], Vec::as_slice)
    }

    /// Whether the snapshot of a transaction of this shape is that of a statement which takes an
    /// advisory lock.
    pub fn locks_first(&self, shape: ShapeId) -> bool {
        self.locking_first.contains(&shape)
    }

    /// Whether transactions of this shape do nothing but give advisory locks back. Their snapshots
    /// show them nothing, and are of any time after the locks were others'.
    pub fn gives_back(&self, shape: ShapeId) -> bool {
        self.giving_back.contains(&shape)
    }

    /// The statements of a shape that the recording has, as hashes of their fingerprints.
    pub fn statements(&self, shape: ShapeId) -> Option<&[u64]> {
        self.statements.get(&shape).map(Vec::as_slice)
    }

    /// The text of the statement that makes a transaction of this shape take its snapshot.
    pub fn opening_text(&self, shape: ShapeId) -> Option<&str> {
        self.opening_texts.get(&shape).map(String::as_str)
    }

    /// The text of a recorded statement that does nothing but read.
    pub fn read(&self, hash: u64) -> Option<&str> {
        self.reads.get(&hash).map(String::as_str)
    }

    /// Whether each transaction that begins with this statement does nothing but read.
    pub fn opens_reads(&self, opening: u64) -> bool {
        self.reads.contains_key(&opening) && !self.opening_more.contains(&opening)
    }

    /// The reads by which these statements differ from those of a transaction, if that is all.
    /// What is set in between comes with some of them, and what the catalog says may be asked at
    /// any time. `aside`: statements that did so now, as [`may_be_aside`] tells.
    pub fn differ_by_reads(&self, shape: ShapeId, now: &[u64], aside: &[u64]) -> Option<Differing> {
        let asked = |hash: &u64| !self.define && aside.contains(hash);
        let matters = |hash: &&u64| !self.aside.contains(hash) && !asked(hash);
        let then: Vec<u64> = self
            .statements
            .get(&shape)?
            .iter()
            .filter(matters)
            .copied()
            .collect();
        let now: Vec<u64> = now.iter().filter(matters).copied().collect();
        let (mut then, mut now) = (&then[..], &now[..]);
        let mut differing = Differing::default();
        loop {
            let (first, other) = (then.first().copied(), now.first().copied());
            if first == other {
                let (Some((_, rest)), Some((_, others))) = (then.split_first(), now.split_first())
                else {
                    return Some(differing);
                };
                (then, now) = (rest, others);
                continue;
            }
            let reads = |hash: &u64| self.reads.contains_key(hash);
            let (gone, new) = (first.filter(reads), other.filter(reads));
            let only = |hash: &u64, rest: &[u64]| !rest.contains(hash);
            let is_gone = match (gone, new) {
                (Some(gone), Some(new)) => only(&gone, now) || !only(&new, then),
                (gone, _) => gone.is_some(),
            };
            if is_gone {
                differing.gone.push(gone?);
                then = &then[1..];
            } else {
                differing.new.push(new?);
                now = &now[1..];
            }
        }
    }

    /// What its statements draw.
    fn note_drawn(&mut self, shape: &Shape, statements: &[Statement]) {
        for told in [false, true] {
            let texts = shape.statements.iter();
            let unpinned: Vec<String> = texts.flat_map(|text| unpinned(text, told)).collect();
            if !unpinned.is_empty() {
                self.unpinned.insert((shape.id, told), unpinned);
            }
            if statements.iter().any(|one| shows_drawn(one, told)) {
                self.showing_drawn.insert((shape.id, told));
            }
        }
    }

    /// Whether transactions of this shape are statements by themselves.
    pub fn is_single(&self, shape: ShapeId) -> bool {
        self.single.contains(&shape)
    }

    /// Whether transactions of this shape come and go with connections.
    pub fn sets_up(&self, shape: ShapeId) -> bool {
        self.setting_up.contains(&shape)
    }

    /// Whether transactions of this shape ask what is answered the same whenever they come: what
    /// the catalog says where nothing defines anything, or nothing at all.
    pub fn asks_whenever(&self, shape: ShapeId) -> bool {
        self.asking_nothing.contains(&shape) || self.sets_up(shape) && !self.define
    }

    /// What of the shape's statements is not as recorded by itself, and why. `told`: the server
    /// told what they drew.
    pub fn unpinned(&self, shape: ShapeId, told: bool) -> &[String] {
        self.unpinned.get(&(shape, told)).map_or(&[], Vec::as_slice)
    }

    /// Whether the shape asks for what an earlier transaction has drawn from a sequence.
    pub fn asks_last(&self, shape: ShapeId) -> bool {
        self.asking_last.contains(&shape)
    }

    /// Whether a result of a statement of the shape may show what the database draws anew. `told`:
    /// the server told what they drew.
    pub fn shows_drawn(&self, shape: ShapeId, told: bool) -> bool {
        self.showing_drawn.contains(&(shape, told))
    }

    /// Whether these statements hold what transactions of the shape begin with.
    pub fn is_within(&self, shape: ShapeId, statements: &[String]) -> bool {
        let opening = self.opening_texts.get(&shape);
        opening.is_some_and(|opening| statements.contains(opening))
    }

    /// Whether a transaction of other statements differs only in how it begins: in its isolation.
    pub fn says_the_same(&self, shape: ShapeId, statements: &[String]) -> bool {
        self.bodies.get(&shape) == Some(&body(statements))
    }

    /// Whether a transaction ran the same statements as far as both it and this one went, before
    /// they failed.
    pub fn says_the_same_so_far(&self, shape: ShapeId, statements: &[String]) -> bool {
        let Some(recorded) = self.bodies.get(&shape) else {
            return false;
        };
        let now = body(statements);
        // The last one may be the end of it.
        let both = recorded.len().min(now.len());
        let common = recorded.iter().zip(&now).take_while(|(a, b)| a == b);
        common.count() + 1 >= both
    }
}

/// Statements that are fingerprints, as hashes: all of them, and those that may be aside.
pub fn hashes(statements: &[String]) -> (Vec<u64>, Vec<u64>) {
    let scripts = statements
        .iter()
        .map(|text| Script::of(text.as_bytes(), Dialect::default()));
    let all: Vec<Statement> = scripts.flat_map(|script| script.statements).collect();
    let hash = |one: &Statement| one.fingerprint.hash;
    let aside = all.iter().filter(|one| may_be_aside(one));
    (all.iter().map(hash).collect(), aside.map(hash).collect())
}

/// Whether a statement shows or sets a setting, or asks what the catalog says. It is answered so
/// whenever it comes, where nothing defines anything.
pub fn may_be_aside(statement: &Statement) -> bool {
    let text = &statement.fingerprint.text;
    let names = || text.contains("pg_") || text.contains("information_schema");
    is_setting(statement) || names() && asks_catalog(statement)
}

fn body(statements: &[String]) -> Vec<u64> {
    let begins = |text: &&String| {
        let first = text.split_whitespace().next().unwrap_or_default();
        ["begin", "start"]
            .iter()
            .any(|word| first.eq_ignore_ascii_case(word))
    };
    let rest = statements.iter().filter(|text| !begins(text));
    rest.map(|text| xxhash_rust::xxh3::xxh3_64(text.as_bytes()))
        .collect()
}

/// Whether a statement is about a setting of its session or transaction, or what is prepared there.
fn is_setting(statement: &Statement) -> bool {
    matches!(
        statement.kind,
        Kind::Set | Kind::Show | Kind::Deallocate { .. }
    )
}

/// Whether a transaction of these statements does nothing but read. It may set what is to hold
/// meanwhile, as how long its queries may take.
fn are_reads(statements: &[Statement]) -> bool {
    statements
        .iter()
        .all(|one| only_reads(one) || is_setting(one))
}

fn only_gives_back(statement: &Statement) -> bool {
    let reads = |word: &str| word.eq_ignore_ascii_case("from");
    let is_word = |char: char| char.is_alphanumeric() || char == '_';
    let mut words = statement.fingerprint.text.split(|char| !is_word(char));
    statement.kind == Kind::Select && statement.gives_back && !words.any(reads)
}

fn shows_drawn(statement: &Statement, told: bool) -> bool {
    let text = &statement.fingerprint.text;
    let answers_rows =
        statement.kind == Kind::Select || text.to_ascii_lowercase().contains("returning");
    answers_rows && hindcast_rewind::pins::draws_anew(text, told)
}

fn unpinned(statement: &str, told: bool) -> impl Iterator<Item = String> {
    let of = move |why| format!("{statement}: {why}");
    hindcast_rewind::pins::unpinned_calls(statement, told)
        .into_iter()
        .map(of)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_that_shows_what_is_drawn_anew_is_known() {
        let shows = |text: &str, told| {
            let script = Script::of(text.as_bytes(), Dialect::default());
            shows_drawn(&script.statements[0], told)
        };
        let of = |text| shows(text, false);
        assert!(of("SELECT extract(epoch FROM clock_timestamp())"));
        assert!(of("INSERT INTO t VALUES (random()) RETURNING *"));
        assert!(!of("INSERT INTO t VALUES (random())"));
        assert!(!of("SELECT gen_random_uuid()"));
        assert!(!of("SELECT now()"));
        assert!(!shows("SELECT random(), clock_timestamp()", true));
        assert!(shows("SELECT random(), random_normal()", true));
    }
}
