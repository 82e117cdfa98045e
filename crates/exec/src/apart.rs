//! A leader and a follower on two machines.
//!
//! ```text
//!   this machine                               the other one
//!   Leader ─ writes ─→ DIR  ··· carried by ···→ DIR ─ is read by ─→ Follower
//!                           the caller of this                      goes on when told to
//! ```
//!
//! The leader is recorded as one that is followed on its own machine. The other end differs:
//! descriptors cannot be handed over, so the follower makes them itself, and its launcher turns
//! sockets of it into what the leader's were.

use std::collections::HashMap;
use std::fs::File;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use hindcast_execlog::ProcessHeader;
use hindcast_execlog::board;
use hindcast_execlog::config::{BeginsAt, descriptors, follow};
use hindcast_execlog::files::is_first;
use hindcast_execlog::handover::{Connection, GO};

use crate::checkpoint::{BeingTaken, Checkpoint};
use crate::configure;
use crate::credentials;
use crate::error::{ExecError, system};
use crate::follow::{end, ends, is_lost};
use crate::keeper::{self, Keeper};
use crate::launch::{self, Manner, Stage};
use crate::mapped::Mapped;
use crate::numbers::Numbers;
use crate::preflight;
use crate::recording::Recording;
use crate::replay::{self, Replayable};
use crate::report::{self, Report};
use crate::run::{self, Prepared, RecordOptions};
use crate::watch::{self, Collects, Ended};

/// A program that is about to be recorded for a follower elsewhere.
pub struct Leading {
    folder: PathBuf,
    prepared: Prepared,
}

impl Leading {
    /// Everything that is known before the program runs. The folder holds then what the other
    /// machine needs to look whether it can follow: [`files`](Self::files).
    pub fn prepare(options: &RecordOptions) -> Result<Leading, ExecError> {
        Ok(Leading {
            folder: options.folder.clone(),
            prepared: run::prepare(options)?,
        })
    }

    /// The files that are there before the program runs, by their names in the folder.
    pub fn files(&self) -> Result<Vec<(String, Vec<u8>)>, ExecError> {
        let read = || -> std::io::Result<Vec<(String, Vec<u8>)>> {
            let entries = std::fs::read_dir(&self.folder)?;
            let file = |entry: std::io::Result<std::fs::DirEntry>| {
                let entry = entry?;
                let name = entry.file_name().to_string_lossy().into_owned();
                Ok((name, std::fs::read(entry.path())?))
            };
            entries.map(file).collect()
        };
        read().map_err(system("what was prepared cannot be read"))
    }

    /// Starts the program. When this process is killed so is the program, and `after` is done then.
    /// Call it while this process has one thread.
    pub fn start(self, after: impl FnOnce()) -> Result<Leader, ExecError> {
        let Prepared {
            library,
            image,
            own,
            mut config,
            ..
        } = self.prepared;
        config.follow = follow::LEADS;
        let (end, other_end) = ends().map_err(system("no socket for descriptors can be made"))?;
        let mut stage = Stage::new(&self.folder, config, &library, &own)?;
        stage.hand(end, descriptors::TABLE);
        let keeper = stage
            .board_file()
            .map(|board| Keeper::start(board, after))
            .transpose()
            .map_err(system("no process to end the program with hindcast"))?;
        let pid = launch::start(&image, &stage, Manner::Free)?;
        Ok(Leader {
            pid,
            folder: self.folder,
            stage,
            table: Some(other_end),
            _keeper: keeper,
        })
    }
}

/// A program that runs, and whose log is carried elsewhere.
pub struct Leader {
    pub pid: libc::pid_t,
    folder: PathBuf,
    stage: Stage,
    /// The process that holds the table of descriptors lives for as long as this is open: when the
    /// program is killed its connections stay, and nobody is told that it is gone.
    table: Option<OwnedFd>,
    _keeper: Option<Keeper>,
}

impl Leader {
    /// How it ended, if it has.
    pub fn ended(&self) -> Option<Ended> {
        let mut ended = None;
        watch::reap_each([self.pid], Collects::Behind, |pid, how| {
            if pid == self.pid {
                ended = Some(how);
            }
        });
        ended
    }

    /// Processes of the program that run, but for the first.
    pub fn others(&self) -> Vec<libc::pid_t> {
        let board = self.stage.board_file();
        let mut all = board.map_or_else(Vec::new, keeper::all_with);
        all.retain(|pid| *pid != self.pid);
        all
    }

    /// Whether one that has ended so is to be replaced.
    pub fn is_lost(&self, ended: Ended) -> bool {
        is_lost(&self.folder, ended)
    }

    /// After it has ended by itself: so do its connections.
    pub fn let_connections_end(&mut self) {
        self.table = None;
    }
}

/// The copy of a program whose log comes from elsewhere.
pub struct Follower {
    pub pid: libc::pid_t,
    folder: PathBuf,
    program: PathBuf,
    stage: Stage,
    connections: OwnedFd,
}

/// What a follower has come to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    Follows,
    /// It runs in the leader's place; whether it is recorded there.
    Leads {
        is_recorded: bool,
    },
    /// It is no copy of the program any more.
    Reported(Box<Report>),
    Ended(Ended),
}

/// Whether a program that was prepared elsewhere can be followed here: the same program, libraries
/// and runtime.
pub fn check(folder: &Path) -> Result<(), ExecError> {
    replay::replayable(folder).map(drop)
}

/// Whether a follower can begin at this checkpoint here.
pub fn can_begin_at(folder: &Path, from: &Checkpoint) -> Result<bool, ExecError> {
    let recording = Recording::open(folder)?;
    Ok(from.elsewhere().is_some() && from.is_usable(&recording, &preflight::here()))
}

/// Starts a process that becomes the one of the checkpoint.
fn begin_at(
    from: &Checkpoint,
    folder: &Path,
    recording: &Recording,
    stage: &mut Stage,
) -> Result<libc::pid_t, ExecError> {
    let unreadable = system("the checkpoint cannot be read");
    from.hand_over(stage).map_err(unreadable)?;
    let unmade = system("the descriptors of the checkpoint cannot be made");
    from.hand_over_descriptors(stage, folder).map_err(unmade)?;
    let mut image = from.image(recording);
    image.folder = from.elsewhere().map(|own| own.folder.as_path().into());
    Ok(launch::start(&image, stage, Manner::Bound)?)
}

/// The number that the process of this image had.
fn number_of(folder: &Path, image: &str) -> Option<libc::pid_t> {
    let file = File::open(folder.join(image).join("process")).ok()?;
    let header = Mapped::<ProcessHeader>::to_read(&file).ok()??;
    if !header.is_there() {
        return None;
    }
    libc::pid_t::try_from(header.pid).ok()
}

/// A connection that one of a follower's processes would go on with.
pub struct Wanted {
    process: libc::pid_t,
    pub connection: Connection,
}

impl Wanted {
    /// The socket that its number stands for there.
    pub fn file(&self) -> std::io::Result<OwnedFd> {
        // SAFETY: numbers only; fresh descriptors, owned from here on.
        unsafe {
            let process = libc::syscall(libc::SYS_pidfd_open, self.process, 0) as i32;
            if process < 0 {
                return Err(std::io::Error::last_os_error());
            }
            let process = OwnedFd::from_raw_fd(process);
            let number = self.connection.number;
            match libc::syscall(libc::SYS_pidfd_getfd, process.as_raw_fd(), number, 0) as i32 {
                -1 => Err(std::io::Error::last_os_error()),
                file => Ok(OwnedFd::from_raw_fd(file)),
            }
        }
    }

    /// How many bytes have gone through it, as the log of this process tells.
    pub fn moved(&self) -> u64 {
        self.connection.received + self.connection.sent
    }

    /// The last bytes that were written to it, from byte `from` of the stream on; `None` if they
    /// are not kept any more.
    pub fn written(&self, from: u64) -> Option<Vec<u8>> {
        let connection = &self.connection;
        let length = connection.sent.checked_sub(from)?;
        if length == 0 {
            return Some(Vec::new());
        }
        if connection.written != connection.sent || length > connection.ring_bytes {
            return None;
        }
        let mut ring = vec![0u8; connection.ring_bytes as usize];
        let local = libc::iovec {
            iov_base: ring.as_mut_ptr().cast(),
            iov_len: ring.len(),
        };
        let remote = libc::iovec {
            iov_base: connection.ring as *mut libc::c_void,
            iov_len: ring.len(),
        };
        // SAFETY: writes no more than there is room for.
        let read = unsafe { libc::process_vm_readv(self.process, &local, 1, &remote, 1, 0) };
        (read as usize == ring.len()).then(|| {
            (from..connection.sent)
                .map(|at| ring[(at % connection.ring_bytes) as usize])
                .collect()
        })
    }

    /// The client has so many bytes more than the log says that were sent.
    pub fn has_beyond(&self, bytes: u64) -> std::io::Result<()> {
        let local = libc::iovec {
            iov_base: (&raw const bytes).cast_mut().cast(),
            iov_len: size_of::<u64>(),
        };
        let remote = libc::iovec {
            iov_base: self.connection.beyond as *mut libc::c_void,
            iov_len: size_of::<u64>(),
        };
        // SAFETY: reads one number; the other process has said where it goes.
        let written = unsafe { libc::process_vm_writev(self.process, &local, 1, &remote, 1, 0) };
        match written as usize == size_of::<u64>() {
            true => Ok(()),
            false => Err(std::io::Error::last_os_error()),
        }
    }
}

impl Follower {
    /// Starts it, where `from` was if that is given. The first files of the log must be there, or
    /// what the checkpoint needs of them. `is_kept`: the log stays, and the follower writes it on
    /// when it goes on.
    pub fn start(
        folder: &Path,
        from: Option<&Checkpoint>,
        is_kept: bool,
    ) -> Result<Follower, ExecError> {
        let Replayable {
            library,
            image,
            recording,
            own,
        } = replay::replayable(folder)?;
        let mut config = configure::replaying(&recording);
        config.follow = follow::FOLLOWS | follow::ELSEWHERE;
        config.follow |= match is_kept {
            true => follow::SUCCEEDS,
            false => follow::DISCARDS,
        };
        let (theirs, connections) =
            ends().map_err(system("no socket for connections can be made"))?;
        if from.is_some() {
            config.begins_at = BeginsAt::Checkpoint as u32;
        }
        let mut stage = Stage::new(folder, config, &library, &own)?;
        stage.hand(theirs, descriptors::TABLE);
        credentials::ask_for(&connections).map_err(system("asking who wants connections"))?;
        // Without the privilege for it, its processes have other numbers than the leader's.
        if let Ok(numbers) = Numbers::new() {
            let image = from.map_or("p0", Checkpoint::process);
            stage.hand_numbers(numbers, number_of(folder, image));
        }
        let pid = match from {
            Some(checkpoint) => begin_at(checkpoint, folder, &recording, &mut stage)?,
            None => launch::start(&image, &stage, Manner::Bound)?,
        };
        Ok(Follower {
            pid,
            folder: folder.to_owned(),
            program: image.path,
            stage,
            connections,
        })
    }

    /// Events replayed so far, of all threads.
    pub fn events(&self) -> u64 {
        let threads = report::threads(&self.stage.board);
        threads.iter().map(|thread| thread.event).sum()
    }

    /// Whether it has replayed as much as there is of each thread: events by the thread's log. Of a
    /// run that a log ends with it cannot be said.
    pub fn has_replayed(&self, events: &HashMap<String, u64>) -> bool {
        let threads = report::threads(&self.stage.board);
        let images = threads.iter().map(|thread| &thread.process);
        let Some(image) = images
            .filter(|name| is_first(name))
            .max_by_key(|name| name.len())
        else {
            return false;
        };
        let mut now = threads.iter().filter(|thread| thread.process == *image);
        now.all(|thread| {
            let log = format!("{image}/t{}", thread.thread);
            thread.event + 1 >= events.get(&log).copied().unwrap_or(0)
        })
    }

    /// Begins to take a checkpoint of it.
    pub fn take(&self) -> std::io::Result<BeingTaken> {
        let board = self
            .stage
            .board_file()
            .ok_or(std::io::ErrorKind::NotFound)?;
        let board = board.try_clone_to_owned()?;
        Ok(BeingTaken::begin(self.folder.clone(), self.pid, board))
    }

    /// The log has become too large to be kept: what was replayed is given back, and the follower
    /// is not recorded when it goes on.
    pub fn let_log_go(&self) {
        self.stage.board.discards.store(1, Ordering::Relaxed);
    }

    /// It runs in the leader's place. When this process is killed so is it, and `after` is done
    /// then. Call it while this process has one thread.
    pub fn lead(self, folder: &Path, after: impl FnOnce()) -> Result<Leader, ExecError> {
        let keeper = self
            .stage
            .board_file()
            .map(|board| Keeper::start(board, after))
            .transpose()
            .map_err(system("no process to end the program with hindcast"))?;
        Ok(Leader {
            pid: self.pid,
            folder: folder.to_owned(),
            stage: self.stage,
            table: Some(self.connections),
            _keeper: keeper,
        })
    }

    pub fn standing(&self) -> Standing {
        let mut ended = None;
        // Before the board is looked at: what it wrote before it ended is there then.
        watch::reap_each([self.pid], Collects::Behind, |pid, how| {
            if pid == self.pid {
                ended = Some(how);
            }
        });
        match (Report::take(&self.stage.board, &self.program), ended) {
            (Some(report), _) => Standing::Reported(Box::new(report)),
            (None, Some(how)) => Standing::Ended(how),
            (None, None) => match self.stage.board.leader() {
                board::Leader::Replaced => Standing::Leads { is_recorded: false },
                board::Leader::Succeeded => Standing::Leads { is_recorded: true },
                _ => Standing::Follows,
            },
        }
    }

    /// The leader is lost: the follower goes on as soon as it has replayed what is there.
    pub fn let_go(&self) {
        self.stage.board.set_leader(board::Leader::Lost);
    }

    /// The leader has ended by itself, and so does the follower.
    pub fn let_end(&self) {
        self.stage.board.set_leader(board::Leader::Ended);
    }

    /// Children that have done something else than those of the leader, and were ended.
    pub fn dropped_children(&self) -> u32 {
        self.stage.board.dropped_children.load(Ordering::Relaxed)
    }

    /// Files that it was writing and that are not on this machine.
    pub fn lost_files(&self) -> u32 {
        self.stage.board.lost_files.load(Ordering::Relaxed)
    }

    /// Files that end with what the log tells since it goes on: the leader had written more.
    pub fn cut_files(&self) -> u32 {
        self.stage.board.cut_files.load(Ordering::Relaxed)
    }

    /// Connections that could not be taken over.
    pub fn lost_connections(&self) -> u32 {
        self.stage.board.lost_connections.load(Ordering::Relaxed)
    }

    /// After [`let_go`](Self::let_go): the next connection that one of its processes wants to have;
    /// `Ok(None)` when there are no more. `Err(WouldBlock)`: it is not that far.
    pub fn next_connection(&self) -> std::io::Result<Option<Wanted>> {
        let mut bytes = [0u8; size_of::<Connection>()];
        let (received, process) = credentials::receive(&self.connections, &mut bytes)?;
        let connection =
            Connection::from_bytes(&bytes[..received]).ok_or(std::io::ErrorKind::UnexpectedEof)?;
        Ok((connection.number >= 0).then_some(Wanted {
            process,
            connection,
        }))
    }

    /// All sockets are connected: it may go on.
    pub fn connected(&self) -> std::io::Result<()> {
        let go = GO;
        // SAFETY: one byte.
        let sent = unsafe {
            libc::send(
                self.connections.as_raw_fd(),
                (&raw const go).cast(),
                1,
                libc::MSG_NOSIGNAL,
            )
        };
        match sent {
            1 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        }
    }

    pub fn end(&self) {
        end(self.pid);
    }
}
