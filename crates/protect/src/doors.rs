//! Who comes to a port of ours, and what they want: the status is told at once, everything else is
//! for the caller.

use std::net::TcpListener;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::time::Duration;

use crate::channel::{Channel, Side, wait};
use crate::error::ProtectError;
use crate::key::Key;
use crate::message::{Status, ToBackup, ToPrimary};

pub struct Doors {
    listener: TcpListener,
    key: Option<Key>,
    visitors: Vec<Channel>,
}

/// What somebody wants.
pub enum Visit {
    /// To be followed.
    Hello(Hello),
    /// That the program has this backup.
    Attach { visitor: Channel, to: String },
}

pub struct Hello {
    pub channel: Channel,
    pub from: String,
    pub version: u32,
    pub runs: bool,
    pub files: Vec<(String, Vec<u8>)>,
    pub checkpoint: Option<(u64, Vec<u8>)>,
    pub address: String,
}

impl Doors {
    pub fn open(at: &str, key: Option<&Key>) -> Result<Doors, ProtectError> {
        let listen = |source| ProtectError::Listen(at.to_owned(), source);
        let listener = TcpListener::bind(at).map_err(listen)?;
        listener.set_nonblocking(true).map_err(listen)?;
        Ok(Doors {
            listener,
            key: key.cloned(),
            visitors: Vec::new(),
        })
    }

    /// Where they are.
    pub fn place(&self) -> String {
        let local = self.listener.local_addr();
        local.map_or_else(|error| error.to_string(), |local| local.to_string())
    }

    pub fn ends(&self) -> Vec<BorrowedFd<'_>> {
        let visitors = self.visitors.iter().map(Channel::as_fd);
        std::iter::once(self.listener.as_fd())
            .chain(visitors)
            .collect()
    }

    pub fn somebody_waits(&self) -> bool {
        wait(&self.ends(), Duration::ZERO)
    }

    /// Answers who asks for the status; returns the first that wants something else.
    pub fn look(&mut self, status: &Status) -> Option<Visit> {
        while let Ok((stream, _)) = self.listener.accept() {
            let visitor = Channel::new(stream, self.key.as_ref(), Side::Listens);
            self.visitors.extend(visitor);
        }
        let mut visit = None;
        for mut visitor in std::mem::take(&mut self.visitors) {
            if visit.is_some() {
                self.visitors.push(visitor);
                continue;
            }
            let filled = visitor.fill();
            match visitor.take::<ToBackup>() {
                Ok(Some(ToBackup::Status)) => answer(visitor, &ToPrimary::Status(status.clone())),
                Ok(Some(ToBackup::Attach { to })) => visit = Some(Visit::Attach { visitor, to }),
                Ok(Some(ToBackup::Hello {
                    version,
                    runs,
                    files,
                    checkpoint,
                    address,
                })) => {
                    visit = Some(Visit::Hello(Hello {
                        from: visitor.peer(),
                        channel: visitor,
                        version,
                        runs,
                        files,
                        checkpoint,
                        address,
                    }));
                }
                Ok(None) if filled.is_ok() && visitor.flush().is_ok() => {
                    self.visitors.push(visitor);
                }
                // Gone, or no hindcast.
                _ => {}
            }
        }
        visit
    }
}

/// Says one thing to somebody who leaves then.
pub fn answer(mut visitor: Channel, message: &ToPrimary) {
    visitor.put(message);
    let _ = visitor.flush();
}

/// As [`answer`]: what was asked for is not done.
pub fn refuse(visitor: Channel, why: &str, hint: &str) {
    let refused = ToPrimary::Refused {
        why: why.to_owned(),
        hint: hint.to_owned(),
    };
    answer(visitor, &refused);
}
