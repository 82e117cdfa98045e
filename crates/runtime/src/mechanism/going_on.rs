//! A follower whose leader was killed goes on in its place.
//!
//! Each thread replays to the end of its log and stops there, in the call that the log says nothing
//! of. When all have come so far, one of them takes over the leader's descriptors ([`table`]), asks
//! the kernel what it had already done for the leader that no log tells ([`flows`]), and lets the
//! program go. What it is from there on depends on where its threads are ([`succession`]):
//!
//! ```text
//!   recorded      each thread's writer goes on where its reader ended; the call that it is in is
//!                 made for real, and is the next event of its log
//!   not recorded  stubs pass through, and each thread makes its call for real
//! ```

use std::ffi::CStr;
use std::fmt::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hindcast_execlog::Text;
use hindcast_execlog::board::{Leader, State};

use super::{detach, divergence, elsewhere, files, flows, succession, table, tree};
use crate::mechanism::signals::{self, kernel};
use crate::state::mode::{Mode, elsewhere, mode, set_follow};
use crate::state::signals::ASYNCHRONOUS;
use crate::state::thread::Current;
use crate::state::{numbers, recording};
use crate::{raw, syscall};

/// The thread's log is at its end, and the leader is lost. Returns when this process runs in its
/// place.
#[cold]
pub fn go_on(thread: &mut Current, doing: u16) {
    static TAKEN: AtomicBool = AtomicBool::new(false);
    static GOES_ON: AtomicBool = AtomicBool::new(false);
    thread.enter_system();
    // A handler of the program's runs once the thread is through.
    kernel::set_mask(ASYNCHRONOUS);
    succession::comes(doing);
    thread.at_end.store(true, Ordering::Release);
    thread.show(State::Ended, doing);
    if mode() == Mode::Replay && !TAKEN.swap(true, Ordering::AcqRel) {
        divergence::wait_for_the_others(thread);
        take_over(thread);
        GOES_ON.store(true, Ordering::Release);
    }
    let mut took_part = false;
    while !GOES_ON.load(Ordering::Acquire) {
        took_part = took_part || succession::take_part(thread);
        raw::pause(Duration::from_micros(100));
    }
    thread
        .at_end
        .store(mode() != Mode::Record, Ordering::Release);
    kernel::apply_mask(thread.signals.blocked);
}

fn take_over(thread: &mut Current) {
    let is_elsewhere = elsewhere();
    let mut succeeds = succession::is_possible(thread);
    let taken = if is_elsewhere {
        // A recording has all of them, or is none.
        succeeds = tree::can_all_be_recorded(tree::AT_END, succeeds);
        elsewhere::take_over()
    } else {
        numbers::alone(|| table::take_over(flows::taken_over)).inspect(|()| flows::settle())
    };
    if let Err(why) = taken {
        divergence::unusable(
            format_args!("the leader's descriptors cannot be taken over: {why}"),
            "The program ends with its leader.",
        );
    }
    let may_be_sets = [files::Kind::Internal, files::Kind::Poll];
    (0..files::TRACKED as i32)
        .filter(|descriptor| may_be_sets.contains(&files::kind(*descriptor)))
        .for_each(report_again);
    let succeeds = succeeds && succession::succeed(thread);
    if !succeeds {
        set_follow(0);
        // What the program executes from now on is not replayed.
        recording::switch_off();
        // A thread that has not come here passes as soon as it may, and a client that it has
        // answered may have the program ended: by then signals do what the program wants, and the
        // launcher knows.
        signals::detached();
    }
    let all_succeed = match is_elsewhere {
        true => tree::can_all_be_recorded(tree::READY, succeeds),
        false => succeeds,
    };
    say(match all_succeed {
        true => Leader::Succeeded,
        false => Leader::Replaced,
    });
    if !succeeds {
        detach::pass_through();
    }
}

/// Of all processes the launcher knows the first.
fn say(leader: Leader) {
    if let Some(board) = recording::board()
        && recording::is_first_process()
    {
        board.set_leader(leader);
    }
}

/// What an epoll set reports once when it comes (`EPOLLET`) the leader may have been told last. Set
/// again, it is reported again if it still holds.
fn report_again(set: i32) {
    let mut path = Text::<64>::new();
    let _ = write!(path, "/proc/self/fdinfo/{set}\0");
    let Ok(path) = CStr::from_bytes_until_nul(path.as_str().as_bytes()) else {
        return;
    };
    let Ok(file) = raw::open_at(libc::AT_FDCWD, path, libc::O_RDONLY, 0) else {
        return;
    };
    let mut lines = Lines::new(file);
    while let Some(line) = lines.next() {
        if let Some((member, mut event)) = watched(line) {
            // SAFETY: numbers, and one event.
            unsafe {
                syscall!(
                    libc::SYS_epoll_ctl,
                    set,
                    libc::EPOLL_CTL_MOD,
                    member,
                    &raw mut event
                )
            };
        }
    }
    raw::close(file);
}

/// A line of an epoll set in `/proc`: `tfd: 8 events: 19 data: 8 pos:0 …`. `None` for another line,
/// and for what is switched off after it was reported once.
fn watched(line: &str) -> Option<(i32, libc::epoll_event)> {
    let mut words = line.strip_prefix("tfd:")?.split_whitespace();
    let member = words.next()?.parse().ok()?;
    let hexadecimal = |word: Option<&str>| u64::from_str_radix(word?, 16).ok();
    let (_, events) = (words.next()?, hexadecimal(words.next())? as u32);
    let (_, data) = (words.next()?, hexadecimal(words.next())?);
    let is_once = events & libc::EPOLLONESHOT as u32 != 0;
    let event = libc::epoll_event { events, u64: data };
    (!is_once).then_some((member, event))
}

/// The lines of a small file, read piece by piece.
struct Lines {
    file: i32,
    bytes: [u8; 4096],
    length: usize,
    at: usize,
}

impl Lines {
    fn new(file: i32) -> Lines {
        Lines {
            file,
            bytes: [0; 4096],
            length: 0,
            at: 0,
        }
    }

    fn next(&mut self) -> Option<&str> {
        let end = |lines: &Lines| {
            let rest = &lines.bytes[lines.at..lines.length];
            rest.iter().position(|byte| *byte == b'\n')
        };
        if end(self).is_none() {
            self.bytes.copy_within(self.at..self.length, 0);
            (self.length, self.at) = (self.length - self.at, 0);
            let room = &mut self.bytes[self.length..];
            // SAFETY: room of that size.
            let read =
                unsafe { syscall!(libc::SYS_read, self.file, room.as_mut_ptr(), room.len()) };
            self.length += usize::try_from(read).unwrap_or(0);
        }
        let end = end(self)?;
        let line = &self.bytes[self.at..self.at + end];
        self.at += end + 1;
        std::str::from_utf8(line).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_an_epoll_set_says_what_is_watched() {
        let line = "tfd:        8 events: 80000019 data:     7f00deadbeef  pos:0 ino:1f6 sdev:8";
        let (member, event) = watched(line).unwrap();
        assert_eq!(member, 8);
        assert_eq!({ event.events }, 0x8000_0019);
        assert_eq!({ event.u64 }, 0x7f00_dead_beef);
        assert!(watched("flags:\t02").is_none());
        assert!(watched("tfd: 8 events: 40000001 data: 8 pos:0").is_none());
    }
}
