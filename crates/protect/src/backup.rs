//! The machine that goes on.
//!
//! ```text
//!   waits ──hello──▶ follows ──lost, closed, silent──▶ takes over ──▶ leads ──▶ the program's end
//!     ▲                 │
//!     └──── ended ──────┘
//! ```
//!
//! From the moment at which it decides to take over it acknowledges nothing, and the primary lets
//! nothing go that is not acknowledged: that is what keeps two machines from answering.

use std::collections::HashSet;
use std::io;
use std::net::{SocketAddrV4, TcpListener};
use std::os::fd::AsFd as _;
use std::path::Path;
use std::time::{Duration, Instant};

use hindcast_exec::apart::{self, Follower, Standing as Of};
use hindcast_exec::recording::Recording;
use hindcast_exec::report::Report;
use hindcast_exec::watch::{Ended, Event, Signals};
use hindcast_execlog::board::ReportKind;
use hindcast_execlog::handover::{self, Answer};

use crate::book::{Book, Ends};
use crate::channel::{Channel, Side, run_first, wait};
use crate::error::{ProtectError, system};
use crate::key::Key;
use crate::message::{Standing, Status, ToBackup, ToPrimary, VERSION};
use crate::network::{self, Address, Rule};
use crate::packet::Packet;
use crate::repair::{self, Progress, Repaired};
use crate::store::Store;
use crate::wire::{Arriving, Wire};

#[derive(Clone, Debug)]
pub struct BackupOptions {
    /// Where the primary connects to.
    pub listen: String,
    pub key: Option<Key>,
    pub address: Address,
    /// The device that gets the address; `None`: the one through which the primary comes.
    pub device: Option<String>,
    /// After how long a silence the primary counts as dead.
    pub detect: Duration,
    /// For a primary that ends by itself: wait for the next one.
    pub again: bool,
}

/// What is worth saying.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    Listening(String),
    /// A primary has come, and its program can be followed.
    Follows {
        program: String,
        from: String,
    },
    Refused {
        why: String,
        hint: String,
    },
    /// The copy is none any more: the primary runs on unprotected.
    Dropped(String),
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Takeover {
    pub pid: u32,
    pub connections: usize,
    /// Connections that could not be kept.
    pub lost: usize,
    pub took: Duration,
}

/// How it came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The program has ended, here or there.
    Ended(Option<Ended>),
    /// It was lost, and could not go on here.
    Lost,
    /// The user ended it.
    Interrupted(i32),
}

const LOOK_EVERY: Duration = Duration::from_millis(5);
/// How long clients may take to say how much they have. One that is further away is believed to
/// have what it said last.
const ANSWERS: Duration = Duration::from_millis(30);
/// A primary whose process stands still has the address as well, and its kernel says so.
const ANNOUNCE_EVERY: Duration = Duration::from_secs(1);
/// How long the primary may take to start the program.
const START: Duration = Duration::from_secs(20);
/// How long the follower may take to replay what is left.
const PATIENCE: Duration = Duration::from_secs(30);

/// Stands by for a primary, and goes on in its place when that is lost.
pub fn run(options: &BackupOptions, say: &mut dyn FnMut(Notice)) -> Result<Outcome, ProtectError> {
    network::remove_left_rules(&options.address)?;
    let listen = |source| ProtectError::Listen(options.listen.clone(), source);
    let listener = TcpListener::bind(&options.listen).map_err(listen)?;
    listener.set_nonblocking(true).map_err(listen)?;
    let local = listener.local_addr().map_err(listen)?;
    let signals = Signals::take_over().map_err(system("taking over signals"))?;
    run_first();
    say(Notice::Listening(local.to_string()));
    let mut doors = Doors {
        listener,
        key: options.key.clone(),
        visitors: Vec::new(),
    };
    loop {
        let hello = loop {
            if let Some(number) = ends(&signals) {
                return Ok(Outcome::Interrupted(number));
            }
            if let Some(hello) = doors.look(&Status::default()) {
                break hello;
            }
            wait(&doors.ends(), LOOK_EVERY.max(Duration::from_millis(50)));
        };
        let folder = hindcast_private::temporary_folder(std::env::temp_dir(), "hindcast-protect-")
            .map_err(system("making a folder for the log"))?;
        let Some(mut backup) = Backup::new(options, folder.path(), hello, say) else {
            continue;
        };
        match backup.follow(&mut doors, &signals, say)? {
            Outcome::Ended(None) if options.again => {}
            outcome => return Ok(outcome),
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

/// Who comes, and what they want.
struct Doors {
    listener: TcpListener,
    key: Option<Key>,
    visitors: Vec<Channel>,
}

struct Hello {
    channel: Channel,
    from: String,
    version: u32,
    files: Vec<(String, Vec<u8>)>,
    address: String,
}

impl Doors {
    fn ends(&self) -> Vec<std::os::fd::BorrowedFd<'_>> {
        let visitors = self.visitors.iter().map(Channel::as_fd);
        std::iter::once(self.listener.as_fd())
            .chain(visitors)
            .collect()
    }

    fn somebody_waits(&self) -> bool {
        wait(&self.ends(), Duration::ZERO)
    }

    /// Answers who asks for the status; returns the first that says hello.
    fn look(&mut self, status: &Status) -> Option<Hello> {
        while let Ok((stream, _)) = self.listener.accept() {
            let visitor = Channel::new(stream, self.key.as_ref(), Side::Listens);
            self.visitors.extend(visitor);
        }
        let mut hello = None;
        for mut visitor in std::mem::take(&mut self.visitors) {
            let filled = visitor.fill();
            match visitor.take::<ToBackup>() {
                Ok(Some(ToBackup::Status)) => {
                    visitor.put(&ToPrimary::Status(status.clone()));
                    let _ = visitor.flush();
                }
                Ok(Some(ToBackup::Hello {
                    version,
                    files,
                    address,
                })) if hello.is_none() => {
                    hello = Some(Hello {
                        from: visitor.peer(),
                        channel: visitor,
                        version,
                        files,
                        address,
                    });
                }
                Ok(None) if filled.is_ok() && visitor.flush().is_ok() => {
                    self.visitors.push(visitor);
                }
                // Gone, or no hindcast.
                _ => {}
            }
        }
        hello
    }
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
    heard: Instant,
    is_dropped: bool,
    took: Option<Duration>,
}

/// A connection that goes on here.
struct Kept {
    repaired: Repaired,
    shut: u32,
    has_ended: bool,
    answer: Answer,
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
        match accept(options, folder, &hello) {
            Ok((device, program)) => {
                hello.channel.put(&ToPrimary::Ready);
                let _ = hello.channel.flush();
                say(Notice::Follows {
                    program: program.clone(),
                    from: hello.from,
                });
                Some(Backup {
                    options,
                    folder,
                    device,
                    program,
                    channel: hello.channel,
                    store: Store::new(folder),
                    book: Book::default(),
                    follower: None,
                    heard: Instant::now(),
                    is_dropped: false,
                    took: None,
                })
            }
            Err(error) => {
                let (why, hint) = (in_one_line(&error), error.hint());
                hello.channel.put(&ToPrimary::Refused {
                    why: why.clone(),
                    hint: hint.clone(),
                });
                let _ = hello.channel.flush();
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
    ) -> Result<Outcome, ProtectError> {
        let mut looked = Instant::now();
        let reason = loop {
            if looked.elapsed() >= LOOK_EVERY {
                looked = Instant::now();
                if let Some(number) = ends(signals) {
                    self.end_follower();
                    return Ok(Outcome::Interrupted(number));
                }
                self.look_after_follower(say)?;
                if doors.somebody_waits() {
                    let _ = doors.look(&self.status(Standing::Follows));
                }
            }
            match self.round(say) {
                Round::On => {}
                Round::Ended => {
                    self.let_follower_end();
                    say(Notice::Ended);
                    return Ok(Outcome::Ended(None));
                }
                Round::Lost(reason) => break reason,
            }
            wait(&[self.channel.as_fd()], LOOK_EVERY);
        };
        say(Notice::Lost(reason));
        // From here on nothing is acknowledged.
        let begun = Instant::now();
        self.channel.put(&ToPrimary::Replaced);
        let _ = self.channel.flush();
        match self.take_over(begun, signals) {
            Ok(takeover) => {
                self.took = Some(takeover.took);
                say(Notice::TookOver(takeover));
            }
            Err(why) => {
                self.end_follower();
                let _ = network::remove_left_rules(&self.options.address);
                network::give_up(&self.options.address, &self.device);
                say(Notice::NotTakenOver(why));
                return Ok(Outcome::Lost);
            }
        }
        let ended = self.accompany(doors, signals);
        network::give_up(&self.options.address, &self.device);
        Ok(Outcome::Ended(Some(ended)))
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
        if let Some(mark) = last.filter(|_| taken.is_ok()) {
            self.channel.put(&ToPrimary::Mark(mark));
        }
        let flushed = self.channel.flush();
        for message in arrived {
            match self.work_on(message, say) {
                Round::On => {}
                over => return over,
            }
        }
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
        let limit = match self.store.has_begun() {
            true => self.options.detect,
            false => self.options.detect.max(START),
        };
        match silence > limit {
            true => Round::Lost(Reason::Silent(silence)),
            false => Round::On,
        }
    }

    fn work_on(&mut self, message: ToBackup, say: &mut dyn FnMut(Notice)) -> Round {
        match message {
            ToBackup::Mark(_) | ToBackup::Alive | ToBackup::Hello { .. } | ToBackup::Status => {}
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
            if self.store.has_begun() {
                self.follower = Some(Follower::start(self.folder)?);
            }
            return Ok(());
        };
        match follower.standing() {
            Of::Follows | Of::Leads => {}
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
        if let Some(follower) = self.follower.take() {
            follower.end();
        }
    }

    fn let_follower_end(&mut self) {
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

    fn status(&self, standing: Standing) -> Status {
        Status {
            standing,
            address: Some(self.options.address.to_string()),
            program: Some(self.program.clone()),
            connections: self.book.len() as u64,
            log_bytes: self.store.bytes,
            events: self.follower.as_ref().map_or(0, Follower::events),
            silent_ms: self.heard.elapsed().as_millis() as u64,
            took_ms: self.took.map(|took| took.as_millis() as u64),
        }
    }

    /// Has the follower go on, with the connections and the address of the primary.
    fn take_over(&mut self, begun: Instant, signals: &Signals) -> Result<Takeover, String> {
        let text = |error: ProtectError| in_one_line(&error);
        let Some(follower) = &self.follower else {
            return Err("the program had not begun".to_owned());
        };
        follower.let_go();
        // The address must be here before sockets can be what they were, and clients must not find
        // it while they are not.
        Rule::KeepOut.set(&self.options.address).map_err(text)?;
        network::take(&self.options.address, &self.device).map_err(text)?;
        let wire = Wire::open().map_err(|error| error.to_string())?;
        let arriving = Arriving::at(self.options.address.ip).map_err(|error| error.to_string())?;
        let mut connections = Vec::new();
        while let Some(connection) = self.next_connection(follower, begun)? {
            connections.push(connection);
        }
        // What a client says to the first packet must come here.
        let _ = network::announce(&self.options.address, &self.device);
        self.ask(&wire, arriving, &connections);
        let Some(follower) = &self.follower else {
            return Err("the program had not begun".to_owned());
        };
        let mut repaired = Vec::new();
        let mut lost = 0;
        for connection in &connections {
            match self.repair(follower, connection) {
                Ok(Some(found)) => repaired.push(found),
                Ok(None) | Err(_) => lost += 1,
            }
        }
        Rule::KeepOutNew.set(&self.options.address).map_err(text)?;
        Rule::KeepOut.remove(&self.options.address).map_err(text)?;
        let connections = repaired.len();
        let mut answers = Vec::new();
        for kept in repaired {
            answers.extend((kept.answer.beyond != 0).then_some(kept.answer));
            let live = kept.repaired.go_live(&wire, kept.shut, kept.has_ended);
            lost += usize::from(live.is_err());
        }
        follower
            .answer(&answers)
            .map_err(|error| error.to_string())?;
        while follower.standing() == Of::Follows {
            if begun.elapsed() > PATIENCE {
                return Err("the follower does not go on".to_owned());
            }
            if let Some(number) = ends(signals) {
                return Err(format!("it was ended by signal {number}"));
            }
            std::thread::sleep(Duration::from_micros(200));
        }
        let took = begun.elapsed();
        Rule::KeepOutNew
            .remove(&self.options.address)
            .map_err(text)?;
        let _ = network::announce(&self.options.address, &self.device);
        match follower.standing() {
            Of::Reported(report) => Err(why(&report)),
            _ => Ok(Takeover {
                pid: follower.pid as u32,
                connections: connections.saturating_sub(follower.lost_connections() as usize),
                lost: lost + follower.lost_connections() as usize,
                took,
            }),
        }
    }

    /// Asks the clients how much they have: what they have said to the primary last, nobody here
    /// has heard.
    fn ask(&mut self, wire: &Wire, mut arriving: Arriving, connections: &[handover::Connection]) {
        let own = self.options.address.ip;
        let mut asked: HashSet<Ends> = HashSet::new();
        for connection in connections {
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

    fn client_of(&self, connection: &handover::Connection) -> Option<SocketAddrV4> {
        client_of(connection).or_else(|| self.book.by_turn(connection.port, connection.turn))
    }

    fn next_connection(
        &self,
        follower: &Follower,
        begun: Instant,
    ) -> Result<Option<handover::Connection>, String> {
        loop {
            match follower.next_connection() {
                Ok(connection) => return Ok(connection),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(format!("the follower is gone: {error}")),
            }
            match follower.standing() {
                Of::Follows => {}
                Of::Reported(report) => {
                    return Err(why(&report));
                }
                Of::Ended(ended) => return Err(format!("the follower has ended: {ended:?}")),
                Of::Leads => return Ok(None),
            }
            if begun.elapsed() > PATIENCE {
                return Err(format!("it has not replayed the log within {PATIENCE:?}"));
            }
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    /// `None`: nothing is known of such a connection, or it has ended.
    fn repair(
        &self,
        follower: &Follower,
        connection: &handover::Connection,
    ) -> io::Result<Option<Kept>> {
        let Some(client) = self.client_of(connection) else {
            return Ok(None);
        };
        let Some(known) = self.book.get(&(client, connection.port)) else {
            return Ok(None);
        };
        let again = known.acknowledged.min(connection.sent);
        // The end of what the service sends counts as a byte, and is none.
        let ended = u64::from(connection.shut & 2 != 0 || known.has_said_end());
        let beyond = known.acknowledged.saturating_sub(connection.sent + ended);
        let (Some(unread), Some(again)) = (
            known.from(connection.received),
            follower.written(connection, again),
        ) else {
            return Ok(None);
        };
        let service = SocketAddrV4::new(self.options.address.ip, connection.port);
        let progress = Progress {
            read: connection.received,
            unread,
            sent: connection.sent,
            again,
            beyond,
        };
        let socket = follower.file(connection.number)?;
        let repaired = repair::connect(socket, (service, client), known, progress)?;
        Ok(Some(Kept {
            repaired,
            shut: connection.shut,
            has_ended: known.has_ended(),
            answer: Answer {
                number: connection.number,
                reserved: 0,
                beyond,
            },
        }))
    }

    /// Until the program ends, which runs here now.
    fn accompany(&mut self, doors: &mut Doors, signals: &Signals) -> Ended {
        let Some(follower) = self.follower.take() else {
            return Ended::Exited(0);
        };
        let status = self.status(Standing::Leads);
        let mut announced = Instant::now();
        loop {
            if let Of::Ended(ended) = follower.standing() {
                return ended;
            }
            if announced.elapsed() >= ANNOUNCE_EVERY {
                announced = Instant::now();
                let _ = network::announce(&self.options.address, &self.device);
            }
            let _ = doors.look(&status);
            signals.pass_on(follower.pid, Duration::from_millis(50));
        }
    }
}

/// The device that gets the address, and the program.
fn accept(
    options: &BackupOptions,
    folder: &Path,
    hello: &Hello,
) -> Result<(String, String), ProtectError> {
    let to = || options.listen.clone();
    if hello.version != VERSION {
        return Err(ProtectError::OtherVersion { to: to() });
    }
    let ours = options.address.to_string();
    if hello.address != ours {
        return Err(ProtectError::OtherAddress {
            ours,
            theirs: hello.address.clone(),
        });
    }
    for (name, bytes) in &hello.files {
        let name = Path::new(name).file_name().unwrap_or_default();
        hindcast_private::write(folder.join(name), bytes)
            .map_err(system("keeping what is to run"))?;
    }
    apart::check(folder)?;
    let recording = Recording::open(folder).map_err(hindcast_exec::error::ExecError::from)?;
    let device = match &options.device {
        Some(device) => device.clone(),
        None => network::device_of(hello.channel.local()?)?,
    };
    Ok((device, recording.path.lossy().into_owned()))
}

/// What the follower has reported.
fn why(report: &Report) -> String {
    let place = format!("thread {}, event {}", report.thread, report.event);
    match report.kind {
        ReportKind::Divergence => format!(
            "at {place} it did {} where the log has {}",
            report.actual, report.expected
        ),
        ReportKind::RecordingEnds => format!("the log ends at {place}: {}", report.expected),
        _ => report.actual.clone(),
    }
}

fn client_of(connection: &handover::Connection) -> Option<SocketAddrV4> {
    let peer = connection.peer.get(..connection.peer_length as usize)?;
    let family = u16::from_ne_bytes(peer.get(..2)?.try_into().ok()?);
    let port = u16::from_be_bytes(peer.get(2..4)?.try_into().ok()?);
    let ip: [u8; 4] = match i32::from(family) {
        libc::AF_INET => peer.get(4..8)?.try_into().ok()?,
        // An IPv4 address as one of IPv6.
        libc::AF_INET6 => peer.get(20..24)?.try_into().ok()?,
        _ => return None,
    };
    Some(SocketAddrV4::new(ip.into(), port))
}

/// An error with its causes.
fn in_one_line(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(&format!(": {error}"));
        cause = error.source();
    }
    text
}
