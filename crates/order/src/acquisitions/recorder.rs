//! What a recorder writes down at an acquisition.

use std::fmt;

/// A thread, by the number that it was given when it was made. Numbers are not used again, also not
/// in a forked child.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Thread(pub u16);

impl Thread {
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for Thread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "T{}", self.0)
    }
}

/// An acquisition, by its thread and its number among that thread's own: from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    pub thread: Thread,
    pub sequence: u64,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}#{}", self.thread, self.sequence)
    }
}

/// The word beside a lock: who acquired it last. `thread << 48 | sequence`; zero while nobody has.
///
/// Written by each acquisition, protected by the lock itself or replaced in one atomic step. It
/// goes back to zero only when the lock is made anew, and it need not: the position that is there
/// then is one in the past.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Owner(pub u64);

impl Owner {
    pub const NOBODY: Owner = Owner(0);
    const SEQUENCE_BITS: u32 = 48;

    pub fn new(position: Position) -> Self {
        let Position { thread, sequence } = position;
        assert!(
            (1..1 << Self::SEQUENCE_BITS).contains(&sequence),
            "{position} does not fit a word"
        );
        Self((thread.0 as u64) << Self::SEQUENCE_BITS | sequence)
    }

    pub fn position(self) -> Option<Position> {
        let thread = Thread((self.0 >> Self::SEQUENCE_BITS) as u16);
        let sequence = self.0 & ((1 << Self::SEQUENCE_BITS) - 1);
        (self != Self::NOBODY).then_some(Position { thread, sequence })
    }
}

/// Which order is kept, and how it is captured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Order {
    /// Total, by a ticket from one counter.
    Total,
    /// Total, by a global vector clock (section 3.1.1).
    Vector,
    /// The relaxed total order as section 3.1.2 and Figure 5 capture it.
    Relaxed,
    /// The partial order, by one word where the owner changes.
    Edge,
}

impl Order {
    pub const ALL: [Order; 4] = [Order::Total, Order::Vector, Order::Relaxed, Order::Edge];
}

/// What a thread's log says, in the order in which the thread came by it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// So many acquisitions that wait for nobody.
    Relaxed(u32),
    /// An acquisition after this one, which is another thread's.
    Edge(Position),
    /// The acquisition with this number among all, from 0.
    Ticket(u64),
    /// An acquisition after all of these, which are other threads'.
    Clock(Vec<Position>),
    /// An attempt that failed with this result.
    Busy(i32),
}

impl Entry {
    /// How many 64-bit words it takes besides its header. A clock has to say how long it is.
    pub fn words(&self) -> usize {
        match self {
            Self::Relaxed(_) | Self::Edge(_) | Self::Ticket(_) | Self::Busy(_) => 1,
            Self::Clock(clock) => 1 + clock.len(),
        }
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Relaxed(count) => write!(f, "relaxed×{count}"),
            Self::Edge(position) => write!(f, "after {position}"),
            Self::Ticket(ticket) => write!(f, "ticket {ticket}"),
            Self::Clock(clock) => {
                write!(f, "clock")?;
                clock
                    .iter()
                    .try_for_each(|position| write!(f, " {position}"))
            }
            Self::Busy(code) => write!(f, "busy {code}"),
        }
    }
}

/// A log for each thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recording {
    pub order: Order,
    pub logs: Vec<Vec<Entry>>,
    /// By thread: how many acquisitions it had made when the log began. Not zero in a forked
    /// child.
    pub before: Vec<u64>,
}

impl Recording {
    /// Of the acquisitions, not of attempts that failed.
    pub fn words(&self) -> usize {
        let entries = self.logs.iter().flatten();
        let acquired = entries.filter(|entry| !matches!(entry, Entry::Busy(_)));
        acquired.map(Entry::words).sum()
    }

    /// What waits for what, threads' own order aside: the second for the first. What was before the
    /// log began is not waited for.
    pub fn edges(&self) -> Vec<(Position, Position)> {
        let mut edges = Vec::new();
        let mut tickets = Vec::new();
        for (thread, log) in self.logs.iter().enumerate() {
            let thread = Thread(thread as u16);
            let mut sequence = self.before[thread.index()];
            for entry in log {
                sequence += match entry {
                    Entry::Busy(_) => 0,
                    Entry::Relaxed(count) => *count as u64,
                    Entry::Edge(_) | Entry::Ticket(_) | Entry::Clock(_) => 1,
                };
                let position = Position { thread, sequence };
                match entry {
                    Entry::Edge(previous) => edges.push((*previous, position)),
                    Entry::Ticket(ticket) => tickets.push((*ticket, position)),
                    Entry::Clock(clock) => {
                        edges.extend(clock.iter().map(|&previous| (previous, position)));
                    }
                    Entry::Relaxed(_) | Entry::Busy(_) => {}
                }
            }
        }
        edges.retain(|(first, _)| first.sequence > self.before[first.thread.index()]);
        tickets.sort_unstable();
        edges.extend(tickets.windows(2).map(|pair| (pair[0].1, pair[1].1)));
        edges
    }
}

/// How many acquisitions each thread had made when somebody looked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen(Vec<u64>);

/// The recording side: acquisitions in, log entries out.
///
/// One value for all threads. What a runtime keeps of it for each thread is its log, its number of
/// acquisitions, and what it knows of others; what it shares are those numbers (with `Vector` and
/// `Relaxed`) or the next ticket (with `Total`).
#[derive(Clone, Debug)]
pub struct Recorder {
    order: Order,
    /// By thread: how many acquisitions it has made. Never goes back.
    acquired: Vec<u64>,
    /// By thread: of each other one, up to where its log waits for it already. Never goes back.
    known: Vec<Vec<u64>>,
    next_ticket: u64,
    logs: Vec<Vec<Entry>>,
    before: Vec<u64>,
}

impl Recorder {
    pub fn new(order: Order, threads: usize) -> Self {
        Self {
            order,
            acquired: vec![0; threads],
            known: vec![vec![0; threads]; threads],
            next_ticket: 0,
            logs: vec![Vec::new(); threads],
            before: vec![0; threads],
        }
    }

    /// The thread has got what this is the owner of.
    pub fn acquired(&mut self, thread: Thread, owner: &mut Owner) {
        let seen = self.look();
        self.acquired_having_seen(thread, owner, &seen);
    }

    /// The clock, for [`Self::acquired_having_seen`].
    pub fn look(&self) -> Seen {
        Seen(self.acquired.clone())
    }

    /// As [`Self::acquired`], where the thread looked at the clock after it got the lock, and
    /// others have gone on since. Only if it has the lock alone.
    ///
    /// If of two acquisitions each had seen the other, each would have looked after the other was
    /// counted, so after the other looked, so after itself. Hence nothing need be locked. Two
    /// first uses may then miss each other, which a look and a count in one step (the paper's)
    /// orders; happens-before does not. Of two that hold something at the same time, though,
    /// the second could find the first as the owner and not in its clock. The owner would then
    /// be the second, who is free to take it alone next, before the first in replay.
    pub fn acquired_having_seen(&mut self, thread: Thread, owner: &mut Owner, seen: &Seen) {
        let sequence = self.acquired[thread.index()] + 1;
        let previous = std::mem::replace(owner, Owner::new(Position { thread, sequence }));
        self.log(thread, previous, seen);
    }

    /// The thread has found something done that the owner did and nobody undoes, such as an
    /// initialisation. It comes after that, and nobody has to come after it: the owner stays.
    pub fn observed(&mut self, thread: Thread, owner: Owner) {
        let seen = self.look();
        self.log(thread, owner, &seen);
    }

    fn log(&mut self, thread: Thread, previous: Owner, seen: &Seen) {
        self.acquired[thread.index()] += 1;
        let entry = match (self.order, previous.position()) {
            (Order::Total, _) => {
                self.next_ticket += 1;
                Entry::Ticket(self.next_ticket - 1)
            }
            (Order::Vector, _) => self.clock(thread, seen, false),
            (Order::Relaxed | Order::Edge, Some(previous)) if previous.thread == thread => {
                Entry::Relaxed(1)
            }
            (Order::Relaxed, _) => self.clock(thread, seen, true),
            (Order::Edge, Some(previous)) if !self.learns(thread, previous) => Entry::Relaxed(1),
            (Order::Edge, Some(previous)) => Entry::Edge(previous),
            (Order::Edge, None) => Entry::Relaxed(1),
        };
        let log = &mut self.logs[thread.index()];
        match (log.last_mut(), entry) {
            (Some(Entry::Relaxed(run)), Entry::Relaxed(_)) if *run < u32::MAX => *run += 1,
            (_, entry) => log.push(entry),
        }
    }

    /// Whether this is news: the thread does not wait for it, or for something later of the same
    /// thread, already.
    fn learns(&mut self, thread: Thread, position: Position) -> bool {
        let known = &mut self.known[thread.index()][position.thread.index()];
        let news = *known < position.sequence;
        *known = position.sequence.max(*known);
        news
    }

    fn clock(&mut self, thread: Thread, seen: &Seen, only_news: bool) -> Entry {
        let others = (0..).map(Thread).zip(&seen.0);
        let others = others.filter(|&(other, &sequence)| other != thread && sequence > 0);
        let mut clock: Vec<_> = others
            .map(|(thread, &sequence)| Position { thread, sequence })
            .collect();
        clock.retain(|&position| self.learns(thread, position) || !only_news);
        Entry::Clock(clock)
    }

    /// The thread tried and did not get it, or waited and was told so. What waits for nobody is not
    /// ordered either.
    pub fn failed(&mut self, thread: Thread, code: i32) {
        self.logs[thread.index()].push(Entry::Busy(code));
    }

    /// How many acquisitions a thread has made.
    pub fn sequence(&self, thread: Thread) -> u64 {
        self.acquired[thread.index()]
    }

    /// The recorder of a forked child. It has empty logs, the parent's numbers, and tickets from 0.
    pub fn fork(&self) -> Self {
        Self {
            logs: vec![Vec::new(); self.logs.len()],
            before: self.acquired.clone(),
            next_ticket: 0,
            ..self.clone()
        }
    }

    pub fn finish(self) -> Recording {
        let Self {
            order,
            logs,
            before,
            ..
        } = self;
        Recording {
            order,
            logs,
            before,
        }
    }
}
