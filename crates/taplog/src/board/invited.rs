//! Which process of a service is to accept a connection in a replay, and which one has.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use super::Line;

/// How many processes can be kept from a connection.
const PROCESSES: usize = 64;

/// Of the one connection that is being made.
#[repr(C)]
pub(super) struct Invited {
    /// The port that it leads to; 0: all may accept what comes. Written last.
    port: AtomicU32,
    /// The place of its line.
    place: AtomicU32,
    /// Whom it is for; 0: all but the others.
    only: AtomicU32,
    others: [AtomicU32; PROCESSES],
    /// Who has accepted it; 0: nobody has.
    by: AtomicU32,
    /// A process that has a listener of its own for the port, and is not to accept it, has got it.
    is_elsewhere: AtomicBool,
}

/// Who is to accept a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guests<'a> {
    Only(u32),
    AllBut(&'a [u32]),
}

impl Invited {
    pub fn put(&self, line: Line, guests: Guests<'_>) {
        self.clear();
        let (only, others) = match guests {
            Guests::Only(process) => (process, &[][..]),
            Guests::AllBut(others) => (0, others),
        };
        let others = others.iter().copied().chain(std::iter::repeat(0));
        for (at, other) in self.others.iter().zip(others) {
            at.store(other, Ordering::SeqCst);
        }
        self.only.store(only, Ordering::SeqCst);
        self.place.store(line.place, Ordering::SeqCst);
        self.by.store(0, Ordering::SeqCst);
        self.is_elsewhere.store(false, Ordering::SeqCst);
        self.port.store(u32::from(line.to), Ordering::SeqCst);
    }

    pub fn clear(&self) {
        self.port.store(0, Ordering::SeqCst);
    }

    pub fn is_on(&self) -> bool {
        self.port.load(Ordering::SeqCst) != 0
    }

    pub fn may(&self, port: u16, process: u32) -> bool {
        if self.port.load(Ordering::SeqCst) != u32::from(port) {
            return true;
        }
        match self.only.load(Ordering::SeqCst) {
            0 => {
                let mut others = self.others.iter();
                !others.any(|other| other.load(Ordering::SeqCst) == process)
            }
            only => only == process,
        }
    }

    /// Whether it is the connection that is being made.
    pub fn is_by(&self, line: Line) -> bool {
        let port = self.port.load(Ordering::SeqCst);
        port != 0 && port == u32::from(line.to) && line.place == self.place.load(Ordering::SeqCst)
    }

    pub fn accepted(&self, line: Line, process: u32) {
        if self.is_by(line) {
            self.by.store(process, Ordering::SeqCst);
        }
    }

    pub fn declined(&self, port: u16) {
        if self.port.load(Ordering::SeqCst) == u32::from(port) {
            self.is_elsewhere.store(true, Ordering::SeqCst);
        }
    }

    pub fn is_elsewhere(&self) -> bool {
        self.is_elsewhere.load(Ordering::SeqCst)
    }

    pub fn by(&self) -> Option<u32> {
        let by = self.by.load(Ordering::SeqCst);
        (by != 0).then_some(by)
    }
}
