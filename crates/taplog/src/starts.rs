//! What a process draws while it works on no request, at its start above all: the same in a replay.
//!
//! ```text
//!   program ──▶ thread ──▶ thread            n-th thread that its creator made
//!      │           └─────▶ forked process    n-th process that this thread forked
//!      └────────────────▶ program            n-th start of this command by that process
//!
//!   key of the recording, identity of the thread, code that asks, n-th draw ──▶ bytes
//! ```
//!
//! An [`Identity`] is a hash of that path. It may be wrong: two processes that are started at the
//! same time may have each other's. So the first one that draws by an identity claims it
//! ([`Starts`]), and another one that comes by the same draws from the kernel. That keeps any two
//! draws of a recording from having the same bytes, whatever else is wrong.

use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

use crate::pins::{ByCaller, Caller, Draw, KEY, Key, mixed};

/// Which thread of which process of a service this is. The first thread of a process has the
/// identity of the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Identity(u64);

impl Identity {
    /// It is not known. What descends from it is not known either.
    pub const UNKNOWN: Self = Self(0);
    /// What the recorder starts descends from this.
    pub const ROOT: Self = Self(1);

    pub fn number(self) -> u64 {
        self.0
    }

    pub fn of_number(number: u64) -> Self {
        Self(number)
    }

    const THREAD: u64 = 1;
    const CHILD: u64 = 2;
    const PROGRAM: u64 = 3;
    const TOGETHER: u64 = 4;

    fn descendant(self, kind: u64, nth: u64) -> Self {
        match self {
            Self::UNKNOWN => self,
            _ => Self(mixed(mixed(mixed(0, self.0), kind), nth)),
        }
    }
}

/// A program that a process has begun to execute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Program {
    /// Of its first thread. Nobody else has it.
    pub identity: Identity,
    /// What programs that it starts descend from.
    pub base: Identity,
    /// What it starts descends from what has started it: a replay has another shell in between
    /// than the recording, or one more.
    pub is_shell: bool,
}

/// Threads of a service that draw.
const CLAIMS: usize = 1 << 17;
/// Places in which a claim may be, one behind the other.
const PROBES: usize = 64;
/// Processes at a time that are known by their number.
const PROCESSES: usize = 1 << 16;
/// Bits of the number of a process; the others of a place are an identity's.
const PID_BITS: u32 = 22;
const BASE_BITS: u32 = 64 - PID_BITS;
/// How often a process may start one command before its starts are known no more.
const STARTS: u64 = 1024;
/// Codes of a thread whose draws are counted apart.
const CALLERS: usize = 64;
/// What a [`Caller`] can be.
const CODES: usize = 1 << u16::BITS;
/// Draws by one code of a process whose threads draw together, at most.
const DRAWS: u32 = 1 << 20;

/// A part of the board.
#[repr(C)]
pub struct Starts {
    key: Key,
    /// Identities by which somebody draws; 0: free. None is ever given back.
    claimed: [AtomicU64; CLAIMS],
    /// By number of a process: what the programs that it starts descend from.
    bases: [AtomicU64; PROCESSES],
}

impl Starts {
    /// Processes draw from a generator with this key of a recording. No request draws from it.
    pub fn set_key(&self, key: &[u8; KEY]) {
        const APART: [u8; 8] = *b"starting";
        let mut own = *key;
        for (byte, apart) in own[KEY / 2..].iter_mut().zip(APART) {
            *byte ^= apart;
        }
        self.key.set(&own);
    }

    /// Whether what processes draw outside of requests is computed.
    pub fn are_pinned(&self) -> bool {
        self.key.get().is_some()
    }

    /// The process with this number, which that one has started, executes a program with these
    /// arguments from here on.
    pub fn program<'a>(
        &self,
        (pid, parent): (u32, u32),
        arguments: impl Iterator<Item = &'a [u8]> + Clone,
    ) -> Program {
        let from = self.base(pid).or_else(|| self.base(parent));
        let from = from.unwrap_or(Identity::ROOT);
        let kind = mixed(Identity::PROGRAM, hash(arguments.clone()));
        let mut starts = (0..STARTS).map(|nth| from.descendant(kind, nth));
        let identity = starts.find(|one| self.claim(*one)).unwrap_or_default();
        let is_shell = arguments.take(1).any(is_shell);
        let base = if is_shell { from } else { identity };
        self.begins(pid, base);
        Program {
            identity,
            base,
            is_shell,
        }
    }

    /// What the process with this number starts descends from this.
    pub fn begins(&self, pid: u32, base: Identity) {
        let word = u64::from(pid) << BASE_BITS | base.0 & (u64::MAX >> PID_BITS);
        self.bases[pid as usize % PROCESSES].store(word, Ordering::Relaxed);
    }

    fn base(&self, pid: u32) -> Option<Identity> {
        let word = self.bases[pid as usize % PROCESSES].load(Ordering::Relaxed);
        let is_of_it = pid != 0 && word >> BASE_BITS == u64::from(pid);
        is_of_it.then_some(Identity(word & (u64::MAX >> PID_BITS)))
    }

    /// Makes the identity the caller's; false if it is somebody's, or there is no room.
    fn claim(&self, identity: Identity) -> bool {
        if identity == Identity::UNKNOWN {
            return false;
        }
        let first = identity.0 as usize;
        let places = (0..PROBES).map(|nth| &self.claimed[first.wrapping_add(nth) % CLAIMS]);
        for place in places {
            let free = place.compare_exchange(0, identity.0, Ordering::Relaxed, Ordering::Relaxed);
            match free {
                Ok(_) => return true,
                Err(of) if of == identity.0 => return false,
                Err(_) => {}
            }
        }
        false
    }
}

/// What a thread has made and drawn. Signal handlers and children that share its memory may come in
/// between, so each is counted at once.
pub struct Thread {
    identity: AtomicU64,
    /// Whether the identity is the thread's alone: see [`Starts::claim`].
    claim: AtomicU8,
    threads: AtomicU64,
    children: AtomicU64,
    draws: AtomicU64,
    drawn_by: ByCaller<CALLERS>,
}

const NOT_CLAIMED: u8 = 0;
const ITS_OWN: u8 = 1;
const ANOTHERS: u8 = 2;

impl Default for Thread {
    fn default() -> Self {
        Self::new()
    }
}

impl Thread {
    /// One that is not known.
    pub const fn new() -> Self {
        Self {
            identity: AtomicU64::new(Identity::UNKNOWN.0),
            claim: AtomicU8::new(NOT_CLAIMED),
            threads: AtomicU64::new(0),
            children: AtomicU64::new(0),
            draws: AtomicU64::new(0),
            drawn_by: ByCaller::new(),
        }
    }

    /// It has this identity from here on, and has drawn nothing by it.
    pub fn begin(&self, identity: Identity) {
        self.begin_with(identity, NOT_CLAIMED);
    }

    /// It is the first one of a program.
    pub fn begin_program(&self, program: &Program) {
        self.begin_with(program.identity, ITS_OWN);
    }

    fn begin_with(&self, identity: Identity, claim: u8) {
        self.identity.store(identity.0, Ordering::Relaxed);
        self.claim.store(claim, Ordering::Relaxed);
        for count in [&self.threads, &self.children, &self.draws] {
            count.store(0, Ordering::Relaxed);
        }
        self.drawn_by.clear();
    }

    /// The next thread that it makes.
    pub fn thread(&self) -> Identity {
        self.next(Identity::THREAD, &self.threads)
    }

    /// The next process that it forks.
    pub fn child(&self) -> Identity {
        self.next(Identity::CHILD, &self.children)
    }

    /// All threads of the process that it has begun, where they draw together.
    pub fn together(&self) -> Identity {
        let identity = Identity(self.identity.load(Ordering::Relaxed));
        identity.descendant(Identity::TOGETHER, 0)
    }

    fn next(&self, kind: u64, count: &AtomicU64) -> Identity {
        let identity = Identity(self.identity.load(Ordering::Relaxed));
        identity.descendant(kind, count.fetch_add(1, Ordering::Relaxed))
    }

    /// Where its next draw comes from, by this code; `None`: from the kernel.
    pub fn draw(&self, starts: &Starts, caller: Caller) -> Option<Draw> {
        let key = starts.key.get()?;
        let identity = Identity(self.identity.load(Ordering::Relaxed));
        if self.claim.load(Ordering::Relaxed) == NOT_CLAIMED {
            let claim = if starts.claim(identity) {
                ITS_OWN
            } else {
                ANOTHERS
            };
            self.claim.store(claim, Ordering::Relaxed);
        }
        if identity == Identity::UNKNOWN || self.claim.load(Ordering::Relaxed) != ITS_OWN {
            return None;
        }
        match self.drawn_by.count(1, caller) {
            Some(count) => Draw::of(caller, key, identity.0, count),
            None => {
                let count = self.draws.fetch_add(1, Ordering::Relaxed);
                Draw::of(Caller::UNKNOWN, key, identity.0, count)
            }
        }
    }
}

/// What a process draws whose runtime has threads of its own, and runs the same code now in this
/// one and now in that: counted by what code asks, whichever thread runs it.
pub struct Together {
    /// 0: nothing is known of the process.
    identity: AtomicU64,
    counts: [AtomicU32; CODES],
}

impl Default for Together {
    fn default() -> Self {
        Self::new()
    }
}

impl Together {
    pub const fn new() -> Self {
        Self {
            identity: AtomicU64::new(Identity::UNKNOWN.0),
            counts: [const { AtomicU32::new(0) }; CODES],
        }
    }

    /// They draw by this identity, unless it is somebody's already.
    pub fn begin(&self, starts: &Starts, identity: Identity) {
        if starts.claim(identity) {
            self.identity.store(identity.0, Ordering::Relaxed);
        }
    }

    /// Where the next draw by this code comes from; `None`: from the kernel.
    pub fn draw(&self, starts: &Starts, caller: Caller) -> Option<Draw> {
        let key = starts.key.get()?;
        let identity = Identity(self.identity.load(Ordering::Relaxed));
        if identity == Identity::UNKNOWN || caller == Caller::UNKNOWN {
            return None;
        }
        let next = |count| (count < DRAWS).then_some(count + 1);
        let count = self.counts[usize::from(caller.0)]
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, next)
            .ok()?;
        Draw::of(caller, key, identity.0, u64::from(count))
    }
}

/// What a command is known by: its words, without the folders of files and without numbers, which
/// may be others in a replay.
fn hash<'a>(arguments: impl Iterator<Item = &'a [u8]>) -> u64 {
    arguments.fold(0, |hash, argument| {
        let letters = file_name(argument).iter();
        let letters = letters.filter(|byte| !byte.is_ascii_digit());
        let word = letters.fold(0, |word, &byte| mixed(word, u64::from(byte)));
        mixed(hash, word)
    })
}

fn is_shell(program: &[u8]) -> bool {
    const SHELLS: [&[u8]; 7] = [b"sh", b"dash", b"bash", b"ash", b"zsh", b"ksh", b"env"];
    // A login shell has a dash in front of its name.
    let name = file_name(program);
    SHELLS.contains(&name.strip_prefix(b"-").unwrap_or(name))
}

fn file_name(path: &[u8]) -> &[u8] {
    path.rsplit(|&byte| byte == b'/').next().unwrap_or(path)
}

#[cfg(test)]
mod tests;
