//! Simulated programs with real locks, recorded under one scheduler and replayed under another.
//!
//! A program is free of data races: what is shared is read and changed only by who has the lock of
//! it. All that a thread sees is in its trace, and a replay is right if every trace is as recorded
//! and nobody gets stuck. The real lock and what is written down about it are two steps, with
//! others in between, as they are in a runtime.

use hindcast_order::acquisitions::{
    Order, Owner, Recorder, Recording, Replayer, Resource, Seen, Thread, Turn,
};
use proptest::prelude::*;
use proptest::sample::Index;

const BUSY: i32 = 16;
const TIMED_OUT: i32 = 110;
/// Luck with which everybody gives up who may.
const OUT_OF_PATIENCE: usize = 0;
const LOCKS: u32 = 5;
const SEMAPHORES: u32 = 2;
const ONCES: u32 = 2;
const RESOURCES: usize = (LOCKS + SEMAPHORES + ONCES) as usize;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hold {
    Exclusive,
    Shared,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Patience {
    Forever,
    /// Gives up whenever the scheduler likes.
    Timed,
    None,
}

/// What a program is made of.
#[derive(Clone, Debug)]
enum Block {
    With(u32, Hold, Patience, Vec<Block>),
    /// Waits on a condition of the innermost lock: gives it up, and gets it again some time.
    Wait,
    Post(u32),
    Take(u32, Patience),
    /// Initialises something, or finds it initialised.
    Once(u32),
}

#[derive(Clone, Copy, Debug)]
enum Step {
    /// If it fails, the thread goes on at the given step.
    Acquire(Resource, Hold, Patience, usize),
    Release(Resource, Hold),
    Wait(Resource),
    Post(Resource),
    Take(Resource, Patience),
    Once(Resource),
}

/// Steps by thread.
#[derive(Clone, Debug)]
struct Program {
    threads: Vec<Vec<Step>>,
}

impl Program {
    fn new(threads: &[Vec<Block>]) -> Self {
        let threads = threads.iter().map(|blocks| {
            let mut steps = Vec::new();
            compile(blocks, &mut Vec::new(), &mut steps);
            steps
        });
        Self {
            threads: threads.collect(),
        }
    }
}

/// So that no program locks up by itself, a thread waits for a lock only when it has none of a
/// higher number; else it just tries. Mutexes are recursive.
fn compile(blocks: &[Block], held: &mut Vec<(u32, Hold)>, steps: &mut Vec<Step>) {
    for block in blocks {
        let above = |lock: u32, held: &[(u32, Hold)]| held.iter().all(|&(other, _)| other < lock);
        match *block {
            Block::With(lock, hold, patience, ref body) => {
                let mine = held.contains(&(lock, Hold::Exclusive)) && hold == Hold::Exclusive;
                let patience = if mine || above(lock, held) {
                    patience
                } else {
                    Patience::None
                };
                let at = steps.len();
                steps.push(Step::Release(Resource(lock), hold));
                held.push((lock, hold));
                compile(body, held, steps);
                held.pop();
                steps.push(Step::Release(Resource(lock), hold));
                steps[at] = Step::Acquire(Resource(lock), hold, patience, steps.len());
            }
            Block::Wait => {
                if let Some((&(lock, Hold::Exclusive), others)) = held.split_last()
                    && above(lock, others)
                {
                    steps.push(Step::Wait(Resource(lock)));
                }
            }
            Block::Post(semaphore) => steps.push(Step::Post(Resource(LOCKS + semaphore))),
            Block::Take(semaphore, patience) => {
                steps.push(Step::Take(Resource(LOCKS + semaphore), patience));
            }
            Block::Once(once) => steps.push(Step::Once(Resource(LOCKS + SEMAPHORES + once))),
        }
    }
}

fn any_block() -> impl Strategy<Value = Block> {
    let hold = || prop_oneof![2 => Just(Hold::Exclusive), 1 => Just(Hold::Shared)];
    let patience = || prop_oneof![4 => Just(Patience::Forever), 1 => Just(Patience::Timed), 1 => Just(Patience::None)];
    let impatience = prop_oneof![Just(Patience::Timed), Just(Patience::None)];
    let leaf = prop_oneof![
        4 => (0..LOCKS, hold(), patience()).prop_map(|(lock, hold, patience)| Block::With(lock, hold, patience, Vec::new())),
        2 => Just(Block::Wait),
        1 => (0..SEMAPHORES).prop_map(Block::Post),
        1 => (0..ONCES).prop_map(Block::Once),
        1 => (0..SEMAPHORES, impatience).prop_map(|(semaphore, patience)| Block::Take(semaphore, patience)),
    ];
    leaf.prop_recursive(3, 12, 4, move |inner| {
        let body = prop::collection::vec(inner, 0..4);
        (0..LOCKS, hold(), patience(), body)
            .prop_map(|(lock, hold, patience, body)| Block::With(lock, hold, patience, body))
    })
}

fn any_program() -> impl Strategy<Value = Program> {
    let thread = prop::collection::vec(any_block(), 0..8);
    prop::collection::vec(thread, 1..5).prop_map(|threads| Program::new(&threads))
}

fn any_choices() -> impl Strategy<Value = Vec<Index>> {
    prop::collection::vec(any::<Index>(), 1..60)
}

/// What a runtime may get wrong that no recorder can notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mistake {
    None,
    /// Shared acquisitions read the owner in one step and replace it in another.
    TornOwner,
    /// Shared acquisitions look at the clock in one step and replace the owner in another. Matters
    /// to clocks only.
    TornClock,
    /// A post is recorded after it happened.
    LatePost,
    /// Attempts that fail are not recorded.
    SilentFailure,
    /// An acquisition is recorded after the lock was given back.
    LateRecord,
    /// What is initialised is recorded after others could see it.
    LateOnce,
}

const MISTAKES: [Mistake; 6] = [
    Mistake::TornClock,
    Mistake::TornOwner,
    Mistake::LatePost,
    Mistake::SilentFailure,
    Mistake::LateRecord,
    Mistake::LateOnce,
];

#[derive(Clone, Debug, Default)]
struct Lock {
    exclusive: Option<(Thread, u32)>,
    shared: Vec<Thread>,
    /// What it protects: changed by whoever has it exclusively.
    data: u64,
}

impl Lock {
    fn is_free(&self, thread: Thread, hold: Hold) -> bool {
        match hold {
            Hold::Exclusive => {
                self.shared.is_empty() && self.exclusive.is_none_or(|(owner, _)| owner == thread)
            }
            Hold::Shared => self.exclusive.is_none(),
        }
    }

    fn take(&mut self, thread: Thread, hold: Hold) {
        match hold {
            Hold::Exclusive => {
                let depth = self.exclusive.map_or(0, |(_, depth)| depth);
                self.exclusive = Some((thread, depth + 1));
            }
            Hold::Shared => self.shared.push(thread),
        }
    }

    fn release(&mut self, thread: Thread, hold: Hold) {
        match hold {
            Hold::Exclusive => {
                let (owner, depth) = self.exclusive.expect("it is locked");
                assert_eq!(owner, thread);
                self.exclusive = (depth > 1).then_some((thread, depth - 1));
            }
            Hold::Shared => {
                let at = self.shared.iter().position(|&other| other == thread);
                self.shared.swap_remove(at.expect("it is locked"));
            }
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Start,
    /// Has given the lock up for a condition. How that will end, if the log has said so.
    Waits {
        result: i32,
    },
    /// Has the lock, which is not recorded yet. How the wait for a condition ended, if it was one.
    Has {
        result: i32,
    },
    /// Has read an owner that it will replace; only by mistake.
    Read(Owner),
    /// Has recorded a post, or posted it, and has yet to do the other. Initialises something.
    Half,
}

/// What is made once: `None` while nobody has begun, then whether it is complete, and by whom.
type Once = Option<(bool, Thread)>;

/// What a thread sees; compared between recording and replay.
type Trace = Vec<(usize, i32, u64)>;

#[derive(Debug)]
enum Keeper<'a> {
    Record {
        recorder: Recorder,
        owners: Vec<Owner>,
        /// Which of them is whose.
        places: &'a [usize],
    },
    Replay(Replayer<'a>),
}

struct Machine<'a> {
    program: &'a Program,
    keeper: Keeper<'a>,
    mistake: Mistake,
    locks: Vec<Lock>,
    /// By semaphore.
    tokens: Vec<i64>,
    onces: Vec<Once>,
    threads: Vec<(usize, Phase)>,
    traces: Vec<Trace>,
    /// By thread: the clock that it will record with.
    seen: Vec<Option<Seen>>,
    /// By thread: an acquisition that is not recorded yet, and whether the lock was given back;
    /// only by mistake.
    late: Vec<Option<(Resource, bool)>>,
}

#[derive(Debug, PartialEq, Eq)]
enum Wrong {
    Stuck,
    /// The log says something else than what the thread comes to.
    Diverged,
    /// Somebody took what nobody had posted.
    TookNothing,
}

impl<'a> Machine<'a> {
    fn new(program: &'a Program, keeper: Keeper<'a>, mistake: Mistake) -> Self {
        let count = program.threads.len();
        Self {
            program,
            keeper,
            mistake,
            locks: vec![Lock::default(); LOCKS as usize],
            tokens: vec![0; SEMAPHORES as usize],
            onces: vec![None; ONCES as usize],
            threads: vec![(0, Phase::Start); count],
            traces: vec![Trace::new(); count],
            seen: vec![None; count],
            late: vec![None; count],
        }
    }

    /// Runs to the end under a scheduler that these choices make.
    fn run(&mut self, choices: &[Index]) -> Result<(), Wrong> {
        let mut choices = choices.iter().cycle();
        loop {
            let threads = 0..self.threads.len() as u16;
            let mut left: Vec<_> = threads
                .map(Thread)
                .filter(|&thread| !self.is_done(thread))
                .collect();
            if left.is_empty() {
                return Ok(());
            }
            // Somebody who can go on, beginning with whom the scheduler likes.
            let choice = choices.next().unwrap();
            let first = choice.index(left.len());
            left.rotate_left(first);
            let luck = choice.index(64);
            let moved = self.any_step(&left, luck)? || self.any_step(&left, OUT_OF_PATIENCE)?;
            if !moved {
                return Err(Wrong::Stuck);
            }
        }
    }

    /// The first of these threads that can go on does.
    fn any_step(&mut self, threads: &[Thread], luck: usize) -> Result<bool, Wrong> {
        for &thread in threads {
            if self.step(thread, luck)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether nobody else touches the owner of what the thread is about to record.
    fn is_exclusive(&self, thread: Thread) -> bool {
        let Keeper::Record { places, .. } = &self.keeper else {
            return false;
        };
        let (at, _) = self.threads[thread.index()];
        match self.program.threads[thread.index()][at] {
            Step::Acquire(lock, Hold::Exclusive, ..) | Step::Wait(lock) => {
                let place = places[lock.index()];
                places.iter().filter(|&&other| other == place).count() == 1
            }
            _ => false,
        }
    }

    fn is_done(&self, thread: Thread) -> bool {
        let end = self.program.threads[thread.index()].len();
        self.threads[thread.index()].0 == end && self.late[thread.index()].is_none()
    }

    /// Whether the thread got on.
    fn step(&mut self, thread: Thread, luck: usize) -> Result<bool, Wrong> {
        if let Some((lock, true)) = self.late[thread.index()] {
            self.late[thread.index()] = None;
            self.record(thread, lock);
            return Ok(true);
        }
        let (at, phase) = self.threads[thread.index()];
        if let (Keeper::Record { recorder, .. }, Phase::Has { .. }, None) =
            (&self.keeper, phase, &self.seen[thread.index()])
            && luck.is_multiple_of(2)
            && (self.is_exclusive(thread) || self.mistake == Mistake::TornClock)
        {
            self.seen[thread.index()] = Some(recorder.look());
            return Ok(true);
        }
        match (self.program.threads[thread.index()][at], phase) {
            (Step::Release(lock, hold), _) => {
                self.locks[lock.index()].release(thread, hold);
                if let Some((_, released)) = &mut self.late[thread.index()] {
                    *released = true;
                }
                self.go_to(thread, at + 1);
            }
            (Step::Wait(lock), Phase::Start) => {
                self.locks[lock.index()].release(thread, Hold::Exclusive);
                self.threads[thread.index()].1 = Phase::Waits { result: 0 };
            }
            (Step::Wait(lock), Phase::Waits { mut result }) => {
                match &mut self.keeper {
                    Keeper::Record { .. } => {
                        result = if luck.is_multiple_of(2) { 0 } else { TIMED_OUT }
                    }
                    // The lock is what comes next.
                    Keeper::Replay(replayer) if matches!(replayer.turn(thread), Turn::Busy(_)) => {
                        result = replayer.failed(thread);
                        self.threads[thread.index()].1 = Phase::Waits { result };
                        return Ok(true);
                    }
                    Keeper::Replay(_) => {}
                }
                return self.take(thread, lock, Hold::Exclusive, result);
            }
            (Step::Acquire(lock, hold, patience, otherwise), Phase::Start) => {
                let free = self.locks[lock.index()].is_free(thread, hold);
                if let Some(code) = self.fails(thread, patience, free, luck)? {
                    self.traces[thread.index()].push((at, code, 0));
                    self.go_to(thread, otherwise);
                } else {
                    return self.take(thread, lock, hold, 0);
                }
            }
            (Step::Acquire(lock, Hold::Shared, ..), Phase::Has { .. })
                if self.mistake == Mistake::TornOwner =>
            {
                let Keeper::Record { owners, places, .. } = &self.keeper else {
                    unreachable!("mistakes are made while recording");
                };
                self.threads[thread.index()].1 = Phase::Read(owners[places[lock.index()]]);
            }
            (Step::Acquire(lock, ..), Phase::Read(mut owner)) => {
                let Keeper::Record {
                    recorder,
                    owners,
                    places,
                } = &mut self.keeper
                else {
                    unreachable!("mistakes are made while recording");
                };
                recorder.acquired(thread, &mut owner);
                owners[places[lock.index()]] = owner;
                self.look(thread, lock, Hold::Shared, 0);
                self.go_to(thread, at + 1);
            }
            (Step::Acquire(lock, hold, ..), Phase::Has { result }) => {
                if self.mistake == Mistake::LateRecord && self.late[thread.index()].is_none() {
                    self.late[thread.index()] = Some((lock, false));
                } else {
                    self.record(thread, lock);
                }
                self.look(thread, lock, hold, result);
                self.go_to(thread, at + 1);
            }
            (Step::Wait(lock), Phase::Has { result }) => {
                // How a wait ended is in the log before the lock that it ended with.
                if let Keeper::Record { recorder, .. } = &mut self.keeper
                    && result != 0
                {
                    recorder.failed(thread, result);
                }
                self.record(thread, lock);
                self.look(thread, lock, Hold::Exclusive, result);
                self.go_to(thread, at + 1);
            }
            (Step::Post(semaphore), phase) => return self.post(thread, semaphore, phase),
            (Step::Take(semaphore, patience), Phase::Start) => {
                return self.take_token(thread, semaphore, patience, luck);
            }
            (Step::Take(semaphore, _), Phase::Has { .. }) => {
                self.record(thread, semaphore);
                self.traces[thread.index()].push((at, 0, 0));
                self.go_to(thread, at + 1);
            }
            (Step::Once(once), Phase::Half) => {
                let (at, _) = self.threads[thread.index()];
                if self.mistake == Mistake::LateOnce {
                    self.late[thread.index()] = Some((once, true));
                } else {
                    self.record(thread, once);
                }
                self.onces[(once.0 - LOCKS - SEMAPHORES) as usize] = Some((true, thread));
                self.traces[thread.index()].push((at, 1, 0));
                self.go_to(thread, at + 1);
            }
            (Step::Once(once), _) => return self.once(thread, once),
            (step, phase) => unreachable!("{step:?} in {phase:?}"),
        }
        Ok(true)
    }

    fn go_to(&mut self, thread: Thread, at: usize) {
        self.threads[thread.index()] = (at, Phase::Start);
    }

    /// Takes the real lock, in replay when it is the thread's turn.
    fn take(
        &mut self,
        thread: Thread,
        lock: Resource,
        hold: Hold,
        result: i32,
    ) -> Result<bool, Wrong> {
        if !self.is_turn(thread)? || !self.locks[lock.index()].is_free(thread, hold) {
            return Ok(false);
        }
        self.locks[lock.index()].take(thread, hold);
        self.threads[thread.index()].1 = Phase::Has { result };
        Ok(true)
    }

    /// Whether a thread may take something. While recording it always may.
    fn is_turn(&self, thread: Thread) -> Result<bool, Wrong> {
        let Keeper::Replay(replayer) = &self.keeper else {
            return Ok(true);
        };
        match replayer.turn(thread) {
            Turn::Now => Ok(true),
            Turn::Wait(_) => Ok(false),
            Turn::Busy(_) | Turn::Ended => Err(Wrong::Diverged),
        }
    }

    /// What an attempt fails with, if it does.
    fn fails(
        &mut self,
        thread: Thread,
        patience: Patience,
        free: bool,
        luck: usize,
    ) -> Result<Option<i32>, Wrong> {
        match &mut self.keeper {
            Keeper::Record { recorder, .. } => {
                let code = match patience {
                    Patience::None if !free => BUSY,
                    Patience::Timed if !free && luck.is_multiple_of(3) => TIMED_OUT,
                    _ => return Ok(None),
                };
                if self.mistake != Mistake::SilentFailure {
                    recorder.failed(thread, code);
                }
                Ok(Some(code))
            }
            Keeper::Replay(replayer) => match replayer.turn(thread) {
                Turn::Busy(_) if patience == Patience::Forever => Err(Wrong::Diverged),
                Turn::Busy(_) => Ok(Some(replayer.failed(thread))),
                _ => Ok(None),
            },
        }
    }

    fn record(&mut self, thread: Thread, resource: Resource) {
        match &mut self.keeper {
            Keeper::Record {
                recorder,
                owners,
                places,
            } => {
                let owner = &mut owners[places[resource.index()]];
                match self.seen[thread.index()].take() {
                    Some(seen) => recorder.acquired_having_seen(thread, owner, &seen),
                    None => recorder.acquired(thread, owner),
                }
            }
            Keeper::Replay(replayer) => replayer.acquired(thread),
        }
    }

    /// Looks at what the lock protects, and changes it if it may.
    fn look(&mut self, thread: Thread, lock: Resource, hold: Hold, result: i32) {
        let at = self.threads[thread.index()].0;
        let data = &mut self.locks[lock.index()].data;
        self.traces[thread.index()].push((at, result, *data));
        if hold == Hold::Exclusive {
            let mixed = *data ^ (((thread.0 as u64) << 32) | (at as u64 + 1));
            *data = mixed.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(23);
        }
    }

    /// Recorded, then done; in replay both at once.
    fn post(&mut self, thread: Thread, semaphore: Resource, phase: Phase) -> Result<bool, Wrong> {
        let tokens = (semaphore.0 - LOCKS) as usize;
        let (at, _) = self.threads[thread.index()];
        if let Keeper::Replay(_) = self.keeper {
            if !self.is_turn(thread)? {
                return Ok(false);
            }
            self.tokens[tokens] += 1;
            self.record(thread, semaphore);
            self.go_to(thread, at + 1);
            return Ok(true);
        }
        let first = phase == Phase::Start;
        if first == (self.mistake == Mistake::LatePost) {
            self.tokens[tokens] += 1;
        } else {
            self.record(thread, semaphore);
        }
        if first {
            self.threads[thread.index()].1 = Phase::Half;
        } else {
            self.go_to(thread, at + 1);
        }
        Ok(true)
    }

    /// In replay nobody waits for a semaphore, only for their turn.
    fn take_token(
        &mut self,
        thread: Thread,
        semaphore: Resource,
        patience: Patience,
        luck: usize,
    ) -> Result<bool, Wrong> {
        let (at, _) = self.threads[thread.index()];
        let tokens = (semaphore.0 - LOCKS) as usize;
        let there = self.tokens[tokens] > 0;
        if let Some(code) = self.fails(thread, patience, there, luck)? {
            self.traces[thread.index()].push((at, code, 0));
            self.go_to(thread, at + 1);
            return Ok(true);
        }
        if !self.is_turn(thread)? {
            return Ok(false);
        }
        match (&self.keeper, there) {
            (_, true) => {}
            (Keeper::Record { .. }, false) => return Ok(false),
            (Keeper::Replay(_), false) => return Err(Wrong::TookNothing),
        }
        self.tokens[tokens] -= 1;
        self.threads[thread.index()].1 = Phase::Has { result: 0 };
        Ok(true)
    }

    /// Begins to initialise, waits for who did, or finds it done.
    fn once(&mut self, thread: Thread, once: Resource) -> Result<bool, Wrong> {
        if !self.is_turn(thread)? {
            return Ok(false);
        }
        let state = &mut self.onces[(once.0 - LOCKS - SEMAPHORES) as usize];
        let by = match *state {
            None => {
                *state = Some((false, thread));
                self.threads[thread.index()].1 = Phase::Half;
                return Ok(true);
            }
            Some((false, _)) => return Ok(false),
            Some((true, by)) => by,
        };
        match &mut self.keeper {
            Keeper::Record {
                recorder,
                owners,
                places,
            } => recorder.observed(thread, owners[places[once.index()]]),
            Keeper::Replay(replayer) => replayer.acquired(thread),
        }
        let (at, _) = self.threads[thread.index()];
        self.traces[thread.index()].push((at, 0, by.0 as u64));
        self.go_to(thread, at + 1);
        Ok(true)
    }

    fn outcome(&self) -> (Vec<Trace>, Vec<u64>) {
        let data = self.locks.iter().map(|lock| lock.data);
        (self.traces.clone(), data.collect())
    }
}

/// Records the program under one scheduler, replays it under another, and compares what its threads
/// saw and left behind.
fn record_and_replay(
    program: &Program,
    order: Order,
    places: &[usize],
    mistake: Mistake,
    choices: &[Vec<Index>; 2],
) -> Result<Recording, Wrong> {
    let keeper = Keeper::Record {
        recorder: Recorder::new(order, program.threads.len()),
        owners: vec![Owner::NOBODY; RESOURCES],
        places,
    };
    let mut original = Machine::new(program, keeper, mistake);
    original
        .run(&choices[0])
        .expect("a recorded program runs on");
    let recorded = original.outcome();
    let Keeper::Record { recorder, .. } = original.keeper else {
        unreachable!();
    };
    let recording = recorder.finish();

    let replayer = Keeper::Replay(Replayer::new(&recording));
    let mut again = Machine::new(program, replayer, Mistake::None);
    again.run(&choices[1])?;
    let Keeper::Replay(replayer) = &again.keeper else {
        unreachable!();
    };
    if again.outcome() != recorded || !replayer.is_finished() {
        return Err(Wrong::Diverged);
    }
    Ok(recording)
}

/// Each lock its own owner, or several the same.
fn any_places() -> impl Strategy<Value = Vec<usize>> {
    let count = RESOURCES;
    prop_oneof![
        2 => Just((0..count).collect()),
        1 => prop::collection::vec(0..count, count),
    ]
}

fn any_schedulers() -> impl Strategy<Value = [Vec<Index>; 2]> {
    [any_choices(), any_choices()]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn every_replay_shows_every_thread_what_it_saw(program in any_program(), places in any_places(), schedulers in any_schedulers()) {
        for order in Order::ALL {
            let done = record_and_replay(&program, order, &places, Mistake::None, &schedulers);
            prop_assert!(done.is_ok(), "{:?}: {:?}", order, done);
        }
    }
}

/// The rules that a runtime has to keep are needed: break one, and soon a replay goes wrong. It
/// also shows that these programs have enough going on for that.
#[test]
fn a_broken_rule_is_noticed() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;

    let places: Vec<_> = (0..RESOURCES).collect();
    for mistake in MISTAKES {
        let order = match mistake {
            Mistake::TornClock => Order::Relaxed,
            _ => Order::Edge,
        };
        let mut runner = TestRunner::deterministic();
        let sample = (any_program(), any_schedulers());
        let noticed = (0..20_000).find(|_| {
            let (program, schedulers) = sample.new_tree(&mut runner).unwrap().current();
            record_and_replay(&program, order, &places, mistake, &schedulers).is_err()
        });
        assert!(noticed.is_some(), "{mistake:?} went unnoticed");
    }
}
