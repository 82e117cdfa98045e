//! Rules for changed code (stopgap until the real one is here).

use crate::{Levels, Request, Schedule, Tx};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    Committed,
    Aborted,
    Left,
}

#[derive(Clone, Copy, Debug)]
pub struct Past {
    pub began: i64,
    pub ended: i64,
    pub origin: Origin,
    pub request: Option<Request>,
}

#[derive(Clone, Copy, Debug)]
pub struct Victim<'a> {
    pub tx: Option<Tx>,
    /// When it was over originally; of one that was added, when its request was.
    pub ended: i64,
    /// The rest of its request.
    pub unclaimed: &'a [Tx],
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress(u64);

#[derive(Clone, Debug)]
pub struct Retroaction {
    schedule: Schedule,
    past: Vec<Past>,
    free: Vec<bool>,
    absorbed: Vec<Option<Tx>>,
    became: Vec<bool>,
    begun: usize,
    losing: Vec<Tx>,
    won: usize,
    version: u64,
}

impl Retroaction {
    pub fn new(levels: Levels, past: Vec<Past>) -> Self {
        let mut losing: Vec<Tx> = levels
            .transactions()
            .filter(|&tx| levels.visible_from(tx).is_some())
            .collect();
        losing.sort_by_key(|tx| past[tx.index()].ended);
        let mut schedule = Schedule::new(levels, []);
        for (tx, one) in past.iter().enumerate() {
            if one.origin == Origin::Left {
                schedule.abandon(Tx(tx as u32));
            }
        }
        let count = past.len();
        let mut new = Self {
            schedule,
            past,
            free: vec![false; count],
            absorbed: vec![None; count],
            became: vec![false; count],
            begun: 0,
            losing,
            won: 0,
            version: 0,
        };
        new.advance();
        new
    }
    pub fn schedule(&self) -> &Schedule {
        &self.schedule
    }
    pub fn progress(&self) -> Progress {
        Progress(self.version)
    }
    fn over(&self, tx: Tx) -> bool {
        self.schedule.has_ended(tx) || self.schedule.is_abandoned(tx)
    }
    fn is_free(&self, tx: Tx) -> bool {
        self.free[tx.index()] || self.schedule.is_abandoned(tx)
    }
    pub fn may_take_snapshot(&self, tx: Tx) -> bool {
        self.is_free(tx) || self.schedule.may_take_snapshot(tx)
    }
    pub fn may_act(&self, tx: Tx) -> bool {
        self.is_free(tx)
            || self.past[tx.index()].origin != Origin::Aborted
            || self
                .losing
                .get(self.won)
                .is_none_or(|first| self.past[first.index()].ended > self.past[tx.index()].ended)
    }
    pub fn may_commit(&self, tx: Tx) -> bool {
        if self.is_free(tx) || self.past[tx.index()].origin == Origin::Aborted {
            return true;
        }
        if let Some(later) = self.absorbed[tx.index()] {
            return self.schedule.may_commit(later);
        }
        if self.became[tx.index()] {
            let own = self.past[tx.index()];
            return self.past[self.begun..]
                .iter()
                .zip(self.begun as u32..)
                .take_while(|(one, _)| one.began < own.ended)
                .all(|(one, at)| {
                    one.request == own.request && own.request.is_some()
                        || self.schedule.has_snapshot(Tx(at))
                        || self.over(Tx(at))
                        || self.schedule.levels().level_of(Tx(at)).is_none()
                });
        }
        self.schedule.may_commit(tx)
    }
    pub fn took_snapshot(&mut self, tx: Tx) {
        if !self.schedule.has_snapshot(tx) && !self.over(tx) {
            self.schedule.took_snapshot(tx);
            self.advance();
        }
    }
    pub fn committed(&mut self, tx: Tx) {
        if !self.over(tx) {
            self.schedule.committed(tx);
        }
        if let Some(later) = self.absorbed[tx.index()] {
            self.schedule.abandon(later);
        }
        self.advance();
    }
    pub fn failed(&mut self, tx: Tx) {
        self.leave(tx);
        if let Some(later) = self.absorbed[tx.index()] {
            self.leave(later);
        }
    }
    pub fn leave(&mut self, tx: Tx) {
        self.schedule.abandon(tx);
        self.advance();
    }
    pub fn became_writer(&mut self, tx: Tx) {
        self.became[tx.index()] = true;
        self.advance();
    }
    pub fn absorb(&mut self, tx: Tx, later: Tx) {
        self.absorbed[tx.index()] = Some(later);
        self.took_snapshot(later);
        self.advance();
    }
    /// A victim that was a writer originally yields if it became visible before the holder. Any other yields if it was over before the holder was: what the
    /// holder waits for may be sent only when the victim's request is over.
    pub fn must_yield(&self, victim: Victim<'_>, holder: Tx) -> bool {
        let levels = self.schedule.levels();
        let holder = self.absorbed[holder.index()].unwrap_or(holder);
        let holder_ended = self.past[holder.index()].ended;
        let v = levels.visible_from(holder);
        let blocks = |tx: &Tx| match v {
            Some(v) => levels.level_of(*tx).is_some_and(|level| level < v),
            None => self.past[tx.index()].began < holder_ended,
        };
        if victim.unclaimed.iter().any(blocks) {
            return true;
        }
        match (victim.tx.and_then(|tx| levels.visible_from(tx)), v) {
            (Some(own), Some(v)) => own < v,
            _ => victim.ended <= holder_ended,
        }
    }
    pub fn let_go(&mut self, tx: Tx) {
        self.free[tx.index()] = true;
        self.advance();
    }
    pub fn is_finished(&self) -> bool {
        self.schedule.is_finished()
    }
    fn advance(&mut self) {
        while self.begun < self.past.len() {
            let tx = Tx(self.begun as u32);
            if !self.schedule.has_snapshot(tx)
                && !self.over(tx)
                && self.schedule.levels().level_of(tx).is_some()
            {
                break;
            }
            self.begun += 1;
        }
        while self.losing.get(self.won).is_some_and(|&tx| self.over(tx)) {
            self.won += 1;
        }
        self.version += 1;
    }
}
