//! On what terms a program is protected, what is said about it, and what a machine has for as long
//! as it runs there.

use std::time::Duration;

use hindcast_exec::watch::Ended;

use crate::error::ProtectError;
use crate::key::Key;
use crate::network::{self, Address, Rule};

/// On what terms a program is protected, on either machine.
#[derive(Clone, Debug)]
pub struct Terms {
    pub key: Option<Key>,
    pub address: Address,
    /// The packets of this queue are ours.
    pub queue: u16,
    /// After how long a silence of the backup the program goes on without it, though it may have
    /// taken over. `None`: never.
    pub alone_after: Option<Duration>,
    /// Up to how many bytes the log is kept for a backup that comes later.
    pub keep: u64,
}

/// What is worth saying while the program runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    Protected {
        pid: u32,
        address: Address,
        device: String,
        by: String,
    },
    /// The program runs on, and nobody would go on in its place.
    Unprotected { why: Unprotected, next: Next },
    /// A backup was named for a program that runs unprotected, and is given the log.
    CatchesUp(String),
    /// That came to nothing.
    NotAttached {
        to: String,
        why: String,
        hint: String,
        next: Next,
    },
    /// A process that the program has started is not recorded, and would be missing after a
    /// takeover: why.
    NotCopied(String),
    /// The log is larger than what is kept, in bytes: no backup can be attached later.
    LogDropped(u64),
    /// Answers wait: the backup has not been heard for so long.
    Silent { by: String, silence: Duration },
    /// It has been heard again.
    Heard(String),
    /// The program was lost, and the backup takes over.
    Lost { ended: Ended, by: String },
    /// The backup has taken over, since it had not heard this machine: the program is ended here.
    Replaced(String),
}

/// What can be done for a program that nobody protects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// A backup can be attached, by who asks there.
    Attach { at: String },
    /// Only where this machine listens, which it does not.
    Deaf,
    /// None can be, until the program is started again: why.
    Restart(String),
    /// As above, so that it stays in the foreground.
    Foreground,
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
    /// The process that was started has ended, and so many others run on.
    Background(usize),
}

/// Of a process whose copy was ended: see [`Notice::NotCopied`].
pub const NOT_COPIED: &str = "it has done something else on the backup than here";

/// How it came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Ended(Ended),
    /// The backup goes on in its place.
    TakenOver,
    /// The program was lost, and no backup has gone on.
    Lost(Ended),
}

/// The address is this machine's for as long as this is there.
pub struct Taken {
    address: Address,
    pub device: String,
}

impl Taken {
    pub fn take(address: &Address, device: &str) -> Result<Self, ProtectError> {
        network::take(address, device)?;
        Ok(Taken {
            address: address.clone(),
            device: device.to_owned(),
        })
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        network::give_up(&self.address, &self.device);
    }
}

/// What goes to clients is held for as long as this is there.
pub struct Rules {
    rule: Rule,
    address: Address,
}

impl Rules {
    pub fn queue(terms: &Terms) -> Result<Self, ProtectError> {
        let (rule, address) = (Rule::Queue(terms.queue), terms.address.clone());
        rule.set(&address)?;
        Ok(Rules { rule, address })
    }
}

impl Drop for Rules {
    fn drop(&mut self) {
        let _ = self.rule.remove(&self.address);
    }
}

/// What is left to do when the launcher was killed: what waited in its queue is gone with it.
pub fn clean_up(terms: &Terms, device: &str) -> impl FnOnce() + use<> {
    let (address, rule, device) = (
        terms.address.clone(),
        Rule::Queue(terms.queue),
        device.to_owned(),
    );
    move || {
        network::give_up(&address, &device);
        let _ = rule.remove(&address);
    }
}
