//! What a follower has whose leader is elsewhere, beside its memory: descriptors, settings, and the
//! place in each log from which on it reads.

use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::atomic::Ordering;

use hindcast_execlog::board::{Slot, State};
use hindcast_execlog::checkpoint::Settings;
use hindcast_execlog::{Board, LogHeader};
use serde::{Deserialize, Serialize};

use super::descriptors::{self, Descriptor};
use super::maps::Unfit;
use super::take::{NotTaken, Own, Taking};
use crate::recording::Text;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Elsewhere {
    pub descriptors: Vec<Descriptor>,
    /// Where the process is.
    pub folder: Text,
    /// Its limits: resource, and the soft and the hard one.
    limits: Vec<(u32, u64, u64)>,
    pub logs: Vec<Part>,
}

/// What of a thread's log is needed, in bytes behind its header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    pub thread: u64,
    /// From there on.
    pub begins: u64,
    /// Up to there at least, before the process can go on.
    pub ends: u64,
    /// None of it, for the thread has ended.
    pub is_over: bool,
}

/// `image` is the folder of the process's image in the recording.
pub fn look(taking: &Taking, image: &str) -> Result<(Elsewhere, Own), NotTaken> {
    let process = taking.process;
    let link = |name: &str| std::fs::read_link(format!("/proc/{process}/{name}"));
    if link("root")? != Path::new("/") {
        return Err(Unfit::Root.into());
    }
    let descriptors = descriptors::of(process, taking.recording)?;
    let status = std::fs::read_to_string(format!("/proc/{process}/status"))?;
    let (mut settings, mut numbers) =
        settings(&status).ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))?;
    let closing = descriptors.iter().filter(|descriptor| descriptor.closes());
    let closing: Vec<u32> = closing
        .map(|descriptor| descriptor.number() as u32)
        .collect();
    settings.closing = closing.len() as u32;
    numbers.extend(closing);
    let found = Elsewhere {
        descriptors,
        folder: Text::from(&link("cwd")?),
        limits: limits(&std::fs::read_to_string(format!("/proc/{process}/limits"))?),
        logs: logs(taking.board, &taking.recording.join(image), image)?,
    };
    Ok((found, Own { settings, numbers }))
}

/// From what the kernel says of a process; and its further groups.
fn settings(status: &str) -> Option<(Settings, Vec<u32>)> {
    let value = |name: &str| status.lines().find_map(|line| line.strip_prefix(name));
    let numbers = |name: &str| -> Option<Vec<u32>> {
        let words = value(name)?.split_whitespace();
        words.map(|word| word.parse().ok()).collect()
    };
    let further = numbers("Groups:")?;
    let settings = Settings {
        are_own: 1,
        umask: u32::from_str_radix(value("Umask:")?.trim(), 8).ok()?,
        users: *numbers("Uid:")?.first_chunk()?,
        groups: *numbers("Gid:")?.first_chunk()?,
        further: further.len() as u32,
        closing: 0,
    };
    Some((settings, further))
}

/// From what the kernel says of a process: a line for each resource, in their order, behind one of
/// names.
fn limits(text: &str) -> Vec<(u32, u64, u64)> {
    const NAME: usize = 26;
    let limit = |(resource, line): (u32, &str)| {
        let mut words = line.get(NAME..)?.split_whitespace();
        let mut next = || match words.next()? {
            "unlimited" => Some(libc::RLIM_INFINITY),
            number => number.parse().ok(),
        };
        Some((resource, next()?, next()?))
    };
    let lines = (0..).zip(text.lines().skip(1));
    lines.filter_map(limit).collect()
}

impl Elsewhere {
    /// Its limits, but for that of the stack, which decides where things lie.
    pub fn limits(&self) -> Vec<(u32, libc::rlimit)> {
        let limits = self.limits.iter();
        let others = limits.filter(|(resource, ..)| *resource != libc::RLIMIT_STACK);
        others
            .map(|&(resource, rlim_cur, rlim_max)| (resource, libc::rlimit { rlim_cur, rlim_max }))
            .collect()
    }
}

/// Of each thread that there has been. One that the board has no room for is not among them: its
/// log is needed whole.
fn logs(board: &Board, folder: &Path, image: &str) -> io::Result<Vec<Part>> {
    let used = (board.slots_used.load(Ordering::Acquire) as usize).min(board.slots.len());
    let of_image = |slot: &&Slot| slot.process.as_str() == image;
    let part = |slot: &Slot| {
        let thread = slot.thread.load(Ordering::Relaxed);
        let is_over = slot.state() == State::Ended;
        let ends = match is_over {
            true => 0,
            false => committed(&folder.join(format!("t{thread}")))?,
        };
        Ok(Part {
            thread: thread.into(),
            begins: slot.position.load(Ordering::Relaxed),
            ends,
            is_over,
        })
    };
    board.slots[..used]
        .iter()
        .filter(of_image)
        .map(part)
        .collect()
}

/// How long a log is. What its reader has seen is no more.
fn committed(log: &Path) -> io::Result<u64> {
    let mut bytes = [0; 8];
    let at = std::mem::offset_of!(LogHeader, committed) as u64;
    std::fs::File::open(log)?.read_exact_at(&mut bytes, at)?;
    Ok(u64::from_ne_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_says_of_a_process_is_read() {
        let status = "Name:\tcached\nUmask:\t0027\nUid:\t0\t65534\t0\t65534\nGid:\t7\t8\t9\t8\nGroups:\t65534 12 \n";
        let (settings, further) = settings(status).unwrap();
        assert_eq!(settings.umask, 0o027);
        assert_eq!(settings.users, [0, 65534, 0]);
        assert_eq!(settings.groups, [7, 8, 9]);
        assert_eq!(further, [65534, 12]);
        assert_eq!(settings.further, 2);
        let text = "Limit                     Soft Limit           Hard Limit           Units     \nMax cpu time              unlimited            unlimited            seconds   \nMax file size             5                    7                    bytes     \n";
        let unlimited = libc::RLIM_INFINITY;
        assert_eq!(limits(text), [(0, unlimited, unlimited), (1, 5, 7)]);
    }
}
