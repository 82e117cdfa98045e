//! What a drain gives away, and to whom.

use std::io;
use std::path::PathBuf;

use hindcast_taplog::Told;

use crate::clock::Clock;

/// Who is given what rings tell. Of a ring it comes as it was told; rings are taken one after the
/// other, so what several threads did is in order only by their moments.
pub trait Taker {
    /// A ring appears, of a thread of this program.
    fn ring(&mut self, ring: u32, program: &Program) -> Result<(), SpoolError>;

    /// What a ring told since the last time.
    fn told(&mut self, ring: u32, records: Records<'_>) -> Result<(), SpoolError>;

    /// Whether rings fill up, so that what is told now had better be taken quickly.
    fn hurry(&mut self, is_behind: bool) {
        let _ = is_behind;
    }

    /// A ring holds nonsense: of what it would still have told nothing is known.
    fn garbled(&mut self, ring: u32) -> Result<(), SpoolError>;

    /// The program of this ring has ended: it tells nothing more.
    fn ended(&mut self, ring: u32) -> Result<(), SpoolError>;

    /// Whether more can be taken. If not, rings fill up and taps count what they lose.
    fn has_room(&self) -> bool;

    /// All rings were looked at. What was done before `moment`, and led to something that was done
    /// before it, has been told: what was done is told before the service's code goes on. `clock`
    /// is what the clocks showed then.
    fn flush(&mut self, moment: u64, clock: Clock) -> Result<(), SpoolError>;
}

#[derive(Debug, thiserror::Error)]
pub enum SpoolError {
    #[error("cannot receive rings from the service")]
    Socket(#[source] io::Error),
    #[error("the system gives no random bytes")]
    Key,
    #[error("there is no memory to compress with")]
    Memory(#[source] io::Error),
    #[error("{path} is no spool that can be read: its beginning is not there")]
    NoBeginning { path: PathBuf },
    #[error(
        "{path} was written by another version of hindcast, in format {version}, and this one reads format {ours}: use \
         the version that recorded"
    )]
    Version {
        path: PathBuf,
        version: u32,
        ours: u32,
    },
    #[error("cannot start a thread")]
    Thread(#[source] io::Error),
    #[error("cannot write to {path}")]
    Write {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("cannot read {path}")]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{path} is damaged at byte {at}: {what}")]
    Damaged {
        path: PathBuf,
        at: u64,
        what: &'static str,
    },
}

/// Which program a ring's records are of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    pub pid: u32,
    pub parent: u32,
    /// By the machine's monotonic clock.
    pub began: u64,
    /// Its arguments, each followed by a zero; empty if it had ended before we could ask.
    pub command: Vec<u8>,
}

impl Program {
    /// As the kernel knows it.
    pub(crate) fn of(pid: u32, began: u64) -> Self {
        let command = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let parent = status.lines().find_map(|line| line.strip_prefix("PPid:"));
        Self {
            pid,
            parent: parent.and_then(|pid| pid.trim().parse().ok()).unwrap_or(0),
            began,
            command,
        }
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(16 + self.command.len());
        bytes.extend_from_slice(&self.pid.to_le_bytes());
        bytes.extend_from_slice(&self.parent.to_le_bytes());
        bytes.extend_from_slice(&self.began.to_le_bytes());
        bytes.extend_from_slice(&self.command);
        bytes
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (pid, rest) = bytes.split_first_chunk()?;
        let (parent, rest) = rest.split_first_chunk()?;
        let (began, command) = rest.split_first_chunk()?;
        Some(Self {
            pid: u32::from_le_bytes(*pid),
            parent: u32::from_le_bytes(*parent),
            began: u64::from_le_bytes(*began),
            command: command.to_vec(),
        })
    }
}

/// What a ring told, one after the other, with its moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Records<'a>(&'a [u8]);

impl<'a> Records<'a> {
    /// As [`Told::encode`] wrote them. What is none of it ends them.
    pub fn of(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(crate) fn bytes(&self) -> &'a [u8] {
        self.0
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = (u64, Told<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        Told::decode(&mut self.0)
    }
}
