//! Changed code on a history, under the rules of `hindcast_order::retroaction`; and what must hold
//! of it whatever was changed.

use std::collections::{HashMap, HashSet};

use hindcast_model::{Snapshot, Xid};
use hindcast_order::retroaction::{Origin, Past, Retroaction, Victim};
use hindcast_order::{Admission, Levels, Observed, Request, Span, Tx, admission};

use crate::changed::{Change, Changed, Program};
use crate::database::{Answer, Op};
use crate::handler::Handler;
use crate::record::{History, Transaction};
use crate::rng::Rng;
use crate::service::{
    Director, End, Objection, Place, Resources, Runs, Service, Strategy, Waiting,
};

/// Which rules are obeyed; leaving one out must be noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    pub snapshot: bool,
    /// Who saw that another one had been rolled back waits for that.
    pub undone: bool,
    pub commit: bool,
    /// Who lost a conflict acts after who won it.
    pub losers_last: bool,
    /// What reads only originally and writes now commits in its place.
    pub new_writers: bool,
    pub yields: bool,
}

impl Rules {
    pub const ALL: Self = Self {
        snapshot: true,
        undone: true,
        commit: true,
        losers_last: true,
        new_writers: true,
        yields: true,
    };
}

/// How to run it.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    pub rules: Rules,
    pub strategy: Strategy,
    /// Requests are sent again as admission says, with as many connections as are enough.
    pub admission: bool,
    /// Failures that were followed by another transaction of the request are left out, as having
    /// been tried again.
    pub leave_out_retried: bool,
}

/// How it ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    Finished(Findings),
    /// A guarantee was broken.
    Broken(String),
    Stuck(Vec<(Place, Waiting)>),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Findings {
    /// How often order had to be given up.
    pub let_go: usize,
    pub yielded: usize,
    pub added: usize,
    pub absorbed: usize,
    /// Nothing at all was different.
    pub same: bool,
}

impl History {
    /// A change that makes sense for this history.
    pub fn change(&self, seed: u64) -> Change {
        let mut rng = Rng::new(seed, "change");
        let rows = self.habits.rows as u8;
        let nth = rng.below(self.habits.transactions_max);
        let row = rng.below(self.habits.rows) as u8;
        match rng.below(6) {
            0 => Change::Analysis,
            1 => Change::OtherRows { rows },
            2 => Change::Deleted { nth },
            3 => Change::Merged { nth },
            4 => Change::Added { nth, row },
            _ => Change::Writes { nth, row },
        }
    }

    /// Runs changed code. Requests for which `skip` holds are left out.
    pub fn retroact(
        &self,
        seed: u64,
        change: Change,
        skip: impl Fn(usize) -> bool,
        options: Options,
    ) -> Outcome {
        let mut director = Retroactor::new(self, skip, options);
        let program =
            |&input: &u64| Program::Changed(Changed::new(Handler::new(input, self.habits), change));
        let resources = Resources {
            workers: usize::MAX,
            connections: usize::MAX,
            ..self.resources
        };
        let mut service = Service::of(
            self.inputs.iter().map(program).collect(),
            self.habits,
            resources,
            options.strategy,
            Rng::new(seed, "retroaction"),
        );
        for request in 0..self.requests.len() {
            if director.skipped[request] {
                service.leave_out(request);
            }
        }
        match service.run(&mut director) {
            End::Objected(Objection(what)) => Outcome::Broken(what),
            End::Stuck(stuck) => Outcome::Stuck(stuck),
            End::Finished => {
                director.findings.same &= service.database.state() == self.state;
                Outcome::Finished(director.findings)
            }
        }
    }

    /// Whether every failure will come again: none was a deadlock, which depends on who closes the
    /// circle; none that the database made fail had held rows until then, which others get first if
    /// it acts last; and nobody got a row of one that was rolled back by waiting for it, which no
    /// snapshot shows.
    pub fn fails_again(&self) -> bool {
        self.transactions
            .iter()
            .all(|t| match t.statements.split_last() {
                Some(((_, Answer::Deadlock), _)) => false,
                Some(((_, Answer::Serialization), before)) => rows(before).next().is_none(),
                _ => t.committed || self.transactions.iter().all(|other| apart(t, other)),
            })
    }
}

/// Whether two transactions took no row in common, or one of them saw that the other was over.
fn apart(one: &Transaction, other: &Transaction) -> bool {
    let saw_end = |of: &Transaction, by: &Transaction| {
        let xid = of.xid.or(of.undone);
        xid.is_some_and(|xid| by.snapshot.as_ref().is_some_and(|saw| saw.sees(xid)))
    };
    let in_common =
        || rows(&one.statements).any(|row| rows(&other.statements).any(|its| its == row));
    one.place == other.place || saw_end(one, other) || saw_end(other, one) || !in_common()
}

/// The rows that these statements took.
fn rows(statements: &[(Op, Answer)]) -> impl Iterator<Item = u8> + '_ {
    statements.iter().filter_map(|&(op, _)| match op {
        Op::Write(row, _) | Op::LockRow(row, ..) => Some(row),
        _ => None,
    })
}

struct Retroactor<'a> {
    history: &'a History,
    options: Options,
    retroaction: Retroaction,
    admission: Admission,
    /// The requests that are not left out, as admission numbers them.
    kept: Vec<usize>,
    sent: Vec<bool>,
    skipped: Vec<bool>,
    /// By request: its recorded transactions that are not stood for yet.
    unclaimed: Vec<Vec<Tx>>,
    /// What each transaction of this run stands for; `None`: it was added.
    claims: HashMap<Place, Option<Tx>>,
    /// By request: the last transaction failed, though the recorded one did not.
    failed: HashSet<usize>,
    /// Rows that each transaction has written.
    wrote: HashMap<Place, HashSet<u8>>,
    /// Recorded transactions that are over in this run, and how.
    over: HashMap<Tx, bool>,
    /// Whose writes moved into whom.
    absorbed: HashMap<Tx, Tx>,
    /// Read only originally and wrote now, without having absorbed anybody.
    became: HashSet<Tx>,
    /// Order was given up for these.
    free: HashSet<Tx>,
    findings: Findings,
}

impl<'a> Retroactor<'a> {
    fn new(history: &'a History, skip: impl Fn(usize) -> bool, options: Options) -> Self {
        let skipped: Vec<bool> = (0..history.requests.len()).map(skip).collect();
        let left = |t: usize| {
            let one = &history.transactions[t];
            let next = Place {
                nth: one.place.nth + 1,
                ..one.place
            };
            let has_next = history.requests[next.request].transactions.len() > next.nth;
            skipped[one.place.request]
                || options.leave_out_retried && failed(history, t) && has_next
        };
        let origin = |t: usize| match history.transactions[t].committed {
            _ if left(t) => Origin::Left,
            true => Origin::Committed,
            false => Origin::Aborted,
        };
        let observed: Vec<Observed<'_>> = history
            .transactions
            .iter()
            .enumerate()
            .map(|(t, one)| match origin(t) {
                Origin::Left => Observed::default(),
                _ => one.observed_to_end(options.rules.undone),
            })
            .collect();
        let levels = Levels::of(&observed).expect("what a database shows is ordered");
        let past = (0..history.transactions.len())
            .map(|t| Past {
                began: history.transactions[t].began,
                ended: history.transactions[t].ended,
                origin: origin(t),
                request: Some(Request(history.transactions[t].place.request as u32)),
            })
            .collect();
        let unclaimed = history
            .requests
            .iter()
            .map(|request| {
                let own = request
                    .transactions
                    .iter()
                    .filter(|&&t| origin(t) != Origin::Left);
                own.map(|&t| Tx(t as u32)).collect()
            })
            .collect();
        let in_flight = admission::overlap(history.requests.iter().map(|r| (r.arrived, r.ended)));
        let kept: Vec<usize> = (0..skipped.len()).filter(|&r| !skipped[r]).collect();
        let spans = history.spans();
        let spans: Vec<Span> = kept.iter().map(|&request| spans[request]).collect();
        Self {
            retroaction: Retroaction::new(levels, past, []),
            admission: Admission::new(&spans, in_flight),
            kept,
            sent: skipped.clone(),
            skipped,
            unclaimed,
            claims: HashMap::new(),
            failed: HashSet::new(),
            wrote: HashMap::new(),
            over: HashMap::new(),
            absorbed: HashMap::new(),
            became: HashSet::new(),
            free: HashSet::new(),
            findings: Findings {
                same: true,
                ..Findings::default()
            },
            history,
            options,
        }
    }

    fn admitted(&self, request: usize) -> Request {
        let at = self.kept.binary_search(&request);
        Request(at.expect("it is not left out") as u32)
    }

    fn tx(&self, at: Place) -> Option<Tx> {
        self.claims.get(&at).copied().flatten()
    }

    fn recorded(&self, tx: Tx) -> &crate::record::Transaction {
        &self.history.transactions[tx.index()]
    }

    fn leave(&mut self, tx: Tx) {
        self.over.insert(tx, false);
        self.retroaction.leave(tx);
    }

    /// Whether a transaction must have taken its snapshot before another one had ended, as far as
    /// can be told: it began before, and saw nobody who began later, or whom such a one missed.
    fn took_snapshot_before_end(&self, tx: Tx, other: Tx) -> bool {
        let levels = self.retroaction.schedule().levels();
        let ended = self.recorded(other).ended;
        let later = levels
            .transactions()
            .filter(|&one| self.recorded(one).began > ended);
        let (missed, saw): (Vec<_>, Vec<_>) = later
            .map(|one| (levels.level_of(one), levels.visible_from(one)))
            .unzip();
        let own = levels.level_of(tx);
        let mut missed = missed.into_iter().flatten();
        let mut saw = saw.into_iter().flatten();
        self.recorded(tx).began <= ended
            && missed.all(|level| own <= Some(level))
            && saw.all(|level| own < Some(level))
    }

    /// Guarantee 3, and with it 2: what a transaction must see is over, and what it must not see
    /// has not committed.
    fn check(&self, tx: Tx) -> Result<(), Objection> {
        let own = self.recorded(tx);
        let Some(snapshot) = &own.snapshot else {
            return Ok(());
        };
        let broken = |what: &str, w: Tx| Err(Objection(format!("{tx} {what} {w}")));
        for (w, writer) in (0..self.history.transactions.len() as u32)
            .map(Tx)
            .map(|w| (w, self.recorded(w)))
        {
            let same_request = writer.place.request == own.place.request;
            if w == tx || self.free.contains(&w) {
                continue;
            }
            let was_over = writer.undone.is_some_and(|xid| snapshot.sees(xid));
            if was_over && !self.retroaction.is_over(w) {
                return broken("comes before the end of", w);
            }
            if !writer.committed {
                continue;
            }
            // Somebody else may have committed its writes.
            let absorber = self.absorbed.iter().find(|(_, later)| **later == w);
            let over = match absorber {
                Some((absorber, _)) if self.free.contains(absorber) => continue,
                Some((absorber, _)) => self.over.get(absorber),
                None => self.over.get(&w),
            };
            match writer.xid {
                Some(xid) => {
                    let saw = snapshot.sees(xid);
                    if saw && over.is_none() && !self.skipped[writer.place.request] {
                        return broken("does not see what it saw of", w);
                    }
                    // What comes later in a request sees what came before it, wherever that has
                    // moved.
                    let before_due = absorber.is_none_or(|(absorber, _)| {
                        let level = self.retroaction.schedule().levels().level_of(tx);
                        level.is_some_and(|level| level < self.retroaction.due(*absorber))
                    });
                    if !saw && over == Some(&true) && !same_request && before_due {
                        return broken("sees what it must not see of", w);
                    }
                }
                None if self.became.contains(&w)
                    && !same_request
                    && over == Some(&true)
                    && self.took_snapshot_before_end(tx, w) =>
                {
                    return broken("sees what was concurrent with it of", w);
                }
                None => {}
            }
        }
        Ok(())
    }
}

/// Whether the database made it fail.
fn failed(history: &History, t: usize) -> bool {
    let last = history.transactions[t].statements.last();
    last.is_some_and(|(_, answer)| answer.failed())
}

impl Director for Retroactor<'_> {
    fn arrival(&self, _: usize) -> Option<usize> {
        if self.options.admission {
            let next = self.admission.next()?;
            return Some(self.kept[next.index()]);
        }
        self.sent.iter().position(|sent| !sent)
    }

    fn arrived(&mut self, request: usize, _: i64) {
        self.sent[request] = true;
        if self.options.admission {
            self.admission.sent(self.admitted(request));
        }
    }

    fn may_take_snapshot(&self, at: Place) -> bool {
        let tx = self.tx(at);
        !self.options.rules.snapshot || tx.is_none_or(|tx| self.retroaction.may_take_snapshot(tx))
    }

    fn may_act(&self, at: Place, op: Op) -> bool {
        let acts = !matches!(op, Op::Read(_) | Op::Savepoint | Op::RollbackTo);
        let loser = self.tx(at).filter(|tx| failed(self.history, tx.index()));
        !self.options.rules.losers_last
            || !acts
            || loser.is_none_or(|tx| self.retroaction.may_act(tx))
    }

    fn may_commit(&self, at: Place) -> bool {
        !self.options.rules.commit || self.tx(at).is_none_or(|tx| self.retroaction.may_commit(tx))
    }

    fn is_complete(&mut self, at: Place, xid: Option<Xid>) {
        let Some(tx) = self.tx(at) else { return };
        // If it did without one it will not take one any more.
        self.retroaction.took_snapshot(tx);
        if xid.is_none() {
            return;
        }
        let recorded = self.recorded(tx);
        if recorded.xid.is_some() || !recorded.committed {
            return;
        }
        if !self.options.rules.new_writers {
            // Nothing holds it, but the check is to know.
            self.became.insert(tx);
            return;
        }
        let mine = self.wrote.get(&at).cloned().unwrap_or_default();
        let writes_one = |later: &Tx| {
            let later = self.recorded(*later);
            let mut written = later.statements.iter().filter_map(|(op, _)| match op {
                Op::Write(row, _) => Some(row),
                _ => None,
            });
            later.xid.is_some() && written.any(|row| mine.contains(row))
        };
        let own = &self.unclaimed[at.request];
        match own.iter().position(writes_one) {
            Some(later) => {
                let later = self.unclaimed[at.request].remove(later);
                self.findings.absorbed += 1;
                self.absorbed.insert(tx, later);
                self.retroaction
                    .absorb(tx, later, &self.unclaimed[at.request]);
            }
            None => {
                self.became.insert(tx);
                self.retroaction.became_writer(tx);
            }
        }
    }

    fn yields(&self, at: Place, holder: Place) -> bool {
        let Some(holder) = self.tx(holder).filter(|_| self.options.rules.yields) else {
            return false;
        };
        let tx = self.tx(at);
        let ended = match tx {
            Some(tx) => self.recorded(tx).ended,
            None => self.history.requests[at.request].ended,
        };
        let victim = Victim {
            tx,
            ended,
            unclaimed: &self.unclaimed[at.request],
        };
        self.retroaction.must_yield(victim, holder)
    }

    fn let_go(&mut self, stuck: &[(Place, Waiting)]) -> bool {
        let held = |waiting: &Waiting| {
            matches!(
                waiting,
                Waiting::Snapshot | Waiting::Commit | Waiting::Statement
            )
        };
        let waiting = stuck.iter().filter(|(_, waiting)| held(waiting));
        let Some(first) = waiting.filter_map(|(at, _)| self.tx(*at)).min() else {
            return false;
        };
        self.findings.let_go += 1;
        self.retroaction.let_go(first);
        self.free.insert(first)
    }

    fn began(&mut self, at: Place, _: i64) -> Result<Runs, Objection> {
        let retry = self.failed.remove(&at.request);
        let own = &mut self.unclaimed[at.request];
        let tx = (!retry && !own.is_empty()).then(|| own.remove(0));
        self.findings.added += usize::from(tx.is_none());
        self.findings.same &= tx.is_some();
        self.claims.insert(at, tx);
        Ok(Runs::InDatabase)
    }

    fn took_snapshot(&mut self, at: Place, _: &Snapshot) -> Result<(), Objection> {
        let Some(tx) = self.tx(at) else { return Ok(()) };
        if !self.free.contains(&tx) {
            self.check(tx)?;
        }
        self.retroaction.took_snapshot(tx);
        Ok(())
    }

    fn executed(
        &mut self,
        at: Place,
        statement: usize,
        op: Op,
        answer: Answer,
    ) -> Result<(), Objection> {
        if let Op::Write(row, _) = op
            && answer == Answer::Done
        {
            self.wrote.entry(at).or_default().insert(row);
        }
        let tx = self.tx(at);
        let recorded = tx.and_then(|tx| self.recorded(tx).statements.get(statement));
        let same = recorded == Some(&(op, answer));
        let recorded_failed = recorded.is_some_and(|(_, answer)| answer.failed());
        self.findings.same &= same;
        if answer.failed() && !recorded_failed && tx.is_some() {
            self.failed.insert(at.request);
        }
        Ok(())
    }

    fn ended(&mut self, at: Place, committed: bool, _: Option<Xid>) -> Result<(), Objection> {
        let Some(tx) = self.tx(at) else { return Ok(()) };
        self.findings.same &= committed == self.recorded(tx).committed;
        self.over.insert(tx, committed);
        match committed {
            true => self.retroaction.committed(tx),
            false => self.retroaction.failed(tx),
        }
        if let Some(&later) = self.absorbed.get(&tx) {
            self.over.insert(later, committed);
        }
        Ok(())
    }

    fn responded(&mut self, request: usize, response: u64, _: i64) -> Result<(), Objection> {
        if self.options.admission {
            self.admission.ended(self.admitted(request));
        }
        self.findings.same &= self.history.requests[request].response == response;
        for tx in std::mem::take(&mut self.unclaimed[request]) {
            self.findings.same = false;
            self.leave(tx);
        }
        Ok(())
    }
}
