//! The replay of a history under the schedule, and the ways in which it can be made wrong on
//! purpose.

use std::collections::{HashMap, HashSet};

use hindcast_model::{Snapshot, Xid};
use hindcast_order::{
    Admission, Level, Levels, LockStep, Losers, Lost, Openings, Request, Schedule, Span, StepAt,
    Tx, Writers, admission, losers,
};

use crate::database::{Answer, Op};
use crate::record::{self, History, Stamps};
use crate::rng::Rng;
use crate::service::{
    Director, End, Objection, Place, Resources, Runs, Service, Strategy, Waiting,
};

/// How to replay.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    pub rules: Rules,
    pub row_locks: RowLocks,
    pub resend: Resend,
    pub resources: Resources,
    pub strategy: Strategy,
}

impl Options {
    /// The rules as they should be, with as many workers and connections as anybody wants.
    pub fn unlimited(strategy: Strategy) -> Self {
        Self {
            rules: Rules::ALL,
            row_locks: RowLocks::NotTaken,
            resend: Resend::AtOnce,
            resources: Resources::UNLIMITED,
            strategy,
        }
    }
}

/// Which rules are obeyed; leaving one out must be noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    pub a: bool,
    pub b: bool,
    pub c: bool,
    /// Under READ COMMITTED, what each statement saw counts, and not only what the first did; and
    /// that a statement which waited for a writer saw that one.
    pub later_looks: bool,
    pub rechecks: bool,
    /// One that could not insert a row saw what could be seen when it had failed.
    pub losers: bool,
    /// Who writes a row waits for those that could not insert it before.
    pub changes: bool,
    /// Levels computed wrongly on purpose.
    pub slip: Option<Slip>,
    /// Whether snapshots are compared as sets. Without, only what the service reads can give a
    /// wrong snapshot away.
    pub compare_sets: bool,
}

impl Rules {
    pub const ALL: Self = Self {
        a: true,
        b: true,
        c: true,
        later_looks: true,
        rechecks: true,
        losers: true,
        changes: true,
        slip: None,
        compare_sets: true,
    };
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slip {
    /// Every level is one too low.
    LevelTooLow,
    /// Every level is one too high, as far as there are levels and no writer sees itself.
    LevelTooHigh,
    /// Every writer is taken to be visible one level later.
    VisibleTooLate,
}

/// What becomes of `SELECT … FOR UPDATE` and `FOR SHARE` in replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowLocks {
    /// They are sent without the locking clause. All replayed transactions committed, so none needs
    /// protection.
    NotTaken,
    /// They lock, and the statements that lock are ordered among themselves.
    OrderedAmongThemselves,
    /// They lock, and everything that touches a row's locks is ordered: locking, writing, undoing,
    /// ending. In the order in which the database executed it, which cannot be seen from outside.
    OrderedWithAll,
    /// The same, as a recorder on the wire sees it: what takes locks when it is answered, what
    /// releases them when it is sent.
    OrderedWithAllAsSeen,
}

/// Who may be sent again when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resend {
    /// Anybody, at any time.
    AtOnce,
    /// The first by arrival whose first transaction may take its snapshot, while fewer are in
    /// flight than when it arrived. Sounds right and is not; kept to show why.
    AsManyAsWhenItArrived,
    /// [`hindcast_order::admission`].
    Admission,
    /// Admission of requests and, with the same rule, of transactions to executing; a request whose
    /// transaction sits on a connection without being admitted is taken back when nothing moves any
    /// more, and sent again when its turn has come. What it had done by then is served from the
    /// record.
    AdmissionTakingBack,
    /// In the order of admission, any number at a time, and requests go on by
    /// [`hindcast_order::openings`].
    OpeningsInOrder,
    /// Wrong on purpose: as many as admission would have in flight, but in order of arrival.
    ByArrival,
    /// Wrong on purpose: admission with a limit that is one too high.
    OneTooMany,
}

/// How a replay ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    Faithful,
    Diverged(String),
    Stuck(Vec<(Place, Waiting)>),
}

impl History {
    /// The recorded committed transactions, in the order in which they began: those that replay
    /// executes.
    pub fn executed(&self) -> Vec<usize> {
        (0..self.transactions.len())
            .filter(|&t| self.transactions[t].committed)
            .collect()
    }

    /// Of those that replay executes, and behind them of their [`History::later_looks`].
    pub fn levels(&self) -> Levels {
        self.levels_by(Rules::ALL)
    }

    fn levels_by(&self, rules: Rules) -> Levels {
        let executed = self.executed();
        let each = || {
            (0..)
                .map(Tx)
                .zip(executed.iter().map(|&t| &self.transactions[t]))
        };
        let later = self.later_looks();
        let mut writers = Writers::new(executed.len() + later.len());
        for (tx, t) in each() {
            if let Some(xid) = t.xid {
                writers.insert(tx, xid);
            }
        }
        let ordered = "what a database shows is ordered";
        let mut snapshots = writers.sorted().expect(ordered);
        let first = each().map(|(tx, _)| (tx, tx, 0));
        let later = (executed.len() as u32..).map(Tx).zip(later);
        let later = later.map(|(look, (of, nth))| (look, of, nth));
        for (look, of, nth) in first.chain(later) {
            let t = &self.transactions[executed[of.index()]];
            let Some(seen) = t.looks.get(nth) else {
                continue;
            };
            if t.is_blind(seen) || look != of && !rules.later_looks {
                continue;
            }
            let behind = seen.behind.as_ref().filter(|_| rules.losers);
            let as_good_as = match (behind, seen.rechecked && rules.rechecks) {
                (Some(behind), _) => Some(behind),
                (None, true) if seen.behind.is_none() => {
                    t.looks.get(nth + 1).map(|next| &next.snapshot)
                }
                (None, _) => Some(&seen.snapshot),
            };
            match as_good_as {
                Some(seen) => snapshots.insert_look(look, of, seen).expect(ordered),
                None => snapshots.insert_end(look, of),
            }
        }
        for (tx, t) in each() {
            let end = t.stamps.last().expect("the end was sent");
            snapshots.committed_at(tx, end.executed);
        }
        snapshots.levels().expect(ordered)
    }

    /// The looks of executed transactions after their first: whose each is, and its number there.
    fn later_looks(&self) -> Vec<(Tx, usize)> {
        let each = (0..).map(Tx).zip(self.executed());
        let later =
            |(tx, t): (Tx, usize)| (1..self.transactions[t].looks.len()).map(move |nth| (tx, nth));
        each.flat_map(later).collect()
    }

    fn slipped(&self, slip: Slip) -> Levels {
        let right = self.levels();
        let last = right.level_count().saturating_sub(1);
        let mut level: Vec<_> = right.transactions().map(|tx| right.level_of(tx)).collect();
        let mut visible: Vec<_> = right
            .transactions()
            .map(|tx| right.visible_from(tx))
            .collect();
        let add = |l: &mut Option<Level>, most: u32| *l = l.map(|l| Level((l.0 + 1).min(most)));
        for (l, v) in level.iter_mut().zip(&mut visible) {
            match slip {
                Slip::LevelTooLow => *l = l.map(|l| Level(l.0.saturating_sub(1))),
                Slip::LevelTooHigh => add(l, last.min(v.map_or(last, |v| v.0 - 1))),
                Slip::VisibleTooLate => add(v, last + 1),
            }
        }
        // The number of levels must not change with the slip, so a phantom that is not waited for
        // has the last one.
        level.push(Some(Level(last)));
        visible.push(None);
        Levels::from_parts(&level, &visible)
    }

    /// What a recorder can know of when each request used the database.
    pub fn spans(&self) -> Vec<Span> {
        let span = |request: &record::Request| {
            let of = |t: &usize| &self.transactions[*t];
            Span {
                first: request
                    .transactions
                    .first()
                    .map_or(request.arrived, |t| of(t).began),
                last: request.transactions.last().map(|t| of(t).ended),
            }
        };
        self.requests.iter().map(span).collect()
    }

    /// How many connections are enough for a replay.
    pub fn spans_overlap(&self) -> usize {
        self.admission(0).overlap()
    }

    fn admission(&self, too_many: usize) -> Admission {
        let in_flight = admission::overlap(self.requests.iter().map(|r| (r.arrived, r.ended)));
        // The number of sessions that were in use at one time, which is what a recorder sees of a
        // pool.
        let sessions = self.transactions.iter().map(|t| (t.began, t.ended));
        let spans = self.spans();
        let limit = Admission::new(&spans, in_flight.min(admission::overlap(sessions))).limit();
        Admission::new(&spans, limit + too_many)
    }

    /// Transactions that execute hold a connection, and no more of them did at one time than there
    /// were connections.
    fn executing(&self) -> Admission {
        let span = |t: usize| Span {
            first: self.transactions[t].began,
            last: Some(self.transactions[t].ended),
        };
        let spans: Vec<Span> = self.executed().into_iter().map(span).collect();
        Admission::new(&spans, 1)
    }

    /// All transactions, as they began.
    fn openings(&self) -> Vec<Tx> {
        let mut line: Vec<Tx> = (0..self.transactions.len() as u32).map(Tx).collect();
        line.sort_by_key(|tx| self.transactions[tx.index()].began);
        line
    }

    fn lock_steps(&self, row_locks: RowLocks) -> Vec<LockStep> {
        let all = matches!(
            row_locks,
            RowLocks::OrderedWithAll | RowLocks::OrderedWithAllAsSeen
        );
        let among = row_locks == RowLocks::OrderedAmongThemselves;
        let completed = |stamps: Stamps, releases: bool| match row_locks {
            RowLocks::OrderedWithAll => stamps.executed,
            _ if releases => stamps.sent,
            _ => stamps.answered,
        };
        let mut steps = Vec::new();
        for (tx, t) in (0..).map(Tx).zip(self.executed()) {
            let t = &self.transactions[t];
            let mut targets = Vec::new();
            for (statement, &(op, _)) in t.statements.iter().enumerate() {
                // One target for all advisory locks and one for every two rows, as coarse as table
                // names.
                let on = match op {
                    Op::Advisory(_) => vec![u64::MAX],
                    Op::LockRow(row, _) if all || among => vec![u64::from(row / 2)],
                    Op::Write(row, _) if all => vec![u64::from(row / 2)],
                    Op::RollbackTo if all => targets.clone(),
                    _ => Vec::new(),
                };
                for target in on {
                    steps.push(LockStep {
                        tx,
                        at: StepAt::Statement(statement as u32),
                        target,
                        completed: completed(t.stamps[statement], op == Op::RollbackTo),
                    });
                    if all && !targets.contains(&target) {
                        targets.push(target);
                    }
                }
            }
            steps.extend(targets.into_iter().map(|target| LockStep {
                tx,
                at: StepAt::End,
                target,
                completed: completed(t.stamps[t.statements.len()], true),
            }));
        }
        steps
    }

    /// Where a statement of an executed transaction is in the schedule.
    fn look_at(&self, tx: Tx, statement: usize, later: &[(Tx, usize)]) -> Tx {
        let executed = self.executed();
        let begun = self.looks_begun(executed[tx.index()], statement);
        look(executed.len(), later, tx, begun.saturating_sub(1)).unwrap_or(tx)
    }

    /// The first look of a transaction behind a statement.
    fn look_after(&self, tx: Tx, statement: usize, later: &[(Tx, usize)]) -> Option<Tx> {
        let executed = self.executed();
        let begun = self.looks_begun(executed[tx.index()], statement);
        look(executed.len(), later, tx, begun).filter(|_| begun > 0)
    }

    /// How many looks of a recorded transaction begin by this statement.
    fn looks_begun(&self, t: usize, statement: usize) -> usize {
        let looks = &self.transactions[t].looks;
        looks.partition_point(|look| look.statement <= statement)
    }

    /// Whether a statement writes a row that others may insert.
    fn changes(&self, op: Op) -> bool {
        matches!(op, Op::Write(row, _) if usize::from(row) >= self.habits.rows)
    }

    /// The inserts that found their row there. The rows that are inserted are one table.
    fn lost(&self, later: &[(Tx, usize)]) -> Vec<Lost> {
        let mut lost = Vec::new();
        for (tx, t) in (0..).map(Tx).zip(self.executed()) {
            for (statement, &(_, answer)) in self.transactions[t].statements.iter().enumerate() {
                if answer == Answer::Duplicate {
                    lost.push(Lost {
                        table: 0,
                        tx,
                        statement: statement as u32,
                        look: self.look_at(tx, statement, later),
                    });
                }
            }
        }
        lost
    }

    /// Replays the history. The seed decides what the scheduler does, as far as the strategy leaves
    /// it a choice.
    pub fn replay(&self, seed: u64, options: Options) -> Outcome {
        let mut tx_of = vec![None; self.transactions.len()];
        for (tx, t) in (0..).map(Tx).zip(self.executed()) {
            tx_of[t] = Some(tx);
        }
        let levels = match options.rules.slip {
            None => self.levels_by(options.rules),
            Some(slip) => self.slipped(slip),
        };
        let later = self.later_looks();
        let looks = self.executed().len() + later.len();
        let losers = Losers::new(self.lost(&later), &levels);
        let mut replayer = Replayer {
            history: self,
            options,
            schedule: Schedule::new(levels, self.lock_steps(options.row_locks)),
            tx_of,
            executed: self.executed(),
            admission: match options.resend {
                Resend::OpeningsInOrder => Admission::new(&self.spans(), usize::MAX),
                resend => self.admission(usize::from(resend == Resend::OneTooMany)),
            },
            sent: vec![false; self.requests.len()],
            executing: self.executing(),
            taken_back: Vec::new(),
            through: vec![0; self.requests.len()],
            openings: Openings::new(self.openings()),
            committed: Vec::new(),
            later,
            looked: HashMap::new(),
            losers,
            late: HashSet::new(),
            ran: HashMap::new(),
        };
        for phantom in replayer.schedule.levels().transactions().skip(looks) {
            replayer.schedule.abandon(phantom);
        }
        let rng = Rng::new(seed, "replay");
        let mut service = Service::new(
            &self.inputs,
            self.habits,
            options.resources,
            options.strategy,
            rng,
        );
        match service.run(&mut replayer) {
            End::Objected(Objection(what)) => Outcome::Diverged(what),
            End::Stuck(who) => Outcome::Stuck(who),
            End::Finished if service.database.state() != self.state => {
                Outcome::Diverged("the final state".to_owned())
            }
            End::Finished => Outcome::Faithful,
        }
    }
}

/// A look of a transaction in the schedule, in which those after the first, `later`, are behind all
/// transactions.
fn look(executed: usize, later: &[(Tx, usize)], tx: Tx, nth: usize) -> Option<Tx> {
    if nth == 0 {
        return Some(tx);
    }
    let at = later.binary_search(&(tx, nth)).ok()?;
    Some(Tx((executed + at) as u32))
}

struct Replayer<'a> {
    history: &'a History,
    options: Options,
    schedule: Schedule,
    /// By recorded transaction.
    tx_of: Vec<Option<Tx>>,
    executed: Vec<usize>,
    admission: Admission,
    sent: Vec<bool>,
    /// Executing transactions, each in the place of a request.
    executing: Admission,
    /// Requests that were taken back, with the transaction that each is to go on with.
    taken_back: Vec<(usize, Tx)>,
    /// By request: how many of its transactions need not be executed again if it is taken back.
    through: Vec<usize>,
    /// Of all that were recorded.
    openings: Openings,
    /// Recorded writers that have committed again.
    committed: Vec<Tx>,
    /// Of transactions, after their first: their places are behind those of transactions.
    later: Vec<(Tx, usize)>,
    /// How many looks each has taken, and how many of them are over.
    looked: HashMap<Tx, (usize, usize)>,
    losers: Losers,
    /// Those whose next statement waits for one that waits for what it does not see.
    late: HashSet<Tx>,
    /// How many statements each has run.
    ran: HashMap<Tx, usize>,
}

impl Replayer<'_> {
    fn recorded(&self, at: Place) -> &record::Transaction {
        &self.history.transactions[self.history.requests[at.request].transactions[at.nth]]
    }

    fn tx(&self, at: Place) -> Tx {
        self.tx_of[self.history.requests[at.request].transactions[at.nth]].expect("it is executed")
    }

    /// Whether the request may go on to begin this one of its transactions.
    fn may_begin(&self, request: usize, nth: usize) -> bool {
        let next = self.history.requests[request].transactions.get(nth);
        next.is_none_or(|&t| self.openings.may_begin(Tx(t as u32)))
    }

    /// A look of a transaction, in the schedule.
    fn look(&self, tx: Tx, nth: usize) -> Option<Tx> {
        look(self.executed.len(), &self.later, tx, nth)
    }

    /// That a statement looked is known when it is answered.
    fn looks_are_over(&mut self, tx: Tx) {
        let Some((taken, over)) = self.looked.get_mut(&tx) else {
            return;
        };
        let known = std::mem::replace(over, *taken)..*taken;
        for nth in known {
            let Some(look) = self.look(tx, nth) else {
                continue;
            };
            self.schedule.took_snapshot(look);
            if look != tx {
                self.schedule.committed(look);
            }
        }
    }

    /// What a statement looks at that writes a row which others may insert, and what could be seen
    /// at most when it did.
    fn change(&self, tx: Tx, at: Place, statement: usize) -> Option<(Level, Level)> {
        let &(op, _) = self.recorded(at).statements.get(statement)?;
        if !self.history.changes(op) {
            return None;
        }
        let levels = self.schedule.levels();
        let level = levels.level_of(self.history.look_at(tx, statement, &self.later))?;
        let next = self.history.look_after(tx, statement, &self.later);
        let until = losers::latest(levels, tx, next)?;
        Some((level, until.max(level)))
    }

    /// The request whose turn it is under [`Resend::AsManyAsWhenItArrived`].
    fn first_that_qualifies(&self, in_flight: usize) -> Option<usize> {
        let may_begin = |request: &record::Request| {
            let first = request.transactions.iter().find_map(|&t| self.tx_of[t]);
            first.is_none_or(|tx| self.schedule.may_take_snapshot(tx))
        };
        let mut requests = self.history.requests.iter().enumerate();
        let qualifies = |at: usize, r: &record::Request| {
            !self.sent[at] && in_flight < r.in_flight && may_begin(r)
        };
        requests.find(|&(at, r)| qualifies(at, r)).map(|(at, _)| at)
    }

    fn same_statement(&self, at: Place, statement: usize, op: Op) -> Result<Answer, Objection> {
        match self.recorded(at).statements.get(statement) {
            Some(&(recorded, answer)) if recorded == op => Ok(answer),
            recorded => Err(Objection(format!(
                "{at:?} statement {statement}: {op:?}, recorded {recorded:?}"
            ))),
        }
    }
}

impl Director for Replayer<'_> {
    fn arrival(&self, in_flight: usize) -> Option<usize> {
        match self.options.resend {
            Resend::AtOnce => self.sent.iter().position(|sent| !sent),
            Resend::AsManyAsWhenItArrived => self.first_that_qualifies(in_flight),
            Resend::ByArrival if in_flight >= self.admission.limit() => None,
            Resend::ByArrival => self.sent.iter().position(|sent| !sent),
            Resend::OpeningsInOrder => {
                let next = self.admission.next().map(Request::index);
                next.filter(|&request| self.may_begin(request, 0))
            }
            Resend::Admission | Resend::OneTooMany | Resend::AdmissionTakingBack => {
                let turn = |&&(_, tx): &&(usize, Tx)| self.executing.next() == Some(Request(tx.0));
                let again = self
                    .taken_back
                    .iter()
                    .find(turn)
                    .map(|&(request, _)| request);
                again.or_else(|| self.admission.next().map(Request::index))
            }
        }
    }

    fn may_start(&self, at: Place) -> bool {
        let turn = Some(Request(self.tx(at).0));
        self.options.resend != Resend::AdmissionTakingBack || self.executing.next() == turn
    }

    fn may_hear(&self, at: Place) -> bool {
        self.options.resend != Resend::OpeningsInOrder || self.may_begin(at.request, at.nth + 1)
    }

    fn let_go(&mut self, _: &[(Place, Waiting)]) -> bool {
        self.options.resend == Resend::OpeningsInOrder && self.openings.pass().is_some()
    }

    fn started(&mut self, at: Place) {
        if self.options.resend == Resend::AdmissionTakingBack {
            self.executing.sent(Request(self.tx(at).0));
        }
    }

    fn take_back(&mut self, stuck: &[(Place, Waiting)]) -> Option<usize> {
        let idle = stuck
            .iter()
            .filter(|(_, waiting)| *waiting == Waiting::Start);
        let (tx, request) = idle.map(|&(at, _)| (self.tx(at), at.request)).max()?;
        self.taken_back.push((request, tx));
        Some(request)
    }

    fn may_take_snapshot(&self, at: Place) -> bool {
        let tx = self.tx(at);
        let taken = self.looked.get(&tx).map_or(0, |&(taken, _)| taken);
        let look = self.look(tx, taken).unwrap_or(tx);
        !self.options.rules.a || self.schedule.may_take_snapshot(look)
    }

    fn may_execute(&self, at: Place, statement: usize) -> bool {
        let tx = self.tx(at);
        let may_lock = !self.options.rules.c || self.schedule.may_lock(tx, statement as u32);
        let changes = self.options.rules.changes;
        may_lock && (!changes || self.losers.may_change(tx, statement as u32))
    }

    fn may_commit(&self, at: Place) -> bool {
        !self.options.rules.b || self.schedule.may_commit(self.tx(at))
    }

    fn arrived(&mut self, request: usize, _: i64) {
        self.taken_back.retain(|&(other, _)| other != request);
        if !std::mem::replace(&mut self.sent[request], true) {
            self.admission.sent(Request(request as u32));
        }
    }

    fn began(&mut self, at: Place, _: i64) -> Result<Runs, Objection> {
        let own = &self.history.requests[at.request].transactions;
        if let Some(&t) = own.get(at.nth) {
            self.openings.came(Tx(t as u32));
        }
        match self.history.requests[at.request].transactions.get(at.nth) {
            None => Err(Objection(format!("{at:?} was not recorded"))),
            Some(_) if at.nth < self.through[at.request] => Ok(Runs::FromRecord),
            Some(&t) if self.tx_of[t].is_some() => Ok(Runs::InDatabase),
            Some(_) => Ok(Runs::FromRecord),
        }
    }

    fn sent(&mut self, at: Place) {
        let index = self.history.requests[at.request].transactions.get(at.nth);
        let Some(tx) = index.and_then(|&t| self.tx_of[t]) else {
            return;
        };
        let statement = self.ran.get(&tx).copied().unwrap_or_default();
        if let Some((level, until)) = self.change(tx, at, statement) {
            let at = (tx, statement as u32);
            if self.losers.asks(at, &[0], level, until) {
                self.late.insert(tx);
            }
        }
    }

    fn took_snapshot(&mut self, at: Place, _: &Snapshot) -> Result<(), Objection> {
        let tx = self.tx(at);
        let taken = self.looked.entry(tx).or_default();
        let nth = taken.0;
        taken.0 += 1;
        let recorded = self.recorded(at);
        let look = recorded.looks.get(nth);
        let look = look.ok_or_else(|| Objection(format!("{at:?} did not look originally")))?;
        // What went on with newer rows saw more than its snapshot.
        let saw_more = look.rechecked || look.behind.is_some();
        if self.options.rules.compare_sets && !saw_more && !recorded.is_blind(look) {
            let recorded = &look.snapshot;
            for &t in &self.executed {
                let (Some(writer), Some(xid)) = (self.tx_of[t], self.history.transactions[t].xid)
                else {
                    continue;
                };
                let saw = recorded.sees(xid) && writer != tx;
                if saw != self.committed.contains(&writer) {
                    return Err(Objection(format!(
                        "{at:?} saw {writer}: {saw} originally, {} now",
                        !saw
                    )));
                }
            }
        }
        // One that lasts is asked for before the statement.
        let is_late = self.late.remove(&tx);
        if is_late || !self.recorded(at).read_committed {
            self.looks_are_over(tx);
        }
        Ok(())
    }

    fn instead(&self, op: Op) -> Op {
        match op {
            Op::LockRow(row, _) if self.options.row_locks == RowLocks::NotTaken => Op::Read(row),
            op => op,
        }
    }

    fn serve(&mut self, at: Place, statement: usize, op: Op) -> Result<Answer, Objection> {
        self.same_statement(at, statement, op)
    }

    fn executed(
        &mut self,
        at: Place,
        statement: usize,
        op: Op,
        answer: Answer,
    ) -> Result<(), Objection> {
        let recorded = self.same_statement(at, statement, op)?;
        let tx = self.tx(at);
        self.looks_are_over(tx);
        self.losers.done(tx, statement as u32);
        self.ran.insert(tx, statement + 1);
        if recorded != answer {
            return Err(Objection(format!(
                "{at:?} {op:?}: {answer:?}, recorded {recorded:?}"
            )));
        }
        Ok(())
    }

    fn answered(&mut self, at: Place, statement: usize) {
        let tx = self.tx(at);
        self.schedule.locked(tx, statement as u32);
    }

    fn ended(&mut self, at: Place, committed: bool, xid: Option<Xid>) -> Result<(), Objection> {
        let recorded = self.recorded(at);
        // Having locked rows gives an id too, and replay may leave the lock out.
        if !committed || (xid.is_some() && recorded.xid.is_none()) {
            return Err(Objection(format!(
                "{at:?} ended otherwise: committed {committed}, id {xid:?}"
            )));
        }
        let tx = self.tx(at);
        if recorded.xid.is_some() {
            self.committed.push(tx);
        }
        self.schedule.committed(tx);
        self.losers.over(tx);
        // Those that a rollback to a savepoint kept from coming, too.
        let taken = self.looked.get(&tx).map_or(0, |&(taken, _)| taken);
        let mut nth = taken.max(1);
        while let Some(look) = self.look(tx, nth) {
            self.schedule.committed(look);
            nth += 1;
        }
        Ok(())
    }

    fn ended_known(&mut self, at: Place, _: i64) {
        let index = self.history.requests[at.request].transactions[at.nth];
        if let Some(tx) = self.tx_of[index] {
            self.executing.ended(Request(tx.0));
            self.through[at.request] = self.through[at.request].max(at.nth + 1);
        }
    }

    fn responded(&mut self, request: usize, response: u64, _: i64) -> Result<(), Objection> {
        self.admission.ended(Request(request as u32));
        let recorded = &self.history.requests[request];
        if recorded.response != response {
            return Err(Objection(format!(
                "request {request} was answered otherwise"
            )));
        }
        Ok(())
    }
}
