//! Reads what a plan covers, and makes the schedule's levels and lock steps of it.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::ops::Range;

use hindcast_order::{Levels, LockStep, StepAt, Tx, Writers};
use hindcast_taplog::pins::{Reading, decode_readings};
use hindcast_trace::{self as trace, Drawn, Micros, Outcome, RequestId, Snapshot, Xid};
use hindcast_wire::sql::{ADVISORY, ADVISORY_REFUSED};

use super::{Extras, Fate, LoadError, RecordedRequest, RecordedTransaction, Recording, Scope};
use crate::drawn::{not_told, told_or_shown};
use crate::inserts::Id;
use crate::looks::{Looks, Seen, Sights, StatementSights};
use crate::shapes::Shapes;
use crate::transaction::first_error;

/// A recording that is being read, with what its schedule is made of.
pub(super) struct Loading<'a> {
    scope: &'a Scope<'a>,
    shapes: &'a Shapes,
    pub recording: Recording,
    spill: Spill,
    snapshots: Vec<(Tx, Snapshot)>,
    /// What each statement saw, of transactions where that is known.
    statements: Vec<(Tx, StatementSights)>,
    /// Where transactions committed, in the server's log.
    committed: Vec<(Tx, u64)>,
    writers: Vec<(Tx, Xid)>,
    /// Of committed ones.
    ids: HashMap<Tx, Id>,
    locks: Vec<LockStep>,
    /// What committed transactions drew from sequences.
    drawn: HashMap<Tx, Vec<Drawn>>,
    /// Of changed code: snapshots of what aborted. They count unless it was tried again.
    aborted: Vec<(Tx, Snapshot)>,
    /// What requests read behind their answers, by the end of the transaction that it is kept with.
    late: Vec<(Micros, RequestId, Vec<Reading>)>,
}

impl<'a> Loading<'a> {
    pub fn new(
        scope: &'a Scope<'a>,
        shapes: &'a Shapes,
        requests: Vec<RecordedRequest>,
    ) -> io::Result<Self> {
        let extras = tempfile::tempfile()?;
        let spill = Spill {
            file: BufWriter::new(extras.try_clone()?),
            length: 0,
        };
        Ok(Self {
            scope,
            shapes,
            recording: Recording {
                requests,
                transactions: Vec::new(),
                own: Vec::new(),
                retried: Vec::new(),
                errors: HashMap::new(),
                looks: Looks::default(),
                ghost_xids: HashMap::new(),
                refused: HashMap::new(),
                lost: Vec::new(),
                changes: HashMap::new(),
                late: HashMap::new(),
                shown_by: HashMap::new(),
                inserts: Vec::new(),
                values: BTreeMap::new(),
                extras,
                keys: Vec::new(),
            },
            spill,
            snapshots: Vec::new(),
            statements: Vec::new(),
            committed: Vec::new(),
            writers: Vec::new(),
            ids: HashMap::new(),
            locks: Vec::new(),
            drawn: HashMap::new(),
            aborted: Vec::new(),
            late: Vec::new(),
        })
    }

    pub fn add(&mut self, recorded: trace::Transaction) -> io::Result<()> {
        let request = match recorded.request {
            None if !(self.scope.ghost)(recorded.shape) => return Ok(()),
            None => None,
            // Of a request that is not sent again: nothing that is compared can see it.
            Some((id, how)) => match self.recording.find(id) {
                Some(request) => Some((request, how)),
                None => return Ok(()),
            },
        };
        self.note_late(&recorded);
        let tx = Tx(self.recording.transactions.len() as u32);
        let fate = match recorded.outcome {
            Outcome::Committed => Fate::Committed,
            Outcome::Aborted => Fate::Aborted,
            Outcome::Prepared { .. } => Fate::Prepared,
            Outcome::Unknown => Fate::Unknown,
        };
        if self.scope.changed && fate == Fate::Aborted {
            let error = recorded.server_bytes.as_deref().and_then(first_error);
            self.recording.errors.extend(error.map(|error| (tx, error)));
        }
        let knows_statements = self.note_order(tx, fate, &recorded);
        let draws_told = !recorded.drawn.iter().all(Drawn::is_of_sequence);
        let drawn = told_or_shown(recorded.drawn, recorded.sequence_values);
        if fate == Fate::Committed && drawn.iter().any(Drawn::is_of_sequence) {
            self.drawn.insert(tx, drawn.clone());
        }
        let has_snapshot = recorded.snapshot.is_some();
        let wrote = recorded.xid.is_some();
        let ghost = recorded.xid.filter(|_| request.is_none());
        self.recording.ghost_xids.extend(ghost.map(|xid| (tx, xid)));
        let kept = Extras {
            drawn_uuids: not_told(recorded.drawn_uuids, &drawn),
            drawn,
            server_bytes: recorded.server_bytes.filter(|_| fate == Fate::Aborted),
            client_bytes: recorded.client_bytes.filter(|_| request.is_none()),
            row_order: recorded.row_order,
            secrets: recorded.secrets,
        };
        self.recording.transactions.push(RecordedTransaction {
            id: recorded.id,
            session: recorded.session,
            request,
            began: recorded.began,
            ended: recorded.ended,
            now: recorded.now,
            isolation: recorded.isolation,
            fate,
            wrote,
            has_snapshot,
            draws_told,
            knows_statements,
            shape: recorded.shape,
            digest: recorded.result_digest,
            rows: recorded.result_rows,
            values: recorded.values,
            extras: self.spill.keep(&kept)?,
        });
        Ok(())
    }

    fn note_late(&mut self, recorded: &trace::Transaction) {
        let began = recorded.began.saturating_mul(1000);
        if let Some((request, _)) = recorded.request
            && let Some(readings) = decode_readings(began, &recorded.clock)
            && !readings.is_empty()
        {
            self.late.push((recorded.ended, request, readings));
        }
    }

    /// What the schedule has to know of a transaction. Whether it is known what each of its
    /// statements saw.
    fn note_order(&mut self, tx: Tx, fate: Fate, recorded: &trace::Transaction) -> bool {
        let snapshot = recorded.snapshot.clone().map(|snapshot| (tx, snapshot));
        if fate == Fate::Aborted && !self.scope.changed {
            return false;
        }
        // Of changed code also what aborted: who saw that it was over waits for it, and so for the
        // rows that it held.
        let is_over = matches!(fate, Fate::Committed | Fate::Aborted);
        if let Some(xid) = recorded.xid.filter(|_| is_over) {
            self.writers.push((tx, xid));
            if fate == Fate::Committed {
                self.ids.insert(tx, Id::of(xid, recorded));
            }
            self.committed
                .extend(recorded.commit_lsn.map(|lsn| (tx, lsn)));
        }
        let took = self.shapes.writes.first_write(recorded.shape);
        if let Some(first) = took.filter(|first| first.takes && recorded.xid.is_none()) {
            self.ids
                .extend(Id::of_none(first, recorded).map(|id| (tx, id)));
        }
        // What a statement saw does not tell what it waited for in vain. Who ended a deadlock
        // waited for one that waited for it, which comes again where both come when they came.
        let vain = ["(40001)", "(55P03)", "(57014)"];
        let waited_in_vain = self.recording.failed_as(tx, &vain);
        let statements = StatementSights::of(recorded).filter(|_| !waited_in_vain);
        let knows_statements = statements.is_some();
        match statements {
            Some(sights) => self.statements.push((tx, sights)),
            None if fate == Fate::Aborted => self.aborted.extend(snapshot),
            None => self.snapshots.extend(snapshot),
        }
        if fate == Fate::Aborted {
            return knows_statements;
        }
        let in_vain = |lock: &&trace::Lock| lock.target == ADVISORY_REFUSED;
        let refused = recorded.locks.iter().filter(in_vain);
        let refused: Vec<u32> = refused.map(|lock| lock.statement).collect();
        if !refused.is_empty() {
            self.recording.refused.insert(tx, refused);
        }
        // A faithful replay takes no locks of tables, and none takes those of rows in an order.
        let of_tables = self.shapes.locking_tables(recorded.shape);
        let of_table =
            |lock: &trace::Lock| self.scope.changed && of_tables.contains(&lock.statement);
        let kept = |lock: &&trace::Lock| lock.target == ADVISORY || of_table(lock);
        let step = |lock: &trace::Lock| LockStep {
            tx,
            at: StepAt::Statement(lock.statement),
            target: u64::from(lock.target),
            completed: lock.completed,
        };
        self.locks
            .extend(recorded.locks.iter().filter(kept).map(step));
        knows_statements
    }

    /// A recorder numbers a transaction when its first statement is answered. One that takes long
    /// has begun before others that are answered sooner.
    fn number_by_beginning(&mut self) {
        let recording = &mut self.recording;
        let began = |one: &RecordedTransaction| one.began;
        if recording.transactions.is_sorted_by_key(began) {
            return;
        }
        let mut all: Vec<_> = recording.transactions.drain(..).enumerate().collect();
        all.sort_by_key(|(_, one)| began(one));
        let mut numbers = Numbers(vec![Tx(0); all.len()]);
        for ((before, one), tx) in all.into_iter().zip((0..).map(Tx)) {
            numbers.0[before] = tx;
            recording.transactions.push(one);
        }
        numbers.of_map(&mut recording.errors);
        numbers.of_map(&mut recording.ghost_xids);
        numbers.of_map(&mut recording.refused);
        numbers.of_map(&mut self.drawn);
        numbers.of_map(&mut self.ids);
        numbers.of_list(&mut self.snapshots);
        numbers.of_list(&mut self.statements);
        numbers.of_list(&mut self.committed);
        numbers.of_list(&mut self.writers);
        numbers.of_list(&mut self.aborted);
        for step in &mut self.locks {
            step.tx = numbers.of(step.tx);
        }
    }

    pub fn finish(mut self) -> Result<(Recording, Levels, Vec<LockStep>), LoadError> {
        let shapes = self.shapes;
        self.spill.file.flush()?;
        self.number_by_beginning();
        let mut recording = self.recording;
        for one in &mut recording.transactions {
            one.knows_statements |= one.looks_once(shapes);
        }
        recording.index_by_request();
        recording.find_shown(shapes);
        recording.keep_late(self.late);
        recording.find_inserts(&self.drawn, &self.ids, shapes);
        if self.scope.changed {
            recording.find_retried(shapes);
            let retried = |tx: &Tx| recording.retried.binary_search(tx).is_ok();
            self.aborted.retain(|(tx, _)| !retried(tx));
            self.writers.retain(|(tx, _)| !retried(tx));
            self.statements.retain(|(tx, _)| !retried(tx));
            self.snapshots.extend(self.aborted);
        }
        let look = self.scope.look.as_ref();
        let begin = recording.transactions.len() + usize::from(look.is_some());
        recording.looks = Looks::starting_at(begin as u32);
        let (mut seen_by_statements, writes) = (Vec::new(), &shapes.writes);
        for (tx, statements) in &self.statements {
            let shape = recording.transaction(*tx).shape;
            if shapes.gives_back(shape) {
                continue;
            }
            let locks_first = shapes.locks_first(shape);
            let (going_on, upserting) = (writes.going_on(shape), writes.upserting(shape));
            let of = |looking| statements.sights(looking, going_on, upserting, locks_first);
            let sights = shapes.looking(shape).and_then(of);
            let Some(Sights { first, later }) = sights else {
                // Nothing else is known of it.
                seen_by_statements.push((*tx, *tx, Seen::Snapshot(0), statements));
                continue;
            };
            seen_by_statements.push((*tx, *tx, first, statements));
            let stretches = later.iter().map(|&(stretch, _)| stretch);
            let scheduled = recording.looks.add(*tx, stretches);
            let looks = scheduled.zip(&later);
            let looks = looks.map(|(look, &(_, seen))| (look, *tx, seen, statements));
            seen_by_statements.extend(looks);
        }
        recording.find_losers(shapes);
        let mut writers = Writers::new(begin + recording.looks.count());
        for (tx, xid) in self.writers {
            writers.insert(tx, xid);
        }
        let mut seen = writers.sorted()?;
        let gives_back = |tx| shapes.gives_back(recording.transaction(tx).shape);
        self.snapshots.retain(|&(tx, _)| !gives_back(tx));
        for (tx, snapshot) in self.snapshots {
            seen.insert(tx, &snapshot)?;
        }
        for (look, tx, what, statements) in seen_by_statements {
            match what {
                Seen::Snapshot(nth) => seen.insert_look(look, tx, &statements.snapshots[nth])?,
                Seen::End => seen.insert_end(look, tx),
            }
        }
        for (tx, place) in self.committed {
            seen.committed_at(tx, place);
        }
        if let Some(snapshot) = look {
            seen.insert(recording.look(), snapshot)?;
        }
        Ok((recording, seen.levels()?, self.locks))
    }
}

/// By the number that a transaction had, the one that it gets.
struct Numbers(Vec<Tx>);

impl Numbers {
    fn of(&self, tx: Tx) -> Tx {
        self.0[tx.index()]
    }

    fn of_map<T>(&self, all: &mut HashMap<Tx, T>) {
        *all = all.drain().map(|(tx, one)| (self.of(tx), one)).collect();
    }

    fn of_list<T>(&self, all: &mut [(Tx, T)]) {
        all.iter_mut().for_each(|(tx, _)| *tx = self.of(*tx));
    }
}

struct Spill {
    file: BufWriter<File>,
    length: u64,
}

impl Spill {
    fn keep(&mut self, extras: &Extras) -> io::Result<Range<u64>> {
        if extras.is_empty() {
            return Ok(0..0);
        }
        let bytes = postcard::to_stdvec(extras).map_err(io::Error::other)?;
        self.file.write_all(&bytes)?;
        let start = self.length;
        self.length += bytes.len() as u64;
        Ok(start..self.length)
    }
}
