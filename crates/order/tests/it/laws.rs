//! What makes the schedule sound, as properties of random histories.

use std::collections::BTreeSet;

use hindcast_model::{Snapshot, Xid};
use hindcast_order::{Level, Levels, LevelsError, LockStep, Observed, Schedule, Step, StepAt, Tx};
use proptest::prelude::*;

/// What a transaction is going to do.
#[derive(Clone, Copy, Debug)]
struct Intent {
    session: usize,
    /// Has its id before it takes its snapshot, as after `LOCK TABLE`.
    early_xid: bool,
    snapshot: bool,
    writes: bool,
    lock: Option<u64>,
    fate: Fate,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Fate {
    Commits,
    Aborts,
    /// Commits, but passes no recorder.
    Unrecorded,
}

/// A recorded transaction, and what it truly saw.
#[derive(Clone, Debug, Default)]
struct Recorded {
    session: usize,
    snapshot: Option<Snapshot>,
    xid: Option<Xid>,
    /// Ids of the recorded writers that had committed when it took its snapshot.
    saw: BTreeSet<Xid>,
    lock: Option<(u64, u64)>,
}

#[derive(Clone, Debug, Default)]
struct History {
    transactions: Vec<Recorded>,
}

impl History {
    /// Runs the intents of each session one after the other, interleaved with other sessions as
    /// `choices` say.
    fn run(intents: &[Intent], choices: &[u16]) -> Self {
        const SESSIONS: usize = 6;
        #[derive(Clone, Default)]
        struct Running {
            intent: usize,
            stage: u8,
            xid: Option<Xid>,
            recorded: Recorded,
            began: usize,
        }
        let mut queues: Vec<Vec<usize>> = vec![Vec::new(); SESSIONS];
        for (at, intent) in intents.iter().enumerate().rev() {
            queues[intent.session].push(at);
        }
        let mut running: Vec<Option<Running>> = vec![None; SESSIONS];
        let (mut next_xid, mut latest, mut began, mut completed) = (100u64, 99u64, 0, 0u64);
        let mut committed = BTreeSet::new();
        let mut locked_by: std::collections::BTreeMap<u64, usize> = Default::default();
        let mut done = Vec::new();
        let mut choices = choices.iter().cycle();
        loop {
            let alive: Vec<usize> = (0..SESSIONS)
                .filter(|&s| running[s].is_some() || !queues[s].is_empty())
                .collect();
            if alive.is_empty() {
                break;
            }
            let in_progress: Vec<Xid> = running.iter().flatten().filter_map(|r| r.xid).collect();
            // A session that waits for a lock is not asked again until another one has ended.
            let waits = |s: &usize| {
                running[*s].as_ref().is_some_and(|r| {
                    let lock = intents[r.intent].lock;
                    r.stage == 2 && lock.is_some_and(|target| locked_by.contains_key(&target))
                })
            };
            let alive: Vec<usize> = alive.into_iter().filter(|s| !waits(s)).collect();
            let session = alive[*choices.next().unwrap() as usize % alive.len()];
            let Some(r) = &mut running[session] else {
                let intent = queues[session].pop().unwrap();
                running[session] = Some(Running {
                    intent,
                    began,
                    ..Running::default()
                });
                began += 1;
                continue;
            };
            let intent = intents[r.intent];
            r.stage += 1;
            match r.stage {
                1 if intent.early_xid && intent.writes => {
                    r.xid = Some(Xid(next_xid));
                    next_xid += 1;
                }
                2 if intent.snapshot => {
                    let xmax = Xid(latest + 1);
                    let own = r.xid;
                    let mut list: Vec<Xid> = in_progress
                        .into_iter()
                        .filter(|&x| x < xmax && Some(x) != own)
                        .collect();
                    list.sort_unstable();
                    r.recorded.snapshot = Some(snapshot(xmax, list));
                    r.recorded.saw = committed.clone();
                }
                3 => {
                    if let Some(target) = intent.lock {
                        locked_by.insert(target, session);
                        r.recorded.lock = Some((target, completed));
                        completed += 1;
                    }
                    if intent.writes && r.xid.is_none() {
                        r.xid = Some(Xid(next_xid));
                        next_xid += 1;
                    }
                }
                4 => {
                    let mut r = running[session].take().unwrap();
                    locked_by.retain(|_, holder| *holder != session);
                    latest = latest.max(r.xid.map_or(0, |xid| xid.0));
                    r.recorded.session = session;
                    r.recorded.xid = r.xid;
                    if intent.fate == Fate::Commits {
                        committed.extend(r.xid);
                        done.push((r.began, r.recorded));
                    }
                }
                _ => {}
            }
        }
        done.sort_by_key(|&(began, _)| began);
        Self {
            transactions: done.into_iter().map(|(_, r)| r).collect(),
        }
    }

    fn observed(&self) -> Vec<Observed<'_>> {
        self.transactions
            .iter()
            .map(|r| Observed {
                snapshot: r.snapshot.as_ref(),
                xid: r.xid,
            })
            .collect()
    }

    fn levels(&self) -> Levels {
        Levels::of(&self.observed()).expect("what a database shows is ordered")
    }

    fn locks(&self) -> Vec<LockStep> {
        let step = |(tx, r): (u32, &Recorded)| {
            r.lock.map(|(target, completed)| LockStep {
                tx: Tx(tx),
                at: StepAt::Statement(0),
                target,
                completed,
            })
        };
        (0..).zip(&self.transactions).filter_map(step).collect()
    }
}

fn intents() -> impl Strategy<Value = Vec<Intent>> {
    let fate =
        prop_oneof![6 => Just(Fate::Commits), 1 => Just(Fate::Aborts), 1 => Just(Fate::Unrecorded)];
    let intent = (
        0..6usize,
        prop::bool::weighted(0.1),
        prop::bool::weighted(0.9),
        prop::bool::weighted(0.6),
        prop::option::weighted(0.2, 0..2u64),
        fate,
    )
        .prop_map(
            |(session, early_xid, snapshot, writes, lock, fate)| Intent {
                session,
                early_xid,
                snapshot,
                writes,
                lock,
                fate,
            },
        );
    prop::collection::vec(intent, 0..40)
}

fn histories() -> impl Strategy<Value = History> {
    (intents(), prop::collection::vec(any::<u16>(), 1..200))
        .prop_map(|(intents, choices)| History::run(&intents, &choices))
}

/// Replays a history as freely as the schedule allows, each session's transactions in their order.
struct Replay<'a> {
    history: &'a History,
    levels: Levels,
    schedule: Schedule,
    /// By session: its transactions that have not ended, the next one last.
    sessions: Vec<Vec<Tx>>,
    stage: Vec<u8>,
    committed: BTreeSet<Xid>,
    locked_by: std::collections::BTreeMap<u64, Tx>,
}

impl<'a> Replay<'a> {
    fn new(history: &'a History) -> Self {
        let levels = history.levels();
        let mut sessions = vec![Vec::new(); 6];
        for (tx, r) in history.transactions.iter().enumerate().rev() {
            sessions[r.session].push(Tx(tx as u32));
        }
        Self {
            history,
            schedule: Schedule::new(levels.clone(), history.locks()),
            levels,
            sessions,
            stage: vec![0; history.transactions.len()],
            committed: BTreeSet::new(),
            locked_by: Default::default(),
        }
    }

    fn can_step(&self, tx: Tx) -> bool {
        let r = &self.history.transactions[tx.index()];
        match self.stage[tx.index()] {
            0 => self.schedule.may_take_snapshot(tx),
            1 => r.lock.is_none_or(|(target, _)| {
                self.schedule.may_lock(tx, 0) && !self.locked_by.contains_key(&target)
            }),
            _ => self.schedule.may_commit(tx),
        }
    }

    fn ready(&self) -> Vec<Tx> {
        self.sessions
            .iter()
            .filter_map(|s| s.last().copied())
            .filter(|&tx| self.can_step(tx))
            .collect()
    }

    fn step(&mut self, tx: Tx) {
        let r = &self.history.transactions[tx.index()];
        self.stage[tx.index()] += 1;
        match self.stage[tx.index()] {
            1 => {
                if r.snapshot.is_some() {
                    assert_eq!(self.committed, r.saw, "transaction {tx} sees what it saw");
                }
                self.schedule.took_snapshot(tx);
            }
            2 => {
                if let Some((target, _)) = r.lock {
                    self.locked_by.insert(target, tx);
                }
                self.schedule.locked(tx, 0);
            }
            _ => {
                self.committed.extend(r.xid);
                self.locked_by.retain(|_, holder| *holder != tx);
                self.schedule.committed(tx);
                self.sessions[r.session].pop();
            }
        }
    }

    fn is_finished(&self) -> bool {
        self.sessions.iter().all(Vec::is_empty)
    }
}

fn snapshot(xmax: Xid, in_progress: Vec<Xid>) -> Snapshot {
    Snapshot {
        xmin: in_progress.first().copied().unwrap_or(xmax),
        xmax,
        in_progress,
    }
}

/// The sets themselves, the slow way: recorded committed writers visible to each transaction with a
/// snapshot.
fn sets(observed: &[Observed<'_>]) -> Vec<Option<BTreeSet<Xid>>> {
    let writers: Vec<Xid> = observed.iter().filter_map(|o| o.xid).collect();
    let set = |o: &Observed<'_>| {
        o.snapshot.map(|s| {
            let seen = |x: &Xid| *x < s.xmax && !s.in_progress.contains(x) && Some(*x) != o.xid;
            writers.iter().copied().filter(seen).collect()
        })
    };
    observed.iter().map(set).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn levels_number_the_distinct_sets_by_inclusion(history in histories()) {
        let levels = history.levels();
        let distinct: BTreeSet<(usize, &BTreeSet<Xid>)> = history.transactions.iter()
            .filter(|r| r.snapshot.is_some()).map(|r| (r.saw.len(), &r.saw)).collect();
        let distinct: Vec<&BTreeSet<Xid>> = distinct.into_iter().map(|(_, set)| set).collect();
        prop_assert_eq!(levels.level_count() as usize, distinct.len());
        for (tx, r) in (0..).map(Tx).zip(&history.transactions) {
            let level = r.snapshot.as_ref().map(|_| distinct.iter().position(|s| **s == r.saw).unwrap());
            prop_assert_eq!(levels.level_of(tx), level.map(|l| Level(l as u32)));
            let from = r.xid.map(|x| distinct.iter().position(|s| s.contains(&x)).unwrap_or(distinct.len()));
            prop_assert_eq!(levels.visible_from(tx), from.map(|l| Level(l as u32)));
            if let (Some(level), Some(from)) = (levels.level_of(tx), levels.visible_from(tx)) {
                prop_assert!(level < from, "a writer does not see itself commit");
            }
        }
    }

    #[test]
    fn every_greedy_interleaving_finishes_and_everybody_sees_what_it_saw(
        history in histories(), choices in prop::collection::vec(any::<u16>(), 1..200),
    ) {
        let mut replay = Replay::new(&history);
        let mut choices = choices.iter().cycle();
        let mut progress = replay.schedule.progress();
        while !replay.is_finished() {
            let ready = replay.ready();
            prop_assert!(!ready.is_empty(), "stuck: {}", replay.schedule.explain(*replay.sessions.iter().find_map(|s| s.last()).unwrap()));
            replay.step(ready[*choices.next().unwrap() as usize % ready.len()]);
            let now = replay.schedule.progress();
            prop_assert!(now.snapshot_frontier >= progress.snapshot_frontier
                && now.commit_frontier >= progress.commit_frontier && now.lock_steps >= progress.lock_steps);
            progress = now;
        }
        prop_assert!(replay.schedule.is_finished());
    }

    #[test]
    fn who_may_commit_once_it_has_seen_may_commit_when_it_has(
        history in histories(), choices in prop::collection::vec(any::<u16>(), 1..200),
    ) {
        let mut replay = Replay::new(&history);
        let mut choices = choices.iter().cycle();
        while !replay.is_finished() {
            let schedule = &replay.schedule;
            for tx in schedule.levels().transactions().filter(|&tx| !schedule.has_ended(tx)) {
                let mut later = schedule.clone();
                if !later.has_snapshot(tx) {
                    later.took_snapshot(tx);
                }
                prop_assert_eq!(schedule.may_commit_once_seen(tx), later.may_commit(tx));
            }
            let ready = replay.ready();
            replay.step(ready[*choices.next().unwrap() as usize % ready.len()]);
        }
    }

    #[test]
    fn nobodys_answer_changes_while_progress_stands_still(
        history in histories(), choices in prop::collection::vec(any::<u16>(), 1..200),
    ) {
        let mut replay = Replay::new(&history);
        let mut choices = choices.iter().cycle();
        let answers = |s: &Schedule| s.levels().transactions()
            .map(|tx| (s.may_take_snapshot(tx), s.may_lock(tx, 0), s.may_commit(tx))).collect::<Vec<_>>();
        while !replay.is_finished() {
            let before = (replay.schedule.progress(), answers(&replay.schedule));
            let ready = replay.ready();
            replay.step(ready[*choices.next().unwrap() as usize % ready.len()]);
            if replay.schedule.progress() == before.0 {
                prop_assert_eq!(answers(&replay.schedule), before.1);
            }
        }
    }

    #[test]
    fn a_replay_goes_on_without_those_who_were_abandoned(
        history in histories(), choices in prop::collection::vec(any::<u16>(), 1..200), lost in prop::collection::vec(any::<bool>(), 6),
    ) {
        // Whole sessions vanish, at any point. What the others see then is not what it was; that
        // they get to their end is.
        let mut replay = Replay::new(&history);
        let mut choices = choices.iter().cycle();
        let mut lost: Vec<usize> = (0..6).filter(|&s| lost[s]).collect();
        while !replay.is_finished() {
            let ready = replay.ready();
            let choice = *choices.next().unwrap() as usize;
            if let Some(session) = lost.pop_if(|_| choice.is_multiple_of(5) || ready.is_empty()) {
                for tx in std::mem::take(&mut replay.sessions[session]) {
                    replay.schedule.abandon(tx);
                    replay.locked_by.retain(|_, holder| *holder != tx);
                }
                continue;
            }
            prop_assert!(!ready.is_empty());
            let tx = ready[choice % ready.len()];
            replay.stage[tx.index()] += 1;
            match replay.stage[tx.index()] {
                1 => replay.schedule.took_snapshot(tx),
                2 => replay.schedule.locked(tx, 0),
                _ => {
                    replay.schedule.committed(tx);
                    replay.sessions[history.transactions[tx.index()].session].pop();
                }
            }
        }
        prop_assert!(replay.schedule.is_finished());
    }

    #[test]
    fn explanations_lead_to_somebody_who_may_go_on(
        history in histories(), choices in prop::collection::vec(any::<u16>(), 0..100),
    ) {
        let mut replay = Replay::new(&history);
        for choice in choices {
            if replay.is_finished() {
                break;
            }
            for tx in replay.levels.transactions() {
                let explanation = replay.schedule.explain(tx);
                prop_assert_eq!(replay.schedule.explain(explanation.culprit).wait, None);
                prop_assert_eq!(explanation.wait.is_none(), explanation.culprit == tx);
                if replay.stage[tx.index()] == 0 {
                    prop_assert!(replay.schedule.may_take_snapshot(tx) || explanation.wait.is_some());
                }
            }
            let ready = replay.ready();
            replay.step(ready[choice as usize % ready.len()]);
        }
    }

    #[test]
    fn the_sequential_order_is_a_run_in_which_everybody_sees_what_it_saw(history in histories()) {
        let levels = history.levels();
        let (mut committed, mut ran) = (BTreeSet::new(), BTreeSet::new());
        let mut latest = [None; 6];
        for step in levels.sequential_order() {
            match step {
                Step::Run(tx) => {
                    let r = &history.transactions[tx.index()];
                    if r.snapshot.is_some() {
                        prop_assert_eq!(&committed, &r.saw);
                    }
                    prop_assert!(ran.insert(tx));
                    prop_assert!(latest[r.session] < Some(tx), "requests go through their transactions in order");
                    latest[r.session] = Some(tx);
                }
                Step::Commit(tx) => {
                    prop_assert!(ran.contains(&tx));
                    prop_assert!(committed.insert(history.transactions[tx.index()].xid.unwrap()));
                }
            }
        }
        let expected = history.transactions.iter().filter(|r| r.snapshot.is_some() || r.xid.is_some()).count();
        prop_assert_eq!(ran.len(), expected);
        prop_assert_eq!(committed.len(), history.transactions.iter().filter(|r| r.xid.is_some()).count());
    }

    /// Snapshots out of nowhere: they have levels if and only if the sets form a chain, and a
    /// contradiction is a true one.
    #[test]
    fn contradictions_are_found_and_named(
        snapshots in prop::collection::vec((prop::option::of((1..9u64, prop::collection::btree_set(1..9u64, 0..3))), any::<bool>()), 0..7),
    ) {
        let (given, writes): (Vec<_>, Vec<_>) = snapshots.into_iter().unzip();
        let given: Vec<_> = given.into_iter()
            .map(|given| given.map(|(xmax, list)| snapshot(Xid(xmax), list.into_iter().map(Xid).collect())))
            .collect();
        let observed: Vec<Observed<'_>> = (1..).zip(given.iter().zip(&writes)).map(|(xid, (snapshot, writes))| Observed {
            snapshot: snapshot.as_ref(),
            xid: writes.then_some(Xid(xid)),
        }).collect();
        let sets = sets(&observed);
        let ordered = sets.iter().flatten().all(|a| sets.iter().flatten().all(|b| a.is_subset(b) || b.is_subset(a)));
        match Levels::of(&observed) {
            Ok(levels) => {
                prop_assert!(ordered);
                for (reader, set) in (0..).map(Tx).zip(&sets) {
                    for (writer, o) in (0..).map(Tx).zip(&observed) {
                        let saw = set.as_ref().is_some_and(|set| o.xid.is_some_and(|x| set.contains(&x)));
                        prop_assert_eq!(levels.sees(reader, writer), saw);
                    }
                }
            }
            Err(LevelsError::NotOrdered { one, other, xid, one_saw, other_saw }) => {
                let (a, b) = (sets[one.index()].as_ref().unwrap(), sets[other.index()].as_ref().unwrap());
                prop_assert!(!a.is_subset(b) && !b.is_subset(a));
                prop_assert!(a.contains(&xid) && !b.contains(&xid));
                prop_assert_eq!((a.len() as u32, b.len() as u32), (one_saw, other_saw));
            }
            Err(error) => prop_assert!(false, "{error}"),
        }
    }
}

#[test]
fn two_transactions_cannot_have_one_id() {
    let twice = [Observed {
        xid: Some(Xid(7)),
        ..Observed::default()
    }; 2];
    assert_eq!(
        Levels::of(&twice).unwrap_err().to_string(),
        "transactions #0 and #1 are both recorded with transaction id 7"
    );
}

#[test]
fn a_contradiction_reads_well() {
    let writer = |xid| Observed {
        xid: Some(Xid(xid)),
        ..Observed::default()
    };
    let [first, second] = [7, 8].map(|xid| snapshot(Xid(9), vec![Xid(xid)]));
    let reader = |snapshot| Observed {
        snapshot: Some(snapshot),
        xid: None,
    };
    expect_test::expect![[r#"the snapshots of transactions #2 and #3 contradict each other: #2 saw transaction id 8 and #3 did not, although #3 saw no fewer (1 recorded writers against 1)"#]]
        .assert_eq(&Levels::of(&[writer(7), writer(8), reader(&first), reader(&second)]).unwrap_err().to_string());
}
