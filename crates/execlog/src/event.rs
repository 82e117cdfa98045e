//! Events: the bytes of a thread log behind its header.
//!
//! ```text
//!   0           12    16               32
//!   ├─ kind ────┼flags┼─ payload bytes ┤ payload … padded to 4 bytes
//!                      0xffff: a u32 with the real number of bytes follows
//! ```
//!
//! A kind below [`FUNCTIONS`] is one of [`Kind`]; from there on it is the number of a function of
//! the interface, and the event is a call of it:
//!
//! ```text
//!   check u32 │ result (by flags: nothing, i32, i64, errno i32) │ what the call wrote
//! ```

/// The number of the first function.
pub const FUNCTIONS: u16 = 64;
/// Function numbers of the users' own interfaces begin here.
pub const USER_FUNCTIONS: u16 = 2048;
/// Kinds and functions are below.
pub const KINDS_END: u16 = 4096;

/// Events that are not calls.
#[repr(u16)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Zeroed memory: nothing was written here.
    None = 0,
    /// `u32`: so many acquisitions in a row that waited for no other. The number is raised in
    /// place.
    Relaxed = 1,
    /// `u64`: the acquisition came after this one of another thread: `thread << 48 | its number`.
    Edge = 2,
    /// `u64`: the acquisition's place in the total order.
    Ticket = 3,
    /// `u32` threads, then `u64` for each: the global vector clock.
    Clock = 4,
    /// `i32`: an acquisition that was tried or waited for a time failed with this code.
    Busy = 5,
    /// `siginfo_t`: a signal was delivered to the program here.
    Signal = 6,
    /// `u32` function, `u32` index of the callback parameter, `u64` context: the callee called
    /// back; the arguments follow.
    Callback = 7,
    CallbackReturn = 8,
    /// `u32` pid and the folder of the child.
    Fork = 9,
    /// The folder of the next image, or nothing when it is not recorded.
    Exec = 10,
    /// `i32`: the process ended with this status.
    Exit = 11,
    /// The reason as text: recording ended here and the process went on.
    Ended = 12,
    /// `u64` address, `u64` length, then the bytes that a mapped file had.
    Mapping = 13,
    /// `u32` count, `u16` function: so many calls had the same result as the last one logged.
    Cached = 14,
    /// `u32`: the number of a thread that this one created.
    Thread = 15,
    /// The thread ended.
    ThreadEnd = 16,
    /// `u64` time, `u32` processor: what `rdtsc`, `rdtscp` or `rdpid` said.
    Tsc = 17,
    /// `u32` leaf, `u32` subleaf, four `u32`: what `cpuid` said.
    Cpuid = 18,
    /// Bytes that init needs: `AT_RANDOM` and the like.
    Start = 19,
    /// A fatal signal, `u32`, that the process is about to die of.
    Fatal = 20,
    /// `i32` descriptor, then a path: what is read from this descriptor from here on is not in the
    /// log but in that file.
    File = 21,
    /// `u64` value, `u8` whether there was one: what `rdrand` or `rdseed` said.
    Random = 22,
    /// `u64` protection of the memory, then `u64` for each address: instructions in whose place a
    /// trap was put.
    Replaced = 23,
    /// `u32` number of the boundary, `u32` thread, `u64` count: where one thread runs at a time,
    /// that thread ran before, and had been away so often.
    Turn = 24,
    /// A [`Given`](crate::reference::Given), then a path: reads may refer to this file from here
    /// on.
    Given = 25,
}

impl Kind {
    /// By their numbers.
    const ALL: [Kind; 26] = {
        use Kind::*;
        [
            None,
            Relaxed,
            Edge,
            Ticket,
            Clock,
            Busy,
            Signal,
            Callback,
            CallbackReturn,
            Fork,
            Exec,
            Exit,
            Ended,
            Mapping,
            Cached,
            Thread,
            ThreadEnd,
            Tsc,
            Cpuid,
            Start,
            Fatal,
            File,
            Random,
            Replaced,
            Turn,
            Given,
        ]
    };

    pub fn from_number(number: u16) -> Option<Kind> {
        Kind::ALL.get(number as usize).copied()
    }
}

/// How the result of a call is kept: two bits of the flags.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResultClass {
    Zero = 0,
    Small = 1,
    Large = 2,
    /// -1 (or NULL), with the error number.
    Failed = 3,
}

pub const FLAG_RESULT: u8 = 0b0011;
/// The bytes went to the original standard output or error: replay writes them again.
pub const FLAG_ECHO: u8 = 0b0100;
/// Something was left out. Of a call that reads, what it wrote: it is the same as bytes of the file
/// that a [`Kind::File`] event named for the descriptor (`u64` offset, `u64` xxh3 of the bytes), or
/// that a [`Kind::Given`] event named ([`Reference`](crate::reference::Reference)). Of a call that
/// writes, a part of the check: it covers both [ends](crate::reference::ends) of the bytes alone.
pub const FLAG_REFERENCE: u8 = 0b1000;

pub const fn header(kind: u16, flags: u8, bytes: u16) -> u32 {
    kind as u32 | (flags as u32) << 12 | (bytes as u32) << 16
}

/// The length in a header that says that the real one follows.
pub const LONG: u16 = 0xffff;

pub const fn padded(bytes: usize) -> usize {
    (bytes + 3) & !3
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event<'a> {
    /// A [`Kind`] below [`FUNCTIONS`], a function from there on.
    pub kind: u16,
    pub flags: u8,
    pub payload: &'a [u8],
    /// Where it begins, in bytes behind the log's header.
    pub offset: usize,
    /// Where the next one begins.
    pub end: usize,
}

impl<'a> Event<'a> {
    /// The event at `offset` of a log's complete bytes. `None` at their end, and where they cannot
    /// be an event.
    #[inline]
    pub fn at(log: &'a [u8], offset: usize) -> Option<Event<'a>> {
        let word = |at: usize| Some(u32::from_ne_bytes(log.get(at..at + 4)?.try_into().ok()?));
        let header = word(offset)?;
        let kind = (header & 0xfff) as u16;
        if kind == Kind::None as u16 {
            return None;
        }
        let (start, bytes) = match (header >> 16) as u16 {
            LONG => (offset + 8, word(offset + 4)? as usize),
            short => (offset + 4, short as usize),
        };
        let payload = log.get(start..start + bytes)?;
        Some(Event {
            kind,
            flags: (header >> 12 & 0xf) as u8,
            payload,
            offset,
            end: start + padded(bytes),
        })
    }

    pub fn is_call(&self) -> bool {
        self.kind >= FUNCTIONS
    }

    /// The parts of a call's payload: check, result as the function gave it (`-errno` when it
    /// failed), what it wrote.
    pub fn call(&self) -> Option<(u32, Result<i64, i32>, &'a [u8])> {
        let (check, rest) = self.payload.split_first_chunk::<4>()?;
        let check = u32::from_ne_bytes(*check);
        let small = |rest: &'a [u8]| {
            rest.split_first_chunk::<4>()
                .map(|(word, rest)| (i32::from_ne_bytes(*word), rest))
        };
        Some(match self.flags & FLAG_RESULT {
            0 => (check, Ok(0), rest),
            1 => small(rest).map(|(word, rest)| (check, Ok(word.into()), rest))?,
            2 => rest
                .split_first_chunk::<8>()
                .map(|(word, rest)| (check, Ok(i64::from_ne_bytes(*word)), rest))?,
            _ => small(rest).map(|(word, rest)| (check, Err(word), rest))?,
        })
    }
}

/// The events of a log, in order.
#[derive(Clone, Debug)]
pub struct Events<'a> {
    log: &'a [u8],
    offset: usize,
}

impl<'a> Events<'a> {
    /// `log` is what lies behind the header, up to what is committed.
    pub fn new(log: &'a [u8]) -> Self {
        Events { log, offset: 0 }
    }

    /// As [`Events::new`], from the event that begins at `offset`.
    pub fn from_offset(log: &'a [u8], offset: usize) -> Self {
        Events { log, offset }
    }
}

impl<'a> Iterator for Events<'a> {
    type Item = Event<'a>;

    fn next(&mut self) -> Option<Event<'a>> {
        let event = Event::at(self.log, self.offset)?;
        self.offset = event.end;
        Some(event)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_read_one_after_the_other_up_to_the_first_that_is_not_complete() {
        let mut log = Vec::new();
        log.extend(header(Kind::Relaxed as u16, 0, 4).to_ne_bytes());
        log.extend(7u32.to_ne_bytes());
        log.extend(header(100, 1, 11).to_ne_bytes());
        log.extend(0xabcdu32.to_ne_bytes());
        log.extend(3i32.to_ne_bytes());
        log.extend(b"xyz\0");
        log.extend(header(101, 0, LONG).to_ne_bytes());
        log.extend(100_000u32.to_ne_bytes());
        let whole = log.len();
        log.resize(whole + 100_000, 1);
        let events: Vec<_> = Events::new(&log).collect();
        assert_eq!(events.len(), 3);
        assert_eq!(events[1].call(), Some((0xabcd, Ok(3), &b"xyz"[..])));
        assert_eq!(events[2].payload.len(), 100_000);
        assert_eq!(Events::new(&log[..whole + 99_999]).count(), 2);
    }

    #[test]
    fn every_kind_has_its_number() {
        for (number, kind) in (0..).zip(Kind::ALL) {
            assert_eq!(kind as u16, number);
            assert_eq!(Kind::from_number(number), Some(kind));
        }
        assert_eq!(Kind::from_number(Kind::Given as u16 + 1), None);
    }
}
