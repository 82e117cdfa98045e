//! A program that runs on this machine, as long as it does: under the protection of a backup, or
//! without one until another is attached.
//!
//! ```text
//!   packet to a client    waits in the queue; log and packets before it are sent, then a mark
//!   mark acknowledged     what waited for it goes; what came meanwhile waits for the next one
//!   packet of a client    is seen as it arrives, and goes to the backup before the next mark
//!
//!   protected ──backup ended, dropped──▶ alone ──attach──▶ a backup catches up (join)
//!       ▲                                  ▲                     │
//!       └────── answers are held ──────────┼──── is close ───────┤
//!                                          └──── failed ─────────┘
//! ```
//!
//! Three ends: the program ends by itself; it is lost, and the backup is told to take over; the
//! backup says that it has taken over. A backup that ends leaves the program running unprotected.
//! One that is only silent may have taken over, so answers wait until it speaks again.
//!
//! While nobody protects the program the log is kept, and the [book](crate::book) is, for both must
//! be whole for the next backup.

mod background;

use std::collections::VecDeque;
use std::io;
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use hindcast_exec::apart::Leader;
use hindcast_exec::checkpoint::Checkpoint;
use hindcast_exec::watch::{Ended, Signals};

use crate::book::Book;
use crate::channel::{Channel, wait};
use crate::doors::{self, Doors, Visit};
use crate::error::{ProtectError, in_one_line};
use crate::introduce::Introduction;
use crate::join::{Joining, Step};
use crate::message::{ALIVE_EVERY, Protection, Standing, Status, ToBackup, ToPrimary};
use crate::network;
use crate::packet::{FIN, Packet, RST, SYN};
use crate::queue::Queue;
use crate::ship::Shipper;
use crate::terms::{self, Next, Notice, Outcome, Rules, Taken, Terms, Unprotected};
use crate::unread;
use crate::wire::Arriving;

/// How often the log is sent at least.
const EPOCH: Duration = Duration::from_millis(5);
/// A silence that is worth a word.
const SILENCE: Duration = Duration::from_secs(2);
const UNREAD_EVERY: Duration = Duration::from_secs(1);
/// How long the last packets of a program that has ended may take.
const LAST_PACKETS: Duration = Duration::from_secs(2);
/// How long a packet may take from where a rule sees it to where all are seen that leave.
const UNDER_WAY: Duration = Duration::from_millis(3);
/// Another machine may have the address as well, though its program stands still.
const ANNOUNCE_EVERY: Duration = Duration::from_secs(1);
/// How long a program that nobody protects is left to itself.
const ALONE_FOR: Duration = Duration::from_millis(20);

/// What runs, and how it came to.
pub struct Runs {
    pub program: String,
    pub standing: Standing,
    /// How long the takeover took, if this machine has taken over.
    pub took: Option<Duration>,
    /// The files of the recording that were there before the program ran.
    pub files: Vec<(String, Vec<u8>)>,
    /// Where its log is.
    pub folder: PathBuf,
    /// What the log begins with; `None`: the program's beginning.
    pub from: Option<Checkpoint>,
    pub is_recorded: bool,
}

/// A backup that may take over.
pub struct Protector {
    pub channel: Channel,
    pub rules: Rules,
    pub to: String,
}

/// What is said once a mark was acknowledged: that the program is protected, and by whom it was
/// asked for.
struct Begins {
    mark: u64,
    visitor: Option<Channel>,
}

pub struct Running<'a> {
    terms: &'a Terms,
    runs: Runs,
    shipper: Shipper,
    leader: Leader,
    /// `None`: nobody protects the program.
    channel: Option<Channel>,
    /// The last backup.
    to: String,
    begins: Option<Begins>,
    joining: Option<Joining>,
    rules: Option<Rules>,
    outgoing: Option<Queue>,
    /// What clients send.
    arriving: Arriving,
    book: Book,
    /// Why no backup can be given what it needs, beside what the log itself says.
    unusable: Option<String>,
    was_dropped: bool,
    /// For each mark that was sent, the last packet that waits for it.
    held: VecDeque<(u64, u32)>,
    mark: u64,
    heard: Instant,
    spoken: Instant,
    /// When the log was last looked at.
    shipped: Instant,
    is_silent: bool,
    /// Why the log cannot be sent: the backup was told, and has not said yet that it knows.
    leaves: Option<String>,
    doors: Option<Doors>,
    taken: Taken,
}

impl<'a> Running<'a> {
    pub fn new(
        terms: &'a Terms,
        runs: Runs,
        leader: Leader,
        (arriving, book): (Arriving, Book),
        taken: Taken,
    ) -> Running<'a> {
        let now = Instant::now();
        let shipper = Shipper::new(&runs.folder, terms.keep, runs.from.as_ref());
        Running {
            terms,
            was_dropped: shipper.is_dropped(),
            shipper,
            runs,
            leader,
            channel: None,
            to: String::new(),
            begins: None,
            joining: None,
            rules: None,
            outgoing: None,
            arriving,
            book,
            unusable: None,
            held: VecDeque::new(),
            mark: 0,
            heard: now,
            spoken: now,
            shipped: now,
            is_silent: false,
            leaves: None,
            doors: None,
            taken,
        }
    }

    /// Where somebody asks for the status, or for a backup.
    pub fn is_reached_at(&mut self, doors: Option<Doors>) {
        self.doors = doors;
    }

    /// The program has begun under the protection of this backup.
    pub fn begin_under(
        &mut self,
        protector: Protector,
        outgoing: Queue,
        say: &mut dyn FnMut(Notice),
    ) {
        self.protect_by(protector, outgoing);
        say(self.protected());
    }

    fn protect_by(&mut self, protector: Protector, outgoing: Queue) {
        self.channel = Some(protector.channel);
        self.rules = Some(protector.rules);
        self.to = protector.to;
        self.outgoing = Some(outgoing);
        self.heard = Instant::now();
        self.spoken = self.heard;
        self.is_silent = false;
        self.leaves = None;
    }

    fn protected(&self) -> Notice {
        Notice::Protected {
            pid: self.leader.pid as u32,
            address: self.terms.address.clone(),
            device: self.taken.device.clone(),
            by: self.to.clone(),
        }
    }

    pub fn run(&mut self, signals: &Signals, say: &mut dyn FnMut(Notice)) -> Outcome {
        let mut looked = Instant::now();
        let mut unread = Instant::now();
        let mut announced = Instant::now();
        loop {
            let mut ended = None;
            if looked.elapsed() >= EPOCH {
                looked = Instant::now();
                signals.pass_on(self.leader.pid, Duration::ZERO);
                // Before the log: what it wrote before it ended is there then.
                ended = self.leader.ended();
                self.look_who_comes();
            }
            if let Some(outcome) = self.exchange(ended.is_some(), say) {
                return outcome;
            }
            if let Some(ended) = ended {
                let outcome = self.conclude(ended, say);
                if let Outcome::Ended(ended) = outcome {
                    self.stay_with_the_others(ended, signals, say);
                }
                return outcome;
            }
            if self.channel.is_none() {
                self.go_on_alone(say);
            }
            if unread.elapsed() >= UNREAD_EVERY {
                unread = Instant::now();
                self.report_unread();
            }
            if self.runs.took.is_some() && announced.elapsed() >= ANNOUNCE_EVERY {
                announced = Instant::now();
                let _ = network::announce(&self.terms.address, &self.taken.device);
            }
            self.say_dropped(say);
            for why in self.shipper.not_recorded() {
                say(Notice::NotCopied(why));
            }
            self.wait();
        }
    }

    /// Until there is something to do. While the backup has not answered, what comes to be held
    /// collects, and goes to it together.
    fn wait(&self) {
        let (Some(channel), Some(outgoing)) = (&self.channel, &self.outgoing) else {
            let joins = self.joining.as_ref().and_then(Joining::end);
            return match joins {
                Some(end) => drop(wait(&[end], Duration::from_millis(2))),
                None => std::thread::sleep(ALONE_FOR),
            };
        };
        let ends = [channel.as_fd(), outgoing.as_fd()];
        let awaited = if self.held.is_empty() { 2 } else { 1 };
        let at_most = match channel.has_waiting() {
            true => Duration::from_millis(1),
            false => EPOCH,
        };
        wait(&ends[..awaited], at_most);
    }

    // ---- Protected ----

    /// One round: what there is goes to the backup, and what it has acknowledged to the clients.
    /// `all`: the whole log, whatever else is under way.
    fn exchange(&mut self, all: bool, say: &mut dyn FnMut(Notice)) -> Option<Outcome> {
        let mut channel = self.channel.take()?;
        let shipped = self.ship(all, &mut channel);
        let heard = shipped.and_then(|()| self.hear(&mut channel, say));
        let why = match &heard {
            Ok(None) | Err(Broken::Here(_)) => {
                // The backup must know it before anybody gets an answer that it cannot explain.
                if let (Err(Broken::Here(error)), None) = (&heard, &self.leaves) {
                    channel.put(&ToBackup::Leaves);
                    self.leaves = Some(error.to_string());
                }
                self.channel = Some(channel);
                self.watch_silence(say);
                return None;
            }
            Ok(Some(Said::Replaced)) => {
                // First: clients have the backup's ends of their connections, and those of this
                // machine are about to close.
                network::give_up(&self.terms.address, &self.taken.device);
                self.end_program();
                say(Notice::Replaced(self.to.clone()));
                return Some(Outcome::TakenOver);
            }
            Ok(Some(Said::Dropped(why))) => match self.leaves.take() {
                Some(why) => Unprotected::Log(why),
                None => Unprotected::Dropped(why.clone()),
            },
            Err(Broken::Backup) => Unprotected::BackupEnded,
        };
        drop(channel);
        self.go_alone(why, say);
        None
    }

    fn ship(&mut self, all: bool, channel: &mut Channel) -> Result<(), Broken> {
        if self.leaves.is_some() {
            return Ok(channel.flush()?);
        }
        let is_due = all || self.shipped.elapsed() >= EPOCH;
        if !self.held.is_empty() && !is_due {
            return Ok(channel.flush()?);
        }
        let (last, going) = self.queued().map_err(Broken::Here)?;
        // By the next mark; or, where there is none, when the program runs on alone.
        if let Some(id) = last {
            self.held.push_back((self.mark + 1, id));
        } else if !is_due {
            return Ok(());
        }
        // The log before the packets that explain it are looked at, and behind them on its way: the
        // backup never has that the program read what it has not seen come.
        let mut log = Vec::new();
        let collected = self.shipper.collect(None, &mut |message| log.push(message));
        let is_new = collected.map_err(Broken::Here)?.is_new;
        // What waits may be an answer that no log explains.
        if let Some(why) = self.shipper.ended_early() {
            self.cannot_be_joined(&why);
            return Err(Broken::Here(io::Error::other(why)));
        }
        self.see(&mut |came| channel.put(&ToBackup::Came(came.to_vec())));
        if self.arriving.has_lost() {
            let why = "clients send more than can be kept";
            return Err(Broken::Here(io::Error::other(why)));
        }
        for packet in going {
            if let (true, Some(parsed)) = (self.terms.keep > 0, Packet::parse(&packet)) {
                self.book.goes(&parsed);
            }
            channel.put(&ToBackup::Goes(packet));
        }
        log.iter().for_each(|message| channel.put(message));
        self.shipped = Instant::now();
        if is_new || last.is_some() {
            self.mark += 1;
            self.spoken = self.shipped;
            channel.put(&ToBackup::Mark(self.mark));
        } else if self.spoken.elapsed() >= ALIVE_EVERY {
            self.spoken = self.shipped;
            channel.put(&ToBackup::Alive);
        }
        Ok(channel.flush()?)
    }

    /// What has come to be held: the last packet, and those that begin or end a connection.
    /// First what waits: whatever explains it was there before.
    fn queued(&mut self) -> io::Result<(Option<u32>, Vec<Vec<u8>>)> {
        let mut last = None;
        let mut going = Vec::new();
        if let Some(outgoing) = &mut self.outgoing {
            outgoing.each(|queued| {
                last = Some(queued.id);
                if let Some(packet) = Packet::parse(queued.bytes)
                    && packet.flags & (SYN | FIN | RST) != 0
                {
                    going.push(queued.bytes.to_vec());
                }
            })?;
        }
        Ok((last, going))
    }

    /// Takes note of packets that have passed, and shows those of clients.
    fn see(&mut self, show: &mut dyn FnMut(&[u8])) {
        let own = self.terms.address.ip;
        let (book, is_kept) = (&mut self.book, self.terms.keep > 0);
        let is_held = self.rules.is_some();
        self.arriving.each(|bytes| {
            let Some(packet) = Packet::parse(bytes) else {
                return;
            };
            let comes = *packet.to.ip() == own;
            if comes {
                show(bytes);
            }
            match comes {
                _ if !is_kept => {}
                true => book.came(&packet),
                // One that was held was seen there.
                false if is_held => {}
                false => book.goes(&packet),
            }
        });
    }

    fn hear(
        &mut self,
        channel: &mut Channel,
        say: &mut dyn FnMut(Notice),
    ) -> Result<Option<Said>, Broken> {
        let filled = channel.fill();
        let mut acknowledged = None;
        let mut said = None;
        while let Some(message) = channel.take::<ToPrimary>()? {
            self.heard = Instant::now();
            match message {
                ToPrimary::Mark(mark) => acknowledged = Some(mark),
                ToPrimary::Replaced => return Ok(Some(Said::Replaced)),
                ToPrimary::Dropped(why) => said = Some(Said::Dropped(why)),
                ToPrimary::NotCopied => {
                    say(Notice::NotCopied(terms::NOT_COPIED.to_owned()));
                }
                ToPrimary::Alive
                | ToPrimary::Ready
                | ToPrimary::Refused { .. }
                | ToPrimary::Status(_)
                | ToPrimary::CatchesUp(_)
                | ToPrimary::Replayed(_) => {}
            }
        }
        if let Some(mark) = acknowledged {
            self.release(mark).map_err(Broken::Here)?;
            if let Some(begins) = self.begins.take_if(|begins| begins.mark <= mark) {
                say(self.protected());
                if let Some(visitor) = begins.visitor {
                    doors::answer(visitor, &ToPrimary::Ready);
                }
            }
        }
        if said.is_some() {
            return Ok(said);
        }
        filled?;
        Ok(None)
    }

    fn release(&mut self, mark: u64) -> io::Result<()> {
        let mut last = None;
        while let Some((needed, id)) = self.held.front().copied()
            && needed <= mark
        {
            self.held.pop_front();
            last = Some(id);
        }
        self.let_go(last)
    }

    fn let_go(&self, last: Option<u32>) -> io::Result<()> {
        match (&self.outgoing, last) {
            (Some(outgoing), Some(id)) => outgoing.release(id),
            _ => Ok(()),
        }
    }

    fn watch_silence(&mut self, say: &mut dyn FnMut(Notice)) {
        let silence = self.heard.elapsed();
        if silence < SILENCE {
            if std::mem::take(&mut self.is_silent) {
                say(Notice::Heard(self.to.clone()));
            }
            return;
        }
        if !std::mem::replace(&mut self.is_silent, true) {
            let by = self.to.clone();
            say(Notice::Silent { by, silence });
        }
        if let Some(limit) = self.terms.alone_after
            && silence >= limit
        {
            self.channel = None;
            self.go_alone(Unprotected::Silence(silence), say);
        }
    }

    // ---- Alone ----

    /// The program runs on without protection; its packets go as they come.
    fn go_alone(&mut self, why: Unprotected, say: &mut dyn FnMut(Notice)) {
        self.rules = None;
        let held = self.held.drain(..).next_back().map(|(_, id)| id);
        // What has come meanwhile goes with the rest.
        let last = self.let_queued_go();
        if last.is_none() {
            let _ = self.let_go(held);
        }
        let next = match why {
            Unprotected::Background(_) => Next::Foreground,
            _ => self.next(),
        };
        if let Some(visitor) = self.begins.take().and_then(|begins| begins.visitor) {
            doors::refuse(visitor, "the backup was lost again at once", "");
        }
        say(Notice::Unprotected { why, next });
    }

    fn let_queued_go(&mut self) -> Option<u32> {
        let (last, going) = self.queued().unwrap_or_default();
        for packet in going.iter().filter_map(|bytes| Packet::parse(bytes)) {
            self.book.goes(&packet);
        }
        let _ = self.let_go(last);
        last
    }

    /// Keeps what the next backup needs, and goes on with the one that catches up.
    fn go_on_alone(&mut self, say: &mut dyn FnMut(Notice)) {
        // What a rule still held that is gone by now.
        self.let_queued_go();
        self.see(&mut |_| ());
        if self.arriving.has_lost() {
            self.cannot_be_joined("more packets have come than could be looked at");
        }
        if let Some(why) = self.shipper.ended_early() {
            self.cannot_be_joined(&why);
        }
        let Some(mut joining) = self.joining.take() else {
            if let Err(error) = self.shipper.pass_over() {
                self.cannot_be_joined(&format!("its log cannot be read: {error}"));
            }
            return;
        };
        if let Some(why) = self.unusable.clone() {
            return self.not_joined(joining, (why, String::new()), say);
        }
        match joining.step() {
            Step::On => self.joining = Some(joining),
            Step::Accepted => {
                say(Notice::CatchesUp(joining.to.clone()));
                self.joining = Some(joining);
            }
            Step::Failed { why, hint } => self.not_joined(joining, (why, hint), say),
            Step::Close(done) => {
                let (channel, shipper) = *done;
                if let Err(error) = self.begin_to_hold(channel, shipper, &mut joining) {
                    let text = (in_one_line(&error), error.hint());
                    self.not_joined(joining, text, say);
                }
            }
        }
    }

    fn not_joined(
        &mut self,
        joining: Joining,
        (why, hint): (String, String),
        say: &mut dyn FnMut(Notice),
    ) {
        if let Some(visitor) = joining.visitor {
            doors::refuse(visitor, &why, &hint);
        }
        let next = self.next();
        say(Notice::NotAttached {
            to: joining.to,
            why,
            hint,
            next,
        });
    }

    /// The backup has caught up: from here on what goes out is held. It has the log and all that
    /// came up to a moment after that, so what it has explains whatever was sent before.
    fn begin_to_hold(
        &mut self,
        mut channel: Channel,
        shipper: Shipper,
        joining: &mut Joining,
    ) -> Result<(), ProtectError> {
        let outgoing = match self.outgoing.take() {
            Some(outgoing) => outgoing,
            None => Queue::open(self.terms.queue).map_err(ProtectError::NoQueue)?,
        };
        let rules = Rules::queue(self.terms)?;
        // Twice: what had come by the first time and was read by the second is not needed.
        for _ in 0..2 {
            std::thread::sleep(UNDER_WAY);
            self.see(&mut |_| ());
            self.report_unread();
        }
        self.shipper = shipper;
        let mut log = Vec::new();
        let collected = self.shipper.collect(None, &mut |message| log.push(message));
        collected.map_err(crate::error::system("reading the log"))?;
        self.see(&mut |_| ());
        for entry in self.book.entries() {
            channel.put(&ToBackup::Entry(entry));
        }
        log.iter().for_each(|message| channel.put(message));
        channel.put(&ToBackup::Holds);
        self.mark += 1;
        channel.put(&ToBackup::Mark(self.mark));
        self.begins = Some(Begins {
            mark: self.mark,
            visitor: joining.visitor.take(),
        });
        let to = joining.to.clone();
        self.protect_by(Protector { channel, rules, to }, outgoing);
        Ok(())
    }

    fn cannot_be_joined(&mut self, why: &str) {
        self.unusable.get_or_insert_with(|| why.to_owned());
    }

    /// Why no backup can be attached.
    fn impossible(&self) -> Option<String> {
        if !self.runs.is_recorded {
            let why = "it went on in a step that cannot be recorded from its middle";
            return Some(why.to_owned());
        }
        if self.terms.keep == 0 {
            return Some("its log is not kept (--keep 0)".to_owned());
        }
        if self.shipper.is_dropped() {
            return Some(format!(
                "its log was dropped when it was larger than {} bytes (--keep)",
                self.terms.keep
            ));
        }
        self.unusable.clone()
    }

    fn next(&self) -> Next {
        match (self.impossible(), &self.doors) {
            (Some(why), _) => Next::Restart(why),
            (None, Some(doors)) => Next::Attach { at: doors.place() },
            (None, None) => Next::Deaf,
        }
    }

    fn say_dropped(&mut self, say: &mut dyn FnMut(Notice)) {
        let is_dropped = self.shipper.is_dropped();
        if is_dropped && !std::mem::replace(&mut self.was_dropped, true) && self.runs.is_recorded {
            say(Notice::LogDropped(self.terms.keep));
        }
    }

    fn look_who_comes(&mut self) {
        let Some(mut doors) = self.doors.take() else {
            return;
        };
        if doors.somebody_waits() {
            match doors.look(&self.status()) {
                Some(Visit::Attach { visitor, to }) => self.attach(visitor, to),
                Some(Visit::Hello(hello)) => doors::refuse(
                    hello.channel,
                    "a program runs here, this is no backup",
                    "start one: hindcast protect backup",
                ),
                None => {}
            }
        }
        self.doors = Some(doors);
    }

    fn attach(&mut self, visitor: Channel, to: String) {
        if self.channel.is_some() {
            let why = format!("the program is protected by {} already", self.to);
            return doors::refuse(visitor, &why, "end that one first, if another is to be it");
        }
        if let Some(joining) = &self.joining {
            let why = format!("{} catches up already", joining.to);
            return doors::refuse(visitor, &why, "wait for it, or end it");
        }
        if let Some(why) = self.impossible() {
            let why = format!("it has no backup, and can have none: {why}");
            let hint = "start the program again under `hindcast protect run` when there is time";
            return doors::refuse(visitor, &why, hint);
        }
        let introduction = Introduction {
            to,
            key: self.terms.key.clone(),
            address: self.terms.address.clone(),
            runs: true,
            files: self.runs.files.clone(),
            checkpoint: self.runs.from.as_ref().and_then(Checkpoint::announcement),
        };
        let log = (&*self.runs.folder, self.terms.keep);
        let from = self.runs.from.clone();
        self.joining = Some(Joining::begin(introduction, log, from, visitor));
    }

    fn status(&self) -> Status {
        let protection = match (&self.joining, &self.channel) {
            (Some(joining), _) => Protection::CatchesUp {
                backup: joining.to.clone(),
                progress: joining.progress,
            },
            (None, Some(_)) => Protection::By(self.to.clone()),
            (None, None) => Protection::Nobody {
                impossible: self.impossible(),
            },
        };
        Status {
            standing: self.runs.standing,
            address: Some(self.terms.address.to_string()),
            program: Some(self.runs.program.clone()),
            connections: self.book.len() as u64,
            log_bytes: self.shipper.sizes().0,
            events: 0,
            silent_ms: 0,
            took_ms: self.runs.took.map(|took| took.as_millis() as u64),
            protection: Some(protection),
        }
    }

    // ---- Its end ----

    /// The program has ended, one way or the other.
    fn conclude(&mut self, ended: Ended, say: &mut dyn FnMut(Notice)) -> Outcome {
        let is_lost = self.runs.is_recorded && self.leader.is_lost(ended);
        if let Some(joining) = self.joining.take() {
            joining.ended();
        }
        let Some(channel) = &mut self.channel else {
            return match is_lost {
                true => Outcome::Lost(ended),
                false => Outcome::Ended(ended),
            };
        };
        if is_lost {
            channel.put(&ToBackup::Lost);
            let _ = channel.flush();
            network::give_up(&self.terms.address, &self.taken.device);
            let by = self.to.clone();
            say(Notice::Lost { ended, by });
            return self.hand_over(ended);
        }
        channel.put(&ToBackup::Ended);
        // Its connections end, and what it has said last goes out.
        self.leader.let_connections_end();
        let deadline = Instant::now() + LAST_PACKETS;
        let mut quiet = 0;
        while Instant::now() < deadline && quiet < 20 && self.channel.is_some() {
            let before = self.mark;
            // That the backup ends now is as it is to be.
            self.exchange(true, &mut |_| ());
            let is_quiet = self.mark == before && self.held.is_empty();
            quiet = if is_quiet { quiet + 1 } else { 0 };
            self.wait();
        }
        Outcome::Ended(ended)
    }

    /// Waits until the backup has taken over. Nothing more is let go.
    fn hand_over(&mut self, ended: Ended) -> Outcome {
        let Some(mut channel) = self.channel.take() else {
            return Outcome::Lost(ended);
        };
        let deadline = Instant::now() + Duration::from_secs(10);
        while Instant::now() < deadline && channel.flush().is_ok() {
            wait(&[channel.as_fd()], EPOCH);
            let filled = channel.fill();
            while let Ok(Some(message)) = channel.take::<ToPrimary>() {
                match message {
                    ToPrimary::Replaced => return Outcome::TakenOver,
                    ToPrimary::Dropped(_) => return Outcome::Lost(ended),
                    _ => {}
                }
            }
            if filled.is_err() {
                break;
            }
        }
        Outcome::Lost(ended)
    }

    fn end_program(&mut self) {
        // SAFETY: it has not been reaped.
        unsafe { libc::kill(self.leader.pid, libc::SIGKILL) };
    }

    /// What the kernel has of each connection that the program has not read.
    fn report_unread(&mut self) {
        let unread = unread::of(self.terms.address.ip);
        for (client, port, bytes) in &unread {
            self.book.unread((*client, *port), *bytes);
        }
        if let Some(channel) = &mut self.channel
            && !unread.is_empty()
        {
            channel.put(&ToBackup::Unread(unread));
        }
    }
}

enum Said {
    Replaced,
    Dropped(String),
}

/// What has gone wrong, and where.
enum Broken {
    /// The connection to the backup has an end: its kernel has closed it, so the process is gone.
    Backup,
    Here(io::Error),
}

impl From<io::Error> for Broken {
    fn from(_: io::Error) -> Self {
        Broken::Backup
    }
}
