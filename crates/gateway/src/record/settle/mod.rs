//! Finds out what the wire did not tell: transactions that passed no recorder, and those whose
//! answer was lost.
//!
//! ```text
//!   sessions ─Ledger─▶ Accounted ─┐
//!   server: which ids have ended ─┴▶ ids without a record ─▶ WAL ─▶ judge ─▶ nothing, or a gap
//! ```
//!
//! Every transaction id that a recorded snapshot can see must be accounted for. So each tick asks
//! the server, over a connection of our own, which ids have committed by now, and takes away those
//! of recorded transactions. For what is left, and only then, the server's WAL is read: it says in
//! which database and to which relations an id wrote, and whose subtransaction it is. [`judge`]
//! decides from that; no counter excuses an id.
//!
//! What was written past the recorder becomes a [`GapCause::Unaccounted`]. Where WAL cannot be read
//! (no REPLICATION, a managed server) rows that an id left in a table convict it, and what has left
//! none becomes a [`GapCause::Unexplained`]: it cannot be told.
//!
//! Ids are looked at one tick after the server was done with them, so that their records have had
//! time to arrive here. Start reading at [`Settler::tick`]; `accounted`, `marks` and `judge` are
//! pure.

mod accounted;
mod follow;
mod judge;
mod marks;
mod questions;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use hindcast_pg::tokio::{Client, Connector};
use hindcast_pg::{ConnectError, ConnectOptions};
use hindcast_trace::{Base, Gap, GapCause, Micros, Outcome, Snapshot, Transaction, Xid};
use tokio::sync::oneshot;

use super::kept::Kept;
use super::ledger::Unasked;
use super::sink::Sink;
use crate::http::Witness;
use accounted::Accounted;
use follow::{BACKLOG_BYTES, Follower, Unreadable};
use judge::{Around, Judgement, Relation, Wrote, judge};
use marks::{Mark, Marks};
use questions::{Activity, Moment, Unlogged};

/// How long a transaction whose answer was lost may stay in progress before it is recorded as
/// unknown.
const UNCERTAIN_PATIENCE: Duration = Duration::from_secs(60);
/// How long an id waits for what may explain it and does not show.
const LATER_MAX: Duration = Duration::from_secs(60);
/// How long it waits for a server that does not answer as it should.
const TRANSIENT_MAX: Duration = Duration::from_secs(10);
/// WAL that may not be read is asked for again after so long.
const DENIED_PAUSE: Duration = Duration::from_secs(60);
/// Ids that wait at most, for a procedure that commits many times.
const WAITING_MAX: usize = 1_000_000;
/// Two clocks agree as well as this, in microseconds.
const CLOCK_SLACK: Micros = 50_000;
/// For how long a statement whose ids are not known is kept in mind after its end.
const STATEMENT_KEPT: Micros = 120_000_000;

/// For [`Follower::read`], which has limits of its own, if the server falls silent.
const STRETCH_PATIENCE: Duration = Duration::from_secs(60);

/// The processes of the server that serve sessions of ours.
pub(super) type Sessions = Box<dyn Fn() -> Vec<u32> + Send + Sync>;

/// Why it cannot be told where ids without a record wrote, and what would help.
pub(super) async fn in_doubt(control: &Client) -> Result<Option<String>, hindcast_pg::Error> {
    Ok(questions::source(control)
        .await?
        .err()
        .map(|why| why.with_hint()))
}

/// From where on ids are accounted for.
pub(super) struct Beginning {
    snapshot: Snapshot,
    marks: Marks,
}

impl Beginning {
    /// To be asked before anything is recorded: of an id that was given out before the first mark
    /// it may not be known where its WAL begins.
    pub async fn ask(control: &Client) -> Result<Self, hindcast_pg::Error> {
        let mut marks = Marks::default();
        if let Some((at, bound)) = questions::checkpoint(control).await? {
            marks.push(Mark { bound, at });
        }
        let moment = Moment::ask(control).await?;
        marks.push(moment.mark());
        let snapshot = moment.snapshot;
        Ok(Self { snapshot, marks })
    }

    /// What it sees is not accounted for.
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// Accounting starts where a replay would: what was committed since the base was taken must be
    /// known.
    pub fn at(self, base: Option<&Base>) -> Self {
        match base {
            Some(base) => Self {
                snapshot: base.snapshot.clone(),
                ..self
            },
            None => self,
        }
    }
}

pub(super) struct Settler {
    connector: Arc<Connector>,
    sink: Arc<Sink>,
    control: Option<Client>,
    accounted: Accounted,
    /// Ids at or above `next` that some snapshot showed as running.
    running: BTreeSet<u64>,
    /// In progress when accounting started: to be looked at when they end.
    leftovers: BTreeSet<u64>,
    /// Ids below were looked at.
    next: u64,
    /// Ids below were finished at each of the last ticks, the oldest first.
    finished: VecDeque<(Micros, u64)>,
    /// Ids below were finished long enough ago for their records to have come.
    ripe: u64,
    /// When the last two ticks were.
    ticks: [Micros; 2],
    uncertain: Vec<(Transaction, Instant)>,
    marks: Marks,
    /// Committed, without a record, and it is not known what they wrote.
    open: BTreeMap<u64, Open>,
    /// It is known what these wrote, and not yet what they are.
    waiting: Vec<Waiting>,
    /// Statements of our own sessions whose ids are not known.
    statements: Vec<Unasked>,
    follower: Option<Follower>,
    denied: Option<(Instant, Unreadable)>,
    /// Where to say how far accounting is.
    kept: Option<Kept>,
    /// Ids below this were accounted for when so many records had been accepted, and it is not said
    /// yet.
    unsaid: Option<(u64, u64)>,
}

#[derive(Clone, Copy, Debug)]
struct Open {
    /// It committed after this moment.
    since: Micros,
    /// When it was looked at first.
    first: Instant,
    /// Some snapshot showed it as running, so it is no subtransaction.
    ran: bool,
}

/// A transaction, and its subtransactions as far as they were open.
#[derive(Clone, Debug)]
struct Waiting {
    top: u64,
    xids: Vec<u64>,
    /// Shared by those that wrote alike.
    wrote: Arc<Wrote>,
    /// When it committed, by the server's clock.
    at: Micros,
    first: Instant,
}

impl Waiting {
    fn ids(&self) -> impl Iterator<Item = u64> {
        std::iter::once(self.top).chain(self.xids.iter().copied())
    }
}

#[derive(Debug, thiserror::Error)]
enum SettleError {
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error("{}", crate::http::with_causes(.0))]
    Query(#[from] hindcast_pg::Error),
}

/// What was found out about ids, until it is written down.
#[derive(Default)]
struct Found {
    past_us: Stretch,
    wrote: BTreeSet<String>,
    /// By the reason.
    cannot_tell: BTreeMap<String, Stretch>,
}

/// Ids, and the time in which they committed, as closely as is known.
#[derive(Default)]
struct Stretch {
    xids: BTreeSet<u64>,
    times: Option<(Micros, Micros)>,
}

impl Stretch {
    fn add(&mut self, xid: u64, from: Micros, to: Micros) {
        self.xids.insert(xid);
        let (first, last) = self.times.unwrap_or((from, to));
        self.times = Some((first.min(from), last.max(to)));
    }

    fn gap(self, cause: impl FnOnce(Vec<Xid>) -> GapCause) -> Option<Gap> {
        let (from, to) = self.times?;
        let cause = cause(self.xids.into_iter().map(Xid).collect());
        Some(Gap { from, to, cause })
    }
}

impl Found {
    fn past_us(&mut self, xid: u64, wrote: &BTreeSet<String>, from: Micros, to: Micros) {
        self.past_us.add(xid, from, to);
        self.wrote.extend(wrote.iter().cloned());
    }

    fn doubts(&mut self, reason: String, xids: Vec<u64>, from: Micros, to: Micros) {
        let doubtful = self.cannot_tell.entry(reason).or_default();
        xids.into_iter().for_each(|xid| doubtful.add(xid, from, to));
    }

    /// `clock`: what to add to the server's to get ours.
    fn judged(&mut self, one: &Waiting, judgement: Judgement, clock: Micros) {
        let at = one.at + clock;
        let (from, to) = (at - CLOCK_SLACK, at + CLOCK_SLACK);
        match judgement {
            Judgement::Later | Judgement::Harmless | Judgement::Ours(_) => {}
            Judgement::PastUs(wrote) => {
                let ids = one.xids.iter();
                ids.for_each(|xid| self.past_us(*xid, &wrote, from, to));
            }
            Judgement::CannotTell(reason) => self.doubts(reason, one.xids.clone(), from, to),
        }
    }

    fn gaps(self) -> Vec<Gap> {
        let unexplained = |(reason, stretch): (String, Stretch)| {
            stretch.gap(|xids| GapCause::Unexplained { xids, reason })
        };
        let wrote = judge::list(&self.wrote);
        let past_us = self
            .past_us
            .gap(|xids| GapCause::Unaccounted { xids, wrote });
        let doubts = self.cannot_tell.into_iter().filter_map(unexplained);
        doubts.chain(past_us).collect()
    }
}

impl Settler {
    /// Accounts for everything that the beginning's snapshot does not see.
    pub fn new(
        connector: Arc<Connector>,
        control: Client,
        sink: Arc<Sink>,
        beginning: Beginning,
    ) -> Self {
        let since = beginning.snapshot;
        let bound = since.xmax.0;
        Self {
            connector,
            ticks: [sink.now(); 2],
            sink,
            control: Some(control),
            accounted: Accounted::starting_at(since.in_progress.first().map_or(bound, |xid| xid.0)),
            running: BTreeSet::new(),
            leftovers: since.in_progress.iter().map(|xid| xid.0).collect(),
            next: bound,
            finished: VecDeque::new(),
            ripe: bound,
            uncertain: Vec::new(),
            marks: beginning.marks,
            open: BTreeMap::new(),
            waiting: Vec::new(),
            statements: Vec::new(),
            follower: None,
            denied: None,
            kept: None,
            unsaid: None,
        }
    }

    /// How far it is is told to who goes on if we are killed.
    pub fn keeps(&mut self, kept: Option<Kept>) {
        self.kept = kept;
    }

    /// Until `stop` fires; then once more, for everything.
    pub async fn run(
        mut self,
        interval: Duration,
        sessions: Sessions,
        mut stop: oneshot::Receiver<()>,
    ) {
        let mut ticks = tokio::time::interval(interval);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = ticks.tick() => self.tick(&sessions, false).await,
                _ = &mut stop => break,
            }
        }
        // Twice: the first makes what is finished now count as finished.
        self.tick(&sessions, false).await;
        self.tick(&sessions, true).await;
        for (transaction, _) in std::mem::take(&mut self.uncertain) {
            self.sink.transaction(transaction);
        }
    }

    fn read_ledger(&mut self) {
        let told = self.sink.ledger().take();
        for xid in told.accounted {
            self.accounted.insert(xid);
            self.leftovers.remove(&xid);
            self.open.remove(&xid);
        }
        self.running.extend(told.running);
        self.statements.extend(told.unasked);
        let now = Instant::now();
        let uncertain = told.uncertain.into_iter();
        self.uncertain
            .extend(uncertain.map(|transaction| (transaction, now)));
    }

    async fn tick(&mut self, sessions: &Sessions, last: bool) {
        self.read_ledger();
        if let Err(error) = self.try_tick(sessions, last).await {
            // Nothing is lost: what was not looked at will be when the server is back.
            tracing::warn!(%error, "cannot ask the server which transactions are missing");
            self.follower = None;
        }
    }

    async fn try_tick(&mut self, sessions: &Sessions, last: bool) -> Result<(), SettleError> {
        let control = match self.control.take().filter(|control| !control.is_closed()) {
            Some(control) => control,
            None => {
                let options = ConnectOptions::named("hindcast: accounting");
                self.connector.client(&options).await?
            }
        };
        settle_uncertain(&control, &self.sink, &mut self.uncertain, last).await?;
        self.look(&control).await?;
        if !(self.open.is_empty() && self.waiting.is_empty()) {
            self.explain(&control, sessions, last).await?;
        }
        let now = self.sink.now();
        self.statements
            .retain(|one| one.ended > now - STATEMENT_KEPT);
        if self.open.is_empty() {
            // From here on nothing is asked about what was read.
            self.follower = None;
            let low = self.leftovers.first().copied().unwrap_or(self.next);
            self.accounted.forget_below(low.min(self.next));
            self.marks.forget_below(low.min(self.next));
        }
        self.ticks = [self.ticks[1], now];
        self.control = Some(control);
        self.say_how_far(now);
        Ok(())
    }

    /// Once the gaps that were found are on disk.
    fn say_how_far(&mut self, now: Micros) {
        let Some(kept) = &self.kept else {
            return;
        };
        let (accepted, flushed) = self.sink.written();
        if let Some((below, by)) = self.unsaid
            && by <= flushed
        {
            kept.settled(below, now);
            self.unsaid = None;
        }
        let open = self.open.keys().next().copied();
        let waiting = self.waiting.iter().map(|one| one.top).min();
        let low = self.leftovers.first().copied().into_iter();
        let low = low.chain(open).chain(waiting).min().unwrap_or(self.next);
        self.unsaid.get_or_insert((low.min(self.next), accepted));
    }

    /// Opens what has committed without a record.
    async fn look(&mut self, control: &Client) -> Result<(), SettleError> {
        let moment = Moment::ask(control).await?;
        self.ripen();
        let looked_at = self.ripe.max(self.next);
        let mut missing: Vec<u64> = (self.next..looked_at)
            .filter(|xid| !self.accounted.contains(*xid))
            .collect();
        let (ended, rest): (BTreeSet<u64>, _) = self
            .leftovers
            .iter()
            .partition(|xid| moment.has_ended(**xid));
        missing.extend(ended);
        let states = questions::states(control, &missing).await?;

        let (since, first) = (self.ticks[0], Instant::now());
        for (xid, state) in states {
            if state.as_deref() == Some("committed") {
                let ran = self.running.contains(&xid);
                self.open.insert(xid, Open { since, first, ran });
            }
        }
        self.marks.push(moment.mark());
        self.leftovers = rest;
        self.next = looked_at;
        self.running = self.running.split_off(&looked_at);
        let now = self.sink.now();
        self.finished.push_back((now, moment.snapshot.xmin.0));
        Ok(())
    }

    /// What was finished at the last tick has been told by now; where sessions tell afterwards, at
    /// an earlier one.
    fn ripen(&mut self) {
        let told = self.sink.ledger().told_until();
        while let Some(&(_, xmin)) = self.finished.front().filter(|(at, _)| *at <= told) {
            self.ripe = xmin.max(self.ripe);
            self.finished.pop_front();
        }
    }

    /// Judges what is open, as far as that can be done now.
    async fn explain(
        &mut self,
        control: &Client,
        sessions: &Sessions,
        last: bool,
    ) -> Result<(), SettleError> {
        let began = Instant::now();
        let ours: Vec<u32> = sessions()
            .into_iter()
            .chain(self.statements.iter().map(|one| one.backend))
            .collect();
        let activity = Activity::ask(control, &ours, || self.sink.now()).await?;
        let mut found = Found::default();
        let count = self.open.len();
        if count > 0 {
            match self.read_wal(control).await? {
                Ok(()) => self.by_wal(control, last, &mut found).await?,
                Err(why) => self.by_rows(control, &why, last, &mut found).await?,
            }
        }
        let unlogged = match self.waiting.iter().any(|one| one.wrote.left_no_trace()) {
            true => Some(Unlogged::ask(control).await?).filter(|unlogged| unlogged.any),
            false => None,
        };
        // A statement that was running when the server was asked, and is not any more, has told of
        // itself.
        self.read_ledger();
        let mut unseen = Vec::new();
        for one in std::mem::take(&mut self.waiting) {
            match self.conclude(&one, &activity, unlogged.is_some(), last) {
                Judgement::Later => self.waiting.push(one),
                Judgement::CannotTell(reason) if reason == judge::UNLOGGED => unseen.push(one),
                judgement => found.judged(&one, judgement, activity.clock),
            }
        }
        if let Some(unlogged) = unlogged {
            search(control, &unlogged, unseen, activity.clock, &mut found).await;
        }
        found.gaps().into_iter().for_each(|gap| self.sink.gap(gap));
        tracing::debug!(count, took = ?began.elapsed(), "ids without a record");
        Ok(())
    }

    /// Reads the WAL in which the open ids are.
    async fn read_wal(&mut self, control: &Client) -> Result<Result<(), Unreadable>, SettleError> {
        if let Some((at, why)) = &self.denied
            && at.elapsed() < DENIED_PAUSE
        {
            return Ok(Err(why.clone()));
        }
        let read = match questions::source(control).await? {
            Ok(source) => {
                let until = questions::end_of_wal(control).await?;
                self.read_stretch(source, until).await
            }
            Err(why) => Err(why),
        };
        self.denied = match &read {
            Err(why) if why.lasts() => {
                tracing::warn!(reason = %why, "cannot tell where unexplained ids wrote");
                Some((Instant::now(), why.clone()))
            }
            _ => None,
        };
        Ok(read)
    }

    async fn read_stretch(
        &mut self,
        source: questions::Source,
        until: hindcast_pg::Lsn,
    ) -> Result<(), Unreadable> {
        let wanted: Vec<u64> = self.open.keys().copied().collect();
        let start = wanted.first().and_then(|first| self.marks.start(*first));
        let (Some((start, _)), Some(&near)) = (start, wanted.last()) else {
            return Ok(());
        };
        let kept = self.follower.take().filter(|kept| kept.from <= start);
        let mut follower =
            kept.unwrap_or_else(|| Follower::new(source.format, source.database, near, start));
        if until.0.saturating_sub(follower.position().0) > BACKLOG_BYTES {
            return Err(Unreadable::TooMuch);
        }
        let url = self.connector.url().clone();
        let reading = tokio::task::spawn_blocking(move || {
            let read = follower.read(&url, &source.role, &wanted, until);
            (follower, read)
        });
        match tokio::time::timeout(STRETCH_PATIENCE, reading).await {
            Ok(Ok((follower, read))) => {
                read?;
                self.follower = Some(follower);
                Ok(())
            }
            Ok(Err(panic)) => std::panic::resume_unwind(panic.into_panic()),
            Err(_) => Err(Unreadable::Failed("it takes too long".to_owned())),
        }
    }

    /// Finds out from WAL what open ids wrote.
    async fn by_wal(
        &mut self,
        control: &Client,
        last: bool,
        found: &mut Found,
    ) -> Result<(), SettleError> {
        let Some(follower) = &self.follower else {
            return Ok(());
        };
        let facts = &follower.facts;
        let mut tops = BTreeMap::<u64, Vec<u64>>::new();
        let (mut recorded, mut lost) = (Vec::new(), Vec::new());
        for (xid, open) in &self.open {
            match facts.commit(*xid) {
                // A subtransaction of one that is recorded.
                Some(commit) if self.accounted.contains(commit.top) => recorded.push(*xid),
                Some(commit) => tops.entry(commit.top).or_default().push(*xid),
                None if last || open.first.elapsed() > LATER_MAX => lost.push((*xid, open.since)),
                None => {}
            }
        }
        let effects: BTreeMap<u64, _> =
            tops.keys().map(|top| (*top, facts.effects(*top))).collect();
        let files = effects.values();
        let files = files.flat_map(|one| one.rows.iter().chain(&one.built));
        let files = files.copied().collect();
        let relations = questions::relations(control, &files).await?;

        for xid in recorded {
            self.open.remove(&xid);
        }
        for (xid, since) in lost {
            self.open.remove(&xid);
            let reason = "their end was not found in the server's WAL".to_owned();
            found.doubts(reason, vec![xid], since, self.sink.now());
        }
        let mut alike: Vec<Arc<Wrote>> = Vec::new();
        for (top, xids) in tops {
            let (Some(one), Some(commit)) = (effects.get(&top), facts.commit(top)) else {
                continue;
            };
            let names = |files: &BTreeSet<_>| {
                let named = files.iter().filter_map(|file| relations.get(file));
                named.cloned().collect()
            };
            let wrote = Wrote {
                rows: names(&one.rows),
                built: names(&one.built),
                dropped: !one.dropped.is_empty(),
                elsewhere: one.elsewhere,
                locked: one.locked,
                maintained: one.maintained,
                complete: self.marks.start(top).is_some_and(|(_, complete)| complete),
            };
            let wrote = match alike.iter().find(|known| ***known == wrote) {
                Some(known) => Arc::clone(known),
                None => {
                    alike.push(Arc::new(wrote));
                    Arc::clone(&alike[alike.len() - 1])
                }
            };
            let opened = xids.iter().filter_map(|xid| self.open.remove(xid));
            let first = opened.map(|open| open.first).min();
            self.waiting.push(Waiting {
                top,
                xids,
                wrote,
                at: commit.at,
                first: first.unwrap_or_else(Instant::now),
            });
        }
        Ok(())
    }

    fn conclude(
        &self,
        one: &Waiting,
        activity: &Activity,
        unlogged: bool,
        last: bool,
    ) -> Judgement {
        if self.accounted.contains(one.top) {
            return Judgement::Harmless;
        }
        let at = one.at + activity.clock;
        let shown = activity.running_since.is_some_and(|since| since <= one.at);
        let around = Around {
            statements: self.statements_at(one.top, at),
            running: shown || activity.hidden && one.first.elapsed() < LATER_MAX,
            strangers: activity.strangers_at(one.at),
            unlogged,
            last: last || self.waiting.len() >= WAITING_MAX,
        };
        if one.wrote.rows.contains(&Relation::Catalog) {
            self.sink.look_at_routines();
        }
        let judgement = judge(&one.wrote, &around);
        tracing::debug!(xid = one.top, wrote = ?one.wrote, ?judgement, "an id without a record");
        judgement
    }

    /// Statements of our own, with ids that are not known, in whose time a transaction committed.
    fn statements_at(&self, xid: u64, at: Micros) -> BTreeSet<&'static str> {
        let then = |one: &&Unasked| {
            let among = one.ids.as_ref().is_none_or(|ids| ids.contains(&xid));
            among && (one.began - CLOCK_SLACK..=one.ended + CLOCK_SLACK).contains(&at)
        };
        let then = self.statements.iter().filter(then);
        then.map(|one| one.what).collect()
    }

    /// Judges without WAL. Rows that an id left in a table convict it; those in statistics or in
    /// what all databases share say what it was about.
    async fn by_rows(
        &mut self,
        control: &Client,
        why: &Unreadable,
        last: bool,
        found: &mut Found,
    ) -> Result<(), SettleError> {
        let young = self
            .open
            .values()
            .all(|open| open.first.elapsed() < TRANSIENT_MAX);
        if why.is_transient() && young && !last {
            return Ok(());
        }
        let xids: Vec<u64> = self.open.keys().copied().collect();
        let left = questions::rows_left(control, &xids).await?;
        let (here, own) = left.unwrap_or_default();
        self.open
            .retain(|xid, _| here.contains_key(xid) || !own.contains(xid));
        self.presume_subtransactions();
        let reason = why.with_hint();
        let now = self.sink.now();
        for (xid, open) in std::mem::take(&mut self.open) {
            match here.get(&xid) {
                Some(tables) => found.past_us(xid, tables, open.since, now),
                None => found.doubts(reason.clone(), vec![xid], open.since, now),
            }
        }
        Ok(())
    }

    /// Where functions catch exceptions, ids that no snapshot showed as running: a subtransaction
    /// of a function has an id of its own, which no snapshot shows, and which cannot be asked for.
    fn presume_subtransactions(&mut self) {
        if !self.sink.ledger().functions_catch() {
            return;
        }
        let before = self.open.len();
        self.open.retain(|_, open| open.ran);
        let presumed = before - self.open.len();
        self.sink.counters().subtransactions(presumed as u64);
    }
}

/// Looks for rows that ids left in unlogged tables. Those that left none stay in doubt.
async fn search(
    control: &Client,
    unlogged: &Unlogged,
    unseen: Vec<Waiting>,
    clock: Micros,
    found: &mut Found,
) {
    let xids: Vec<u64> = unseen.iter().flat_map(Waiting::ids).collect();
    // A server that cannot be asked leaves the doubt.
    let left = unlogged.rows_left(control, &xids).await;
    let left = left.unwrap_or_default();
    for one in unseen {
        let wrote = one.ids().filter_map(|xid| left.get(&xid)).flatten();
        let wrote: BTreeSet<String> = wrote.cloned().collect();
        let judgement = match wrote.is_empty() {
            true => Judgement::CannotTell(judge::UNLOGGED.to_owned()),
            false => Judgement::PastUs(wrote),
        };
        found.judged(&one, judgement, clock);
    }
}

/// Records the transactions whose fate is known by now.
async fn settle_uncertain(
    control: &Client,
    sink: &Sink,
    uncertain: &mut Vec<(Transaction, Instant)>,
    last: bool,
) -> Result<(), SettleError> {
    if uncertain.is_empty() {
        return Ok(());
    }
    let xids: Vec<u64> = uncertain
        .iter()
        .filter_map(|(transaction, _)| Some(transaction.xid?.0))
        .collect();
    let states = questions::states(control, &xids).await?;
    let state = |xid: Xid| states.get(&xid.0).and_then(Option::as_deref);
    uncertain.retain_mut(|(transaction, since)| {
        let outcome = match transaction.xid.map(state) {
            Some(Some("committed")) => Outcome::Committed,
            Some(Some("aborted")) => Outcome::Aborted,
            Some(Some("in progress")) if !last && since.elapsed() < UNCERTAIN_PATIENCE => {
                return true;
            }
            // A transaction that wrote nothing leaves no trace, and it makes no difference which
            // way it ended.
            None => Outcome::Aborted,
            _ => Outcome::Unknown,
        };
        sink.transaction(Transaction {
            outcome,
            ..transaction.clone()
        });
        false
    });
    Ok(())
}
