//! All connections of the service, out of what its threads told.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use hindcast_spool::Clock;
use hindcast_taplog::{How, Told};

use super::host::Host;
use super::merge::{Done, Merge, What};
use super::stream::Stream;

/// For how long a connection is remembered that everybody has closed who is known to have had it,
/// in nanoseconds. A child that inherited it may turn up; one for which there may be something left
/// to do is waited for longer.
const DONE: u64 = 200_000_000;
const NOT_DONE: u64 = 5_000_000_000;

/// Losses become one gap if they are closer together than this, in nanoseconds.
const TOGETHER: u64 = 1_000_000_000;

/// A program that may be told of by several rings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Program {
    pub pid: u32,
    pub began: u64,
}

/// Requests out of what rings tell. It has neither clock nor thread: it is told the time.
pub(super) struct Streams {
    pub host: Host,
    merge: Merge,
    streams: HashMap<u64, Stream>,
    /// Where the service listens, as far as somebody has come.
    own: HashSet<Vec<u8>>,
    /// When those are forgotten that everybody has closed.
    closed: BTreeSet<(u64, u64)>,
    rings: HashMap<u32, Ring>,
    programs: HashMap<Program, u32>,
    /// Rings that tell nothing more: of what has been told already, some may wait.
    ended: Vec<u32>,
    ending: Vec<u32>,
    /// From when to when something was lost that no gap tells yet.
    missed: Option<(u64, u64)>,
}

struct Ring {
    program: u32,
    pid: u32,
    /// The moment of what it told last.
    last: u64,
}

impl Streams {
    pub fn new(host: Host) -> Self {
        Self {
            host,
            merge: Merge::default(),
            streams: HashMap::new(),
            own: HashSet::new(),
            closed: BTreeSet::new(),
            rings: HashMap::new(),
            programs: HashMap::new(),
            ended: Vec::new(),
            ending: Vec::new(),
            missed: None,
        }
    }

    pub fn ring(&mut self, ring: u32, program: Program) {
        let next = self.programs.len() as u32;
        let (pid, last) = (program.pid, 0);
        let program = *self.programs.entry(program).or_insert(next);
        self.rings.insert(ring, Ring { program, pid, last });
    }

    pub fn told<'a>(&mut self, ring: u32, records: impl Iterator<Item = (u64, Told<'a>)>) {
        let mut last = self.rings.get(&ring).map_or(0, |ring| ring.last);
        for (at, told) in records {
            if let Told::Lost { records, bytes, .. } = told {
                self.host.counters.lost_records.add(records);
                self.host.counters.lost_bytes.add(bytes);
            }
            // What is found out in the end has no moment.
            last = last.max(at);
            let heard = |stream| self.streams.get(&stream).is_none_or(|one| !one.is_deaf());
            self.merge.told(ring, last, &told, heard);
        }
        if let Some(ring) = self.rings.get_mut(&ring) {
            ring.last = last;
        }
    }

    /// The ring held nonsense: of what its thread does from here on nothing is known.
    pub fn garbled(&mut self, ring: u32) {
        self.host.counters.garbled.one();
        let last = self.rings.get(&ring).map_or(0, |ring| ring.last);
        self.merge.lost(ring, last);
    }

    /// The ring tells nothing more.
    pub fn ended(&mut self, ring: u32) {
        self.ending.push(ring);
    }

    /// All has come that was done before this moment.
    pub fn until(&mut self, moment: u64, clock: Clock) {
        self.host.clock = clock;
        let mut merge = std::mem::take(&mut self.merge);
        merge.until(moment, |done| self.done(&done));
        self.merge = merge;
        for ring in std::mem::take(&mut self.ended) {
            self.forget_ring(ring, moment);
        }
        self.ended = std::mem::take(&mut self.ending);
        self.tell_missed(moment);
        self.host.all_told(moment);
        while let Some(&(due, stream)) = self.closed.first()
            && due <= moment
        {
            self.closed.pop_first();
            self.close(stream, due);
        }
    }

    /// Nothing more will come of anything.
    pub fn finish(&mut self, moment: u64, clock: Clock) {
        self.ended.append(&mut self.ending);
        self.until(u64::MAX, clock);
        // In an order: the same account makes the same recording.
        let streams: BTreeMap<u64, Stream> =
            std::mem::take(&mut self.streams).into_iter().collect();
        for mut stream in streams.into_values() {
            stream.cut_off(&mut self.host, moment);
        }
    }

    fn done(&mut self, done: &Done<'_>) {
        let &Done {
            at,
            ring,
            stream,
            what,
        } = done;
        if stream == 0 {
            return self.lost_of_any(at);
        }
        let Some(&Ring { program, pid, .. }) = self.rings.get(&ring) else {
            return;
        };
        if let What::Reading(n, reading) = what {
            return self.host.read(stream, n, reading);
        }
        if what == What::Closed {
            return self.let_go(stream, program, at);
        }
        if let What::Opened(How::Accepted, own, _) = what {
            self.listens(own);
        }
        let host = &mut self.host;
        let one = self.streams.entry(stream).or_insert_with(Stream::new);
        one.held_by(program);
        match what {
            What::Opened(How::Accepted, own, peer) => {
                one.accepted(own, peer, pid);
            }
            // What the service asks of itself is seen at the other end.
            What::Opened(How::Connected, peer, _) if self.own.contains(peer) => one.ignore(),
            What::Opened(How::Connected, peer, _) => one.connected(stream, peer),
            What::Opened(How::Database, ..) => one.leads_to_database(host, at),
            What::Opened(How::Found, ..) | What::Closed | What::Reading(..) => {}
            What::Turn(number) => one.turn(host, at, number),
            What::Bytes(direction, bytes) => one.bytes(host, at, direction, bytes),
            What::Unseen(direction, length) => one.unseen(host, at, direction, length),
            What::Ended(direction) => one.ended(host, at, direction),
            What::Encrypted => one.encrypted(host, at),
            What::Lost => {
                one.lost(host, at);
                self.missed_at(at);
            }
        }
    }

    /// The service listens there, as it has accepted a connection. Who connected before that is
    /// told is the service itself, too.
    fn listens(&mut self, own: &[u8]) {
        if !self.own.contains(own) {
            self.own.insert(own.to_vec());
            let all = self.streams.values_mut();
            all.filter(|one| one.calls(own)).for_each(Stream::ignore);
        }
    }

    /// Many losses become one gap.
    fn missed_at(&mut self, at: u64) {
        let (from, to) = self.missed.get_or_insert((at, at));
        (*from, *to) = (at.min(*from), at.max(*to));
    }

    fn tell_missed(&mut self, moment: u64) {
        if let Some((from, to)) = self.missed
            && moment.saturating_sub(from) >= TOGETHER
        {
            self.host.missed(from, to, LOST);
            self.missed = None;
        }
    }

    /// It may have been any stream's: what is in the middle of something is not believed any more.
    fn lost_of_any(&mut self, at: u64) {
        let host = &mut self.host;
        let busy = self.streams.iter_mut().filter(|(_, one)| one.is_busy());
        let busy: BTreeMap<u64, &mut Stream> = busy.map(|(&number, one)| (number, one)).collect();
        for stream in busy.into_values() {
            stream.lost(host, at);
        }
        self.missed_at(at);
    }

    fn let_go(&mut self, stream: u64, program: u32, at: u64) {
        if let Some(one) = self.streams.get_mut(&stream)
            && one.let_go(program, at)
        {
            let patience = match one.is_done() {
                true => DONE,
                false => NOT_DONE,
            };
            self.closed.insert((at.saturating_add(patience), stream));
        }
    }

    /// Unless somebody has turned up.
    fn close(&mut self, stream: u64, due: u64) {
        let closed = self.streams.get(&stream).and_then(|one| one.closed);
        if let Some(at) = closed
            && (at.saturating_add(DONE) == due || at.saturating_add(NOT_DONE) == due)
            && let Some(mut one) = self.streams.remove(&stream)
        {
            one.finish(&mut self.host, at);
        }
    }

    /// With its program's last ring, all that the program had open is closed.
    fn forget_ring(&mut self, ring: u32, moment: u64) {
        let Some(Ring { program, last, .. }) = self.rings.remove(&ring) else {
            return;
        };
        let others = self.rings.values_mut();
        if let Some(other) = others.into_iter().find(|other| other.program == program) {
            other.last = other.last.max(last);
            return;
        }
        self.programs.retain(|_, number| *number != program);
        let held = self
            .streams
            .iter()
            .filter(|(_, one)| one.is_held_by(program));
        let held: Vec<u64> = held.map(|(&stream, _)| stream).collect();
        for stream in held {
            self.let_go(stream, program, last.min(moment));
        }
    }
}

const LOST: &str = "the tap had no room for all that the service's sockets carried";
