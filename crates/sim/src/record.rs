//! The original run: whatever happens, happens, and is written down the way a recorder on the wire
//! would.

use hindcast_model::{Snapshot, Xid};
use hindcast_order::Observed;

use crate::database::{Answer, Op};
use crate::handler::Habits;
use crate::rng::Rng;
use crate::service::{
    Director, End, Grant, Hold, Objection, Place, Resources, Runs, Service, Strategy,
};

/// A recording, with more in it than a recorder could know, to check replays against.
#[derive(Clone, Debug)]
pub struct History {
    pub habits: Habits,
    pub resources: Resources,
    pub inputs: Vec<u64>,
    /// In order of arrival.
    pub requests: Vec<Request>,
    /// In the order in which they began.
    pub transactions: Vec<Transaction>,
    pub state: Vec<u64>,
}

#[derive(Clone, Debug, Default)]
pub struct Request {
    pub arrived: i64,
    pub ended: i64,
    /// In flight when it arrived, itself included.
    pub in_flight: usize,
    pub response: u64,
    /// Indices into [`History::transactions`].
    pub transactions: Vec<usize>,
}

#[derive(Clone, Debug)]
pub struct Transaction {
    pub place: Place,
    pub began: i64,
    pub ended: i64,
    pub snapshot: Option<Snapshot>,
    pub read_committed: bool,
    /// What its statements saw, one for each under READ COMMITTED.
    pub looks: Vec<Look>,
    /// Of a writer that committed.
    pub xid: Option<Xid>,
    /// Of one that had an id and was rolled back.
    pub undone: Option<Xid>,
    pub committed: bool,
    pub statements: Vec<(Op, Answer)>,
    /// By statement, then its end.
    pub stamps: Vec<Stamps>,
}

/// A snapshot that a statement ran with.
#[derive(Clone, Debug)]
pub struct Look {
    /// Which of its transaction's.
    pub statement: usize,
    pub snapshot: Snapshot,
    /// It went on with a version of its row that the snapshot did not show.
    pub rechecked: bool,
    /// What could be seen when it had failed because of a row that is there.
    pub behind: Option<Snapshot>,
}

impl Transaction {
    /// What its first statement saw, and its id.
    pub fn observed(&self) -> Observed<'_> {
        Observed {
            snapshot: self.snapshot.as_ref(),
            xid: self.xid,
        }
    }

    /// The same, and the id of one that was rolled back, if `undone` ones count.
    pub fn observed_to_end(&self, undone: bool) -> Observed<'_> {
        Observed {
            xid: self.xid.or(self.undone.filter(|_| undone)),
            ..self.observed()
        }
    }

    /// Whether it is of no interest what the statement saw: one that waits for an advisory lock is
    /// held before it is sent, and looks when the lock is free.
    pub fn is_blind(&self, look: &Look) -> bool {
        let statement = self.statements.get(look.statement);
        self.read_committed && matches!(statement, Some((Op::Advisory(_), _)))
    }
}

/// Positions of one statement, or of an end, in the order of all that happened.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stamps {
    /// On the wire, by the client.
    pub sent: u64,
    /// In the database, where it is not seen.
    pub executed: u64,
    /// On the wire, to the client.
    pub answered: u64,
}

/// What kind of histories to make. Everything else is up to the seed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Traits {
    pub row_locks: bool,
    pub advisory_locks: bool,
    pub savepoints: bool,
    pub read_committed: bool,
    pub inserts: bool,
    /// What was inserted is written, too.
    pub changes: bool,
    /// Fewer connections than workers.
    pub small_pool: Option<Hold>,
}

impl History {
    pub fn record(seed: u64, traits: Traits) -> Self {
        let mut rng = Rng::new(seed, "history");
        let rng = &mut rng;
        let share = |on: bool, percent: usize| if on { percent } else { 0 };
        let habits = Habits {
            rows: rng.between(1, 6),
            advisory: 2,
            transactions_max: rng.between(1, 6),
            statements_max: rng.between(1, 5),
            writes: rng.between(10, 60),
            row_locks: share(traits.row_locks, rng.between(0, 20)),
            advisory_locks: share(traits.advisory_locks, rng.between(0, 12)),
            savepoints: share(traits.savepoints, rng.between(0, 20)),
            keys: if traits.inserts { 3 } else { 0 },
            changes: traits.inserts && traits.changes,
            inserts: share(traits.inserts, 40),
            rollbacks: rng.between(0, 15),
            read_committed: match traits.read_committed {
                true => rng.between(30, 100),
                false => 0,
            },
        };
        let workers = rng.between(1, 7);
        let resources = Resources {
            workers,
            connections: match traits.small_pool {
                Some(_) => rng.between(1, workers),
                None => usize::MAX,
            },
            hold: traits.small_pool.unwrap_or(Hold::PerTransaction),
            grant: Grant::InLine,
        };
        let inputs: Vec<u64> = (0..rng.between(1, 20)).map(|_| rng.draw()).collect();
        let mut service = Service::new(&inputs, habits, resources, Strategy::Random, rng.clone());
        let mut recorder = Recorder {
            in_flight_max: workers,
            requests: vec![Request::default(); inputs.len()],
            ..Recorder::default()
        };
        let end = service.run(&mut recorder);
        assert_eq!(end, End::Finished, "the original run comes to its end");
        Self {
            habits,
            resources,
            inputs,
            requests: recorder.requests,
            transactions: recorder.transactions,
            state: service.database.state(),
        }
    }
}

#[derive(Default)]
struct Recorder {
    in_flight_max: usize,
    arrived: usize,
    in_flight: usize,
    stamp: u64,
    requests: Vec<Request>,
    transactions: Vec<Transaction>,
}

impl Recorder {
    fn transaction(&mut self, at: Place) -> &mut Transaction {
        let index = self.requests[at.request].transactions[at.nth];
        &mut self.transactions[index]
    }

    fn stamp(&mut self) -> u64 {
        self.stamp += 1;
        self.stamp
    }
}

impl Director for Recorder {
    fn arrival(&self, in_flight: usize) -> Option<usize> {
        (in_flight < self.in_flight_max && self.arrived < self.requests.len())
            .then_some(self.arrived)
    }

    fn arrived(&mut self, request: usize, now: i64) {
        self.arrived += 1;
        self.in_flight += 1;
        self.requests[request].arrived = now;
        self.requests[request].in_flight = self.in_flight;
    }

    fn began(&mut self, at: Place, now: i64) -> Result<Runs, Objection> {
        self.requests[at.request]
            .transactions
            .push(self.transactions.len());
        self.transactions.push(Transaction {
            place: at,
            began: now,
            ended: now,
            snapshot: None,
            read_committed: false,
            looks: Vec::new(),
            xid: None,
            undone: None,
            committed: false,
            statements: Vec::new(),
            stamps: Vec::new(),
        });
        Ok(Runs::InDatabase)
    }

    fn took_snapshot(&mut self, at: Place, snapshot: &Snapshot) -> Result<(), Objection> {
        let transaction = self.transaction(at);
        transaction.snapshot.get_or_insert_with(|| snapshot.clone());
        transaction.looks.push(Look {
            statement: transaction.statements.len(),
            snapshot: snapshot.clone(),
            rechecked: false,
            behind: None,
        });
        Ok(())
    }

    fn reads_committed(&mut self, at: Place) {
        self.transaction(at).read_committed = true;
    }

    fn rechecked(&mut self, at: Place) {
        let last = self.transaction(at).looks.last_mut();
        last.expect("it looked").rechecked = true;
    }

    fn lost(&mut self, at: Place, behind: Snapshot) {
        let last = self.transaction(at).looks.last_mut();
        last.expect("it looked").behind = Some(behind);
    }

    fn sent(&mut self, at: Place) {
        let sent = self.stamp();
        self.transaction(at).stamps.push(Stamps {
            sent,
            ..Stamps::default()
        });
    }

    fn executed(
        &mut self,
        at: Place,
        statement: usize,
        op: Op,
        answer: Answer,
    ) -> Result<(), Objection> {
        let executed = self.stamp();
        let transaction = self.transaction(at);
        transaction.statements.push((op, answer));
        transaction.stamps[statement].executed = executed;
        Ok(())
    }

    fn answered(&mut self, at: Place, statement: usize) {
        let answered = self.stamp();
        self.transaction(at).stamps[statement].answered = answered;
    }

    fn ended(&mut self, at: Place, committed: bool, xid: Option<Xid>) -> Result<(), Objection> {
        let executed = self.stamp();
        let transaction = self.transaction(at);
        transaction.committed = committed;
        transaction.xid = xid.filter(|_| committed);
        transaction.undone = xid.filter(|_| !committed);
        transaction
            .stamps
            .last_mut()
            .expect("the end was sent")
            .executed = executed;
        Ok(())
    }

    fn ended_known(&mut self, at: Place, now: i64) {
        let answered = self.stamp();
        let transaction = self.transaction(at);
        transaction.ended = now;
        transaction
            .stamps
            .last_mut()
            .expect("the end was sent")
            .answered = answered;
    }

    fn responded(&mut self, request: usize, response: u64, now: i64) -> Result<(), Objection> {
        self.in_flight -= 1;
        self.requests[request].response = response;
        self.requests[request].ended = now;
        Ok(())
    }
}
