//! The machine that goes on.
//!
//! ```text
//!   waits ──hello──▶ follows ──lost, closed, silent──▶ takes over ──▶ leads ──▶ the program's end
//!     ▲                 │ ▲
//!     └──── ended ──────┘ └── catches up with a program that ran before
//! ```
//!
//! From the moment at which it decides to take over it acknowledges nothing, and the primary lets
//! nothing go that is not acknowledged: that is what keeps two machines from answering. One that
//! catches up does not take over: answers are not held for it.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddrV4;
use std::os::fd::AsFd as _;
use std::path::Path;
use std::time::{Duration, Instant};

use hindcast_exec::apart::{Follower, Standing as Of, Wanted};
use hindcast_exec::watch::{Ended, Event, Signals};
use hindcast_execlog::handover;

use crate::accept::{accept, no_program, refuse, why};
use crate::book::{Book, Ends};
use crate::channel::{Channel, run_first, wait};
use crate::checkpoints::Checkpoints;
use crate::connections;
use crate::doors::{self, Doors, Hello, Visit};
use crate::error::{ProtectError, in_one_line, system};
use crate::lag::Lag;
use crate::message::{Standing, Status, ToBackup, ToPrimary};
use crate::network::{self, Rule};
use crate::packet::Packet;
use crate::repair::{self, Progress, Repaired, client_of};
use crate::running::{Running, Runs};
use crate::store::Store;
use crate::terms::{self, Taken, Terms, clean_up};
use crate::wire::{Arriving, Wire};

#[derive(Clone, Debug)]
pub struct BackupOptions {
    /// Where the primary connects to.
    pub listen: String,
    /// Also those on which the program runs here once it does.
    pub terms: Terms,
    /// The device that gets the address; `None`: the one through which the primary comes.
    pub device: Option<String>,
    /// After how long a silence the primary counts as dead.
    pub detect: Duration,
    /// For a primary that ends by itself: wait for the next one.
    pub again: bool,
    /// How far apart checkpoints of the copy are taken; zero: none are.
    pub checkpoint_every: Duration,
    /// How far the copy may be behind before answers wait for it; zero: they never do.
    pub lag: Duration,
}

/// What is worth saying.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    Listening(String),
    /// A primary has come, and its program can be followed.
    Follows {
        program: String,
        from: String,
        /// It ran before, and this machine catches up.
        runs: bool,
    },
    /// From here on it would go on.
    CaughtUp,
    /// The primary was lost before that.
    TooEarly(Reason),
    /// The copy begins at a checkpoint, after so many events.
    BeginsAt(u64),
    /// Why no more checkpoints are taken.
    NoCheckpoints(String),
    /// The log is larger than what is kept, in bytes: should the program go on here, it can have no
    /// backup.
    LogDropped(u64),
    /// Once it goes on here.
    Leads(terms::Notice),
    Refused {
        why: String,
        hint: String,
    },
    /// The copy is none any more: the primary runs on unprotected.
    Dropped(String),
    /// A process that the program has started has done something else here.
    NotCopied,
    /// The program has ended by itself on the primary.
    Ended,
    /// The primary is gone.
    Lost(Reason),
    /// The program goes on here.
    TookOver(Takeover),
    /// It cannot go on here.
    NotTakenOver(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// It has said that the program was lost.
    Said,
    /// Its process has ended.
    Closed,
    /// It was not heard for so long.
    Silent(Duration),
}

/// How a takeover went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Takeover {
    pub pid: u32,
    pub connections: usize,
    /// Connections that could not be kept, and why the first of them could not, if it is known.
    pub lost: usize,
    pub why_lost: Option<String>,
    /// Files that it was writing and that are not on this machine: it cannot write on.
    pub lost_files: u32,
    /// Files to which the primary had appended what this machine's copy has not: that was undone.
    pub cut_files: u32,
    pub took: Duration,
    /// Whether it can have a backup here.
    pub is_recorded: bool,
}

/// How it came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The program has ended, here or there.
    Ended(Option<Ended>),
    /// It was lost, and could not go on here.
    Lost,
    /// It was lost here, and another backup goes on in its place.
    TakenOver,
    /// The user ended it.
    Interrupted(i32),
}

const LOOK_EVERY: Duration = Duration::from_millis(5);
/// How long clients may take to say how much they have. One that is further away is believed to
/// have what it said last.
const ANSWERS: Duration = Duration::from_millis(30);
/// How long a primary that this machine catches up with may be silent.
const SILENCE: Duration = Duration::from_secs(10);
/// How often it is told how far this machine is.
const TELL_EVERY: Duration = Duration::from_millis(100);
/// How long the primary may take to start the program.
const START: Duration = Duration::from_secs(20);
/// How long the follower may take to replay what is left.
const PATIENCE: Duration = Duration::from_secs(30);

/// Stands by for a primary, and goes on in its place when that is lost.
pub fn run(options: &BackupOptions, say: &mut dyn FnMut(Notice)) -> Result<Outcome, ProtectError> {
    network::remove_left_rules(&options.terms.address)?;
    let mut doors = Doors::open(&options.listen, options.terms.key.as_ref())?;
    let signals = Signals::take_over().map_err(system("taking over signals"))?;
    run_first();
    say(Notice::Listening(doors.place()));
    loop {
        let hello = loop {
            if let Some(number) = ends(&signals) {
                return Ok(Outcome::Interrupted(number));
            }
            match doors.look(&Status::default()) {
                Some(Visit::Hello(hello)) => break hello,
                Some(Visit::Attach { visitor, .. }) => no_program(visitor),
                None => {}
            }
            wait(&doors.ends(), LOOK_EVERY.max(Duration::from_millis(50)));
        };
        let folder = hindcast_private::temporary_folder(std::env::temp_dir(), "hindcast-protect-")
            .map_err(system("making a folder for the log"))?;
        let Some(mut backup) = Backup::new(options, folder.path(), hello, say) else {
            continue;
        };
        match backup.follow(&mut doors, &signals, say)? {
            Followed::Next => {}
            Followed::Over(Outcome::Ended(None)) if options.again => {}
            Followed::Over(outcome) => return Ok(outcome),
            Followed::Leads(takeover) => return backup.lead(takeover, doors, &signals, say),
        }
    }
}

/// The signal with which the user ends it, if there was one.
fn ends(signals: &Signals) -> Option<i32> {
    match signals.next(Duration::ZERO) {
        Event::Signal {
            number: number @ (libc::SIGINT | libc::SIGTERM | libc::SIGHUP | libc::SIGQUIT),
            ..
        } => Some(number),
        Event::Signal { .. } | Event::Look => None,
    }
}

/// What following has come to.
enum Followed {
    /// The next primary may come.
    Next,
    Over(Outcome),
    /// The program goes on here.
    Leads(Takeover),
}

/// What there is while this machine catches up.
struct CatchesUp {
    /// A mark that was not acknowledged, and the events that must have been replayed before.
    mark: Option<(u64, HashMap<String, u64>)>,
    told: Instant,
}

/// What is known of connections at a takeover.
struct Moved {
    /// Packets that have come since.
    arriving: Arriving,
    kept: HashSet<Ends>,
    /// How many were accepted at each port.
    accepted: HashMap<u16, usize>,
}

struct Backup<'a> {
    options: &'a BackupOptions,
    folder: &'a Path,
    device: String,
    program: String,
    channel: Channel,
    store: Store,
    book: Book,
    follower: Option<Follower>,
    checkpoints: Checkpoints,
    lag: Lag,
    heard: Instant,
    is_dropped: bool,
    /// How many of the copy's children were.
    dropped_children: u32,
    /// `None`: it may take over.
    catches_up: Option<CatchesUp>,
    /// The log is not kept any more.
    is_given_back: bool,
    files: Vec<(String, Vec<u8>)>,
    moved: Option<Moved>,
}

/// A connection that goes on here.
struct Kept {
    ends: Ends,
    repaired: Repaired,
    shut: u32,
    has_ended: bool,
}

/// What a round came to.
enum Round {
    On,
    Ended,
    Lost(Reason),
}

impl<'a> Backup<'a> {
    /// Says whether the program can be followed here.
    fn new(
        options: &'a BackupOptions,
        folder: &'a Path,
        mut hello: Hello,
        say: &mut dyn FnMut(Notice),
    ) -> Option<Backup<'a>> {
        let own = (&*options.listen, &options.terms, options.device.as_deref());
        match accept(own, folder, &hello) {
            Ok((device, program, from)) => {
                hello.channel.put(&ToPrimary::Ready);
                let _ = hello.channel.flush();
                say(Notice::Follows {
                    program: program.clone(),
                    from: hello.from,
                    runs: hello.runs,
                });
                if let Some(from) = &from {
                    say(Notice::BeginsAt(from.progress()));
                }
                Some(Backup {
                    options,
                    folder,
                    device,
                    program,
                    channel: hello.channel,
                    store: Store::new(folder),
                    book: Book::default(),
                    follower: None,
                    checkpoints: Checkpoints::new(options.checkpoint_every, from),
                    lag: Lag::new(options.lag),
                    heard: Instant::now(),
                    is_dropped: false,
                    dropped_children: 0,
                    catches_up: hello.runs.then(|| CatchesUp {
                        mark: None,
                        told: Instant::now(),
                    }),
                    is_given_back: options.terms.keep == 0,
                    files: hello.files,
                    moved: None,
                })
            }
            Err(error) => {
                let (why, hint) = (in_one_line(&error), error.hint());
                doors::refuse(hello.channel, &why, &hint);
                say(Notice::Refused { why, hint });
                None
            }
        }
    }

    fn follow(
        &mut self,
        doors: &mut Doors,
        signals: &Signals,
        say: &mut dyn FnMut(Notice),
    ) -> Result<Followed, ProtectError> {
        let mut looked = Instant::now();
        let reason = loop {
            if looked.elapsed() >= LOOK_EVERY {
                looked = Instant::now();
                if let Some(number) = ends(signals) {
                    self.end_follower();
                    return Ok(Followed::Over(Outcome::Interrupted(number)));
                }
                self.look_after_follower(say)?;
                if doors.somebody_waits()
                    && let Some(visit) = doors.look(&self.status())
                {
                    refuse(visit);
                }
            }
            match self.round(say) {
                Round::On => {}
                Round::Ended => {
                    self.let_follower_end();
                    say(Notice::Ended);
                    return Ok(Followed::Over(Outcome::Ended(None)));
                }
                Round::Lost(reason) => break reason,
            }
            wait(&[self.channel.as_fd()], LOOK_EVERY);
        };
        if self.catches_up.is_some() {
            self.end_follower();
            say(Notice::TooEarly(reason));
            return Ok(Followed::Next);
        }
        say(Notice::Lost(reason));
        // From here on nothing is acknowledged.
        let begun = Instant::now();
        self.channel.put(&ToPrimary::Replaced);
        let _ = self.channel.flush();
        match self.take_over(begun, signals) {
            Ok(takeover) => Ok(Followed::Leads(takeover)),
            Err(why) => {
                self.end_follower();
                let address = &self.options.terms.address;
                let _ = network::remove_left_rules(address);
                network::give_up(address, &self.device);
                say(Notice::NotTakenOver(why));
                Ok(Followed::Over(Outcome::Lost))
            }
        }
    }

    /// Takes what has come. It is acknowledged before it is worked on, since answers wait for that.
    fn round(&mut self, say: &mut dyn FnMut(Notice)) -> Round {
        let filled = self.channel.fill();
        // Until now: what is done with it may take long.
        let looked = Instant::now();
        let mut arrived = Vec::new();
        let mut last = None;
        let taken = loop {
            match self.channel.take::<ToBackup>() {
                Ok(Some(ToBackup::Mark(mark))) => last = Some(mark),
                Ok(Some(message)) => arrived.push(message),
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        if last.is_some() || !arrived.is_empty() {
            self.heard = looked;
        }
        let is_behind = self.catches_up.is_some() && !arrived.contains(&ToBackup::Holds);
        self.lag.came(last.filter(|_| taken.is_ok() && !is_behind));
        let follower = self.follower.as_ref().filter(|_| !self.is_dropped);
        if let Some(word) = self.lag.look(follower, self.store.events()) {
            self.channel.put(&word);
        }
        if arrived.contains(&ToBackup::Alive) {
            self.channel.put(&ToPrimary::Alive);
        }
        let flushed = self.channel.flush();
        for message in arrived {
            match self.work_on(message, say) {
                Round::On => {}
                over => return over,
            }
        }
        self.say_how_far(last.filter(|_| is_behind));
        if self.is_dropped {
            // There is nobody who could take over.
            return match filled.and(flushed) {
                Ok(()) => Round::On,
                Err(_) => Round::Ended,
            };
        }
        if filled.is_err() || flushed.is_err() || taken.is_err() {
            return Round::Lost(Reason::Closed);
        }
        let silence = looked.saturating_duration_since(self.heard);
        // Before the program runs there is much to do there, and nobody to answer.
        let limit = match (self.catches_up.is_some(), self.follower.is_some()) {
            (true, _) => self.options.detect.max(SILENCE),
            (false, true) => self.options.detect,
            (false, false) => self.options.detect.max(START),
        };
        match silence > limit {
            true => Round::Lost(Reason::Silent(silence)),
            false => Round::On,
        }
    }

    /// While this machine catches up: a mark is acknowledged when what came before it was replayed.
    fn say_how_far(&mut self, mark: Option<u64>) {
        let Some(catches_up) = &mut self.catches_up else {
            return;
        };
        if let Some(mark) = mark {
            catches_up.mark = Some((mark, self.store.events().clone()));
        }
        let Some(follower) = &self.follower else {
            return;
        };
        let is_due = |(_, events): &mut (u64, HashMap<String, u64>)| follower.has_replayed(events);
        if let Some((mark, _)) = catches_up.mark.take_if(is_due) {
            self.channel.put(&ToPrimary::Mark(mark));
        }
        if catches_up.told.elapsed() >= TELL_EVERY {
            catches_up.told = Instant::now();
            self.channel.put(&ToPrimary::Replayed(follower.events()));
        }
        // Whether it can be said is known in the next round.
        let _ = self.channel.flush();
    }

    fn work_on(&mut self, message: ToBackup, say: &mut dyn FnMut(Notice)) -> Round {
        match message {
            ToBackup::Mark(_)
            | ToBackup::Alive
            | ToBackup::Hello { .. }
            | ToBackup::Status
            | ToBackup::Attach { .. } => {}
            ToBackup::Entry(entry) => self.book.take(entry),
            ToBackup::Holds => {
                self.catches_up = None;
                say(Notice::CaughtUp);
            }
            ToBackup::Came(bytes) => {
                if let Some(packet) = Packet::parse(&bytes) {
                    self.book.came(&packet);
                }
            }
            ToBackup::Goes(bytes) => {
                if let Some(packet) = Packet::parse(&bytes) {
                    self.book.goes(&packet);
                }
            }
            ToBackup::Unread(all) => {
                for (client, port, bytes) in all {
                    self.book.unread((client, port), bytes);
                }
            }
            ToBackup::Lost => return Round::Lost(Reason::Said),
            ToBackup::Ended => return Round::Ended,
            ToBackup::Leaves => {
                self.drop_follower("the primary cannot send its log".to_owned(), say);
            }
            file => {
                if let Err(error) = self.store.apply(&file) {
                    self.drop_follower(format!("the log cannot be kept: {error}"), say);
                }
            }
        }
        Round::On
    }

    fn look_after_follower(&mut self, say: &mut dyn FnMut(Notice)) -> Result<(), ProtectError> {
        if self.is_dropped {
            return Ok(());
        }
        let Some(follower) = &self.follower else {
            let from = self.checkpoints.latest();
            if self.store.has_begun(from) {
                let started = Follower::start(self.folder, from, !self.is_given_back)?;
                self.follower = Some(started);
            }
            return Ok(());
        };
        let keep = self.options.terms.keep;
        if self.catches_up.is_none() && !self.is_given_back {
            let ended = self.checkpoints.look(follower, &mut self.store);
            ended
                .into_iter()
                .for_each(|why| say(Notice::NoCheckpoints(why)));
        }
        if self.store.kept() > keep && !std::mem::replace(&mut self.is_given_back, true) {
            follower.let_log_go();
            say(Notice::LogDropped(keep));
        }
        let children = follower.dropped_children();
        if std::mem::replace(&mut self.dropped_children, children) != children {
            self.channel.put(&ToPrimary::NotCopied);
            let _ = self.channel.flush();
            say(Notice::NotCopied);
        }
        match follower.standing() {
            Of::Follows | Of::Leads { .. } => {}
            Of::Reported(report) => {
                self.drop_follower(why(&report), say);
            }
            // At its log's end, which has not come as a message yet.
            Of::Ended(Ended::Exited(_)) => {}
            Of::Ended(Ended::Signalled(signal)) => {
                self.drop_follower(format!("it was ended by signal {signal}"), say);
            }
        }
        Ok(())
    }

    fn drop_follower(&mut self, why: String, say: &mut dyn FnMut(Notice)) {
        if std::mem::replace(&mut self.is_dropped, true) {
            return;
        }
        self.end_follower();
        self.channel.put(&ToPrimary::Dropped(why.clone()));
        let _ = self.channel.flush();
        say(Notice::Dropped(why));
    }

    fn end_follower(&mut self) {
        self.checkpoints.end(&mut self.store);
        if let Some(follower) = self.follower.take() {
            follower.end();
        }
    }

    fn let_follower_end(&mut self) {
        self.checkpoints.end(&mut self.store);
        let Some(follower) = self.follower.take() else {
            return;
        };
        follower.let_end();
        let deadline = Instant::now() + Duration::from_secs(5);
        while Instant::now() < deadline {
            if !matches!(follower.standing(), Of::Follows) {
                break;
            }
            std::thread::sleep(LOOK_EVERY);
        }
        follower.end();
    }

    fn status(&self) -> Status {
        Status {
            standing: match self.catches_up {
                Some(_) => Standing::CatchesUp,
                None => Standing::Follows,
            },
            address: Some(self.options.terms.address.to_string()),
            program: Some(self.program.clone()),
            connections: self.book.len() as u64,
            log_bytes: self.store.bytes,
            events: self.follower.as_ref().map_or(0, Follower::events),
            silent_ms: self.heard.elapsed().as_millis() as u64,
            took_ms: None,
            protection: None,
        }
    }

    /// Has the follower go on, with the connections and the address of the primary.
    fn take_over(&mut self, begun: Instant, signals: &Signals) -> Result<Takeover, String> {
        let text = |error: ProtectError| in_one_line(&error);
        self.checkpoints.end(&mut self.store);
        let Some(follower) = &self.follower else {
            return Err("the program had not begun".to_owned());
        };
        follower.let_go();
        // The address must be here before sockets can be what they were, and clients must not find
        // it while they are not.
        let address = self.options.terms.address.clone();
        Rule::KeepOut.set(&address).map_err(text)?;
        network::take(&address, &self.device).map_err(text)?;
        let wire = Wire::open().map_err(|error| error.to_string())?;
        let mut arriving = Arriving::at(address.ip).map_err(|error| error.to_string())?;
        let (connections, accepted) = connections::of(follower, begun, PATIENCE)?;
        // What a client says to the first packet must come here.
        let _ = network::announce(&address, &self.device);
        self.ask(&wire, &mut arriving, &connections);
        let Some(follower) = &self.follower else {
            return Err("the program had not begun".to_owned());
        };
        let mut repaired = Vec::new();
        let (mut lost, mut why_lost) = (0, None);
        for connection in &connections {
            match self.repair(connection) {
                Ok(found) => repaired.push(found),
                Err(why) => {
                    lost += 1;
                    why_lost.get_or_insert(why);
                }
            }
        }
        Rule::KeepOutNew.set(&address).map_err(text)?;
        Rule::KeepOut.remove(&address).map_err(text)?;
        let connections = repaired.len();
        let kept: HashSet<Ends> = repaired.iter().map(|kept| kept.ends).collect();
        for kept in repaired {
            let live = kept.repaired.go_live(&wire, kept.shut, kept.has_ended);
            lost += usize::from(live.is_err());
        }
        follower.connected().map_err(|error| error.to_string())?;
        wait_until_it_leads(follower, begun, signals)?;
        let took = begun.elapsed();
        Rule::KeepOutNew.remove(&address).map_err(text)?;
        let _ = network::announce(&address, &self.device);
        self.turn_away(&wire, &kept);
        let is_recorded = match follower.standing() {
            Of::Reported(report) => return Err(why(&report)),
            standing => standing == Of::Leads { is_recorded: true },
        };
        let lost = lost + follower.lost_connections() as usize;
        let takeover = Takeover {
            pid: follower.pid as u32,
            connections: connections.saturating_sub(follower.lost_connections() as usize),
            lost,
            why_lost,
            lost_files: follower.lost_files(),
            cut_files: follower.cut_files(),
            took,
            is_recorded,
        };
        self.moved = Some(Moved {
            arriving,
            kept,
            accepted,
        });
        Ok(takeover)
    }

    /// Asks the clients how much they have: what they have said to the primary last, nobody here
    /// has heard.
    fn ask(&mut self, wire: &Wire, arriving: &mut Arriving, connections: &[Wanted]) {
        let own = self.options.terms.address.ip;
        let mut asked: HashSet<Ends> = HashSet::new();
        for Wanted { connection, .. } in connections {
            let Some(client) = self.client_of(connection) else {
                continue;
            };
            let service = SocketAddrV4::new(own, connection.port);
            let known = self.book.get(&(client, connection.port));
            if let Some(question) = known.and_then(|known| known.question((service, client))) {
                wire.send(&question, client);
                asked.insert((client, connection.port));
            }
        }
        let deadline = Instant::now() + ANSWERS;
        while !asked.is_empty() && Instant::now() < deadline {
            wait(&[arriving.as_fd()], Duration::from_millis(1));
            let book = &mut self.book;
            arriving.each(|bytes| {
                if let Some(packet) = Packet::parse(bytes) {
                    book.came(&packet);
                    asked.remove(&(packet.from, packet.to.port()));
                }
            });
        }
    }

    /// Clients whose connections do not go on here are to learn it, also those that have nothing to
    /// send any more: what they answer comes to a kernel that knows nothing of them, and says so.
    /// The program may not have accepted them yet.
    fn turn_away(&self, wire: &Wire, kept: &HashSet<Ends>) {
        for ((client, port), connection) in self.book.all_but(kept) {
            let service = SocketAddrV4::new(self.options.terms.address.ip, *port);
            if let Some(question) = connection.question((service, *client)) {
                wire.send(&question, *client);
            }
        }
    }

    fn client_of(&self, connection: &handover::Connection) -> Option<SocketAddrV4> {
        client_of(connection).or_else(|| self.book.by_turn(connection.port, connection.turn))
    }

    fn repair(&self, wanted: &Wanted) -> Result<Kept, String> {
        let connection = &wanted.connection;
        let client = self.client_of(connection);
        let ends = client.map(|client| (client, connection.port));
        let known = ends.and_then(|ends| Some((ends, self.book.get(&ends)?)));
        let ((client, port), known) = known.ok_or("its packets were not seen, or it has ended")?;
        let again = known.acknowledged.min(connection.sent);
        // The end of what the service sends counts as a byte, and is none.
        let ended = u64::from(connection.shut & 2 != 0 || known.has_said_end());
        let beyond = known.acknowledged.saturating_sub(connection.sent + ended);
        let unread = known.from(connection.received);
        let unread = unread.ok_or("what the program has not read is not known any more")?;
        let again = wanted.written(again);
        let again = again.ok_or("what the client may lack is not known any more")?;
        let service = SocketAddrV4::new(self.options.terms.address.ip, connection.port);
        let progress = Progress {
            read: connection.received,
            unread,
            sent: connection.sent,
            again,
            beyond,
        };
        let repaired = wanted
            .file()
            .and_then(|socket| repair::connect(socket, (service, client), known, progress))
            .and_then(|repaired| wanted.has_beyond(beyond).map(|()| repaired))
            .map_err(|error| error.to_string())?;
        Ok(Kept {
            ends: (client, port),
            repaired,
            shut: connection.shut,
            has_ended: known.has_ended(),
        })
    }

    /// Until the program ends, which runs here now, or runs elsewhere again.
    fn lead(
        &mut self,
        takeover: Takeover,
        doors: Doors,
        signals: &Signals,
        say: &mut dyn FnMut(Notice),
    ) -> Result<Outcome, ProtectError> {
        let terms = &self.options.terms;
        let (Some(follower), Some(moved)) = (self.follower.take(), self.moved.take()) else {
            return Ok(Outcome::Lost);
        };
        let leader = follower.lead(self.folder, clean_up(terms, &self.device))?;
        let mut book = std::mem::take(&mut self.book);
        book.moved(&moved.kept, &moved.accepted);
        let runs = Runs {
            program: self.program.clone(),
            standing: Standing::Leads,
            took: Some(takeover.took),
            files: std::mem::take(&mut self.files),
            folder: self.folder.to_owned(),
            from: self.checkpoints.latest().cloned(),
            is_recorded: takeover.is_recorded,
        };
        let taken = Taken::take(&terms.address, &self.device)?;
        say(Notice::TookOver(takeover));
        let mut running = Running::new(terms, runs, leader, (moved.arriving, book), taken);
        running.is_reached_at(Some(doors));
        let outcome = running.run(signals, &mut |notice| say(Notice::Leads(notice)));
        Ok(match outcome {
            terms::Outcome::Ended(ended) | terms::Outcome::Lost(ended) => {
                Outcome::Ended(Some(ended))
            }
            terms::Outcome::TakenOver => Outcome::TakenOver,
        })
    }
}

fn wait_until_it_leads(
    follower: &Follower,
    begun: Instant,
    signals: &Signals,
) -> Result<(), String> {
    while follower.standing() == Of::Follows {
        if begun.elapsed() > PATIENCE {
            return Err("the follower does not go on".to_owned());
        }
        if let Some(number) = ends(signals) {
            return Err(format!("it was ended by signal {number}"));
        }
        std::thread::sleep(Duration::from_micros(200));
    }
    Ok(())
}
