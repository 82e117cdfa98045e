//! The machine on which the program runs.
//!
//! ```text
//!   packet to a client    waits in the queue; log and packets before it are sent, then a mark
//!   mark acknowledged     what waited for it goes; what came meanwhile waits for the next one
//!   packet of a client    is seen as it arrives, and goes to the backup before the next mark
//! ```
//!
//! Three ends: the program ends by itself; it is lost, and the backup is told to take over; the
//! backup says that it has taken over. A backup that ends leaves the program running unprotected.
//! One that is only silent may have taken over, so answers wait until it speaks again.

use std::collections::VecDeque;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpStream, ToSocketAddrs as _};
use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

use hindcast_exec::apart::{Leader, Leading};
use hindcast_exec::run::RecordOptions;
use hindcast_exec::watch::{Ended, Signals};

use crate::channel::{Channel, Side, run_first, wait};
use crate::error::{ProtectError, system};
use crate::key::Key;
use crate::message::{ToBackup, ToPrimary, VERSION};
use crate::network::{self, Address, Rule};
use crate::packet::{FIN, Packet, RST, SYN};
use crate::queue::Queue;
use crate::ship::Shipper;
use crate::wire::Arriving;

#[derive(Clone, Debug)]
pub struct PrimaryOptions {
    /// The backup: host and port.
    pub to: String,
    pub key: Option<Key>,
    pub address: Address,
    /// The device that gets the address; `None`: the one through which the backup is reached.
    pub device: Option<String>,
    /// The packets of this queue are ours.
    pub queue: u16,
    /// After how long a silence of the backup the program goes on without it, though it may have
    /// taken over. `None`: never.
    pub alone_after: Option<Duration>,
    /// What to run. Its folder is for the log while that is on its way.
    pub record: RecordOptions,
}

/// What is worth saying while the program runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    Protected {
        pid: u32,
        device: String,
    },
    /// The program runs on, and nobody would go on in its place.
    Unprotected(Unprotected),
    /// Answers wait: the backup has not been heard for so long.
    Silent(Duration),
    /// It has been heard again.
    Heard,
    /// The program was lost, and the backup takes over.
    Lost(Ended),
    /// The backup has taken over, since it had not heard this machine: the program is ended here.
    Replaced,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unprotected {
    /// The backup has ended.
    BackupEnded,
    /// The copy there is none any more.
    Dropped(String),
    /// It was not heard for too long.
    Silence(Duration),
    /// The log cannot be read.
    Log(String),
}

/// How it came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Ended(Ended),
    /// The backup goes on in its place.
    TakenOver,
    /// The program was lost, and no backup has gone on.
    Lost(Ended),
}

/// How often the log is sent at least.
const EPOCH: Duration = Duration::from_millis(5);
const ALIVE_EVERY: Duration = Duration::from_millis(20);
/// A silence that is worth a word.
const SILENCE: Duration = Duration::from_secs(2);
const UNREAD_EVERY: Duration = Duration::from_secs(1);
/// How long the last packets of a program that has ended may take.
const LAST_PACKETS: Duration = Duration::from_secs(2);

/// Runs a program under the protection of a backup.
pub fn run(options: &PrimaryOptions, say: &mut dyn FnMut(Notice)) -> Result<Outcome, ProtectError> {
    let address = &options.address;
    network::remove_left_rules(address)?;
    run_first();
    let leading = Leading::prepare(&options.record)?;
    let files = leading.files()?;
    let (channel, local) = introduce(options, files)?;
    let device = match &options.device {
        Some(device) => device.clone(),
        None => network::device_of(local)?,
    };

    let rule = Rule::Queue(options.queue);
    let outgoing = Queue::open(options.queue).map_err(ProtectError::NoQueue)?;
    let arriving = Arriving::at(address.ip).map_err(system("looking at what comes"))?;
    let rules = Rules::set(rule, address)?;
    let _taken = Taken::take(address, &device)?;
    let _ = network::announce(address, &device);
    let signals = Signals::take_over().map_err(system("taking over signals"))?;
    let (kept, kept_device) = (address.clone(), device.clone());
    let leader = leading.start(move || {
        // The launcher was killed, and what waited in its queues is gone with it.
        network::give_up(&kept, &kept_device);
        let _ = rule.remove(&kept);
    })?;
    say(Notice::Protected {
        pid: leader.pid as u32,
        device: device.clone(),
    });
    let mut primary = Primary {
        options,
        device: device.clone(),
        shipper: Shipper::new(&options.record.folder),
        leader,
        channel: Some(channel),
        rules: Some(rules),
        outgoing,
        arriving,
        held: VecDeque::new(),
        mark: 0,
        heard: Instant::now(),
        spoken: Instant::now(),
        shipped: Instant::now(),
        is_silent: false,
        leaves: None,
    };
    Ok(primary.run(&signals, say))
}

/// Says who we are, and hears whether the backup can follow.
fn introduce(
    options: &PrimaryOptions,
    files: Vec<(String, Vec<u8>)>,
) -> Result<(Channel, Ipv4Addr), ProtectError> {
    let to = &options.to;
    let unreachable = |source| ProtectError::Unreachable {
        to: to.clone(),
        source,
    };
    let mut addresses = to.to_socket_addrs().map_err(unreachable)?;
    let address = addresses.find(SocketAddr::is_ipv4);
    let address = address.ok_or_else(|| unreachable(io::ErrorKind::NotFound.into()))?;
    let stream =
        TcpStream::connect_timeout(&address, Duration::from_secs(5)).map_err(unreachable)?;
    let local = match stream.local_addr().map_err(unreachable)? {
        SocketAddr::V4(local) => *local.ip(),
        SocketAddr::V6(_) => return Err(unreachable(io::ErrorKind::Unsupported.into())),
    };
    let mut channel =
        Channel::new(stream, options.key.as_ref(), Side::Connects).map_err(unreachable)?;
    channel.put(&ToBackup::Hello {
        version: VERSION,
        files,
        address: options.address.to_string(),
    });
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        channel.flush().map_err(unreachable)?;
        wait(&[channel.as_fd()], Duration::from_millis(10));
        let filled = channel.fill();
        let said = channel.take::<ToPrimary>();
        match said.map_err(|_| ProtectError::OtherVersion { to: to.clone() })? {
            Some(ToPrimary::Ready) => return Ok((channel, local)),
            Some(ToPrimary::Refused { why, hint }) => {
                return Err(ProtectError::Refused {
                    to: to.clone(),
                    why,
                    hint,
                });
            }
            Some(_) => return Err(ProtectError::OtherVersion { to: to.clone() }),
            None if filled.is_err() => return Err(ProtectError::OtherKey { to: to.clone() }),
            None if Instant::now() > deadline => {
                return Err(unreachable(io::ErrorKind::TimedOut.into()));
            }
            None => {}
        }
    }
}

/// The address is this machine's for as long as this is there.
struct Taken<'a> {
    address: &'a Address,
    device: &'a str,
}

impl<'a> Taken<'a> {
    fn take(address: &'a Address, device: &'a str) -> Result<Self, ProtectError> {
        network::take(address, device)?;
        Ok(Taken { address, device })
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        network::give_up(self.address, self.device);
    }
}

/// Rules that are there until they are removed.
struct Rules<'a> {
    rule: Rule,
    address: &'a Address,
}

impl<'a> Rules<'a> {
    fn set(rule: Rule, address: &'a Address) -> Result<Self, ProtectError> {
        rule.set(address)?;
        Ok(Rules { rule, address })
    }
}

impl Drop for Rules<'_> {
    fn drop(&mut self) {
        let _ = self.rule.remove(self.address);
    }
}

struct Primary<'a> {
    options: &'a PrimaryOptions,
    device: String,
    shipper: Shipper,
    leader: Leader,
    /// `None`: nobody protects the program.
    channel: Option<Channel>,
    rules: Option<Rules<'a>>,
    outgoing: Queue,
    /// What clients send.
    arriving: Arriving,
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
}

impl Primary<'_> {
    fn run(&mut self, signals: &Signals, say: &mut dyn FnMut(Notice)) -> Outcome {
        let mut looked = Instant::now();
        let mut unread = Instant::now();
        loop {
            let mut ended = None;
            if looked.elapsed() >= EPOCH {
                looked = Instant::now();
                signals.pass_on(self.leader.pid, Duration::ZERO);
                // Before the log: what it wrote before it ended is there then.
                ended = self.leader.ended();
            }
            if let Some(outcome) = self.exchange(ended.is_some(), say) {
                return outcome;
            }
            if let Some(ended) = ended {
                return self.conclude(ended, say);
            }
            if unread.elapsed() >= UNREAD_EVERY {
                unread = Instant::now();
                self.report_unread();
            }
            self.wait();
        }
    }

    /// Until there is something to do. While the backup has not answered, what comes to be held
    /// collects, and goes to it together.
    fn wait(&self) {
        let Some(channel) = &self.channel else {
            return std::thread::sleep(Duration::from_millis(20));
        };
        let ends = [channel.as_fd(), self.outgoing.as_fd()];
        let awaited = if self.held.is_empty() { 2 } else { 1 };
        let at_most = match channel.has_waiting() {
            true => Duration::from_millis(1),
            false => EPOCH,
        };
        wait(&ends[..awaited], at_most);
    }

    /// One round: what there is goes to the backup, and what it has acknowledged to the clients.
    /// `all`: the whole log, whatever else is under way.
    fn exchange(&mut self, all: bool, say: &mut dyn FnMut(Notice)) -> Option<Outcome> {
        let mut channel = self.channel.take()?;
        let shipped = self.ship(all, &mut channel);
        let heard = shipped.and_then(|()| self.hear(&mut channel));
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
                self.end_program();
                say(Notice::Replaced);
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
        let mut last = None;
        let mut going = Vec::new();
        // First what waits: whatever explains it was there before.
        let shown = self.outgoing.each(|queued| {
            last = Some(queued.id);
            if let Some(packet) = Packet::parse(queued.bytes)
                && packet.flags & (SYN | FIN | RST) != 0
            {
                going.push(ToBackup::Goes(queued.bytes.to_vec()));
            }
        });
        shown.map_err(Broken::Here)?;
        if last.is_none() && !is_due {
            return Ok(());
        }
        self.arriving
            .each(|packet| channel.put(&ToBackup::Came(packet.to_vec())));
        if self.arriving.has_lost() {
            let why = "clients send more than can be kept";
            return Err(Broken::Here(io::Error::other(why)));
        }
        going.iter().for_each(|packet| channel.put(packet));
        self.shipped = Instant::now();
        let collected = self.shipper.collect(&mut |message| channel.put(&message));
        let is_new = collected.map_err(Broken::Here)?;
        if is_new || last.is_some() {
            self.mark += 1;
            self.spoken = self.shipped;
            channel.put(&ToBackup::Mark(self.mark));
        } else if self.spoken.elapsed() >= ALIVE_EVERY {
            self.spoken = self.shipped;
            channel.put(&ToBackup::Alive);
        }
        if let Some(id) = last {
            self.held.push_back((self.mark, id));
        }
        Ok(channel.flush()?)
    }

    fn hear(&mut self, channel: &mut Channel) -> Result<Option<Said>, Broken> {
        let filled = channel.fill();
        let mut acknowledged = None;
        let mut said = None;
        while let Some(message) = channel.take::<ToPrimary>()? {
            self.heard = Instant::now();
            match message {
                ToPrimary::Mark(mark) => acknowledged = Some(mark),
                ToPrimary::Replaced => return Ok(Some(Said::Replaced)),
                ToPrimary::Dropped(why) => said = Some(Said::Dropped(why)),
                ToPrimary::Ready | ToPrimary::Refused { .. } | ToPrimary::Status(_) => {}
            }
        }
        if let Some(mark) = acknowledged {
            self.release(mark).map_err(Broken::Here)?;
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
        last.map_or(Ok(()), |id| self.outgoing.release(id))
    }

    fn watch_silence(&mut self, say: &mut dyn FnMut(Notice)) {
        let silence = self.heard.elapsed();
        if silence < SILENCE {
            if std::mem::take(&mut self.is_silent) {
                say(Notice::Heard);
            }
            return;
        }
        if !std::mem::replace(&mut self.is_silent, true) {
            say(Notice::Silent(silence));
        }
        if let Some(limit) = self.options.alone_after
            && silence >= limit
        {
            self.channel = None;
            self.go_alone(Unprotected::Silence(silence), say);
        }
    }

    /// The program runs on without protection; its packets go as they come.
    fn go_alone(&mut self, why: Unprotected, say: &mut dyn FnMut(Notice)) {
        self.leader.is_alone();
        self.rules = None;
        let held = self.held.drain(..).next_back().map(|(_, id)| id);
        // What has come meanwhile goes with the rest.
        let last = self.outgoing.each(|_| ()).ok().flatten().or(held);
        let _ = last.map(|id| self.outgoing.release(id));
        say(Notice::Unprotected(why));
    }

    /// The program has ended, one way or the other.
    fn conclude(&mut self, ended: Ended, say: &mut dyn FnMut(Notice)) -> Outcome {
        let is_lost = self.leader.is_lost(ended);
        let Some(channel) = &mut self.channel else {
            return match is_lost {
                true => Outcome::Lost(ended),
                false => Outcome::Ended(ended),
            };
        };
        if is_lost {
            channel.put(&ToBackup::Lost);
            let _ = channel.flush();
            network::give_up(&self.options.address, &self.device);
            say(Notice::Lost(ended));
            return self.hand_over(ended);
        }
        channel.put(&ToBackup::Ended);
        // Its connections end, and what it has said last goes out.
        self.leader.let_connections_end();
        let deadline = Instant::now() + LAST_PACKETS;
        let mut quiet = 0;
        while Instant::now() < deadline && quiet < 20 && self.channel.is_some() {
            let before = self.mark;
            self.exchange(true, say);
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
        let Some(channel) = &mut self.channel else {
            return;
        };
        let text = std::fs::read_to_string("/proc/self/net/tcp").unwrap_or_default();
        let own = self.options.address.ip;
        let unread: Vec<_> = text.lines().filter_map(|line| unread(line, own)).collect();
        if !unread.is_empty() {
            channel.put(&ToBackup::Unread(unread));
        }
    }
}

/// A line of `/proc/net/tcp`: `0: 0A00000A:2BCB 0200000A:0FA0 01 00000000:00000005 …`, where the
/// second number after the state is what was not read.
fn unread(line: &str, own: Ipv4Addr) -> Option<(std::net::SocketAddrV4, u16, u64)> {
    let mut words = line.split_whitespace().skip(1);
    let ends = |word: &str| -> Option<(Ipv4Addr, u16)> {
        let (ip, port) = word.split_once(':')?;
        let ip = u32::from_str_radix(ip, 16).ok()?;
        let port = u16::from_str_radix(port, 16).ok()?;
        Some((Ipv4Addr::from(ip.to_ne_bytes()), port))
    };
    let (local, port) = ends(words.next()?)?;
    let (client, client_port) = ends(words.next()?)?;
    let state = words.next()?;
    let (_, unread) = words.next()?.split_once(':')?;
    let is_listening = state == "0A";
    (local == own && !is_listening).then_some(())?;
    let unread = u64::from_str_radix(unread, 16).ok()?;
    Some((
        std::net::SocketAddrV4::new(client, client_port),
        port,
        unread,
    ))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_unread_is_in_the_kernels_table() {
        let line = "   1: 0A00000A:2BCB 0200000A:0FA0 01 00000000:0000002A 00:00000000 00000000     0        0 1 1";
        let own = Ipv4Addr::new(10, 0, 0, 10);
        let client = "10.0.0.2:4000".parse().unwrap();
        assert_eq!(unread(line, own), Some((client, 11211, 42)));
        assert_eq!(unread(line, Ipv4Addr::LOCALHOST), None);
        assert_eq!(unread("  sl  local_address rem_address   st", own), None);
        let listening = line.replace(" 01 ", " 0A ");
        assert_eq!(unread(&listening, own), None);
    }
}
