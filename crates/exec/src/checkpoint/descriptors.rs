//! The descriptors of a follower whose leader is elsewhere, which are real: what the kernel says of
//! them, and others that are like them.
//!
//! Nothing has been moved through them: connections are sockets that are not connected, pipes and
//! event descriptors are empty, and what is to be put in place when the process goes on lies in its
//! memory. So what is to be known is how each was made, and how it was set up.

mod socket;

use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd, RawFd};
use std::path::Path;

use hindcast_execlog::config::descriptors as ours;
use serde::{Deserialize, Serialize};

use super::maps::Unfit;
use super::take::NotTaken;
use crate::launch::{Opened, Watch};
use crate::recording::Text;
use socket::Socket;

/// One number of the program's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Descriptor {
    number: RawFd,
    /// Flags as of `open`.
    flags: i32,
    what: What,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum What {
    /// What the launcher has under this number.
    Inherited,
    /// What a smaller number stands for.
    CopyOf(RawFd),
    /// Where it is no absolute path it is in the folder of the recording.
    File {
        path: Text,
        position: i64,
    },
    Socket(Socket),
    /// One of a pair of sockets that are connected to each other: the number of the other one.
    Paired {
        other: RawFd,
        socket: Socket,
    },
    /// An end: of which pipe, and whether it is written to.
    Pipe {
        pipe: String,
        is_written: bool,
    },
    Event {
        is_semaphore: bool,
    },
    Timer {
        clock: i32,
        /// Nanoseconds until it ends, and from then to then; zero: never.
        value: u64,
        interval: u64,
    },
    Notifications,
    Set(Vec<Member>),
}

/// What a set of descriptors watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Member {
    number: RawFd,
    events: u32,
    data: u64,
    inode: u64,
}

impl Descriptor {
    /// Whether it is closed when another image is executed.
    pub fn closes(&self) -> bool {
        self.flags & libc::O_CLOEXEC != 0
    }

    pub fn number(&self) -> RawFd {
        self.number
    }
}

// ---- What there is ----

/// Those of a process whose threads wait. Files below `recording` are named from there.
pub fn of(process: libc::pid_t, recording: &Path) -> Result<Vec<Descriptor>, NotTaken> {
    let mut numbers = Vec::new();
    for entry in std::fs::read_dir(format!("/proc/{process}/fd"))? {
        let name = entry?.file_name();
        numbers.extend(name.to_str().and_then(|name| name.parse::<RawFd>().ok()));
    }
    numbers.retain(|number| !(ours::LIBRARY..ours::END).contains(number));
    numbers.sort_unstable();
    let pidfd = pidfd(process)?;
    let mut found: Vec<(String, Descriptor)> = Vec::new();
    let mut connected: Vec<(RawFd, OwnedFd)> = Vec::new();
    for number in numbers {
        let link = std::fs::read_link(format!("/proc/{process}/fd/{number}"))?;
        let link = link.to_string_lossy().into_owned();
        let text = std::fs::read_to_string(format!("/proc/{process}/fdinfo/{number}"))?;
        let same = found.iter().find(|(other, descriptor)| {
            *other == link && are_same((process, descriptor.number), (process, number))
        });
        let own = std::process::id() as libc::pid_t;
        let what = match same {
            _ if number <= 2 && are_same((own, number), (process, number)) => What::Inherited,
            Some((_, descriptor)) => What::CopyOf(descriptor.number),
            None if link.starts_with("socket:") => {
                let file = file_of(&pidfd, number)?;
                let socket = Socket::of(&file)?;
                match socket::is_connected(&file) {
                    false => What::Socket(socket),
                    true => {
                        connected.push((number, file));
                        What::Paired { other: -1, socket }
                    }
                }
            }
            None => what(&link, &text, recording).ok_or_else(|| Unfit::Descriptor(link.clone()))?,
        };
        let flags = octal(&text, "flags:").unwrap_or(0);
        let descriptor = Descriptor {
            number,
            flags,
            what,
        };
        found.push((link, descriptor));
    }
    let mut found: Vec<Descriptor> = found
        .into_iter()
        .map(|(_, descriptor)| descriptor)
        .collect();
    find_others(&mut found, &connected)?;
    are_members_there(process, &found)?;
    Ok(found)
}

/// Which of the connected sockets is connected to which.
fn find_others(found: &mut [Descriptor], connected: &[(RawFd, OwnedFd)]) -> Result<(), NotTaken> {
    for descriptor in found {
        let What::Paired { other, .. } = &mut descriptor.what else {
            continue;
        };
        let own = connected
            .iter()
            .find(|(number, _)| *number == descriptor.number);
        let (_, own) = own.ok_or(io::Error::from(io::ErrorKind::NotFound))?;
        let their = connected
            .iter()
            .find(|(number, file)| *number != descriptor.number && socket::are_a_pair(own, file));
        let what = "a connected socket whose other end it has not".to_owned();
        *other = their.ok_or(NotTaken::from(Unfit::Descriptor(what)))?.0;
    }
    Ok(())
}

/// A set may watch what has no number any more, or had this one before another got it.
fn are_members_there(process: libc::pid_t, found: &[Descriptor]) -> Result<(), NotTaken> {
    for descriptor in found {
        let What::Set(members) = &descriptor.what else {
            continue;
        };
        for member in members {
            use std::os::unix::fs::MetadataExt as _;
            let path = format!("/proc/{process}/fd/{}", member.number);
            let inode = std::fs::metadata(path).map(|found| found.ino());
            if !inode.is_ok_and(|inode| inode == member.inode) {
                let what = format!("{} in a set", member.number);
                return Err(Unfit::Descriptor(what).into());
            }
        }
    }
    Ok(())
}

fn pidfd(process: libc::pid_t) -> io::Result<OwnedFd> {
    // SAFETY: numbers only; a fresh descriptor, owned from here on.
    unsafe { owned(libc::syscall(libc::SYS_pidfd_open, process, 0) as RawFd) }
}

fn file_of(process: &OwnedFd, number: RawFd) -> io::Result<OwnedFd> {
    let process = process.as_raw_fd();
    // SAFETY: numbers only; a fresh descriptor, owned from here on.
    unsafe { owned(libc::syscall(libc::SYS_pidfd_getfd, process, number, 0) as RawFd) }
}

/// # Safety
/// A fresh descriptor, or -1 where a call failed.
unsafe fn owned(made: RawFd) -> io::Result<OwnedFd> {
    match made {
        -1 => Err(io::Error::last_os_error()),
        // SAFETY: the caller's promise.
        made => Ok(unsafe { OwnedFd::from_raw_fd(made) }),
    }
}

/// Whether two numbers stand for the same opened file.
fn are_same(one: (libc::pid_t, RawFd), other: (libc::pid_t, RawFd)) -> bool {
    const KCMP_FILE: i32 = 0;
    // SAFETY: numbers only.
    let compared =
        unsafe { libc::syscall(libc::SYS_kcmp, one.0, other.0, KCMP_FILE, one.1, other.1) };
    compared == 0
}

/// By what the kernel calls it, and says of it. `None`: it cannot be made again.
fn what(link: &str, text: &str, recording: &Path) -> Option<What> {
    let value = |name: &str| {
        text.lines()
            .find_map(|line| line.strip_prefix(name))
            .map(str::trim)
    };
    let number = |name: &str| value(name)?.parse::<i64>().ok();
    Some(match link {
        "anon_inode:[eventpoll]" => What::Set(text.lines().filter_map(member).collect()),
        "anon_inode:[eventfd]" => What::Event {
            is_semaphore: number("eventfd-semaphore:") == Some(1),
        },
        "anon_inode:[timerfd]" => {
            let nanoseconds = |name: &str| {
                let (seconds, rest) = value(name)?.strip_prefix('(')?.split_once(',')?;
                let rest = rest.trim().strip_suffix(')')?;
                Some(seconds.parse::<u64>().ok()? * 1_000_000_000 + rest.parse::<u64>().ok()?)
            };
            let has_ended = number("ticks:")? != 0;
            let value = nanoseconds("it_value:")?;
            What::Timer {
                clock: number("clockid:")? as i32,
                value: if has_ended { 1 } else { value },
                interval: nanoseconds("it_interval:")?,
            }
        }
        "anon_inode:inotify" => What::Notifications,
        _ if link.starts_with("pipe:") => What::Pipe {
            pipe: link.to_owned(),
            is_written: octal(text, "flags:")? & libc::O_ACCMODE == libc::O_WRONLY,
        },
        _ if link.ends_with(" (deleted)") => return None,
        _ if link.starts_with('/') => {
            let path = Path::new(link);
            What::File {
                path: Text::from(path.strip_prefix(recording).unwrap_or(path)),
                position: number("pos:")?,
            }
        }
        _ => return None,
    })
}

fn octal(text: &str, name: &str) -> Option<i32> {
    let value = text.lines().find_map(|line| line.strip_prefix(name))?;
    i32::from_str_radix(value.trim(), 8).ok()
}

/// A line of a set: `tfd: 8 events: 19 data: 8 pos:0 ino:1f6 sdev:8`.
fn member(line: &str) -> Option<Member> {
    let mut words = line.strip_prefix("tfd:")?.split_whitespace();
    let hexadecimal = |word: &str| u64::from_str_radix(word, 16).ok();
    let number = words.next()?.parse().ok()?;
    let events = hexadecimal(words.nth(1)?)? as u32;
    let data = hexadecimal(words.nth(1)?)?;
    let inode = words.find_map(|word| hexadecimal(word.strip_prefix("ino:")?))?;
    Some(Member {
        number,
        events,
        data,
        inode,
    })
}

// ---- Others that are like them ----

/// Makes all of them. `recording` is where the recording is here.
pub fn make(all: &[Descriptor], recording: &Path) -> io::Result<Opened> {
    let highest = all.last().map_or(0, |last| last.number).max(ours::END);
    allow(highest as u64 + all.len() as u64 + 64);
    let mut opened = Opened {
        closed: (0..3)
            .filter(|number| all.iter().all(|descriptor| descriptor.number != *number))
            .collect(),
        ..Opened::default()
    };
    let mut pipes: Vec<(&str, [OwnedFd; 2])> = Vec::new();
    let mut pairs: Vec<(RawFd, [OwnedFd; 2])> = Vec::new();
    for descriptor in all {
        let file = match &descriptor.what {
            What::Inherited => continue,
            What::Pipe { pipe, is_written } => {
                if pipes.iter().all(|(known, _)| known != pipe) {
                    pipes.push((pipe, new_pipe()?));
                }
                let made = pipes.iter().find(|(known, _)| known == pipe);
                let (_, ends) = made.ok_or(io::ErrorKind::NotFound)?;
                ends[usize::from(*is_written)].try_clone()?
            }
            What::Paired { other, socket } => {
                let first = descriptor.number.min(*other);
                if pairs.iter().all(|(known, _)| *known != first) {
                    pairs.push((first, socket.make_pair()?));
                }
                let made = pairs.iter().find(|(known, _)| *known == first);
                let (_, ends) = made.ok_or(io::ErrorKind::NotFound)?;
                let end = &ends[usize::from(descriptor.number != first)];
                socket.set(end);
                end.try_clone()?
            }
            What::CopyOf(number) => {
                let known = opened.files.iter().find(|(_, known)| known == number);
                match known {
                    Some((file, _)) => file.try_clone()?,
                    // SAFETY: a number; a fresh descriptor.
                    None => unsafe { owned(libc::dup(*number)) }?,
                }
            }
            what => new(what, descriptor.flags, recording)?,
        };
        if let What::Set(members) = &descriptor.what {
            opened.watches.extend(members.iter().map(|member| Watch {
                set: descriptor.number,
                member: member.number,
                events: member.events,
                data: member.data,
            }));
        }
        // SAFETY: numbers; a fresh descriptor, above all that are to be theirs.
        let file = unsafe {
            const CHANGEABLE: i32 = libc::O_APPEND | libc::O_NONBLOCK | libc::O_NOATIME;
            libc::fcntl(
                file.as_raw_fd(),
                libc::F_SETFL,
                descriptor.flags & CHANGEABLE,
            );
            owned(libc::fcntl(
                file.as_raw_fd(),
                libc::F_DUPFD_CLOEXEC,
                highest + 1,
            ))
        }?;
        opened.files.push((file, descriptor.number));
    }
    Ok(opened)
}

/// As many descriptors as this are needed in this process.
fn allow(numbers: u64) {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: one value. Where it is not allowed making one of them fails.
    unsafe {
        libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit);
        limit.rlim_cur = limit.rlim_cur.max(numbers.min(limit.rlim_max));
        libc::setrlimit(libc::RLIMIT_NOFILE, &limit);
    }
}

fn new_pipe() -> io::Result<[OwnedFd; 2]> {
    let mut ends = [-1; 2];
    // SAFETY: two fresh descriptors, owned from here on.
    unsafe {
        match libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) {
            0 => Ok(ends.map(|end| OwnedFd::from_raw_fd(end))),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

fn new(what: &What, flags: i32, recording: &Path) -> io::Result<OwnedFd> {
    // SAFETY: numbers only; fresh descriptors, or -1.
    unsafe {
        match what {
            What::Event { is_semaphore: true } => owned(libc::eventfd(0, libc::EFD_SEMAPHORE)),
            What::Event { .. } => owned(libc::eventfd(0, 0)),
            What::Timer {
                clock,
                value,
                interval,
            } => new_timer(*clock, *value, *interval),
            What::Notifications => owned(libc::inotify_init1(0)),
            What::Set(_) => owned(libc::epoll_create1(0)),
            What::Socket(socket) => socket.make(),
            What::File { path, position } => {
                open(&recording.join(path.as_path()), flags, *position)
            }
            What::Inherited | What::CopyOf(_) | What::Pipe { .. } | What::Paired { .. } => {
                Err(io::ErrorKind::InvalidInput.into())
            }
        }
    }
}

fn new_timer(clock: i32, value: u64, interval: u64) -> io::Result<OwnedFd> {
    let time = |nanoseconds: u64| libc::timespec {
        tv_sec: (nanoseconds / 1_000_000_000) as i64,
        tv_nsec: (nanoseconds % 1_000_000_000) as i64,
    };
    let times = libc::itimerspec {
        it_interval: time(interval),
        it_value: time(value),
    };
    // SAFETY: a fresh descriptor, and values of this function.
    unsafe {
        let timer = owned(libc::timerfd_create(clock, 0))?;
        match libc::timerfd_settime(timer.as_raw_fd(), 0, &times, std::ptr::null_mut()) {
            0 => Ok(timer),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// In place of a file that is not on this machine there is nothing, as when the log tells of it.
fn open(path: &Path, flags: i32, position: i64) -> io::Result<OwnedFd> {
    use std::os::unix::ffi::OsStrExt as _;
    let flags = flags & !(libc::O_CREAT | libc::O_EXCL | libc::O_TRUNC) | libc::O_NONBLOCK;
    let path = std::ffi::CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: C strings; fresh descriptors, or -1.
    let file = unsafe {
        owned(libc::open(path.as_ptr(), flags))
            .or_else(|_| owned(libc::open(c"/dev/null".as_ptr(), libc::O_RDWR)))
    }?;
    // SAFETY: numbers only. What has no position has none here, either.
    unsafe { libc::lseek(file.as_raw_fd(), position, libc::SEEK_SET) };
    Ok(file)
}

#[cfg(test)]
mod tests;
