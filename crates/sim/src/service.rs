//! A service with workers and a pool of database connections, stepped one move at a time.
//!
//! The same service runs in the original and in the replay; what differs is its [`Director`], who
//! says when a request arrives and what may happen when, sees everything that happens, and can
//! object.
//!
//! ```text
//!   arrives ─▶ worker free? ─▶ thinks ─▶ connection free? ─▶ begins ─▶ snapshot ─▶ statements ─┐
//!                                ▲                                                            ▼
//!                                └───────────────────────────────── is answered ◀────────── ends
//! ```
//!
//! A statement or commit and its answer are two moves: others may see a transaction, or get its
//! locks, before its own client knows that it committed, and what a recorder on the wire sees first
//! did not always happen first.

use hindcast_model::{Snapshot, Xid};

use crate::changed::Program;
use crate::database::{Answer, Database, Handle, Op};
use crate::handler::{Action, Begins, Habits, Handler};
use crate::rng::Rng;

/// A transaction by its request and its number within it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    pub request: usize,
    pub nth: usize,
}

/// How many of everything, and who holds a connection for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resources {
    pub workers: usize,
    pub connections: usize,
    pub hold: Hold,
    pub grant: Grant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// From a request's first transaction until it has responded.
    PerRequest,
    PerTransaction,
}

/// Who gets a free connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grant {
    /// The one that waited longest.
    InLine,
    /// Anybody who waits.
    Anyone,
}

impl Resources {
    pub const UNLIMITED: Self = Self {
        workers: usize::MAX,
        connections: usize::MAX,
        hold: Hold::PerTransaction,
        grant: Grant::Anyone,
    };
}

/// Which of the possible moves is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strategy {
    Random,
    /// The latest request that can move, as long as it can: gets as far from the original as
    /// possible.
    NewestFirst,
    OldestFirst,
    /// The one that moved last moves on while it can.
    Stubborn,
}

impl Strategy {
    pub const ALL: [Self; 4] = [
        Self::Random,
        Self::NewestFirst,
        Self::OldestFirst,
        Self::Stubborn,
    ];
}

/// What a run does not agree with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Objection(pub String);

pub trait Director {
    /// The request that may arrive now, if any.
    fn arrival(&self, in_flight: usize) -> Option<usize>;
    fn may_take_snapshot(&self, _at: Place) -> bool {
        true
    }
    fn may_execute(&self, _at: Place, _statement: usize) -> bool {
        true
    }
    fn may_commit(&self, _at: Place) -> bool {
        true
    }
    /// Whether the statement itself may run now.
    fn may_act(&self, _at: Place, _op: Op) -> bool {
        true
    }
    /// The transaction has done all but its commit; `xid`, if it has one.
    fn is_complete(&mut self, _at: Place, _xid: Option<Xid>) {}
    /// Whether a statement that waits for a transaction which may not commit yet is to fail.
    fn yields(&self, _at: Place, _holder: Place) -> bool {
        false
    }
    /// Nothing can move: whether something may now, out of order.
    fn let_go(&mut self, _stuck: &[(Place, Waiting)]) -> bool {
        false
    }

    fn arrived(&mut self, request: usize, now: i64);
    /// Whether a transaction that has a connection may go on to use it.
    fn may_start(&self, _at: Place) -> bool {
        true
    }
    fn started(&mut self, _at: Place) {}
    /// Whether a client may hear now that its transaction is over.
    fn may_hear(&self, _at: Place) -> bool {
        true
    }
    /// It takes a snapshot with each statement.
    fn reads_committed(&mut self, _at: Place) {}
    /// Nothing can move: a request whose transaction has not started and whose connection and
    /// worker are to be taken from it. It will have to arrive again.
    fn take_back(&mut self, _stuck: &[(Place, Waiting)]) -> Option<usize> {
        None
    }

    /// Says where the transaction runs.
    fn began(&mut self, at: Place, now: i64) -> Result<Runs, Objection>;
    fn took_snapshot(&mut self, at: Place, snapshot: &Snapshot) -> Result<(), Objection>;
    /// The statement at hand went on with what its snapshot did not show.
    fn rechecked(&mut self, _at: Place) {}

    /// The statement failed because of a row that is there. `behind`: what can be seen by now.
    fn lost(&mut self, _at: Place, _behind: Snapshot) {}
    /// What to execute in place of a statement.
    fn instead(&self, op: Op) -> Op {
        op
    }
    /// The answer to a statement of a transaction that is served from the record.
    fn serve(&mut self, _at: Place, _statement: usize, _op: Op) -> Result<Answer, Objection> {
        unreachable!("no transaction is served from a record")
    }
    /// The client sent a statement, or its commit or rollback.
    fn sent(&mut self, _at: Place) {}
    fn executed(
        &mut self,
        at: Place,
        statement: usize,
        op: Op,
        answer: Answer,
    ) -> Result<(), Objection>;
    /// The client has the answer to a statement.
    fn answered(&mut self, _at: Place, _statement: usize) {}
    fn ended(&mut self, at: Place, committed: bool, xid: Option<Xid>) -> Result<(), Objection>;
    /// The client has the answer to its commit or rollback.
    fn ended_known(&mut self, _at: Place, _now: i64) {}
    fn responded(&mut self, request: usize, response: u64, now: i64) -> Result<(), Objection>;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Runs {
    InDatabase,
    FromRecord,
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    Finished,
    /// Requests are left and none can move: those in flight with what each is about to do.
    Stuck(Vec<(Place, Waiting)>),
    Objected(Objection),
}

/// What a request that cannot move is about to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiting {
    Worker,
    Connection,
    /// It has a connection and may not use it yet.
    Start,
    Snapshot,
    /// The schedule holds it.
    Statement,
    /// It waits inside the database.
    Lock,
    Commit,
    /// It may not hear yet that its transaction is over.
    Answer,
}

#[derive(Clone, Debug)]
enum Phase {
    NotArrived,
    /// Since when.
    WantsWorker,
    Thinks,
    WantsConnection {
        begins: Begins,
        since: i64,
    },
    WantsStart(Begins),
    WantsSnapshot(Op),
    Executes {
        op: Op,
        tried: bool,
    },
    GetsAnswer(Answer),
    Ends {
        commit: bool,
    },
    AwaitsAnswer,
    Done,
}

#[derive(Clone, Debug)]
struct Actor {
    /// As it is at the beginning.
    program: Program,
    handler: Program,
    phase: Phase,
    /// Transactions begun so far.
    begun: usize,
    statement: usize,
    runs: Runs,
    handle: Option<Handle>,
    has_connection: bool,
}

impl Actor {
    fn place(&self, request: usize) -> Place {
        Place {
            request,
            nth: self.begun.saturating_sub(1),
        }
    }
}

pub struct Service {
    pub database: Database,
    resources: Resources,
    strategy: Strategy,
    rng: Rng,
    actors: Vec<Actor>,
    now: i64,
    working: usize,
    connected: usize,
    in_flight: usize,
    latest: usize,
}

/// Beyond this many moves a run is not making progress but going in circles.
const MOVES_MAX: i64 = 200_000;

impl Service {
    pub fn new(
        inputs: &[u64],
        habits: Habits,
        resources: Resources,
        strategy: Strategy,
        rng: Rng,
    ) -> Self {
        let programs = inputs
            .iter()
            .map(|&input| Program::Recorded(Handler::new(input, habits)));
        Self::of(programs.collect(), habits, resources, strategy, rng)
    }

    /// A service that does this with its requests.
    pub fn of(
        programs: Vec<Program>,
        habits: Habits,
        resources: Resources,
        strategy: Strategy,
        rng: Rng,
    ) -> Self {
        let actor = |program: Program| Actor {
            handler: program.clone(),
            program,
            phase: Phase::NotArrived,
            begun: 0,
            statement: 0,
            runs: Runs::InDatabase,
            handle: None,
            has_connection: false,
        };
        Self {
            database: Database::new(habits.rows + habits.keys, habits.advisory),
            resources,
            strategy,
            rng,
            actors: programs.into_iter().map(actor).collect(),
            now: 0,
            working: 0,
            connected: 0,
            in_flight: 0,
            latest: 0,
        }
    }

    /// This request never arrives.
    pub fn leave_out(&mut self, request: usize) {
        self.actors[request].phase = Phase::Done;
    }

    pub fn run(&mut self, director: &mut impl Director) -> End {
        let mut possible = Vec::new();
        while self.now < MOVES_MAX {
            self.now += 1;
            possible.clear();
            let arrival = director.arrival(self.in_flight);
            for request in 0..self.actors.len() {
                if self.can_move(request, arrival, director) {
                    possible.push(request);
                }
            }
            if possible.is_empty() {
                match self.standstill(director) {
                    End::Stuck(stuck) if director.let_go(&stuck) => {}
                    End::Stuck(stuck) => match director.take_back(&stuck) {
                        Some(request) => self.take_back(request),
                        None => return End::Stuck(stuck),
                    },
                    end => return end,
                }
                continue;
            }
            let request = match self.strategy {
                Strategy::Stubborn if possible.contains(&self.latest) => self.latest,
                Strategy::Random | Strategy::Stubborn => possible[self.rng.below(possible.len())],
                Strategy::NewestFirst => possible[possible.len() - 1],
                Strategy::OldestFirst => possible[0],
            };
            self.latest = request;
            if let Err(objection) = self.advance(request, director) {
                return End::Objected(objection);
            }
        }
        panic!("a run of {MOVES_MAX} moves does not end");
    }

    fn take_back(&mut self, request: usize) {
        let actor = &mut self.actors[request];
        assert!(
            matches!(actor.phase, Phase::WantsStart(_)),
            "its transaction has not started"
        );
        self.database
            .abort(actor.handle.take().expect("it runs in the database"));
        self.connected -= usize::from(std::mem::take(&mut actor.has_connection));
        self.working -= 1;
        self.in_flight -= 1;
        actor.handler = actor.program.clone();
        actor.begun = 0;
        actor.phase = Phase::NotArrived;
    }

    fn standstill(&self, director: &impl Director) -> End {
        let mut stuck = Vec::new();
        for (request, actor) in self.actors.iter().enumerate() {
            let waiting = match actor.phase {
                Phase::NotArrived | Phase::Done => continue,
                Phase::WantsWorker => Waiting::Worker,
                Phase::WantsConnection { .. } => Waiting::Connection,
                Phase::WantsStart(_) => Waiting::Start,
                Phase::WantsSnapshot(_) => Waiting::Snapshot,
                Phase::Executes { .. }
                    if director.may_execute(actor.place(request), actor.statement) =>
                {
                    Waiting::Lock
                }
                Phase::Executes { .. } => Waiting::Statement,
                Phase::Ends { .. } => Waiting::Commit,
                Phase::AwaitsAnswer => Waiting::Answer,
                Phase::Thinks | Phase::GetsAnswer(_) => {
                    unreachable!("this move is always possible")
                }
            };
            stuck.push((actor.place(request), waiting));
        }
        match self.actors.iter().all(|a| matches!(a.phase, Phase::Done)) {
            true => End::Finished,
            false => End::Stuck(stuck),
        }
    }

    fn can_move(&self, request: usize, arrival: Option<usize>, director: &impl Director) -> bool {
        let actor = &self.actors[request];
        let at = actor.place(request);
        match actor.phase {
            Phase::NotArrived => arrival == Some(request),
            Phase::WantsWorker => self.working < self.resources.workers,
            Phase::Thinks | Phase::GetsAnswer(_) => true,
            Phase::AwaitsAnswer => director.may_hear(at),
            Phase::WantsConnection { since, .. } => {
                actor.has_connection
                    || (self.connected < self.resources.connections
                        && (self.resources.grant == Grant::Anyone || self.is_next_in_line(since)))
            }
            Phase::WantsStart(_) => director.may_start(at),
            Phase::WantsSnapshot(_) => director.may_take_snapshot(at),
            Phase::Executes { .. } if actor.runs == Runs::FromRecord => true,
            Phase::Executes { op, tried } => {
                let handle = actor.handle.expect("it runs in the database");
                let op = director.instead(op);
                director.may_execute(at, actor.statement)
                    && director.may_act(at, op)
                    && (!(tried && self.database.would_wait(handle, op))
                        || self.yields(request, op, director))
            }
            Phase::Ends { commit } => {
                actor.runs == Runs::FromRecord || !commit || director.may_commit(at)
            }
            Phase::Done => false,
        }
    }

    /// Whether a statement waits for a transaction that may not commit yet, directly or through
    /// others, and is to fail for it.
    fn yields(&self, request: usize, op: Op, director: &impl Director) -> bool {
        let actor = &self.actors[request];
        let handle = actor.handle.expect("it runs in the database");
        let blockers = self.database.in_the_way(handle, op);
        self.actors.iter().enumerate().any(|(other, holder)| {
            let at = holder.place(other);
            matches!(holder.phase, Phase::Ends { commit: true })
                && holder.handle.is_some_and(|held| blockers.contains(&held))
                && !director.may_commit(at)
                && director.yields(actor.place(request), at)
        })
    }

    fn start(&mut self, request: usize, begins: Begins, director: &mut impl Director) {
        let actor = &self.actors[request];
        let at = actor.place(request);
        director.started(at);
        if begins.read_committed {
            director.reads_committed(at);
        }
        if begins.early_xid {
            let handle = actor.handle.expect("it runs in the database");
            self.database.assign_xid(handle);
        }
    }

    /// `None`: it waits.
    fn execute(
        &mut self,
        request: usize,
        op: Op,
        director: &mut impl Director,
    ) -> Result<Option<Answer>, Objection> {
        let actor = &self.actors[request];
        let (at, statement) = (actor.place(request), actor.statement);
        let Some(handle) = actor.handle else {
            return director.serve(at, statement, op).map(Some);
        };
        let instead = director.instead(op);
        let rechecks = self.database.rechecks(handle, instead);
        let Some(answer) = self.database.execute(handle, instead) else {
            return Ok(None);
        };
        if rechecks {
            director.rechecked(at);
        }
        if answer == Answer::Duplicate {
            director.lost(at, self.database.visible_now(handle));
        }
        director.executed(at, statement, op, answer)?;
        Ok(Some(answer))
    }

    fn is_next_in_line(&self, since: i64) -> bool {
        !self.actors.iter().any(|other| match other.phase {
            Phase::WantsConnection { since: earlier, .. } => {
                earlier < since && !other.has_connection
            }
            _ => false,
        })
    }

    fn advance(&mut self, request: usize, director: &mut impl Director) -> Result<(), Objection> {
        let now = self.now;
        let at = self.actors[request].place(request);
        let actor = &mut self.actors[request];
        let statement = actor.statement;
        match actor.phase.clone() {
            Phase::NotArrived => {
                director.arrived(request, now);
                self.in_flight += 1;
                actor.phase = Phase::WantsWorker;
            }
            Phase::WantsWorker => {
                self.working += 1;
                actor.phase = Phase::Thinks;
            }
            Phase::Thinks => {
                actor.phase = match actor.handler.act() {
                    Action::Begin(begins) => Phase::WantsConnection { begins, since: now },
                    Action::Do(op) => {
                        director.sent(at);
                        let database = &self.database;
                        let has_snapshot = actor
                            .handle
                            .is_none_or(|handle| database.has_snapshot(handle));
                        match op.takes_snapshot() && !has_snapshot {
                            true => Phase::WantsSnapshot(op),
                            false => Phase::Executes { op, tried: false },
                        }
                    }
                    action @ (Action::Commit | Action::Rollback) => {
                        director.sent(at);
                        let commit = action == Action::Commit;
                        if let Some(handle) = actor.handle.filter(|_| commit) {
                            director.is_complete(at, self.database.xid(handle));
                        }
                        Phase::Ends { commit }
                    }
                    Action::Respond(response) => {
                        self.connected -= usize::from(std::mem::take(&mut actor.has_connection));
                        self.working -= 1;
                        self.in_flight -= 1;
                        director.responded(request, response, now)?;
                        Phase::Done
                    }
                }
            }
            Phase::WantsConnection { begins, .. } => {
                self.connected += usize::from(!std::mem::replace(&mut actor.has_connection, true));
                actor.begun += 1;
                actor.statement = 0;
                actor.runs = director.began(actor.place(request), now)?;
                actor.handle = (actor.runs == Runs::InDatabase)
                    .then(|| self.database.begin(begins.read_committed));
                actor.phase = match actor.runs {
                    Runs::InDatabase => Phase::WantsStart(begins),
                    Runs::FromRecord => Phase::Thinks,
                };
            }
            Phase::WantsStart(begins) => {
                actor.phase = Phase::Thinks;
                self.start(request, begins, director);
            }
            Phase::WantsSnapshot(op) => {
                let handle = actor.handle.expect("it runs in the database");
                let snapshot = self.database.take_snapshot(handle);
                director.took_snapshot(at, &snapshot)?;
                actor.phase = Phase::Executes { op, tried: false };
            }
            Phase::Executes { op, tried: true }
                if self.database.would_wait(
                    actor.handle.expect("it waits in the database"),
                    director.instead(op),
                ) =>
            {
                // It could only move because it gives way.
                let handle = actor.handle.expect("it waits in the database");
                self.database.stop_waiting(handle);
                director.executed(at, statement, op, Answer::Serialization)?;
                actor.phase = Phase::GetsAnswer(Answer::Serialization);
            }
            Phase::Executes { op, .. } => {
                let answer = match self.execute(request, op, director)? {
                    Some(answer) => Phase::GetsAnswer(answer),
                    None => Phase::Executes { op, tried: true },
                };
                self.actors[request].phase = answer;
            }
            Phase::GetsAnswer(answer) => {
                if actor.handle.is_some() {
                    director.answered(at, statement);
                }
                actor.handler.learn(answer);
                actor.statement += 1;
                actor.phase = Phase::Thinks;
            }
            Phase::Ends { commit } => {
                if let Some(handle) = actor.handle.take() {
                    let xid = self.database.xid(handle);
                    match commit {
                        true => self.database.commit(handle),
                        false => self.database.abort(handle),
                    }
                    director.ended(at, commit, xid)?;
                }
                actor.phase = Phase::AwaitsAnswer;
            }
            Phase::AwaitsAnswer => {
                director.ended_known(at, now);
                if self.resources.hold == Hold::PerTransaction {
                    self.connected -= 1;
                    actor.has_connection = false;
                }
                actor.phase = Phase::Thinks;
            }
            Phase::Done => unreachable!("a request that is done does not move"),
        }
        Ok(())
    }
}
